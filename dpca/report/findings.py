"""The contents of a report as plain values, read from a result in memory that does not grow with the features.

Nothing is drawn here. Components are read once, block by block. A pixel stands for a block of features and takes the
value of largest magnitude in it, so that no peak is lost, whatever the size of the block.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import product
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
from dpca.store.names import Labelled, names_along
from dpca.store.results import Result
from dpca.store.stored import Stored
from dpca.types import F64

SHOWN_COMPONENTS = 12
"""Largest number of components that are drawn."""
SHOWN_EIGENVALUES = 60
PIXELS = 240
"""Largest number of pixels on the longer side of an image; a line has up to four times as many."""
SHOWN_SCORES = 4
TOP = 10
"""Number of features, or of samples, in a table."""
BLOCK_BYTES = 64 * 2**20
READ_BYTES = 16 * 10**9
"""Largest number of bytes of components that are read for their pictures: about a minute."""
NEAR = 1e-6
"""Samples whose squared distance is below this share of the mean squared distance count as the same."""
FARTHEST = 2 * TURN
"""Largest longitude; what is beyond is none, such as a fill value."""
MOST_PLACED = 4_000_000
"""Largest number of latitudes that are read for a map, with which its memory grows, some 100 MB."""
MOST_APART = 6
"""Largest number of entries, such as variables or levels, that have pictures of their own beside each other."""
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


@dataclass(frozen=True)
class Component:
    """A component in the shape of the data."""

    views: tuple[NDArray[Any], ...]
    """The values of each picture, real or complex; NaN where no feature has a value."""
    top: tuple[Extreme, ...]
    """The features with the largest absolute loadings."""
    pictures: tuple[Picture, ...]
    """The pictures of the views: cut where the largest loading is."""


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
    toward = _toward(coordinate)
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


def _toward(coordinate: Coordinate) -> Literal["north", "east", ""]:
    """Where a coordinate grows to, if it has degrees of latitude or of longitude."""
    about = coordinate.name, coordinate.attributes
    if str(coordinate.attributes.get("units", "degrees")).lower().startswith("rad") or coordinate.name == "rlat":
        return ""
    return "north" if is_latitude(*about) else "east" if is_longitude(*about) else ""


def places_of(of: Labelled, dims: Sequence[str | None], pixels: int = PIXELS) -> tuple[tuple[int, ...], Places] | None:
    """The axes of features that have latitudes and longitudes beside them, and the place of each feature on the map; None where there are none.

    Parameters
    ----------
    dims : names of the axes of features
    pixels : as of `pictures`
    """
    found: dict[str, tuple[tuple[str, ...], Coordinate]] = {}
    for along, coordinate in getattr(of, "auxiliaries", tuple)():
        if (toward := _toward(coordinate)) and 1 <= len(along) <= 2 and {*along} <= {*dims}:
            found.setdefault(toward, (along, coordinate))
    if len(found) < 2 or found["north"][0] != found["east"][0]:
        return None
    along = found["north"][0]
    values = found["north"][1].values
    if any(of.coordinate(dim) is not None and _toward(of.coordinate(dim)) for dim in along) or (  # type: ignore[arg-type]
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


def components(result: Result, count: int) -> list[Component]:
    """The first components as maps in the unit of the data: for one standard deviation of the score (`dpca.store.labelled.with_maps`)."""
    deviations, fitted = np.sqrt(np.asarray(result.arrays["explained_variance"][...], np.float64)), result.fitted

    def scaled(lead: tuple[int, ...], box: tuple[slice, ...]) -> F64:
        divisor = fitted.divisor(box)
        return np.asarray(deviations[lead[0]] * np.where(np.isinf(divisor), np.nan, divisor))

    array = result.arrays[result.named("components")]
    return drawn(result, array, [(number,) for number in range(count)], scaled=scaled)


def drawn(
    of: Labelled,
    array: Stored,
    leads: Sequence[tuple[int, ...]],
    pixels: int = PIXELS,
    scaled: Scaling = lambda *_: 1.0,
) -> list[Component]:
    """Some components of an array; each is read once, in blocks, together with those that share its chunks.

    Parameters
    ----------
    of : what has the coordinates of the array
    array : components, or maps, with the axes of features last
    leads : the indices of each along the axes before those
    pixels : as of `pictures`
    scaled : what values are multiplied by
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

    found = dict[tuple[int, ...], Component]()
    for near in sharing(leads, array.chunks[:ahead]):
        views = {lead: [np.full(picture.shape, np.nan, dtype) for picture in shown] for lead in near}
        best: dict[tuple[int, ...], list[tuple[float, tuple[int, ...]]]] = {lead: [] for lead in near}
        of_lead, is_cut = dict.fromkeys(near, shown), any(picture.cut for picture in shown)
        for lead, region, block in blocks(near):
            largest = _largest(np.abs(block) if dtype.kind == "c" else block, region)
            best[lead] = sorted([*best[lead], *largest], key=lambda item: -abs(item[0]))[:TOP]
            for picture, view in zip(shown, views[lead], strict=True) if not is_cut else ():
                add_block(view, picture, block, region)
        if is_cut:
            of_lead = {lead: tuple(_cut_at(picture, best[lead][0][1], of, dims) for picture in shown) for lead in near}
            for lead, region, block in blocks(near):
                for picture, view in zip(of_lead[lead], views[lead], strict=True):
                    add_block(view, picture, block, region)
        for lead in near:
            whole = (
                view if picture.places is None else picture.places.finished(view)
                for picture, view in zip(of_lead[lead], views[lead], strict=True)
            )
            found[lead] = Component(tuple(whole), _named(of, dims, best[lead]), of_lead[lead])
    return [found[lead] for lead in leads]


def _cut_at(picture: Picture, index: tuple[int, ...], of: Labelled, dims: Sequence[str]) -> Picture:
    """A picture that is cut where an entry of the component is."""
    middle = picture.middle | {axis: index[axis] for axis in picture.cut}
    called = ", ".join(f"{dims[axis]} {names_along(of, dims[axis], [index[axis]])[0]}" for axis in picture.cut)
    at = {axis: index[axis] for axis in picture.axes} if picture.places is None else {}
    return replace(picture, middle=middle, title=f"{picture.title}, {called}".removeprefix(", "), crossed=at)


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
