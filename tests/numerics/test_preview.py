"""The spectrum of what has been added up so far."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpca.execution.progress import Progress
from dpca.numerics.accumulators.gram import GramAccumulator
from dpca.numerics.accumulators.tallies import FeatureTally
from dpca.numerics.panels import Rules
from dpca.numerics.preview import is_due, leading_shares
from tests.drawn import examples
from tests.reference import dense_pca
from tests.runs import decompose_array


class Shown(Progress):
    def __init__(self):
        super().__init__()
        self.previews = []

    def show(self, preview):
        self.previews.append(preview)


def falling(n, d, seed):
    rng = np.random.default_rng(seed)
    left, right = (np.linalg.qr(rng.standard_normal((length, 8)))[0] for length in (n, d))
    return left * 0.5 ** np.arange(8) @ right.T * 100 + rng.normal(0, 1e-3, (n, d)) + rng.normal(5, 1, d)


@pytest.mark.parametrize("solver", ["auto", "tsqr"])
@examples(8)
@given(center=st.booleans(), scale=st.sampled_from(["none", "std"]), tall=st.booleans(), seed=st.integers(0, 99))
def test_a_preview_is_the_spectrum_of_the_spans_that_are_added_up(solver, center, scale, tall, seed):
    x = falling(320, 30, seed) if tall else falling(30, 320, seed)
    shown = Shown()
    found = decompose_array(
        x, 3, rules=Rules(center, scale), solver=solver, progress=shown, slab_bytes=4000, n_spans=16
    )
    plan = found.plan
    assert shown.previews[0].spans == -(-plan.n_spans // 10)
    for preview in shown.previews:
        (last,) = [plan.region(tile) for tile in plan.tiles_of(preview.spans - 1)][-1:]
        part = x[: last[0].stop] if tall else x[:, : last[1].stop]
        assert part.size < x.size
        squares = dense_pca(part, center=center, scale=scale).singular_values ** 2
        shares = squares / squares.sum()
        np.testing.assert_allclose(preview.explained_variance_ratio[:3], shares[:3], rtol=0.02)


@given(st.integers(1, 5000))
def test_there_is_one_for_each_tenth_and_none_of_the_whole(n_spans):
    due = [spans for spans in range(1, n_spans + 1) if is_due(spans, n_spans)]
    assert len(due) <= 10
    assert n_spans not in due
    if n_spans >= 20:
        assert len(due) >= 9
        assert due[0] == -(-n_spans // 10)


def test_data_that_are_constant_have_none_to_show():
    shown = Shown()
    decompose_array(np.full((10, 400), 3.0), 2, progress=shown, slab_bytes=800, n_spans=16)
    assert {preview.explained_variance_ratio for preview in shown.previews} == {()}


def test_sums_that_overflowed_have_none_to_show_either():
    found = GramAccumulator.empty(3, FeatureTally.empty(3))
    found.matrix[:] = np.inf
    with np.errstate(invalid="ignore"):
        assert leading_shares(found, True) == leading_shares(found, False) == ()
