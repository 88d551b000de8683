"""The solver's answer: singular values, singular vectors of the kept side, and the error of each.

With rows as samples and K = X_c X_c' = V diag(lambda) V' (the method of snapshots: Sirovich, Quart. Appl.
Math. 45, 1987): sigma_j = sqrt(lambda_j), scores Z = V diag(sigma), alpha_k = v_k / sigma_k, components
w_k = X_c' alpha_k. The eigenvalues of the covariance X_c' X_c / (n - ddof) are lambda_j / (n - ddof).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dpca.numerics.accumulators.factors import Factors
from dpca.numerics.sketch import RELIABLE, SMALLEST, claimed, first_order, second_order
from dpca.numerics.uncertain import Uncertain
from dpca.types import F64

REFINED = 1e-4
"""Where the relative error of a singular value, or of the noise, may be larger than this, the second pass runs in double precision:
four digits are more than statistics need, and it costs a quarter of that pass."""
TOTAL_ERROR = 2.0**-46
"""Relative error of the total variance, a sum of squares in float64: 1e-14, as far as it was measured (`make claims`)."""
SIGN_RULE = "the entry of largest magnitude in each score vector is positive"


@dataclass(frozen=True)
class Spectrum:
    """The decomposition of the m x m matrix of the kept side, samples or features."""

    eigenvalues: F64
    """lambda = sigma^2, descending, (min(n, d),), 0 beyond the numerical rank; or only the leading ones, more than there are components."""
    vectors: F64
    """(m, n_components); columns beyond the rank are orthonormal and arbitrary."""
    total: float
    """trace(K): the total variance times the divisor."""
    rank: int
    """Number of eigenvalues that can be told from rounding; of those that are known."""
    largest_rank: int
    """Upper bound of the rank: min(n, d), with n - 1 in place of n for centred data."""
    errors: F64
    """Measured bounds of the relative errors of the singular values, (n_components,)."""
    supported: float
    """Smallest sigma_j / sigma_1 that would be `RELIABLE`, given the errors of the last component."""
    n_samples: int
    divisor: float
    """Divisor of the variance: n - ddof for samples of equal weight."""
    residuals: F64
    """Residual of each in the solver's matrix, relative to the largest: |K v - lambda v| / lambda_1 for the Gram matrix."""
    coefficients: F64 | None = None
    """alpha, where the second pass rotated the components within their span; else None."""
    roots: F64 | None = None
    """Square roots of the weights of samples, (m,), where these are kept and weighted: the matrix is D^(1/2) K D^(1/2)."""
    complete: bool = True
    """Whether `eigenvalues` has all of them; if not, that none larger was missed is proved, or its chance is known."""
    off: F64 | None = None
    """How far each eigenvalue may be from a true one, (n_components,); None before it is known."""
    rest_off: float = np.inf
    """How far the sum of all other `eigenvalues` may be from the true sum; infinite where only the total is known."""
    total_off: float = 0.0
    """How far the total may be off, beyond the rounding of its sum."""
    dimension: int = 0
    """Number of all eigenvalues, with zeros: min(n, d), where n counts what weights of frequency stand for."""
    n_features: int = 0
    """Number of features that are not left out."""
    hidden: int = 0
    """Components that were asked for and left out, since errors of the products may hide them."""

    @property
    def known_off(self) -> F64:
        """`off`, infinite before it is known, (n_components,)."""
        return np.full(self.n_components, np.inf) if self.off is None else self.off

    @property
    def n_components(self) -> int:
        return int(self.vectors.shape[1])

    @property
    def singular_values(self) -> F64:
        """sigma, (n_components,)."""
        return np.sqrt(self.eigenvalues[: self.n_components])

    @property
    def scaled(self) -> F64:
        """Vectors times sigma, (m, n_components): the scores Z = V diag(sigma) of samples, or X_c' U of features."""
        return self.vectors * self.singular_values

    @property
    def alpha(self) -> F64:
        """Vectors over sigma, (m, n_components), 0 where sigma is 0: weights that give the other side's vectors."""
        if self.coefficients is not None:
            return self.coefficients
        alpha = self.vectors * reciprocal(self.singular_values)
        return alpha if self.roots is None else alpha * self.roots[:, None]

    @property
    def signs(self) -> F64:
        """Signs that make the entry of largest magnitude in each score vector positive, (n_components,)."""
        largest = np.argmax(np.abs(self.scores(False)), axis=0)
        return np.where(self.vectors[largest, np.arange(self.n_components)] < 0, -1.0, 1.0)

    def signed(self, signs: F64) -> Spectrum:
        """This spectrum with its vectors multiplied by signs, (n_components,)."""
        return replace(self, vectors=self.vectors * signs)

    @property
    def explained_variance(self) -> F64:
        """lambda_j / (n - ddof), (n_components,)."""
        return self.eigenvalues[: self.n_components] / self.divisor

    @property
    def explained_variance_ratio(self) -> F64:
        """lambda_j / trace(K), relative to the total variance, not to the computed part; 0 without any variance."""
        kept = self.eigenvalues[: self.n_components]
        return kept / self.total if self.total > 0 else np.zeros_like(kept)

    @property
    def projection_error(self) -> F64:
        """Variance outside the first k components, sum_{j>k} lambda_j / (n - ddof), (n_components,); NaN with less than two digits."""
        values, errors = self.outside
        return np.where(errors <= RELIABLE * values, values, np.nan) / self.divisor

    @property
    def outside(self) -> tuple[F64, F64]:
        """sum_{j>k} lambda_j for each k, and how far it may be from the true sum; (n_components,) each.

        Either what the trace has beyond the first k, with the errors of these; or the sum of the others, which a solver that squares
        sigma does not know: their errors are in the trace of the computed matrix, and not in that of the true one.
        """
        kept, k = self.eigenvalues[: self.n_components], self.n_components
        off = self.known_off
        if not self.total > 0:
            return np.zeros(k), np.zeros(k)
        by_trace = np.maximum(self.total - np.cumsum(kept), 0.0)
        errors = TOTAL_ERROR * self.total + self.total_off + np.cumsum(off)
        rest = self.eigenvalues[k:].sum() if self.complete else max(self.total - float(self.eigenvalues.sum()), 0.0)
        # Summed from the smallest, so that the tail keeps its digits.
        by_values = np.append(np.cumsum(kept[::-1])[::-1], 0.0)[1:] + rest
        of_values = np.append(np.cumsum(off[::-1])[::-1], 0.0)[1:] + self.rest_off
        better = of_values < errors
        nothing = np.arange(1, k + 1) >= self.largest_rank
        values = np.where(better, by_values, by_trace)
        return np.where(nothing, 0.0, values), np.where(nothing, 0.0, np.where(better, of_values, errors))

    @property
    def noise_variance(self) -> Uncertain:
        """Mean of the eigenvalues that were left out, of all min(n, d); 0 where none were."""
        left = self.dimension - self.n_components
        if left <= 0 or not self.n_components:
            return Uncertain(0.0, 0.0)
        values, errors = self.outside
        return Uncertain(float(values[-1]) / self.divisor / left, float(errors[-1]) / self.divisor / left)

    def components_for(self, share: float) -> int:
        """The smallest number of components with at least this share of the variance."""
        if not self.total > 0:
            return 0
        return min(int(np.searchsorted(np.cumsum(self.eigenvalues) / self.total, share)) + 1, self.rank)

    @property
    def effective_rank(self) -> float:
        """exp of the entropy of lambda / sum(lambda): the number of equal components with this entropy; 0 without any.

        Roy and Vetterli, The effective rank, EUSIPCO 2007.
        """
        positive = self.eigenvalues[self.eigenvalues > 0]
        shares = positive / positive.sum()
        return float(np.exp(-(shares * np.log(shares)).sum())) if positive.size else 0.0

    @property
    def reliable(self) -> NDArray[np.bool_]:
        """Mask of the singular values that have two digits or more, (n_components,)."""
        return (self.singular_values > 0) & (self.errors <= RELIABLE)

    @property
    def digits(self) -> F64:
        """Correct decimal digits of each singular value, (n_components,)."""
        return claimed(np.where(self.singular_values > 0, self.errors, np.inf))

    @property
    def gaps(self) -> F64:
        """(lambda_j - lambda_{j+1}) / lambda_j, (n_components,); 0 where lambda_j is 0."""
        below = np.append(self.eigenvalues, 0.0)[1 : self.n_components + 1]
        kept = self.eigenvalues[: self.n_components]
        gaps: F64 = np.divide(kept - below, kept, out=np.zeros_like(kept), where=kept > 0)
        return gaps

    def gap_above(self, index: int) -> float:
        """(lambda_{j-1} - lambda_j) / lambda_j of component j; infinite for the first."""
        here = self.eigenvalues[index]
        return float((self.eigenvalues[index - 1] - here) / here) if index and here > 0 else np.inf

    @property
    def lacking(self) -> NDArray[np.bool_]:
        """Mask of the components that another solver might find, (n_components,): not reliable, below the largest rank.

        Components with sigma = 0 are among them: a matrix that squares sigma can't tell 0 from 1e-9 sigma_1.
        """
        return ~self.reliable & (np.arange(self.n_components) < self.largest_rank) & (self.total > 0)

    @property
    def suffices(self) -> bool:
        """Whether no other solver might find more of what was asked for."""
        return not (self.lacking.any() or self.hidden)

    @property
    def whitening(self) -> F64:
        """Divisors that whiten the scores: sqrt(explained variance), 1 where it is 0."""
        deviation = np.sqrt(self.explained_variance)
        return np.where(deviation > 0, deviation, 1.0)

    def scores(self, whiten: bool) -> F64:
        """The scores of samples, D^(-1/2) V diag(sigma), whitened if asked for, (n_samples, n_components)."""
        scores = self.scaled if self.roots is None else self.scaled / self.roots[:, None]
        return scores / self.whitening if whiten else scores


