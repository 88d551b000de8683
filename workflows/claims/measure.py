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
    "PCA, side by side": {"block_scaling": "total_variance"},
    "PCA, side by side, MFA": {"block_scaling": "first_eigenvalue"},
    "KernelPCA": {"kernel": "linear"},
    "KernelPCA, single": {"kernel": "linear", "precision": "single"},
    "KernelPCA, double": {"kernel": "linear", "precision": "double"},
    "KernelPCA, rbf": {"kernel": "rbf", "gamma": "median"},
    "KernelPCA, rbf, single": {"kernel": "rbf", "gamma": "median", "precision": "single"},
}
"""What is called: a name, and the parameters. Side by side are two halves of the features, with `block_scaling`."""
SAMPLES = (3, 8, 30, 100)
MANY = {"white float32": 500, "smooth field in kelvin": 300, "graded values": 300, "images": 300}
"""Kinds that are tried with more samples, too."""
COMPONENTS = 10
BESIDE = ": beside the components"
"""What is said of the variance beyond them, which noise and likelihood follow from."""
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
    """Relative, of the singular value."""
    reliable: bool

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
    linear = singular_values(flat)
    known: dict[float, Any] = {}
    found = []
    for run, parameters in RUNS.items():
        kernel = parameters.get("kernel")
        if kernel and not given.get("center", True):
            continue  # a kernel sees samples as they are, and these are about their mean
        estimator = (KernelPCA if kernel else PCA)(min(COMPONENTS, len(x) - 1, flat.shape[1]), **parameters, **given)
        halves = "block_scaling" in parameters
        if halves and flat.shape[1] < 2:
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)  # what is not known is not claimed
                certificate = estimator.fit(halved(x) if halves else x).certificate_
        except DpcaError:
            continue  # refused, with its reason: nothing is claimed
        true = singular_values(balanced(flat, parameters["block_scaling"])) if halves else linear
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
            beyond = (true[estimator.n_components_ :] ** 2).sum() / (len(x) - 1)
            found += beside(kind, len(x), run, certificate, float(beyond))
    return found


def beside(kind: str, n_samples: int, run: str, certificate: dict[str, Any], beyond: float) -> list[Claim]:
    """The claim about the variance beyond the components, if a number is shown."""
    given = certificate["projection_error"]
    if not given["value"]:
        return []
    digits = min(15.0, -np.log10(max(given["error"] / given["value"], 1e-15)))
    error = abs(given["value"] - beyond) / beyond if beyond > 0 else np.inf
    return [Claim(kind, n_samples, f"{run}{BESIDE}", -1, float(digits), error, True)]


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
        print(row(run, [claim for claim in claims if claim.run == run]))
    print(row("all of PCA" + BESIDE, [claim for claim in claims if claim.run.endswith(BESIDE)]))
    print(row("all", claims))
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
