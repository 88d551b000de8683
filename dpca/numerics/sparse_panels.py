"""Preprocessing of sparse lines: means, scales, squares and the sketch from the values that are stored.

Sums of squares about a mean are sum x^2 - n m^2, which loses the digits that n m^2 exceeds it by. Where a value is seldom other than zero it
can't: with a share p of values that are not, m^2 <= p / (1 - p) of the variance. A slab with a feature of which much is lost is not
preprocessed here, but as dense values are. The sketch is centred before its second product, so that it measures what products lose.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpca.numerics.feature_panels import Centred, divided
from dpca.numerics.panels import About, FeaturePanel, Rules, SamplePanel
from dpca.numerics.preprocess import CONSTANT, LARGEST_INTEGER, of_zeros
from dpca.numerics.sparse_lines import FeatureLines, SampleLines, StoredLines
from dpca.slabs import Plan
from dpca.sources.lines import Lines
from dpca.types import F64

SMALLEST, LARGEST = 1e-140, 1e140
"""Values whose squares, and their sums, neither underflow nor overflow."""
CANCELS = 100.0
"""A slab in which the squares of a feature's mean sum to more than so many times those about it is centred before products."""
CLOSE = 1024.0
"""A sample that is closer to the mean than this share of the mean's own square is not told by what is stored."""
SUMMED = 256
"""Lines whose values are added up one after another; sums of such blocks have rounding errors of a few eps."""


class SparsePanels:
    """Panels of sparse lines, each of a whole slab; None where a slab has to be preprocessed as dense values are.

    Parameters
    ----------
    plan, rules, working_dtype : as for Standardizer
    columns : Omega of the sketch, (m, t); None for no sketch
    """

    def __init__(self, plan: Plan, rules: Rules, working_dtype: np.dtype[Any], columns: F64 | None = None) -> None:
        self._plan, self._rules, self._working_dtype = plan, rules, working_dtype
        self._columns = np.empty((plan.n_kept, 0)) if columns is None else columns

    def _stored(self, lines: Lines) -> StoredLines | None:
        return stored_lines(lines, self._working_dtype, max(self._plan.panel_width, self._plan.block_width))

    def of_features(self, lines: Lines, weights: F64 | None) -> FeaturePanel | None:
        """The panel of a slab of features.

        Parameters
        ----------
        weights : of the features, (w,); NaN for one that is left out. None for weights of 1
        """
        stored = self._stored(lines)
        if stored is None:
            return None
        rules, (w, n) = self._rules, stored.matrix.shape
        mean, squares = _moments(_of_lines(stored.matrix.data, stored.matrix, w), n)
        if cancels(mean, squares, n):
            return None
        divisor = n - rules.ddof_of_features
        about = Centred(mean, n, divisor, np.zeros(w, bool), None, integers=False, fit=None)
        found = divided(rules, squares / max(1, divisor), squares, about, n, weights)
        given = np.where(found.gone, 0.0, 1.0 if weights is None else weights)
        factor = given / found.divisor
        stored.matrix.data *= np.repeat(factor, np.diff(stored.matrix.indptr))
        centre = np.where(found.gone, 0.0, mean) if rules.center else np.zeros(w)
        part = FeatureLines(stored, reduced := centre * factor)
        norm2, product = float(reduced @ reduced), stored.matrix.T @ reduced
        own = _counted(stored.matrix.indices, stored.matrix.data**2, n)
        of_samples = own - 2 * product + norm2
        zero = _counted(stored.matrix.indices, (stored.matrix.data != 0).astype(np.float64), n) == 0
        if (~zero & (norm2 > CLOSE * of_samples)).any() or not _clearly(float(of_samples.sum()), n, norm2):
            return None
        of_samples, product = of_zeros(zero, np.maximum(of_samples, 0.0), product - norm2, norm2)
        return FeaturePanel(
            start=0,
            stop=w,
            matrix=np.empty((n, 0)),
            lines=part,
            mean=np.where(found.gone, np.nan, centre),
            divisor=np.where(found.gone, np.nan, found.divisor),
            weights=np.where(found.gone, np.nan, given),
            squares=of_samples,
            mean_product=product,
            mean_norm2=norm2,
            n_missing=0,
            features=found.counts,
            absent=None,
            varies=True,
            integers=False,
            sketch=part.back(part.into(self._columns)),
        )

    def known(self, lines: Lines, mean: F64, factor: F64) -> FeatureLines | None:
        """The part of X_c that a slab of features is, whose means and factors are known, (w,); NaN for features that are left out."""
        stored = self._stored(lines)
        if stored is None:
            return None
        gone = np.isnan(mean)
        stored.matrix.data *= np.repeat(np.where(gone, 0.0, factor), np.diff(stored.matrix.indptr))
        return FeatureLines(stored, np.where(gone, 0.0, mean * factor))

    def of_samples(self, lines: Lines) -> SamplePanel | None:
        """The panel of a slab of samples, which are not centred: it says their means."""
        stored = self._stored(lines)
        if stored is None:
            return None
        w, m = stored.matrix.shape
        mean, squares = _moments(_of_columns(stored.matrix), w)
        if cancels(mean, squares, w):
            return None
        centre = mean if self._rules.center else np.zeros(m)
        part = SampleLines(stored, centre, ones := np.ones(m))
        return SamplePanel(
            start=0,
            stop=w,
            matrix=np.empty((m, 0)),
            lines=SampleLines(stored, np.zeros(m), ones),
            n_missing=0,
            integers=False,
            origin=np.zeros(m),
            offset=mean,
            squares=squares,
            low=np.zeros(m),
            high=np.zeros(m),
            left=centre,
            sketch=part.back(part.into(self._columns)),
            centred_sketch=True,
        )

    def about(self, lines: Lines, about: About) -> SampleLines | None:
        """The part of X_c that a slab of samples is, about the means of all samples."""
        stored = self._stored(lines)
        if stored is None:
            return None
        used = about.factor != 0  # of others it does not matter
        mean, squares = _moments(_of_columns(stored.matrix), len(lines.ends) - 1)
        if cancels(mean[used], squares[used], len(lines.ends) - 1):
            return None
        return SampleLines(stored, about.origin + about.offset, about.factor)


