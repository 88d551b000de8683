"""What products in single precision cost: the error of the Gram matrix against float64 throughout.

Random features, centred in float64 as dpca does, are multiplied in float32 and in float64, panel by panel, and
both are added up in float64. Prints the largest entry of |K_single - K_double| over the largest of |K|, against
the number of features and the width of a panel. Nothing is stored, so d may be as large as one has time for.
"""

import argparse

import numpy as np

KINDS = {
    "white": "independent standard normal values",
    "few factors": "rank 5 and a tenth of noise: products of like signs, whose errors add up",
    "far mean": "mean 280, spread 1: centred in float64, then rounded",
    "upsampled": "every column 512 times: sums of equal terms round in one direction",
    "constant": "one column, as a picture's background: the same, without end",
}


def features(kind: str, n_samples: int, width: int, factors: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A centred block of features, float64."""
    values = rng.standard_normal((n_samples, width))
    if kind == "few factors":
        values = factors @ rng.standard_normal((factors.shape[1], width)) + 0.1 * values
    if kind == "far mean":
        values = (values + 280).astype(np.float32).astype(np.float64)
    if kind == "upsampled":
        values = np.repeat(values[:, ::512], 512, axis=1)[:, :width]
    if kind == "constant":
        values = np.repeat(factors[:, :1], width, axis=1)
    return values - values.mean(axis=0)


def errors(kind: str, n_samples: int, marks: list[int], widths: list[int]) -> np.ndarray:
    """Relative errors, (numbers of features, widths)."""
    rng = np.random.default_rng(0)
    factors = rng.standard_normal((n_samples, 5))
    block = max(widths)
    exact = np.zeros((n_samples, n_samples))
    single = [np.zeros_like(exact) for _ in widths]
    found, done = [], 0
    for mark in marks:
        while done < mark:
            values = features(kind, n_samples, min(block, mark - done), factors, rng)
            done += values.shape[1]
            exact += values @ values.T
            rounded = values.astype(np.float32)
            for total, width in zip(single, widths, strict=True):
                for start in range(0, rounded.shape[1], width):
                    panel = rounded[:, start : start + width]
                    total += panel @ panel.T
        found.append([np.abs(total - exact).max() / np.abs(exact).max() for total in single])
    return np.array(found)


def main() -> None:
    """Print a table for each kind of data."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=100)
    parser.add_argument("--features", type=int, nargs="+", default=[10**4, 10**5, 10**6])
    parser.add_argument("--widths", type=int, nargs="+", default=[256, 1024, 4096, 16384])
    given = parser.parse_args()
    for kind, meaning in KINDS.items():
        print(f"\n{kind} ({meaning}), {given.samples} samples\n")
        print("| features | " + " | ".join(f"panels of {width}" for width in given.widths) + " |")
        print("| --- " * (1 + len(given.widths)) + "|")
        for mark, row in zip(given.features, errors(kind, given.samples, given.features, given.widths), strict=True):
            print(f"| {mark:.0e} | " + " | ".join(f"{error:.1e}" for error in row) + " |")


main()
