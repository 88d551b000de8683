"""The contract of an analysis: its settings, its computation, the memory that it takes, and its section of a report."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, InstanceOf
from pydantic.json_schema import SkipJsonSchema

from dpca.analyses.answers import Answer
from dpca.analyses.samples import By, Samples
from dpca.config.given import made_of
from dpca.config.inputs import ArrayFile, Covariates, Names, Part, RowKey, Section, Text
from dpca.config.schema import AUTO, DEFAULT_COMPONENTS
from dpca.derived.pca import UpTo
from dpca.derived.regressors import Column, Design
from dpca.errors import ConfigError, DpcaError
from dpca.report.derived_findings import Lead
from dpca.report.marks import Figure
from dpca.sources.groups import FeatureGroup
from dpca.sources.labels import read_labels
from dpca.sources.regressors import covariates_of
from dpca.store.derived import StoredAnalysis
from dpca.store.stored import Stored
from dpca.types import F64

Components = Annotated[
    Annotated[int, Field(ge=1)] | Literal["auto"] | None,
    Field(
        description=f"How many. auto: {DEFAULT_COMPONENTS}, or as many as there are if these are fewer. null: all that can be told from "
        "rounding."
    ),
]
"""A number of components."""
UNDER = ("analyses", "model")
"""The section of a config that arguments of an analysis are, for words of what is allowed."""
Contents = dict[str, Any]
"""Contents of a report's section: `figures`, `figures_caption`, `table`, `scores`, `scores_caption`, and tables `beside`."""


@dataclass(frozen=True, eq=False)
class Numbers:
    """A number for each sample, or several, that a Python program gives."""

    values: NDArray[Any]
    name: str = "target"


Labels = Part | Names | SkipJsonSchema[InstanceOf[np.ndarray]]
"""A part of the dates, or a label for each sample: in a file, or as an array of a Python program."""


class TargetFile(ArrayFile):
    """A number for each sample of the result."""

    uri: Annotated[Text, Field(description="A table, .csv or .tsv with a header; or Zarr, HDF5 or .npy, (n,).")]
    column: Annotated[Text | None, Field(description="Name of the column of a table; null for an array.")] = None
    key: RowKey = None


Target = TargetFile | SkipJsonSchema[InstanceOf[Numbers]]
Fixed = Covariates | SkipJsonSchema[InstanceOf[Numbers]]
"""Covariates: in a file, or of a Python program."""


@dataclass(frozen=True, eq=False)
class Context:
    """Input of an analysis beside its settings and the rows."""

    samples: Samples
    """All samples of the run."""
    recorded: FeatureGroup | None = None
    """The first input as the result recorded it, by whose names rows of tables are found; None for a Python program, which gives arrays."""
    key: str = ""
    """That of the analysis in the configuration."""
    threads: int = 1
    """For draws of rows, which give the same whatever their number."""
    n_features: int = 0
    """Number of features, for kernels whose gamma depends on it."""

    def labels(self, by: Labels, key: str = "by") -> By:
        """Labels as `Samples.labels` takes them."""
        if isinstance(by, Names):
            return read_labels(by.uri, by.array, self.samples.n, column=by.column, key=self._at(key))
        return by

    def target(self, asked: Target, key: str = "target") -> Numbers:
        """A number for each sample of the result, and what it is called."""
        if isinstance(asked, Numbers):
            return asked
        assert self.recorded is not None
        columns = [asked.column] if asked.column else None
        found = covariates_of(self.recorded, asked.uri, asked.array, columns, asked.key, self._at(key))
        if len(found) > 1:
            raise ConfigError(
                f"{asked.uri}: has {len(found)} numbers for each sample, but one is regressed on the rows",
                "Give an array of one dimension, or a table, and the name of a column.",
                self._at(key),
            )
        return Numbers(found[0][1], asked.column or "target")

    def covariates(self, asked: Fixed, key: str = "covariates") -> tuple[F64, list[str]]:
        """Covariates of the samples of the result, (n,) or (n, q), and what they are called."""
        if isinstance(asked, Numbers):
            return asked.values, []
        assert self.recorded is not None
        columns = covariates_of(
            self.recorded, asked.uri, asked.array, asked.columns, asked.key, self._at(key), asked.categorical or ()
        )
        design = Design.of([Column(name, values) for name, values in columns])
        return design.matrix, [name for name, _ in columns]

    def _at(self, key: str) -> str:
        return ".".join(filter(None, [self.key, key]))


