"""Principal components of the rows, about their mean: EOFs, by Sirovich's method of snapshots."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, model_validator

from dpca.analyses import projection
from dpca.analyses.answers import COMPONENT, Answer, Array, row_axis
from dpca.analyses.axis import Axis
from dpca.analyses.features import GROUP
from dpca.analyses.kind import Components, Context, in_setting, most_of, number_of
from dpca.analyses.kinds.components import OfComponents, of_components
from dpca.analyses.resampling import Resampling, with_resampling
from dpca.analyses.rotation import n_rotated
from dpca.analyses.samples import Number, Samples
from dpca.config.model import MOST_ROTATED
from dpca.config.rotation import Rotation
from dpca.config.schema import AUTO
from dpca.derived import pca
from dpca.derived.feature_groups import shares
from dpca.errors import ConfigError


class Pca(OfComponents):
    """Principal components of the rows, about their mean."""

    title = "principal components"
    matrices = 5
    centred = True

    kind: Literal["pca"]
    n_components: Components = AUTO
    left_out: Annotated[
        bool,
        Field(
            description="Also scores of the samples that a selection left out (scores_left_out). The operators are applied to them, "
            "too."
        ),
    ] = False
    as_covariance: Annotated[
        bool,
        Field(
            description="Also maps in the unit of the data, for one standard deviation of each score (as_covariance). They share the "
            "read for maps."
        ),
    ] = False
    as_correlation: Annotated[
        bool,
        Field(
            description="Also the correlation of each feature with each score (as_correlation). They share the read for maps."
        ),
    ] = False
    rotation: Annotated[
        Rotation | None, Field(description="Rotate leading components, by sweeps over their maps; null: leave them.")
    ] = None
    resampling: Annotated[
        Resampling | None, Field(description="How much components would differ with other samples. null: not computed.")
    ] = None

    @model_validator(mode="after")
    def _rotated_within(self) -> Pca:
        if self.rotation is None:
            return self
        asked = self.rotation.n_components
        most = most_of(self.n_components, asked or 1)
        if (asked or 0) > most:
            raise ValueError(
                f"rotation.n_components is {asked}, but only the {most} components of n_components can be rotated"
            )
        if (asked or most) > MOST_ROTATED:
            raise ValueError(
                f"{asked or most} components are to be rotated, but at most {MOST_ROTATED} can be (rotation.n_components)"
            )
        return self

    def run(self, rows: Samples, context: Context) -> Answer:
        answer = components(rows, number_of(self.n_components), self.as_covariance, self.as_correlation)
        several = rows.features is not None and len(rows.features.names) > 1
        if several and context.recorded is not None:  # a notebook asks for them (variance_share): each group is read
            answer = shares_of(rows.centred, answer)
        if self.left_out:
            answer = _with_left_out(answer, rows.centred, context.samples.axis)
        if self.resampling is not None:
            with in_setting("resampling"):
                by = None if self.resampling.by is None else context.labels(self.resampling.by, "resampling.by")
                asked = self.resampling.model_copy(update={"by": by})
                answer = with_resampling(rows.centred, answer, asked, context.threads)
        if self.rotation is not None:
            with in_setting("rotation"):
                n_rotated(answer, self.rotation.asked)  # refused before the data are read
        return answer

    def columns(self, n: int) -> int:
        return most_of(self.n_components, n)


def components(
    rows: Samples, n_components: Number = None, as_covariance: bool = False, as_correlation: bool = False
) -> Answer:
    """Principal components, with maps in the unit of the data or as correlations where asked for."""
    rows = rows.centred
    found, divisor = pca.pca(rows.transformed, n_components), rows.divisor()
    answer = of_components("pca", rows, found, divisor)
    maps = replace(
        answer.its_maps,
        score_deviation=np.sqrt(found.eigenvalues / divisor) if as_covariance else None,
        rows=np.asarray(rows.chain.adjoint(np.eye(rows.n))) if as_correlation else None,
    )
    return replace(answer, maps=maps)


def shares_of(rows: Samples, answer: Answer) -> Answer:
    """The answer of a pca with the share of each group of features in each component, variance_share."""
    if answer.kind != "pca":
        raise ConfigError(
            f"shares of groups in the variance are those of components of a pca, but this is {answer.kind}",
            "Ask them of gram.pca(...).",
        )
    features = rows.groups_of_features
    found = shares(features.each, features.all_weights, answer.its_maps.coefficients)
    arrays = {**answer.arrays, "variance_share": Array(found, (GROUP, COMPONENT))}
    return replace(
        answer, arrays=arrays, coordinates={**answer.coordinates, GROUP: Axis(GROUP, np.array(features.names))}
    )


def _with_left_out(answer: Answer, rows: Samples, axis: Axis) -> Answer:
    """The answer with the scores of the samples that took no part."""
    others = projection.left_out(rows, axis)
    scores = projection.projected(rows, answer.its_maps.coefficients, None, others)
    name = f"{row_axis(axis).name}_left_out"
    arrays = {**answer.arrays, "scores_left_out": Array(scores, (name, COMPONENT))}
    coordinates = {**answer.coordinates, name: replace(others.axis, name=name)}
    return replace(answer, arrays=arrays, coordinates=coordinates)
