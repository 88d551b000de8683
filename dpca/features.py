"""Whether new samples have the features of a fit: one check for the command line and for Python."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

from dpca.errors import InputError
from dpca.results import Result
from dpca.sources import Source
from dpca.sources.base import Coordinate, Layout
from dpca.units import by

T = TypeVar("T")

COMPARED = 2**20
"""Values of a coordinate that are compared at a time."""


def check_features(fit: Result, source: Source, axis: int, in_files: bool = False) -> None:
    """Refuse features that are not those of a fit: their number, the order of axes, the axes' names, the features' own.

    Parameters
    ----------
    source, axis : new samples, and their samples axis
    in_files : whether they were named in a command, where a YAML file says what a path can't

    Raises
    ------
    InputError
        Names what differs.
    """
    layout = source.layout
    shape, dims = _without(layout.shape, axis), _without(layout.dims, axis)
    remedy = "Give new samples with the features of the fit, in the same axes and order."
    if shape != fit.feature_shape:
        others = [other for other in range(len(layout.shape)) if _without(layout.shape, other) == fit.feature_shape]
        raise InputError(
            f"{layout.name}: has {_named(shape, dims) or 'no'} features a sample (shape {by(layout.shape)}, samples along "
            f"axis {axis}), but {fit.name} was fitted to {_named(fit.feature_shape, fit.dims.features)}",
            _other_axis(others[0], in_files)
            if others
            else remedy
            + " Another array or samples axis is named in a YAML file: uri, array, samples_axis." * in_files,
        )
    with source.open() as reader:
        axes = [number for number in range(len(layout.shape)) if number != axis]
        for number, dim, expected in zip(axes, dims, fit.dims.features, strict=True):
            theirs, ours = reader.coordinate(number), fit.coordinate(expected)
            # A dimension without a name in the input of the fit has one of dpca's in the result.
            if dim is not None and dim != expected and expected.partition("_")[0] != "feature":
                raise InputError(
                    f"{layout.name}: axis {number} is {dim!r}, but {fit.name} was fitted to {expected!r} there", remedy
                )
            if theirs is not None and ours is not None and theirs.name == expected:
                _check_coordinate(layout, theirs, ours, fit, remedy)


def _other_axis(axis: int, in_files: bool) -> str:
    how = f"say so in a YAML file: uri, samples_axis: {axis}" if in_files else f"move it, x.swapaxes({axis}, ...)"
    return f"Samples seem to lie along axis {axis}: {how}."


def _check_coordinate(layout: Layout, theirs: Coordinate, ours: Coordinate, fit: Result, remedy: str) -> None:
    for start in range(0, ours.values.shape[0], COMPARED):
        piece = slice(start, start + COMPARED)
        found, expected = np.asarray(theirs.values[piece]), np.asarray(ours.values[piece])
        if theirs.text or ours.text:
            found, expected = found.astype(object), expected.astype(object)
        wrong = found != expected
        if not (theirs.text or ours.text):
            wrong &= ~(np.isnan(found) & np.isnan(expected))
        if wrong.any():
            at = int(np.argmax(wrong))
            raise InputError(
                f"{layout.name}: feature {start + at} along {ours.name!r} is {_plain(found[at])!r}, but {fit.name} was "
                f"fitted to {_plain(expected[at])!r} there ({int(wrong.sum())} differ)",
                remedy,
            )


def _without(of_axes: tuple[T, ...], axis: int) -> tuple[T, ...]:
    return of_axes[:axis] + of_axes[axis + 1 :]


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _named(shape: tuple[int, ...], dims: tuple[str | None, ...]) -> str:
    return " x ".join(f"{length:,}" + (f" ({dim})" if dim else "") for length, dim in zip(shape, dims, strict=True))
