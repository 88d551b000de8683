"""Data with fewer features than samples: features are kept, samples stream by."""

import re

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

from dpca import PCA
from dpca.config.model import Model
from dpca.errors import DataError, OverBudgetError
from dpca.execution.executors import Threads
from dpca.numerics.panels import Rules
from dpca.planning.runplan import Scratch, Workers
from dpca.planning.search import plan_run
from dpca.sources import as_source
from dpca.sources.base import Layout
from dpca.sources.groups import alone
from dpca.system.machine import Budget
from tests.drawn import examples
from tests.reference import assert_right, dense_pca
from tests.runs import RecordingSource, Unread, decompose_array
from tests.stores import counted

EPS = np.finfo(np.float64).eps


def components_of(found):
    return np.asarray(found.outputs.array("components")[...], np.float64)


@given(
    n=st.integers(8, 60),
    d=st.integers(1, 7),
    center=st.booleans(),
    scale=st.sampled_from(["none", "std"]),
    slab=st.integers(60, 2000),
    spans=st.integers(1, 6),
    seed=st.integers(0, 99),
)
@examples(14)
def test_missing_values_are_filled_with_means_that_one_more_pass_finds(n, d, center, scale, slab, spans, seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(3, 2, (n, d))
    x[rng.random(x.shape) < 0.2] = np.nan
    x[0], x[1] = 1.0, 2.0
    rules = Rules(center, scale, "mean")
    found = decompose_array(x, d, rules=rules, slab_bytes=slab, n_spans=spans)
    assert found.rung.solver == ("tsqr" if found.spectrum.lacking.any() else "covariance_eigh")
    dense = dense_pca(x, center=center, scale=scale)
    got = {
        "singular_values": found.spectrum.singular_values,
        "scores": found.scores,
        "components": components_of(found),
    }
    assert_right(got, dense, np.float64)
    assert found.counts["missing_values"] == np.isnan(x).sum()
    if found.rung.solver == "covariance_eigh":
        assert found.counts["passes"] == 3
        assert found.counts["bytes_decoded"] == 3 * x.nbytes


def test_a_feature_without_any_value_is_nan_in_the_result_and_nothing_in_the_scores():
    x = np.random.default_rng(0).normal(size=(50, 4))
    x[:, 2] = np.nan
    found = decompose_array(x, 2, rules=Rules(missing="mean"))
    whole = decompose_array(np.delete(x, 2, axis=1), 2)
    for name in ("mean", "scale"):
        assert np.isnan(found.outputs.array(name)[...]).tolist() == [False, False, True, False]
    assert np.isnan(components_of(found)).any(axis=0).tolist() == [False, False, True, False]
    np.testing.assert_allclose(found.scores, whole.scores, atol=1e-12)


def test_each_chunk_is_read_once_a_pass():
    x = np.random.default_rng(0).normal(size=(500, 6)).astype("f4")
    array, reads = counted(zarr.create_array({}, data=x, chunks=(40, 4)))
    found = decompose_array(array, 3, slab_bytes=3000, n_spans=4)
    assert found.counts["passes"] == 2
    assert set(reads.values()) == {2}
    assert len(reads) == 13 * 2


def test_samples_stream_by_whole():
    source = RecordingSource(as_source(np.random.default_rng(0).normal(size=(3, 500, 2))))
    decompose_array(source, 3, samples_axis=1, slab_bytes=3000, executor=Threads(1))
    assert all((region[0], region[2]) == (slice(0, 3), slice(0, 2)) for region in source.regions)


@pytest.mark.parametrize("solver", ["covariance_eigh", "tsqr"])
def test_means_that_drift_from_block_to_block_cost_no_digits(solver):
    """Chan, Golub and LeVeque: X'X - n m m' would lose them all at a mean of 1e9."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4000, 5)) + 1e9
    found = decompose_array(x, 5, solver=solver, slab_bytes=2000, n_spans=7)
    dense = dense_pca(x - 1e9)  # exact, where the mean of x is not
    np.testing.assert_allclose(found.spectrum.singular_values, dense.singular_values, rtol=1e-13)
    assert found.certificate["scores_orthogonality"] < 1e-13
    drifting = x - 1e9 + np.linspace(0, 1e5, 4000)[:, None]
    found = decompose_array(drifting, 5, solver=solver, slab_bytes=2000, n_spans=7)
    expected = dense_pca(drifting).singular_values
    np.testing.assert_allclose(found.spectrum.singular_values[0], expected[0], rtol=1e-14)
    tolerance = 50 * EPS * (expected[0] if solver == "tsqr" else expected[0] ** 2 / expected[-1])
    np.testing.assert_allclose(found.spectrum.singular_values, expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("dtype", ["i1", "u1", "?"])
def test_small_integers_are_multiplied_exactly(dtype):
    low, high = {"i1": (-100, 101), "u1": (0, 256), "?": (0, 2)}[dtype]
    x = np.random.default_rng(0).integers(low, high, (900, 7)).astype(dtype)
    found = decompose_array(x, 7, slab_bytes=1000, n_spans=5)
    assert found.rung.dtype == np.float32
    assert found.certificate["exact_products"]
    np.testing.assert_allclose(found.spectrum.singular_values, dense_pca(x).singular_values, rtol=1e-14)


def test_tall_data_of_any_condition_keep_their_digits_under_auto():
    rng = np.random.default_rng(0)
    sigma = np.logspace(0, -12, 8)
    left = np.linalg.qr(np.column_stack([np.ones(3000), rng.normal(size=(3000, 8))]))[0][:, 1:]
    x = (left * sigma) @ np.linalg.qr(rng.normal(size=(10, 8)))[0].T
    found = decompose_array(x, 8, n_spans=4)
    assert found.rung.solver == "tsqr"
    np.testing.assert_allclose(found.spectrum.singular_values, sigma, atol=20 * EPS)
    assert found.certificate["reliable_components"] == 8
    assert found.certificate["orthogonality"] < 1e-14
    marked = decompose_array(x, 8, solver="covariance_eigh")
    assert 0 < marked.certificate["reliable_components"] < 8


def test_a_feature_that_products_in_single_precision_lose_sends_auto_on_to_double():
    """Under scaling it counts as much as any other; its squares are below what float32 can hold."""
    x = np.random.default_rng(0).normal(size=(300, 4)).astype("f4")
    x[:, 1] *= 1e-24
    found = decompose_array(x, 4, rules=Rules(scale="std"))
    assert found.rung.dtype == np.float64
    assert "lost the data" in found.choices[1]
    np.testing.assert_allclose(found.spectrum.singular_values, dense_pca(x, scale="std").singular_values, rtol=1e-12)


@pytest.mark.parametrize("scale", ["none", "std"])
def test_constant_features_and_duplicates_are_zeros(scale):
    x = np.random.default_rng(0).normal(size=(200, 6))
    x[:, 1], x[:, 3] = 7.0 / 3, x[:, 0]
    found = decompose_array(x, 6, rules=Rules(scale=scale))
    assert found.spectrum.rank == 4
    assert (found.spectrum.singular_values[4:] == 0).all()
    assert (components_of(found)[4:] == 0).all()
    assert (found.scores[:, 4:] == 0).all()
    assert np.abs(components_of(found)[:4, 1]).max() < 1e-14
    assert found.counts["constant_features"] == (scale == "std")


def bits(executor, **how):
    x = np.random.default_rng(0).normal(size=(3000, 9)) + np.linspace(0, 5, 3000)[:, None]
    found = decompose_array(x, 5, executor=executor, slab_bytes=8000, n_spans=11, tile_width=1, **how)
    names = ("scores", "alpha", "components", "mean", "eigenvalues")
    return {name: np.asarray(found.outputs.array(name)[...]).tobytes() for name in names}


@pytest.mark.parametrize("solver", ["covariance_eigh", "tsqr"])
def test_any_number_of_threads_gives_the_same_bits(solver):
    runs = [bits(Threads(threads), solver=solver) for threads in (1, 2, 4)]
    assert runs[0] == runs[1] == runs[2]


def test_whitening_and_no_components():
    x = np.random.default_rng(0).normal(size=(300, 5)) * np.arange(1, 6)
    found = decompose_array(x, 3, components=False)
    assert "components" not in found.outputs
    assert found.counts["passes"] == 2
    fitted = PCA(3, whiten=True)
    np.testing.assert_allclose(fitted.fit_transform(x).std(axis=0, ddof=1), 1.0)
    np.testing.assert_allclose(fitted.transform(x), fitted.fit_transform(x), atol=1e-12)


def test_values_that_are_not_finite_are_named_where_they_are():
    x = np.zeros((300, 4))
    x[207, 2] = np.nan
    with pytest.raises(DataError, match=re.escape("the first at index [207, 2] (sample 207)")):
        decompose_array(x, 2, slab_bytes=1000)
    x[207, 2] = np.inf
    with pytest.raises(DataError, match="1 infinities"):
        decompose_array(x, 2, slab_bytes=1000, rules=Rules(missing="mean"))


class Described(Unread):
    """A source that is known by its layout alone: nothing may be read for a plan."""

    def __init__(self, *shape):
        self.layout = Layout("wide.zarr", shape, np.dtype("f4"), (100, 1000))

    def held(self, shape):
        return {}


def planned(source, solver, memory=2**33):
    workers = Workers(0, 2, Budget(memory, "as asked for"))
    return plan_run(alone(source), Model(5, solver=solver), workers=workers, scratch=Scratch("scratch.zarr", 2**40))


def test_a_covariance_that_is_too_large_says_what_it_takes_and_what_would_do():
    expected = "whose 1,000,000 x 1,000,000 matrix over features takes 7.28 TiB, and"
    with pytest.raises(OverBudgetError, match=expected) as caught:
        planned(Described(200, 10**6), "covariance_eigh")
    assert caught.value.key == "model.svd_solver"
    assert "Set model.svd_solver: gram_eigh, or auto: its matrix over samples is 200 x 200" in caught.value.remedy


def test_a_gram_matrix_that_is_too_large_names_the_covariance():
    with pytest.raises(OverBudgetError, match="1,000,000 x 1,000,000 matrix over samples takes 7.28 TiB") as caught:
        planned(Described(10**6, 200), "gram_eigh")
    assert "Set model.svd_solver: covariance_eigh, or auto" in caught.value.remedy


def test_a_covariance_of_more_features_than_samples_is_computed_where_it_fits():
    x = np.random.default_rng(0).normal(size=(20, 90))
    found = decompose_array(x, 10, solver="covariance_eigh")
    assert found.spectrum.eigenvalues.shape == (20,)
    np.testing.assert_allclose(found.spectrum.singular_values, dense_pca(x).singular_values[:10], rtol=1e-12)


def test_auto_takes_the_smaller_side_and_says_why():
    assert planned(Described(10**6, 200), "auto").plan.keeps == "features"
    assert planned(Described(200, 10**6), "auto").plan.keeps == "samples"
    found = decompose_array(np.random.default_rng(0).normal(size=(60, 5)).astype("f4"), 2)
    assert found.choices[0] == (
        "covariance: 5 x 5, the smaller side of 60 samples x 5 features; single precision, the rule for float32 data"
    )


@pytest.mark.parametrize("solver", ["auto", "covariance_eigh"])
def test_scores_are_orthogonal_to_rounding_however_small_their_component(solver):
    """X_c w takes from stronger components what w is off by; the sweep that writes scores takes it away again."""
    rng = np.random.default_rng(0)
    sigma = np.logspace(0, -5, 6)
    left = np.linalg.qr(np.column_stack([np.ones(2000), rng.normal(size=(2000, 6))]))[0][:, 1:]
    x = (left * sigma) @ np.linalg.qr(rng.normal(size=(9, 6)))[0].T
    found = decompose_array(x, 6, solver=solver, n_spans=3)
    certificate = found.certificate
    assert certificate["orthogonality_before"] > 1e-10
    assert certificate["scores_orthogonality"] < 1e-13
    scores = found.scores / found.spectrum.singular_values
    np.testing.assert_allclose(scores.T @ scores, np.eye(6), atol=1e-13)
    sines = np.linalg.norm(scores - left * np.sign((scores * left).sum(axis=0)), axis=0)
    assert (sines < 1e-9).all()


@pytest.mark.parametrize("shape", [(40, 6), (6, 40)])
def test_squares_that_float64_cannot_hold_are_refused(shape):
    x = np.random.default_rng(0).normal(size=shape)
    for factor, said in ((1e160, "so large"), (1e200, "so large"), (1e-160, "so small"), (1e-200, "so small")):
        with pytest.raises(DataError, match=said):
            decompose_array(factor * x, 3)
    right = decompose_array(1e-130 * x, 3).spectrum.singular_values
    np.testing.assert_allclose(right, 1e-130 * dense_pca(x).singular_values[:3], rtol=1e-12)


def test_features_without_variation_give_zeros_also_if_there_are_no_others():
    fitted = PCA(2, scale="std", missing="mean").fit(np.full((50, 3), 2.5))
    assert (fitted.singular_values_ == 0).all()
    with pytest.raises(DataError, match="all 150 values are missing"):
        PCA(2, scale="std", missing="mean").fit(np.full((50, 3), np.nan))


def test_a_feature_far_from_zero_is_not_constant():
    x = np.random.default_rng(0).normal(size=(20_000, 4))
    far = x.copy()
    far[:, 0] = x[:, 0] * 0.02 + 1e9
    near = far - [1e9, 0, 0, 0]
    found = decompose_array(far, 4, rules=Rules(scale="std"), slab_bytes=50_000)
    np.testing.assert_allclose(found.spectrum.singular_values, dense_pca(near, scale="std").singular_values, rtol=1e-9)
    constant = decompose_array(np.where([True, False, False, False], 1e9 / 3, far), 4, rules=Rules(scale="std"))
    assert constant.counts["constant_features"] == 1
