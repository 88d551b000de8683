"""Names and coordinates of the axes of an xarray.DataArray, as files have them (`dpca.store.labelled` gives them back)."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
from xarray.conventions import encode_cf_variable

from dpca.sources.coordinate import COORDINATE_ATTRIBUTES, Coordinate, Parts


def labels_of(data: Any) -> tuple[tuple[str, ...], dict[int, Coordinate]]:
    """Names of the axes of a DataArray, and their coordinates by axis; dates are encoded by the CF conventions."""
    coordinates = {}
    for axis, dim in enumerate(data.dims):
        if dim not in data.coords:
            continue
        with suppress(ValueError, TypeError, OverflowError, NotImplementedError):  # can't be stored, like a MultiIndex
            variable = data.coords[dim].variable.copy(deep=False)
            # Of how it was stored only the units of time: not packed again.
            variable.encoding = {
                key: variable.encoding[key] for key in ("units", "calendar") if key in variable.encoding
            }
            encoded = encode_cf_variable(variable)
            values = np.asarray(encoded.values)
            if values.dtype.kind in "biuf" or all(isinstance(value, str) for value in values):
                kept = {
                    key: encoded.attrs[key] for key in COORDINATE_ATTRIBUTES if isinstance(encoded.attrs.get(key), str)
                }
                coordinates[axis] = Coordinate(str(dim), values, Parts.of(values.dtype), kept)
    return tuple(str(dim) for dim in data.dims), coordinates
