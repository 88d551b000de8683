"""What a report shows, as plain values: read from a result, in memory that does not grow with the features.

Nothing here draws. Components are read once, block by block; of each block of features that a pixel stands for, the
value of largest magnitude is kept, so that no peak is lost however much is put together.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpca.errors import InputError
from dpca.kernels.kernel import Centering, Inner, Kernel
from dpca.numerics.dimension import Eigenvalues, noise_edge
from dpca.store.results import Result, names_along

F64 = NDArray[np.float64]

SHOWN_COMPONENTS = 12
"""Components that are drawn."""
SHOWN_EIGENVALUES = 60
PIXELS = 240
"""Of an image's longer side, at most; of a line, four times as many."""
SHOWN_SCORES = 4
TOP = 10
"""Features, and samples, in a table."""
BLOCK_BYTES = 64 * 2**20
READ_BYTES = 16 * 10**9
"""Components that are read for their pictures, at most: a minute or so."""
NEAR = 1e-6
"""Samples whose squared distance is below this share of the mean one count as the same."""
MOST_GROUPS = 100
MATRIX = 400
"""Rows of the similarity matrix that are drawn, at most; of more, every so many."""


@dataclass(frozen=True)
class Answer:
    """Spectrum and scores of a PCA, or of one kernel."""

    number: int
    """Of the kernel in a sweep; 0 if there is one."""
    kernel: Kernel | None
    document: dict[str, Any]
    """Its certificate."""
    eigenvalues: F64
    """All of them, of the covariance times its divisor, or of the centred kernel."""
    singular_values: F64
    """(k,)"""
    ratio: F64
    """Shares of the variance, (k,)."""
    scores: F64
    """The first few, (n_samples, at most 4)."""
    at: tuple[int, ...]
    """Its place in arrays of a sweep."""

    @property
    def accuracy(self) -> float:
        """How often neighbours in the scores have one label; 0 where there are no labels."""
        return float(self.document["case"]["neighbour_accuracy"] or 0.0) if self.kernel else 0.0


@dataclass(frozen=True)
class Scree:
    """The spectrum."""

    eigenvalues: F64
    """All of them, of the covariance times its divisor, or of the centred kernel."""
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

    @property
    def n_shown(self) -> int:
        """How many eigenvalues are drawn: the kept ones, and enough of the others to see where they go."""
        return min(int(np.count_nonzero(self.eigenvalues > 0)), max(SHOWN_EIGENVALUES, 4 * self.n_components))


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
    """One of each `step`."""
    step: int = 1

    @property
    def known(self) -> bool:
        """Whether there is a coordinate."""
        return self.first is not None

    def positions(self, length: int, step: int = 1) -> F64:
        """Where to draw so many, of which each stands for `step`, in the units of the axis."""
        if self.values is not None and (len(self.values), self.step) == (length, step):
            return self.values
        return step * np.arange(length, dtype=np.float64)

    def edges(self, length: int) -> tuple[float, float]:
        """Where an image of so many begins and ends, half a step beyond the first and the last."""
        if self.first is None or self.last is None or length < 2:
            return -0.5, length - 0.5
        half = (self.last - self.first) / (length - 1) / 2
        return self.first - half, self.last + half


@dataclass(frozen=True)
class Groups:
    """Features of one axis that belong together, such as the chromosomes of variants, one run after the other."""

    names: tuple[str, ...]
    starts: tuple[int, ...]
    """The first feature of each."""
    length: int
    """Of the axis."""


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

    pairs: tuple[tuple[int, int, float], ...]
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


def answers(result: Result) -> list[Answer]:
    """That of a PCA, or those of each kernel that gave one."""
    certificate, arrays = result.certificate, result.arrays
    found = []
    for number, document in enumerate(certificate.get("cases", [certificate])):
        case, kernel = document.get("case"), None
        if case is not None:
            if case["problem"]:
                continue
            given = {name: case[name] for name in ("gamma", "degree", "coef0") if case[name] is not None}
            about_mean = bool(result.manifest["config"]["preprocess"]["center"])
            kernel = Kernel(case["kernel"], about_mean=about_mean, **given)
        at = (number,) if "cases" in certificate else ()
        k = document["n_components"]["chosen"]

        def read(name: str, *region: slice, at: tuple[int, ...] = at) -> F64:
            return np.asarray(arrays[name][(*at, *region)], np.float64)

        found.append(
            Answer(
                number,
                kernel,
                document,
                read("eigenvalues", slice(None)),
                read("singular_values", slice(k)),
                read("explained_variance_ratio", slice(k)),
                read("scores", slice(None), slice(min(k, SHOWN_SCORES))),
                at,
            )
        )
    return found


