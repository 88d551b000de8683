"""The result of a derived analysis in a notebook: arrays, certificate, components in one read, other samples on them."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpca.analyses import feature_groups, projection
from dpca.analyses.answers import Answer
from dpca.analyses.axis import Axis
from dpca.analyses.kinds.pairs import SIDE
from dpca.analyses.maps import AS_CORRELATION, AS_COVARIANCE, COMPONENTS, STANDARD_ERRORS
from dpca.analyses.samples import Samples
from dpca.errors import ConfigError, InputError
from dpca.estimators.opened import Made, Opened, axis_of, made_of, new_samples, scores_on
from dpca.estimators.resampling import Draws
from dpca.estimators.rotated import Rotated, rotated
from dpca.planning.runplan import HeldArray
from dpca.sources import is_data_array
from dpca.sources.groups import parts_of
from dpca.sources.stacked import axes_among
from dpca.store.arrays import of_group
from dpca.store.meanings import described


@dataclass(frozen=True, eq=False)
class Analysis(Draws):
    """Result of an analysis. It does not change; what is made of it later (maps) is kept.

    Arrays are attributes, as xarray.DataArrays with dates: `analysis.scores`, `analysis.explained_variance_ratio`; `to_xarray()` has all of
    them, `arrays` has them without xarray. A pickle has the arrays and not the maps.
    """

    _opened: Opened
    _rows: Samples
    """With all operators that the components are about."""
    _answer: Answer
    _made: list[Made] = field(default_factory=list)

    def _answered(self, answer: Answer) -> Analysis:
        return Analysis(self._opened, replace(self._rows), answer)

    def __getstate__(self) -> dict[str, Any]:
        return {"_opened": self._opened, "_rows": self._rows, "_answer": self._answer, "_made": []}

    @property
    def kind(self) -> str:
        """The kind of analysis, which is also the method of `Gram`: pca, permanova."""
        return self._answer.kind

    @property
    def certificate(self) -> dict[str, Any]:
        """Certificate of the digits (`dpca.analyses.certificates`); `maps` is null until `components` has made them."""
        return dict(self._made[0].answer.certificate if self._made else self._answer.certificate)

    @property
    def caveat(self) -> str:
        """Caveat about the result; empty if there is none."""
        return str(self.certificate["caveat"])

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays by name, (rows, components) or the like."""
        return {name: array.values for name, array in self._answer.arrays.items()}

    def to_xarray(self) -> Any:
        """The arrays as an xarray.Dataset (extra `export`), along the dates of the rows; verdict and caveat are attributes.

        Raises
        ------
        InputError
            When xarray is not installed.
        """
        return self._dataset.copy()

    @cached_property
    def _dataset(self) -> Any:
        answer, certificate = self._answer, self._answer.certificate
        told = {name: certificate[name] for name in ("kind", "solver", "precision", "amplification", "verdict")}
        attributes = {"from": self._opened.kept.name, "samples": "; ".join(certificate["samples"]), **told}
        if certificate["caveat"]:
            attributes["caveat"] = certificate["caveat"]
        unit = answer.unit(self._opened.kept.unit)
        variables = {
            name: (array.dims, array.values, described(name, array.attributes, unit))
            for name, array in answer.arrays.items()
        }
        return labelled("to_xarray").dataset_from(variables, _coordinates(answer.coordinates), attributes)

    def __getattr__(self, name: str) -> Any:
        arrays = (
            () if name.startswith("_") else self._answer.arrays
        )  # else there is no end, where it has no attributes yet
        if name not in arrays:
            raise AttributeError(f"this analysis has no {name}, but {', '.join(arrays) or 'others'}")
        return self._dataset[name]

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._answer.arrays]

    def __repr__(self) -> str:
        answer, certificate = self._answer, self.certificate
        scores = answer.arrays.get("scores")
        sizes = "" if scores is None else f": {_sizes(scores.dims, scores.values.shape)}"
        lines = [f"<dpca {answer.kind}{sizes}>", *told(self._rows)]
        caveat = [f"caveat: {self.caveat}"] if self.caveat else []
        return "\n  ".join([*lines, certificate["verdict"], *caveat])

    def _repr_html_(self) -> str:
        return as_html(repr(self))

    def components(self) -> Any:
        """The components in the space of the features: one read of the data, the first time; `Gram.components` makes those of several.

        Complex where the analysis is (hilbert, dmd, spod). Orthonormal (of `extended` all lags together), modes of norm 1; of cca weights whose
        products with the samples are the scores. Of mca and cca each side has those of its group, and NaN for the other.

        Returns
        -------
        xarray.DataArray (component, features...), with lag, frequency or side before it; a Dataset of components_NAME where there are several
        groups of features. NumPy arrays; Dask arrays of files in `store` where they are large

        Raises
        ------
        ConfigError
            Of kernel PCA, of similarities and of statistics, which have none; of mca and cca of labels within an input.
        DataError
            When the data are gone, or have changed since the run.
        OverBudgetError
            When no plan fits the memory.
        """
        return components_of([self])[0]

    def standard_errors(self) -> Any:
        """The standard error of every loading, as `components` has these, from draws made with `standard_errors=True`; in the same read.

        Raises
        ------
        ConfigError
            When no draws were made for them.
        DataError, OverBudgetError
            As of `components`.
        """
        if self._answer.maps is None or self._answer.maps.deviations is None:
            raise ConfigError(
                "this analysis has no standard errors of its components",
                "Ask for gram.pca(...).bootstrap(standard_errors=True), or jackknife or leave_out in its place.",
            )
        components_of([self])
        return _shown(labelled("standard_errors"), self._opened, self._made[0], STANDARD_ERRORS)

    def as_covariance(self) -> Any:
        """The components in the unit of the data, for one standard deviation of the score: w sqrt(explained_variance) scale / weight.

        In the read for components; of `gram.pca(..., as_covariance=True)`. NaN where a feature has no weight.

        Returns
        -------
        As of `components`

        Raises
        ------
        ConfigError
            When it was not asked for.
        DataError, OverBudgetError
            As of `components`.
        """
        return self._scaled(AS_COVARIANCE, None if self._answer.maps is None else self._answer.maps.score_deviation)

    def as_correlation(self) -> Any:
        """The correlation of each feature with each score, over the rows; in the read for components.

        Of `gram.pca(..., as_correlation=True)`. NaN where a feature does not vary, or has no weight.

        Returns
        -------
        As of `components`

        Raises
        ------
        ConfigError, DataError, OverBudgetError
            As of `as_covariance`.
        """
        return self._scaled(AS_CORRELATION, None if self._answer.maps is None else self._answer.maps.rows)

    def _scaled(self, what: str, asked: Any) -> Any:
        if asked is None:
            raise ConfigError(f"this analysis has no maps {what}", f"Ask for gram.pca(..., {what}=True).")
        components_of([self])
        return _shown(labelled(what), self._opened, self._made[0], what)

    def rotated(self, kind: str = "varimax", n_components: int | None = None, **settings: Any) -> Rotated:
        """Leading components of a pca, rotated: by sweeps over its maps, which one read of the data makes if they are not there.

        Parameters
        ----------
        kind : "varimax", "promax", "fastica" or "jade" (`dpca.numerics.rotation`)
        n_components : how many are rotated; None for all
        settings : normalize, power and algorithm, as in `model.rotation` of a configuration

        Raises
        ------
        ConfigError
            Of other analyses, whose components are not real and orthonormal.
        """
        return rotated(self, {"kind": kind, "n_components": n_components, **settings})

    def rest(self) -> Any:
        """Scores of the samples that a selection left out, less what the operators would take from them; reads nothing.

        Less the mean of the selected samples, of those of the same group (`anomalies`: their climatology), or the trend of the selected samples,
        continued. Not weighted.

        Returns
        -------
        xarray.DataArray (samples, component); of mca and cca (side, samples, component)

        Raises
        ------
        ConfigError
            When no sample was left out, or an operator has no meaning for a sample alone: filters, lags, means of groups. Of analyses
            without components, and of those whose rows are made of several samples.
        """
        sides = self._projecting()
        others = projection.left_out(self._rows, self._opened.samples.axis)
        found = [projection.projected(rows, one.its_maps.coefficients, None, others) for _, rows, one in sides]
        dims, axis = self._answer.arrays["scores"].dims, others.axis
        coordinates = {dim: one for dim, one in _coordinates(self._answer.coordinates).items() if dim in dims[:-2]}
        if axis.values is not None:
            coordinates[dims[-2]] = dims[-2:-1], axis.values, axis.attributes
        scores = found[0] if len(dims) == 2 else np.stack(found)
        return labelled("rest").dataset_from({"scores": (dims, scores, {})}, coordinates)["scores"]

    def transform(self, X: Any, covariates: Any = None, by: Any = None) -> Any:
        """Scores of new samples, as by `rest`: one read of them, and of the data beside them, unless `components` has been called.

        Parameters
        ----------
        X : as for `dpca.PCA.transform`: an array, DataArray, Dataset or dict by group of features; or `dpca.config.inputs.Input`. Dates,
            where operators go by them, are those of the DataArray
        covariates, by : of the new samples, where the run has regressed some out (`preprocess.regress_out`), as for `dpca.PCA.transform`

        Returns
        -------
        NumPy array (n_samples, n_components) float64, of mca and cca (2, n_samples, n_components); a DataArray for a DataArray. Missing
        values as by `dpca.PCA.transform`: a sample without any value is NaN

        Raises
        ------
        ConfigError
            As of `rest`.
        InputError
            When X has other features than the data of the result.
        """
        sides = self._projecting()
        groups = new_samples(self._opened.kept, X)
        others = projection.Others(axis_of(groups, self._opened.samples.axis))
        found = []
        for side, rows, answer in sides:
            made = replace(self._made[0], side=side) if self._made else None
            scores = scores_on(self._opened, answer, made, groups, covariates, by)
            found.append(projection.projected(rows, answer.its_maps.coefficients, scores, others))
        given = next((part for part in parts_of(X).values() if is_data_array(part)), None)
        if given is None:
            return found[0] if sides[0][0] is None else np.stack(found)
        edge = labelled("transform")
        asked = self._opened.kept.parts[0].result.asked_input["samples_axis"]
        labels = edge.ArrayLabels.of(given, axes_among(given.dims, asked, groups[0].samples_axis))
        each = [labels.of_samples(one, "scores") for one in found]
        if sides[0][0] is None:
            return each[0]
        return edge.beside(each, SIDE, self._answer.certificate["groups"])

    def _projecting(self) -> list[tuple[int | None, Samples, Answer]]:
        """The rows and the answer that samples are projected on, if they can be; of two groups of features both, and their numbers."""
        projection.check(self.kind, self._rows)
        if self._answer.maps is None:
            raise projection.no_maps(self.kind)
        if self._answer.maps.outer != (SIDE,):
            return [(None, self._rows, self._answer)]
        return [(side, *one) for side, one in enumerate(feature_groups.sides_of(self._rows, self._answer))]