def reciprocal(values: F64) -> F64:
    """1 / values, with 0 where they are 0."""
    return np.divide(1.0, values, out=np.zeros_like(values), where=values > 0)


def ranked(eigenvalues: F64, floor: float, n_samples: int, n_features: int, center: bool) -> tuple[F64, int, int]:
    """The min(n, d) eigenvalues of the data, 0 beyond the numerical rank; that rank, and its upper bound."""
    limit = min(n_samples - center, n_features)
    values = eigenvalues[: min(n_samples, n_features)]
    rank = min(int(np.count_nonzero(values > floor)), limit)
    return np.where(np.arange(values.size) < rank, values, 0.0), rank, limit


def spectrum_of(
    factors: Factors,
    *,
    n_samples: int,
    n_features: int,
    center: bool,
    divisor: float,
    roots: F64 | None = None,
    dimension: int | None = None,
    total_off: float = 0.0,
) -> Spectrum:
    """The solver's factors as a spectrum of the data, with errors that are not known yet (infinite).

    Parameters
    ----------
    factors : result of `finish`
    n_samples, n_features : the smaller one bounds the rank; centring takes one sample
    center : whether the data are centred
    divisor : of the variance
    roots, total_off : as in Spectrum
    dimension : as in Spectrum; min(n_samples, n_features) if None
    """
    eigenvalues, rank, limit = ranked(factors.eigenvalues, factors.floor, n_samples, n_features, center)
    k = factors.vectors.shape[1]
    return Spectrum(
        # There may be more components than features with values.
        eigenvalues=np.append(eigenvalues, np.zeros(max(0, k - eigenvalues.size))),
        vectors=factors.vectors,
        total=factors.total,
        rank=rank,
        largest_rank=limit,
        errors=np.full(k, np.inf),
        supported=1.0,
        n_samples=n_samples,
        divisor=divisor,
        residuals=factors.residuals,
        roots=roots,
        complete=factors.complete,
        dimension=min(n_samples, n_features) if dimension is None else dimension,
        n_features=n_features,
        total_off=total_off,
    )