def applied(lines: Lines, mean: F64, divisor: F64, components: F64) -> tuple[F64, F64] | None:
    """Scores of new samples, and their squared distances from the mean, over a slab of features; None where it has to be made dense.

    Parameters
    ----------
    lines : of the slab, along its samples or its features
    mean, divisor : those of the features, (w,), as of `Standardizer.apply`
    components : (k, w)

    Returns
    -------
    (Y - 1 m') diag(t) W, (samples, k), and its sums of squares before W, (samples,): |t y|^2 - 2 (t y)'(t m) + |t m|^2
    """
    stored = stored_lines(lines, np.dtype(np.float64), 1)
    if stored is None:
        return None
    gone = np.isnan(mean)
    factor = np.where(gone, 0.0, 1.0 / np.where(np.isnan(divisor), 1.0, divisor))
    centre = np.where(gone, 0.0, mean) * factor
    samples = stored.matrix if lines.axis == 0 else stored.matrix.T.tocsr()
    samples.data *= factor[samples.indices]
    norm2, product = float(centre @ centre), samples @ centre
    squares = samples.power(2).sum(axis=1) - 2 * product + norm2
    if (norm2 > CLOSE * squares).any():
        return None
    return samples @ components.T - components @ centre, squares


def needs_stored_alone(rules: Rules) -> bool:
    """Whether preprocessing by the rules needs no value that is not stored."""
    return rules.scale in ("none", "std", "pareto") and rules.missing != "pairwise"


def stored_lines(lines: Lines, dtype: np.dtype[Any], panel_width: int) -> StoredLines | None:
    """Lines as a sparse matrix; None where squares of values may be lost, or a value can't be used, which preprocessing names.

    Parameters
    ----------
    dtype, panel_width : of dense products, as for `StoredLines`
    """
    import scipy.sparse  # slow to import

    values = lines.values.astype(np.float64)
    matrix = scipy.sparse.csr_array((values, lines.places, lines.ends), shape=lines.shape)
    if not matrix.has_canonical_format or not matrix.data.all():
        matrix = matrix.copy()  # places are those of the lines
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
    low, high = np.abs(matrix.data).min(initial=1.0), np.abs(matrix.data).max(initial=1.0)
    if not SMALLEST <= low <= high <= (LARGEST if lines.values.dtype.kind == "f" else LARGEST_INTEGER - 1):
        return None
    return StoredLines(matrix, dtype, panel_width)


def cancels(mean: F64, squares: F64, n_samples: int) -> bool:
    """Whether sums of squares about means, (w,), have lost digits."""
    return not bool((n_samples * mean**2 <= CANCELS * squares).all())


def _clearly(squares: float, n_samples: int, norm2: float) -> bool:
    """Whether features vary by more than rounding, and are not all zero."""
    return bool(squares > n_samples * CONSTANT**2 * norm2)


def _moments(sums: tuple[F64, F64], n: int) -> tuple[F64, F64]:
    """Means of n values, and sums of squares about them, from sums of values and of their squares, (w,) each."""
    total, squares = sums
    mean = total / n
    return mean, np.maximum(squares - n * mean**2, 0.0)


def _counted(places: NDArray[Any], values: F64, width: int) -> F64:
    """Sums of the values at each place, (width,)."""
    # Without values bincount gives integers.
    return np.bincount(places, values, width).astype(np.float64, copy=False)


def _of_lines(values: F64, matrix: Any, n_lines: int) -> tuple[F64, F64]:
    """Sums of the values of each line, and of their squares."""
    lines = np.repeat(np.arange(n_lines), np.diff(matrix.indptr))
    return _counted(lines, values, n_lines), _counted(lines, values**2, n_lines)


def _of_columns(matrix: Any) -> tuple[F64, F64]:
    """Sums of the values at each place, and of their squares, added up block by block."""
    n_lines, width = matrix.shape
    total, squares = np.zeros(width), np.zeros(width)
    for start in range(0, n_lines, SUMMED):
        block = slice(*matrix.indptr[[start, min(start + SUMMED, n_lines)]])
        values: NDArray[np.float64] = matrix.data[block]
        total += _counted(matrix.indices[block], values, width)
        squares += _counted(matrix.indices[block], values**2, width)
    return total, squares
