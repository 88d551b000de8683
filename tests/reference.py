"""The dense float64 oracle, and how far from it an answer may be."""

from dataclasses import dataclass

import numpy as np

PANEL = 4096


@dataclass
class Dense:
    """PCA by LAPACK's SVD of the whole centred matrix, in float64."""

    centred: np.ndarray
    mean: np.ndarray
    scale: np.ndarray
    singular_values: np.ndarray
    vectors: np.ndarray
    components: np.ndarray

    @property
    def total(self):
        return float((self.singular_values**2).sum())


def dense_pca(x, *, center=True, scale="none", ddof=1):
    """x: (n, d), NaN where missing (filled with the mean of the present values)."""
    x = np.asarray(x, np.float64)
    with np.errstate(invalid="ignore"):
        present = np.isfinite(x)
        mean = np.where(present, x, 0).sum(0) / present.sum(0)
    centred = np.where(present, x - mean, 0.0)
    divisor = np.ones(x.shape[1])
    if scale == "std":
        variance = (centred**2).sum(0) / np.maximum(present.sum(0) - ddof, 1)
        constant = (np.nanmax(x, axis=0) == np.nanmin(x, axis=0)) | (present.sum(0) <= ddof)
        divisor = np.where(constant, 1.0, np.sqrt(variance))
        centred = np.where(constant, 0.0, centred) / divisor
    if not center:
        centred = centred + mean / divisor
        mean = np.zeros_like(mean)
    u, s, vt = np.linalg.svd(centred, full_matrices=False)
    return Dense(centred, mean, divisor, s, u, vt)


def gram_tolerance(working, n, d):
    """Bound of |K^ - K|_F / trace(K), from the unit roundoffs u of the working precision and of float64.

    Rounding X_c once costs 2 u; a product over w columns gamma_w, which for rounding errors that are
    independent of each other is lambda sqrt(w) u but with probability 2 exp(-lambda^2 / 2) (Higham and
    Mary 2019): lambda = 6, since a test looks at thousands of entries. The mean, the sum over panels and
    the eigensolve are in float64: (2 n + d / w + n) u64.
    """
    u, u64 = np.finfo(working).eps / 2, np.finfo(np.float64).eps / 2
    w = min(d, PANEL)
    return (2 + 6 * np.sqrt(w)) * u + (3 * n + d / PANEL) * u64


def assert_right(found, dense, working, *, whiten=False, ddof=1):
    """Assert that eigenvalues, scores and components are those of the oracle within what rounding allows.

    found: dict with singular_values, scores (n, k), components (k, d). Weyl: eigenvalues move by at most
    |dK|. Davis and Kahan (sin theta theorem, as Yu, Wang and Samworth 2015): an eigenvector by 2 |dK| / gap.
    """
    n, d = dense.centred.shape
    k = len(found["singular_values"])
    trace = dense.total
    shift = gram_tolerance(working, n, d) * trace
    reference = dense.singular_values**2
    got = np.asarray(found["singular_values"]) ** 2
    # Eigenvalues that the spectrum calls zero were below the noise that it measured, twice the shift.
    np.testing.assert_allclose(got, reference[:k], rtol=0, atol=2 * shift + 1e-300)
    assert (np.diff(got) <= 0).all()
    padded = np.append(reference, 0.0 if len(reference) < n else -np.inf)
    for j in range(k):
        gap = min(padded[j - 1] - padded[j] if j else np.inf, padded[j] - padded[j + 1])
        sine = 2 * shift / gap if gap > 0 else np.inf
        # Back-projection divides by sigma: what K's error leaves in X_c' v, and the product's own rounding.
        relative = sine * np.sqrt(reference[0] / reference[j]) if reference[j] > 0 else np.inf
        relative += 2 * np.sqrt(n) * np.finfo(working).eps * np.sqrt(trace / reference[j]) if reference[j] > 0 else 0
        if sine > 0.1 or relative > 0.1:
            continue  # the theorem says nothing about it
        z = np.asarray(found["scores"])[:, j]
        if whiten:
            z = z * dense.singular_values[j] / np.sqrt(n - ddof)
        sign = np.sign(z @ dense.vectors[:, j])
        # Entries that tie in exact arithmetic are apart by rounding: any of them may be the largest.
        assert z.max() >= np.abs(z).max() * (1 - 4 * np.finfo(np.float64).eps), "the sign rule"
        expected = sign * dense.vectors[:, j] * dense.singular_values[j]
        assert np.linalg.norm(z - expected) <= 2 * (sine + shift / reference[j]) * dense.singular_values[j] + 1e-300
        if "components" in found:
            w = np.asarray(found["components"], np.float64)[j].reshape(-1)
            assert np.linalg.norm(w - sign * dense.components[j]) <= 2 * relative + shift / reference[j]
