"""Which arrays can be joined along the samples: everything is checked before any values are read.

Each error names the file that does not fit, with what it has, and what the others have.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from itertools import accumulate

import numpy as np

from dpca.errors import InputError
from dpca.settings import INPUT
from dpca.slabs import Cuts, common_chunks
from dpca.sources.base import Layout, SamplesAxis, Source
from dpca.sources.cf import same_units
from dpca.sources.facts import kinds_of
from dpca.sources.joined import JoinedSource, Member, encoding_of, most_open
from dpca.sources.joined_coordinates import Gaps, check_and_join, check_same
from dpca.sources.missing import EVERY
from dpca.units import by

PLAIN = (1.0, 0.0)
"""The packing of values that are not packed."""


def join(
    sources: Sequence[Source], samples_axis: SamplesAxis = 0, gaps: Gaps = "error", members: bool = False
) -> JoinedSource:
    """Arrays, joined along their samples in the order given.

    Where scale_factor, add_offset or marks of missing values differ, values are unpacked to float64 as they are read. Times
    in other units than those of the first file are converted to these.

    Parameters
    ----------
    sources : one or more arrays of the same features and dtype
    samples_axis : number or name of their axis of samples; of several the first one, along which they are joined
    gaps : "allow" for times that do not follow each other closely; they have to increase in any case
    members : whether they are members of an ensemble, each of the same samples
    """
    layouts = [source.layout for source in sources]
    check_same(layouts, [f"{len(layout.shape)} axes" for layout in layouts])
    axis = layouts[0].axis_of(samples_axis if isinstance(samples_axis, int | str) else samples_axis[0])
    _check_layouts(layouts, axis)
    check_same(layouts, [f"array {array}" for array in _arrays(sources)], f"Name one of them in {INPUT.array}.")
    along, conversions = check_and_join(sources, axis, gaps, members)
    for kind in kinds_of(sources):
        kind.joined([layout.name for layout in layouts], [source.about(kind) for source in sources])
    stops = list(accumulate(layout.shape[axis] for layout in layouts))
    files = list(map(Member, sources, [0, *stops], stops, conversions))
    return JoinedSource(_layout(layouts, axis), axis, files, along, members)


def _check_layouts(layouts: Sequence[Layout], axis: int) -> None:
    """Refuse arrays whose values, or axes of features, are not of one kind."""
    for layout in layouts:
        if not layout.shape[axis]:
            raise InputError(
                f"{layout.name}: has no samples along axis {axis} of shape {layout.shape}",
                f"Take it out of {INPUT.uri}, or write it again.",
                key="input.uri",
            )
    for other, number in enumerate(map(str, range(len(layouts[0].shape)))):
        named = [layout for layout in layouts if layout.dims[other]]
        if named:
            check_same(named, [f"axis {number} called {layout.dims[other]!r}" for layout in named])
        if other != axis:
            check_same(layouts, [f"{layout.shape[other]:,} features along axis {number}" for layout in layouts])
    check_same(layouts, [f"values of dtype {layout.dtype.name}" for layout in layouts], "Store them in one type.")
    first = layouts[0].units
    written = [first if same_units(layout.units, first) else layout.units for layout in layouts]
    units = [f"units {one!r}" if one else "no units" for one in written]
    check_same(layouts, units, "Convert it to the units of the others, or correct the attribute.")
    if _unpacks(layouts) and layouts[0].dtype.kind in "iu" and layouts[0].dtype.itemsize == 8:
        check_same(layouts, [_encoding(layout) for layout in layouts], "Store them with the same packing and marks.")


def _unpacks(layouts: Sequence[Layout]) -> bool:
    """Whether what stored values mean differs from file to file, so that they have to be unpacked as they are read."""
    return len(set(map(encoding_of, layouts))) > 1


def _encoding(layout: Layout) -> str:
    factor, offset = layout.packing
    return f"scale_factor {factor:g}, add_offset {offset:g} and missing values {layout.marks}"


def _arrays(sources: Sequence[Source]) -> list[str]:
    """The paths of the arrays inside the files; that of the first where a file is itself an array."""
    places = [source.place for source in sources]
    names = [place[1] if place else None for place in places]
    first = next((name for name in names if name), "")
    return [name or first for name in names]


def _layout(layouts: Sequence[Layout], axis: int) -> Layout:
    """The layout of the whole."""
    first, lengths = layouts[0], [layout.shape[axis] for layout in layouts]
    dtype, unpacks, remarks = first.dtype.newbyteorder("="), _unpacks(layouts), []
    if unpacks:
        plain = dtype.kind == "f" and all(layout.packing == PLAIN for layout in layouts)
        dtype = dtype if plain else np.dtype(np.float64)
        remarks.append(
            f"scale_factor, add_offset or marks of missing values differ from file to file: values are unpacked to {dtype} as they "
            "are read" + ("" if plain else ", and multiplied in double precision unless model.precision is single")
        )
    chunks = [
        _along_samples(layouts, axis)
        if number == axis
        else reduce(lambda one, other: common_chunks(length, one, other), (layout.chunks[number] for layout in layouts))
        for number, length in enumerate(first.shape)
    ]
    shape = (*first.shape[:axis], sum(lengths), *first.shape[axis + 1 :])
    whole = replace(
        first,
        name=f"{first.name} to {layouts[-1].name} ({len(layouts)} files)",
        shape=shape,
        dtype=dtype,
        chunks=tuple(chunks),
        shards=first.shards if _shards_follow(layouts, axis) else None,
        divisible=all(layout.divisible for layout in layouts if layout.chunked)
        and any(layout.chunked for layout in layouts),
        codec=" or ".join(dict.fromkeys(layout.codec for layout in layouts)),
        order="F" if all(layout.order == "F" for layout in layouts) else "C",
        dims=tuple(next(filter(None, dims), None) for dims in zip(*(layout.dims for layout in layouts), strict=True)),
        stored_dtype=None,
        stack=first.stack and first.stack.chosen,
    )
    if unpacks:
        whole = replace(whole, packing=PLAIN, missing_values=(), valid_range=EVERY)
    largest = max(layouts, key=lambda layout: math.prod(_features(layout, axis)))
    if math.prod(_features(whole, axis)) > math.prod(_features(largest, axis)):
        other = next(
            layout for layout in layouts if layout.chunked and _features(layout, axis) != _features(largest, axis)
        )
        remarks.append(
            f"chunks of {by(largest.chunk_shape)} in {largest.name} and of {by(other.chunk_shape)} in {other.name} do not end "
            f"together: {by(whole.chunk_shape)} are read at a time, so that no chunk is read twice. With the same chunks of "
            "features in all files a run takes less memory"
        )
    if len(layouts) > (kept := most_open(layouts)):
        remarks.append(
            f"{kept} of {len(layouts)} files stay open, and the others are opened for each slab: fewer, larger files would be "
            "read faster"
        )
    return replace(whole, remarks=tuple(remarks))


def _features(layout: Layout, axis: int) -> tuple[int, ...]:
    """The features in a chunk, along each axis."""
    return layout.chunk_shape[:axis] + layout.chunk_shape[axis + 1 :]


def _along_samples(layouts: Sequence[Layout], axis: int) -> int | tuple[int, ...]:
    """Chunks along the samples: one length where files end where chunks do, else all lengths."""
    chunks, lengths = [layout.chunks[axis] for layout in layouts], [layout.shape[axis] for layout in layouts]
    first = chunks[0]
    if isinstance(first, int) and set(chunks) == {first} and not any(length % first for length in lengths[:-1]):
        return first
    cuts = (Cuts.of(length, chunk) for length, chunk in zip(lengths, chunks, strict=True))
    return tuple(piece.stop - piece.start for cut in cuts for piece in cut.within(slice(0, cut.length)))


def _shards_follow(layouts: Sequence[Layout], axis: int) -> bool:
    """Whether the shards of all files make one regular grid."""
    shards = layouts[0].shards
    return (
        shards is not None
        and {layout.shards for layout in layouts} == {shards}
        and not any(layout.shape[axis] % shards[axis] for layout in layouts[:-1])
    )