def judged(
    spectrum: Spectrum, bounds: F64, power: int, *, before: F64 | None = None, products: F64 | None = None
) -> Spectrum:
    """The spectrum with its errors.

    Parameters
    ----------
    bounds : bounds of the error of lambda if `power` is 2, of sigma if it is 1, (n_components,)
    before : bounds of the first pass, where the values are, or will be, Ritz values of a second pass
    products : errors of sigma through rounding in the products of that pass, (n_components,)
    """
    kept, k = spectrum.eigenvalues[: spectrum.n_components], spectrum.n_components
    # In the units of the bounds: eigenvalues, or singular values, for which the root in first_order is undone.
    values = kept if power == 2 else np.sqrt(kept)
    following = float(spectrum.eigenvalues[k]) if k < spectrum.eigenvalues.size else 0.0
    errors = first_order(values, bounds) if power == 2 else np.square(1 + first_order(values, bounds)) - 1
    if before is not None and k:
        last = before[-1] + (following if power == 2 else np.sqrt(following))
        errors = np.minimum(errors, second_order(values - last, before, bounds))
    if products is not None:
        errors = errors + products * reciprocal(np.sqrt(kept))
    errors = np.where(kept > 0, np.maximum(errors, SMALLEST), np.inf)
    rest_off = np.inf
    if power == 2:
        off = bounds
    else:
        # What a backward error of the factor does to a sum of squares.
        off, left = 2 * np.sqrt(kept) * bounds + bounds**2, np.sqrt(spectrum.eigenvalues[k : spectrum.largest_rank])
        if k:
            rest_off = 2 * float(left.sum()) * float(bounds[-1]) + left.size * float(bounds[-1]) ** 2
    if products is not None:
        off = off + 2 * np.sqrt(kept) * products
    off = np.minimum(off, changed_by(kept, errors))
    supported = _supported(spectrum, bounds, power, before, products)
    return replace(spectrum, errors=errors, supported=supported, off=off, rest_off=rest_off)


def changed_by(values: F64, errors: F64) -> F64:
    """How far lambda may be off where sqrt(lambda) has these relative errors; infinite where they are, or lambda is 0."""
    known = np.isfinite(errors) & (values > 0)
    return np.where(known, values * (np.square(1 + np.where(known, errors, 0.0)) - 1), np.inf)


def _supported(spectrum: Spectrum, bounds: F64, power: int, before: F64 | None, products: F64 | None) -> float:
    """The smallest sigma_j / sigma_1 with an error of RELIABLE, given the bounds of the last component that is not 0."""
    last = min(spectrum.rank, spectrum.n_components) - 1
    if last < 0:
        return 1.0
    # An eigenvalue if power is 2, else a singular value: solves `first_order`, and `second_order` with large gaps, for RELIABLE.
    smallest = bounds[last] / (1 - (1 + RELIABLE) ** -power)
    if before is not None:
        smallest = min(smallest, np.sqrt(before[last] / (2 * RELIABLE)) * np.sqrt(bounds[last]))
    sigma = float(smallest ** (1 / power))
    if products is not None:
        sigma = max(sigma, float(products[last]) / RELIABLE)
    return min(1.0, max(sigma / float(np.sqrt(spectrum.eigenvalues[0])), SMALLEST / RELIABLE))
