"""Base of the estimators: the interface of scikit-learn, checks of parameters, saving and pickling of fits.

A fit is a result like those of `dpca run`: in a directory of its own, or in memory if X was in memory. So the same code
applies it, checks new samples against it, saves it, and reports on it.
"""

from __future__ import annotations

import copy
import os
import pickle
import shutil
import tempfile
import uuid
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from html import escape
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Self

import numpy as np
from dask.utils import parse_bytes
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin, clone
from sklearn.utils.validation import check_is_fitted, validate_data

from dpca.config.given import ARRAY, config_of
from dpca.config.schema import Config, Filters
from dpca.config.schema import ModelSection as ModelKeys
from dpca.errors import ConfigError, DpcaError, InputError
from dpca.estimators.annotated import Annotated, matrix_in
from dpca.estimators.arguments import check, refuse_those_of_peers
from dpca.estimators.warned import warn
from dpca.execution.progress import Progress, display_of_fit
from dpca.execution.stage import Executor
from dpca.genotypes.variants import Variants
from dpca.methods.decomposition import Decomposition
from dpca.methods.projectors import Absent
from dpca.methods.record import fingerprint, manifest_of, notes_of
from dpca.numerics.panels import Missing
from dpca.planning.disk import check_room_for_result
from dpca.planning.job import Job
from dpca.planning.runplan import Scratch
from dpca.settings import PYTHON
from dpca.sources import Source, are_files, as_source, is_data_array
from dpca.sources.base import SamplesAxis
from dpca.sources.credentials import check_local
from dpca.sources.dated import dated, dates_elsewhere
from dpca.sources.groups import FeatureGroup, Groups, check_same_samples, names_in, parts_of
from dpca.sources.stacked import axes_among, stacked
from dpca.sources.weights import FeatureWeights, weights_of
from dpca.store.arrays import of_group
from dpca.store.directory import ARRAYS, write_documents
from dpca.store.held import HeldOutputs
from dpca.store.outputs import FORMAT_VERSION, Outputs
from dpca.store.results import THE_FIT, Result, in_memory, open_result, save_result
from dpca.store.synced import UnsyncedStore
from dpca.system import durable
from dpca.system.machine import Peak, free_disk
from dpca.units import describe_memory

FILTERS = ("min_variance", "max_missing", "min_minor_allele_frequency", "mask")
"""Filters of an array; a config has more, for variants."""


def by_group(given: Any) -> Mapping[str, Any]:
    """An attribute with feature axes by group of features; that of the only group has no name."""
    return given if isinstance(given, Mapping) else {"": given}


def _alone(arrays: Mapping[str, Any]) -> Any:
    """The array of the only group; of several groups a dict of arrays by name."""
    return arrays[""] if list(arrays) == [""] else dict(arrays)


BEYOND = float(np.finfo(np.float32).max)
"""Largest number that float32 holds."""


class NotPortable(DpcaError, pickle.PicklingError):
    """A fit that can't be pickled, since another process would not find it."""


