"""Variants of a result of genotypes, and of people who were not in it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpca.genotypes.variants import Variants
from dpca.sources.coordinate import Vector
from dpca.store.arrays import CONVENTION, OF_VARIANTS
from dpca.store.gram import NORMS2
from dpca.store.results import Result
from dpca.store.stored import Stored
from dpca.types import F64

TOGETHER = 2**21
"""Loadings that are read at a time."""


def variants_of(result: Result) -> Variants | None:
    """The variants of the components of a result; None where its features are none."""
    if len(result.dims.features) != 1 or not all(name in result.arrays for name in OF_VARIANTS):
        return None
    ids = result.coordinate(result.dims.features[0])
    if ids is None or not ids.text:
        return None
    fields = {field: _vector(result.arrays[name]) for name, field in OF_VARIANTS.items()}
    return Variants(_vector(result.arrays[result.dims.features[0]]), **fields)


def _vector(array: Stored) -> Vector:
    """An array of a result along one axis, read in parts."""
    return Vector(array.name, array.shape, array.dtype, lambda piece: array[piece], array.as_coordinate.parts)


def found_shares(result: Result, found: NDArray[np.bool_]) -> F64:
    """The share of the squared loadings of each component in the variants that new people have, (n_components,).

    Others are given the mean, and add nothing to scores, which become smaller by this factor. Reads the components once.

    Parameters
    ----------
    found : mask of these variants, (d,)
    """
    array = result.arrays["components"]
    k, step = array.shape[0], max(1, TOGETHER // array.shape[0])
    sums, totals = np.zeros(k), np.zeros(k)
    for start in range(0, len(found), step):
        piece = slice(start, min(start + step, len(found)))
        squares = np.nan_to_num(np.asarray(array[slice(0, k), piece], np.float64)) ** 2
        sums += squares @ found[piece]
        totals += squares.sum(axis=1)
    return np.divide(sums, totals, out=np.ones(k), where=totals > 0)


def shrinkage_of(result: Result) -> F64 | None:
    """An estimate of how much smaller scores of new people are than those of the fit, (n_components,); None where it can't be told.

    With far more variants than people, an eigenvector fits the noise of its own people (Lee, Zou and Wright, Annals of Statistics 38,
    2010). The row i of K v = lambda v says (lambda - K_ii) v_i = sum of K_ij v_j over the others: what the others alone predict of the
    score of i is 1 - K_ii / lambda of it, where leaving i out hardly turns v. The estimate is the mean of that, weighted by v_i^2: within 5 % of
    what leaving each person out gives, where components are separated (tests/genotypes/test_aligned.py).
    """
    if CONVENTION not in result.arrays or NORMS2 not in result.arrays or result.arrays["scores"].ndim != 2:
        return None
    scores, norms2 = (np.asarray(result.arrays[name][...], np.float64) for name in ("scores", NORMS2))
    eigenvalues = np.asarray(result.arrays["singular_values"][...], np.float64) ** 2
    lengths2 = np.einsum("nk,nk->k", scores, scores)
    shares = np.divide(scores**2, lengths2, out=np.zeros_like(scores), where=lengths2 > 0)
    found: F64 = 1.0 - np.divide(norms2 @ shares, eigenvalues, out=np.ones_like(eigenvalues), where=eigenvalues > 0)
    return np.clip(found, 0.0, 1.0)
