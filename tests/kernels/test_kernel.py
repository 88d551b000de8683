"""Kernel matrices from inner products, against the samples themselves."""

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics.pairwise import pairwise_kernels

from dpca.errors import ConfigError
from dpca.kernels.inner import Centering, Inner, median_gamma
from dpca.kernels.kernel import notes
from dpca.kernels.kinds.affine import Poly, Sigmoid
from dpca.kernels.kinds.cosine import Cosine
from dpca.kernels.kinds.linear import Linear
from dpca.kernels.kinds.rbf import Rbf
from dpca.kernels.sweep import Kernels
from tests.drawn import examples

CASES = [
    Linear(),
    Poly(0.01, 3, 1.0),
    Rbf(0.02),
    Sigmoid(0.004, 0.5),
    Cosine(),
]


def inner_of(new, fitted):
    """As a pass sums it up: about the mean of the fit, and what brings the mean back."""
    mean = fitted.mean(0)
    y, x = new - mean, fitted - mean
    return Inner(y @ x.T, (y**2).sum(1), (x**2).sum(1), y @ mean, x @ mean, float(mean @ mean))


def samples(seed, n, d, shift=1.0):
    return np.random.default_rng(seed).normal(size=(n, d)) + shift


@examples(60)
@given(
    n=st.integers(2, 300),
    m=st.integers(1, 20),
    d=st.integers(1, 40),
    case=st.sampled_from(CASES),
    shift=st.sampled_from([0.0, 1.0, -5.0]),
    about_mean=st.booleans(),
)
def test_kernels_of_new_and_old_samples_are_those_of_the_samples(n, m, d, case, shift, about_mean):
    x, y = samples(0, n, d, shift), samples(1, m, d, shift)
    kernel = replace(case, about_mean=about_mean)
    params = {name: value for name, value in kernel.parameters.items() if value is not None}
    seen = (x - x.mean(0), y - x.mean(0)) if about_mean else (x, y)
    centring = np.eye(n) - 1 / n
    for rows, a in ((inner_of(x, x), seen[0]), (inner_of(y, x), seen[1])):
        found, _ = kernel.matrix(rows)
        expected = pairwise_kernels(a, seen[0], metric=case.name, **params)
        if case.name == "linear":  # which is the same but for what centring takes away
            found, expected = found @ centring, (expected - seen[0].mean(0) @ seen[0].T) @ centring
        np.testing.assert_allclose(found, expected, atol=1e-11 * np.abs(expected).max())


@pytest.mark.parametrize("kernel", [*CASES[:2], Rbf(1e-3), *CASES[3:]], ids=str)
def test_the_noise_bounds_what_rounded_products_do_to_eigenvalues(kernel):
    x = samples(0, 80, 500, 0.0)
    exact, rounded = inner_of(x, x), inner_of(x, x)
    eps = float(np.finfo(np.float32).eps)
    scale = np.sqrt(np.outer(exact.rows, exact.rows))
    error = np.random.default_rng(2).normal(size=scale.shape) * eps * scale / 2
    rounded.products[...] += (error + error.T) / 2
    right, _ = kernel.matrix(exact, eps)
    squares, mean_product = np.diagonal(rounded.products), exact.row_mean_product
    inner = Inner(rounded.products, squares, squares, mean_product, mean_product, exact.mean_norm2)
    wrong, errors = kernel.matrix(inner, eps)
    noise = errors.max()
    off = np.abs(np.linalg.eigvalsh(right) - np.linalg.eigvalsh(wrong)).max()
    assert 0.01 * noise < off < 2 * noise


def test_new_samples_are_centred_as_by_the_images_mean():
    """k - the mean over the fit's images, in the feature space of a kernel that has one written out."""
    x, y = samples(0, 30, 3), samples(1, 5, 3)

    def images(a):  # (x'z + 1)^2
        pairs = [a[:, i] * a[:, j] * (1 if i == j else np.sqrt(2)) for i in range(3) for j in range(i, 3)]
        return np.column_stack([np.ones(len(a)), *(np.sqrt(2) * a.T), *pairs])

    kernel = Poly(1.0, 2, 1.0)
    fitted, new = kernel.matrix(inner_of(x, x))[0], kernel.matrix(inner_of(y, x))[0]
    centred = images(x) - images(x).mean(0)
    np.testing.assert_allclose(fitted, images(x) @ images(x).T, rtol=1e-12)
    means = Centering.of(fitted)
    np.testing.assert_allclose(means.apply(new), (images(y) - images(x).mean(0)) @ centred.T, atol=1e-11)
    np.testing.assert_allclose(means.apply(fitted), centred @ centred.T, atol=1e-11)


