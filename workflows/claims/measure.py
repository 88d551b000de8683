"""The digits that certificates claim, against singular values that are known to more digits.

Every kind of data (`kinds`), with few and with many samples, goes through `PCA` and `KernelPCA` as a user calls them. A
claim is one component's `digits`; it is violated where the relative error of its singular value is larger than
10^-digits. Prints a table by what was called, one by kind of data with --kinds, and the worst claims; ends with 1 where the
limits are not kept: violated once in 200 times, never by more than a factor of 2, and no looser than 1.5 digits in the median.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
import zlib
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from workflows.claims.beside import plain, said, weighted, without
from workflows.claims.kinds import KINDS, OPTIONS
from workflows.claims.truth import centred, kernel_values, singular_values

RUNS: dict[str, dict[str, Any]] = {
    "PCA": {},
    "PCA, single": {"precision": "single"},
    "PCA, double": {"precision": "double", "svd_solver": "gram_eigh"},
    "PCA, tsqr": {"svd_solver": "tsqr"},
    "PCA, block_krylov": {"svd_solver": "block_krylov"},
    "PCA, block_krylov, single": {"svd_solver": "block_krylov", "precision": "single"},
    "PCA, block_krylov, narrow": {"svd_solver": "block_krylov", "block_krylov": {"block": 10, "max_passes": 4}},
    "PCA, block_krylov, windows": {
        "svd_solver": "block_krylov",
        "block_krylov": {"block": 12, "windows": True},
    },
    "PCA, weights": {"sample_weight_kind": "reliability"},
    "PCA, weights, tsqr": {"sample_weight_kind": "reliability", "svd_solver": "tsqr"},
    "PCA, frequencies": {"sample_weight_kind": "frequency"},
    "PCA, covariates": {"regress_out": {}},
    "PCA, covariates, tsqr": {"regress_out": {}, "svd_solver": "tsqr"},
    "PCA, side by side": {"block_scaling": "total_variance"},
    "PCA, side by side, MFA": {"block_scaling": "first_eigenvalue"},
    "KernelPCA": {"kernel": "linear"},
    "KernelPCA, single": {"kernel": "linear", "precision": "single"},
    "KernelPCA, double": {"kernel": "linear", "precision": "double"},
    "KernelPCA, rbf": {"kernel": "rbf", "gamma": "median"},
    "KernelPCA, rbf, single": {"kernel": "rbf", "gamma": "median", "precision": "single"},
}
"""What is called: a name, and the parameters. Side by side are two halves of the features, with `block_scaling`; weights and covariates
are drawn."""
SAMPLES = (3, 8, 30, 100)
MANY = {"white float32": 500, "smooth field in kelvin": 300, "graded values": 300, "images": 300}
"""Kinds that are tried with more samples, too."""
COMPONENTS = 10
BESIDE = ("projection error", "noise", "likelihood", "share", "rule")
"""What is said beside the components (`beside`)."""
SHARE, FACTOR, LOOSE = 1 / 200, 2.0, 1.5
"""The limits."""


@dataclass(frozen=True)
class Claim:
    """What a certificate said of one component, and what was so."""

    kind: str
    n_samples: int
    run: str
    index: int
    digits: float
    error: float
    """Relative, of the singular value or what else is shown."""
    reliable: bool
    what: str = "component"

    @property
    def beyond(self) -> float:
        """How many times the error is what was claimed."""
        return self.error * 10**self.digits

    @property
    def loose(self) -> float:
        """Digits that are there and were not claimed; 15 are the most that can be."""
        return min(15.0, -np.log10(max(self.error, 1e-15))) - self.digits


def claims_of(kind: str, n_samples: int, seed: int) -> list[Claim]:
    """All claims about one array."""
    from dpca import PCA, KernelPCA
    from dpca.errors import DpcaError

    g = np.random.default_rng([zlib.crc32(kind.encode()), n_samples, seed])
    x, given = KINDS[kind](g, n_samples), OPTIONS.get(kind, {})
    flat = centred(x, **given)
    plainly = plain(flat)
    linear = singular_values(flat)
    # A rule counts every feature that has a value, but those that can't be scaled.
    counted = int(((np.ptp(flat, axis=0) > 0) if "scale" in given else np.isfinite(x.reshape(len(x), -1)).any(0)).sum())
    known: dict[float, Any] = {}
    found = []
    for run, given_keys in RUNS.items():
        parameters = dict(given_keys)
        kernel = parameters.get("kernel")
        if kernel and not given.get("center", True):
            continue  # a kernel sees samples as they are, and these are about their mean
        halves = "block_scaling" in parameters
        if halves and flat.shape[1] < 2:
            continue
        fitted, true, weights = plainly, linear, None
        if "sample_weight_kind" in parameters:
            if given:
                continue  # scales and means of what is present have weights, too
            weights = drawn_weights(g, len(x), parameters["sample_weight_kind"])
            fitted = weighted(flat, weights, parameters["sample_weight_kind"])
        elif "regress_out" in parameters:
            if given or len(x) < 8:
                continue
            covariates = drawn_covariates(g, len(x))
            parameters["regress_out"] = {"covariates": covariates}
            fitted = without(flat, covariates)
        elif halves:
            fitted = plain(balanced(flat, parameters["block_scaling"]))
        if fitted is not plainly:
            true = singular_values(fitted.rows)
        estimator = (KernelPCA if kernel else PCA)(min(COMPONENTS, len(x) - 1, flat.shape[1]), **parameters, **given)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)  # what is not known is not claimed
                more = {} if weights is None else {"sample_weight": weights}
                certificate = estimator.fit(halved(x) if halves else x, **more).certificate_
        except DpcaError:
            continue  # refused, with its reason: nothing is claimed
        if kernel == "rbf":
            if estimator.gamma_ not in known:
                known[estimator.gamma_] = kernel_values(flat, estimator.gamma_)
            true = known[estimator.gamma_]
        for component in certificate["components"]:
            value, index = component["singular_value"], component["index"]
            if value > 0:
                error = float(abs(value - true[index]) / true[index]) if true[index] > 0 else np.inf
                found.append(Claim(kind, len(x), run, index, component["digits"], error, component["reliable"]))
        if not kernel:
            by_rules = counted if fitted is plainly and given.get("center", True) else None
            for what, value, claimed, truth in said(fitted, true, estimator, by_rules):
                off = 0.0 if value == truth else abs(value - truth) / abs(truth) if truth else np.inf
                digits = min(15.0, -np.log10(max(claimed / (abs(value) or 1.0), 1e-15)))
                found.append(Claim(kind, len(x), run, -1, float(digits), float(off), digits >= 2, what))
    return found


def drawn_weights(g: np.random.Generator, n: int, kind: str) -> NDArray[Any]:
    """Numbers of times, or trust over four orders of magnitude."""
    return g.integers(1, 6, n).astype(float) if kind == "frequency" else 10 ** g.uniform(-4, 0, n)


def drawn_covariates(g: np.random.Generator, n: int) -> NDArray[Any]:
    """A trend of any size beside the data, and noise."""
    return np.column_stack([10 ** g.uniform(0, 6) * np.arange(n), g.standard_normal(n)])


def halved(x: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Two halves of the features."""
    flat = x.reshape(len(x), -1)
    half = flat.shape[1] // 2
    return {"left": flat[:, :half], "right": flat[:, half:]}