def components_of(analyses: Sequence[Analysis]) -> list[Any]:
    """The components of analyses of one `open_gram`, all that are not made yet in one read of the data."""
    edge, lacking = labelled("components"), dict[int, tuple[Analysis, Answer]]()
    for analysis in analyses:
        if analysis._answer.maps is None:
            raise projection.no_maps(analysis.kind)
        if not analysis._made:
            lacking[id(analysis)] = analysis, analysis._answer
    if lacking:
        some, answers = zip(*lacking.values(), strict=True)
        for analysis, made in zip(some, made_of(some[0]._opened, answers, _held(some)), strict=True):
            analysis._made.append(made)
    return [_shown(edge, analysis._opened, analysis._made[0]) for analysis in analyses]


def _held(analyses: Sequence[Analysis]) -> list[HeldArray]:
    """Memory of this process beside a read."""
    n, rows = analyses[0]._opened.samples.n, {id(one._rows): one._rows.n for one in analyses}
    return [HeldArray("Gram matrix", 8 * n * n), *(HeldArray("products of rows", 8 * p * p) for p in rows.values())]


def _shown(edge: Any, opened: Opened, made: Made, what: str = COMPONENTS) -> Any:
    """Maps, or their standard errors, as a DataArray, or a Dataset of those of each group of features."""
    maps, certificate = made.answer.its_maps, made.answer.certificate
    variables, coordinates = dict[str, Any](), _coordinates(made.answer.coordinates)
    for part in opened.kept.parts:
        stored = made.of(part, what)
        variables[of_group(what, part.name)] = ((*maps.dims, *part.dims.features), stored, stored.attributes)
        coordinates |= _coordinates(part.coordinates)
    used = {dim for dims, *_ in variables.values() for dim in dims}
    told = {"kind": made.answer.kind, "samples": "; ".join(certificate["samples"]), "verdict": certificate["verdict"]}
    found = edge.dataset_from(variables, {dim: one for dim, one in coordinates.items() if dim in used}, told)
    return found[what].assign_attrs(told) if list(variables) == [what] else found


