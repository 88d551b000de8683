"""Results, scores and samples as objects of xarray: what names and coordinates a DataArray came with, it leaves with.

Only this file and `dpca.sources.xarray_labels`, which reads them, know xarray (extra `export`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self, TypeVar

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from xarray.conventions import decode_cf_variable

from dpca.errors import ConfigError, InputError
from dpca.settings import PREPROCESS
from dpca.store.applied import AppliedResult
from dpca.store.arrays import Dims, of_group
from dpca.store.meanings import described
from dpca.store.results import Result
from dpca.store.stored import SAMPLES_AXES, Stored

COMPONENT, ROTATED_COMPONENT = "component", "rotated_component"
AS_COVARIANCE, AS_CORRELATION = "as_covariance", "as_correlation"
_Labelled = TypeVar("_Labelled", xr.DataArray, xr.Dataset)
HELD_BYTES = 2**20
"""Larger arrays of a result on disk are opened as Dask arrays."""


@dataclass(frozen=True)
class ArrayLabels:
    """Names, coordinates and attributes of a DataArray beside its values."""

    dims: tuple[Hashable, ...]
    samples_axes: tuple[int, ...]
    """The axis of samples; several where samples lie along them, the last of which changes fastest."""
    lengths: tuple[int, ...]
    """Lengths of the axes of samples."""
    coordinates: xr.Dataset
    """Coordinates along samples alone, along features alone, and of no axis, with their indexes; no data."""
    name: Hashable | None = None
    attributes: Mapping[Any, Any] | None = None

    @classmethod
    def of(cls, data: xr.DataArray, samples_axes: Sequence[int]) -> Self:
        """The labels of a DataArray. A coordinate along samples and features at once belongs to neither, and is left out."""
        samples = {data.dims[axis] for axis in samples_axes}
        both = [name for name, values in data.coords.items() if samples & {*values.dims} and {*values.dims} - samples]
        lengths, coordinates = (
            tuple(data.shape[axis] for axis in samples_axes),
            data.coords.to_dataset().drop_vars(both),
        )
        return cls(data.dims, tuple(samples_axes), lengths, coordinates, data.name, dict(data.attrs))

    @classmethod
    def of_result(cls, result: Result) -> Self:
        """The labels that a result keeps: names of axes, and coordinates along them."""
        stacked, features = result.sample_dims, result.dims.features
        first = 0 if result.samples_axis == 0 else len(features)
        dims = (*features[:first], *stacked, *features[first:])
        axes = tuple(range(first, first + len(stacked)))
        if len(stacked) == 1:
            dims, axes = result.dims.placed(result.samples_axis), (result.samples_axis,)
        plain: dict[Hashable, Hashable] = {dim: result.dims.plain(dim) for dim in dims}
        lengths = tuple(result.arrays.attributes.get(SAMPLES_AXES, {result.dims.sample: result.n_samples}).values())
        return cls(tuple(plain.values()), axes, lengths, _renamed(dataset_of(result, only=dims), plain))

    @property
    def _here(self) -> tuple[Hashable, ...]:
        """The names of the axes of samples."""
        return tuple(self.dims[axis] for axis in self.samples_axes)

    @property
    def _there(self) -> tuple[Hashable, ...]:
        """Their names in scores, where `component` is another's."""
        if len(self.samples_axes) > 1:
            return self._here
        return (Dims.of(tuple(map(str, self.dims)), self.samples_axes[0]).sample,)

    @property
    def _features(self) -> list[Hashable]:
        """The names of the axes of features."""
        return [dim for dim in self.dims if dim not in self._here]

    def of_samples(self, values: NDArray[Any], name: str) -> xr.DataArray:
        """Values of samples, (n_samples,) or (n_samples, n_components), with the coordinates of the samples."""
        there = self._there
        names = dict(zip(self._here, there, strict=True))
        coordinates = _renamed(self.coordinates.drop_dims(self._features, errors="ignore"), names)
        coords = coordinates.drop_vars(COMPONENT, errors="ignore").coords
        if len(there) > 1:
            values = values.reshape(*self.lengths, *values.shape[1:])
        dims = (*there, COMPONENT)[: values.ndim]
        return _numbered(xr.DataArray(values, dims=dims, coords=coords, name=name))

    def of_features(self, values: Any, dims: Sequence[str], name: str, attributes: Mapping[str, Any]) -> xr.DataArray:
        """An array of the fit with feature axes, with their names and coordinates in the DataArray, and the attributes of the result.

        Parameters
        ----------
        dims : names of its axes before those of the features
        """
        coords = self.coordinates.drop_dims(self._here, errors="ignore").drop_vars([*dims], errors="ignore").coords
        features = [f"feature_{dim}" if dim in dims else dim for dim in self._features]
        return _numbered(
            xr.DataArray(values, dims=[*dims, *features], coords=coords, name=name, attrs=_plain(attributes))
        )

    def restored(self, values: Any, scores: xr.DataArray) -> xr.DataArray:
        """Samples that were restored from scores, in the layout of the fit, with the coordinates of the scores."""
        of_features = self.coordinates.drop_dims(self._here, errors="ignore")
        of_samples = scores.coords.to_dataset().drop_dims(COMPONENT, errors="ignore")
        given = [dim for dim in scores.dims if dim != COMPONENT]
        if len(self._here) > 1 and {*given} == {*self._here}:
            lengths = [scores.sizes[dim] for dim in self._here]
            last = self.samples_axes == tuple(range(len(self._features), len(self.dims)))
            features = values.shape[:-1] if last else values.shape[1:]
            values = values.reshape((*features, *lengths) if last else (*lengths, *features))
            dims = [*self._features, *self._here] if last else [*self._here, *self._features]
            coordinates = of_features.assign_coords(of_samples.coords)
            restored = xr.DataArray(values, dims=dims, coords=coordinates.coords, attrs=self.attributes)
            return restored.transpose(*self.dims).rename(self.name)
        (axis, *_), (here, *_), (there, *_) = self.samples_axes, self._here, self._there
        dim = here if given == [there] else given[0]
        coordinates = of_features.assign_coords(_renamed(of_samples, {given[0]: dim}).coords)
        dims = [*self.dims[:axis], dim, *self.dims[axis + 1 :]]
        restored = xr.DataArray(values, dims=dims, coords=coordinates.coords, attrs=self.attributes)
        return restored.rename(self.name)  # else it would have the name of a Dask array