def balanced(flat: NDArray[Any], scaling: str) -> NDArray[Any]:
    """X_c with each half divided by the root of its total variance, or of its first eigenvalue, in longdouble."""
    half = flat.shape[1] // 2
    parts = [flat[:, :half], flat[:, half:]]
    total = scaling == "total_variance"
    sizes = [((part**2).sum() if total else singular_values(part)[0] ** 2) / (len(flat) - 1) for part in parts]
    return np.hstack([part / np.sqrt(size) if size > 0 else part for part, size in zip(parts, sizes, strict=True)])


def row(name: str, claims: list[Claim]) -> str:
    """A line of a table."""
    made = [claim for claim in claims if claim.digits > 0]
    if not made:
        return f"| {name} | {len(claims)} | 0 | | | | |"
    violated = [claim for claim in made if claim.beyond > 1]
    digits = np.median([claim.digits for claim in made])
    wrong = sum(claim.reliable and claim.error > 1e-2 for claim in claims)
    return (
        f"| {name} | {len(claims)} | {len(made)} | {digits:.1f} | {np.median([claim.loose for claim in made]):.2f} | "
        f"{len(violated)} | {max((claim.beyond for claim in violated), default=0.0):.1f} | {wrong} |"
    )


HEAD = (
    "| {} | components | claims | digits, median | looser by, median | violated | at worst, times | reliable and 1 % off |\n"
    "| --- | --- | --- | --- | --- | --- | --- | --- |"
)


def main() -> int:
    """Run the campaign; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="a further campaign, on other data of the same kinds")
    parser.add_argument("--kind", choices=KINDS, action="append", help="only these kinds")
    parser.add_argument("--samples", type=int, action="append", help="only so many samples")
    parser.add_argument("--kinds", action="store_true", help="a table by kind of data, too")
    given = parser.parse_args()
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    kinds = given.kind or list(KINDS)
    arrays = list(product(kinds, given.samples or SAMPLES))
    if not given.samples:
        arrays = [(kind, MANY[kind]) for kind in kinds if kind in MANY] + arrays
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        found = list(pool.map(claims_of, *zip(*arrays, strict=True), [given.seed] * len(arrays)))
    claims = [claim for some in found for claim in some]
    print(HEAD.format("called"))
    for run in RUNS:
        print(row(run, [claim for claim in claims if claim.run == run and claim.what == "component"]))
    print(row("all", [claim for claim in claims if claim.what == "component"]))
    print("\n" + HEAD.format("beside the components"))
    for what in BESIDE:
        print(row(what, [claim for claim in claims if claim.what == what]))
    if given.kinds:
        print("\n" + HEAD.format("data"))
        for kind in kinds:
            print(row(kind, [claim for claim in claims if claim.kind == kind]))
    made = [claim for claim in claims if claim.digits > 0]
    violated = sorted((claim for claim in made if claim.beyond > 1), key=lambda claim: -claim.beyond)
    print(f"\n{len(kinds)} kinds of data, {len(arrays)} arrays, seed {given.seed}. The worst claims:")
    for claim in violated[:10]:
        print(f"  {claim.beyond:.2f} times what was claimed: {claim}")
    for claim in claims:
        if claim.reliable and claim.error > 1e-2:
            print(f"  reliable, and wrong: {claim}")
    kept = (
        len(violated) <= SHARE * len(made)
        and all(claim.beyond <= FACTOR for claim in violated)
        # block_krylov ends where its tolerance is met: more digits may be there, and are not looked for.
        and np.median([claim.loose for claim in made if "block_krylov" not in claim.run]) <= LOOSE
        and not any(claim.reliable and claim.error > 1e-2 for claim in claims)
    )
    print("the limits are kept" if kept else "THE LIMITS ARE NOT KEPT")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
