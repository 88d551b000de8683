"""Attributes of an array, or of a coordinate, about its values: the CF conventions, and _Unsigned of netCDF."""

from __future__ import annotations

import base64
import math
import re
import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpca.errors import InputError
from dpca.sources.coordinate import COORDINATE_ATTRIBUTES, Coordinate, Parts, Vector
from dpca.sources.missing import EVERY, as_stored

NETCDF_FILL: Mapping[str, float] = {
    "i2": -32767,
    "u2": 65535,
    "i4": -2147483647,
    "u4": 4294967295,
    "i8": -9223372036854775806,
    "u8": 18446744073709551614,
    "f4": 9.969209968386869e36,
    "f8": 9.969209968386869e36,
}
"""Values that netCDF stores where nothing was written and no _FillValue is given (netcdf.h, NC_FILL_...). Bytes are left out, since
each may be a value of its own."""


_SPELLED = {
    spelling: symbol
    for symbol, spellings in {
        "K": "kelvin kelvins Kelvin degK deg_K degree_K",
        "degC": "celsius Celsius deg_C degree_C degree_Celsius degrees_Celsius degree_celsius degrees_celsius °C",
        "m": "meter meters metre metres",
        "s": "second seconds sec",
        "h": "hour hours hr",
        "d": "day days",
        "kg": "kilogram kilograms",
        "g": "gram grams",
        "Pa": "pascal pascals Pascal",
        "hPa": "hectopascal hectopascals mb mbar millibar millibars",
        "%": "percent",
    }.items()
    for spelling in spellings.split()
}
"""How units are spelled of which one stands for another; the names of UDUNITS that fields of people's files have."""


def netcdf_fill(dtype: np.dtype[Any]) -> float | None:
    """The fill value of netCDF for a type; None where it has none."""
    return NETCDF_FILL.get(f"{dtype.kind}{dtype.itemsize}")


def cf_attributes(
    array: str, attributes: Mapping[str, Any], dtype: np.dtype[Any], unwritten: float | None = None
) -> dict[str, Any]:
    """Fields of a Layout that the attributes of an array determine.

    The CF conventions: scale_factor and add_offset (8.1), _FillValue, missing_value, valid_min, valid_max and
    valid_range (2.5.1); units (3.1); and _Unsigned, with which netCDF marks integers that its format has no type for
    (NetCDF Users Guide, appendix A).

    Parameters
    ----------
    array : name of the array in error messages
    unwritten : what stands where nothing was written; it marks missing values if it is the fill value of netCDF, and no
        _FillValue is given (NetCDF Users Guide, "Fill values")
    """
    given, units = _Attributes(array, attributes, dtype), text_of(attributes.get("units"))
    names = ("_FillValue", "missing_value")
    marks = [float(mark) for name in names for mark in given.as_meant(given.numbers(name))]
    if unwritten is not None and unwritten == netcdf_fill(dtype) and names[0] not in attributes:
        marks += map(float, given.as_meant(np.array([unwritten])))
    return {
        "dtype": given.meant,
        "stored_dtype": None if given.meant == dtype else dtype,
        "missing_values": as_stored(marks, given.meant),
        "packing": given.packing,
        "valid_range": given.valid_range,
        "units": units if isinstance(units, str) else "",
        "long_name": long_name_of(attributes),
    }


def long_name_of(attributes: Mapping[str, Any]) -> str:
    """Name of values in words: long_name, or else standard_name (CF 3.2, 3.3); empty where neither is there."""
    found = (text_of(attributes.get(key)) for key in ("long_name", "standard_name"))
    return next((" ".join(text.split()) for text in found if isinstance(text, str) and text.strip()), "")


def same_units(one: str, other: str) -> bool:
    """Whether two units are one, however they are written: m/s, m s-1, m s**-1 and meter second^-1; without a change of numbers."""
    return one.strip() == other.strip() or (_parsed(one) is not None and _parsed(one) == _parsed(other))


def _parsed(units: str) -> dict[str, int] | None:
    """The exponent of each unit of a product, as UDUNITS writes it; None for what is none."""
    powers: Counter[str] = Counter()
    for divided, word in re.findall(r"(/?)\s*([^\s./·]+)", re.sub(r"\*\*|\^", "", units).replace("*", " ")):
        match = re.fullmatch(r"([^\W\d]+|%|°[CF])([+-]?\d+)?|1", word)
        if match is None:
            return None
        if match[1]:
            powers[_SPELLED.get(match[1], match[1])] += int(match[2] or 1) * (-1 if divided else 1)
    return {name: power for name, power in powers.items() if power}


