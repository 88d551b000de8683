"""Names and coordinates of the axes of an xarray.DataArray, as files have them (`dpca.store.labelled` gives them back)."""

from __future__ import annotations

import datetime as dt
import numbers
from collections.abc import Hashable
from contextlib import suppress
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray
from xarray.conventions import encode_cf_variable
from xarray.core.indexing import ExplicitlyIndexed

from dpca.sources.coordinate import COORDINATE_ATTRIBUTES, Auxiliary, Coordinate, Parts

BLOCK_BYTES = 4 * 2**20
"""Size of a block of values that a file has in one piece."""


def labels_of(data: Any) -> tuple[tuple[str, ...], dict[int, Coordinate], tuple[Auxiliary, ...]]:
    """Names of the axes of a DataArray, their coordinates by axis, and those that are no index.

    Dates are encoded by the CF conventions, those with a time zone as the same moments in UTC. What files have no type for,
    such as categories, intervals and periods, is text. Of a MultiIndex, its levels are coordinates that are no index.
    """
    indexes, others = {}, []
    for name, values in data.coords.items():
        if name in data.dims and isinstance(data.indexes.get(name), pd.MultiIndex):
            continue
        with suppress(ValueError, TypeError, OverflowError):  # dates that no unit can hold
            stored, attributes = _stored(values.variable)
            axes = tuple(data.dims.index(dim) for dim in values.dims)
            if name in data.dims and axes == (data.dims.index(name),):
                indexes[axes[0]] = Coordinate(str(name), stored, Parts.of(stored.dtype), attributes)
            else:
                others.append(Auxiliary.of(axes, str(name), stored, attributes))
    return tuple(str(dim) for dim in data.dims), indexes, tuple(others)


def values_of(data: xr.DataArray) -> Any:
    """The values of a DataArray: those of a file that are not read yet as a Dask array, so that they are read block by block."""
    variable = data.variable
    if variable._in_memory or not isinstance(
        variable._data, ExplicitlyIndexed
    ):  # in memory, or an array of another library
        return variable.data
    stored = variable.encoding.get("preferred_chunks") or {}
    return variable.chunk(_blocks(variable) if set(stored) != set(variable.dims) else stored).data


def _blocks(variable: xr.Variable) -> dict[Hashable, int | str]:
    """Blocks of values that are stored in one piece: rows along the last axis are whole, where they are short enough."""
    from dask.array.core import normalize_chunks

    *others, last = variable.dims
    whole = variable.sizes[last] * variable.dtype.itemsize <= BLOCK_BYTES
    cut = dict.fromkeys(variable.dims, "auto") | ({last: -1} if whole and others else {})
    sizes = normalize_chunks(  # type: ignore[no-untyped-call]
        tuple(cut.values()), variable.shape, limit=BLOCK_BYTES, dtype=variable.dtype
    )
    return {dim: max(1, pieces[0]) for dim, pieces in zip(variable.dims, sizes, strict=True)}


def _stored(variable: xr.Variable) -> tuple[NDArray[Any], dict[str, str]]:
    """Values as numbers or text, and the attributes that say what they are."""
    plain = xr.Variable(variable.dims, _plain(variable), variable.attrs)
    # Of how it was stored only the units of time: not packed again.
    plain.encoding = {key: variable.encoding[key] for key in ("units", "calendar") if key in variable.encoding}
    encoded = encode_cf_variable(plain)
    kept = {key: encoded.attrs[key] for key in COORDINATE_ATTRIBUTES if isinstance(encoded.attrs.get(key), str)}
    return np.asarray(encoded.values), kept


def _plain(variable: xr.Variable) -> NDArray[Any]:
    """Values as numbers, dates or text of NumPy."""
    if isinstance(variable.dtype, pd.DatetimeTZDtype):
        return np.asarray(pd.DatetimeIndex(variable.data).tz_convert("UTC").tz_localize(None))
    values = np.asarray(variable.values)
    if values.dtype.kind == "S":
        return np.char.decode(values, "utf-8", "replace")
    if values.dtype.kind in "biufmMUT":
        return values
    items = [value.decode(errors="replace") if isinstance(value, bytes) else value for value in values.ravel()]
    for kind, dtype in ((bool, np.bool_), (numbers.Integral, np.int64), (numbers.Real, np.float64)):
        if items and all(isinstance(value, kind) for value in items):
            return np.array(items, dtype).reshape(values.shape)
    if items and all(_is_date(value) for value in items):
        return values
    plain = np.empty(values.size, object)
    plain[:] = [str(value) for value in items]
    return plain.reshape(values.shape)


def _is_date(value: Any) -> bool:
    """Whether CF can encode it: dates of Python without a zone, and of cftime in any calendar."""
    return (isinstance(value, dt.datetime) and value.tzinfo is None) or type(value).__module__.startswith("cftime")
