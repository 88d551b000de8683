"""What each solver and precision gives on spectra that are known: the digits that it claims, and no less."""

from functools import cache

import numpy as np
import pytest

from dpca import PCA
from dpca.execution.executors import Threads
from dpca.numerics.panels import Rules
from tests.runs import arrays_of, decompose_array

N, D, K = 30, 4000, 20
EPS = np.finfo(np.float64).eps


def with_spectrum(sigma, n=N, d=D, seed=0):
    """Centred data with given singular values and vectors."""
    rng = np.random.default_rng(seed)
    left = np.linalg.qr(np.column_stack([np.ones(n), rng.normal(size=(n, len(sigma)))]))[0][:, 1:]
    right = np.linalg.qr(rng.normal(size=(d, len(sigma))))[0]
    return (left * sigma) @ right.T


def solved(x, k, solver, precision="auto", **how):
    found = decompose_array(x, k, solver=solver, precision=precision, **how)
    components = np.asarray(found.outputs.array("components")[...], np.float64).reshape(k, -1)
    return found, components


LADDER = {"gram, single": ("gram_eigh", "single"), "gram, double": ("gram_eigh", "double"), "tsqr": ("tsqr", "auto")}
CONDITIONS = [1e2, 1e4, 1e6, 1e8, 1e10, 1e12]

# As measured: largest error of sigma over sigma_1, reliable components of 20, and the largest entry of |W'W - I|
# before and after W is made orthonormal.
TABLE = {
    ("gram, single", 1e02): (3e-07, 20, 6e-05, 3e-07),
    ("gram, single", 1e04): (1e-04, 14, 4e-01, 3e-07),
    ("gram, single", 1e06): (2e-04, 9, 3e-02, 2e-07),
    ("gram, single", 1e08): (2e-04, 7, 6e-02, 2e-07),
    ("gram, single", 1e10): (2e-04, 6, 1e-02, 2e-07),
    ("gram, single", 1e12): (2e-04, 5, 2e-02, 2e-07),
    ("gram, double", 1e02): (7e-16, 20, 2e-13, 2e-15),
    ("gram, double", 1e04): (7e-16, 20, 2e-09, 2e-15),
    ("gram, double", 1e06): (2e-16, 20, 2e-05, 2e-15),
    ("gram, double", 1e08): (7e-08, 17, 3e-04, 2e-15),
    ("gram, double", 1e10): (4e-08, 14, 6e-04, 2e-15),
    ("gram, double", 1e12): (3e-08, 12, 2e-04, 2e-15),
    ("tsqr", 1e02): (8e-16, 20, 2e-14, 2e-15),
    ("tsqr", 1e04): (7e-16, 20, 1e-12, 3e-15),
    ("tsqr", 1e06): (2e-16, 20, 2e-10, 2e-15),
    ("tsqr", 1e08): (2e-16, 20, 4e-08, 2e-15),
    ("tsqr", 1e10): (2e-16, 20, 4e-06, 2e-15),
    ("tsqr", 1e12): (2e-16, 20, 2e-04, 2e-15),
}


@cache
def errors(condition, solver, precision):
    sigma = np.logspace(0, -np.log10(condition), K)
    x = with_spectrum(sigma)
    found, components = solved(x, K, solver, precision)
    certificate = found.certificate
    relative = np.abs(found.spectrum.singular_values - sigma) / sigma
    claimed = np.array([10.0 ** -c["digits"] for c in certificate["components"]])
    return {
        "sigma": float(np.abs(found.spectrum.singular_values - sigma).max()),
        "beyond claimed": float((relative / claimed).max(where=claimed < 1, initial=0)),
        "reliable": int(found.spectrum.reliable.sum()),
        "orthogonality": certificate["orthogonality"],
        "before": certificate["orthogonality_before"] or 0.0,
        "overlap": float(
            np.abs(components @ components.T - np.eye(K))[found.spectrum.singular_values > 0][
                :, found.spectrum.singular_values > 0
            ].max()
        ),
    }


@pytest.mark.parametrize(("name", "condition"), TABLE)
def test_no_digit_is_claimed_that_is_not_there(name, condition):
    found = errors(condition, *LADDER[name])
    assert found["beyond claimed"] <= 1
    eps = EPS if name != "gram, single" else 2.0**-23
    assert found["orthogonality"] == pytest.approx(found["overlap"], rel=0.1, abs=20 * eps)
    sigma, reliable, before, after = TABLE[name, condition]
    # Other BLAS libraries round otherwise.
    assert found["sigma"] <= 10 * sigma
    assert abs(found["reliable"] - reliable) <= 1
    # A vector loses eps times the condition of what was decomposed, all of it at worst; what of that shows is a BLAS's luck.
    lost = min(1.0, eps * condition ** (1 if name == "tsqr" else 2))
    assert found["before"] <= 10 * max(before, lost) if lost < 0.1 else found["before"] <= 1.1
    assert found["orthogonality"] <= 10 * after


