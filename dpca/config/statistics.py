"""Models of `dpca derive` that are statistics of the rows: distances, groups compared, a target predicted."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from dpca.config.inputs import ArrayFile, Covariates, Names, Part, RowKey, Section, Text
from dpca.config.schema import AUTO, Components

_BY = Field(
    description="A part of the samples' dates, or a label for each sample of the result: {uri, array, column}. Each group needs two rows."
)


class Distances(Section):
    """Euclidean distances of the rows from each other; a matrix of rows by rows."""

    kind: Literal["distances"]


class Pcoa(Section):
    """Principal coordinates of these distances: the scores and the spectrum of pca, without maps."""

    kind: Literal["pcoa"]
    n_components: Components = AUTO


class Permanova(Section):
    """A test whether groups differ, by squared distances between and within groups and permutations of labels."""

    kind: Literal["permanova"]
    by: Annotated[Part | Names, _BY]
    permutations: Annotated[int, Field(ge=0, description="Of labels; 0 for none, and no p value.")] = 999
    seed: Annotated[int, Field(ge=0, description="Of the permutations: the same seed draws the same.")] = 0
    strata: Annotated[
        Part | Names | None,
        Field(description="As by: blocks within which labels are permuted; null for one block."),
    ] = None


class Manova(Section):
    """A test whether groups differ in the leading scores: Wilks, Pillai, Hotelling and Lawley, Roy."""

    kind: Literal["manova"]
    by: Annotated[Part | Names, _BY]
    n_components: Annotated[int, Field(ge=1, description="How many scores; at most the rows less the groups.")]


class Target(ArrayFile):
    """A number for each sample of the result."""

    uri: Annotated[Text, Field(description="A table, .csv or .tsv with a header; or Zarr, HDF5 or .npy, (n,).")]
    column: Annotated[Text | None, Field(description="Name of the column of a table; null for an array.")] = None
    key: RowKey = None


class Ridge(Section):
    """Ridge regression of a target on the rows (GBLUP for genotypes). Each row is also predicted by the others."""

    kind: Literal["ridge"]
    target: Target
    alpha: Annotated[
        Literal["auto"]
        | Annotated[float, Field(gt=0)]
        | Annotated[list[Annotated[float, Field(gt=0)]], Field(min_length=1)],
        Field(
            description="What is added to the eigenvalues of the rows' products. A number; or several, of which the one with the "
            "smallest leave-one-out error is chosen; auto: a grid from 10^-4 to 10^4 times the mean eigenvalue."
        ),
    ] = "auto"
    left_out: Annotated[
        bool, Field(description="Also predictions for the samples that a selection left out: predicted_left_out.")
    ] = False


class Heritability(Section):
    """The share of a target's variance that lies in the rows, by restricted maximum likelihood (REML)."""

    kind: Literal["heritability"]
    target: Target
    covariates: Annotated[Covariates | None, Field(description="Fixed effects beside the constant.")] = None


Statistic = Distances | Pcoa | Permanova | Manova | Ridge | Heritability
