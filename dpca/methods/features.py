"""Checks that new samples have the features of a fit, the same for the command line and for Python."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from dpca.errors import InputError
from dpca.sources import Source
from dpca.sources.base import Layout, Reader
from dpca.sources.cf import same_units
from dpca.sources.coordinate import Coordinate, difference
from dpca.sources.nifti import VoxelSpace
from dpca.store.results import Result
from dpca.units import by

T = TypeVar("T")

REMEDY = "Give new samples with the features of the fit, in the same axes and order."


def check_features(fit: Result, source: Source, axis: int, in_files: bool = False) -> None:
    """Refuse features that differ from those of a fit in their number, the order or names of axes, or their units.

    Parameters
    ----------
    source, axis : new samples, and their samples axis
    in_files : whether they were named in a command, where a YAML file can say more than a path
    """
    layout = source.layout
    shape, dims = _without(layout.shape, axis), _without(layout.dims, axis)
    if shape != fit.feature_shape:
        others = [other for other in range(len(layout.shape)) if _without(layout.shape, other) == fit.feature_shape]
        raise InputError(
            f"{layout.name}: has {_named(shape, dims) or 'no'} features a sample (shape {by(layout.shape)}, samples along "
            f"axis {axis}), but {fit.name} was fitted to {_named(fit.feature_shape, fit.dims.features)}",
            _other_axis(others[0], in_files)
            if others
            else REMEDY
            + " Another array or samples axis is named in a YAML file: uri, array, samples_axis." * in_files,
        )
    for number, dim, expected in zip(_axes_without(layout, axis), dims, fit.dims.features, strict=True):
        # If a dimension of the fit's input had no name, dpca gave it one in the result.
        expected = fit.dims.given(expected)
        if dim is not None and dim != expected and expected.partition("_")[0] != "feature":
            raise InputError(
                f"{layout.name}: axis {number} is {dim!r}, but {fit.name} was fitted to {expected!r} there", REMEDY
            )
    _check_units(fit, layout)
    ours, theirs = VoxelSpace.in_facts(fit.fingerprint), source.about(VoxelSpace)
    if ours is not None and theirs is not None:
        ours.check(fit.name, layout.name, theirs)


def _check_units(fit: Result, layout: Layout) -> None:
    """Refuse values in other units, which dpca does not convert; nothing is known where one of them has none."""
    if fit.units and layout.units and not same_units(fit.units, layout.units):
        raise InputError(
            f"{layout.name}: has units {layout.units!r}, but {fit.name} was fitted to units {fit.units!r}",
            f"Convert the new samples to {fit.units}, or correct their attribute units.",
        )


def check_coordinates(fit: Result, source: Source, axis: int) -> None:
    """Refuse features whose coordinates differ from those of a fit. Their axes were checked before (`check_features`)."""
    with source.open() as reader:
        for theirs, ours in _shared(fit, reader, axis):
            _check_coordinate(reader.layout, theirs, ours, fit)


def coordinates_to_compare(fit: Result, source: Source, axis: int) -> dict[str, int]:
    """Bytes that `check_coordinates` holds for each pair of coordinates, one pair at a time, by a name in words."""
    with source.open() as reader:
        return {
            f"coordinate {ours.name} of the fit and of new samples, compared in pieces": theirs.held + ours.held
            for theirs, ours in _shared(fit, reader, axis)
        }


def _shared(fit: Result, reader: Reader, axis: int) -> Iterator[tuple[Coordinate, Coordinate]]:
    """Pairs of coordinates of features that both the new samples and the fit have."""
    for number, expected in zip(_axes_without(reader.layout, axis), fit.dims.features, strict=True):
        theirs, ours = reader.coordinate(number), fit.coordinate(expected)
        if theirs is not None and ours is not None and theirs.name == fit.dims.given(expected):
            yield theirs, ours
    features = dict(zip(_axes_without(reader.layout, axis), fit.dims.features, strict=True))
    kept = {(dims, ours.name): ours for dims, ours in fit.auxiliaries()}
    for one in reader.auxiliaries():
        along = tuple(features[number] for number in one.axes if number in features)
        ours = kept.get((along, fit.dims.of_coordinate(one.coordinate.name)))
        if one.axes and len(along) == len(one.axes) and ours is not None:
            yield one.coordinate, ours


def _axes_without(layout: Layout, axis: int) -> list[int]:
    return [number for number in range(len(layout.shape)) if number != axis]


def _other_axis(axis: int, in_files: bool) -> str:
    how = f"say so in a YAML file: uri, samples_axis: {axis}" if in_files else f"move it, x.swapaxes({axis}, ...)"
    return f"Samples seem to lie along axis {axis}: {how}."


def _check_coordinate(layout: Layout, theirs: Coordinate, ours: Coordinate, fit: Result) -> None:
    if differ := difference(theirs, ours):
        raise InputError(
            f"{layout.name}: feature {differ.index} along {ours.name!r} is {differ.found!r}, but {fit.name} was fitted to "
            f"{differ.expected!r} there ({differ.count} differ)",
            REMEDY,
        )


def _without(of_axes: tuple[T, ...], axis: int) -> tuple[T, ...]:
    return of_axes[:axis] + of_axes[axis + 1 :]


def _named(shape: tuple[int, ...], dims: tuple[str | None, ...]) -> str:
    return " x ".join(f"{length:,}" + (f" ({dim})" if dim else "") for length, dim in zip(shape, dims, strict=True))