@dataclass(frozen=True)
class AnalysisView:
    """An analysis in a report, and how much of it is drawn."""

    analysis: StoredAnalysis
    n_maps: int
    """Maps of each group of features."""
    read_bytes: int
    """Bytes of its maps that are read for their pictures."""
    drawn: bool
    """Whether it has figures."""
    identify: Callable[..., str]
    """Makes an id that no other figure has, from the name of the analysis and words."""

    def id(self, *words: str) -> str:
        """An id that no other figure has."""
        return self.identify(self.analysis.name, *words)

    def contents(self, table: Contents, draw: Mapping[str, Callable[[str], Figure]], caption: str) -> Contents:
        """Contents of one table, and figures by their names."""
        figures = [make(self.id(name)) for name, make in draw.items()] if self.drawn else []
        return {
            "figures": figures,
            "figures_caption": caption,
            "table": table,
            "scores": None,
            "scores_caption": "",
        }


class Kind(Section):
    """Settings of an analysis: the section `model` of YAML, and what a method of `dpca.Gram` makes of its arguments.

    Each kind has a class in a file of `dpca.analyses.kinds`, and a line in the table there.
    """

    title: ClassVar[str]
    """Its name in reports."""
    matrices: ClassVar[int]
    """Matrices of float64 over samples, besides K, at its peak: A K A^H, copies and vectors of its eigensolve; measured
    (tests/analyses/test_memory.py)."""
    has_maps: ClassVar[bool] = False
    """Whether it has components in the space of the features."""
    maps_are_weights: ClassVar[bool] = False
    """Whether maps are weights of features, whose products with samples are the scores, and not of length 1."""
    centred: ClassVar[bool] = False
    """Whether its components are about the mean of the rows."""
    squares: ClassVar[int] = 0
    """Matrices over rows that its answer has."""
    crests: ClassVar[str] = ""
    """The meaning of the phase of its complex maps."""

    @classmethod
    def called(cls) -> str:
        """The value of the key `kind`."""
        return str(get_args(cls.model_fields["kind"].annotation)[0])

    @classmethod
    def of(cls, **settings: Any) -> Self:
        """The analysis with the arguments of a Python program."""
        return made_of(cls, {"kind": cls.called(), **settings}, UNDER)

    @classmethod
    def takes(cls, name: str, given: type) -> bool:
        """Whether a setting may be of a type that only a Python program gives: labels (numpy.ndarray), or `Numbers`."""
        return given in _members(cls.model_fields[name].annotation) if name in cls.model_fields else False

    def run(self, rows: Samples, context: Context) -> Answer:
        """Result of the analysis of these rows."""
        raise NotImplementedError

    # Memory.

    def columns(self, n: int) -> int:
        """The most real columns of coefficients of its maps, of n rows; 0 without maps."""
        return 0

    def vectors(self, n: int) -> int:
        """The most numbers for each row that an analysis without maps gives, matrices over rows excepted."""
        return 0

    @property
    def of_factor(self) -> int:
        """Matrices more where a factor R of the products is kept: its singular value decomposition."""
        return 4

    # What a report shows.

    @classmethod
    def section(cls, view: AnalysisView) -> tuple[Contents, list[str]]:
        """Section of a report, and the beginning of the caption of each map."""
        raise NotImplementedError

    @classmethod
    def shown(cls, stored: StoredAnalysis, array: Stored, count: int, group: str = "") -> list[list[Lead]]:
        """The leading maps, that are drawn: the indices of each, several of one that has lags.

        Parameters
        ----------
        array, group : of the maps of one group of features, and its name
        count : how many, at most
        """
        return [[(number,)] for number in range(min(count, cls.n_maps(stored)))]

    @classmethod
    def n_maps(cls, stored: StoredAnalysis) -> int:
        """How many maps there are: of peaks, modes or components."""
        return 0


def _members(annotation: Any) -> set[Any]:
    """The types in an annotation, also in its unions."""
    inner = get_args(annotation)
    return {annotation} if not inner else {one for part in inner for one in _members(part)}


def number_of(asked: int | Literal["auto"] | None) -> int | UpTo | None:
    """A number of components as analyses take it."""
    return UpTo(DEFAULT_COMPONENTS) if asked == AUTO else asked


def most_of(asked: int | Literal["auto"] | None, n: int) -> int:
    """The most components of n rows that are asked for."""
    return n if asked is None else DEFAULT_COMPONENTS if asked == AUTO else asked


@contextmanager
def in_setting(key: str) -> Iterator[None]:
    """Complete the key of an error of this block."""
    try:
        yield
    except DpcaError as error:
        whole = error.key if error.key.startswith("analyses.") else f"{key}.{error.key}".rstrip(".")
        raise error.saying(error.marked_message, key=whole) from error.__cause__
