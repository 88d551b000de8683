"""Weights, masks and weights of samples from files, through the commands."""

import json
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
import zarr

from dpca.numerics.panels import Rules
from dpca.numerics.weights import SampleWeights
from tests.commands.calls import X, dpca
from tests.methods.test_preprocessing import dense

RNG = np.random.default_rng(3)
WEIGHTS, MASK, OF_SAMPLES = RNG.gamma(2, size=(20, 1)), RNG.random((20, 30)) < 0.7, RNG.integers(1, 4, 12).astype(float)
CONFIG = """
input: {uri: x.zarr}
preprocess:
  scale: pareto
  missing: mean
  weights: {uri: weights.zarr}
  sample_weights: {uri: of_samples.npy, kind: reliability}
  filters: {mask: {uri: mask.npy}, min_variance: 0.1, max_missing: 0.5}
model: {n_components: 3}
output: {path: r, report: false}
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    x = X.astype("f8").copy()
    x[:, ~MASK], x[2, 1, 1:5] = np.nan, np.nan
    x[:9, 3, 3] = np.nan
    zarr.create_array("x.zarr", data=x, chunks=(12, 5, 30))
    zarr.create_array("weights.zarr", data=WEIGHTS)
    np.save("mask.npy", MASK)
    np.save("of_samples.npy", OF_SAMPLES)
    Path("c.yaml").write_text(CONFIG)
    return x


def test_a_run_with_weights_masks_and_weights_of_samples(here, capsys):
    assert dpca("run", "c.yaml") == 0
    rules = Rules(scale="pareto", missing="mean", min_variance=0.1, max_missing=0.5)
    given = SampleWeights(OF_SAMPLES, "reliability")
    weights = np.broadcast_to(WEIGHTS, (20, 30)).reshape(-1)
    standard, mean, *_, whole = dense(here.reshape(12, -1), rules, weights, MASK.reshape(-1), given)
    mean = mean.reshape(20, 30)
    result = xr.open_zarr("r/result.zarr").load()
    sigma = np.linalg.svd(np.sqrt(OF_SAMPLES)[:, None] * standard, compute_uv=False)
    np.testing.assert_allclose(result.explained_variance, sigma[:3] ** 2 / whole, rtol=1e-9)
    assert (np.isnan(result.components.values) == np.isnan(mean)).all()
    counts = json.loads(Path("r/manifest.json").read_text())["counts"]
    assert counts["masked_features"] == (~MASK).sum()
    assert counts["incomplete_features"] == (1 if MASK[3, 3] else 0)
    assert (
        f"{(~MASK).sum()} features were left out by the filters (mask, chromosomes, variants, exclude, min_distance), and are NaN in the result"
        in capsys.readouterr().err
    )
    # The same samples, as new ones, and back.
    assert dpca("transform", "r", "x.zarr", "--out", "scores.zarr") == 0
    np.testing.assert_allclose(zarr.open_array("scores.zarr/scores")[...], result.scores, atol=1e-9)
    assert dpca("reconstruct", "r", "--out", "back.zarr") == 0
    back = xr.open_zarr("back.zarr").load().reconstruction
    assert (np.isnan(back.values) == np.isnan(mean)).all()
    expected = np.tensordot(result.scores, result.components.fillna(0), axes=1) * (result.scale / result.weights).values
    np.testing.assert_allclose(back, expected + mean, atol=1e-9)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            {"weights": "cos_lat"},
            "preprocess.weights is 'cos_lat', but sqrt_cos_lat, or an array {uri: PATH} is allowed",
        ),
        ({"weights": "sqrt_cos_lat"}, "weights are sqrt_cos_lat, but no axis has latitudes"),
        ({"weights": "{uri: none.npy}"}, "none.npy: does not exist"),
        (
            {"weights": "{uri: of_samples.npy}"},
            "of_samples.npy: has shape (12,), which does not broadcast to the feature axes (20, 30)",
        ),
        ({"filters.mask": "{uri: x.zarr}"}, "x.zarr: has shape (12, 20, 30), which does not broadcast"),
        ({"sample_weights": "{uri: mask.npy}"}, "mask.npy: holds weights of shape (20, 30), but"),
        ({"filters.min_variance": "1e9"}, "features are left out"),
        ({"filters.max_missing": "2"}, "preprocess.filters.max_missing is 2, but"),
        ({"missing": "pairwise"}, "missing is 'pairwise', which divides the Gram matrix entry by entry"),
        ({"sample_weights": "{uri: of_samples.npy, kind: precision}"}, "but 'frequency' or 'reliability' is allowed"),
    ],
)
def test_errors_say_which_key_and_what_is_allowed(here, capsys, keys, message):
    overrides = [part for key, value in keys.items() for part in ("--set", f"preprocess.{key}={value}")]
    assert dpca("run", "c.yaml", *overrides) in (1, 2)
    assert message in capsys.readouterr().err
    assert not Path("r/manifest.json").exists()


def test_a_plan_counts_what_weights_take(here, capsys):
    assert dpca("plan", "c.yaml", "--json") == 0
    (process,) = json.loads(capsys.readouterr().out)["memory"]["processes"]
    for stage in process["stages"]:
        held = [array["name"] for array in stage["arrays"]]
        assert ("weights of a slab" in held) == (
            stage["name"].startswith(("gram", "tsqr")) or stage["name"] == "components"
        )
    assert dpca("validate", "c.yaml") == 0


def test_weights_of_all_samples_are_those_of_the_chosen_ones(here):
    chosen = [7, 2, 9, 0]
    np.save("some.npy", OF_SAMPLES[chosen])
    which = ("--set", f"input.samples={chosen}", "--set", "preprocess.filters={mask: {uri: mask.npy}}")
    assert dpca("run", "c.yaml", *which) == 0
    some = ("--set", "preprocess.sample_weights.uri=some.npy", "--set", "output.path=some")
    assert dpca("run", "c.yaml", *which, *some) == 0
    for name in ("scores", "explained_variance"):
        np.testing.assert_array_equal(
            zarr.open_array(f"r/result.zarr/{name}")[...], zarr.open_array(f"some/result.zarr/{name}")[...]
        )


def test_a_gram_matrix_of_weighted_samples_is_not_taken_for_kernels(here, capsys):
    assert dpca("run", "c.yaml") == 0
    np.testing.assert_array_equal(zarr.open_array("r/result.zarr/sample_weights")[...], OF_SAMPLES)
    other = ("--set", "output.path=k", "--set", "model.kind=kernel_pca", "--set", "model.kernel=rbf")
    assert dpca("run", "c.yaml", "--from-gram", "r", *other) == 2
    capsys.readouterr()
    assert dpca("run", "c.yaml", "--from-gram", "r", *other, "--set", "preprocess.sample_weights=null") == 2
    assert "its Gram matrix is of other values: preprocess.sample_weights" in capsys.readouterr().err


def test_weights_that_are_1_somewhere_are_no_damage(here, capsys):
    """Chunks that hold nothing but the fill value are written, too."""
    mask = np.ones((20, 30), bool)
    mask[3] = False
    np.save("mask.npy", mask)
    x = np.random.default_rng(0).normal(size=(12, 20, 30))
    zarr.create_array("y.zarr", data=x, chunks=(12, 1, 30))
    keys = ("--set", "input.uri=y.zarr", "--set", "preprocess={filters: {mask: {uri: mask.npy}}}")
    assert dpca("run", "c.yaml", *keys) == 0
    assert dpca("transform", "r", "y.zarr", "--out", "scores.zarr") == 0
    whole = np.linalg.svd((x - x.mean(0))[:, mask], full_matrices=False)
    np.testing.assert_allclose(
        np.abs(zarr.open_array("scores.zarr/scores")[...]), np.abs(whole[0] * whole[1])[:, :3], atol=1e-9
    )


def test_a_gram_matrix_of_other_weights_is_not_taken_for_kernels(here, capsys):
    keys = ("--set", "preprocess.sample_weights=null")
    assert dpca("run", "c.yaml", *keys) == 0
    kernel = (
        *keys,
        "--set",
        "output.path=k",
        "--set",
        "model.kind=kernel_pca",
        "--set",
        "model.kernel=rbf",
        "--from-gram",
        "r",
    )
    assert dpca("run", "c.yaml", *kernel) == 0
    zarr.create_array("weights.zarr", data=2 * WEIGHTS, overwrite=True)
    capsys.readouterr()
    assert dpca("run", "c.yaml", *kernel, "--overwrite") == 2
    assert "preprocess.weights" in capsys.readouterr().err


def test_one_dimensional_weights_in_hdf5_need_no_name(here, capsys):
    import h5py

    with h5py.File("w.h5", "w") as file:
        file["w"] = np.ones(30)
    keys = ("--set", "preprocess.weights={uri: w.h5}")
    assert dpca("run", "c.yaml", *keys) == 0
    with h5py.File("w.h5", "a") as file:
        file["v"] = np.ones(30)
    assert dpca("run", "c.yaml", *keys, "--overwrite") == 2
    assert "w.h5: holds v, w, and which of them is not said" in capsys.readouterr().err