def about_values(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes that say what the values of a coordinate mean."""
    return {key: attributes[key] for key in (*COORDINATE_ATTRIBUTES, "scale_factor", "add_offset") if key in attributes}


def coordinate_of(name: str, vector: Vector, attributes: Mapping[str, Any]) -> Coordinate:
    """A stored coordinate: its values, unpacked where scale_factor or add_offset say so, and the texts that describe it."""
    if vector.dtype.kind in "iuf":
        factor, offset = _Attributes(vector.name, attributes, vector.dtype).packing
        if (factor, offset) != (1.0, 0.0):
            read, dtype = vector.read, np.dtype(np.float64)
            parts = Parts.of(dtype, vector.parts.chunk)
            vector = replace(
                vector, dtype=dtype, read=lambda piece: np.multiply(read(piece), factor) + offset, parts=parts
            )
    texts = {key: text_of(attributes[key]) for key in COORDINATE_ATTRIBUTES if key in attributes}
    kept = {key: text for key, text in texts.items() if isinstance(text, str)}
    return Coordinate(name, vector, vector.parts, kept)


DESCRIBING = (
    "ancillary_variables",
    "bounds",
    "cell_measures",
    "climatology",
    "coordinates",
    "formula_terms",
    "grid_mapping",
)
"""Attributes that name the arrays which describe an array (CF conventions 1.11, appendix A)."""


def described_by(attributes: Mapping[str, Any]) -> set[str]:
    """Names of the arrays that describe an array, by its attributes: bounds, coordinates, areas of cells, flags of quality."""
    texts = (text_of(attributes.get(key)) for key in DESCRIBING)
    return {word for text in texts if isinstance(text, str) for word in text.split()}


@dataclass(frozen=True)
class _Attributes:
    """The attributes of an array."""

    array: str
    attributes: Mapping[str, Any]
    dtype: np.dtype[Any]

    @property
    def meant(self) -> np.dtype[Any]:
        """The type of the values: integers of the other signedness, where _Unsigned says so."""
        marked = str(text_of(self.attributes.get("_Unsigned"))).lower()
        other = {("i", "true"): "u", ("u", "false"): "i"}.get((self.dtype.kind, marked))
        return self.dtype if other is None else np.dtype(f"{self.dtype.byteorder}{other}{self.dtype.itemsize}")

    @property
    def packing(self) -> tuple[float, float]:
        """Factor and offset of packed values."""
        factor = self._number("scale_factor", 1.0, "a finite number other than 0")
        return factor, self._number("add_offset", 0.0, "a finite number")

    @property
    def valid_range(self) -> tuple[float, float]:
        """The smallest and the largest valid value, as stored."""
        low, high = EVERY
        if len(both := self._limits("valid_range")) == 2:
            low, high = both
        below, above = self._limits("valid_min")[:1], self._limits("valid_max")[:1]
        if self.packing[0] < 0 and not both:  # reverses the order: the largest value is stored as the smallest
            below, above = above, below
        return max([low, *below]), min([high, *above])

    def numbers(self, name: str) -> NDArray[Any]:
        """The numbers of an attribute; none if it has others or is absent."""
        attribute = text_of(self.attributes.get(name, ()))
        if isinstance(attribute, str):
            decoded = _encoded(attribute) if name == "_FillValue" else ""
            if decoded == "" and _reads_as_number(attribute):
                raise self._refused(name, "a number, and no text of one,")
            attribute = decoded
        try:
            values = np.asarray(attribute).reshape(-1)
        except ValueError:  # lists in lists
            values = np.empty(0, object)
        return values if values.dtype.kind in "biuf" else np.empty(0)

    def as_meant(self, values: NDArray[Any]) -> NDArray[Any]:
        """Values of attributes, reinterpreted where stored integers are of the other signedness."""
        if self.meant == self.dtype or values.dtype.kind == "f":
            return values
        bits = 8 * self.dtype.itemsize
        return np.array([int(value) % 2**bits for value in values], np.uint64).astype(self.meant).astype(np.float64)

    def _number(self, name: str, otherwise: float, allowed: str) -> float:
        if name not in self.attributes:
            return otherwise
        values = np.empty(0) if isinstance(text_of(self.attributes[name]), str) else self.numbers(name)
        if values.size != 1 or not np.isfinite(values[0]) or (name == "scale_factor" and not values[0]):
            raise self._refused(name, allowed)
        return float(values[0])

    def _limits(self, name: str) -> list[float]:
        """The numbers of a limit, ascending, as stored."""
        values, (factor, offset) = self.numbers(name), self.packing
        # Floating-point limits of packed integers refer to the unpacked values.
        unpacked = self.dtype.kind in "iu" and values.dtype.kind == "f" and (factor, offset) != (1.0, 0.0)
        stored = (values - offset) / factor if unpacked else self.as_meant(values)
        return sorted(map(float, stored))

    def _refused(self, name: str, allowed: str) -> InputError:
        return InputError(
            f"{self.array}: attribute {name} is {text_of(self.attributes[name])!r}, but {allowed} is allowed",
            "Correct the attribute where the data are made, or delete it.",
            key="input.uri",
        )


def text_of(value: Any) -> Any:
    """An attribute, as str if it is text: HDF5 also has bytes, and arrays of one element."""
    value = value[0] if isinstance(value, np.ndarray) and value.size == 1 else value
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _reads_as_number(text: str) -> bool:
    """Whether a text is a number other than NaN, which needs no marker."""
    try:
        return not math.isnan(float(text))
    except ValueError:
        return False


def _encoded(text: str) -> Any:
    """A number that xarray wrote into the JSON of Zarr (base64 of a little-endian double); "" if it is none."""
    try:
        return struct.unpack("<d", base64.b64decode(text, validate=True))[0]
    except (ValueError, struct.error):
        return ""