class Streaming(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """An estimator that streams X; subclasses define the parameters that are used here."""

    n_components: Any
    samples_axis: SamplesAxis
    memory: int | str | None
    ddof: int
    center: bool
    # Of texts that are allowed: a fit checks it, since scikit-learn sets parameters without a check.
    scale: Any
    scale_ddof: int | None
    precision: Any
    weights: Any
    missing: Any
    filters: Mapping[str, Any] | None
    client: Any
    store: str | os.PathLike[str] | None
    verbose: bool | None

    _kind: ClassVar[str]
    """Value of model.kind in a configuration."""
    _with_features: ClassVar[tuple[str, ...]]
    """Arrays with feature axes that are attributes, named with an underscore at the end."""
    _labels: Mapping[str, Any] = MappingProxyType({})
    """`dpca.store.labelled.ArrayLabels` of the parts of X of the fit that were DataArrays, by group."""
    _annotated: Annotated | None = None
    """Features of X of the fit that was AnnData."""
    _carried_bytes: ClassVar[int] = 256 * 2**20
    """Largest fit that a pickled estimator contains: for a larger one it contains the path of the directory."""

    def __new__(cls, *_: Any, **named: Any) -> Self:
        """An estimator; arguments of another library's, which it does not have, are refused by name."""
        refuse_those_of_peers(cls, named)
        made: Self = super().__new__(cls)
        return made

    # Saving and pickling.

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the fit as a result, which `load`, `dpca transform`, `dpca report` and `dpca export` can read.

        Parameters
        ----------
        path : a directory that does not exist yet

        Raises
        ------
        NotFittedError, OutputExistsError, StorageError
            When there is no fit, the path exists, or it can't be written.
        """
        check_is_fitted(self)
        return self._save(Path(path))

    def _save(self, path: Path) -> Path:
        return save_result(self._result, path, self._changeable)

    def to_xarray(self) -> Any:
        """The fit as an xarray.Dataset (extra `export`): the arrays of a result, along the dimensions of X.

        Its variables have the names that they have in a result: scores (whitened if `whiten`), components, mean, scale,
        singular_values, explained_variance, explained_variance_ratio, eigenvalues and others. If X of the fit was a
        DataArray, they have all of its coordinates that lie along samples alone or features alone, with attributes, and
        mean has the attributes of X. A result that was loaded has the coordinates that it kept, one for each dimension,
        and its dates are decoded.

        Returns
        -------
        Dataset of NumPy arrays; of a result on disk, arrays of more than 1 MiB are Dask arrays

        Raises
        ------
        NotFittedError, InputError
            When there is no fit, or xarray is not installed.
        """
        check_is_fitted(self)
        try:
            from dpca.store.labelled import dataset_of, labelled
        except ImportError as cause:
            raise InputError(
                f"to_xarray needs {cause.name}, which is not installed",
                "pip install '.[export]' in the clone, or pip install xarray.",
            ) from cause
        dataset = dataset_of(self._result, self._changeable)
        for one in self._result.each:
            if one.group in self._labels:
                dataset = labelled(dataset, one.dims, self._labels[one.group])
        return dataset

    def _labelled(self, X: Any, values: NDArray[np.float64], name: str) -> Any:
        """Values of the samples of X; with their coordinates if X is a DataArray."""
        given = next((part for part in parts_of(X).values() if is_data_array(part)), None)
        if given is None:
            return values
        from dpca.store.labelled import ArrayLabels

        return ArrayLabels.of(given, self._axes_among(given.dims)).of_samples(values, name)

    def _matrix(self, scores: Any, n_components: int) -> NDArray[np.float64]:
        """Scores, (n_samples, n_components), that were given as an array or a DataArray."""
        if is_data_array(scores):
            from dpca.store.labelled import scores_in

            scores = scores_in(scores, n_components, self._result.sample_dims)
        matrix = np.asarray(scores, np.float64)
        if matrix.ndim != 2 or matrix.shape[1] != n_components:
            raise InputError(
                f"scores have shape {matrix.shape}, but the fit has {n_components} components",
                f"Give an array of shape (n_samples, {n_components}).",
            )
        return matrix

    def _restored(self, scores: Any, values: Mapping[str, Any]) -> Any:
        """Samples of these scores, of each group; DataArrays like those of the fit, in a Dataset of several, if the scores are one."""
        if not is_data_array(scores):
            return _alone(values)
        from dpca.store.labelled import ArrayLabels, together

        arrays = {
            one.group: (self._labels.get(one.group) or ArrayLabels.of_result(one)).restored(values[one.group], scores)
            for one in self._result.each
        }
        return together(arrays) if len(arrays) > 1 else _alone(arrays)

    def _keep_labels(self, X: Any) -> None:
        """Keep what X of the fit has beside its values, if it is a DataArray or several."""
        self._labels = {}
        for one, part in zip(self._result.each, parts_of(X).values(), strict=True):
            if is_data_array(part):
                from dpca.store.labelled import ArrayLabels

                self._labels[one.group] = ArrayLabels.of(part, self._axes_among(part.dims))
        self._label_arrays()

    def _label_arrays(self) -> None:
        """Give the attributes with feature axes the coordinates of the DataArrays of the fit."""
        for name in self._with_features if self._labels else ():
            arrays = dict(self._unlabelled(name))
            for one in self._result.each:
                if one.group not in self._labels or arrays.get(one.group) is None:
                    continue
                stored = self._result.arrays[one.named(name)]
                dims = stored.dims[: stored.ndim - len(one.feature_shape)]
                arrays[one.group] = self._labels[one.group].of_features(
                    arrays[one.group], dims, one.named(name), stored.attributes
                )
            setattr(self, f"{name}_", _alone(arrays))

    def _unlabelled(self, name: str) -> Mapping[str, Any]:
        """An attribute with feature axes by group, as NumPy or Dask arrays, which the user may have changed."""
        found = by_group(getattr(self, f"{name}_"))
        return {group: array.data if is_data_array(array) else array for group, array in found.items()}

    def report(self, path: str | os.PathLike[str], labels: Any = None) -> Path:
        """Write a report of the fit, one HTML file (extra `report`).

        Parameters
        ----------
        labels : (n_samples,), by which samples are coloured; those in a result that was loaded if None

        Raises
        ------
        InputError
            When a library that draws it is not installed.
        """
        check_is_fitted(self)
        try:
            from dpca.report.page import write_report
        except ImportError as cause:
            raise InputError(
                f"a report needs {cause.name}, which is not installed",
                "pip install '.[report]' in the clone, or pip install jinja2 bokeh.",
            ) from cause
        return write_report(self._with_arrays(), None if labels is None else np.asarray(labels), Path(path))

    def _with_arrays(self) -> Result:
        """The result of the fit, with the arrays that are attributes."""
        return in_memory(self._result, self._changeable) if self._in_memory else self._result

    def _repr_html_(self) -> str:
        """In a cell of a notebook: the fit in short; without one, the parameters, as scikit-learn shows them."""
        parameters = str(super()._repr_html_())
        if not hasattr(self, "_result"):
            return parameters
        from dpca.report.short import as_html

        try:
            return parameters + as_html(self._with_arrays())
        except DpcaError as error:  # its directory is gone, or damaged
            return f"{parameters}<p>{escape(str(error))}</p>"

    @property
    def _changeable(self) -> dict[str, NDArray[Any]]:
        """Attributes in memory, which the user may change: they are used instead of the stored arrays."""
        if not self._in_memory:
            return {}
        return {
            of_group(name, group): array
            for name in self._with_features
            for group, array in self._unlabelled(name).items()
            if array is not None
        }

    @classmethod
    def _loaded(cls, path: str | os.PathLike[str]) -> Result:
        check_local(path, "the result")
        result = open_result(os.path.abspath(path))
        if result.kind != cls._kind:
            raise ConfigError(
                f"{path}: is a result of {result.kind}, not of {cls._kind}",
                f"Load it with {'KernelPCA' if result.kind == 'kernel_pca' else 'PCA'}.load.",
            )
        return result

    @staticmethod
    def _parameters_of(result: Result, names: Sequence[str]) -> dict[str, Any]:
        """Parameters of an estimator that would give this result."""
        config = result.manifest["config"]
        keys = {
            **ModelKeys().model_dump(),
            **config["model"],
            **config["preprocess"],
            "samples_axis": result.asked_input["samples_axis"],
        }
        same = ("n_components", "precision", "ddof", "scale_ddof", "samples_axis", "center", "scale", "missing")
        return {**{name: keys[name] for name in (*names, *same)}, **Streaming._fields_of(result, keys)}

    @staticmethod
    def _fields_of(result: Result, preprocess: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters weights and filters: where these were arrays, from those of the result."""
        weights, filters = preprocess.get("weights"), preprocess.get("filters") or {}

        def of_groups(change: Callable[[Any], Any]) -> Any:
            return _alone({one.group: change(result.arrays[one.named("weights")].lazy()) for one in result.each})

        asked = result.manifest["config"]["input"]
        own = [key for key in ("weights", "mask") for one in asked if one.get(key)] if isinstance(asked, list) else []
        if "weights" in own or not (weights is None or weights == "sqrt_cos_lat"):
            weights = of_groups(np.nan_to_num)
        plain = Filters().model_dump()
        limits = {name: value for name, value in filters.items() if name != "mask" and value != plain[name]}
        masked = "mask" in own or filters.get("mask") is not None
        mask = {"mask": of_groups(lambda array: ~np.isnan(array))} if masked else {}
        return {"weights": weights, "filters": {**limits, **mask} or None}

    def __sklearn_clone__(self) -> Self:
        # A client can't be copied: the clone runs where this one does.
        params = self.get_params(deep=False)
        cloned = type(self)(
            **{name: params[name] if name == "client" else clone(params[name], safe=False) for name in params}
        )
        for kept in ("_metadata_request", "_sklearn_output_config"):
            if hasattr(self, kept):
                setattr(cloned, kept, copy.deepcopy(getattr(self, kept)))
        return cloned

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        copied = object.__new__(type(self))
        memo[id(self)] = copied
        shared = ("client", "_result", "_training")
        copied.__dict__ = {
            name: value if name in shared else copy.deepcopy(value, memo) for name, value in self.__dict__.items()
        }
        return copied

    def __getstate__(self) -> dict[str, Any]:
        """State for a pickle: the fit itself, up to `_carried_bytes`, otherwise its path. A client is not pickled.

        Raises
        ------
        NotPortable
            When the fit is larger, and lies in a temporary directory.
        """
        state: dict[str, Any] = {**super().__getstate__(), "client": None}
        result: Result | None = state.get("_result")
        if result is None or result.path is None:
            return state
        n_bytes = sum(array.nbytes for array in result.arrays.values())
        if n_bytes <= self._carried_bytes:
            state["_result"] = in_memory(result)
        elif result.name == THE_FIT:  # in a temporary directory
            raise NotPortable(
                f"this {type(self).__name__} has {describe_memory(n_bytes)} of arrays in a temporary directory, {result.path}, more "
                f"than the {describe_memory(self._carried_bytes)} that are pickled",
                "Fit with store='DIRECTORY', which a pickle then names; or save(path), and load it where it is needed.",
            )
        if not self._in_memory:
            for name in self._with_features:
                state.pop(f"{name}_", None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "_result" in state and not self._in_memory:
            self._set_arrays()
            self._label_arrays()

    def _set_arrays(self) -> None:
        """Set the attributes with feature axes: NumPy arrays if X was in memory, otherwise Dask arrays of files."""
        for name in self._with_features:
            stored = {one.group: self._result.arrays.get(one.named(name)) for one in self._result.each}
            arrays = {
                group: None if array is None else np.asarray(array[...]) if self._in_memory else array.lazy()
                for group, array in stored.items()
            }
            setattr(self, f"{name}_", _alone(arrays))

    # Fitting.

    @contextmanager
    def _outputs(self, in_memory: bool) -> Iterator[Outputs]:
        """Where large arrays are written: memory, or a new directory, which is removed on failure."""
        if in_memory:
            yield HeldOutputs()
            return
        directory = self._directory()
        try:
            yield Outputs(UnsyncedStore(directory / ARRAYS))
        except BaseException:
            shutil.rmtree(directory, ignore_errors=True)
            raise

    def _progress(self) -> Progress:
        """The progress of a pass, shown as `verbose` says."""
        return Progress(display_of_fit(self.verbose))

    def _check_room(self, job: Job) -> None:
        """Refuse a fit that its disk has no room for."""
        check_room_for_result(job, tempfile.gettempdir() if self.store is None else self.store, key="store")

    def _directory(self) -> Path:
        """A new directory for a result."""
        return new_directory(self.store, self._kind)

    def _recorded(
        self,
        job: Job,
        found: Decomposition,
        executor: Executor,
        seconds: float,
        peak: Peak,
        config: Config,
    ) -> Result:
        """The result of a fit, with its manifest."""
        # Only after the fit: opening an HDF5 file that is being written flushes it.
        identity = fingerprint(job.groups)
        manifest = {
            "format_version": FORMAT_VERSION,
            "run": uuid.uuid4().hex,
            "notes": notes_of(job, found),
            **manifest_of(
                self._asked_of(config, job),
                job,
                found,
                identity=identity,
                n_workers=executor.n_workers,
                seconds=seconds,
                peak=peak,
            ),
            "asked": {},
            "fingerprint": identity,
            "arrays": found.outputs.inventory(finished=True),
        }
        if isinstance(found.outputs, HeldOutputs):
            return Result(None, manifest, found.outputs.result, THE_FIT, found.certificate)
        place = Path(str(found.outputs.root)).parent
        write_documents(place, found.certificate, manifest)
        return open_result(place, THE_FIT if self.store is None else None)

    @property
    def _samples(self) -> Any:
        """`samples_axis` in one spelling: integers of Python, and one axis of a list alone."""
        given: Any = self.samples_axis
        each = tuple(given) if isinstance(given, tuple | list | np.ndarray) and np.ndim(given) else (given,)
        axes = tuple(int(axis) if isinstance(axis, np.integer) else axis for axis in each)
        return axes[0] if len(axes) == 1 else axes

    def _asked(self) -> dict[str, dict[str, Any]]:
        """The parameters, by section and key of a config."""
        filters: Any = {} if self.filters is None else self.filters
        if not isinstance(filters, Mapping):
            raise ConfigError(f"filters is {filters!r}, but a mapping or None is allowed", "Pass {'mask': an array}.")
        if unknown := [name for name in filters if name not in FILTERS]:
            raise ConfigError(f"filters has {unknown[0]!r}, but {', '.join(FILTERS)} are allowed", "Pass any of these.")
        axis: Any = list(self._samples) if isinstance(self._samples, tuple) else self._samples
        if isinstance(self.scale, Mapping) and "reference" in self.scale:
            raise ConfigError("scale has a reference, which is for people in a file", "Leave it out.")
        return {
            "input": {"samples_axis": axis},
            "preprocess": {
                "center": self.center,
                "scale": self.scale,
                "scale_ddof": self.scale_ddof,
                "missing": self.missing,
                "weights": self.weights if self.weights is None or isinstance(self.weights, str) else ARRAY,
                "filters": {**filters, "mask": None if filters.get("mask") is None else ARRAY},
                **({} if getattr(self, "inner_product", None) is None else {"inner_product": ARRAY}),
            },
            "model": {
                "kind": self._kind,
                "n_components": self.n_components,
                "ddof": self.ddof,
                "precision": self.precision,
            },
        }

    def _config(self) -> Config:
        """The config of a run that would do what the parameters ask for."""
        check("verbose", self.verbose, "bool | None")
        return config_of(self._asked())

    def _asked_of(self, config: Config, job: Job) -> dict[str, Any]:
        """The config as a result records it, about this input."""
        recorded = config.model_dump()
        inputs = []
        for group in job.groups:
            uri, array = group.source.place or (group.layout.name, None)
            inputs.append({**recorded["input"], "name": group.name or None, "uri": uri, "array": array})
        recorded["input"] = inputs[0] if len(inputs) == 1 else inputs
        preprocess = recorded["preprocess"]
        for section, key in ((preprocess, "weights"), (preprocess, "inner_product"), (preprocess["filters"], "mask")):
            section[key] = "array" if isinstance(section[key], dict) else section[key]
        return recorded

    def _groups_of(self, sources: Mapping[str, Source], known: Sequence[str] = ("",)) -> Groups:
        """The parts of X as groups of features, with weights and masks; `known` are the names of these parts in X."""
        groups = []
        for (name, source), called in zip(sources.items(), known, strict=True):
            with _of_part(name):
                weights, axis = self._weights_of(source, called, known), source.layout.axis_of(self._samples)
                if (sentence := dates_elsewhere(source, self._samples)) is not None:
                    warn(sentence)
                groups.append(FeatureGroup(dated(source, axis), axis, name, weights))
        check_same_samples(groups)
        return tuple(groups)

    def _weights_of(self, source: Source, name: str, known: Sequence[str]) -> FeatureWeights | None:
        """Weights and mask of the features of X, or of the part of it with this name."""
        weights, mask = (_of_name(given, name, known) for given in (self.weights, (self.filters or {}).get("mask")))
        opened = weights if weights is None or isinstance(weights, str) else as_source(weights).only
        return weights_of(
            source,
            self._samples,
            opened,  # type: ignore[arg-type]
            None if mask is None else as_source(mask).only,
            inner=self._inner_product(),
        )

    def _inner_product(self) -> Any:
        """The array of matrices, or the sparse matrix, of the parameter `inner_product`; None where it is none, or there is no such parameter."""
        given = getattr(self, "inner_product", None)
        if isinstance(given, str):
            raise ConfigError(
                f"inner_product is {given!r}, but an array (..., k, k) or a sparse matrix (d, d) is allowed",
                "Pass one of these.",
                key="preprocess.inner_product",
            )
        return given if given is None or hasattr(given, "tocoo") else as_source(given).only

    def _sources_of(self, X: Any, reset: bool) -> dict[str, Source]:
        """The parts of X by name, after scikit-learn's checks of one that is alone."""
        parts = parts_of(matrix_in(X, self._annotated))
        if not reset:
            self._check_names(names_in(X) if self._annotated is None else ("",), parts)
        if len(parts) == 1:
            (only,) = parts.values()
            return {"": self._source(self._validated(only, reset=reset))}
        sources = {name: self._source(part) for name, part in parts.items()}
        for name, source in sources.items():
            source.layout = replace(source.layout, name=f"{name}, {source.layout.name}")
        return sources

    def _source(self, X: Any) -> Source:
        """The source of an array, a path, an image, or a list of these, with one axis of samples."""
        source = stacked(as_source(X, self._samples), self._samples)
        if source.about(Variants) is not None:
            raise InputError(
                f"{source.layout.name}: is a file of genotypes, whose chromosomes and alleles count, but arrays of dosages are allowed here",
                "Run it with a config: dpca init names its keys, dpca transform matches variants and alleles of new people; PCA.load opens the result.",
            )
        return source

    def _check_names(self, has: Sequence[str], parts: Mapping[str, Any]) -> None:
        """Refuse new samples that have other arrays than X of the fit."""
        names = self._result.groups
        if {*parts} != {*names}:
            given, fitted = (
                " and ".join(map(repr, sorted(some))) if any(some) else "one array" for some in (has, names)
            )
            raise InputError(f"X has {given}, but was fitted to {fitted}", "Give the same, in any order.")

    def _axis_in(self, source: Source, one: Result | None = None) -> int:
        """The samples axis of new samples: by name if their axes have names, otherwise as in the fit, or a group of it."""
        named = not isinstance(self._samples, int) and any(source.layout.dims)
        return source.layout.axis_of(self._samples) if named else (one or self._result).samples_axis

    def _axes_among(self, dims: Sequence[Any]) -> tuple[int, ...]:
        """The numbers of the axes of samples among axes that have names."""
        return axes_among(dims, self._samples, self._result.samples_axis)

    def _validated(self, X: Any, reset: bool) -> Any:
        """X, after scikit-learn's checks of tables: names and number of features, complex and text data; sparse ones as CSR or CSC."""
        kinds = ("__arrow_c_stream__", "__dataframe__", "iloc", "tocsr")  # tables of any library; sparse matrices
        table = isinstance(X, np.ndarray | list | tuple) or any(hasattr(X, kind) for kind in kinds)
        table &= not is_data_array(X) and not are_files(X)
        # scikit-learn would use masked entries as values.
        if not table or self._samples != 0 or np.ndim(X) > 2 or isinstance(X, np.ma.MaskedArray):
            return X
        return validate_data(
            self,
            X,
            reset=reset,
            accept_sparse=("csr", "csc"),
            dtype="numeric",
            ensure_all_finite=False,
            ensure_min_samples=1,
            ensure_min_features=1,
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def _precise(self, values: Any, dtypes: Iterable[Any]) -> Any:
        """Values that were made of a fit and of values of some dtypes: float32 where all of these are, as scikit-learn's."""
        inputs = self._result.manifest["input"]
        of_fit = [one["dtype"] for one in (inputs if isinstance(inputs, list) else [inputs])]
        beyond = isinstance(values, np.ndarray) and np.abs(values).max(initial=0.0, where=np.isfinite(values)) > BEYOND
        single = not beyond and all(np.dtype(dtype).newbyteorder("=") == np.float32 for dtype in (*of_fit, *dtypes))
        return values.astype(np.float32) if single else values

    def _memory_bytes(self) -> int | None:
        return memory_bytes(self.memory)

    def _scratch(self) -> Scratch:
        return scratch_beside(self.store)


def say_of_new_samples(missing: Absent, rule: Missing) -> None:
    """Warn of new samples without any value; and of values that were filled, where the rule of the fit does not say it."""
    filled = missing.on_replaced_values() if rule in ("drop", "land") else []
    for sentence in (*missing.on_samples_without_values(), *filled):
        warn(sentence)


def memory_bytes(given: Any) -> int | None:
    """The memory that a fit may use, in bytes; None where nothing is said.

    Raises
    ------
    ConfigError
        When it is no amount.
    """
    if given is None:
        return None
    try:
        amount = 0 if isinstance(given, bool) or given == "" else int(parse_bytes(given))
    except (ValueError, TypeError, AttributeError):
        amount = 0
    if amount < 1:
        raise ConfigError(
            f"memory is {given!r}, but an amount such as '8 GiB' or None is allowed", "Pass one of these."
        )
    return amount


def scratch_beside(store: str | os.PathLike[str] | None) -> Scratch:
    """A place for a copy of X: beside `store` if it is set, otherwise in the directory for temporary files."""
    if store is not None:
        check_local(store, "store")
    home = os.path.dirname(os.path.abspath(store)) if store is not None else tempfile.gettempdir()
    path = os.path.join(home, f".dpca-{uuid.uuid4().hex}.zarr")
    return Scratch(path, free_disk(home))


def new_directory(store: str | os.PathLike[str] | None, kind: str) -> Path:
    """A new directory in `store`; without one a temporary directory, which is removed when the process ends."""
    if store is None:
        # Dask arrays of its files may outlive what made them.
        directory = tempfile.TemporaryDirectory(prefix="dpca-", ignore_cleanup_errors=True)
        weakref.finalize(Streaming, directory.cleanup)
        return Path(directory.name)
    place = Path(store).absolute() / f"{kind}-{uuid.uuid4().hex[:16]}"
    durable.make_directories(place)
    return place


def _of_name(given: Any, name: str, known: Sequence[str]) -> Any:
    """The weights, or the mask, of a part of X: those of its name, or what holds for all."""
    unknown = [key for key in given if key not in known or not key] if isinstance(given, Mapping) else []
    if unknown:
        has = f"has {', '.join(known)}" if name else "is one array, without a name"
        raise ConfigError(
            f"weights or filters['mask'] is for {', '.join(map(str, unknown))}, but X {has}",
            "Pass a mapping with names of X; for one array pass an array.",
        )
    if len(known) > 1 and not (given is None or isinstance(given, str | Mapping)):
        raise ConfigError(
            f"X has several arrays, but weights or filters['mask'] is one, {type(given).__name__}",
            "Pass a mapping with one for each name that has any.",
        )
    return given.get(name) if isinstance(given, Mapping) else given


@contextmanager
def _of_part(name: str) -> Iterator[None]:
    """Name the part of X that an error of this block is about."""
    try:
        yield
    except DpcaError as error:
        if not name:
            raise
        remedy = f"{error.marked_remedy} Or leave {name!r} out of X."
        raise error.saying(f"{name}: {error.marked_message}", remedy) from error.__cause__


@contextmanager
def in_python() -> Iterator[None]:
    """Errors of this block speak of parameters of Python."""
    try:
        yield
    except DpcaError as error:
        raise error.for_readers_of(PYTHON) from error.__cause__
    except KeyboardInterrupt:
        raise KeyboardInterrupt("stopped") from None  # without the lines of all that was under way
