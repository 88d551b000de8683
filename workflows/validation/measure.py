"""Rules for the number of components, on data whose number of factors is known: white, unequal and autocorrelated noise.

Each array goes through `dpca.PCA(n_components="bi_cross_validation")` as a user calls it, and the certificate has what each rule finds. Prints a
table of medians and ranges; ends with 1 where bi-cross-validation is not right in the median.
"""

from __future__ import annotations

import argparse
import sys
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter

import dpca
from dpca.errors import AssumptionError

N, D = 200, 20_000
FACTORS = (0, 5)
STRENGTH = 1000.0
"""Variance of a factor, summed over features, in variances of the noise; from about sqrt(d / n) = 10 on, it shows in white noise."""
RULES = ("bi_cross_validation", "marchenko_pastur", "gavish_donoho", "broken_stick")


def white(rng: np.random.Generator) -> NDArray[np.float64]:
    """Independent, of variance 1."""
    return rng.standard_normal((N, D))


def unequal(rng: np.random.Generator) -> NDArray[np.float64]:
    """Standard deviations of features are lognormal: the largest is a thousand times the smallest."""
    return white(rng) * rng.lognormal(size=D)


def autocorrelated(rng: np.random.Generator) -> NDArray[np.float64]:
    """A correlation of 0.9 between neighbouring features."""
    return np.asarray(lfilter([np.sqrt(1 - 0.9**2)], [1, -0.9], white(rng), axis=1))


def in_time(rng: np.random.Generator) -> NDArray[np.float64]:
    """A correlation of 0.5 between neighbouring samples, which no rule is for."""
    return np.asarray(lfilter([np.sqrt(1 - 0.5**2)], [1, -0.5], white(rng), axis=0))


NOISES: dict[str, Callable[[np.random.Generator], NDArray[np.float64]]] = {
    "white": white,
    "unequal": unequal,
    "autocorrelated": autocorrelated,
    "along samples": in_time,
}


def found(noise: str, n_factors: int, trial: int, strength: float) -> dict[str, int | str]:
    """What each rule finds: a number, or why it finds none."""
    rng = np.random.default_rng([zlib.crc32(noise.encode()), n_factors, trial])
    x = NOISES[noise](rng)
    if n_factors:
        loadings = np.linalg.qr(rng.standard_normal((D, n_factors)))[0]
        x += np.sqrt(strength * np.mean(x**2)) * rng.standard_normal((N, n_factors)) @ loadings.T
    refused = {}
    try:
        fitted = dpca.PCA("bi_cross_validation").fit(x.astype(np.float32))
    except AssumptionError:
        fitted, refused = dpca.PCA(10).fit(x.astype(np.float32)), {RULES[0]: "refuses"}
    suggested: dict[str, int | str] = fitted.certificate_["n_components"]["suggested"]
    return {**suggested, **refused}


def told(values: list[int | str]) -> str:
    """The median, and the range where values differ; in how many trials a rule refused."""
    numbers = [value for value in values if not isinstance(value, str)]
    refused = len(values) - len(numbers)
    if not numbers:
        return "refuses"
    low, high = min(numbers), max(numbers)
    words = f"{np.median(numbers):g}" + (f" ({low}-{high})" if low < high else "")
    return words + (f", refuses {refused}" if refused else "")


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--strength", type=float, default=STRENGTH)
    parser.add_argument("--noise", choices=NOISES, nargs="+", default=list(NOISES))
    given = parser.parse_args()
    trials = given.trials
    print(
        f"n = {N}, d = {D:,}, factors of {given.strength:g} variances of the noise, {trials} trials: median (range)\n"
    )
    print(f"| noise | factors | {' | '.join(RULES)} |\n| --- | --- |{' --- |' * len(RULES)}")
    wrong = 0
    for noise in given.noise:
        for n_factors in FACTORS:
            each: list[dict[str, Any]] = [found(noise, n_factors, trial, given.strength) for trial in range(trials)]
            print(
                f"| {noise} | {n_factors} | {' | '.join(told([one[rule] for one in each]) for rule in RULES)} |",
                flush=True,
            )
            ours = [one[RULES[0]] for one in each]
            if noise == "along samples":  # any number would be wrong
                wrong += not all(isinstance(one, str) for one in ours)
            else:
                wrong += any(isinstance(one, str) for one in ours) or np.median(ours) != n_factors
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
