"""What a report shows, as plain values: read from a result, in memory that does not grow with the features.

Nothing here draws. Components are read once, block by block; of each block of features that a pixel stands for, the
value of largest magnitude is kept, so that no peak is lost however much is put together.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from dpca.dimension import Eigenvalues, noise_edge
from dpca.results import Result, names_along

F64 = NDArray[np.float64]

SHOWN_COMPONENTS = 12
"""Components that are drawn."""
PIXELS = 240
"""Of an image's longer side, at most; of a line, four times as many."""
TOP = 10
"""Features, and samples, in a table."""
BLOCK_BYTES = 64 * 2**20
READ_BYTES = 16 * 10**9
"""Components that are read for their pictures, at most: a minute or so."""
NEAR = 1e-6
"""Samples whose squared distance is below this share of the mean one count as the same."""
MATRIX = 400
"""Rows of the similarity matrix that are drawn, at most; of more, every so many."""


@dataclass(frozen=True)
class Scree:
    """The spectrum."""

    eigenvalues: F64
    """All of them, (min(n, d),), of the covariance times its divisor."""
    ratio: F64
    """Shares of the variance, of each."""
    n_components: int
    errors: F64
    """Relative sampling errors, (n_components,), by North's rule of thumb (Monthly Weather Review 110, 1982)."""
    reliable: NDArray[np.bool_]
    edge: float | None
    """Of white noise, by Marchenko and Pastur; None where the spectrum is not that of signal and white noise."""
    suggested: dict[str, int | str]
    """What rules say of the number of components."""


@dataclass(frozen=True)
class Extreme:
    """A sample or a feature that stands out."""

    name: str
    value: float


@dataclass(frozen=True)
class Axis:
    """Samples, or one axis of features, with its coordinate where there is one of numbers."""

    label: str
    first: float | None = None
    last: float | None = None
    values: F64 | None = None
    """All of them, where they are few enough to be drawn one by one."""

    @property
    def known(self) -> bool:
        """Whether there is a coordinate."""
        return self.first is not None

    def positions(self, length: int) -> F64:
        """Where to draw each of so many, in the units of the axis."""
        if self.values is not None and len(self.values) == length:
            return self.values
        return np.arange(length, dtype=np.float64)

    def edges(self, length: int) -> tuple[float, float]:
        """Where an image of so many begins and ends, half a step beyond the first and the last."""
        if self.first is None or self.last is None or length < 2:
            return -0.5, length - 0.5
        half = (self.last - self.first) / (length - 1) / 2
        return self.first - half, self.last + half


@dataclass(frozen=True)
class Picture:
    """One view of the features: a line, or an image, at the middle of every other axis."""

    axes: tuple[int, ...]
    """Feature axes that it shows, one or two."""
    middle: dict[int, int]
    """Where the others are cut."""
    shape: tuple[int, ...]
    """Pixels along each."""
    step: tuple[int, ...]
    """Features that a pixel stands for along each."""


@dataclass(frozen=True)
class Component:
    """A component in the shape of the data."""

    views: tuple[NDArray[np.float64], ...]
    """For each picture its values; NaN where no feature has any."""
    top: tuple[Extreme, ...]
    """Features of largest absolute loading."""


@dataclass(frozen=True)
class Quality:
    """Samples among each other, by the Gram matrix."""

    pairs: tuple[tuple[str, str, float], ...]
    """The nearest ones, with their distance over the mean one."""
    n_same: int
    """How many pairs are the same."""
    leverage: F64
    """Of each sample in the subspace of the components: sum_j u_ij^2, between 0 and 1."""
    outside: F64
    """The share of each sample's squares that the components do not capture."""
    similarity: F64
    """Cosines of centred samples, ordered by the first score."""
    every: int
    """Of how many samples one is drawn there."""