def scores_in(data: xr.DataArray, n_components: int, sample_dims: Sequence[str] = ()) -> NDArray[np.float64]:
    """The values of scores, (n_samples, n_components), in whichever order their dimensions are.

    If they have the coordinate component, it says which are there: one, some or all of them, from 1 on; the others are 0.

    Parameters
    ----------
    sample_dims : names of the axes of samples of a fit that has several
    """
    several, others = len(sample_dims) > 1, [dim for dim in data.dims if dim != COMPONENT]
    fits = {*others} == {*sample_dims} if several else len(others) == 1
    if not fits or COMPONENT not in data.dims:
        wanted = ", ".join(map(repr, sample_dims)) if several else "two are allowed, the samples'"
        raise InputError(
            f"scores have dimensions {data.dims}, but {wanted} and {COMPONENT!r}" + " are allowed" * several,
            "Name them so, with rename; give a single sample as isel(NAME=[0]).",
        )
    values = np.asarray(data.transpose(*(sample_dims if several else (...,)), COMPONENT), np.float64)
    values = values.reshape(-1, values.shape[-1])
    if COMPONENT not in data.coords:
        return values
    numbers = np.asarray(data[COMPONENT].values)
    if len({*numbers.tolist()} & {*range(1, n_components + 1)}) < len(numbers):
        raise InputError(
            f"scores have the components {', '.join(map(str, numbers[:10].tolist()))}{' and others' * (len(numbers) > 10)}, but each of 1 to "
            f"{n_components} is allowed once",
            "Give scores of components of the fit, or drop_vars('component') of all of them in their order.",
        )
    found = np.zeros((len(values), n_components))
    found[:, numbers.astype(int) - 1] = values
    return found


def dataset_of(
    result: Result | AppliedResult,
    values: Mapping[str, NDArray[Any]] | None = None,
    only: Collection[str] | None = None,
    decode_times: bool = True,
) -> xr.Dataset:
    """A result, or what was made of one, as a Dataset, as xarray.open_zarr shows it, but with an error where a chunk is missing.

    Parameters
    ----------
    values : used instead of the stored values of some arrays
    only : the names of the arrays; None for all
    decode_times : whether numbers with units of time become dates, of NumPy or of cftime; where neither can, they stay
        numbers, as they are with decode_times=False

    Returns
    -------
    Dataset of NumPy arrays; of Dask arrays where a result on disk has more than `HELD_BYTES`
    """
    given, variables = values or {}, {}
    for name in result.arrays if only is None else result.arrays.keys() & only:
        array = result.arrays[name]
        held = result.path is None or array.text or not array.ndim or array.nbytes <= HELD_BYTES
        content = given[name] if name in given else array[...] if held else array.lazy()
        variables[name] = (array.dims, content, _plain(array.attributes))
    dataset = xr.decode_cf(xr.Dataset(variables, attrs=_plain(result.arrays.attributes)), decode_times=False)
    dataset = _numbered(dataset)  # results of earlier versions have no numbers of components
    axes = dataset.attrs.pop(SAMPLES_AXES, None)
    if axes and {*axes} <= {*dataset.coords}:
        dataset = unstacked(dataset, str(dataset[next(iter(axes))].dims[0]), axes)
    return _dated(dataset) if decode_times else dataset


