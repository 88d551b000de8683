"""Wrong numbers that were once called reliable, each with what mended its class."""

from functools import cache

import numpy as np
import pytest

from dpca import PCA, KernelPCA
from dpca.errors import PrecisionError
from workflows.claims.truth import centred, kernel_values, singular_values


def holds(certificate, true):
    """Every claim: digits to the campaign's factor, and what is reliable to a hundredth."""
    for component, value in zip(certificate["components"], true, strict=False):
        error = abs(component["singular_value"] - float(value)) / float(value)
        assert error <= 2 * 10.0 ** -component["digits"] or component["digits"] == 0, component
        assert error <= 1e-2 or not component["reliable"], component


def cosine_values(x):
    x = x.astype(np.longdouble)
    kernel = x @ x.T / np.sqrt((x**2).sum(1)[:, None] * (x**2).sum(1))
    kernel = kernel - kernel.mean(0)
    kernel = kernel - kernel.mean(1)[:, None]
    return np.sqrt(np.maximum(np.linalg.eigvalsh(kernel.astype(float))[::-1], 0))


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_samples_nearer_than_rounding_can_tell(dtype):
    """Where a distance is clamped at 0 its derivative says nothing: a kernel changes by what it does within the error."""
    g, (d, apart) = np.random.default_rng(0), (10000, 3e-5) if dtype == "f4" else (1000, 1e-9)
    x = (np.repeat(g.standard_normal((4, d)), 2, axis=0) + apart * g.standard_normal((8, d))).astype(dtype)
    known = centred(x)
    gamma = float(1 / ((known[0] - known[1]) ** 2).sum())
    for precision in ("single", "auto"):
        fitted = KernelPCA(3, kernel="rbf", gamma=gamma, precision=precision).fit(x)
        holds(fitted.certificate_, kernel_values(known, gamma))


def test_samples_so_large_that_products_lose_the_others():
    """Their squared norms are added up without products, and what can't be told is not 0."""
    g = np.random.default_rng(3)
    x = g.standard_normal((12, 3)).astype("f4")
    x[:6] *= np.float32(1e6)
    x[:6] -= x[:6].mean(0)
    for precision in ("single", "auto"):
        holds(KernelPCA(3, kernel="cosine", precision=precision).fit(x).certificate_, cosine_values(x))
    x = g.standard_normal((12, 3000)) * 1e-6
    x[0] *= 1e8
    for unit in (1, 1e6, 1e-9):
        assert KernelPCA(1, kernel="cosine").fit(unit * x).certificate_["reliable_components"] == 0
        KernelPCA(2, kernel="rbf").fit(unit * x)  # and is symmetric to the bit


@pytest.mark.parametrize("unit", [1e-20, 1e-8, 1.0, 1e6])
def test_features_that_are_scaled_where_they_are_kept(unit):
    g = np.random.default_rng(0)
    x = g.standard_normal((2000, 1)) + 3e-3 * g.standard_normal((2000, 20)) * np.logspace(0, -1, 20)
    x = (unit * x).astype("f4")
    holds(PCA(12, scale="std").fit(x).certificate_, singular_values(centred(x, scale="std")))


def test_a_factor_whose_strong_part_is_exact():
    """R'R is off by what shows in the strong part, or by what QR promises: eps sigma_1."""
    x = np.zeros((60, 3001))
    x[2:, 1:] = np.random.default_rng(5).standard_normal((58, 3000))
    true = singular_values(centred(x))
    x[:2, 0] = 2.0**45, -(2.0**45)
    holds(PCA(5).fit(x).certificate_, [2**45 * np.sqrt(2), *true])


@cache
def underflowing():
    """Data of whose components products in single precision lose one, and their singular values."""
    g = np.random.default_rng(1)
    q = np.linalg.qr(np.c_[np.ones(12), g.standard_normal((12, 11))])[0][:, 1:]
    x = np.zeros((12, 400020), "f4")
    x[:, 0], x[:, 1] = 3e-19 * q[:, 0], 3e-21 * q[:, 2]
    x[:, 20:] = np.outer(q[:, 1], g.choice([-1, 1], 400000)) * 1.2e-23
    return x, singular_values(centred(x))


@pytest.mark.parametrize("precision", ["single", "auto"])
def test_a_component_that_is_lost_altogether_is_missed(precision):
    """By underflow of products; those that follow it would move up."""
    x, true = underflowing()
    holds(PCA(2, precision=precision).fit(x).certificate_, true)


@pytest.mark.parametrize("unit", [1e-80, 1.0, 1e100])
def test_units_whose_squares_of_squares_float64_does_not_hold(unit):
    g = np.random.default_rng(5)
    x = g.standard_normal((30, 30)) * np.logspace(0, -7.9, 30) @ g.standard_normal((30, 500))
    true = singular_values(centred(x)).astype(float) * unit
    for fitted in (KernelPCA(29).fit(unit * x), PCA(29).fit(unit * x), PCA(29, svd_solver="gram_eigh").fit(unit * x)):
        holds(fitted.certificate_, true)
        assert fitted.certificate_["components"][0]["digits"] > 12


def test_a_kernel_that_single_precision_takes_for_nothing_is_tried_in_double():
    g = np.random.default_rng(1)
    x = g.poisson(200, (30, 2000)).astype("u2") * g.choice([1, 200], (30, 1)).astype("u2")
    certificate = KernelPCA(3, kernel="cosine").fit(x).certificate_
    assert (certificate["precision"], certificate["reliable_components"]) == ("double", 3)
    values = [component["singular_value"] for component in certificate["components"]]
    np.testing.assert_allclose(values, [0.0776826, 0.0769773, 0.0762198], rtol=1e-6)


def test_new_samples_that_rounding_takes_from_themselves_are_refused():
    x = np.random.default_rng(0).integers(-30000, 30000, (10, 5000)).astype("i2")
    fitted = KernelPCA(3, kernel="rbf").fit(x)
    with pytest.raises(PrecisionError, match="rounding of the products changes what new samples have in common"):
        fitted.transform(x)


def test_a_sample_without_any_value_is_the_mean():
    x = np.random.default_rng(0).standard_normal((5, 40))
    x[2] = np.nan
    scores = KernelPCA(2, kernel="rbf", missing="mean").fit_transform(x)
    assert np.isfinite(scores).all()
