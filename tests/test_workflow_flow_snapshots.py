"""The workflow of a wake: what its README and its figure say."""

from pathlib import Path

import numpy as np
import pytest
import xarray as xr
import zarr

from tests.commands.calls import dpca
from workflows.flow_snapshots.make import PERIOD, make

CONFIG = Path(__file__).parents[1] / "configs" / "flow_snapshots.yaml"


@pytest.fixture(scope="module")
def wake(tmp_path_factory):
    """Result, and the arrays that were read."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("wake"))
        Path("dpca-wake").mkdir()
        make(Path("dpca-wake"), snapshots=100, rows=64, columns=160)
        assert dpca("run", CONFIG, "--set", "output.report=false") == 0
        group = zarr.open_group("dpca-wake/wake.zarr")
        stored = {name: group[name][:] for name in ("velocity", "fluid", "root_area")}
        yield xr.open_zarr("results/flow_snapshots/result.zarr").load(), stored


def test_modes_come_in_pairs_of_equal_energy(wake):
    result, _ = wake
    energy = result.explained_variance_ratio.values
    assert energy[:2].sum() > 0.85
    assert energy[1:6:2] == pytest.approx(energy[0:6:2], rel=0.1)
    assert (energy[2:6:2] < energy[1:5:2] / 3).all()


def test_the_phase_portrait_is_a_circle_passed_once_a_period(wake):
    result, _ = wake
    first, second = result.scores.values[:, :2].T
    radius = np.hypot(first, second)
    assert radius.std() < 0.05 * radius.mean()
    turns = np.unwrap(np.arctan2(second, first))
    expected = 2 * np.pi * result["time"].values / PERIOD
    assert np.abs(turns - turns[0]) == pytest.approx(expected, abs=0.1)


def test_variance_is_the_kinetic_energy_of_fluctuations(wake):
    result, stored = wake
    velocity = stored["velocity"].astype(np.float64)
    fluctuations = velocity - velocity.mean(axis=0)
    total = np.nansum(fluctuations**2 * stored["root_area"] ** 2) / (len(velocity) - 1)
    assert result.eigenvalues.values.sum() / (len(velocity) - 1) == pytest.approx(total, rel=1e-5)


def test_the_cylinder_is_left_out(wake):
    result, stored = wake
    assert np.isnan(result.components.values).any(axis=(0, 1)).tolist() == (~stored["fluid"]).tolist()


@pytest.mark.looks
def test_a_figure_is_drawn(wake):
    pytest.importorskip("matplotlib", reason="needs pip install '.[figures]'")
    from workflows.flow_snapshots.draw import draw

    draw(wake[0], "wake.png")
    assert Path("wake.png").stat().st_size > 50_000