@pytest.mark.parametrize("condition", CONDITIONS)
def test_tsqr_is_off_by_a_small_multiple_of_eps_whatever_the_condition(condition):
    found = errors(condition, "tsqr", "auto")
    assert found["sigma"] <= 10 * EPS
    assert found["reliable"] == K
    # Back-projection loses orthogonality as eps sigma_1 / sigma_j; what is repaired is orthonormal again.
    assert found["orthogonality"] <= 50 * EPS
    if condition >= 1e4:
        assert 0.01 * EPS * condition <= found["before"] <= 100 * EPS * condition


def test_the_gram_keeps_half_the_digits():
    assert errors(1e12, "gram_eigh", "double")["reliable"] < K
    assert 1e-9 < errors(1e12, "gram_eigh", "double")["sigma"] < 1e-7


@pytest.mark.parametrize(
    ("condition", "dtype", "solver", "precision", "passes"),
    [
        (1e2, "f4", "gram_eigh", "single", 2),
        (1e2, "f8", "gram_eigh", "double", 2),
        (1e5, "f8", "gram_eigh", "double", 2),
        (1e12, "f8", "tsqr", "double", 3),
        (3e6, "f4", "gram_eigh", "double", 3),
    ],
)
def test_auto_goes_on_until_every_component_is_supported(condition, dtype, solver, precision, passes):
    x = with_spectrum(np.logspace(0, -np.log10(condition), K))
    found, _ = solved(x.astype(dtype), K, "auto")
    certificate = found.certificate
    assert (certificate["solver"], certificate["precision"], found.counts["passes"]) == (solver, precision, passes)
    assert certificate["reliable_components"] == K
    assert len(found.choices) == passes  # why the first, and what came of each


def test_auto_does_not_go_on_for_what_was_not_asked_for():
    x = with_spectrum(np.logspace(0, -12, K))
    assert solved(x, 5, "auto")[0].counts["passes"] == 2


def test_precision_that_the_user_sets_is_kept_and_components_are_marked():
    x = with_spectrum(np.logspace(0, -6, K))
    found, _ = solved(x, K, "auto", "single")
    assert found.counts["passes"] == 2
    assert found.certificate["precision"] == "single"
    assert 0 < found.certificate["reliable_components"] < K


@pytest.mark.parametrize("solver", ["tsqr", "auto"])
def test_a_laeuchli_matrix_keeps_its_small_singular_values(solver):
    """Läuchli (Numerische Mathematik 3, 1961): [1 ... 1; mu I]. Its Gram matrix is ones + mu^2 I, where mu^2 is lost."""
    n, mu = 8, 1e-9
    x = np.column_stack([np.ones(n), mu * np.eye(n)])
    found, _ = solved(x, n, solver, rules=Rules(center=False))
    np.testing.assert_allclose(found.spectrum.singular_values[0], np.sqrt(n + mu**2))
    np.testing.assert_allclose(found.spectrum.singular_values[1:], mu, atol=4 * EPS)
    assert found.certificate["reliable_components"] == n
    gram, _ = solved(x, n, "gram_eigh", rules=Rules(center=False))
    assert gram.certificate["reliable_components"] == 1


def test_a_laeuchli_matrix_with_signs_survives_centring():
    """Centring takes a constant feature away, so its ones are replaced by +-1."""
    n, mu = 8, 1e-9
    x = np.column_stack([np.resize([1.0, -1.0], n), mu * np.eye(n)])
    found, _ = solved(x, n - 1, "tsqr")
    expected = np.linalg.svd(x - x.mean(0), compute_uv=False)[: n - 1]
    np.testing.assert_allclose(found.spectrum.singular_values, expected, atol=4 * EPS * np.sqrt(n))


def test_duplicates_are_zeros_under_every_solver():
    x = np.repeat(np.random.default_rng(0).normal(size=(4, 500)), 3, axis=0)
    for solver in ("gram_eigh", "tsqr", "auto"):
        found, components = solved(x, 6, solver)
        assert found.spectrum.rank == 3
        assert (found.spectrum.singular_values[3:] == 0).all()
        assert (components[3:] == 0).all()
        assert np.isfinite(found.scores).all()


def test_what_single_precision_cannot_hold_is_tried_in_double():
    x = 1e25 * np.random.default_rng(0).normal(size=(10, 300)).astype("f4")
    found, _ = solved(x, 3, "auto")
    assert found.certificate["precision"] == "double"
    assert "gram failed (values too large for products in float32" in found.choices[1]
    with pytest.raises(ArithmeticError, match="float32"):
        solved(x, 3, "gram_eigh")


@pytest.mark.parametrize("n_spans", [1, 3])
def test_tsqr_gives_the_same_bits_for_any_number_of_workers(n_spans):
    x = with_spectrum(np.logspace(0, -12, K))
    plan = {"n_spans": n_spans, "slab_bytes": 8 * N * 100, "tile_width": 1}
    runs = [arrays_of(decompose_array(x, K, solver="tsqr", executor=Threads(t), **plan)) for t in (1, 2, 4)]
    assert runs[0] == runs[1] == runs[2]


def test_the_estimator_says_which_solver_it_took():
    x = with_spectrum(np.logspace(0, -12, K))
    assert PCA(K).fit(x).certificate_["solver"] == "tsqr"
    assert PCA(K, svd_solver="gram_eigh").fit(x).certificate_["solver"] == "gram_eigh"
    assert PCA(3).fit(x).certificate_["solver"] == "gram_eigh"
