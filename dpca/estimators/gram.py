"""A kept Gram matrix in a notebook: samples selected, made anomalies, filtered, and analysed without reading data."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from dpca.analyses import kernels
from dpca.analyses.answers import row_axis
from dpca.analyses.axis import PARTS, Axis
from dpca.analyses.kept import SourceResults, Time
from dpca.analyses.kind import Context, Kind, Numbers
from dpca.analyses.kinds import KINDS, Dmd, ExtendedEof, HilbertEof, KernelPca, OptimizedDmd, Pca, Spod
from dpca.analyses.samples import By, Samples
from dpca.derived.filters import Band
from dpca.derived.hilbert import Padding
from dpca.errors import ConfigError, InputError
from dpca.estimators.analysis import Analysis, as_html, components_of, labelled, told
from dpca.estimators.arguments import checked
from dpca.estimators.base import Streaming, in_python
from dpca.estimators.feature_groups import GroupsOfFeatures
from dpca.estimators.opened import Opened, data_of
from dpca.estimators.statistics import Statistics
from dpca.numerics.ladder import BLOCK_KRYLOV
from dpca.sources import is_data_array
from dpca.sources.calendars import text_of_number
from dpca.sources.finding import PAIRING, Pairing
from dpca.store.gram import keeps_gram
from dpca.store.results import Result, open_result
from dpca.types import F64

Place = str | os.PathLike[str] | Streaming


def open_gram(
    path: Place | Sequence[Place] | Mapping[str, Place],
    *,
    data: Any = None,
    time: Time = "auto",
    pair_by: Pairing = "moment",
    memory: int | str | None = None,
    client: Any = None,
    store: str | os.PathLike[str] | None = None,
) -> Gram:
    """The samples of a result that keeps its Gram matrix, for analyses of them that need no data; nothing is read yet.

    >>> gram = dpca.open_gram("results/sst")
    >>> eofs = gram.sel(time=slice("1980", "2010")).anomalies("month").detrend().pca(10)
    >>> eofs.scores, eofs.explained_variance_ratio      # no read of the data
    >>> eofs.components()                               # one read

    Parameters
    ----------
    path : directory of a result of `dpca run` or of `PCA.save`, or a fitted `dpca.PCA`; a list of them, or a mapping by name, where several
        have the same samples and other features, which then lie side by side
    data : the data of the results, as for `PCA.fit`, which components are made of; None where they lie in files that the results name
    pair_by : how much of their dates samples of several results have to share: "moment", all, in whatever units; "day" or "month"
    time : "auto" for the coordinate of the samples, "index" to number them instead, as samples at regular times
    memory, client, store : as of `dpca.PCA`; a client runs `components` and `transform`, and maps are written to `store`

    Raises
    ------
    InputError, ConfigError
        When there is no result, it keeps no Gram matrix, or results have other samples.
    """
    if time not in ("auto", "index"):
        raise ConfigError(f"time is {time!r}, but 'auto' or 'index' is allowed", "Pass one of these.")
    if pair_by not in PAIRING:
        raise ConfigError(
            f"pair_by is {pair_by!r}, but {', '.join(map(repr, PAIRING))} are allowed", "Pass one of these."
        )
    if isinstance(path, Mapping):
        named = list(path.items())
    elif isinstance(path, str | os.PathLike | Streaming):
        named = [("", path)]
    else:
        named = [(_name_of(one), one) for one in path]
    if not named:
        raise InputError("there is no result to open", "Give the path of one.")
    kept = SourceResults.of([(name, _result_of(one)) for name, one in named], pair_by)
    samples = kept.samples(time)
    given = None if data is None else data_of(kept, data)
    return Gram(Opened(kept, samples, memory, client, store, given), samples)


def _name_of(place: Place) -> str:
    """The name of a result's features, from the name of its directory."""
    path = place._result.name if isinstance(place, Streaming) else os.fspath(place)
    return re.sub(r"[^A-Za-z0-9_-]", "_", path.rstrip("/").rpartition("/")[2])


def _result_of(place: Place) -> Result:
    if not isinstance(place, Streaming):
        return open_result(os.path.abspath(place), os.fspath(place))
    check_is_fitted(place)
    result: Result = place._result
    if not keeps_gram(result):
        solver = result.manifest["numerics"]["solver"]
        how = "keep_gram=True" if _could_keep(result) else "svd_solver='gram_eigh', keep_gram=True"
        raise InputError(
            f"this {type(place).__name__} keeps no Gram matrix of its {result.n_samples:,} samples (its solver was {solver})",
            f"Fit with {how}." if hasattr(place, "keep_gram") else "Fit dpca.PCA, or use a result of dpca run.",
        )
    return result


