"""Kinds of data that the claims are held against: what users have, and what rounds badly.

Each kind is a function of a random generator and a number of samples, and gives an array with the samples first.
Where `PCA` needs more than the array (a scale, missing values), `OPTIONS` has it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

Kind = Callable[[Generator, int], NDArray[Any]]
WIDE = 6000
"""Features, where a kind has no number of its own: more than a panel of products."""
SIDE = 96
"""Of a picture, in pixels."""

OPTIONS: dict[str, dict[str, Any]] = {
    "z-scored images": {"scale": "std"},
    "z-scored genotypes": {"scale": "std"},
    "missing values": {"missing": "mean"},
    "missing values at a far mean": {"missing": "mean"},
    "raw, not centred": {"center": False},
}


def with_values(g: Generator, n: int, sigma: NDArray[Any], d: int = WIDE) -> NDArray[Any]:
    """Centred data with these singular values, as far as float64 holds them."""
    left = np.linalg.qr(np.column_stack([np.ones(n), g.standard_normal((n, len(sigma)))]))[0][:, 1:]
    right = np.linalg.qr(g.standard_normal((d, len(sigma))))[0]
    return (left * sigma) @ right.T


def constant_background(g: Generator, n: int) -> NDArray[Any]:
    """Pictures of one grey each, with a small patch that varies."""
    x = np.empty((n, SIDE, SIDE))
    x[:] = g.standard_normal((n, 1, 1))
    half = SIDE // 4
    patch = g.standard_normal((2 * half, 2 * half))
    x[:, half : 3 * half, half : 3 * half] += 0.02 * g.standard_normal((n, 1, 1)) * patch
    return x


def images(g: Generator, n: int) -> NDArray[Any]:
    """8-bit pictures: smooth shapes on a constant background."""
    y, x = np.mgrid[-1 : 1 : SIDE * 1j, -1 : 1 : SIDE * 1j]
    at = g.uniform(-0.3, 0.3, (n, 2, 1, 1))
    size = g.uniform(0.1, 0.4, (n, 1, 1))
    shape = np.exp(-((x - at[:, 0]) ** 2 + (y - at[:, 1]) ** 2) / size**2)
    return np.where(shape > 0.05, 60 + 180 * shape, 20).round().astype(np.uint8)


def smooth(g: Generator, n: int, size: int = SIDE) -> NDArray[Any]:
    """A field of a few waves, whose amplitudes fall as 1 / wave number^2."""
    y, x = np.mgrid[0 : 2 * np.pi : size * 1j, 0 : 2 * np.pi : size * 1j]
    waves = [np.sin(i * x + j * y + p) / (i + j) ** 2 for p in (0, 1) for i in range(1, 6) for j in range(1, 6)]
    return np.tensordot(g.standard_normal((n, len(waves))), np.array(waves), axes=1)


def upsampled(g: Generator, n: int, times: int) -> NDArray[Any]:
    """A coarse field on a fine grid: every value `times` times."""
    return np.repeat(g.standard_normal((n, max(8, 8192 // times))), times, axis=1)


def genotypes(g: Generator, n: int) -> NDArray[Any]:
    """0, 1 or 2 copies, of two populations."""
    shared = g.uniform(0.05, 0.95, WIDE)
    frequency = np.clip(shared + 0.1 * g.standard_normal((2, WIDE)), 0.02, 0.98)
    return g.binomial(2, frequency[g.integers(0, 2, n)]).astype(np.int8)


def near_equal(g: Generator, n: int) -> NDArray[Any]:
    """Singular values in pairs and threes that differ in the fifth digit."""
    k = min(n - 1, 12)
    return with_values(g, n, (1 + 1e-5 * g.standard_normal(k)) * 4.0 ** -(np.arange(k) // 3))


def repeated_rows(g: Generator, n: int) -> NDArray[Any]:
    """Few different samples, each many times."""
    some = g.standard_normal((max(2, n // 6), WIDE))
    return some[g.integers(0, len(some), n)]


def two_states(g: Generator, n: int) -> NDArray[Any]:
    """Two samples, many times each, and a little noise in half of the features."""
    x = g.standard_normal((2, WIDE))[np.arange(n) % 2]
    x[:, : WIDE // 2] += 1e-3 * g.standard_normal((n, WIDE // 2))
    return x


def with_holes(g: Generator, n: int, mean: float) -> NDArray[Any]:
    """One value in ten missing."""
    x = mean + g.standard_normal((n, 1)) * g.standard_normal(WIDE) + g.standard_normal((n, WIDE))
    x[g.random(x.shape) < 0.1] = np.nan
    return x


def laeuchli(g: Generator, n: int) -> NDArray[Any]:
    """[1 ... 1; mu I] with signs that centring leaves, whose squares lose mu."""
    return np.column_stack([np.resize([1.0, -1.0], n), 1e-5 * np.eye(n), 1e-7 * g.standard_normal((n, 50))])


def one_sample_apart(g: Generator, n: int) -> NDArray[Any]:
    """A sample ten thousand times as large as the others."""
    x = g.standard_normal((n, WIDE))
    x[n // 2] *= 1e4
    return x


def one_part_apart(g: Generator, n: int) -> NDArray[Any]:
    """Features whose first panel has all the variance but for a millionth."""
    x = g.standard_normal((n, 3 * 4096))
    x[:, :4096] *= 1e3
    return x


def flat_columns(g: Generator, n: int) -> NDArray[Any]:
    """Ten different features, each 800 times, of unequal size."""
    return np.repeat(g.standard_normal((n, 10)) * np.logspace(0, -3, 10), 800, axis=1)


KINDS: dict[str, Kind] = {
    "white": lambda g, n: g.standard_normal((n, 2000)),
    "white float32": lambda g, n: g.standard_normal((n, 2000)).astype("f4"),
    "white, wide": lambda g, n: g.standard_normal((n, 5 * 4096)).astype("f4"),
    "constant background": lambda g, n: constant_background(g, n).astype("f4"),
    "constant background, float64": constant_background,
    "constant background, float16": lambda g, n: constant_background(g, n).astype("f2"),
    "constant background, uint16": lambda g, n: (20000 + 4000 * constant_background(g, n)).clip(0, 65535).astype("u2"),
    "images": images,
    "images as float32": lambda g, n: images(g, n).astype("f4"),
    "z-scored images": images,
    "smooth field": lambda g, n: smooth(g, n).astype("f4"),
    "smooth field in kelvin": lambda g, n: (285 + 10 * smooth(g, n)).astype("f4"),
    "smooth field, float64": smooth,
    "upsampled 8 times": lambda g, n: upsampled(g, n, 8).astype("f4"),
    "upsampled 512 times": lambda g, n: upsampled(g, n, 512).astype("f4"),
    "upsampled 512 times, float64": lambda g, n: upsampled(g, n, 512),
    "ten columns, repeated": lambda g, n: flat_columns(g, n).astype("f4"),
    "graded features": lambda g, n: (g.standard_normal((n, WIDE)) * np.logspace(0, -6, WIDE)).astype("f4"),
    "graded features, float64": lambda g, n: g.standard_normal((n, WIDE)) * np.logspace(0, -12, WIDE),
    "graded values": lambda g, n: with_values(g, n, np.logspace(0, -4, min(n - 1, 15))).astype("f4"),
    "graded values, float64": lambda g, n: with_values(g, n, np.logspace(0, -9, min(n - 1, 15))),
    "steep values, float64": lambda g, n: with_values(g, n, np.logspace(0, -13, min(n - 1, 15))),
    "near-equal values": lambda g, n: near_equal(g, n).astype("f4"),
    "near-equal values, float64": near_equal,
    "repeated rows": lambda g, n: repeated_rows(g, n).astype("f4"),
    "repeated rows, float64": repeated_rows,
    "two states": lambda g, n: two_states(g, n).astype("f4"),
    "far mean": lambda g, n: (1e4 + g.standard_normal((n, 1)) * g.standard_normal(WIDE)).astype("f4"),
    "far mean, float64": lambda g, n: 1e8 + g.standard_normal((n, WIDE)),
    "genotypes": genotypes,
    "z-scored genotypes": genotypes,
    "counts": lambda g, n: g.poisson(0.2 * g.gamma(1.0, 1.0, WIDE), (n, WIDE)).astype("u2"),
    "switches": lambda g, n: g.random((n, WIDE)) < 0.3,
    "lognormal": lambda g, n: np.exp(2 * g.standard_normal((n, WIDE))).astype("f4"),
    "Cauchy": lambda g, n: g.standard_cauchy((n, WIDE)).astype("f4"),
    "random walk": lambda g, n: np.cumsum(g.standard_normal((n, WIDE)), axis=1).astype("f4"),
    "monotone stairs": lambda g, n: np.floor(np.linspace(0, 9, WIDE) * g.uniform(0.5, 2, (n, 1))).astype("f4"),
    "one sample apart": lambda g, n: one_sample_apart(g, n).astype("f4"),
    "one part apart": lambda g, n: one_part_apart(g, n).astype("f4"),
    "missing values": lambda g, n: with_holes(g, n, 0.0).astype("f4"),
    "missing values at a far mean": lambda g, n: with_holes(g, n, 1e6),
    "raw, not centred": lambda g, n: (5 + g.standard_normal((n, WIDE))).astype("f4"),
    "tiny": lambda g, n: (1e-12 * g.standard_normal((n, WIDE))).astype("f4"),
    "Laeuchli": laeuchli,
    "fewer features": lambda g, n: (
        g.standard_normal((4 * n, min(n, 60))) @ np.diag(np.logspace(0, -3, min(n, 60)))
    ).astype("f4"),
}
"""What the claims are held against, by name."""
