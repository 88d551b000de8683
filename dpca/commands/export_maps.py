"""Maps of a result as images: NIfTI in the space of the input, and pictures."""

from __future__ import annotations

import gzip
import math
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dpca.errors import InputError, OverBudgetError
from dpca.sources.nifti import VoxelSpace, image_bytes
from dpca.sources.pictures import COLOURS, DIMS, write_picture
from dpca.store.applied import AppliedResult
from dpca.store.results import Result
from dpca.store.stored import Stored
from dpca.system.machine import memory_budget
from dpca.units import describe_memory

SPACE = "space"
"""The attribute of reconstructed samples that says where their voxels lie, by group of features."""
MAPS = ("components", "rotated_components", "mean", "scale")

Files = list[tuple[Path, Callable[[Path], None]]]


def nifti_files(result: Result | AppliedResult, place: Path) -> Files:
    """PLACE-components.nii.gz and so on, with the affine of the input: components along the fourth axis; of reconstructed samples the samples."""
    made: Files = []
    for name, array, space in _in_space(result):
        values = array.shape if array.ndim == 4 else (1, *array.shape)
        # Values, as float32, as they are turned, as bytes, compressed.
        needed, budget = math.prod(values) * (array.dtype.itemsize + 4 * 4), memory_budget()
        if needed > budget.bytes:
            raise OverBudgetError(
                f"{result.name}: {name} as NIfTI would take {describe_memory(needed)}, but there are {describe_memory(budget.bytes)}, {budget.origin}",
                "Export it as netcdf, which streams.",
            )
        made.append((place.with_name(f"{place.name}-{name}.nii.gz"), partial(_write_nifti, array, space)))
    return made


def _in_space(result: Result | AppliedResult) -> Iterator[tuple[str, Stored, VoxelSpace]]:
    """Maps of voxels, each with its name and where they lie."""
    spaces: dict[str, VoxelSpace | None]
    if isinstance(result, AppliedResult):
        facts = dict(result.arrays.attributes.get(SPACE, {}))
        spaces = {name: VoxelSpace.in_facts({SPACE: one}) for name, one in facts.items()}
    else:
        spaces = {
            one.named(name): VoxelSpace.in_facts(one.fingerprint)
            for one in result.each
            for name in MAPS
            if one.samples_axis == 0
        }
    maps = [
        (name, result.arrays[name], space)
        for name, space in spaces.items()
        if space is not None and name in result.arrays
    ]
    maps = [(name, array, space) for name, array, space in maps if array.ndim in (3, 4)]
    if not maps:
        raise InputError(
            f"{result.name}: has no maps of voxels whose places are known, which nifti is for",
            "Run it on images of NIfTI, with components; export others as netcdf.",
        )
    yield from maps


def _write_nifti(array: Stored, space: VoxelSpace, path: Path) -> None:
    values = np.asarray(array[...], np.float32)
    with path.open("wb") as file, gzip.GzipFile(fileobj=file, mode="wb", mtime=0, filename="") as packed:
        packed.write(image_bytes(values if values.ndim == 4 else values[None], space))


def picture_files(result: Result | AppliedResult, place: Path) -> Files:
    """PLACE-components_1.png and so on, of features that have two axes, or two and colours."""
    made: Files = []
    for one in () if isinstance(result, AppliedResult) else result.each:
        shape = one.feature_shape
        of_colours = (
            len(shape) == 3 and shape[2] in (3, len(COLOURS)) and one.dims.features[2] in (DIMS[3], "feature_2")
        )
        if len(shape) != 2 and not of_colours:
            continue
        for name in (one.named("components"), one.named("rotated_components")):
            if name in result.arrays:
                for number in range(result.arrays[name].shape[0]):
                    write = partial(_write_picture, result.arrays[name], number)
                    made.append((place.with_name(f"{place.name}-{name}_{number + 1}.png"), write))
        if (mean := one.named("mean")) in result.arrays:
            made.append(
                (place.with_name(f"{place.name}-{mean}.png"), partial(_write_picture, result.arrays[mean], None))
            )
    if not made:
        raise InputError(
            f"{result.name}: has no maps of two axes, which png is for",
            "Say what shape features have with input.feature_shape: [rows, columns]; export others as netcdf.",
        )
    return made


def _write_picture(array: Stored, number: int | None, path: Path) -> None:
    values: NDArray[np.float64]
    if number is None:  # a mean: from its least value, black, to its largest, white
        values = np.asarray(array[...], np.float64)
        known = values[np.isfinite(values)]
        low, high = (float(known.min()), float(known.max())) if known.size else (0.0, 0.0)
        write_picture(values - (low + high) / 2, path)
        return
    chosen = (slice(number, number + 1), *(slice(0, length) for length in array.shape[1:]))
    write_picture(np.asarray(array[chosen], np.float64)[0], path)
