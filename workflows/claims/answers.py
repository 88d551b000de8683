"""The digits that answers from a stored matrix claim, beside the same operators on the data in longdouble.

    python -m workflows.claims.answers --seed 0

Chains of one to three operators are drawn, and applied to the samples and to their Gram matrix, in single and double precision, or its
factor (tsqr). What they leave has components, components of windows (extended EOFs) and, at two frequencies, of blocks (SPOD). A claim
is one component's; it is violated where the relative error of its eigenvalue is larger than `error`. Where the
operators leave nothing but rounding, an answer has to say so, or to have no component that is reliable. Ends with 1 where claims are
violated more than once in 500 times, by a factor of more than 2, or where a reliable one is off by more than 1 %.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from dpca.cli.app import main as dpca
from dpca.derived.extended import extended
from dpca.derived.filters import Butterworth, RunningMean
from dpca.derived.fits import Detrend
from dpca.derived.gram import AnyProducts, Transformed, products_of, transformed
from dpca.derived.groups import Anomalies, Between, GroupMeans
from dpca.derived.hilbert import Analytic
from dpca.derived.operators import Center, Chain, Difference, Operator, SelectRows
from dpca.derived.pca import UpTo, pca
from dpca.derived.spod import spod
from dpca.errors import ConfigError, DataError
from dpca.numerics.sketch import RELIABLE
from dpca.store.gram import read_gram
from dpca.store.results import open_result
from workflows.claims.truth import singular_values

Long = np.longdouble
N, D, COMPONENTS = 60, 400, 10
LAGS, BLOCK, FREQUENCIES = 4, 12, (0.0, 0.25)
SHARE, FACTOR = 1 / 500, 2.0
DATA: dict[str, Callable[[Generator], NDArray[Any]]] = {
    "white": lambda g: g.standard_normal((N, D)),
    "walk": lambda g: g.standard_normal((N, 6)).cumsum(0) @ g.standard_normal((6, D)) + 0.3 * g.standard_normal((N, D)),
    "season in kelvin": lambda g: (
        285 + 60 * np.outer(np.sin(np.arange(N) * np.pi / 6), g.standard_normal(D)) + g.standard_normal((N, D))
    ),
    "graded": lambda g: (g.standard_normal((N, 12)) * np.logspace(0, -7, 12)) @ g.standard_normal((12, D)),
    "few dimensions": lambda g: g.standard_normal((N, 5)) @ g.standard_normal((5, D)),
    "far mean": lambda g: 1e6 + g.standard_normal((N, D)),
}
SOLVERS: dict[str, dict[str, Any]] = {
    "gram in single": {"svd_solver": "gram_eigh", "precision": "single"},
    "gram in double": {"svd_solver": "gram_eigh", "precision": "double"},
    "tsqr": {"svd_solver": "tsqr"},
}


def operators(n: int, g: Generator) -> dict[str, Callable[[], Operator]]:
    """Operators on n samples, by name."""
    times, months, years = np.arange(n) * 0.5, np.arange(n) % 6, np.arange(n) // 5
    low = float(g.uniform(0.1, 0.4))
    return {
        "select": lambda: SelectRows(g.integers(0, n, max(n - 10, 2)), n),
        "center": lambda: Center(n),
        "difference": lambda: Difference(n, int(g.integers(1, 4))),
        "anomalies": lambda: Anomalies(months),
        "anomalies of years": lambda: Anomalies(years),
        "between": lambda: Between(months),
        "means": lambda: GroupMeans(years),
        "detrend": lambda: Detrend(times, int(g.integers(1, 4))),
        "running mean": lambda: RunningMean(times, int(g.integers(2, 7))),
        "low-pass": lambda: Butterworth(times, (None, low), int(g.integers(1, 5))),
        "high-pass": lambda: Butterworth(times, (low, None), int(g.integers(1, 5))),
        "hilbert": lambda: Analytic(n, "exp"),
    }


def drawn(g: Generator) -> tuple[Chain, list[str]]:
    """A chain of one to three operators, and their names."""
    made: list[Operator] = []
    names: list[str] = []
    for _ in range(int(g.integers(1, 4))):
        n = made[-1].n_out if made else N
        if "hilbert" in names or n < 30:
            break
        available = operators(n, g)
        names.append(str(g.choice(list(available))))
        made.append(available[names[-1]]())
    return Chain(N, tuple(made)), names


def products(x: NDArray[Any], solver: str) -> AnyProducts:
    """What a run on these samples keeps."""
    with (
        TemporaryDirectory(prefix="dpca-claims-") as place,
        redirect_stdout(io.StringIO()),
        redirect_stderr(io.StringIO()),
    ):
        np.save(f"{place}/x.npy", x)
        keys = {"n_components": 1, **SOLVERS[solver]}
        config = {"input": {"uri": f"{place}/x.npy"}, "model": keys, "output": {"path": f"{place}/r", "report": False}}
        Path(place, "c.yaml").write_text(json.dumps(config))
        with suppress(SystemExit):
            dpca(["run", f"{place}/c.yaml"])
        return products_of(read_gram(open_result(f"{place}/r")))


def truth(x: NDArray[Any], chain: Chain) -> tuple[NDArray[Any], float]:
    """What the chain leaves, in longdouble, and what rounding of that leaves of nothing."""
    long = x.astype(Long)
    rows = chain.through(long - long.mean(axis=0) if chain.removes_mean else long)
    return rows, float(1e-30 * (long**2).sum())


def eigenvalues(rows: NDArray[Any]) -> NDArray[Any]:
    """Of rows times their conjugate transpose, in longdouble."""
    if np.iscomplexobj(rows):  # every eigenvalue of the real form of a Hermitian matrix is there twice
        return singular_values(np.block([[rows.real, -rows.imag], [rows.imag, rows.real]]))[::2] ** 2
    return singular_values(rows) ** 2


def windows(rows: NDArray[Any]) -> NDArray[Any]:
    """Rows and those LAGS - 1 after them, about their mean."""
    number = len(rows) - LAGS + 1
    beside = np.hstack([rows[lag : lag + number] for lag in range(LAGS)])
    return beside - beside.mean(axis=0)


def blocks(rows: NDArray[Any], frequency: float) -> NDArray[Any]:
    """The Fourier sums of half-overlapping blocks under Hann's window, of which densities are the squares."""
    pi = 4 * np.arctan(Long(1))
    at = np.arange(BLOCK).astype(Long)
    window = (1 - np.cos(2 * pi * at / BLOCK)) / 2
    # Of real rows, those above 0 and below Nyquist stand for two.
    inner = 2 if not np.iscomplexobj(rows) and 0 < frequency < 0.5 else 1
    phases = 2 * pi * Long(frequency) * at
    factors = window * (np.cos(phases) - 1j * np.sin(phases)) * np.sqrt(inner / (window**2).sum())
    starts = range(0, len(rows) - BLOCK + 1, BLOCK // 2)
    return np.array([factors @ rows[start : start + BLOCK] for start in starts]) / np.sqrt(Long(len(starts)))


def answers(samples: Transformed, rows: NDArray[Any]) -> Iterator[tuple[str, NDArray[Any], NDArray[Any], NDArray[Any]]]:
    """An analysis, its eigenvalues, their relative errors, and what they are of the same rows in longdouble."""
    found = pca(samples, UpTo(COMPONENTS))
    yield "components", found.eigenvalues, found.error, eigenvalues(rows)
    of_windows = extended(samples, LAGS, n_components=UpTo(COMPONENTS))
    yield "components of windows", of_windows.eigenvalues, of_windows.error, eigenvalues(windows(rows))
    if len(rows) >= 2 * BLOCK:
        spectrum = spod(samples, np.arange(float(samples.n)), BLOCK, window="hann", frequencies=FREQUENCIES)
        for index, frequency in enumerate(spectrum.frequencies):
            true = eigenvalues(blocks(rows, float(frequency)))
            yield "spectral components", spectrum.energies[index], spectrum.error[index], true


@dataclass(frozen=True)
class Claim:
    """What was said of one eigenvalue, and what was so."""

    analysis: str
    error: float
    """Relative, as it was claimed."""
    off: float
    """As it was."""
    where: str

    @property
    def beyond(self) -> float:
        """How many times the error is what was claimed."""
        return self.off / self.error


def claims_of(number: int, seed: int) -> tuple[list[Claim], int]:
    """All claims about one chain, and how many answers were that nothing is left."""
    g = np.random.default_rng([seed, number])
    kind = list(DATA)[number % len(DATA)]
    x, (chain, names) = DATA[kind](g), drawn(g)
    made, nothing = [], 0
    for solver in SOLVERS:
        given = x.astype("f4") if "single" in solver else x
        rows, least = truth(given, chain)
        where = f"{kind}, {solver}: {', '.join(names)}; --seed {seed}, chain {number}"
        try:
            for analysis, values, errors, known in answers(transformed(products(given, solver), chain), rows):
                for value, error, true in zip(values, errors, known, strict=False):
                    if value > 0 and np.isfinite(error):
                        off = float(abs(value - true) / true) if true > least else np.inf
                        made.append(Claim(analysis, float(error), off, where))
        except (DataError, ConfigError):
            nothing += 1
    return made, nothing


def campaign(seed: int, chains: int) -> bool:
    """Whether the limits are kept."""
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        found = list(pool.map(claims_of, range(chains), [seed] * chains))
    claims = [claim for some, _ in found for claim in some]
    print("| answer | claims | violated | at worst, times | reliable and 1 % off | looser by, median |")
    print("| --- | --- | --- | --- | --- | --- |")
    for analysis in dict.fromkeys(claim.analysis for claim in claims):
        of_it = [claim for claim in claims if claim.analysis == analysis]
        most = max((claim.beyond for claim in of_it if claim.beyond > 1), default=0.0)
        loose = np.median([np.log10(max(claim.error, 1e-15) / max(claim.off, 1e-15)) for claim in of_it])
        print(
            f"| {analysis} | {len(of_it)} | {sum(claim.beyond > 1 for claim in of_it)} | {most:.3g} | {sum(map(wrong, of_it))} | {loose:.2f} |"
        )
    print(
        f"\n{chains} chains, three solvers each; {sum(nothing for _, nothing in found)} times nothing was left, and that was said."
    )
    violated = sorted((claim for claim in claims if claim.beyond > 1), key=lambda claim: -claim.beyond)
    for claim in violated[:10]:
        print(f"  {claim.beyond:.3g} times what was claimed: {claim}")
    return len(violated) <= SHARE * len(claims) and all(
        claim.beyond <= FACTOR and not wrong(claim) for claim in violated
    )


def wrong(claim: Claim) -> bool:
    """Whether it was called reliable, and is off by more than 1 %."""
    return claim.error <= RELIABLE < claim.off


def main() -> int:
    """Run the campaign; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--chains", type=int, default=240)
    given = parser.parse_args()
    return 0 if campaign(given.seed, given.chains) else 1


if __name__ == "__main__":
    sys.exit(main())
