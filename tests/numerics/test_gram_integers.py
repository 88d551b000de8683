"""Integers: of 8 bits, products in single precision that are exact; of 64 bits, what float64 does not hold."""

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpca import PCA, KernelPCA
from dpca.errors import DataError
from dpca.numerics.accumulators.gram import GramAccumulator, center_gram
from dpca.numerics.panels import Rules
from dpca.sources import open_source
from tests.drawn import examples
from tests.numerics.test_gram import tally_of
from tests.runs import decompose_array


def exact_gram(x):
    """H X X' H of integers, in integers: n^2 times it, so that the mean is none."""
    n = len(x)
    centred = n * x.astype(object) - x.astype(object).sum(axis=0)
    return (centred @ centred.T).astype(float) / n**2


def kept_gram(found):
    return np.asarray(found.outputs.array("gram")[...])


DTYPES = {"i1": (-100, 101), "u1": (0, 256), "?": (0, 2)}


@given(st.sampled_from(sorted(DTYPES)), st.integers(2, 9), st.integers(1, 60), st.integers(0, 10**6), st.integers(1, 4))
@examples(14)
def test_the_gram_of_small_integers_is_exact(dtype, n, d, seed, spans):
    low, high = DTYPES[dtype]
    x = np.random.default_rng(seed).integers(low, high, (n, d)).astype(dtype)
    found = decompose_array(x, 1, n_spans=spans, slab_bytes=64, solver="gram_eigh")
    assert found.certificate["exact_products"]
    assert found.rung.dtype == np.float32
    expected = exact_gram(x.astype(int))
    np.testing.assert_allclose(kept_gram(found), expected, rtol=0, atol=1e-14 * max(1.0, np.trace(expected)))


def test_genotypes_keep_the_digits_of_double_at_the_speed_of_single():
    rng = np.random.default_rng(0)
    x = rng.binomial(2, rng.uniform(0.01, 0.5, 60_000), (50, 60_000)).astype("i1")
    found, double = (decompose_array(x, 20, precision=precision) for precision in ("single", "double"))
    np.testing.assert_allclose(found.spectrum.singular_values, double.spectrum.singular_values, rtol=1e-14)
    np.testing.assert_allclose(kept_gram(found), kept_gram(double), atol=1e-14 * np.trace(kept_gram(double)))
    for name in ("gram_mean_product", "gram_mean_norm2", "mean"):
        np.testing.assert_allclose(found.outputs.array(name)[...], double.outputs.array(name)[...], rtol=1e-11)
    assert min(component["digits"] for component in found.certificate["components"]) >= 12.5
    assert max(c["residual_data"] for c in found.certificate["components"]) < 1e-5


def test_the_raw_gram_follows_from_the_centred_one_also_with_integers():
    x = np.random.default_rng(0).integers(0, 200, (6, 900)).astype("u1")
    found = decompose_array(x, 2)
    r, c = (np.asarray(found.outputs.array(f"gram_mean_{name}")[...]) for name in ("product", "norm2"))
    raw = kept_gram(found) + r[:, None] + r + c
    np.testing.assert_allclose(raw, x.astype(float) @ x.T.astype(float), rtol=1e-12)


def test_sums_that_float32_cannot_hold_are_known_to_be_rounded():
    x = np.where(np.random.default_rng(0).random((6, 9000)) < 0.5, 0, 255).astype("u1")
    assert not decompose_array(x, 2).certificate["exact_products"]
    gram = GramAccumulator.empty(2, tally_of(2))
    assert gram.add(np.array([[2.0**12 - 1, 0], [0, 1]], "f4"))
    assert not gram.add(np.array([[2.0**12, 1.0], [0, 1]], "f4"))


@pytest.mark.parametrize(
    ("x", "how"),
    [
        (np.random.default_rng(0).integers(0, 9, (6, 50)).astype("i2"), {}),
        (np.random.default_rng(0).integers(0, 9, (6, 50)).astype("f4"), {}),
        (np.random.default_rng(0).integers(0, 9, (6, 50)).astype("u1"), {"rules": Rules(scale="std")}),
    ],
)
def test_other_data_are_centred_by_their_means(x, how):
    assert not decompose_array(x, 2, **how).certificate["exact_products"]


def test_small_integers_need_no_second_solver_down_to_what_double_supports():
    rng = np.random.default_rng(0)
    x = np.zeros((8, 4000), "i1")
    x[:4] = 100  # one direction of great variance, the others of little
    x[np.arange(8), np.arange(8)] += 1
    found = decompose_array(x, 6)
    assert found.counts["passes"] == 2
    expected = np.sqrt(np.linalg.eigvalsh(center_gram(exact_gram(x.astype(int))))[::-1][:6])
    np.testing.assert_allclose(found.spectrum.singular_values, expected, rtol=1e-8)
    assert found.spectrum.singular_values[5] / found.spectrum.singular_values[0] < 3.4e-4
    assert PCA(6).fit(x + rng.integers(0, 1, x.shape, "i1")).certificate_["reliable_components"] == 6


@pytest.mark.parametrize(
    ("dtype", "offset", "shape"),
    [("i8", 2**60, (10, 50)), ("i8", -(2**62), (50, 10)), ("u8", 2**63, (10, 50)), ("u8", 2**63, (50, 10))],
)
def test_integers_that_float64_rounds_are_refused_by_name(dtype, offset, shape):
    """2**60 + 300 would be read as 2**60 + 256, and singular values be 6 % off."""
    x = np.random.default_rng(0).integers(0, 1000, shape)
    far = (x.astype(object) + offset).astype(dtype)
    message = rf"500 integers of {np.dtype(dtype)} in region .* first at index \[0, 0\]: {far[0, 0]}"
    for estimator in (PCA(3), KernelPCA(3), KernelPCA(3, kernel="rbf")):
        with pytest.raises(DataError, match=message):
            estimator.fit(far)
    fitted = PCA(3).fit(x)
    with pytest.raises(DataError, match=r"2\*\*53"):
        fitted.transform(far)
    with pytest.raises(DataError, match=r"2\*\*53"):
        KernelPCA(2, kernel="precomputed").fit(np.full((4, 4), offset, dtype))
    np.testing.assert_allclose(PCA(3).fit(x + 2**52).singular_values_, fitted.singular_values_, rtol=1e-12)


def test_a_large_integer_may_mark_a_missing_value():
    x = np.random.default_rng(0).integers(0, 1000, (10, 50))
    x[3, 4] = -(2**63)
    with h5py.File("x.h5", "w") as file:
        file.create_dataset("x", data=x).attrs["_FillValue"] = np.int64(-(2**63))
    found = decompose_array(open_source("x.h5"), 3, rules=Rules(missing="mean"))
    assert found.counts["missing_values"] == 1
