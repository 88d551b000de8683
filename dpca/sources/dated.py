"""Dates of samples that a file keeps beside an axis which has none itself: `time_centered` of NEMO, `XTIME` of WRF."""

from __future__ import annotations

from dataclasses import replace

from dpca.sources.base import Reader, SamplesAxis, Source
from dpca.sources.calendars import is_time
from dpca.sources.coordinate import Coordinate
from dpca.sources.view import View, ViewReader

OBSERVED_NAMES = frozenset(
    {
        "sample",
        "samples",
        "subject",
        "subjects",
        "individual",
        "individuals",
        "participant",
        "patient",
        "snapshot",
        "snapshots",
        "volume",
        "picture",
    }
    | {"observation", "observations", "obs", "obs_names"}
)
TIME_NAMES = frozenset({"time", "time_counter", "t"})
MEMBER_NAMES = frozenset({"member", "realization", "ensemble"})
SAMPLE_NAMES = OBSERVED_NAMES | TIME_NAMES | MEMBER_NAMES
"""Names of dimensions, in lower case, that samples have."""
CUSTOMARY = frozenset({"time", "times", "xtime", "time_centered", "time_instant", "valid_time", "ocean_time", "date"})
"""Names of such dates, in lower case, where no standard_name says what they are."""


def dates_beside(reader: Reader, axis: int) -> Coordinate | None:
    """The dates that lie along an axis, if one array alone has them; None where the axis has a coordinate of its own that is
    text or dates (CF conventions 1.11, section 5: an auxiliary coordinate may be the only one)."""
    own, dim = reader.coordinate(axis), reader.layout.dims[axis]
    if dim is None or (own is not None and (own.text or is_time(own.attributes))):
        return None
    found = [one.coordinate for one in reader.auxiliaries() if one.axes == (axis,) and _are_dates(one.coordinate)]
    return replace(found[0], name=dim) if len(found) == 1 else None


def told_by(reader: Reader, axis: int) -> Coordinate | None:
    """Coordinate that tells samples apart: dates beside their axis, or its own coordinate."""
    return dates_beside(reader, axis) or reader.coordinate(axis)


def dates_elsewhere(source: Source, axis: SamplesAxis) -> str | None:
    """That another axis than that of the samples has dates, in a sentence, where the samples' axis was told by its number."""
    dims = source.layout.dims
    if not isinstance(axis, int) or not any(dims):
        return None
    number = source.layout.axis_of(axis)
    with source.open() as reader:
        told = {one: told_by(reader, one) for one in range(len(dims))}
    found = [dims[one] for one, coordinate in told.items() if coordinate is not None and is_time(coordinate.attributes)]
    if len(found) != 1 or found == [dims[number]] or str(dims[number]).lower() in OBSERVED_NAMES:
        return None
    return (
        f"{source.layout.name}: the samples are along axis {number}, {dims[number]!r}, but {found[0]!r} has dates. If these are of the samples, "
        f"set samples_axis to {found[0]!r}"
    )


def _are_dates(coordinate: Coordinate) -> bool:
    return is_time(coordinate.attributes) and (
        coordinate.attributes.get("standard_name") == "time" or coordinate.name.lower() in CUSTOMARY
    )


def dated(source: Source, axis: int) -> Source:
    """The source, with dates along the axis of its samples where they lie beside it."""
    with source.open() as reader:
        return source if dates_beside(reader, axis) is None else DatedSource(source, axis)


class DatedSource(View):
    """A source with dates along one axis."""

    def __init__(self, source: Source, axis: int) -> None:
        super().__init__(source, source.layout)
        self.axis = axis

    def reader(self, reader: Reader) -> Reader:
        return _DatedReader(self, reader)

    @property
    def place(self) -> tuple[str | list[str], str | None] | None:
        return self._source.place


class _DatedReader(ViewReader):
    def __init__(self, source: DatedSource, reader: Reader) -> None:
        super().__init__(source.layout, reader)
        self._axis = source.axis

    def coordinate(self, axis: int) -> Coordinate | None:
        return told_by(self._reader, axis) if axis == self._axis else self._reader.coordinate(axis)