def test_a_sample_of_zeros_has_cosine_zero():
    x = np.array([[0.0, 0.0], [1.0, 2.0], [3.0, -1.0]])
    found, _ = Cosine().matrix(inner_of(x, x))
    np.testing.assert_allclose(found, pairwise_kernels(x, metric="cosine"), atol=1e-15)
    assert found[0, 1] == 0


@pytest.mark.parametrize("n", [2, 3, 40, 41])
def test_gamma_median(n):
    x = samples(0, n, 4)
    distances = [((x[i] - x[j]) ** 2).sum() for i in range(n) for j in range(i)]
    assert median_gamma(inner_of(x, x)) == pytest.approx(1 / np.median(distances), rel=1e-12)


def test_gamma_median_of_samples_that_are_alike():
    alike = Inner.of_points(np.zeros((4, 3)), np.zeros((4, 3)))
    linear, rbf = Kernels(("linear", "rbf"), ("median",), sweep=True).cases(3, alike)
    assert not linear.matrix(alike)[0].any()
    with pytest.raises(ConfigError, match="median of the squared distances between samples is 0: most are alike"):
        rbf.matrix(alike)


def test_every_combination_is_a_case_once():
    inner = inner_of(samples(0, 10, 4), samples(0, 10, 4))
    asked = Kernels(("linear", "rbf", "poly", "cosine"), (None, 0.25, 2.0), (2.0, 3.0), (1.0,), sweep=True)
    found = [str(case) for case in asked.cases(4, inner)]
    assert found == [
        "linear",
        "rbf(gamma=0.25)",
        "rbf(gamma=2)",
        *(f"poly(gamma={g}, degree={d}, coef0=1)" for g in ("0.25", "2") for d in (2, 3)),
        "cosine",
    ]
    assert asked.n_cases == 1 + 3 + 6 + 1


def test_overflow_names_the_samples():
    x = samples(0, 300, 4) * 1e3
    x[270] *= 1e6
    with pytest.raises(
        ConfigError,
        match=r"kernel poly\(gamma=1, degree=30, coef0=1\): its value overflows between samples 0 and 270",
    ):
        Poly(1.0, 30, 1.0).matrix(inner_of(x, x))


def test_a_power_that_is_no_integer_of_a_negative_base():
    x = np.array([[1.0, 0.0], [-1.0, 0.0], [0.5, 1.0]])
    with pytest.raises(ConfigError, match="is not a number between samples 0 and 1") as error:
        Poly(1.0, 2.5, 0.0).matrix(inner_of(x, x))
    assert "choose an integer model.degree" in error.value.remedy


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        (
            Rbf(100.0),
            "is the identity, or nearly .*: every sample is a component of its own; a smaller gamma",
        ),
        (Rbf(1e-14), "is constant"),
        (Sigmoid(100.0, 1.0), "is saturated: 9. % of its values are 1 or -1"),
        (Rbf(0.1), None),
    ],
    ids=str,
)
def test_kernels_that_say_nothing_are_known(kernel, expected):
    x = samples(0, 50, 5)
    found = notes(kernel, kernel.matrix(inner_of(x, x))[0])
    if expected is None:
        assert not found
    else:
        (sentence,) = found
        assert re.search(expected, sentence)


@pytest.mark.parametrize("degree", [0.0, 0.5, 1.0])
def test_the_noise_of_small_degrees_is_finite(degree):
    x = np.abs(samples(0, 40, 5))
    x[3] = 0.0  # where the derivative of a root is infinite
    values, noise = Poly(1.0, degree, 0.0).matrix(inner_of(x, x), float(np.finfo(np.float32).eps))
    assert np.isfinite(values).all()
    assert noise.max() < 0.05 * np.abs(values).max()
