"""The workflow of one read, on ten years and a coarser grid: what its README and its figure say."""

import json
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from scipy import signal

from tests.commands.calls import dpca
from workflows.one_read.findings import findings, opened
from workflows.one_read.make import STEPS, grid, is_winter, make, patterns, series

CONFIGS = Path(__file__).parents[1] / "configs"
YEARS, GIB = 10, 0.02


@pytest.fixture(scope="module")
def one_read(tmp_path_factory):
    """The analyses, the field, the same with its weights as (time, points) in float64, and what each command read of it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("one_read"))
        Path("dpca-one-read").mkdir()
        make(Path("dpca-one-read"), GIB, YEARS)
        assert dpca("run", CONFIGS / "one_read.yaml", "--set", "output.report=false") == 0
        assert dpca("derive", CONFIGS / "one_read-derived.yaml", "--set", "output.report=false") == 0
        field = xr.open_zarr("dpca-one-read/field.zarr", consolidated=False)["temperature"].load()
        weighted = (field * np.sqrt(np.cos(np.deg2rad(field["lat"])))).values.reshape(len(field), -1)
        read = [
            json.loads(Path(f"results/{name}/manifest.json").read_text())["counts"]["bytes_decoded"]
            for name in ("one_read", "one_read-derived")
        ]
        derived = {name: one.load() for name, one in opened("results/one_read-derived").items()}
        yield derived, field, weighted, read


def test_all_maps_take_one_read(one_read):
    _, field, _, read = one_read
    assert read == [field.nbytes] * 2


def test_every_planted_answer_is_found(one_read):
    derived, _, _, _ = one_read
    # Of ten years: the fewer there are, the more the components of different patterns mix.
    tolerances = {"likeness to the": 0.08, "warming": 0.02, "period": 0.02, "what is left": 0.03}
    for analysis, what, planted, found in findings(derived):
        tolerance = next(tolerance for words, tolerance in tolerances.items() if what.startswith(words))
        assert found == pytest.approx(planted, abs=tolerance), (analysis, what)


def test_winters_are_the_svd_of_their_anomalies(one_read):
    derived, _, weighted, _ = one_read
    by_year = weighted.reshape(YEARS, STEPS, -1)
    rows = signal.detrend((by_year - by_year.mean(axis=0)).reshape(weighted.shape), axis=0)[is_winter(YEARS)]
    u, s, vt = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)
    winters, k = derived["winters"], 4
    assert winters["singular_values"].values[:k] == pytest.approx(s[:k], rel=1e-9)
    signs = np.sign((winters["scores"].values[:, :k] * u[:, :k]).sum(axis=0))
    assert np.abs(winters["scores"].values[:, :k] - signs * u[:, :k] * s[:k]).max() < 1e-8 * s[0]
    assert np.abs(winters["components"].values[:k].reshape(k, -1) - signs[:, None] * vt[:k]).max() < 1e-8


def test_the_field_is_the_formula_and_noise(one_read):
    _, made, _, _ = one_read
    assert made.nbytes == pytest.approx(GIB * 2**30, rel=0.1)
    latitude, longitude = grid(made.sizes["lat"])
    assert (made["lat"].values == latitude).all()
    along = np.stack(list(series(YEARS).values()), axis=1)
    planted = np.tensordot(along, np.stack(list(patterns(latitude, longitude).values())), axes=1)
    left = made.values - planted
    left -= left.mean(axis=0)
    assert left.std() == pytest.approx(1, abs=0.01)
    assert abs(np.corrcoef(left[:, :40, 3].ravel(), left[:, :40, 4].ravel())[0, 1]) < 0.02


@pytest.mark.looks
def test_a_figure_is_drawn(one_read):
    pytest.importorskip("matplotlib", reason="needs pip install '.[figures]'")
    from workflows.one_read.draw import draw

    draw(one_read[0], "one_read.png")
    assert Path("one_read.png").stat().st_size > 50_000
