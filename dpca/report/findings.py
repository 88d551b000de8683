"""The contents of a report as plain values, read from a result in memory that does not grow with the features; `maps` has its components.

Nothing is drawn here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpca.errors import InputError
from dpca.kernels.inner import Centering, Inner
from dpca.kernels.kernel import Kernel
from dpca.kernels.kinds import kernel_of
from dpca.numerics.dimension import BI_CROSS_VALIDATION, Eigenvalues, noise_edge
from dpca.sources.calendars import dates, needs_cftime, number_of
from dpca.sources.coordinate import Coordinate
from dpca.sources.latitudes import LARGEST, TURN, is_latitude, is_longitude
from dpca.store.gram import keeps_gram, read_gram, read_products
from dpca.store.names import Labelled
from dpca.store.results import Result
from dpca.types import F64

SHOWN_COMPONENTS = 12
"""Largest number of components that are drawn."""
SHOWN_EIGENVALUES = 60
SHOWN_SCORES = 4
TOP = 10
"""Number of features, or of samples, in a table."""
BLOCK_BYTES = 64 * 2**20
NEAR = 1e-6
"""Samples whose squared distance is below this share of the mean squared distance count as the same."""
FARTHEST = 2 * TURN
"""Largest longitude; what is beyond is none, such as a fill value."""
MOST_PLACED = 4_000_000
"""Largest number of latitudes that are read for a map, with which its memory grows, some 100 MB."""
PRESSURES = frozenset(("pa", "hpa", "kpa", "bar", "mbar", "millibar", "millibars", "dbar", "decibar", "decibars"))
"""Units, in small letters, of a vertical coordinate that grows downward without saying so."""
MOST_GROUPS = 100
MOST_NAMES = 24
"""Largest number of names along an axis that are written below it."""
ROUND_YEARS = tuple(factor * 10**power for power in range(5) for factor in (1, 2, 5))
MOST_POINTS = 10_000
"""Largest number of samples that are drawn; of more, every k-th is drawn."""
MATRIX = 400
"""Largest number of rows of the drawn similarity matrix; of more samples, every k-th is drawn."""


@dataclass(frozen=True)
class Solution:
    """Spectrum and scores of a PCA, or of one kernel of a kernel PCA."""

    number: int
    """Index of the kernel in a sweep; 0 if there is only one."""
    kernel: Kernel | None
    document: dict[str, Any]
    """The certificate."""
    eigenvalues: F64
    """All eigenvalues, of the covariance times its divisor, or of the centred kernel; or the leading ones."""
    singular_values: F64
    """(k,)."""
    ratio: F64
    """Shares of the variance, (k,)."""
    scores: F64
    """The first scores, (n_samples, at most 4)."""
    at: tuple[int, ...]
    """Its index into the arrays of a sweep; empty without a sweep."""

    @property
    def accuracy(self) -> float:
        """Share of samples whose nearest neighbour in the scores has the same label; 0 without labels."""
        return float(self.document["case"]["neighbour_accuracy"] or 0.0) if self.kernel else 0.0


@dataclass(frozen=True)
class Scree:
    """The spectrum of an answer."""

    eigenvalues: F64
    """All eigenvalues, of the covariance times its divisor, or of the centred kernel; or the leading ones."""
    complete: bool
    """Whether there are all."""
    ratio: F64
    """The share of the variance of each eigenvalue."""
    n_components: int
    errors: F64
    """Relative sampling errors, (n_components,), by North's rule of thumb (Monthly Weather Review 110, 1982)."""
    reliable: NDArray[np.bool_]
    edge: float | None
    """Edge of white noise, by Marchenko and Pastur; None where the spectrum is not that of signal and white noise."""
    suggested: dict[str, int | str]
    """The number of components that each rule suggests, or why it suggests none."""
    total: float = 1.0
    """The sum of all eigenvalues."""
    validation: F64 | None = None
    """Errors of bi-cross-validation for 0, 1, ... components; None where no groups of features were added up for it."""

    @property
    def n_standing(self) -> int | None:
        """How many of the components stand out from noise, where a rule tells: from white noise, else by the broken stick."""
        if self.edge is not None:
            return int(np.count_nonzero(self.eigenvalues[: self.n_components] > self.edge))
        suggested = self.suggested.get("broken_stick")
        return min(suggested, self.n_components) if isinstance(suggested, int) else None

    @property
    def n_shown(self) -> int:
        """Number of eigenvalues that are drawn: the kept ones, and enough of the others to see the trend."""
        return min(int(np.count_nonzero(self.eigenvalues > 0)), max(SHOWN_EIGENVALUES, 4 * self.n_components))