def unstacked(dataset: xr.Dataset, dim: str, axes: Mapping[str, int]) -> xr.Dataset:
    """The Dataset with several axes in place of an axis of samples, in C order of these; as it is, where samples are no box of the axes.

    Parameters
    ----------
    axes : name, which is a coordinate along `dim`, and length of each; where lengths are not those of the samples, different values count
    """
    names, along, n = tuple(axes), [dataset[name].values for name in axes], dataset.sizes[dim]
    lengths = tuple(axes.values())
    if math.prod(lengths) != n:
        lengths = tuple(len(np.unique(one)) for one in along)
        if math.prod(lengths) != n:
            return dataset
    firsts = [
        np.arange(n).reshape(lengths)[(0,) * number][(slice(None), *(0,) * (len(lengths) - number - 1))]
        for number in range(len(lengths))
    ]
    if math.prod(axes.values()) != n:
        places = np.unravel_index(np.arange(n), lengths)
        if not all(
            np.array_equal(one, one[first][place]) for one, first, place in zip(along, firsts, places, strict=True)
        ):
            return dataset
    sizes = dict(zip(names, lengths, strict=True))
    found = {}
    for name, values in dataset.drop_vars([dim], errors="ignore").variables.items():
        if name in sizes:
            values = xr.Variable((name,), values.values[firsts[names.index(str(name))]], values.attrs)
        elif dim in values.dims:
            dims = [one for here in values.dims for one in (names if here == dim else (here,))]
            values = values.to_base_variable().unstack({dim: sizes}).transpose(*dims)
        found[name] = values
    coords = {name: found.pop(name) for name in dataset.coords if name in found}
    return xr.Dataset(found, coords, dataset.attrs)


def with_maps(dataset: xr.Dataset, result: Result, as_covariance: bool, as_correlation: bool) -> xr.Dataset:
    """The Dataset of a fit with its components as maps in the unit of the data, or as correlations, beside the others.

    Parameters
    ----------
    as_covariance : add as_covariance, components sqrt(explained_variance) scale / weights: the data for one standard deviation of each
        score (eofs.eofsAsCovariance; von Storch and Zwiers, Statistical Analysis in Climate Research, 1999, 13.1.9). NaN where weights are 0
    as_correlation : add as_correlation, the correlation of each feature with each score: as_covariance / scale, where scale is the standard
        deviation of the feature. NaN where it does not vary, too
    """
    asked = result.manifest["config"]["preprocess"]["scale"]
    if as_covariance:
        result.check_unit()
    if as_correlation and (asked != "std" or result.filled_values):
        why = f"{result.filled_values:,} missing values were replaced" if asked == "std" else f"scale is {asked!r}"
        raise ConfigError(
            f"as_correlation needs the standard deviation of each feature, which this fit does not have: {why}",
            f"Fit with {PREPROCESS.scale.at('std')}. Or read the data again: as_correlation of a pca in dpca derive, or of dpca.open_gram(pca, data=X).pca(as_correlation=True).",
        )
    n, rules = result.n_samples, result.rules
    same_ddof = np.sqrt((n - rules.ddof) / (n - rules.ddof_of_features))
    weighted = result.manifest["config"]["preprocess"]["sample_weights"] is not None
    if as_correlation and same_ddof != 1 and weighted:
        raise ConfigError(
            f"as_correlation of weighted samples needs one ddof, but it is {rules.ddof}, and {rules.ddof_of_features} for the scale",
            f"Fit without {PREPROCESS.scale_ddof}.",
        )
    for one in result.each if as_covariance or as_correlation else ():
        components, scale, weights = (dataset[one.named(name)] for name in ("components", "scale", "weights"))
        maps = components * np.sqrt(dataset["explained_variance"]) / (weights.where(weights != 0) * one.factor)
        found = {AS_COVARIANCE: maps * scale} if as_covariance else {}
        if as_correlation:
            found[AS_CORRELATION] = maps.where((components != 0).any(COMPONENT)) * same_ddof
        for name, array in found.items():
            units = {"units": one.units} if name == AS_COVARIANCE and one.units else {}
            array = array.transpose(*components.dims).astype(components.dtype)
            dataset[one.named(name)] = array.assign_attrs(described(name, units, None))
    return dataset


