"""Both kinds of dynamic modes: the form of their answers, and their section of a report."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpca.analyses.answers import COMPONENT, Answer, Array, Maps, row_axis
from dpca.analyses.certificates import answer_of_maps
from dpca.analyses.kind import AnalysisView, Contents, Kind
from dpca.analyses.kinds.shown import first_of, scores_of
from dpca.analyses.samples import Samples
from dpca.derived.dmd import SAME, Modes
from dpca.derived.gram import with_mean
from dpca.report.derived_findings import Lead, Unit, rows_shown, values_of
from dpca.report.figures import not_reliable
from dpca.report.findings import SHOWN_SCORES
from dpca.report.marks import COLORS, Figure, Line, Mark, Panel, Points, Rule, Scale, Upright
from dpca.store.derived import StoredAnalysis
from dpca.store.stored import Stored


class OfModes(Kind):
    """Dynamic modes."""

    has_maps = True

    crests = "Crests move to where the phase is smaller: it tells how much earlier they come."

    @classmethod
    def section(cls, view: AnalysisView) -> tuple[Contents, list[str]]:
        found, unit = modes(view.analysis)
        head = ["mode", "reliable", "digits", "frequency", "period", "growth", "|eigenvalue|", "amplitude"]
        caption = f"Modes, the strongest first; frequency and growth per {unit.name}, period in {unit.plural}"
        rows = [
            [
                ", ".join(str(number + 1) for number in mode.numbers),
                "yes" if mode.reliable else "no",
                f"{mode.digits:.1f}",
                f"{mode.frequency:.5g}",
                unit.period(mode.frequency) or "-",
                f"{mode.growth:+.4g}",
                f"{abs(mode.eigenvalue):.5g}",
                f"{mode.amplitude:.4g}",
            ]
            for mode in rows_shown(found)
        ]
        drawn = [mode.numbers[0] for mode in found[:SHOWN_SCORES]]
        contents = {
            "figures": [
                of_circle(found, view.id("circle")),
                of_amplitudes(found, unit, view.id("amplitudes")),
            ]
            if view.drawn
            else [],
            "figures_caption": "Eigenvalues of one step: modes inside the circle decay, those outside grow; larger marks have larger amplitudes. "
            "Modes that are conjugates of each other are one in the table." + first_of(len(rows), len(found)),
            "table": {"caption": caption, "head": head, "rows": rows},
            **scores_of(view, drawn, is_complex=True, phases=False),
        }
        return contents, [about(mode, unit) for mode in found]

    @classmethod
    def shown(cls, stored: StoredAnalysis, array: Stored, count: int, group: str = "") -> list[list[Lead]]:
        return [[(mode.numbers[0],)] for mode in modes(stored)[0][:count]]

    @classmethod
    def n_maps(cls, stored: StoredAnalysis) -> int:
        return len(modes(stored)[0])


def of_modes(kind: str, rows: Samples, found: Modes, step: str) -> Answer:
    """The answer of dynamic modes."""
    axis = row_axis(rows.axis)
    per = {"units": f"1 / ({step})"}
    values = {
        "eigenvalues": (found.eigenvalues, {"long_name": f"of a step of {found.step:g} ({step})"}),
        "exponents": (found.exponents, per),
        "frequencies": (found.frequencies, per),
        "growth_rates": (found.growth_rates, per),
        "amplitudes": (found.amplitudes, {}),
    }
    arrays = {name: Array(array, (COMPONENT,), attributes) for name, (array, attributes) in values.items()}
    unit = step if step[:1].isdigit() else f"1 {step}"  # 1 month, as regular steps are called
    arrays["step"] = Array(np.array(found.step), (), {"units": unit, "long_name": "by which eigenvalues lead"})
    arrays["scores"] = Array(found.scores, (axis.name, COMPONENT))
    maps = Maps(found.coefficients, (), "no", np.asarray, with_mean(rows.products, found.coefficients))
    return answer_of_maps(kind, rows, found.error, found.amplification, found.rank, arrays, axis, maps)


@dataclass(frozen=True)
class Mode:
    """A dynamic mode, or a pair of modes that are conjugates of each other."""

    numbers: tuple[int, ...]
    eigenvalue: complex
    """Eigenvalue of a step of the rows; that of the pair whose frequency is above 0."""
    frequency: float
    """Per unit, 0 or above."""
    growth: float
    """Per unit; below 0 where it decays."""
    amplitude: float
    digits: float
    reliable: bool

    @property
    def called(self) -> str:
        """Mode 2, or modes 0 and 1."""
        return f"Mode{'s' * (len(self.numbers) > 1)} {' and '.join(str(number + 1) for number in self.numbers)}"


def modes(analysis: StoredAnalysis) -> tuple[list[Mode], Unit]:
    """Modes of dmd and optimized_dmd, the strongest first; conjugates are one."""
    unit = Unit.of(analysis["frequencies"])
    exponents, eigenvalues = (np.asarray(analysis[name][...]) for name in ("exponents", "eigenvalues"))
    frequencies, growth, amplitudes, digits = (
        values_of(analysis[name]) for name in ("frequencies", "growth_rates", "amplitudes", "digits")
    )
    found, number = list[Mode](), 0
    while number < len(exponents):
        here, nearby = exponents[number], exponents[number + 1 : number + 2]
        pair = here.imag != 0 and (np.abs(nearby - here.conj()) <= SAME * abs(here)).any()
        numbers = (number, number + 1) if pair else (number,)
        found.append(
            Mode(
                numbers,
                complex(eigenvalues[number]),
                abs(float(frequencies[number])) / unit.number,
                float(growth[number]) / unit.number,
                float(amplitudes[number]),
                float(digits[number]),
                bool(analysis.certificate["reliable"][number]),
            )
        )
        number += len(numbers)
    return found, unit


def about(mode: Mode, unit: Unit) -> str:
    """A mode and its period, in words."""
    period = unit.period(mode.frequency)
    return f"{mode.called}, " + (f"period {unit.counted(period)}" if period else "without oscillation")


def of_circle(modes: Sequence[Mode], name: str) -> Figure:
    """Eigenvalues of a step, and the circle on which modes neither grow nor decay; areas follow amplitudes."""
    around = np.linspace(0, 2 * np.pi, 361)
    marks: list[Mark] = [
        Line(np.cos(around), np.sin(around), width=0.7, opacity=0.7),
        Rule(0.0, "x", width=0.4, opacity=0.4),
        Rule(0.0, "y", width=0.4, opacity=0.4),
    ]
    most = max(mode.amplitude for mode in modes) or 1.0
    for reliable in (True, False):
        some = [mode for mode in modes if mode.reliable == reliable]
        # Marks of one size are drawn together: amplitudes are told by four of them.
        for quarter in range(4):
            points = [
                value
                for mode in some
                if min(3, int(4 * mode.amplitude / most)) == quarter
                for value in {mode.eigenvalue, other_of(mode)}
                if math.isfinite(value.real) and math.isfinite(value.imag)
            ]
            if points:
                x, y = (np.array([getattr(value, part) for value in points]) for part in ("real", "imag"))
                size = 4.0 + 2.5 * quarter
                label = ("reliable" if reliable else "not reliable") if not all(one.reliable for one in modes) else ""
                marks.append(
                    Points(x, y, size=size, label=label)
                    if reliable
                    else Points(x, y, COLORS[1], "square", size, hollow=True, label=label)
                )
    panel = Panel(tuple(marks), Scale("real part of the eigenvalue"), Scale("imaginary part"), ratio=1.0)
    return Figure(
        name, "eigenvalues of modes", ((panel,),), 320, 400, about="Eigenvalues of modes in the complex plane"
    )


def of_amplitudes(modes: Sequence[Mode], unit: Unit, name: str) -> Figure:
    """The amplitude of each mode at its frequency."""
    at, sizes = np.array([mode.frequency for mode in modes]), np.array([mode.amplitude for mode in modes])
    reliable = np.array([mode.reliable for mode in modes])
    low = 0.5 * float(sizes[sizes > 0].min(initial=1.0))
    panel = Panel(
        (
            Upright(at, np.full(len(at), low), sizes, COLORS[0]),
            Points(at[reliable], sizes[reliable], label="reliable" if not reliable.all() else ""),
            not_reliable(at[~reliable], sizes[~reliable]),
        )[: 2 + (not reliable.all())],
        Scale(f"frequency (per {unit.name})"),
        Scale("amplitude", (low, 1.3 * float(sizes.max(initial=2 * low))), log=True),
    )
    return Figure(name, "amplitudes of modes", ((panel,),), 320, 420, about="Amplitudes of modes at their frequencies")


def other_of(mode: Mode) -> complex:
    """The eigenvalue of the other of a pair."""
    return mode.eigenvalue.conjugate() if len(mode.numbers) > 1 else mode.eigenvalue