@dataclass(frozen=True)
class Extreme:
    """A sample or a feature that stands out."""

    name: str
    value: float


@dataclass(frozen=True)
class DrawnAxis:
    """The axis of samples, or one axis of features, with its coordinate if that is numeric."""

    label: str
    first: float | None = None
    last: float | None = None
    values: F64 | None = None
    """Every `step`-th value of the coordinate."""
    step: int = 1
    time: Mapping[str, Any] | None = None
    """Attributes of the coordinate, if its numbers are dates."""
    names: tuple[str, ...] = ()
    """Names of its entries, where these are text, and few."""
    units: str = ""
    """Units of the coordinate."""
    downward: bool = False
    """Whether the coordinate grows downward, as depth and pressure do (CF conventions, 4.3)."""
    toward: Literal["north", "east", ""] = ""
    """Where degrees of latitude, or of longitude, grow to; empty for other coordinates."""

    @property
    def known(self) -> bool:
        """Whether there is a coordinate."""
        return self.first is not None

    def alike(self, other: DrawnAxis) -> bool:
        """Whether a step along both is of the same length: of the same units, degrees of latitude and longitude too, or numbers of both."""
        if not (self.known and other.known):
            return self.known == other.known
        one, another = (
            axis.units.partition("_")[0] if axis.units.startswith("degree") else axis.units for axis in (self, other)
        )
        return (self.time is None and other.time is None) and one.removesuffix("s") == another.removesuffix("s")

    def positions(self, length: int, step: int = 1) -> F64:
        """Positions of `length` points, each of which stands for `step` entries, in the units of the axis."""
        if self.values is not None and (len(self.values), self.step) == (length, step):
            return self.values
        return step * np.arange(length, dtype=np.float64)

    def years(self, most: int) -> dict[float, str]:
        """Where round years begin along a time, at most so many, and their names; empty if fewer than two begin."""
        if self.time is None or (ends := dates(np.array([self.first, self.last]), self.time)) is None:
            return {}
        begin, end = sorted(int(text[0] + text[1:].partition("-")[0]) for text in ends)  # a year may be negative
        low, high = sorted(float(position) for position in (self.first or 0.0, self.last or 0.0))
        pitch = next((pitch for pitch in ROUND_YEARS if (end - begin) / pitch < most), ROUND_YEARS[-1])
        found = {}
        for year in range(begin + -begin % pitch, end + 1, pitch):
            with suppress(InputError):  # some calendars have no year 0
                date = f"{'-' * (year < 0)}{abs(year):04d}-01-01"
                found[number_of(date, self.time, self.label)] = str(year)
        found = {position: year for position, year in found.items() if low <= position <= high}
        return found if len(found) > 1 else {}

    def named(self, letters: float) -> dict[float, str]:
        """The names of all entries and where they are, if there are no more than so many letters, spaces included."""
        wide = sum(len(name) + 2 for name in self.names)
        return dict(zip(self.positions(len(self.names)).tolist(), self.names, strict=True)) if wide <= letters else {}

    def dates(self, positions: F64) -> list[str]:
        """Positions as dates; as numbers where they are none."""
        told = None if self.time is None else dates(positions, self.time)
        return [f"{position:g}" for position in positions.tolist()] if told is None else list(told)

    def at(self, index: int, length: int) -> float:
        """The position of an entry of `length`."""
        if self.first is None or self.last is None or length < 2:
            return float(index)
        return self.first + index * (self.last - self.first) / (length - 1)

    def edges(self, length: int) -> tuple[float, float]:
        """Edges of an image of `length` entries, half a step beyond the first and the last."""
        if self.first is None or self.last is None or length < 2:
            return -0.5, length - 0.5
        half = (self.last - self.first) / (length - 1) / 2
        return self.first - half, self.last + half


