"""Components as pictures: lines, images of two axes, and slices of three, read in memory that does not grow with the features.

Each is read once, block by block. A pixel stands for a block of features and takes the value of largest magnitude in it, so that no
peak is lost, whatever the size of the block.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpca.report.findings import (
    BLOCK_BYTES,
    FARTHEST,
    MOST_PLACED,
    SHOWN_COMPONENTS,
    TOP,
    DrawnAxis,
    Extreme,
    axis_of,
    toward_of,
)
from dpca.sources.coordinate import Coordinate
from dpca.sources.latitudes import LARGEST, TURN
from dpca.store.names import Labelled, names_along
from dpca.store.results import Result
from dpca.store.stored import Stored
from dpca.types import F64

PIXELS = 240
"""Largest number of pixels on the longer side of an image; a line has up to four times as many."""
READ_BYTES = 16 * 10**9
"""Largest number of bytes of components that are read for their pictures: about a minute."""
VOXELS = 1_000_000
"""Largest number of values in a report of components in whose slices the reader moves; each takes a byte."""
SCROLLED = 6
"""Largest number of such components."""
MOST_APART = 6
"""Largest number of entries, such as variables or levels, that have pictures of their own beside each other."""


@dataclass(frozen=True, eq=False)
class Places:
    """Pixels on a map of features whose latitudes and longitudes lie beside them: a curvilinear grid, or points without one."""

    rows: NDArray[np.int32]
    """The row of each feature, of the shape of its axes; -1 where it has no place."""
    columns: NDArray[np.int32]
    nearest: NDArray[np.int64]
    """The number of the pixel that each pixel shows, (rows * columns,): its own, one near it where it has no feature, or -1."""
    down: DrawnAxis
    across: DrawnAxis

    def finished(self, view: NDArray[Any]) -> NDArray[Any]:
        """A picture whose pixels without a feature are those beside them."""
        found = np.where(self.nearest < 0, np.nan, view.reshape(-1)[self.nearest])
        return found.reshape(view.shape)


@dataclass(frozen=True)
class Picture:
    """One view of the features: a line or an image, cut through the middle of all other axes."""

    axes: tuple[int, ...]
    """The feature axes that are shown, one or two."""
    middle: dict[int, int]
    """Index of the cut along each of the other axes."""
    shape: tuple[int, ...]
    """Number of pixels along each axis shown."""
    step: tuple[int, ...]
    """Number of features in a pixel along each axis shown."""
    title: str = ""
    """Name of the entry that it shows, where entries of an axis have pictures of their own."""
    cut: tuple[int, ...] = ()
    """The axes that it is cut through, at `middle`, or, of a component, where its largest loading is."""
    crossed: Mapping[int, int] = field(default_factory=dict)
    """Index along the axes shown where the others are cut."""
    places: Places | None = None
    """The pixels of the features, where latitudes and longitudes of each are known; None where they follow from the axes."""


@dataclass(frozen=True, eq=False)
class Sliced:
    """The three axes that the pictures of a component are slices of, with fewer values than these have."""

    values: NDArray[Any]
    """(slices across the first axis, across the second, across the third)."""
    step: tuple[int, ...]
    """Number of features in a value along each axis."""
    at: tuple[int, ...]
    """The slice of each axis where the pictures are cut."""
    entries: tuple[NDArray[np.intp], ...]
    """The index that stands for each slice of an axis: the cut of the pictures, or the middle of its features."""
    names: tuple[tuple[str, ...], ...]
    """Titles of slices."""


@dataclass(frozen=True)
class Component:
    """A component in the shape of the data."""

    views: tuple[NDArray[Any], ...]
    """The values of each picture, real or complex; NaN where no feature has a value."""
    top: tuple[Extreme, ...]
    """The features with the largest absolute loadings."""
    pictures: tuple[Picture, ...]
    """The pictures of the views: cut where the largest loading is."""
    whole: Sliced | None = None
    """Values that the pictures are slices of, where the reader moves through more of them."""


def places_of(of: Labelled, dims: Sequence[str | None], pixels: int = PIXELS) -> tuple[tuple[int, ...], Places] | None:
    """The axes of features that have latitudes and longitudes beside them, and the place of each feature on the map; None where there are none.

    Parameters
    ----------
    dims : names of the axes of features
    pixels : as of `pictures`
    """
    found: dict[str, tuple[tuple[str, ...], Coordinate]] = {}
    for along, coordinate in getattr(of, "auxiliaries", tuple)():
        if (toward := toward_of(coordinate)) and 1 <= len(along) <= 2 and {*along} <= {*dims}:
            found.setdefault(toward, (along, coordinate))
    if len(found) < 2 or found["north"][0] != found["east"][0]:
        return None
    along = found["north"][0]
    values = found["north"][1].values
    if any(of.coordinate(dim) is not None and toward_of(of.coordinate(dim)) for dim in along) or (  # type: ignore[arg-type]
        math.prod(values.shape) > MOST_PLACED
    ):
        return None
    order = np.argsort([dims.index(dim) for dim in along])
    latitudes, longitudes = (
        np.asarray(found[toward][1].values[...], np.float64).transpose(order) for toward in ("north", "east")
    )
    placed = placed_at(latitudes, longitudes, pixels)
    return None if placed is None else (tuple(sorted(dims.index(dim) for dim in along)), placed)


def placed_at(latitudes: F64, longitudes: F64, pixels: int = PIXELS) -> Places | None:
    """The places of features on a map, of about as many pixels as half of the features; None where they lie on a line, or not on the earth."""
    with np.errstate(invalid="ignore"):
        known = (np.abs(latitudes) <= LARGEST) & (np.abs(longitudes) <= FARTHEST)
    if known.sum() < 4:
        return None
    longitudes = np.where(known, longitudes, np.nan)
    # The side of the earth where they are together.
    turned = [longitudes % TURN, (longitudes + TURN / 2) % TURN - TURN / 2]
    if longitudes[known].min() < 0:
        turned.reverse()
    longitudes = min(turned, key=lambda one: float(np.ptp(one[known])))
    south, north, west, east = (float(of(one[known])) for one in (latitudes, longitudes) for of in (np.min, np.max))
    if not (north > south and east > west):
        return None
    side = math.sqrt((north - south) * (east - west) / min(pixels**2, max(4, known.sum() // 2)))
    height, width = (int(np.clip(round(long / side) + 1, 2, 4 * pixels)) for long in (north - south, east - west))
    rows, columns = (
        np.where(known, np.rint((one - low) / (high - low) * (count - 1)), -1).astype(np.int32)
        for one, low, high, count in ((latitudes, south, north, height), (longitudes, west, east, width))
    )
    there = np.full((height, width), -1, np.int64)
    there[rows[known], columns[known]] = rows[known].astype(np.int64) * width + columns[known]
    for _ in range(2):
        edge = np.pad(there, 1, constant_values=-1)
        around = [edge[1 + i : 1 + i + height, 1 + j : 1 + j + width] for i in (0, -1, 1) for j in (0, -1, 1)]
        for one in around:
            there = np.where(there < 0, one, there)
    down = DrawnAxis("latitude (degrees_north)", south, north, units="degrees_north", toward="north")
    across = DrawnAxis("longitude (degrees_east)", west, east, units="degrees_east", toward="east")
    return Places(rows, columns, there.reshape(-1), down, across)


def pictures(
    features: tuple[int, ...],
    pixels: int = PIXELS,
    apart: Mapping[int, Sequence[str]] | None = None,
    of_map: tuple[int, ...] | None = None,
) -> tuple[Picture, ...]:
    """The pictures of a component with these feature axes.

    One axis gives a line, two give an image. More give an image of each two of the last three, cut through the rest.

    Parameters
    ----------
    features : the length of each feature axis
    pixels : an image has up to its square, and as many on each side, or more where the other side is shorter; a line, or a side, has up to
        four times as many
    apart : axes each of whose entries has a picture of its own, and what these are called
    of_map : the axes of the only pictures, if they are known
    """
    apart = apart or {}
    rest = [axis for axis in range(len(features)) if axis not in apart]
    last = rest[-3:]
    shown = (
        [of_map]
        if of_map
        else [tuple(rest)]
        if len(rest) < 3
        else [(last[1], last[2]), (last[0], last[2]), (last[0], last[1])]
    )
    if (count := len(shown) * math.prod(features[axis] for axis in apart)) > MOST_APART:
        pixels = max(1, int(pixels * math.sqrt(MOST_APART / count)))  # the page does not grow
    views = []
    for axes in shown:
        step = _steps(tuple(features[axis] for axis in axes), pixels)
        shape = tuple(-(-features[axis] // pitch) for axis, pitch in zip(axes, step, strict=True))
        middle = {axis: features[axis] // 2 for axis in rest if axis not in axes}
        for entry in product(*(range(features[axis]) for axis in apart)):
            at = dict(zip(apart, entry, strict=True))
            title = ", ".join(apart[axis][number] for axis, number in at.items())
            views.append(Picture(axes, middle | at, shape, step, title, tuple(middle)))
    return tuple(views)


def _steps(lengths: tuple[int, ...], pixels: int) -> tuple[int, ...]:
    """Entries in a pixel along one axis, or along two, of which the longer has the pixels that the shorter leaves."""
    most = 4 * pixels
    if len(lengths) == 2:
        most = max(pixels, min(most, pixels**2 // min(lengths)))
    return tuple(-(-length // most) for length in lengths)


def views_of(of: Labelled, array: Stored, ahead: int, pixels: int = PIXELS) -> tuple[Picture, ...]:
    """The pictures of each component, or map, of an array: along axes of space; each entry of the others has pictures of its own.

    An axis is none of space if it has up to MOST_APART entries, all such axes together, and these have names or no coordinate that rises or
    falls. Short axes of space, such as some levels, are taken for such ones where that leaves what a map has. Features with latitudes and longitudes
    beside them are drawn at their places.

    Parameters
    ----------
    of : what has the coordinates of the array
    ahead : number of axes before those of features
    """
    features, dims = tuple(array.shape[ahead:]), array.dims[ahead:]
    placed = places_of(of, dims, pixels)
    axes = placed[0] if placed else ()
    short = [
        axis
        for axis in sorted(range(len(features)), key=lambda axis: features[axis])
        if features[axis] <= MOST_APART and axis not in axes
    ]
    n_shown, of_space = len(axes) or 2, {axis: axis_of(of, dims[axis], "").known for axis in short}
    apart, count = list[int](), 1
    for axis in (one for one in short if not of_space[one]):
        if count * features[axis] <= MOST_APART and len(apart) < len(features) - 1:
            apart, count = [*apart, axis], count * features[axis]
    further = [axis for axis in short if of_space[axis]][: max(0, len(features) - len(apart) - n_shown)]
    if (
        len(features) - len(apart) - len(further) == n_shown
        and count * math.prod(features[axis] for axis in further) <= MOST_APART
    ):
        apart += further
    called = {axis: _called(of, dims[axis], features[axis]) for axis in sorted(apart)}
    if placed is None:
        return pictures(features, pixels, called)
    found, places = pictures(features, pixels, called, axes), placed[1]
    height, width = (int(one.max()) + 1 for one in (places.rows, places.columns))
    return tuple(replace(view, shape=(height, width), step=(1, 1), places=places) for view in found)


def _called(of: Labelled, dim: str | None, length: int) -> list[str]:
    """Titles of entries of an axis."""
    if dim is None:
        return [str(number) for number in range(length)]
    coordinate, names = of.coordinate(dim), names_along(of, dim, range(length))
    return list(names) if coordinate is not None and coordinate.text else [f"{dim} {name}" for name in names]


def n_drawn(result: Result, read_bytes: int = READ_BYTES) -> int:
    """Number of components to draw: at most 12, and at most `read_bytes` in all; 0 where one is larger than that."""
    array = result.arrays[result.named("components")]
    each = max(1, int(math.prod(array.shape[1:]) * array.dtype.itemsize))
    return min(int(array.shape[0]), SHOWN_COMPONENTS, read_bytes // each)


Scaling = Callable[[tuple[int, ...], tuple[slice, ...]], Any]
"""Factors of the values of a component, by its index, in a box of features."""


def components(result: Result, count: int, voxels: int = 0) -> list[Component]:
    """The first components as maps in the unit of the data: for one standard deviation of the score (`dpca.store.labelled.with_maps`).

    Parameters
    ----------
    voxels : the most values of wholes, of all of them together
    """
    deviations, fitted = np.sqrt(np.asarray(result.arrays["explained_variance"][...], np.float64)), result.fitted

    def scaled(lead: tuple[int, ...], box: tuple[slice, ...]) -> F64:
        divisor = fitted.divisor(box)
        return np.asarray(deviations[lead[0]] * np.where(np.isinf(divisor), np.nan, divisor))

    array = result.arrays[result.named("components")]
    scrolled = min(count, SCROLLED)
    return drawn(
        result, array, [(number,) for number in range(count)], scaled=scaled, wholes=[voxels // scrolled] * scrolled
    )


def drawn(
    of: Labelled,
    array: Stored,
    leads: Sequence[tuple[int, ...]],
    pixels: int = PIXELS,
    scaled: Scaling = lambda *_: 1.0,
    wholes: Sequence[int] = (),
) -> list[Component]:
    """Some components of an array; each is read once, in blocks, together with those that share its chunks.

    Parameters
    ----------
    of : what has the coordinates of the array
    array : components, or maps, with the axes of features last
    leads : the indices of each along the axes before those
    pixels : as of `pictures`
    scaled : what values are multiplied by
    wholes : the most values of the whole of each of the first components, if it has one
    """
    ahead = len(leads[0]) if leads else 0
    features, chunks = tuple(array.shape[ahead:]), array.chunks[ahead:]
    dims = [dim or f"feature_{axis}" for axis, dim in enumerate(array.dims[ahead:])]
    shown, dtype = views_of(of, array, ahead, pixels), np.result_type(array.dtype, np.float64)

    def blocks(near: Sequence[tuple[int, ...]]) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...], NDArray[Any]]]:
        box = tuple(slice(min(along), max(along) + 1) for along in zip(*near, strict=True))
        each = math.prod(one.stop - one.start for one in box) * dtype.itemsize // 8
        for region in blocks_of(features, chunks, BLOCK_BYTES // each):
            together = array[(*box, *region)]
            for lead in near:
                inside = tuple(at - one.start for at, one in zip(lead, box, strict=True))
                yield lead, region, np.asarray(together[inside], dtype) * scaled(lead, region)

    three = dict(zip(leads, (whole_of(shown, features, most) for most in wholes), strict=False))
    found = dict[tuple[int, ...], Component]()
    for near in sharing(leads, array.chunks[:ahead]):
        views = {lead: [np.full(picture.shape, np.nan, dtype) for picture in shown] for lead in near}
        best: dict[tuple[int, ...], list[tuple[float, tuple[int, ...]]]] = {lead: [] for lead in near}
        of_lead, is_cut = dict.fromkeys(near, shown), any(picture.cut for picture in shown)
        further = dict[tuple[int, ...], tuple[Picture, NDArray[Any]]]()
        for lead, region, block in blocks(near):
            largest = _largest(np.abs(block) if dtype.kind == "c" else block, region)
            best[lead] = sorted([*best[lead], *largest], key=lambda item: -abs(item[0]))[:TOP]
            for picture, view in zip(shown, views[lead], strict=True) if not is_cut else ():
                add_block(view, picture, block, region)
        if is_cut:
            of_lead = {lead: tuple(_cut_at(picture, best[lead][0][1], of, dims) for picture in shown) for lead in near}
            further = {
                lead: (_cut_at(whole, best[lead][0][1], of, dims), np.full(whole.shape, np.nan, dtype))
                for lead in near
                if (whole := three.get(lead)) is not None
            }
            for lead, region, block in blocks(near):
                for picture, view in zip(of_lead[lead], views[lead], strict=True):
                    add_block(view, picture, block, region)
                if lead in further:
                    add_block(further[lead][1], further[lead][0], block, region)
        for lead in near:
            finished = (
                view if picture.places is None else picture.places.finished(view)
                for picture, view in zip(of_lead[lead], views[lead], strict=True)
            )
            found[lead] = Component(
                tuple(finished),
                _named(of, dims, best[lead]),
                of_lead[lead],
                _whole(*further[lead], features, of, dims) if lead in further else None,
            )
    return [found[lead] for lead in leads]


def _cut_at(picture: Picture, index: tuple[int, ...], of: Labelled, dims: Sequence[str]) -> Picture:
    """A picture that is cut where an entry of the component is."""
    middle = picture.middle | {axis: index[axis] for axis in picture.cut}
    called = ", ".join(f"{dims[axis]} {names_along(of, dims[axis], [index[axis]])[0]}" for axis in picture.cut)
    at = {axis: index[axis] for axis in picture.axes} if picture.places is None else {}
    return replace(picture, middle=middle, title=f"{picture.title}, {called}".removeprefix(", "), crossed=at)


def whole_of(shown: Sequence[Picture], features: tuple[int, ...], most: int) -> Picture | None:
    """The three axes that three pictures are slices of, in at most so many values; None of other pictures."""
    axes = tuple(sorted({axis for picture in shown for axis in picture.axes}))
    if len(shown) != 3 or len(axes) != 3 or most < 1:
        return None
    lengths, step = [features[axis] for axis in axes], [1, 1, 1]
    while math.prod(shape := [-(-length // pitch) for length, pitch in zip(lengths, step, strict=True)]) > most:
        step[int(np.argmax(shape))] += 1
    first = shown[0]
    middle = {axis: at for axis, at in first.middle.items() if axis not in axes}
    return Picture(axes, middle, tuple(shape), tuple(step), cut=tuple(axis for axis in first.cut if axis not in axes))


def _whole(
    picture: Picture, values: NDArray[Any], features: tuple[int, ...], of: Labelled, dims: Sequence[str]
) -> Sliced:
    at, entries, names = list[int](), list[NDArray[np.intp]](), list[tuple[str, ...]]()
    for axis, step, count in zip(picture.axes, picture.step, picture.shape, strict=True):
        cut, length = picture.crossed[axis], features[axis]
        stand = np.minimum(np.arange(count) * step + step // 2, length - 1)
        stand[cut // step] = cut
        called = names_along(of, dims[axis], range(length))
        at.append(cut // step)
        entries.append(stand)
        names.append(tuple(f"{dims[axis]} {called[index]}" for index in stand))
    return Sliced(values, picture.step, tuple(at), tuple(entries), tuple(names))


def _named(of: Labelled, dims: list[str], best: list[tuple[float, tuple[int, ...]]]) -> tuple[Extreme, ...]:
    names = (", ".join(names_along(of, dim, [i])[0] for dim, i in zip(dims, index, strict=True)) for _, index in best)
    return tuple(
        Extreme(f"({name})" if len(dims) > 1 else name, value) for name, (value, _) in zip(names, best, strict=True)
    )


def sharing(leads: Sequence[tuple[int, ...]], chunks: tuple[int, ...]) -> list[list[tuple[int, ...]]]:
    """The indices, those in the same chunk together."""
    found = dict[tuple[int, ...], list[tuple[int, ...]]]()
    for lead in leads:
        found.setdefault(tuple(at // chunk for at, chunk in zip(lead, chunks, strict=True)), []).append(lead)
    return list(found.values())


def blocks_of(
    shape: tuple[int, ...], chunks: tuple[int, ...], block_bytes: int = BLOCK_BYTES
) -> Iterator[tuple[slice, ...]]:
    """Regions of whole chunks, as many along the last axis as fit into `block_bytes`."""
    room = max(1, block_bytes // (8 * math.prod(chunks)))
    sizes = (*chunks[:-1], chunks[-1] * room)
    yield from product(
        *(
            [slice(start, min(start + size, length)) for start in range(0, length, size)]
            for length, size in zip(shape, sizes, strict=True)
        )
    )


def _largest(block: F64, region: tuple[slice, ...]) -> list[tuple[float, tuple[int, ...]]]:
    """The values of largest magnitude in a block, with their indices in the whole component."""
    flat = np.nan_to_num(block.reshape(-1))
    count = min(TOP, flat.size)
    largest = []
    for position in np.argpartition(-np.abs(flat), count - 1)[:count]:
        inside = np.unravel_index(int(position), block.shape)
        index = tuple(int(i) + piece.start for i, piece in zip(inside, region, strict=True))
        largest.append((float(flat[position]), index))
    return largest


def add_block(view: NDArray[Any], picture: Picture, block: NDArray[Any], region: tuple[slice, ...]) -> None:
    """Add a block to a picture: each pixel keeps the value of largest magnitude, or NaN where there is no value."""
    for axis in sorted(picture.middle, reverse=True):
        at, piece = picture.middle[axis], region[axis]
        if not piece.start <= at < piece.stop:
            return
        block = block.take(at - piece.start, axis)
    if picture.places is not None:
        _add_placed(view, picture.places, block, tuple(region[axis] for axis in picture.axes))
        return
    target = []
    for axis, (shown, step) in enumerate(zip(picture.axes, picture.step, strict=True)):
        pixels = np.arange(region[shown].start, region[shown].stop) // step
        block = _extreme(block, np.flatnonzero(np.diff(pixels, prepend=-1)), axis)
        target.append(slice(int(pixels[0]), int(pixels[-1]) + 1))
    kept = view[tuple(target)]
    kept[...] = np.where(np.isnan(kept) | (np.abs(block) > np.abs(kept)), block, kept)


def _add_placed(view: NDArray[Any], places: Places, block: NDArray[Any], box: tuple[slice, ...]) -> None:
    """Add features at their places on a map."""
    rows, columns = places.rows[box], places.columns[box]
    known = (rows >= 0) & ~np.isnan(block)
    order = np.argsort(np.abs(block[known]), kind="stable")  # of several in a pixel the last one stays
    largest = np.full(view.shape, np.nan, block.dtype)
    largest[rows[known][order], columns[known][order]] = block[known][order]
    view[...] = np.where(np.isnan(view) | (np.abs(largest) > np.abs(view)), largest, view)


def _extreme(values: NDArray[Any], starts: NDArray[np.intp], axis: int) -> NDArray[Any]:
    """The value of largest magnitude of each part of an axis; NaN where a part has none."""
    if len(starts) == values.shape[axis]:
        return values
    sizes = np.abs(values)
    lengths = np.diff(starts, append=values.shape[axis])
    largest = np.repeat(np.fmax.reduceat(sizes, starts, axis), lengths, axis)
    found: NDArray[Any] = np.fmax.reduceat(np.where(sizes == largest, values, np.nan), starts, axis)
    return found
