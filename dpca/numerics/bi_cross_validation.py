"""The number of components by bi-cross-validation: some samples and some features are left out together, and predicted from the rest.

Leaving out samples alone can't tell signal from noise, since the error then falls for ever (Bro, Kjeldahl, Smilde and Kiers, Analytical and
Bioanalytical Chemistry 390, 2008). Owen and Perry (Annals of Applied Statistics 3, 2009) cut X into [A B; C D], where A has the left-out
samples and features, and predict A by B (D_k)^+ C, with the truncated SVD D_k of the block that keeps both. The error needs only the
Gram matrices of groups of features: with K_r = K - K_g of the kept features, left-out samples I and kept ones J, K_r[J, J] = U diag(lambda) U',
it is |A - B_k C|^2 = tr(K_g[I, I] - 2 B_k K_g[J, I] + B_k K_g[J, J] B_k'), B_k = K_r[I, J] U_k diag(1 / lambda_k) U_k'. Rows are about the mean
of the kept samples, so that the left-out ones tell nothing of themselves.

It assumes that noise in left-out features is independent of that in kept ones: groups of features have to be far enough from each other, and spread
over all; and that noise of samples is independent. Where it is correlated along the samples, as in most time series, any feature's noise is
predicted from that of neighbouring samples, and the error falls on and on: no number is given where it is smallest in the upper half of the numbers that
were tried (`Curve.undecided`; measured in `workflows/validation`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dpca.numerics.accumulators.gram import center_gram, eigh
from dpca.types import F64

MOST = 100
"""The largest number of components that is tried."""
ROW_FOLDS = 2
"""Groups of samples, each of which is left out with each group of features. Large ones: eigensolves are small, and where noise is unequal
fewer components are counted too many than with eight (`make validation`)."""


@dataclass(frozen=True)
class Curve:
    """Prediction errors by number of components."""

    errors: F64
    """Errors of all left-out values, relative to their sum of squares about the mean of the kept samples, for k = 0, 1, ...; (most + 1,)."""
    n_groups: int
    """Groups of features."""
    n_row_folds: int
    """Groups of samples."""
    seed: int
    """Seed of their permutation."""

    @classmethod
    def nothing(cls) -> Self:
        """Errors of no data."""
        return cls(np.empty(0), 0, 0, 0)

    @property
    def n_components(self) -> int:
        """The number with the smallest error; 0 where no component predicts anything."""
        return int(np.argmin(self.errors))

    @property
    def undecided(self) -> bool:
        """Whether the error is smallest in the upper half of what was tried, and so gives no number."""
        return 2 * self.n_components > len(self.errors) - 1

    @property
    def as_json(self) -> dict[str, Any]:
        """For the certificate: errors, groups, row_folds, seed, n_components (where the error is smallest), undecided."""
        return {
            "errors": self.errors.tolist(),
            "groups": self.n_groups,
            "row_folds": self.n_row_folds,
            "seed": self.seed,
            "n_components": self.n_components,
            "undecided": self.undecided,
        }


def bi_cross_validation(
    groups: Sequence[F64],
    power: int = 2,
    *,
    basis: F64 | None = None,
    row_folds: int = ROW_FOLDS,
    most: int = MOST,
    seed: int = 0,
) -> Curve:
    """The curve of prediction errors.

    Parameters
    ----------
    groups : K_g of each group of features, (n, n); their sum is K. R_g with K_g = R_g' R_g where `power` is 1
    basis : orthonormal, (n, q), what was subtracted from the samples. It makes their noise dependent, so that n - q rows that are
        orthogonal to it take their place; None for the mean alone
    row_folds : groups of samples, drawn at random, that are left out in turn; at most n // 2
    most : the largest number of components; at most half of the kept samples
    """
    n = len(groups[0]) - (0 if basis is None else basis.shape[1])
    if n < 2:
        return Curve(np.zeros(1), len(groups), 1, seed)
    row_folds = max(2, min(row_folds, n // 2))
    order = np.random.default_rng(seed).permutation(n)
    folds = [np.sort(order[number::row_folds]) for number in range(row_folds)]
    most = max(1, min(most, (n - len(folds[0])) // 2))
    total = np.zeros((n, n))
    for group in groups:
        total += _products(group, power, basis)
    errors = np.zeros(most + 1)
    for group in groups:
        left = _products(group, power, basis)
        for fold in folds:
            errors += _errors(total, left, fold, most, center=basis is None)
    return Curve(errors / errors[0] if errors[0] > 0 else errors, len(groups), row_folds, seed)


def held(n: int, power: int, turns: bool) -> dict[str, int]:
    """Bytes that it holds beside the matrices of groups, by name of the array; `turns` where there is a basis."""
    return {
        "Gram matrices of all, of the left-out and of the kept features": (2 + (power == 1)) * 8 * n * n,
        **({"one of them in the complement of the regressors": 2 * 8 * n * n} if turns else {}),
        "those of kept samples, and their eigensolve": 7 * 8 * n * n,
    }


def _products(group: F64, power: int, basis: F64 | None) -> F64:
    """K_g; with a basis of q columns that of n - q rows in its complement, by q reflections (Golub and Van Loan, 5.1 and 5.2.2)."""
    products = group if power == 2 else group.T @ group
    if basis is None:
        return products
    vectors, factors = np.linalg.qr(basis, mode="raw")
    products = products.copy()
    for column, (vector, factor) in enumerate(zip(np.triu(vectors, 1), factors, strict=True)):
        vector[column] = 1.0
        products -= np.outer(factor * vector, vector @ products)
        products -= np.outer(products @ vector, factor * vector)
    return products[basis.shape[1] :, basis.shape[1] :]


def _errors(total: F64, left: F64, out: NDArray[np.intp], most: int, center: bool) -> F64:
    """Squared errors of the left-out samples and features for each number of components, (most + 1,)."""
    kept = np.setdiff1d(np.arange(len(total)), out)
    rows = np.concatenate([kept, out])
    n = len(kept)
    shares = np.zeros(len(rows))
    if center:
        shares[:n] = 1 / n  # all is about the mean of the kept samples: the left-out ones must not tell of themselves
    of_left = center_gram(left[np.ix_(rows, rows)], shares)
    of_kept = center_gram(total[np.ix_(rows, rows)], shares) - of_left
    factors = eigh(of_kept[:n, :n].copy(), lambda values, floor, _: min(most, int((values > floor).sum())))
    k = factors.vectors.shape[1]
    vectors, values = factors.vectors, factors.eigenvalues[:k]
    predicted = of_kept[n:, :n] @ vectors / values
    cross = np.einsum("ik,ik->k", predicted, of_left[n:, :n] @ vectors)
    inner = (predicted.T @ predicted) * (vectors.T @ (of_left[:n, :n] @ vectors))
    squares = np.diagonal(inner.cumsum(axis=0).cumsum(axis=1))
    found = np.full(most + 1, float(np.trace(of_left[n:, n:])))
    found[1 : k + 1] += squares - 2 * np.cumsum(cross)
    found[k + 1 :] = found[k]  # beyond the rank nothing is left to predict with
    return found
