"""Large Gram matrices are made block by block: the same products, whatever the blocks."""

import numpy as np
import pytest

from dpca.errors import PrecisionError
from dpca.numerics.accumulators import border, gram
from dpca.numerics.accumulators.border import Border
from dpca.numerics.accumulators.gram import GramAccumulator
from dpca.numerics.accumulators.tallies import FeatureTally


# Of 10: whole blocks, and one row that is left; of 31: a block that is as large as the matrix, or larger.
@pytest.fixture(params=[10, 31])
def block(request, monkeypatch):
    for module in (gram, border):
        monkeypatch.setattr(module, "BLOCK", request.param)
    return request.param


def summed(accumulator, panels):
    exact = [accumulator.add(panel) for panel in panels]
    return accumulator.close(), exact


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("m", [1, 20, 31])
@pytest.mark.usefixtures("block")
def test_the_sum_is_symmetric_and_that_of_all(m, dtype):
    panels = np.random.default_rng(m).standard_normal((3, m, 50)).astype(dtype)
    found, _ = summed(GramAccumulator.empty(m, FeatureTally.empty(m, 2, False)), panels)
    expected = sum(panel.astype("f8") @ panel.astype("f8").T for panel in panels)
    np.testing.assert_allclose(found.matrix, expected, atol=1e-5 if dtype == "f4" else 1e-12)
    np.testing.assert_array_equal(found.matrix, found.matrix.T)
    vectors = np.random.default_rng(0).standard_normal((m, 3))
    np.testing.assert_allclose(found.times(vectors), found.matrix @ vectors, atol=1e-9)


@pytest.mark.usefixtures("block")
def test_sums_of_integers_are_exact_while_they_are_small():
    panel = np.random.default_rng(0).integers(-100, 100, (31, 50)).astype("f4")
    found, exact = summed(GramAccumulator.empty(31, FeatureTally.empty(31, 2, False)), [panel])
    assert exact == [True]
    np.testing.assert_array_equal(found.matrix, panel.astype("f8") @ panel.astype("f8").T)
    panel[30] *= 100  # of the last block alone
    assert not GramAccumulator.empty(31, FeatureTally.empty(31, 2, False)).add(panel)


@pytest.mark.parametrize("row", [0, 15, 30])
@pytest.mark.usefixtures("block")
def test_an_overflow_in_any_block_is_refused(row):
    panel = np.ones((31, 50), "f4")
    panel[row] = 1e20
    with pytest.raises(PrecisionError, match="overflows"):
        GramAccumulator.empty(31, FeatureTally.empty(31, 2, False)).add(panel)
    with pytest.raises(PrecisionError, match="overflows"):
        Border.after(10, 31, FeatureTally.empty(31, 2, False)).add(panel)


@pytest.mark.parametrize("n_known", [3, 20])
@pytest.mark.usefixtures("block")
def test_a_border_has_the_columns_of_new_samples(n_known):
    panels = np.random.default_rng(n_known).standard_normal((2, 31, 50))
    found, _ = summed(Border.after(n_known, 31, FeatureTally.empty(31, 2, False)), panels)
    whole = sum(panel @ panel.T for panel in panels)
    np.testing.assert_allclose(found.matrix, whole[:, n_known:], atol=1e-12)
    np.testing.assert_allclose(found.sums, whole.sum(axis=1), atol=1e-12)