@dataclass(frozen=True)
class FeatureRanges:
    """Consecutive groups of features along one axis, such as the chromosomes of variants."""

    names: tuple[str, ...]
    starts: tuple[int, ...]
    """The first feature of each group."""
    length: int
    """Length of the axis."""


@dataclass(frozen=True)
class Quality:
    """Similarities and outliers among the samples, from the Gram matrix."""

    pairs: tuple[tuple[int, int, float], ...]
    """The nearest pairs of samples, with their distance over the mean distance."""
    n_same: int
    """Number of pairs that count as the same."""
    leverage: F64
    """Leverage of each sample in the subspace of the components: sum_j u_ij^2, between 0 and 1."""
    outside: F64
    """The share of each sample's sum of squares that the components do not capture."""
    similarity: F64
    """Cosines between centred samples, ordered by the first score."""
    every: int
    """Every `every`-th sample is in that matrix."""
    order: NDArray[np.intp]
    """The samples of its rows."""


def answers(result: Result) -> list[Solution]:
    """The answer of a PCA, or the answers of all kernels that gave one."""
    certificate, arrays = result.certificate, result.arrays
    solved = []
    for number, document in enumerate(certificate.get("cases", [certificate])):
        case, kernel = document.get("case"), None
        if case is not None:
            if case["problem"]:
                continue
            parameters = {name: case[name] for name in ("gamma", "degree", "coef0") if case[name] is not None}
            about_mean = bool(result.manifest["config"]["preprocess"]["center"])
            kernel = kernel_of(case["kernel"], about_mean=about_mean, **parameters)
        at = (number,) if "cases" in certificate else ()
        k = document["n_components"]["chosen"]

        def read(name: str, *region: slice, at: tuple[int, ...] = at) -> F64:
            return np.asarray(arrays[name][(*at, *region)], np.float64)

        solved.append(
            Solution(
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
    return solved


def every_row(result: Result, answer: Solution, every: int) -> F64:
    """The scores of every `every`-th sample in up to SHOWN_COMPONENTS components, (rows, components); read in blocks."""
    array, n = result.arrays["scores"], result.n_samples
    k = min(len(answer.singular_values), SHOWN_COMPONENTS)
    block = every * max(1, BLOCK_BYTES // (8 * k * every))
    return np.concatenate(
        [
            np.asarray(array[(*answer.at, slice(start, min(start + block, n)), slice(k))], np.float64)[::every]
            for start in range(0, n, block)
        ]
    )


def scree(result: Result, answer: Solution) -> Scree:
    """The spectrum, with sampling errors, the edge of the noise, and suggested numbers of components."""
    document, values = answer.document, answer.eigenvalues
    sigma, ratio, components = answer.singular_values, answer.ratio, document["components"]
    total = float(sigma[0] ** 2 / ratio[0]) if ratio.size and ratio[0] else float(values.sum())
    complete = document.get("none_missed", "all computed") == "all computed"
    return Scree(
        values,
        complete,
        values / total if total else values,
        len(sigma),
        np.array([component["sampling_error"] for component in components]),
        np.array([component["reliable"] for component in components], bool),
        None if answer.kernel or not complete else _edge(result, values, total),
        document["n_components"]["suggested"],
        total or 1.0,
        np.array(found["errors"]) if (found := document["n_components"].get(BI_CROSS_VALIDATION)) else None,
    )


def _edge(result: Result, values: F64, total: float) -> float | None:
    """The edge of white noise, or None."""
    n, d = result.n_samples, result.n_features - result.manifest["counts"]["constant_features"]
    rank = int(result.certificate["rank"])
    return noise_edge(Eigenvalues(values, rank, n, max(1, d), result.rules.center, total))


def axis_of(
    result: Labelled, dim: str | None, fallback: str, most: int | None = None, block_bytes: int = BLOCK_BYTES
) -> DrawnAxis:
    """The axis of a dimension, with the coordinate of that name if there is one.

    Parameters
    ----------
    most : largest number of positions; the coordinate is read in blocks
    block_bytes : size of these blocks; a block holds one position at least
    """
    coordinate = None if dim is None else result.coordinate(dim)
    length = 0 if coordinate is None else int(coordinate.values.shape[0])
    if coordinate is not None and coordinate.text and length <= MOST_NAMES:
        return DrawnAxis(str(dim), names=tuple(map(str, np.asarray(coordinate.values[...]).tolist())))
    if coordinate is None or coordinate.text or not length:
        return DrawnAxis(dim or fallback)
    step = 1 if most is None else -(-length // most)
    toward = toward_of(coordinate)
    if toward:  # and no numbers of something else
        farthest = LARGEST if toward == "north" else FARTHEST
        near = length <= MOST_PLACED and (np.abs(np.asarray(coordinate.values[...], np.float64)) <= farthest).all()
        toward = toward if near else ""
    kept, last, signs = [], np.empty(0), set[float]()
    block = step * max(1, block_bytes // (8 * step))
    for start in range(0, length, block):
        values = np.asarray(coordinate.values[start : start + block], np.float64)
        if toward == "east":  # 350, 0, 10 is 350, 360, 370
            values = np.unwrap(np.concatenate([last, values]), period=TURN)[len(last) :]
        signs |= set(np.sign(np.diff(np.concatenate([last, values]))).tolist())
        kept.append(values[::step])
        last = values[-1:]
    if signs - {1.0} and signs - {-1.0}:
        return DrawnAxis(dim or fallback)  # not monotonic: its values are names, not positions
    positions, attributes = np.concatenate(kept), coordinate.attributes
    if toward == "east" and max(positions[0], last[0]) > TURN:
        positions, last = positions - TURN, last - TURN
    first, end = float(positions[0]), float(last[0])
    if dates(np.array([first, end]), attributes) is not None:
        return DrawnAxis(str(dim), first, end, positions, step, attributes)
    units = attributes.get("units")
    if needs_cftime(attributes):
        units = (
            f"{units}, calendar {attributes.get('calendar', 'standard')}: cftime, not installed, would tell the dates"
        )
    downward = attributes.get("positive") == "down" or str(attributes.get("units", "")).lower() in PRESSURES
    said = f"{dim} ({units})" if units else str(dim)
    return DrawnAxis(said, first, end, positions, step, units=str(units or ""), downward=downward, toward=toward)


def toward_of(coordinate: Coordinate) -> Literal["north", "east", ""]:
    """Where a coordinate grows to, if it has degrees of latitude or of longitude."""
    about = coordinate.name, coordinate.attributes
    if str(coordinate.attributes.get("units", "degrees")).lower().startswith("rad") or coordinate.name == "rlat":
        return ""
    return "north" if is_latitude(*about) else "east" if is_longitude(*about) else ""


def groups_of(labels: NDArray[Any]) -> FeatureRanges:
    """Groups made of consecutive equal labels."""
    starts = np.flatnonzero(np.concatenate([[True], labels[1:] != labels[:-1]]))
    if len(starts) > MOST_GROUPS:
        raise InputError(
            f"--groups: the labels change {len(starts) - 1:,} times along the features, which is more than {MOST_GROUPS} groups",
            "Give labels of features that are sorted by group, such as chromosomes.",
        )
    return FeatureRanges(
        tuple(str(labels[start]) for start in starts), tuple(int(start) for start in starts), len(labels)
    )


def quality(result: Result, answer: Solution) -> Quality | None:
    """Similarities and outliers among the samples; None where the result keeps no Gram matrix."""
    matrix = _products(result, answer)
    if matrix is None:
        return None
    n, sigma = len(matrix), answer.singular_values
    vectors = np.asarray(result.arrays["alpha"][(*answer.at, slice(None), slice(len(sigma)))], np.float64) * sigma
    squares = np.maximum(np.diag(matrix), 0.0)
    captured = (vectors**2 * sigma**2).sum(axis=1)
    outside = np.clip(1 - np.divide(captured, squares, out=np.ones(n), where=squares > 0), 0, 1)
    mean = 2 * (squares.sum() - matrix.sum() / n) / max(1, n - 1)  # mean of all squared distances
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
        order,
    )


def _products(result: Result, answer: Solution) -> F64 | None:
    """X_c X_c', or its centred kernel matrix, from the arrays of a result; None without them."""
    if not keeps_gram(result) or (answer.kernel is not None and answer.kernel.name == "precomputed"):
        return None
    if answer.kernel is None:
        return read_products(result)
    matrix, _ = answer.kernel.matrix(Inner.of_gram(read_gram(result)))
    return Centering.of(matrix).apply(matrix)
