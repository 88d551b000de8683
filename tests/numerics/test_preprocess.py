import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpca.numerics.feature_panels import FeaturePanels
from dpca.numerics.panels import Rules
from dpca.numerics.preprocess import NotFinite
from dpca.numerics.sketch import random_columns
from dpca.slabs import make_plan
from tests.reference import dense_pca


def standardize(x, rules=Rules(), *, samples_axis=0, dtype=np.float64, block=7, panel=20, **source):
    """All panels of one slab put side by side: what `dpca.methods.spans` does with them."""
    import dataclasses

    plan = make_plan(x.shape, x.itemsize, (1,) * x.ndim, samples_axis=samples_axis)
    plan = dataclasses.replace(plan, block_width=block, panel_width=panel)
    found = {
        "matrix": [],
        "mean": [],
        "divisor": [],
        "squares": 0.0,
        "sketch": 0.0,
        "r": 0.0,
        "c": 0.0,
        "missing": 0,
        "constant": 0,
    }
    stop = 0
    for part in FeaturePanels(plan, rules, np.dtype(dtype), **source).panels(x):
        assert part.start == stop
        assert part.stop - part.start <= max(block, panel)
        stop = part.stop
        assert part.matrix.dtype == dtype
        found["matrix"].append(part.matrix.copy())
        found["mean"].append(part.mean)
        found["divisor"].append(part.divisor)
        found["squares"] = found["squares"] + part.squares
        found["sketch"] = found["sketch"] + part.sketch
        found["r"] = found["r"] + part.mean_product
        found["c"] += part.mean_norm2
        found["missing"] += part.n_missing
        found["constant"] += part.features.constant
    found["matrix"] = np.concatenate(found["matrix"], axis=1)
    found["mean"], found["divisor"] = np.concatenate(found["mean"]), np.concatenate(found["divisor"])
    return found