def scree(result: Result) -> Scree:
    """The spectrum, and what can be said of how many components it has."""
    certificate, manifest = result.certificate, result.manifest
    values = np.asarray(result.arrays["eigenvalues"][...], np.float64)
    squares = np.asarray(result.arrays["singular_values"][...], np.float64) ** 2
    ratio = np.asarray(result.arrays["explained_variance_ratio"][...], np.float64)
    total = float(squares[0] / ratio[0]) if ratio.size and ratio[0] else float(values.sum())
    plan = manifest["plan"]
    n = plan["shape"][plan["samples_axis"]]
    d = math.prod(plan["shape"]) // n - manifest["counts"]["constant_features"]
    given = Eigenvalues(values, int(certificate["rank"]), n, max(1, d), result.rules.center, total)
    components = certificate["components"]
    return Scree(
        values,
        values / total if total else values,
        len(squares),
        np.array([component["sampling_error"] for component in components]),
        np.array([component["reliable"] for component in components]),
        noise_edge(given),
        certificate["n_components"]["suggested"],
    )


def axis_of(result: Result, dim: str | None, fallback: str) -> Axis:
    """What is known of an axis by the name of its dimension."""
    coordinate = None if dim is None else result.coordinate(dim)
    if coordinate is None or coordinate.text or not coordinate.values.shape[0]:
        return Axis(dim or fallback)
    values = np.asarray(coordinate.values[...], np.float64)
    units = coordinate.attributes.get("units")
    steps = np.diff(values)
    if not ((steps > 0).all() or (steps < 0).all()):
        return Axis(dim or fallback)  # no position along an axis: a name
    return Axis(f"{dim} ({units})" if units else str(dim), float(values[0]), float(values[-1]), values)


