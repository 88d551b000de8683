"""The workflow of climate EOFs, on a coarser grid: what its README and its figure say."""

from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from tests.commands.calls import dpca
from workflows.climate_eof.land import is_land
from workflows.climate_eof.make import grid, make, patterns

CONFIG = Path(__file__).parents[1] / "configs" / "climate_eof.yaml"
GROUPS = ("sst", "slp")
DEGREES = 5.0


@pytest.fixture(scope="module")
def climate(tmp_path_factory):
    """The result, that without block scaling, the anomalies as xarray reads them, and what was planted."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("climate"))
        Path("dpca-climate").mkdir()
        make(Path("dpca-climate"), degrees=DEGREES)
        for scaling, precision in (("first_eigenvalue", "double"), ("none", "auto")):
            keys = {
                "preprocess.block_scaling": scaling,
                "model.precision": precision,
                "output.path": f"results/{scaling}",
            }
            chosen = [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]
            assert dpca("run", CONFIG, "--set", "output.report=false", *chosen) == 0
        years = [xr.load_dataset(path, engine="h5netcdf") for path in sorted(Path("dpca-climate").glob("sst_*.nc"))]
        fields = {
            "sst": xr.concat(years, "time").sst,
            "slp": xr.load_dataset("dpca-climate/slp.nc", engine="h5netcdf").slp,
        }
        indices = xr.load_dataset("dpca-climate/indices.nc", engine="h5netcdf")
        scaled, plain = (xr.open_zarr(f"results/{name}/result.zarr").load() for name in ("first_eigenvalue", "none"))
        yield scaled, plain, fields, indices


@pytest.fixture(scope="module")
def dense(climate):
    """U, s, V' of each variable's weighted anomalies, scaled by the leading singular value of each, and its features."""
    _, _, fields, _ = climate
    blocks, factors = [], {}
    for group in GROUPS:
        values = fields[group].values.astype(np.float64)
        values = (values - values.mean(axis=0)) * np.sqrt(np.cos(np.deg2rad(fields[group].lat.values)))[:, None]
        block = values[:, np.isfinite(values[0])]
        factors[group] = np.sqrt(len(block) - 1) / np.linalg.norm(block, 2)
        blocks.append(block * factors[group])
    return *np.linalg.svd(np.hstack(blocks), full_matrices=False), factors, blocks


def test_it_is_the_svd_of_weighted_anomalies(climate, dense):
    result, _, fields, _ = climate
    u, s, vt, factors, blocks = dense
    k = 3
    assert result.block_factor.values == pytest.approx([factors[group] for group in result.group.values], rel=1e-6)
    assert result.singular_values.values == pytest.approx(s[: result.sizes["component"]], rel=1e-6)
    assert result.explained_variance_ratio.values[:k] == pytest.approx(s[:k] ** 2 / (s**2).sum(), rel=1e-6)
    signs = np.sign((u[:, :k] * result.scores.values[:, :k]).sum(axis=0))
    assert np.abs(result.scores.values[:, :k] - signs * (u * s)[:, :k]).max() < 1e-5 * s[0]
    start = 0
    for group, block in zip(GROUPS, blocks, strict=True):
        of_group = vt[:k, start : start + block.shape[1]]
        start += block.shape[1]
        found = result[f"components_{group}"].values[:k]
        assert np.abs(found[:, np.isfinite(fields[group].values[0])] - signs[:, None] * of_group).max() < 1e-5
        expected = np.linalg.norm(of_group, axis=1) ** 2
        assert result.variance_share.sel(group=group).values[:k] == pytest.approx(expected, abs=1e-6)


def test_enso_is_in_both_variables_and_nao_in_pressure(climate):
    result, _, fields, indices = climate
    assert (result.time.values == indices.time.values).all()
    planted = patterns(*grid(DEGREES))
    for k, mode in enumerate(("enso", "nao")):
        assert abs(np.corrcoef(result.scores[:, k], indices[mode])[0, 1]) > 0.95
        for group, pattern in planted[mode].items():
            of_unit = np.sqrt(result.explained_variance[k]) / result.block_factor.sel(group=group)
            eof = (of_unit * result[f"components_{group}"][k] / result[f"weights_{group}"]).values
            present = np.isfinite(fields[group].values[0])
            eof, pattern = eof[present], pattern[present]
            assert abs(np.corrcoef(eof, pattern)[0, 1]) > 0.95
            assert abs(eof @ pattern) == pytest.approx(pattern @ pattern, rel=0.1)  # in K and Pa
    share = result.variance_share.sel(group="slp").values
    assert 0.2 < share[0] < 0.6
    assert share[1] > 0.9


def test_without_block_scaling_pressure_decides_alone(climate):
    _, result, _, indices = climate
    assert result.variance_share.sel(group="slp").values[0] > 0.999
    assert abs(np.corrcoef(result.scores[:, 0], indices.nao)[0, 1]) > 0.95


def test_land_is_left_out_of_temperature_alone(climate):
    result, *_ = climate
    land = is_land(*grid(DEGREES))
    assert (np.isnan(result.components_sst.values) == land).all()
    assert np.isfinite(result.components_slp.values).all()
    area = np.cos(np.deg2rad(grid(DEGREES)[0]))
    assert np.average(land.mean(axis=1), weights=area) == pytest.approx(0.29, abs=0.05)  # of the Earth


@pytest.mark.looks
def test_a_figure_is_drawn(climate):
    pytest.importorskip("matplotlib", reason="needs pip install '.[figures]'")
    from workflows.climate_eof.draw import draw

    result, _, _, indices = climate
    draw(result, indices, "climate_eof.png")
    assert Path("climate_eof.png").stat().st_size > 50_000
