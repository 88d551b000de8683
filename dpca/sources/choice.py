"""The samples that a configuration chooses: numbers, names, times, a range, or a file of them."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from dpca.errors import InputError
from dpca.settings import INPUT
from dpca.sources.base import Source
from dpca.sources.calendars import as_names
from dpca.sources.coordinate import Coordinate
from dpca.sources.finding import LabelledAxis
from dpca.sources.labels import Place, open_values

KEY = INPUT.samples
SHOWN = 5
Numbers = NDArray[np.int64]
Samples = Sequence[int | str] | slice | str
"""Numbers (integers) and labels (text); a range; or the path of a file."""


def chosen_samples(source: Source, axis: int, samples: Samples) -> Numbers:
    """The numbers in storage of the chosen samples, (n,), in the order in which they were given.

    Parameters
    ----------
    axis : of the samples
    samples : integers are numbers from 0, text is a value of the coordinate of the samples: a name, a number, or as
        much of a time as no other sample shares; a path of integers, of a mask (bool, one for each sample) or of text with
        one a line. Lines of digits alone are numbers, unless they are names of samples
    """
    length, name = source.layout.shape[axis], source.layout.name
    given = _read(source, axis, samples) if isinstance(samples, str) else samples
    numbers = _of_range(given, length, name) if isinstance(given, slice) else _of_list(source, axis, given)
    outside = numbers[(numbers < 0) | (numbers >= length)]
    if len(outside):
        raise _refused(f"{_shown(outside)}, but {name} has {length:,} samples", f"Give numbers from 0 to {length - 1}.")
    values, counts = np.unique(numbers, return_counts=True)
    if (counts > 1).any():
        raise _refused(f"sample {_shown(values[counts > 1])} more than once", "Give each once.")
    if not len(numbers):
        raise _refused(f"no sample of {name}", f"Give some of its {length:,} samples, or leave it out for all.")
    return numbers


def _refused(problem: str, remedy: str) -> InputError:
    return InputError(f"{KEY} has {problem}", remedy, key=KEY)


def _shown(values: Sequence[object] | Numbers) -> str:
    return ", ".join(map(str, values[:SHOWN])) + " and others" * (len(values) > SHOWN)


def _of_range(given: slice, length: int, name: str) -> Numbers:
    if given.stop is not None and given.stop > length:
        raise _refused(f"stop: {given.stop}, but {name} has {length:,} samples", "Leave it out, to go to the end.")
    return np.arange(length)[given]


def _of_list(source: Source, axis: int, given: Sequence[int | str]) -> Numbers:
    length = source.layout.shape[axis]
    outside = [item for item in given if isinstance(item, int) and not 0 <= item < length]
    if outside:
        raise _refused(
            f"{_shown(outside)}, but {source.layout.name} has {length:,} samples",
            f"Give numbers from 0 to {length - 1}; quote a label: '{outside[0]}'.",
        )
    find = _finder(source, axis) if any(isinstance(item, str) for item in given) else None
    return np.array([find(item) if find and isinstance(item, str) else item for item in given], np.int64)


def _read(source: Source, axis: int, path: str) -> Sequence[int | str]:
    """Choice in a file: numbers, of integers and of a mask, or labels."""
    place, length = Place(path, key=KEY.key), source.layout.shape[axis]
    stored, path = open_values(place), place.shown
    if len(stored.shape) != 1 or stored.shape[0] > length:
        raise InputError(
            f"{path}: chooses samples by an array of shape {stored.shape}, but {source.layout.name} has {length:,} samples",
            "Give numbers, labels or a mask along one axis, each sample once.",
            key=KEY,
        )
    values = np.asarray(stored[...])
    if values.dtype.kind == "b":
        if len(values) != length:
            raise InputError(
                f"{path}: is a mask of {len(values):,} values, but {source.layout.name} has {length:,} samples",
                "Give one for each.",
                key=KEY,
            )
        values = np.flatnonzero(values)
    if values.dtype.kind in "iu":
        if len(values) == length > 2 and np.isin(values, (0, 1)).all():
            raise InputError(
                f"{path}: holds {length:,} values of dtype {values.dtype}, all 0 or 1, one for each sample of "
                f"{source.layout.name}: it looks like a mask, but integers are numbers of samples",
                "Store a mask as bool: mask.astype(bool).",
                key=KEY,
            )
        numbers: list[int] = values.tolist()
        return numbers
    if values.dtype.kind == "f":
        raise InputError(
            f"{path}: is of dtype {values.dtype}, but integers, a mask (bool) and text are allowed",
            "Convert it.",
            key=KEY,
        )
    lines: Sequence[int | str] = [str(value) for value in values.tolist()]
    for kind in source.knows:
        if kind.of_samples and (facts := source.about(kind)) is not None:
            lines = facts.called([str(line) for line in lines])
    words = [line for line in lines if isinstance(line, str)]
    if len(words) < len(lines) or not all(line.isascii() and line.isdigit() for line in words):
        return lines
    numbers = list(map(int, lines))
    names = set(_text_names(source, axis))
    if not names.issuperset(lines):
        return numbers
    if max(numbers, default=0) < length:
        raise InputError(
            f"{path}: holds numbers that may be the names of samples or their places",
            "List them in the config instead: quoted for names, '17'; without quotes for places, 17.",
            key=KEY,
        )
    return lines


def _coordinate(source: Source, axis: int) -> Coordinate | None:
    with source.open() as reader:
        coordinate = reader.coordinate(axis)
        if coordinate is not None:  # read while its file is open
            coordinate.values = np.asarray(coordinate.values[...])
        return coordinate


def _text_names(source: Source, axis: int) -> list[str]:
    """The names of the samples, if these are text."""
    coordinate = _coordinate(source, axis)
    return as_names(coordinate.values, {}) if coordinate is not None and coordinate.text else []


def _finder(source: Source, axis: int) -> Callable[[str], int]:
    """A function from a label to the number of its sample."""
    coordinate, name = _coordinate(source, axis), source.layout.name
    if coordinate is None:
        raise _refused(
            f"labels, but the samples of {name} have no names",
            f"Give numbers from 0, or name the samples with {INPUT.sample_names}.",
        )
    labelled = LabelledAxis(coordinate.name, coordinate.values, coordinate.attributes)

    def find(label: str) -> int:
        try:
            numbers = labelled.places(label)
        except InputError:  # no date of theirs
            numbers = []
        if len(numbers) == 1:
            return numbers[0]
        if len(numbers):
            raise _refused(
                f"{label!r}, which {len(numbers):,} samples of {name} share: numbers {_shown(numbers)}",
                "Give their numbers" + (", or more of the time." if labelled.moments is not None else "."),
            )
        near = difflib.get_close_matches(label, labelled.names, n=1)
        raise _refused(
            f"{label!r}, but no sample of {name} is called so (they are called {_shown(labelled.names)})",
            f"Did you mean {near[0]!r}?" if near else "Give labels as they are there, or numbers from 0.",
        )

    return find
