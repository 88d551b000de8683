"""Latitudes of features, along one axis or several, and the weights that are made of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpca.errors import InputError
from dpca.settings import PREPROCESS
from dpca.sources.base import Reader, Region, Source, size_of
from dpca.sources.coordinate import Coordinate
from dpca.sources.memory import MemorySource
from dpca.sources.missing import EVERY
from dpca.sources.view import View, ViewReader
from dpca.types import F64

LATITUDES = ("lat", "latitude", "nav_lat", "rlat")
"""Names of a coordinate of latitudes, where neither its standard_name nor its units tell."""
DEGREES_NORTH = ("degrees_north", "degree_north", "degree_n", "degrees_n", "degreen", "degreesn")
"""Units of latitudes (CF conventions 1.11, section 4.1)."""
LARGEST = 90.001
"""Degrees; beyond the pole by what rounding may add."""
NAME = "sqrt_cos_lat"


@dataclass(frozen=True)
class Latitudes:
    """Latitudes of the features of a source."""

    name: str
    source: Source
    """Their values, which broadcast to the feature axes."""
    radians: bool


TURN = 360.0
"""Degrees of longitude around the earth."""
LONGITUDES = ("lon", "longitude", "nav_lon")
DEGREES_EAST = ("degrees_east", "degree_east", "degree_e", "degrees_e", "degreee", "degreese")
"""Units of longitudes (CF conventions 1.11, section 4.2)."""


def is_longitude(name: str, attributes: Mapping[str, Any]) -> bool:
    """Whether a coordinate holds longitudes, by its standard_name, its units or its name."""
    units = str(attributes.get("units", "")).lower().replace(" ", "_")
    return attributes.get("standard_name") == "longitude" or units in DEGREES_EAST or name.lower() in LONGITUDES


def is_latitude(name: str, attributes: Mapping[str, Any]) -> bool:
    """Whether a coordinate holds latitudes, by its standard_name, its units or its name."""
    units = str(attributes.get("units", "")).lower().replace(" ", "_")
    return attributes.get("standard_name") == "latitude" or units in DEGREES_NORTH or name.lower() in LATITUDES


def latitudes_of(source: Source, samples_axis: int) -> list[Latitudes]:
    """The latitudes of the features of a source: coordinates of its axes, or else what lies beside it along some of these."""
    others = [axis for axis in range(len(source.layout.shape)) if axis != samples_axis]
    found = []
    with source.open() as reader:
        for axis in others:
            coordinate = reader.coordinate(axis)
            if coordinate is not None and _are_latitudes(coordinate):
                values = np.asarray(coordinate.values[...], np.float64)
                values = values.reshape([-1 if number == axis else 1 for number in others])
                found.append(Latitudes(coordinate.name, MemorySource(values), _are_radians(coordinate)))
        beside = [
            one.coordinate
            for one in reader.auxiliaries()
            if one.axes and samples_axis not in one.axes and _are_latitudes(one.coordinate)
        ]
    return found or [Latitudes(one.name, source.beside(one.name), _are_radians(one)) for one in beside]


def _are_latitudes(coordinate: Coordinate) -> bool:
    return not coordinate.text and is_latitude(coordinate.name, coordinate.attributes)


def _are_radians(coordinate: Coordinate) -> bool:
    return str(coordinate.attributes.get("units", "")).lower().startswith("rad")


def sqrt_cos_lat(source: Source, samples_axis: int) -> Source:
    """The square root of the cosine of the latitude, so that products of features are weighted by their area."""
    layout, found = source.layout, latitudes_of(source, samples_axis)
    if len(found) != 1:
        named = ", ".join(repr(dim) for axis, dim in enumerate(layout.dims) if dim and axis != samples_axis)
        raise InputError(
            f"{layout.name}: weights are sqrt_cos_lat, but {'no axis' if not found else 'more than one axis'} has latitudes "
            "(a coordinate with units degrees_north, or named lat or latitude, of an axis or, by the attribute coordinates, of "
            f"several); its feature axes are {named or 'without names'}",
            f"Name an array of weights: {PREPROCESS.weights.at({'uri': 'weights.npy'})}.",
            key="preprocess.weights",
        )
    weights = SqrtCosLat(found[0], layout.name)
    if not weights.in_memory:  # then there may be as many as features: they are read where these are
        return weights
    with weights.open() as reader:
        values = reader.read(tuple(slice(0, length) for length in weights.layout.shape))
    return MemorySource(values, weights.layout.dims, weights.layout.name)


class SqrtCosLat(View):
    """Weights of latitudes; NaN where a latitude is missing.

    Parameters
    ----------
    of : the name of the array whose features they belong to
    """

    def __init__(self, latitudes: Latitudes, of: str) -> None:
        layout = latitudes.source.layout
        as_weights: dict[str, Any] = {"missing_values": (), "packing": (1.0, 0.0), "valid_range": EVERY, "units": ""}
        name, dtype = f"{NAME} of {latitudes.name!r} of {of}", np.dtype(np.float64)
        super().__init__(latitudes.source, replace(layout, name=name, dtype=dtype, stored_dtype=None, **as_weights))
        self.latitudes, self.of = latitudes, of

    def reader(self, reader: Reader) -> Reader:
        return _SqrtCosLatReader(self, reader)

    def held(self, shape: tuple[int, ...]) -> dict[str, int]:
        return {**super().held(shape), "latitudes, in degrees and as weights": 4 * size_of(shape, self.layout.dtype)}


class _SqrtCosLatReader(ViewReader):
    def __init__(self, view: SqrtCosLat, reader: Reader) -> None:
        super().__init__(view.layout, reader)
        self._view = view

    def _read(self, region: Region) -> F64:
        stored, (factor, offset) = self._reader.read(region), self._reader.layout.packing
        values = np.where(self._reader.layout.marked(stored), np.nan, stored.astype(np.float64)) * factor + offset
        degrees = np.degrees(values) if self._view.latitudes.radians else values
        if (wrong := np.abs(degrees) > LARGEST).any():
            first = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
            index = [int(place) + piece.start for place, piece in zip(first, region, strict=True)]
            raise InputError(
                f"{self._view.of}: latitude {self._view.latitudes.name!r} at index {index} is {degrees[first]:g}, but -90 to 90 degrees "
                "are allowed",
                f"Name an array of weights: {PREPROCESS.weights.at({'uri': 'weights.npy'})}.",
                key="preprocess.weights",
            )
        weights: F64 = np.sqrt(np.clip(np.cos(np.radians(degrees)), 0.0, 1.0))
        return weights
