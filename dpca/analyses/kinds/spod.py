"""Spectral POD of the rows about their mean, by Welch's method; frequencies in cycles per step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, InstanceOf
from pydantic.json_schema import SkipJsonSchema
from scipy.signal import find_peaks

from dpca.analyses.answers import BLOCK, COMPONENT, FREQUENCY, Answer, Array, Maps
from dpca.analyses.axis import Axis, Clock
from dpca.analyses.certificates import answer_of_maps, digits_of
from dpca.analyses.kind import AnalysisView, Contents, Context, Kind
from dpca.analyses.samples import Samples
from dpca.config.inputs import Text
from dpca.derived.operators import Chain, Matrix
from dpca.derived.spod import SpectralComponents, spod
from dpca.report import findings
from dpca.report.derived_findings import MOST_MAPS, Lead, Unit, values_of
from dpca.report.figures import largest, not_reliable, scale_of
from dpca.report.findings import TOP
from dpca.report.marks import COLORS, DASHES, INK, SHAPES, Figure, Line, Mark, Panel, Points, Scale, Words
from dpca.store.derived import StoredAnalysis
from dpca.store.stored import Stored
from dpca.types import F64

MOST_MODES = 4
"""Most spectral components whose spectra are drawn."""
STANDS_OUT = 2.0
"""A peak is so many times as high as the lowest point between it and a higher one."""
PEAKS = 3
"""Largest number of peaks whose periods are written into a spectrum."""


class Spod(Kind):
    """Spectral components: those of blocks of the record at each frequency."""

    has_maps = True

    title = "spectral components"
    matrices = 4
    centred = True
    crests = "Crests move to where the phase is smaller: it tells how much earlier they come."

    kind: Literal["spod"]
    block: Annotated[int, Field(ge=2, description="Rows in a block.")]
    overlap: Annotated[
        int | None, Field(ge=0, description="Rows that a block shares with the next; half of it if left out.")
    ] = None
    window: Annotated[
        Text | SkipJsonSchema[InstanceOf[np.ndarray]], Field(description="Name of a window of scipy.signal.")
    ] = "hamming"
    frequencies: Annotated[
        Literal["all"] | Annotated[list[float], Field(min_length=1)],
        Field(description="all, or some in cycles per step, of which each stands for the nearest that blocks resolve."),
    ] = "all"
    n_components: Annotated[
        int | None,
        Field(ge=1, description="How many at each frequency; at most the number of blocks, which null means."),
    ] = 3

    def run(self, rows: Samples, context: Context) -> Answer:
        rows, clock = rows.centred, rows.axis.clock("SPOD")
        frequencies: Any = self.frequencies
        asked = self.block, self.overlap, self.window, frequencies, self.n_components
        return of_spectral(rows, spod(rows.transformed, clock.times, *asked), clock)

    def columns(self, n: int) -> int:
        n_frequencies = self.block // 2 + 1 if self.frequencies == "all" else len(self.frequencies)
        return 2 * n_frequencies * (self.n_components or n // self.block + 1)

    @classmethod
    def section(cls, view: AnalysisView) -> tuple[Contents, list[str]]:
        analysis, (found, unit) = view.analysis, density(view.analysis)
        peaks = list(found.peaks)
        head = [
            f"frequency (per {unit.name})",
            f"period ({unit.name})",
            "energy of mode 1",
            "its share",
            "reliable",
            "digits",
        ]
        rows = [
            [
                f"{found.frequencies[at]:.5g}",
                unit.period(found.frequencies[at]) or "-",
                f"{found.energies[at, 0]:.5g}",
                f"{100 * found.share(at):.1f} %",
                "yes" if found.reliable[at, 0] else "no",
                f"{found.digits[at, 0]:.1f}",
            ]
            for at in peaks[:TOP]
        ]
        words = [
            f"Energies at {len(found.frequencies):,} frequencies, a density of variance; numbers at peaks are periods."
        ]
        if not found.few:
            words.append(f"A peak is {STANDS_OUT:g} times as high as the lowest point between it and a higher one.")
        words += [f"The first {MOST_MODES} modes of {found.energies.shape[1]}."] * (
            found.energies.shape[1] > MOST_MODES
        )
        for at in np.flatnonzero(found.frequencies == 0):
            words.append(f"Frequency 0, which the axis has no place for, has {found.energies[at, 0]:.4g} in mode 1.")
        about = [
            f"Frequency {found.frequencies[at]:.5g} per {unit.name}"
            + (f", period {unit.counted(period)}" if (period := unit.period(found.frequencies[at])) else "")
            + f": mode 1, {100 * found.share(at):.1f} % of the energy there"
            for at in peaks
        ]
        blocks, drawn = analysis["scores"], sorted(peaks[:MOST_MAPS])
        scores: Figure | None = None
        if view.drawn and drawn:
            sizes = np.stack([np.abs(np.asarray(blocks[at, :, 0])) for at in drawn], axis=1)
            axis = findings.axis_of(analysis, blocks.dims[1], "block")
            labels = [f"{found.frequencies[at]:.4g}" for at in drawn]
            scores = of_blocks(sizes, labels, axis, view.id("blocks"))
        contents: dict[str, Any] = {
            "figures": [of_density(found, unit, MOST_MODES, view.id("density"))] if view.drawn else [],
            "figures_caption": " ".join(words),
            "table": {
                "caption": "Frequencies, the strongest first" if found.few else "Peaks, the highest first",
                "head": head,
                "rows": rows,
            },
            "scores": scores,
            "scores_caption": f"Amplitude of mode 1 in each of {blocks.shape[1]:,} blocks, at the strongest peaks (frequency per {unit.name}).",
        }
        return contents, about

    @classmethod
    def shown(cls, stored: StoredAnalysis, array: Stored, count: int, group: str = "") -> list[list[Lead]]:
        return [[(at, 0)] for at in density(stored)[0].peaks[:count]]

    @classmethod
    def n_maps(cls, stored: StoredAnalysis) -> int:
        return len(density(stored)[0].peaks)


def of_spectral(rows: Samples, found: SpectralComponents, clock: Clock) -> Answer:
    """Spectral components."""
    both = (FREQUENCY, COMPONENT)
    arrays = {
        "energies": Array(found.energies, both, {"long_name": "density of variance per frequency"}),
        "total_energy": Array(found.total, (FREQUENCY,)),
        "rank": Array(found.rank.astype(np.int64), (FREQUENCY,)),
        "scores": Array(found.scores, (FREQUENCY, BLOCK, COMPONENT)),
        "digits": Array(digits_of(found.error), both),
    }
    starts = rows.axis.values
    blocks = Axis(BLOCK, found.starts.astype(np.int64), {"long_name": "number of the first row"})
    if starts is not None:
        blocks = Axis(BLOCK, starts[found.starts], {**rows.axis.attributes, "long_name": "first row"})
    coordinates = {
        FREQUENCY: Axis(FREQUENCY, found.frequencies, {"units": f"1 / ({clock.step})"}),
        BLOCK: blocks,
    }
    scores_of = partial(blocks_of, rows.chain, found)
    maps = Maps(found.coefficients, (FREQUENCY,), "each", scores_of, found.scores)
    answer = answer_of_maps("spod", rows, found.error, found.amplification, int(found.rank.max()), arrays, None, maps)
    return replace(answer, coordinates=coordinates)


def blocks_of(chain: Chain, found: SpectralComponents, projected: Matrix) -> Matrix:
    """Scores of blocks, from X W of each frequency: a map is the conjugate of what the sums are products with."""
    return found.blocks_of(np.stack([chain.apply(one.conj()) for one in projected]))


@dataclass(frozen=True, eq=False)
class Density:
    """The spectra of spectral components."""

    frequencies: F64
    """Per unit, (frequencies,)."""
    energies: F64
    """(frequencies, k)."""
    total: F64
    """(frequencies,)."""
    digits: F64
    """(frequencies, k)."""
    reliable: NDArray[np.bool_]
    """(frequencies, k)."""
    peaks: tuple[int, ...]
    """Numbers of the frequencies at which the first energy stands out, the largest first; all, where there are few."""
    few: bool
    """Whether there are so few that each of them is taken for a peak."""

    def share(self, at: int) -> float:
        """The part of the energy at a frequency that the first component has."""
        return float(self.energies[at, 0] / self.total[at]) if self.total[at] else 0.0


def density(analysis: StoredAnalysis) -> tuple[Density, Unit]:
    """Spectra of spod."""
    unit = Unit.of(analysis["frequency"])
    frequencies, energies = values_of(analysis["frequency"]) / unit.number, values_of(analysis["energies"])
    first, few = energies[:, 0], len(frequencies) <= TOP
    peaks = range(len(first)) if few else standing_out(first)
    peaks = sorted(peaks, key=lambda at: -first[at])
    reliable = np.array(analysis.certificate["reliable"], bool)
    total, digits = values_of(analysis["total_energy"]), values_of(analysis["digits"])
    return Density(frequencies, energies, total, digits, reliable, tuple(peaks), few), unit


def standing_out(energies: F64) -> list[int]:
    """Where energies have a peak, that stands out on an axis of logarithms."""
    floor = energies.max() * np.finfo(np.float64).eps or 1.0
    heights = np.log(np.maximum(energies, floor))
    beyond = heights.min() - 1  # so that the first and the last can be peaks
    found, _ = find_peaks(np.concatenate([[beyond], heights, [beyond]]), prominence=math.log(STANDS_OUT))
    return [int(at) - 1 for at in found]


def of_density(density: Density, unit: Unit, most: int, name: str) -> Figure:
    """Energies over frequency, with the periods of the highest peaks; 0 has no place on an axis of logarithms."""
    positive = density.frequencies > 0
    at, energies, reliable = density.frequencies[positive], density.energies[positive], density.reliable[positive]
    count, few = min(most, energies.shape[1]), len(at) < 3
    total = np.where(density.total[positive] > 0, density.total[positive], np.nan)
    marks: list[Mark] = [Line(at, total, dash="dotted", label="all")]
    if few:
        marks.append(Points(at, total, INK, size=4))
    for number in range(count):
        values = np.where(energies[:, number] > 0, energies[:, number], np.nan)
        color, dash = COLORS[number], DASHES[number % len(DASHES)]
        marks.append(Line(at, values, color, 1.3, dash, label=f"mode {number + 1}"))
        if few:
            marks.append(Points(at, values, color, size=4, label=f"mode {number + 1}"))
        wrong = ~reliable[:, number]
        if wrong.any():
            marks.append(not_reliable(at[wrong], values[wrong]))
    for peak in [peak for peak in density.peaks if density.frequencies[peak] > 0][:PEAKS]:
        where = float(density.frequencies[peak]), float(density.energies[peak, 0])
        if where[1] > 0:
            marks.append(Words(*where, f"{1 / where[0]:.4g}"))
    panel = Panel(
        tuple(marks),
        Scale(f"frequency (per {unit.name})", log=len(at) > 0),
        Scale("energy per frequency", log=True),
        periods=f"period ({unit.name})" if len(at) else "",
    )
    return Figure(name, "spectra", ((panel,),), 340, 700, about="Energy over frequency")


def of_blocks(amplitudes: F64, labels: Sequence[str], axis: findings.DrawnAxis, name: str) -> Figure:
    """Amplitudes of blocks, (blocks, frequencies), over where they begin."""
    at, marks = axis.positions(len(amplitudes)), list[Mark]()
    for number, label in enumerate(labels):
        color, values = COLORS[number], amplitudes[:, number]
        marks.append(Line(at, values, color, dash=DASHES[number % len(DASHES)], label=label))
        marks.append(Points(at, values, color, SHAPES[number % 4], 5, label=label))
    x = scale_of(axis, len(amplitudes))
    panel = Panel(
        tuple(marks),
        Scale(f"{axis.label}, first row of the block", whole=x.whole, marks=x.marks, names=x.names),
        Scale("amplitude", (0.0, 1.05 * largest([amplitudes]))),
    )
    return Figure(name, "amplitudes of blocks", ((panel,),), 220, 700, about="Amplitudes of blocks")
