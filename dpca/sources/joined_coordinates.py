"""The coordinates of arrays that are joined along the samples: those of features are equal, times increase."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from dpca.errors import InputError
from dpca.settings import INPUT
from dpca.sources.base import Layout, Reader, Source, same_auxiliaries
from dpca.sources.calendars import Conversion, conversion, dates, is_time, needs_cftime
from dpca.sources.coordinate import Coordinate, Parts, difference
from dpca.sources.dated import told_by
from dpca.sources.finding import LabelledAxis
from dpca.sources.joined import Along

Gaps = Literal["error", "allow"]

GAP = 1.5
"""A step in time from one file to the next is a gap if it is larger than the largest step within files, times this."""
REMEDY = f"Take it out of {INPUT.uri}, or make it like the others."


def check_same(layouts: Sequence[Layout], having: Sequence[str], remedy: str = REMEDY) -> None:
    """Refuse the first file that has something else than most of them; `having` says in words what each has."""
    check_same_of([layout.name for layout in layouts], having, remedy)


def check_same_of(names: Sequence[str], having: Sequence[str], remedy: str = REMEDY) -> None:
    """Refuse the first of files, by their names, that has something else than most of them."""
    (usual, count), *others = Counter(having).most_common()
    if others:
        wrong = next(number for number, has in enumerate(having) if has != usual)
        like = names[having.index(usual)] + (f" and {count - 1} more have" if count > 1 else " has")
        raise InputError(f"{names[wrong]}: has {having[wrong]}, but {like} {usual}", remedy, key="input.uri")


def check_and_join(
    sources: Sequence[Source], axis: int, gaps: Gaps, members: bool = False
) -> tuple[Along | None, list[Conversion]]:
    """The coordinate of all samples, and what converts that of each file, after all coordinates have been compared."""
    found: list[_Samples | None] = []
    with sources[0].open() as first:
        for source in sources:
            with source.open() as reader:
                _check_features(first, reader, axis)
                found.append(_Samples.of(first, reader, axis))
    layouts = [source.layout for source in sources]
    having = ["no coordinate of the samples" if one is None else "a coordinate of the samples" for one in found]
    check_same(layouts, having)
    files = [one for one in found if one is not None]
    if not files and members:
        check_same(layouts, [f"{layout.shape[axis]:,} samples" for layout in layouts])
    if not files:
        return None, [Conversion()] * len(sources)
    if members:
        _check_members(sources, axis)
        return _joined(files), [one.conversion for one in files]
    times = [one.times for one in files if one.times is not None]
    found_gaps = list(_gaps(layouts, times, files[0].attributes)) if times else []
    if found_gaps and gaps == "error":
        raise InputError(
            found_gaps[0],
            f"Add the file that is missing between them, or set {INPUT.gaps.at('allow')}.",
            key="input.gaps",
        )
    return _joined(files), [one.conversion for one in files]


def _check_members(sources: Sequence[Source], axis: int) -> None:
    """Refuse a member whose samples are not those of the first."""
    first, *others = (_labelled(source, axis) for source in sources)
    for source, other in zip(sources[1:], others, strict=True):
        ours, theirs = (one.names if one.moments is None else one.moments for one in (first, other))
        if ours != theirs:
            at = next((n for n, (one, two) in enumerate(zip(ours, theirs, strict=False)) if one != two), None)
            what = (
                f"{len(theirs):,} samples, but {len(ours):,}"
                if at is None
                else f"sample {at} of {other.names[at]}, but {first.names[at]}"
            )
            raise InputError(
                f"{source.layout.name}: has {what} in {sources[0].layout.name}, and members of an ensemble have the same samples",
                f"Take it out of {INPUT.uri}, or choose the samples that all have.",
                key="input.members",
            )


def _labelled(source: Source, axis: int) -> LabelledAxis:
    with source.open() as reader:
        told = told_by(reader, axis)
        assert told is not None  # as was compared before
        return LabelledAxis(told.name, np.asarray(told.values[...]), told.attributes)


def _check_features(first: Reader, reader: Reader, axis: int) -> None:
    """Refuse features whose coordinates are not those of the first file."""
    for number in range(len(reader.layout.shape)):
        ours, theirs = first.coordinate(number), reader.coordinate(number)
        if number == axis or ours is theirs is None:
            continue
        if ours is None or theirs is None:
            has, other = ("a", "none") if ours is None else ("no", "one")
            raise InputError(
                f"{reader.layout.name}: has {has} coordinate along axis {number}, but {first.layout.name} has {other}",
                REMEDY,
                key="input.uri",
            )
        _check_equal(first, ours, reader, theirs)
    for own, same in same_auxiliaries(first, reader):
        if own.axes and axis not in own.axes:
            _check_equal(first, own.coordinate, reader, same.coordinate)


def _check_equal(first: Reader, ours: Coordinate, reader: Reader, theirs: Coordinate) -> None:
    if differ := difference(theirs, ours):
        raise InputError(
            f"{reader.layout.name}: position {differ.index} along {ours.name!r} is {differ.found!r}, but {first.layout.name} "
            f"has {differ.expected!r} there ({differ.count} differ)",
            REMEDY,
            key="input.uri",
        )


@dataclass(frozen=True)
class _Samples:
    """The coordinate of the samples of one file."""

    name: str
    dtype: Any
    parts: Parts
    attributes: Mapping[str, Any]
    conversion: Conversion
    times: _Extent | None
    """None if they are no times."""

    @classmethod
    def of(cls, first: Reader, reader: Reader, axis: int) -> _Samples | None:
        """The coordinate of a file, if it has one; times are read, and have to increase."""
        ours, theirs = told_by(first, axis), told_by(reader, axis)
        if ours is None or theirs is None:
            return None
        timed, conversion = is_time(ours.attributes), Conversion()
        if ours.text != theirs.text or timed != is_time(theirs.attributes):
            kind, other = (_kind(coordinate) for coordinate in (theirs, ours))
            raise InputError(
                f"{reader.layout.name}: has {kind} along {theirs.name!r}, but {first.layout.name} has {other}",
                REMEDY,
                key="input.uri",
            )
        if timed:
            conversion = _conversion(first.layout, ours, reader.layout, theirs)
        times = _Extent.of(reader.layout, theirs, conversion, ours.attributes) if timed else None
        return cls(ours.name, theirs.values.dtype, theirs.parts, ours.attributes, conversion, times)

    @property
    def numbers(self) -> bool:
        """Whether values are numbers, rather than text."""
        return bool(self.dtype.kind in "biuf")

    @property
    def converted(self) -> Any:
        """The dtype of its values in the units of the first file."""
        return self.conversion(np.empty(0, self.dtype)).dtype if self.numbers else self.dtype


def _kind(coordinate: Coordinate) -> str:
    return "times" if is_time(coordinate.attributes) else "names" if coordinate.text else "numbers"


def _conversion(layout: Layout, ours: Coordinate, other: Layout, theirs: Coordinate) -> Conversion:
    """Conversion of times to those of the first file."""
    written, expected = (
        " ".join(str(times.attributes[key]) for key in ("units", "calendar") if key in times.attributes)
        for times in (theirs, ours)
    )
    if written == expected:
        return Conversion()
    found = conversion(theirs.attributes, ours.attributes)
    if found is None:
        lacks = any(needs_cftime(times.attributes) for times in (theirs, ours))
        raise InputError(
            f"{other.name}: has times in {written!r}, which can't be converted to those of {layout.name}, {expected!r}"
            + (": that needs cftime, which is not installed" if lacks else ""),
            "pip install cftime."
            if lacks
            else "Give all files times in one calendar, in units from weeks to nanoseconds since a date.",
            key="input.uri",
        )
    return found


def shown(value: Any, attributes: Mapping[str, Any]) -> str:
    """A time in words: a date, or, where that is not known, the number and its units."""
    number = np.asarray(value)
    written = dates(number.reshape(1), attributes) if number.dtype.kind in "iuf" else None
    return f"{number.item()} {attributes.get('units', '')}" if written is None else written[0]


@dataclass(frozen=True)
class _Extent:
    """The times of one file, in the units of the first."""

    first: Any
    last: Any
    step: Any
    """The largest step; 0 for one sample."""

    @classmethod
    def of(cls, layout: Layout, times: Coordinate, conversion: Conversion, into: Mapping[str, Any]) -> _Extent:
        """The extent of times, which have to increase; `into` has the units that they are converted to."""
        first, before, step = None, np.empty(0), 0
        for piece, stored in times.pieces():
            converted = conversion(stored)
            converted = converted.astype(np.int64 if converted.dtype.kind in "iu" else np.float64)
            first = converted[0] if first is None else first
            values = np.concatenate([before.astype(converted.dtype), converted])
            steps = np.diff(values)
            if not (steps > 0).all():
                at = int(np.argmin(steps > 0))
                raise InputError(
                    f"{layout.name}: the times of its samples do not increase: sample {piece.start - len(before) + at + 1} is of "
                    f"{shown(values[at + 1], into)}, and the one before it of {shown(values[at], into)}",
                    "Sort its samples by time, and keep each once (sortby and drop_duplicates of xarray).",
                    key="input.uri",
                )
            before, step = values[-1:], max(step, steps.max(initial=0))
        return cls(first, before[0], step)


def _gaps(layouts: Sequence[Layout], times: Sequence[_Extent], into: Mapping[str, Any]) -> Iterator[str]:
    """The gaps between files, in sentences; files whose times do not follow each other are refused."""
    steps = [after.first - before.last for before, after in pairwise(times)]
    within = max(extent.step for extent in times)
    usual = within or np.median(steps)  # files of one sample have no steps within them
    for (layout, other), (before, after), step in zip(pairwise(layouts), pairwise(times), steps, strict=True):
        place = (
            f"{other.name}: begins at {shown(after.first, into)}, but {layout.name}, before it, ends at "
            f"{shown(before.last, into)}"
        )
        if not step > 0:
            swapped, alike = after.last < before.first, (before.first, before.last) == (after.first, after.last)
            raise InputError(
                place + ("" if swapped else f": they overlap, up to {shown(min(after.last, before.last), into)}"),
                "List the files in the order of their times; those of a pattern are sorted by name, as text."
                if swapped
                else "Leave out the samples, or the file, that are there twice."
                + f" Members of an ensemble, which have the same times, are joined by {INPUT.members.at(True)}."
                * alike,
                key="input.members" if alike else "input.uri",
            )
        if step > GAP * usual:
            what = "largest step within files" if within else "usual step"
            yield f"{place}: there is a gap of {step:g} {str(into['units']).split()[0]}, and the {what} is {usual:g}"


def _joined(files: Sequence[_Samples]) -> Along:
    """The coordinate of all samples: numbers of a type that holds those of all files, or text."""
    first, dtypes = files[0], [one.converted for one in files]
    dtype = dtypes[0]
    if any(other != dtype for other in dtypes):
        dtype = np.result_type(*dtypes) if first.numbers else np.dtype(object)
    parts = [one.parts for one in files]
    return Along(
        first.name,
        dtype,
        # A part that begins and ends anywhere may need two chunks of a file for what would be one.
        Parts(
            max(part.width for part in parts),
            max(part.chunk for part in parts),
            2 * max(part.chunk_bytes for part in parts),
        ),
        dict(first.attributes),
    )