def _coordinates(axes: Mapping[str, Axis]) -> dict[str, Any]:
    return {dim: ((dim,), axis.values, dict(axis.attributes)) for dim, axis in axes.items() if axis.values is not None}


def labelled(what: str) -> Any:
    """The room that knows xarray.

    Raises
    ------
    InputError
        When it is not installed.
    """
    try:
        from dpca.store import labelled as edge
    except ImportError as cause:
        raise InputError(
            f"{what} needs {cause.name}, which is not installed",
            "pip install '.[export]' in the clone, or pip install xarray.",
        ) from cause
    return edge


def told(rows: Samples) -> list[str]:
    """Description of rows: the operators in words, and the first and last of them."""
    names = rows.axis.names
    ends = (
        [f"{rows.axis.name} {names[0]} to {names[-1]}" if len(names) > 1 else f"{rows.axis.name} {names[0]}"]
        if names
        else []
    )
    features = rows.features.told if rows.features is not None else ""
    return [*filter(None, [features]), *rows.told, *ends]


def as_html(text: str) -> str:
    """Text as a notebook shows it."""
    return f"<pre>{html.escape(text)}</pre>"


def _sizes(dims: Sequence[str], shape: Sequence[int]) -> str:
    return ", ".join(f"{dim}: {length:,}" for dim, length in zip(dims, shape, strict=True))