@given(
    st.integers(2, 9),
    st.lists(st.integers(1, 6), min_size=1, max_size=3),
    st.data(),
    st.sampled_from(["none", "std"]),
    st.booleans(),
    st.booleans(),
)
def test_any_axes_and_blocks_give_the_dense_answer(n, features, data, scale, center, with_missing):
    axis = data.draw(st.integers(0, len(features)))
    x = np.random.default_rng(data.draw(st.integers(0, 99))).normal(3, 2, (n, *features))
    if with_missing:
        x[np.random.default_rng(1).random(x.shape) < 0.2] = np.nan
        x[0] = 1.0  # at least one value for every feature
    before = x.copy()
    rules = Rules(center, scale, "mean" if with_missing else "error")
    stored = np.ascontiguousarray(np.moveaxis(x, 0, axis))
    columns = random_columns(n, center)
    widths = {"block": data.draw(st.integers(1, 30)), "panel": data.draw(st.integers(1, 60))}
    found = standardize(stored, rules, samples_axis=axis, columns=columns, **widths)
    flat = x.reshape(n, -1)
    dense = dense_pca(flat, center=center, scale=scale)
    np.testing.assert_allclose(found["matrix"], dense.centred, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found["mean"], dense.mean, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(found["divisor"], dense.scale, rtol=1e-12)
    np.testing.assert_allclose(found["squares"], (dense.centred**2).sum(1), rtol=1e-9, atol=1e-14)
    np.testing.assert_allclose(found["sketch"], dense.centred @ (dense.centred.T @ columns), atol=1e-9)
    reduced = dense.mean / dense.scale
    np.testing.assert_allclose(found["r"], dense.centred @ reduced, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found["c"], reduced @ reduced, rtol=1e-9)
    assert found["missing"] == np.isnan(flat).sum()
    np.testing.assert_array_equal(stored, np.moveaxis(before, 0, axis))


def test_a_large_offset_costs_nothing_in_float32():
    """On a grid of 1/64 the shift by 2^14 is exact in float32, so the centred values are the same bits."""
    x = (np.random.default_rng(0).integers(-200, 200, (50, 300)) / 64).astype(np.float32)
    plain, shifted = (standardize(v, dtype=np.float32)["matrix"] for v in (x, x + np.float32(2**14)))
    np.testing.assert_array_equal(plain, shifted)


def test_constant_features_are_zero_under_scaling_whatever_their_value():
    x = np.random.default_rng(0).normal(size=(40, 6))
    x[:, 2], x[:, 4] = 1e6 / 3, 0.0
    found = standardize(x, Rules(scale="std"))
    assert found["constant"] == 2
    assert (found["matrix"][:, [2, 4]] == 0).all()
    assert (found["divisor"][[2, 4]] == 1).all()
    np.testing.assert_allclose((found["matrix"][:, [0, 1, 3, 5]] ** 2).sum(0), 39, rtol=1e-12)


def test_a_feature_without_any_value_is_nan_outside_and_zero_inside():
    x = np.random.default_rng(0).normal(size=(5, 4))
    x[:, 1] = np.nan
    found = standardize(x, Rules(missing="mean"))
    assert np.isnan(found["mean"][1])
    assert np.isnan(found["divisor"][1])
    assert (found["matrix"][:, 1] == 0).all()
    assert np.isfinite(found["r"]).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_refused(bad):
    x = np.zeros((5, 40), np.float32)
    x[3, 33] = bad
    with pytest.raises(NotFinite):
        standardize(x)


def test_infinity_is_refused_even_where_missing_values_are_filled():
    x = np.zeros((5, 4))
    x[0, 0], x[1, 1] = np.nan, np.inf
    with pytest.raises(NotFinite):
        standardize(x, Rules(missing="mean"))


def test_a_sum_that_overflows_float64_is_refused():
    with pytest.raises(NotFinite):
        standardize(np.full((4, 2), 1e308))


def test_the_sentinel_of_the_source_is_missing_and_packing_is_undone():
    x = np.array([[1, -99], [3, 4], [5, 8]], np.int16)
    found = standardize(x, Rules(missing="mean"), missing_values=[-99.0], packing=(0.5, 10.0))
    np.testing.assert_allclose(found["mean"], [11.5, 13.0])
    np.testing.assert_allclose(found["matrix"], [[-1, 0], [0, -1], [1, 1]])
    with pytest.raises(NotFinite):
        standardize(x, missing_values=[-99.0])


def test_new_samples_are_preprocessed_by_the_given_means_and_divisors():
    x = np.random.default_rng(0).normal(size=(3, 4, 5))
    plan = make_plan(x.shape, 8, (1, 1, 1), samples_axis=1)
    mean, divisor = np.arange(15.0), np.linspace(1, 2, 15)
    mean[3] = divisor[3] = np.nan  # a feature without any value in the fit
    x[0, 2, 0] = np.nan
    got = np.empty((4, 15))
    for start, stop, block in FeaturePanels(plan, Rules(missing="mean"), np.dtype(float)).apply(x, mean, divisor):
        got[:, start:stop] = block
    expected = (np.moveaxis(x, 1, 0).reshape(4, 15) - np.nan_to_num(mean)) / np.where(np.isnan(divisor), 1, divisor)
    expected[:, 3] = 0  # it is no part of the model, so it is none of the samples' distance from it either
    np.testing.assert_allclose(got, np.nan_to_num(expected))
    assert got[2, 0] == 0


@given(
    st.integers(2, 9),
    st.lists(st.integers(1, 6), min_size=1, max_size=3),
    st.data(),
    st.sampled_from(["i2", "u1", "?", "f4", "f8"]),
)
def test_means_may_be_rounded_to_integers_where_what_is_left_of_them_is_accounted_for(n, features, data, dtype):
    axis = data.draw(st.integers(0, len(features)))
    x = (np.random.default_rng(data.draw(st.integers(0, 99))).normal(20, 2, (n, *features)) % 250).astype(dtype)
    stored, columns = np.ascontiguousarray(np.moveaxis(x, 0, axis)), random_columns(n, True)
    before = stored.copy()
    how = {"integers": True, "columns": columns, "panel": data.draw(st.integers(1, 60))}
    found = standardize(stored, samples_axis=axis, dtype="f8", **how)
    flat = x.reshape(n, -1).astype(float)
    dense = dense_pca(flat)
    np.testing.assert_allclose(found["mean"], dense.mean, rtol=1e-14)
    if np.dtype(dtype).kind != "f":
        np.testing.assert_array_equal(found["matrix"], np.rint(found["matrix"]))
    left = found["matrix"].mean(axis=0)
    assert np.abs(left).max() <= 0.5
    np.testing.assert_allclose(found["matrix"] - left, dense.centred, atol=1e-12)
    np.testing.assert_allclose(found["squares"], (dense.centred**2).sum(1), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found["r"], dense.centred @ dense.mean, rtol=1e-12, atol=1e-10)
    np.testing.assert_allclose(found["c"], dense.mean @ dense.mean, rtol=1e-14)
    # It has the mean's rest times 1 besides, which goes with the mean of its columns.
    sketch = found["sketch"] - found["sketch"].mean(axis=0)
    np.testing.assert_allclose(sketch, dense.centred @ (dense.centred.T @ columns), atol=1e-9)
    np.testing.assert_array_equal(stored, before)


def test_squares_that_underflow_single_precision_are_added_up_in_double():
    x = (1e-30 * np.random.default_rng(0).normal(size=(5, 40))).astype("f4")
    found = standardize(x, dtype="f4")
    np.testing.assert_allclose(found["squares"], (dense_pca(x.astype(float)).centred ** 2).sum(1), rtol=1e-12)


def test_small_integers_become_panels_without_a_copy_of_the_slab():
    """Neither in float64, which takes eight times what is stored, nor in any other type: only panels are that wide."""
    x = np.random.default_rng(0).integers(0, 3, (200, 200_000), "u1")
    panels = FeaturePanels(make_plan(x.shape, 1, (1, 1)), Rules(), np.dtype("f4"), integers=True)
    next(panels.panels(x[:, :1]))  # takes the buffers
    tracemalloc.start()
    try:
        for _ in panels.panels(x):
            pass
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < x.nbytes / 20, peak
