"""The arrays of a result: the names of its axes, its coordinates, and what both workflows write."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpca.numerics.spectrum import SIGN_RULE, Spectrum
from dpca.slabs import Plan
from dpca.sources.base import Reader, Source
from dpca.sources.coordinate import Coordinate
from dpca.store.outputs import Outputs
from dpca.store.stored import RESERVED_DIMS

SPECTRAL = ("singular_values", "explained_variance", "explained_variance_ratio", "projection_error")
"""Arrays with a value for each component."""
SAMPLE = "sample"
_NAME = re.compile(r"(?!__|zarr\.)[^./][^/]*")
"""Usable names of dimensions. A coordinate is an array of that name, so it is no path, nor a name reserved by Zarr."""


@dataclass(frozen=True)
class Dims:
    """Names of the axes of a result."""

    sample: str
    features: tuple[str, ...]

    @classmethod
    def of(cls, dims: Sequence[str | None], samples_axis: int) -> Dims:
        """The names in the source where they are usable, else `sample`, and `feature` or `feature_<i>`."""
        others = [*dims[:samples_axis], *dims[samples_axis + 1 :]]
        default = ["feature"] if len(others) == 1 else [f"feature_{axis}" for axis in range(len(others))]
        names = [_usable(dim, fallback) for dim, fallback in zip(others, default, strict=True)]
        if len(set(names)) < len(names):
            names = default
        sample = _usable(dims[samples_axis], SAMPLE)
        taken = {sample, f"{sample}_b"} & set(names)
        return cls(SAMPLE if taken or f"{sample}_b" in RESERVED_DIMS else sample, tuple(names))

    @property
    def sample_b(self) -> str:
        """The name of the second axis of an array with two axes of samples."""
        return f"{self.sample}_b"

    def placed(self, samples_axis: int) -> tuple[str, ...]:
        """The names of all axes, in the order of the input."""
        return (*self.features[:samples_axis], self.sample, *self.features[samples_axis:])


def _usable(dim: str | None, fallback: str) -> str:
    return dim if dim and dim not in RESERVED_DIMS and _NAME.fullmatch(dim) else fallback


def create_outputs(outputs: Outputs, plan: Plan, source: Source, attributes: Mapping[str, Any]) -> Dims:
    """Create the group, its coordinates and the arrays that the first pass fills; return the names of the axes."""
    dims = Dims.of(source.layout.dims, plan.samples_axis)
    outputs.create({"sign_rule": SIGN_RULE, **attributes})
    if plan.keeps == "samples":
        outputs.create_tiled("mean", plan, dims.features, np.float64)
        # Chunks that are never written read as 1: without scaling or weights these arrays take no space.
        outputs.create_tiled("scale", plan, dims.features, np.float64, fill=1.0)
        outputs.create_tiled("weights", plan, dims.features, np.float64, fill=1.0)
    write_coordinates(outputs, source, dims, dict(enumerate(dims.placed(plan.samples_axis))))
    return dims


def write_coordinates(outputs: Outputs, source: Source, dims: Dims, names: Mapping[int, str]) -> None:
    """Copy the coordinates of an input along some axes; `names` has the names of these axes in the result."""
    with source.open() as reader:
        for name, coordinate in _coordinates_of(reader, dims, names):
            outputs.write_coordinate(name, coordinate)


def _coordinates_of(reader: Reader, dims: Dims, names: Mapping[int, str]) -> Iterator[tuple[str, Coordinate]]:
    for axis, name in names.items():
        coordinate = reader.coordinate(axis)
        if coordinate is not None and (name == dims.sample or name == coordinate.name):
            yield name, coordinate


def coordinates_to_copy(source: Source, dims: Dims, names: Mapping[int, str]) -> tuple[dict[str, int], tuple[str, ...]]:
    """The memory that `write_coordinates` takes for each coordinate in turn, labelled; and which it omits, and why."""
    if not any(source.layout.dims[axis] for axis in names):
        return {}, ()
    with source.open() as reader:
        held = held_to_copy(dict(_coordinates_of(reader, dims, names)))
        return held, tuple(reader.left_out)


def held_to_copy(coordinates: Mapping[str, Coordinate]) -> dict[str, int]:
    """Bytes of memory that copying the coordinates takes, one coordinate after the other, labelled."""
    return {f"coordinate {name}, copied in pieces": coordinate.held for name, coordinate in coordinates.items()}


def write_spectrum(outputs: Outputs, spectrum: Spectrum) -> None:
    """Write the arrays that have neither a sample axis nor feature axes."""
    for name in SPECTRAL:
        outputs.write(name, getattr(spectrum, name), ("component",))
    outputs.write("eigenvalues", spectrum.eigenvalues, ("eigenvalue",))


def write_scores(outputs: Outputs, spectrum: Spectrum, dims: Dims, whiten: bool) -> None:
    """Write scores and alpha from memory."""
    outputs.write("scores", spectrum.scores(whiten), (dims.sample, "component"), {"whitened": whiten})
    outputs.write("alpha", spectrum.alpha, (dims.sample, "component"))
