"""Scores by least squares on the values that samples have, beside NumPy's."""

from pathlib import Path

import numpy as np
import pytest
import yaml
import zarr
from hypothesis import given
from hypothesis import strategies as st

from dpca.numerics.least_squares import add_products, n_sums, solved
from tests.commands.calls import dpca
from tests.drawn import examples


@examples(60)
@given(
    n=st.integers(1, 6), d=st.integers(1, 30), k=st.integers(1, 5), share=st.sampled_from([0.0, 0.1, 0.6, 1.0]),
    seed=st.integers(0, 2**16),
)  # fmt: skip
def test_scores_and_errors_are_those_of_ordinary_least_squares(n, d, k, share, seed):
    g, k = np.random.default_rng(seed), min(k, d)
    w = np.linalg.qr(g.normal(size=(d, k)))[0].T
    x, missing = g.normal(size=(n, d)), g.random((n, d)) < share
    present = np.where(missing, 0, x)
    sums, half = np.zeros((n, n_sums(k))), d // 2
    for piece in (slice(0, half), slice(half, d)):
        add_products(sums, w[:, piece], missing[:, piece] if missing[:, piece].any() else None)
    scores, errors = solved(present @ w.T, (present**2).sum(axis=1), sums, d - missing.sum(axis=1).astype(float))
    for one in range(n):
        some = ~missing[one]
        p = int(some.sum())
        singular = np.linalg.svd(w[:, some], compute_uv=False) if p else np.zeros(1)
        if p < k or singular.min() ** 2 < 1e-5:
            assert p >= k or np.isnan(scores[one]).all()
            continue
        s = np.linalg.lstsq(w[:, some].T, x[one, some], rcond=None)[0]
        np.testing.assert_allclose(scores[one], s, atol=1e-7 / singular.min() ** 2)
        if p > k:
            residual = x[one, some] - w[:, some].T @ s
            covariance = residual @ residual / (p - k) * np.linalg.inv(w[:, some] @ w[:, some].T)
            np.testing.assert_allclose(errors[one], np.sqrt(np.diag(covariance)), rtol=1e-5, atol=1e-6)
        else:
            assert np.isnan(errors[one]).all()


X = np.random.default_rng(0).normal(size=(40, 300)) @ np.diag(np.linspace(2, 0.5, 300)) + 5


def run(x=X, **preprocess):
    zarr.create_array("x.zarr", data=x, chunks=(40, 64), overwrite=True)
    Path("c.yaml").write_text(
        yaml.safe_dump(
            {
                "input": {"uri": "x.zarr"}, "preprocess": {"missing": "mean", **preprocess},
                "model": {"n_components": 3, "precision": "double"}, "output": {"path": "r", "report": False},
            }
        )
    )  # fmt: skip
    assert not dpca("run", "c.yaml", "--overwrite")


def transformed(*more, code=0):
    assert dpca("transform", "r", "new.zarr", "--out", "s.zarr", "--overwrite", *more) == code
    return {name: array[...] for name, array in zarr.open_group("s.zarr").arrays()} if not code else None


@pytest.mark.parametrize("scale", ["none", "std"])
def test_a_sample_with_missing_values_is_projected_by_those_that_it_has(scale, capsys):
    run(scale=scale)
    new = X[:6].copy()
    gaps = np.random.default_rng(1).random(new.shape) < np.array([0, 0.1, 0.5, 0.8, 0.95, 0.995])[:, None]
    new[gaps] = np.nan
    zarr.create_array("new.zarr", data=new, chunks=(4, 50), overwrite=True)
    found = transformed("--projection", "least_squares")
    said = capsys.readouterr().err
    assert "were left out: scores are those by least squares on the values that there are" in said
    stored = {name: array[...] for name, array in zarr.open_group("r/result.zarr").arrays()}
    w, c = stored["components"], (new - stored["mean"]) / stored["scale"]
    for one in range(5):
        some = ~gaps[one]
        s = np.linalg.lstsq(w[:, some].T, c[one, some], rcond=None)[0]
        np.testing.assert_allclose(found["scores"][one], s, atol=1e-9)
    np.testing.assert_allclose(found["call_rate"], 1 - gaps.mean(axis=1))
    assert (np.isnan(found["scores"][5]).all()) == ((~gaps[5]).sum() < 3)
    # Without a missing value both are the same, and only there.
    plain = transformed()
    assert "call_rate" not in plain
    np.testing.assert_allclose(plain["scores"][0], found["scores"][0], atol=1e-9)
    assert np.abs(plain["scores"][3]).sum() < np.abs(found["scores"][3]).sum()
    errors = found["projection_standard_error"]
    assert (np.diff(errors[[0, 2, 3, 4]].mean(axis=1)) > 0).all()


def test_a_component_without_variance_has_the_score_0_and_the_others_theirs(capsys):
    x = X[:6]
    zarr.create_array("x.zarr", data=x, chunks=(6, 64), overwrite=True)
    Path("c.yaml").write_text(
        "input: {uri: x.zarr}\nmodel: {n_components: 6, precision: double}\noutput: {path: r, report: false}\n"
    )
    assert not dpca("run", "c.yaml")
    new = X[6:10].copy()
    new[0, :100], new[1, 3:], new[2] = np.nan, np.nan, np.nan  # also of a fit that refuses missing values
    zarr.create_array("new.zarr", data=new)
    found = transformed("--projection", "least_squares")["scores"]
    w = zarr.open_group("r/result.zarr")["components"][...][:5]
    c, some = new - x.mean(axis=0), np.arange(300) >= 100
    np.testing.assert_allclose(found[0, :5], np.linalg.lstsq(w[:, some].T, c[0, some], rcond=None)[0], atol=1e-9)
    np.testing.assert_allclose(found[3, :5], w @ c[3], atol=1e-9)
    np.testing.assert_allclose(found[[0, 3], 5], 0, atol=1e-9)
    assert np.isnan(found[1:3]).all()
    assert (
        "sample 1: too few values to tell the components apart by least squares, and NaN in the result"
        in capsys.readouterr().err
    )


def test_what_has_no_components_of_one_centred_input_refuses(capsys):
    run(center=False)
    zarr.create_array("new.zarr", data=X[:3], overwrite=True)
    assert transformed("--projection", "least_squares", code=2) is None
    assert "--projection is least_squares, but r has no components of one centred input" in capsys.readouterr().err