def _could_keep(result: Result) -> bool:
    """Whether the fit had a Gram matrix of its samples, or its factor, that it did not keep."""
    plan = result.manifest["plan"]
    keeps = (plan[0] if isinstance(plan, list) else plan)["keeps"]
    return bool(keeps == "samples" and result.manifest["numerics"]["solver"] != BLOCK_KRYLOV)


@partial(checked, within=in_python)
@dataclass(frozen=True, eq=False, repr=False)
class Gram(GroupsOfFeatures, Statistics):
    """Samples known by their products alone: A X, with the operators A that were applied to the samples X of a run.

    Each method gives a new object, in milliseconds; K is read when an analysis first needs it, once for all objects of one `open_gram`.
    """

    _opened: Opened
    _rows: Samples

    @property
    def n_samples(self) -> int:
        """Number of rows: of samples that are selected, of groups, of those that a filter leaves."""
        return self._rows.n

    def __len__(self) -> int:
        return self.n_samples

    def __repr__(self) -> str:
        rows, known = self._rows, self._rows.known
        of_all = "" if rows.n == rows.chain.n_in else f" of {rows.chain.n_in:,} samples"
        lines = [f"<dpca.Gram {rows.axis.name}: {rows.n:,}{of_all}, {known.name} ({known.solver}, {known.precision})>"]
        both = rows, vars(rows).get("centred", rows)
        computed = [one.transformed for one in both if "transformed" in vars(one)]
        amplification = [f"amplification {computed[-1].amplification:,.3g}"] if computed else []
        return "\n  ".join([*lines, *told(rows), *amplification])

    def _repr_html_(self) -> str:
        return as_html(repr(self))

    def _with(self, rows: Samples) -> Gram:
        return replace(self, _rows=rows)

    # Operators.

    def sel(self, **indexers: Any) -> Gram:
        """Rows by their labels along the samples' dimension, or by parts of their dates.

        >>> gram.sel(time=slice("1980", "2010-06"), season="DJF"), gram.sel(month=[6, 7, 8]), gram.sel(time=["1998-01", "1998-02"])

        Parameters
        ----------
        indexers : for the samples' dimension a slice, both ends included ("1980" is all of that year), a list of labels, or one; for a
            part of the dates (year, season, month, year_month, day_of_year, day, hour) a value or a list

        Raises
        ------
        ConfigError
            When no row has such a label, or there are no dates.
        """
        rows = self._rows
        for name, wanted in indexers.items():
            axis = rows.axis
            if name != axis.name and name in PARTS:
                values = [_plain(value) for value in np.atleast_1d(np.asarray(wanted)).tolist()]
                rows = rows.where(name, values)
                continue
            self._check_dim(name, f", or {', '.join(PARTS)}")
            if isinstance(wanted, slice):
                if wanted.step is not None:
                    raise ConfigError(
                        "a slice of labels has a step, and none is allowed", "Select with isel behind it."
                    )
                rows = rows.between(_label(wanted.start, axis), _label(wanted.stop, axis))
            elif isinstance(wanted, str) or np.ndim(wanted) == 0:
                label = _label(wanted, axis)
                rows = rows.between(label, label) if axis.dates is not None else rows.labelled([label])
            else:
                rows = rows.labelled([_label(one, axis) for one in np.asarray(wanted)])
        return self._with(rows)

    def isel(self, **indexers: Any) -> Gram:
        """Rows by their numbers along the samples' dimension: a number, a slice, a list, or a mask of one value a row.

        Raises
        ------
        ConfigError
            When there is no such row.
        """
        rows = self._rows
        for name, wanted in indexers.items():
            self._check_dim(name)
            numbers = np.arange(rows.n)[wanted] if isinstance(wanted, slice) else np.atleast_1d(np.asarray(wanted))
            if numbers.dtype.kind in "iu":
                numbers = np.where(numbers < 0, numbers + rows.n, numbers)
            rows = rows.rows(numbers)
        return self._with(rows)

    def _check_dim(self, name: str, others: str = "") -> None:
        if name != self._rows.axis.name:
            raise ConfigError(
                f"rows are selected along {name!r}, but they lie along {self._rows.axis.name!r}{others}", "Name this."
            )

    def anomalies(self, by: str | NDArray[Any]) -> Gram:
        """Less the mean of the rows of the same group.

        Parameters
        ----------
        by : month (or time.month), season, day_of_year, year and other parts of the dates; or a label for each sample of the result,
            or for each row, as an array or DataArray

        Raises
        ------
        ConfigError
            When there are no dates, labels are not as many as samples, or each row is a group of its own.
        """
        return self._with(self._rows.anomalies(self._by(by)))

    def between(self, by: str | NDArray[Any]) -> Gram:
        """The mean of each row's group in place of the row, less the mean of all; parameters and errors as of `anomalies`."""
        return self._with(self._rows.between_groups(self._by(by)))

    def means(self, by: str | NDArray[Any]) -> Gram:
        """A row for each group, their means: gram.means("year"); parameters and errors as of `anomalies`."""
        return self._with(self._rows.means(self._by(by)))

    def detrend(self, degree: int = 1) -> Gram:
        """Less a polynomial in time, fitted to each feature; times need not be regular.

        Raises
        ------
        ConfigError
            When samples have no times, or too few.
        """
        return self._with(self._rows.detrend(degree))

    def difference(self, lag: int = 1) -> Gram:
        """Less the row that is `lag` rows before; the first ones are lost."""
        return self._with(self._rows.difference(lag))

    def filter(
        self,
        kind: Literal["butterworth", "lanczos", "running_mean"],
        band: Band | None = None,
        *,
        order: int | None = None,
        window: int | None = None,
    ) -> Gram:
        """Frequencies within a band, or a running mean.

        >>> gram.filter("lanczos", (None, 1 / 120), window=121)      # months: slower than ten years

        Parameters
        ----------
        band : lowest and highest frequency that pass, in cycles per step of the rows, None for no limit; of butterworth and lanczos
        order : of butterworth, which runs forwards and backwards and keeps all rows; 4 if None
        window : rows in a window, odd for lanczos; the window - 1 rows at the ends are lost

        Raises
        ------
        ConfigError
            When rows do not follow each other at regular times, or a setting is missing or not allowed.
        """
        return self._with(self._rows.filter(kind, band, order, window))

    def regress_out(self, covariates: Any, intercept: bool = True) -> Gram:
        """Less the least-squares fit of covariates, and of a constant.

        Parameters
        ----------
        covariates : (n,) or (n, covariates), array or DataArray, of all samples of the result, or of the rows; where a DataArray has their
            coordinate, it has to be the same

        Raises
        ------
        ConfigError, InputError
            When they are of other samples, or not finite.
        """
        name = getattr(covariates, "name", None) if is_data_array(covariates) else None
        return self._with(self._rows.regress_out(self._values(covariates), intercept, [str(name)] if name else ()))

    def weighted(self, weights: Any, kind: Literal["frequency", "reliability"] = "frequency") -> Gram:
        """Weighted by weights of the samples, about their weighted mean; the last operator.

        Parameters
        ----------
        weights : (n,), as `covariates` of `regress_out`
        kind : "frequency" or "reliability", as `sample_weight_kind` of `dpca.PCA`
        """
        return self._with(self._rows.weighted(self._values(weights), kind))

    def center(self) -> Gram:
        """Less the mean of all rows. Analyses of components are about the mean of the rows in any case; DMD is not."""
        return self._with(self._rows.center())

    def _by(self, by: Any) -> By:
        return by if isinstance(by, str) else self._values(by)

    def _values(self, given: Any) -> NDArray[Any]:
        """Values of samples, checked to be theirs where they have a coordinate of the same name."""
        if is_data_array(given) and self._rows.axis.name in given.dims:
            dim = self._rows.axis.name
            given = given.transpose(dim, ...)
            _check_same(given, self._opened.samples.axis if len(given) == self._rows.chain.n_in else self._rows.axis)
        values = np.asarray(given)
        if values.ndim == 0:
            raise ConfigError(
                f"{given!r} is given where values of the samples are needed",
                f"Pass an array of one for each of the {self._rows.chain.n_in:,} samples.",
            )
        return values

    # Analyses.

    def _within_memory(self, matrices: int = 4) -> Samples:
        """The rows, if an analysis that holds so many matrices over them fits the memory."""
        self._opened.check(self._rows.n, matrices)
        return self._rows

    def _run(self, kind: type[Kind], **arguments: Any) -> Analysis:
        """Result of an analysis with these settings."""
        opened = self._opened
        given = {name: self._given(kind, name, value) for name, value in arguments.items()}
        context = Context(opened.samples, n_features=opened.kept.n_features)
        asked = kind.of(**given)
        solver, _ = opened.kept.sizes
        matrices = asked.matrices + asked.of_factor * (solver == "tsqr")
        answer = asked.run(self._within_memory(matrices), context)
        # A copy has none of the products that were computed of the rows: these go with this object.
        return Analysis(opened, replace(self._rows.centred if asked.centred else self._rows), answer)

    def _given(self, kind: type[Kind], name: str, value: Any) -> Any:
        """An argument as the setting of a kind has it: labels and numbers of samples as arrays, in their order."""
        if value is None:
            return None
        if kind.takes(name, Numbers):
            called = str(value.name) if is_data_array(value) and value.name else name
            return Numbers(self._values(value), called)
        if kind.takes(name, np.ndarray):
            return self._by(value)
        return value.tolist() if isinstance(value, np.ndarray) else value

    def pca(
        self, n_components: int | None = None, *, as_covariance: bool = False, as_correlation: bool = False
    ) -> Analysis:
        """Principal components (EOFs) of the rows about their mean: Sirovich's method of snapshots, from A K A'.

        Parameters
        ----------
        n_components : None for all that can be told from rounding
        as_covariance : make maps in the unit of the data, too (`Analysis.as_covariance`)
        as_correlation : make maps of correlations, too (`Analysis.as_correlation`)

        Raises
        ------
        ConfigError
            When there are fewer.
        DataError
            When operators leave nothing but rounding.
        OverBudgetError
            When the eigensolve does not fit the memory; so all analyses do.
        """
        return self._run(Pca, n_components=n_components, as_covariance=as_covariance, as_correlation=as_correlation)

    def extended(self, lags: int, step: int = 1, n_components: int | None = None) -> Analysis:
        """Extended EOFs (multichannel singular spectrum analysis): components of windows of `lags` rows, each `step` rows after the one before.

        Raises
        ------
        ConfigError
            When rows are not at regular times, or too few.
        """
        return self._run(ExtendedEof, lags=lags, step=step, n_components=n_components)

    def hilbert(self, n_components: int | None = None, padding: Padding = "none", decay: float = 0.2) -> Analysis:
        """Complex EOFs: components of the analytic signal, with amplitude and phase.

        Parameters
        ----------
        padding : "exp" extends the record at both ends by what decays as exp(-t / decay), in lengths of the record
        """
        return self._run(HilbertEof, n_components=n_components, padding=padding, decay=decay)

    def dmd(
        self, rank: int | None = None, *, modes: Literal["exact", "projected"] = "exact", delays: int = 1
    ) -> Analysis:
        """Dynamic mode decomposition: modes that oscillate and grow or decay, x_{t+1} = A x_t.

        `eigenvalues` are those of one `step`, in its units, which `exponents`, `frequencies` and `growth_rates` are per.

        Parameters
        ----------
        rank : number of principal components that A acts on; None for all
        modes : "exact", eigenvectors of A, or "projected", in the span of the leading principal components (Tu et al. 2014)
        delays : rows in a window: with more than 1, A acts on windows of rows that follow each other (higher order DMD, Le Clainche and Vega
            2017), for more frequencies than the features have directions
        """
        return self._run(Dmd, rank=rank, modes=modes, delays=delays)

    def optimized_dmd(self, rank: int) -> Analysis:
        """Optimized dynamic mode decomposition, by least squares over all rows; times need not be regular."""
        return self._run(OptimizedDmd, rank=rank)

    def spod(
        self,
        block: int,
        *,
        overlap: int | None = None,
        window: str | F64 = "hamming",
        frequencies: Literal["all"] | Sequence[float] = "all",
        n_components: int | None = None,
    ) -> Analysis:
        """Spectral POD: components at each frequency, by Welch's method over blocks of `block` rows.

        Parameters
        ----------
        overlap : rows that blocks share; None for half of them
        window : a name for scipy.signal.get_window, or (block,)
        frequencies : some, in cycles per step
        """
        return self._run(
            Spod, block=block, overlap=overlap, window=window, frequencies=frequencies, n_components=n_components
        )

    def kernel_pca(
        self,
        kernel: str = "rbf",
        *,
        gamma: float | Literal["median"] | None = None,
        degree: float = 3.0,
        coef0: float = 1.0,
        n_components: int | None = None,
    ) -> Analysis:
        """Kernel PCA of the rows, with a kernel of inner products or distances; parameters as of `dpca.KernelPCA`.

        Raises
        ------
        ConfigError
            When there is no such kernel, or a parameter is not allowed.
        """
        return self._run(KernelPca, kernel=kernel, gamma=gamma, degree=degree, coef0=coef0, n_components=n_components)

    def distances(self) -> Any:
        """Euclidean distances of the rows from each other.

        Returns
        -------
        xarray.DataArray (rows, rows_b); `known_above` in its attributes is the distance below which squares have less than two digits
        """
        edge, axis = labelled("distances"), row_axis(self._rows.axis)
        found, error = kernels.distances(self._within_memory())
        attributes = {"known_above": kernels.nearest_known(error), "samples": "; ".join(self._rows.told)}
        names = (axis.name, f"{axis.name}_b")
        coordinates = {} if axis.values is None else {name: ((name,), axis.values, axis.attributes) for name in names}
        return edge.dataset_from({"distances": (names, found, attributes)}, coordinates)["distances"]

    def components(self, analyses: Sequence[Analysis]) -> list[Any]:
        """The components of several analyses at one read of the data, as `Analysis.components` has each.

        Raises
        ------
        ConfigError
            When one is of another `open_gram`, or of kernel PCA.
        """
        asked: list[Any] = list(analyses) if isinstance(analyses, Iterable) else [analyses]
        if wrong := [one for one in asked if not isinstance(one, Analysis)]:
            raise ConfigError(
                f"analyses has {wrong[0]!r}, but analyses of this Gram are allowed, such as gram.pca(10)",
                "Pass a list of them.",
            )
        if any(one._opened is not self._opened for one in asked):
            raise ConfigError(
                "components are made together of analyses of another open_gram",
                "Call components of the Gram that they are from.",
            )
        return components_of(asked)