def pictures(features: tuple[int, ...]) -> tuple[Picture, ...]:
    """How components of these feature axes are drawn.

    One axis is a line, two are an image; of more, the last three are cut in the middle, each once, and the others too.
    """
    n = len(features)
    shown = [(0,)] if n == 1 else [(0, 1)] if n == 2 else [(n - 2, n - 1), (n - 3, n - 1), (n - 3, n - 2)]
    found = []
    for axes in shown:
        most = 4 * PIXELS if len(axes) == 1 else PIXELS
        step = tuple(-(-features[axis] // most) for axis in axes)
        if len(axes) == 2:
            step = (max(step),) * 2  # pixels stay square
        shape = tuple(-(-features[axis] // pitch) for axis, pitch in zip(axes, step, strict=True))
        middle = {axis: features[axis] // 2 for axis in range(n) if axis not in axes}
        found.append(Picture(axes, middle, shape, step))
    return tuple(found)


def n_drawn(result: Result) -> int:
    """How many components are drawn: those that may be read, at most 12; none where one is more than that."""
    array = result.arrays["components"]
    each = max(1, int(math.prod(array.shape[1:]) * array.dtype.itemsize))
    return min(int(array.shape[0]), SHOWN_COMPONENTS, READ_BYTES // each)


def components(result: Result, count: int) -> list[Component]:
    """The first components, each read once, in blocks."""
    array = result.arrays["components"]
    features = tuple(array.shape[1:])
    dims = [dim or f"feature_{axis}" for axis, dim in enumerate(array.metadata.dimension_names[1:])]
    found = []
    for number in range(count):
        views = [np.full(picture.shape, np.nan) for picture in pictures(features)]
        best: list[tuple[float, tuple[int, ...]]] = []
        for region in _blocks(features, array.chunks[1:]):
            block = np.asarray(array[(number, *region)], np.float64)
            best = sorted([*best, *_largest(block, region)], key=lambda item: -abs(item[0]))[:TOP]
            for picture, view in zip(pictures(features), views, strict=True):
                _add(view, picture, block, region)
        names = (
            ", ".join(names_along(result, dim, [i])[0] for dim, i in zip(dims, index, strict=True)) for _, index in best
        )
        top = tuple(
            Extreme(f"({name})" if len(dims) > 1 else name, value) for name, (value, _) in zip(names, best, strict=True)
        )
        found.append(Component(tuple(views), top))
    return found


def _blocks(shape: tuple[int, ...], chunks: tuple[int, ...]) -> Iterator[tuple[slice, ...]]:
    """Regions of whole chunks, as many along the last axis as fit `BLOCK_BYTES`."""
    room = max(1, BLOCK_BYTES // (8 * math.prod(chunks)))
    sizes = (*chunks[:-1], chunks[-1] * room)
    yield from product(
        *(
            [slice(start, min(start + size, length)) for start in range(0, length, size)]
            for length, size in zip(shape, sizes, strict=True)
        )
    )


def _largest(block: F64, region: tuple[slice, ...]) -> list[tuple[float, tuple[int, ...]]]:
    """The largest values of a block, and where they are in the whole."""
    flat = np.nan_to_num(block.reshape(-1))
    count = min(TOP, flat.size)
    found = []
    for position in np.argpartition(-np.abs(flat), count - 1)[:count]:
        inside = np.unravel_index(int(position), block.shape)
        index = tuple(int(i) + piece.start for i, piece in zip(inside, region, strict=True))
        found.append((float(flat[position]), index))
    return found


def _add(view: F64, picture: Picture, block: F64, region: tuple[slice, ...]) -> None:
    """Put a block into a picture: of what falls into a pixel, the value of largest magnitude stays; NaN where there is none."""
    for axis in sorted(picture.middle, reverse=True):
        at, piece = picture.middle[axis], region[axis]
        if not piece.start <= at < piece.stop:
            return
        block = block.take(at - piece.start, axis)
    target = []
    high = low = block
    for axis, (of, step) in enumerate(zip(picture.axes, picture.step, strict=True)):
        pixels = np.arange(region[of].start, region[of].stop) // step
        starts = np.flatnonzero(np.diff(pixels, prepend=-1))
        high, low = np.fmax.reduceat(high, starts, axis), np.fmin.reduceat(low, starts, axis)
        target.append(slice(int(pixels[0]), int(pixels[-1]) + 1))
    kept = view[tuple(target)]
    found = np.where(high >= -low, high, low)
    kept[...] = np.where(np.isnan(kept) | (np.abs(found) > np.abs(kept)), found, kept)


def quality(result: Result, names: list[str]) -> Quality | None:
    """Samples among each other; None where the result keeps no Gram matrix."""
    matrix = _gram(result)
    if matrix is None:
        return None
    n = len(matrix)
    sigma = np.asarray(result.arrays["singular_values"][...], np.float64)
    vectors = np.asarray(result.arrays["alpha"][...], np.float64) * sigma
    squares = np.maximum(np.diag(matrix), 0.0)
    captured = (vectors**2 * sigma**2).sum(axis=1)
    outside = np.clip(1 - np.divide(captured, squares, out=np.ones(n), where=squares > 0), 0, 1)
    mean = 2 * (squares.sum() - matrix.sum() / n) / max(1, n - 1)  # of all squared distances
    nearest: list[tuple[float, int, int]] = []
    n_same = 0
    for row in range(n - 1):
        distances = squares[row] + squares[row + 1 :] - 2 * matrix[row, row + 1 :]
        n_same += int(np.count_nonzero(distances < NEAR * mean))
        at = int(np.argmin(distances))
        nearest.append((float(distances[at]), row, row + 1 + at))
    nearest.sort()
    lengths = np.sqrt(np.where(squares > 0, squares, 1.0))
    every = -(-n // MATRIX)
    order = np.argsort(vectors[:, 0])[::every] if vectors.size else np.arange(0, n, every)
    return Quality(
        tuple((names[a], names[b], math.sqrt(max(0.0, value) / mean)) for value, a, b in nearest[:TOP] if mean > 0),
        n_same,
        (vectors**2).sum(axis=1),
        outside,
        matrix[np.ix_(order, order)] / np.outer(lengths[order], lengths[order]),
        every,
    )


def _gram(result: Result) -> F64 | None:
    """X_c X_c', from what a result keeps of it."""
    if "gram" in result.arrays:
        return np.asarray(result.arrays["gram"][...], np.float64)
    if "r_factor" in result.arrays:
        factor = np.asarray(result.arrays["r_factor"][...], np.float64)
        return factor.T @ factor
    return None
