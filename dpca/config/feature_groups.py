"""The part of the configuration of `dpca derive` that is about groups of features."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from dpca.config.inputs import Section, Text
from dpca.config.schema import AUTO, Components
from dpca.numerics.panels import BlockScaling

_NAMES = Annotated[list[Text], Field(min_length=1)]
_PERMUTATIONS = Field(ge=0, description="Random orders of the rows of one group, for p values; 0 for none.")
_SEED = Field(ge=0, description="Of these orders.")


class Features(Section):
    """Which groups of features count, and how much: those of the result's gram_by_group, or of several results."""

    only: Annotated[_NAMES | None, Field(description="Names of groups; null: all.")] = None
    leave_out: Annotated[tuple[Text, ...], Field(strict=False, description="Names of groups.")] = ()
    weights: Annotated[
        dict[str, Annotated[float, Field(ge=0)]] | None,
        Field(
            description="Factors by name. The products of a group are multiplied by its factor, and its features by the square root."
        ),
    ] = None
    scaling: Annotated[
        BlockScaling,
        Field(description="As preprocess.block_scaling, for the samples of the run. Weights are applied after it."),
    ] = "none"


class _OfTwo(Section):
    groups: Annotated[list[Text], Field(min_length=2, max_length=2, description="Names of the two groups of features.")]
    n_components: Components = AUTO
    permutations: Annotated[int, _PERMUTATIONS] = 999
    seed: Annotated[int, _SEED] = 0


class Mca(_OfTwo):
    """Maximum covariance analysis of two groups of features."""

    kind: Literal["mca"]


class Cca(_OfTwo):
    """Canonical correlations of the leading principal components of two groups of features."""

    kind: Literal["cca"]
    n_leading: Annotated[int, Field(ge=1, description="Principal components of each group.")] = 10


class Similarity(Section):
    """RV coefficients (linear CKA) of all pairs of groups of features."""

    kind: Literal["similarity"]
    permutations: Annotated[int, _PERMUTATIONS] = 999
    seed: Annotated[int, _SEED] = 0


OfGroups = Mca | Cca | Similarity
