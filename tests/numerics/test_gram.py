import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpca.errors import PrecisionError
from dpca.numerics.accumulators.gram import GramAccumulator
from dpca.numerics.accumulators.tallies import FeatureTally
from dpca.numerics.panels import FeatureCounts, FeaturePanel
from dpca.numerics.sketch import random_columns
from tests.reference import gram_tolerance


def panel(matrix):
    f = matrix.shape[1]
    ones = np.ones(f)
    double = matrix.astype(float)
    squares, product, columns = (double**2).sum(1), double.sum(1), random_columns(len(matrix), False)
    sketch = double @ (double.T @ columns)
    return FeaturePanel(
        0, f, matrix, 1, False, sketch, ones, ones, ones, squares, product, f, FeatureCounts(2), None, True
    )


def tally_of(n):
    return FeatureTally.empty(n, random_columns(n, False).shape[1])


def summed(matrices):
    found = GramAccumulator.empty(len(matrices[0]), tally_of(len(matrices[0])))
    list(found.of_slab(panel(matrix) for matrix in matrices))
    return found.close()


@given(
    st.integers(1, 12), st.lists(st.integers(1, 9), min_size=1, max_size=6), st.sampled_from(["f4", "f8"]), st.data()
)
def test_any_partition_and_merge_order_is_the_dense_product(n, widths, dtype, data):
    x = np.random.default_rng(sum(widths)).normal(size=(n, sum(widths))).astype(dtype)
    parts = np.split(x, np.cumsum(widths)[:-1], axis=1)
    partials = [summed([part]) for part in data.draw(st.permutations(parts))]
    while len(partials) > 1:
        partials.append(partials.pop(0).merge(partials.pop(data.draw(st.integers(0, len(partials) - 1)))))
    (total,) = partials
    dense = x.astype(float) @ x.T.astype(float)
    assert np.linalg.norm(total.matrix - dense) <= gram_tolerance(dtype, n, x.shape[1]) * np.trace(dense)
    np.testing.assert_allclose(total.tally.total, np.trace(dense), rtol=1e-12)
    np.testing.assert_allclose(total.tally.mean_product, x.astype(float).sum(1), rtol=1e-5, atol=1e-5)
    assert (total.tally.mean_norm2, total.tally.counts.n_missing, total.tally.features.constant) == (
        x.shape[1],
        len(widths),
        2 * len(widths),
    )


def test_the_product_is_symmetric_to_the_bit():
    gram = summed([np.random.default_rng(0).normal(size=(30, 200)).astype("f4")]).matrix
    np.testing.assert_array_equal(gram, gram.T)


def test_merge_adds_in_place_and_leaves_the_partial_alone():
    total, partial = (summed([np.full((2, 3), value)]) for value in (1.0, 2.0))
    matrix, before = total.matrix, partial.matrix.copy()
    assert total.merge(partial) is total
    assert total.matrix is matrix
    np.testing.assert_array_equal(partial.matrix, before)
    np.testing.assert_array_equal(total.matrix, 3.0 + 12.0)


def test_overflow_of_single_precision_is_an_error_and_not_infinity():
    with pytest.raises(PrecisionError, match="float32.*overflows") as caught:
        summed([np.full((3, 4), 1e25, np.float32)])
    assert "precision: double" in caught.value.remedy
    assert np.isfinite(summed([np.full((3, 4), 1e25)]).matrix).all()
