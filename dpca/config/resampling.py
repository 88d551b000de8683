"""Resampling of the rows of `dpca derive`: which draws are made, and what they are asked for."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from dpca.config.inputs import Names, Part, Section


class Resampling(Section):
    """Intervals, standard errors and angles of principal components, from draws of the rows; they read no data."""

    kind: Annotated[
        Literal["bootstrap", "jackknife", "leave_out"],
        Field(
            description="bootstrap: as many rows as there are, drawn with replacement; jackknife: all but one; leave_out: all but a group (by)."
        ),
    ] = "bootstrap"
    draws: Annotated[int, Field(ge=1, description="Of the bootstrap; 2 / (1 - level) at least.")] = 1000
    block: Annotated[
        int,
        Field(
            ge=1,
            description="Number of rows in a row that are drawn together, for time series whose neighbouring rows are alike. The first "
            "row follows the last.",
        ),
    ] = 1
    by: Annotated[
        Part | Names | None,
        Field(
            description="A part of the samples' dates, or a label for each sample of the result: groups that are drawn, or left out, whole."
        ),
    ] = None
    seed: Annotated[int, Field(ge=0, description="Of the bootstrap: the same seed draws the same.")] = 0
    level: Annotated[float, Field(gt=0, lt=1, description="Of the intervals.")] = 0.95
    align: Annotated[
        Literal["order", "procrustes"],
        Field(
            description="How components of a draw are matched, for scores and maps. order: each with the most similar component, and "
            "its sign. procrustes: all are rotated together to be as similar as possible. Variances are always in order of "
            "size."
        ),
    ] = "order"
    standard_errors: Annotated[
        bool,
        Field(description="Also a map of the standard error of every loading, standard_errors, in the read for maps."),
    ] = False
    columns: Annotated[
        int | None,
        Field(
            ge=1,
            description="Deviation columns of these maps for each component; null: as many as draws or rows, which is exact. With fewer the "
            "certificate has the share of the variance that is lost.",
        ),
    ] = None
