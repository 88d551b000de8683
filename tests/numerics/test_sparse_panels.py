"""Sparse lines: products, means and claims of what is stored, beside the dense matrix."""

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

from dpca import PCA
from dpca.errors import DataError, PrecisionError
from dpca.numerics.panels import Rules
from dpca.numerics.sparse_lines import StoredLines
from dpca.numerics.sparse_panels import applied
from dpca.sources.lines import Lines
from dpca.sources.sparse import SparseSource
from tests.drawn import examples
from tests.runs import decompose_array

K = 2
"""Components of rows of three kinds."""
ROUNDING = 1e-13
"""Of an eigenvalue from float64 values, and of the oracle's."""


def few(rng, shape, share, dtype="f4"):
    """A dense matrix in which about this share of the values is not zero; rows are of three kinds, and some rows and columns are empty."""
    kinds = np.repeat(np.arange(3), [shape[0] // 2, shape[0] // 3, shape[0] - shape[0] // 2 - shape[0] // 3])
    often = np.arange(shape[1]) % 5 == kinds[:, None]
    values = np.where(rng.random(shape) < np.where(often, 4 * share, share / 4), rng.integers(10, 40, shape), 0)
    values[rng.random(shape[0]) < 0.1] = 0
    values[:, rng.random(shape[1]) < 0.1] = 0
    return values.astype(dtype)


def centred(x, center, scale):
    """X_c in float64."""
    x = np.asarray(x, np.float64)
    about = x - x.mean(axis=0)
    deviation = about.std(axis=0, ddof=1)
    divisor = {"none": np.ones_like(deviation), "std": deviation, "pareto": np.sqrt(deviation)}[scale]
    varies = deviation > 1e-12 * np.abs(x).max(axis=0, initial=0)
    factor = np.where(varies | (scale == "none"), 1 / np.where(divisor > 0, divisor, 1), 0.0 if center else 1.0)
    return (about if center else x) * factor


def errors_of(found, x_c, k=K):
    """Relative errors of singular values, and the angles' sines between components and those of a dense decomposition."""
    _, sigma, right = np.linalg.svd(x_c, full_matrices=False)
    own = np.asarray(found.outputs.array("singular_values")[...], np.float64)
    components = np.asarray(found.outputs.array("components")[...], np.float64).reshape(k, -1)
    scores = np.asarray(found.outputs.array("scores")[...])
    about = np.abs(own - sigma[:k]) / sigma[0]
    # Vectors of values that are as large may be any of theirs.
    space = right[sigma > sigma[k - 1] * (1 - 1e-9)]
    outside = np.linalg.norm(components - (components @ space.T) @ space, axis=1)
    misfit = np.linalg.norm(x_c @ components.T - scores) / sigma[0]
    return about.max(), outside.max(), misfit


SHAPES = {
    "gram_eigh": ((40, 1200), (90, 130)),
    "covariance_eigh": ((1200, 40), (130, 90)),
    "block_krylov": ((40, 1200), (1200, 40)),
}
"""Lines lie along the longer side, which is the one that is streamed."""


def fits(solver, shape, share, dtype, center, scale, seed, source_of=SparseSource.of, **how):
    """A decomposition of sparse lines and X_c; None where the answer is not the only one."""
    x = few(np.random.default_rng(seed), shape, share, dtype)
    x_c, k = centred(x, center, scale), K
    sigma = np.linalg.svd(x_c, compute_uv=False)
    if not sigma[k] < 0.98 * sigma[k - 1]:
        return None
    source, rules = source_of(scipy.sparse.csr_array(x)), Rules(center=center, scale=scale)
    return decompose_array(source, k, rules=rules, solver=solver, **how), x_c


def first_fit(solver, share, center, scale, source_of=SparseSource.of):
    """The first of some data whose answer is the only one."""
    made = (fits(solver, SHAPES[solver][0], share, "f4", center, scale, seed, source_of) for seed in range(20))
    return next(one for one in made if one is not None)


@given(st.data())
@pytest.mark.parametrize("solver", SHAPES)
@examples(25)
def test_answers_are_those_of_the_dense_matrix(solver, data):
    made = fits(
        solver,
        data.draw(st.sampled_from(SHAPES[solver])),
        data.draw(st.sampled_from((0.01, 0.04, 0.09, 0.4))),
        data.draw(st.sampled_from(("f4", "f8", "i2", "u1"))),
        data.draw(st.booleans()),
        data.draw(st.sampled_from(("none", "std", "pareto"))),
        data.draw(st.integers(0, 999)),
        slab_bytes=data.draw(st.sampled_from((2000, 2**23))),
    )
    if made is None:
        return
    found, x_c = made
    value, outside, misfit = errors_of(found, x_c)
    digits = min(component["digits"] for component in found.certificate["components"])
    assert value <= 10**-digits + ROUNDING
    assert outside <= 1e-5
    assert misfit <= 1e-6


class LinesAlone(SparseSource):
    """A sparse matrix that is never read as a dense one."""

    def open(self):
        opened = super().open()

        class Opened:
            def __enter__(self):
                reader = opened.__enter__()
                reader.read = None
                return reader

            def __exit__(self, *error):
                return opened.__exit__(*error)

        return Opened()


@pytest.mark.parametrize("solver", SHAPES)
@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("scale", ["none", "std"])
def test_no_pass_makes_few_values_dense(solver, center, scale):
    found, x_c = first_fit(solver, 0.05, center, scale, LinesAlone.of)
    value, outside, misfit = errors_of(found, x_c)
    assert max(value, misfit) <= 1e-6
    assert outside <= 1e-5


@pytest.mark.parametrize("solver", ["gram_eigh", "covariance_eigh"])
def test_products_of_few_values_are_in_double_precision(solver):
    found, x_c = first_fit(solver, 0.02, True, "none")
    assert errors_of(found, x_c)[0] <= ROUNDING
    assert min(component["digits"] for component in found.certificate["components"]) > 12


@pytest.mark.parametrize("m", [7, 8, 41])
@pytest.mark.parametrize(("share", "dtype"), [(0.03, "f4"), (0.03, "f8"), (0.9, "f8")])
def test_a_product_is_that_of_the_dense_matrix_whichever_way_it_is_computed(m, share, dtype):
    x = few(np.random.default_rng(m), (1500, m), share / 2) if share < 0.1 else np.ones((1500, m), "f4")
    lines = StoredLines(scipy.sparse.csr_array(x.astype("f8")), np.dtype(dtype), 64)
    total = np.ones((m, m))
    parts = [part.copy() for part in lines.add_product(total)]
    assert all(part.shape[1] <= 64 for part in parts)
    assert bool(parts) == (share == 0.9)
    total += sum((part.astype("f8") @ part.T.astype("f8") for part in parts), np.zeros((m, m)))
    np.testing.assert_array_equal(total, total.T)
    np.testing.assert_allclose(total - 1, x.T.astype("f8") @ x, rtol=1e-12)


@pytest.mark.parametrize("solver", ["gram_eigh", "covariance_eigh"])
@pytest.mark.parametrize("beside", ["a constant column", "a mean far away", "tiny values", "a feature of one value"])
def test_what_sums_of_squares_would_lose_is_preprocessed_as_dense_values_are(solver, beside):
    rng, shape = np.random.default_rng(0), SHAPES[solver][0]
    x = few(rng, shape, 0.05, "f8")
    if beside == "a constant column":
        x[:, 3] = 7
    elif beside == "a mean far away":
        x[:, 3] = 1e7 + rng.standard_normal(shape[0])
    elif beside == "tiny values":
        x[:, 3] *= 1e-150
    else:
        x[:, 3] = 0
        x[5, 3] = 1e-3
    found, k = decompose_array(SparseSource.of(scipy.sparse.csr_array(x)), K, solver=solver), K
    sigma = np.linalg.svd(centred(x, True, "none"), compute_uv=False)[:k]
    own = np.asarray(found.outputs.array("singular_values")[...])
    digits = np.array([component["digits"] for component in found.certificate["components"]])
    assert (np.abs(own / sigma - 1) <= 10**-digits + ROUNDING).all()
    np.testing.assert_allclose(own, sigma, rtol=1e-9)


@pytest.mark.parametrize("solver", ["gram_eigh", "covariance_eigh"])
def test_a_value_that_is_not_finite_or_too_large_is_named(solver):
    x = few(np.random.default_rng(0), SHAPES[solver][0], 0.05, "f8")
    for value, error in ((np.nan, DataError), (np.inf, DataError), (1e200, PrecisionError)):
        x[5, 4] = value
        with pytest.raises(error, match="sparse matrix|too large"):
            decompose_array(SparseSource.of(scipy.sparse.csr_array(x)), 3, solver=solver)


@pytest.mark.parametrize("shape", [(60, 200), (300, 40)])
def test_features_are_left_out_and_weighed_as_dense_ones_are(shape):
    x = few(np.random.default_rng(0), shape, 0.09, "f8")
    weights = np.random.default_rng(1).uniform(0, 2, shape[1])
    how = {"scale": "std", "weights": weights, "filters": {"min_variance": 4.0, "mask": np.arange(shape[1]) % 7 > 0}}
    found, expected = (PCA(K, **how).fit(of) for of in (scipy.sparse.csr_array(x), x))
    np.testing.assert_allclose(found.mean_, expected.mean_, rtol=1e-12)
    np.testing.assert_array_equal(np.isnan(found.mean_), np.isnan(expected.mean_))
    assert np.isnan(found.mean_).any()
    np.testing.assert_allclose(found.singular_values_, expected.singular_values_, rtol=1e-7)
    np.testing.assert_allclose(found.transform(x), expected.transform(x), rtol=1e-4, atol=1e-5)


@given(st.data())
@examples(60)
def test_scores_and_squares_of_new_samples_are_those_of_dense_ones(data):
    shape = data.draw(st.tuples(st.integers(1, 30), st.integers(1, 30)))
    rng, dtype = np.random.default_rng(data.draw(st.integers(0, 99))), data.draw(st.sampled_from(["f4", "f8", "i2"]))
    y = few(rng, shape, 0.05, dtype)
    mean, divisor = rng.normal(size=shape[1]), rng.uniform(0.5, 2, shape[1])
    mean[rng.random(shape[1]) < 0.2] = np.nan  # left out
    divisor[rng.random(shape[1]) < 0.2] = np.inf  # of weight 0
    divisor[rng.random(shape[1]) < 0.1] = np.nan
    components = rng.normal(size=(3, shape[1]))
    if data.draw(st.booleans()):  # a sample that is the mean: its squares would be rounding
        y, mean[:2] = y.astype("f8"), 3.0
        y[0] = np.nan_to_num(mean)
    factor = np.where(np.isnan(mean), 0, 1 / np.where(np.isnan(divisor), 1, divisor))
    x_c = (y - np.nan_to_num(mean)) * factor
    found = applied(Lines.of(y, data.draw(st.sampled_from([0, 1]))), mean, divisor, components)
    own, norm2 = (x_c**2).sum(axis=1), (np.nan_to_num(mean) * factor) @ (np.nan_to_num(mean) * factor)
    if found is None:
        assert norm2 > 1000 * own.min()
        return
    np.testing.assert_allclose(found[0], x_c @ components.T, atol=1e-12 * (1 + np.abs(x_c).max()))
    np.testing.assert_allclose(found[1], own, rtol=1e-12)


@pytest.mark.parametrize("kind", ["csr", "csc"])
@pytest.mark.parametrize("how", [{}, {"center": False}, {"scale": "std"}, {"missing": "mean"}])
def test_new_samples_that_are_sparse_are_not_made_dense(kind, how, monkeypatch):
    rng = np.random.default_rng(0)
    x, new = few(rng, (300, 80), 0.03, "f8"), few(rng, (50, 80), 0.03, "f8")
    fit = PCA(4, **how).fit(x)
    dense, sparse = fit.transform(new), getattr(scipy.sparse, f"{kind}_array")(new)
    values = sparse.copy()
    values.data[5] = np.nan
    if how == {"missing": "mean"}:
        np.testing.assert_allclose(
            fit.transform(values), fit.transform(values.toarray()), atol=1e-12 * np.abs(dense).max()
        )
    else:
        at = r", ".join(str(int(place[0])) for place in np.nonzero(np.isnan(values.toarray())))
        with pytest.raises(DataError, match=rf"the first at index \[{at}\]"):
            fit.transform(values)
    monkeypatch.setattr("dpca.numerics.feature_panels.FeaturePanels.apply", lambda *_: pytest.fail("it is made dense"))
    np.testing.assert_allclose(fit.transform(sparse), dense, atol=1e-12 * np.abs(dense).max())