def beside(arrays: Sequence[xr.DataArray], dim: str, names: Sequence[str]) -> xr.DataArray:
    """Arrays of the same samples along a new first axis, whose coordinate is their names."""
    found: xr.DataArray = xr.concat(arrays, dim=xr.Variable((dim,), list(names)), coords="minimal", compat="override")
    return found


Variable = tuple[tuple[str, ...], Any, Mapping[str, Any]]
"""Names of axes, values, attributes."""


def dataset_from(
    variables: Mapping[str, Variable], coordinates: Mapping[str, Variable], attributes: Mapping[str, Any] = {}
) -> xr.Dataset:
    """Arrays as a Dataset. Stored arrays of more than `HELD_BYTES` are Dask arrays; times are dates, where they can be."""
    held = {
        name: (dims, _held(values), _plain(attrs))
        for name, (dims, values, attrs) in {**coordinates, **variables}.items()
    }
    coords = {name: held.pop(name) for name in coordinates}
    return _dated(_numbered(xr.Dataset(held, coords, _plain(attributes))))


def _held(values: Any) -> Any:
    if not isinstance(values, Stored):
        return values
    return values[...] if values.text or values.nbytes <= HELD_BYTES else values.lazy()


def labelled(dataset: xr.Dataset, dims: Dims, labels: ArrayLabels) -> xr.Dataset:
    """The Dataset of a fit, of a result with these names of axes, with all that the DataArray of the fit came with."""
    samples = labels.samples_axes if len(labels.samples_axes) > 1 else ()
    names: dict[Hashable, Hashable] = (
        dict(zip([dim for axis, dim in enumerate(labels.dims) if axis not in samples], dims.features, strict=False))
        if samples
        else dict(zip(labels.dims, dims.placed(labels.samples_axes[0]), strict=False))
    )
    coordinates = _renamed(labels.coordinates, names)
    unfit = [
        name
        for name, values in coordinates.coords.items()
        if name in dataset.data_vars
        or not {*values.dims} <= {*dataset.dims}
        or (name in dataset.dims and not values.ndim)
    ]
    dataset = dataset.assign_coords(coordinates.drop_vars(unfit).coords)
    mean = of_group("mean", dims.group)
    if mean in dataset:
        dataset[mean].attrs.update(labels.attributes or {})
    return dataset


def together(arrays: Mapping[str, xr.DataArray]) -> xr.Dataset:
    """DataArrays as the variables of a Dataset, by name."""
    try:
        xr.align(*arrays.values(), join="exact", copy=False)
        return xr.Dataset(dict(arrays))
    except (xr.MergeError, ValueError) as cause:
        raise InputError(
            f"{', '.join(arrays)} do not make a Dataset, since a dimension has other coordinates in each ({cause})",
            "Give the scores as a NumPy array: the samples come back by name.",
        ) from cause


def _dated(dataset: xr.Dataset) -> xr.Dataset:
    decoded = {}
    for name, values in dataset.coords.items():
        if " since " in str(values.attrs.get("units", "")):
            with suppress(ValueError, OverflowError, ImportError):
                decoded[name] = decode_cf_variable(
                    name, values.variable.to_base_variable(), decode_timedelta=False
                ).load()
    return dataset.assign_coords(decoded)


def _renamed(dataset: xr.Dataset, names: Mapping[Hashable, Hashable]) -> xr.Dataset:
    """The Dataset with other names of dimensions, and of the coordinates that are called so."""
    return dataset.rename({old: new for old, new in names.items() if old != new and old in dataset.dims})


def _numbered(data: _Labelled) -> _Labelled:
    """The data with the numbers of their components, from 1 on, as a coordinate, where they have none."""
    for dim in (COMPONENT, ROTATED_COMPONENT):
        if dim in data.dims and dim not in data.coords:
            numbers = xr.Variable((dim,), np.arange(1, data.sizes[dim] + 1), described(dim, {}, None))
            data = data.assign_coords({dim: numbers})
    return data


def _plain(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes that NetCDF can hold: it has no booleans."""
    return {key: int(value) if isinstance(value, bool) else value for key, value in attributes.items()}