def _label(value: Any, axis: Axis) -> Any:
    """A label as the axis writes its own: a date as ISO 8601."""
    if isinstance(value, np.datetime64):
        value = str(value)
    elif hasattr(value, "isoformat"):
        value = value.isoformat()
    elif isinstance(value, np.ndarray) and value.ndim == 0:
        return _label(value.item() if value.dtype.kind != "M" else value[()], axis)
    value = _plain(value)
    if isinstance(value, float) and axis.values is not None and axis.values.dtype.kind not in "iuf":
        return text_of_number(np.float64(value))
    return value


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _check_same(given: Any, axis: Axis) -> None:
    """Refuse a DataArray with another coordinate than samples have."""
    from dpca.sources.xarray_labels import labels_of

    coordinate = labels_of(given)[1].get(0)
    if coordinate is None or axis.values is None or len(given) != len(axis):
        return
    theirs = Axis(axis.name, np.asarray(coordinate.values), coordinate.attributes)
    wrong = next((n for n, (one, two) in enumerate(zip(theirs.names, axis.names, strict=True)) if one != two), None)
    if wrong is not None:
        raise InputError(
            f"{given.name or 'the DataArray'}: {axis.name} {wrong} is {theirs.names[wrong]}, but {axis.names[wrong]} here",
            "Give values of the same samples, in the same order.",
        )


def _method_of(kind: type[Kind]) -> Any:
    """The method of `Gram` of a kind of analysis that has no other: required settings first, all others by name."""
    fields = {name: field for name, field in kind.model_fields.items() if name != "kind"}
    first = [name for name, field in fields.items() if field.is_required()]
    others = [name for name in fields if name not in first]
    parameters = [
        inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY),
        *(inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in first),
        *(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=fields[name].default) for name in others),
    ]
    signature = inspect.Signature(parameters)

    def method(*args: Any, **named: Any) -> Analysis:
        bound = signature.bind(*args, **named)
        gram = bound.arguments.pop("self")
        found: Analysis = gram._run(kind, **bound.arguments)
        return found

    lines = "\n".join(f"{name} : {fields[name].description or 'a target, (n,)'}" for name in (*first, *others))
    method.__name__, method.__qualname__ = kind.called(), f"Gram.{kind.called()}"
    method.__doc__ = f"{kind.__doc__}\n\nParameters\n----------\n{lines}\n"
    method.__signature__ = signature  # type: ignore[attr-defined]
    return method


for _name, _kind in KINDS.items():
    if not hasattr(Gram, _name):
        setattr(Gram, _name, _method_of(_kind))