def scree(result: Result, answer: Answer) -> Scree:
    """The spectrum, and what can be said of how many components it has."""
    document, values = answer.document, answer.eigenvalues
    sigma, ratio, components = answer.singular_values, answer.ratio, document["components"]
    total = float(sigma[0] ** 2 / ratio[0]) if ratio.size and ratio[0] else float(values.sum())
    return Scree(
        values,
        values / total if total else values,
        len(sigma),
        np.array([component["sampling_error"] for component in components]),
        np.array([component["reliable"] for component in components], bool),
        None if answer.kernel else _edge(result, values, total),
        document["n_components"]["suggested"],
    )


def _edge(result: Result, values: F64, total: float) -> float | None:
    """Of white noise."""
    plan = result.manifest["plan"]
    n = plan["shape"][plan["samples_axis"]]
    d = math.prod(plan["shape"]) // n - result.manifest["counts"]["constant_features"]
    rank = int(result.certificate["rank"])
    return noise_edge(Eigenvalues(values, rank, n, max(1, d), result.rules.center, total))


def axis_of(result: Result, dim: str | None, fallback: str, most: int | None = None) -> Axis:
    """What is known of an axis by the name of its dimension.

    Parameters
    ----------
    most : how many positions are wanted at most; the coordinate streams by
    """
    coordinate = None if dim is None else result.coordinate(dim)
    length = 0 if coordinate is None else int(coordinate.values.shape[0])
    if coordinate is None or coordinate.text or not length:
        return Axis(dim or fallback)
    step = 1 if most is None else -(-length // most)
    kept, last, signs = [], np.empty(0), set[float]()
    block = step * max(1, BLOCK_BYTES // (8 * step))
    for start in range(0, length, block):
        values = np.asarray(coordinate.values[start : start + block], np.float64)
        signs |= set(np.sign(np.diff(np.concatenate([last, values]))).tolist())
        kept.append(values[::step])
        last = values[-1:]
    if signs - {1.0} and signs - {-1.0}:
        return Axis(dim or fallback)  # no position along an axis: a name
    units = coordinate.attributes.get("units")
    positions = np.concatenate(kept)
    return Axis(f"{dim} ({units})" if units else str(dim), float(positions[0]), float(last[0]), positions, step)


def groups_of(labels: NDArray[Any]) -> Groups:
    """Runs of the same label.

    Raises
    ------
    InputError
        When they are more than can be told apart.
    """
    starts = np.flatnonzero(np.concatenate([[True], labels[1:] != labels[:-1]]))
    if len(starts) > MOST_GROUPS:
        raise InputError(
            f"--groups: the labels change {len(starts) - 1:,} times along the features, which is more than {MOST_GROUPS} groups",
            "Give labels of features that are sorted by group, such as chromosomes.",
        )
    return Groups(tuple(str(labels[start]) for start in starts), tuple(int(start) for start in starts), len(labels))


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
    dims = [dim or f"feature_{axis}" for axis, dim in enumerate(array.dims[1:])]
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


def quality(result: Result, answer: Answer) -> Quality | None:
    """Samples among each other; None where the result keeps no Gram matrix."""
    matrix = _products(result, answer)
    if matrix is None:
        return None
    n, sigma = len(matrix), answer.singular_values
    vectors = np.asarray(result.arrays["alpha"][(*answer.at, slice(None), slice(len(sigma)))], np.float64) * sigma
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
        tuple((a, b, math.sqrt(max(0.0, value) / mean)) for value, a, b in nearest[:TOP] if mean > 0),
        n_same,
        (vectors**2).sum(axis=1),
        outside,
        matrix[np.ix_(order, order)] / np.outer(lengths[order], lengths[order]),
        every,
    )


def _products(result: Result, answer: Answer) -> F64 | None:
    """X_c X_c', or the centred kernel of it, from what a result keeps."""
    if "gram" in result.arrays and (answer.kernel is None or answer.kernel.name != "precomputed"):
        gram, product, norm2 = (
            np.asarray(result.arrays[name][...], np.float64)
            for name in ("gram", "gram_mean_product", "gram_mean_norm2")
        )
        if answer.kernel is None:
            return gram
        matrix, _ = answer.kernel.matrix(Inner.of_fit(gram, product, float(norm2)))
        return Centering.of(matrix).apply(matrix)
    if "r_factor" in result.arrays:
        factor = np.asarray(result.arrays["r_factor"][...], np.float64)
        return factor.T @ factor
    return None
