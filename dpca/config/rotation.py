"""The keys of a rotation in a configuration."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from dpca.config.inputs import Section
from dpca.numerics.rotation import Algorithm, Kind, Rotating


class Rotation(Section):
    """Rotation of leading components."""

    kind: Annotated[
        Kind,
        Field(
            description="varimax: orthogonal, loadings that are large or small (Kaiser 1958); promax: oblique, from varimax (Hendrickson "
            "and White 1964); fastica, jade: components that are independent over features (spatial ICA), by kurtosis."
        ),
    ]
    n_components: Annotated[
        int | None,
        Field(ge=1, description="Number of leading components that are rotated; null for all. At most 100."),
    ] = None
    normalize: Annotated[
        bool,
        Field(description="For varimax and promax: Kaiser's rule, so that all features count the same."),
    ] = True
    power: Annotated[float, Field(gt=1, le=10, description="For promax: the power of the loadings in its target.")] = (
        4.0
    )
    algorithm: Annotated[
        Algorithm,
        Field(description="For fastica: all components at once, or one after another (deflation)."),
    ] = "parallel"

    @property
    def asked(self) -> Rotating:
        """The rotation as a plain value."""
        return Rotating(**self.model_dump())
