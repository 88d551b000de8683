"""Draws of samples by `dpca derive` and in a notebook: what they store, maps of standard errors, and what is refused."""

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import zarr

import dpca as package
from dpca.derived.resampling import Bootstrap, LeaveOut, turned
from dpca.errors import ConfigError, OverBudgetError
from dpca.sources.base import Reader
from tests.commands.calls import dpca, run
from tests.made import made

N, D, K = 40, 300, 3
YEARS = np.arange(N) // 8
DERIVE = """
from: r
analyses:
  - {name: boot, model: {kind: pca, n_components: 3, resampling: {draws: 60, seed: 4, standard_errors: true}}}
  - {name: few, model: {kind: pca, n_components: 2, resampling: {draws: 60, seed: 4, standard_errors: true, columns: 6}}}
  - {name: years, model: {kind: pca, n_components: 2, resampling: {kind: leave_out, by: {uri: years.npy}, align: procrustes}}}
  - {name: half, samples: [select: {samples: {stop: 30}}], model: {kind: pca, n_components: 2, resampling: {kind: jackknife, standard_errors: true}}}
output: {path: d, report: false}
"""


def samples(dtype="f8"):
    """Three large components, far from 0, in a field whose columns have other scales."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((N, D))
    x += (rng.standard_normal((N, 3)) * [40, 22, 12]) @ np.linalg.qr(rng.standard_normal((D, 3)))[0].T
    return (x + rng.standard_normal(D) * 20).astype(dtype)


def stored(kind):
    """The samples, and how a result of them is to be made."""
    x = samples("f4" if kind == "single" else "f8")
    zarr.create_array("x.zarr", data=x, chunks=(N, 70))
    np.save("years.npy", YEARS)
    solver, precision = ("gram_eigh", "single") if kind == "single" else (kind, "double")
    model = f"{{n_components: 3, svd_solver: {solver}, precision: {precision}}}"
    Path("c.yaml").write_text(
        f"input: {{uri: x.zarr}}\nmodel: {model}\noutput: {{path: r, components: false, report: false}}\n"
    )
    Path("d.yaml").write_text(DERIVE)


def finished(kind):
    run(partial(stored, kind))


def derived(kind):
    finished(kind)
    assert dpca("derive", "d.yaml") == 0


IN_DOUBLE = ["gram_eigh", pytest.param("tsqr", marks=pytest.mark.long)]
"""From a Gram matrix, and from a factor R."""


@pytest.fixture
def ran(kind):
    """The samples of a result, and to what its numbers are known."""
    single = kind == "single"
    return samples("f4" if single else "f8").astype(float), 2e-4 if single else 1e-8


def of_samples():
    zarr.create_array("x.zarr", data=samples(), chunks=(N, 70))
    np.save("years.npy", YEARS)
    np.save("same.npy", np.full(N, 7))
    Path("c.yaml").write_text("input: {uri: x.zarr}\noutput: {path: r, components: false, report: false}\n")


def maps_of_draws(x, scheme, k, align="order"):
    """Components of all rows, and of each draw aligned with them, from the data."""
    own = np.linalg.svd(x - x.mean(axis=0), full_matrices=False)[2][:k].T
    found = []
    for draw in scheme.draws():
        vt = np.linalg.svd(x[draw.rows] - x[draw.rows].mean(axis=0), full_matrices=False)[2]
        found.append(vt[: k + 5].T @ turned(own.T @ vt[: k + 5].T, align))
    return np.array(found), own


@pytest.mark.parametrize("kind", [*IN_DOUBLE, "single"])
def test_standard_errors_are_those_of_refits(kind, ran):
    x, tolerance = ran
    made(derived, kind)
    found = zarr.open_group("d/result.zarr")
    certificates = json.loads(Path("d/certificate.json").read_text())["analyses"]
    cases = {"boot": (x, Bootstrap(N, 60, 4), 3), "half": (x[:30], LeaveOut(np.arange(30)), 2)}
    for name, (rows, scheme, k) in cases.items():
        maps, own = maps_of_draws(rows, scheme, k)
        expected = np.sqrt((scheme.deviations(maps, own) ** 2).sum(axis=0)).T
        np.testing.assert_allclose(found[f"{name}/standard_errors"], expected, rtol=100 * tolerance, atol=tolerance)
        assert max(certificates[name]["maps"]["standard_errors"]) < tolerance
        assert certificates[name]["resampling"]["lost"] is None
    exact, fewer = (found[f"{name}/standard_errors"][:2] for name in ("boot", "few"))
    assert (fewer <= exact * (1 + tolerance)).all()
    lost = certificates["few"]["resampling"]["lost"]
    np.testing.assert_allclose(1 - (fewer**2).sum(axis=1) / (exact**2).sum(axis=1), lost, atol=100 * tolerance)
    assert "from 6 columns lack" in certificates["few"]["verdict"]
    assert "standard_errors" not in found["years"]
    manifest = json.loads(Path("d/manifest.json").read_text())
    assert manifest["counts"]["bytes_decoded"] == x.size * (4 if tolerance > 1e-6 else 8)  # one read for all of it


@pytest.mark.parametrize("kind", IN_DOUBLE)
def test_intervals_need_no_data(kind, ran):
    x, tolerance = ran
    made(finished, kind)
    Path("x.zarr").rename("gone.zarr")
    assert dpca("derive", "d.yaml", "--set", "components=false") == 0
    found = zarr.open_group("d/result.zarr")
    years = LeaveOut(YEARS)
    centred = (x[one.rows] - x[one.rows].mean(axis=0) for one in years.draws())
    sizes = np.array([np.linalg.svd(rows, compute_uv=False) ** 2 for rows in centred])
    of_draws = sizes[:, :2] / (N - 8 - 1)
    np.testing.assert_allclose(found["years/explained_variance_of_draws"], of_draws, rtol=tolerance)
    shares = sizes[:, :2] / sizes.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found["years/explained_variance_ratio_of_draws"], shares, rtol=tolerance)
    assert found["years/draw"][...].tolist() == [0, 1, 2, 3, 4]
    low, high = found["boot/explained_variance_interval"][...]
    values = found["boot/explained_variance"][...]
    assert ((low < values) & (values < high)).all()
    assert found["boot/scores_interval"].shape == (2, N, 3)
    assert "standard_errors" not in found["boot"]
    caveats = {
        name: one["caveat"] for name, one in json.loads(Path("d/certificate.json").read_text())["analyses"].items()
    }
    assert "draws are of 5 units, which is few" in caveats["years"]


@pytest.mark.parametrize("kind", [*IN_DOUBLE, "single"])
def test_a_notebook_has_the_same(kind, ran, monkeypatch):
    _, tolerance = ran
    made(derived, kind)
    found = zarr.open_group("d/result.zarr")
    reads = []
    read = Reader.read
    monkeypatch.setattr(Reader, "read", lambda self, region: reads.append(region) or read(self, region))
    gram = package.open_gram("r")
    boot = gram.pca(3).bootstrap(60, seed=4, standard_errors=True)
    years = gram.pca(2).leave_out(YEARS, align="procrustes")
    for name, one in (("boot", boot), ("years", years)):
        for array, values in one.arrays.items():
            np.testing.assert_allclose(values, found[name][array], rtol=1e-12, atol=1e-12, err_msg=array)
    assert boot.explained_variance_interval.dims == ("limit", "component")
    assert boot.explained_variance_interval.limit.values.tolist() == ["lower", "upper"]
    assert not reads
    np.testing.assert_allclose(boot.standard_errors(), found["boot/standard_errors"], atol=tolerance)
    count = len(reads)
    np.testing.assert_allclose(boot.components(), found["boot/components"], atol=tolerance)
    assert len(reads) == count > 0  # both in one read
    half = gram.isel(sample=slice(30)).pca(2).jackknife()
    np.testing.assert_allclose(half.scores_standard_error, found["half/scores_standard_error"], rtol=1e-9)


REFUSED = {
    "{draws: 10}": "there are 10 draws, but intervals of level 0.95 need 40",
    "{kind: leave_out}": "groups are left out, but none are given",
    "{kind: jackknife, by: {uri: years.npy}}": "the jackknife leaves out single rows, but groups are given",
    "{kind: jackknife, block: 3}": "only a bootstrap without groups draws blocks",
    "{block: 30}": "blocks have 30 of 40 rows, but 1 to 20 is allowed",
    "{columns: 5}": "but no standard_errors are asked for",
    "{kind: leave_out, by: {uri: same.npy}}": "all 40 rows have the label 7, and there is no other group",
    "{level: 1.5}": "less than 1",
    "{kind: sometimes}": "bootstrap",
}


@pytest.mark.parametrize("asked", REFUSED)
def test_what_can_not_be_is_refused_with_its_line(asked, capsys):
    made(run, of_samples)
    Path("d.yaml").write_text(
        f"from: r\nanalyses:\n  - name: one\n    model:\n      kind: pca\n      resampling: {asked}\noutput: {{path: d}}\n"
    )
    capsys.readouterr()
    assert dpca("derive", "d.yaml") == 2
    said = capsys.readouterr().err
    assert REFUSED[asked] in said
    assert "d.yaml:6" in said
    assert not Path("d").exists()


def test_components_that_are_not_distinct_are_so_however_draws_are_aligned():
    """Procrustes turns draws to be like all rows: their span is known, and single variances are not."""
    rng = np.random.default_rng(0)
    np.save("x.npy", 5 * rng.standard_normal((60, 3)) @ rng.standard_normal((3, 200)) + rng.standard_normal((60, 200)))
    Path("c.yaml").write_text("input: {uri: x.npy}\noutput: {path: r, components: false, report: false}\n")
    assert dpca("run", "c.yaml") == 0
    gram = package.open_gram("r")
    order, turned_near = (gram.pca(3).bootstrap(50, align=align) for align in ("order", "procrustes"))
    assert order.certificate["resampling"]["distinct"] == turned_near.certificate["resampling"]["distinct"]
    assert "not told from neighbours" in turned_near.caveat
    np.testing.assert_array_equal(order.congruence, turned_near.congruence)
    assert (turned_near.scores_standard_error.sum() < order.scores_standard_error.sum()).item()


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"draws": 40.5}, "draws is 40.5, but an integer is allowed"),
        ({"seed": -1}, "seed is -1"),
        ({"level": 1.0}, "level is 1.0"),
        ({"align": "both"}, "align is 'both'"),
        ({"draws": 19, "level": 0.9}, "intervals of level 0.9 need 20"),
    ],
)
def test_settings_of_a_notebook_are_those_of_a_configuration(asked, said):
    made(run, of_samples)
    model = package.open_gram("r").pca(2)
    with pytest.raises(ConfigError, match=said):
        model.bootstrap(**asked)
    assert len(model.bootstrap(np.int64(20), level=0.9).congruence) == 20
    with pytest.raises(ConfigError, match="Give by"):
        model.leave_out(None)


def test_axes_of_features_are_not_those_of_draws(capsys):
    xr = pytest.importorskip("xarray")
    data = xr.DataArray(samples()[:, :60].reshape(N, 3, 20), dims=("time", "level", "draw"))
    data.to_dataset(name="x").to_zarr("x.zarr", consolidated=False)
    Path("c.yaml").write_text("input: {uri: x.zarr, array: x}\noutput: {path: r, components: false, report: false}\n")
    assert dpca("run", "c.yaml") == 0
    Path("d.yaml").write_text(DERIVE.split("  - {name: few")[0] + "output: {path: d, report: false}\n")
    assert dpca("derive", "d.yaml") == 2
    assert "analysis boot: has an axis draw, and so have the features" in capsys.readouterr().err
    assert not Path("d").exists()
    assert dpca("derive", "d.yaml", "--set", "components=false") == 0


def test_draws_beyond_the_memory_are_refused_before_any_is_made():
    made(run, of_samples)
    with pytest.raises(OverBudgetError, match="fewer draws"):
        package.open_gram("r", memory="400 MiB").pca(10).bootstrap(10**6)
    Path("d.yaml").write_text(
        "from: r\nanalyses: [{name: one, model: {kind: pca, resampling: {draws: 1000000}}}]\n"
        "compute: {memory: 400 MiB}\noutput: {path: d}\n"
    )
    assert dpca("derive", "d.yaml") != 0
    assert not Path("d").exists()


def test_rows_that_are_alike_in_a_smaller_component_are_told():
    rng = np.random.default_rng(0)
    slow = np.cumsum(rng.standard_normal(90))
    scores = np.stack([30 * rng.standard_normal(90), slow - slow.mean()], axis=1)
    np.save("x.npy", scores @ rng.standard_normal((2, 200)) + 0.1 * rng.standard_normal((90, 200)))
    Path("c.yaml").write_text("input: {uri: x.npy}\noutput: {path: r, components: false, report: false}\n")
    assert dpca("run", "c.yaml") == 0
    found = package.open_gram("r").pca(2).bootstrap(50)
    assert "are alike in the scores of component 2 (" in found.caveat
    first, second = found.certificate["resampling"]["correlation"]
    assert first < 0.3 < 0.8 < second


def test_rows_that_are_alike_are_told_to_be_drawn_in_blocks():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((90, 200)) * 0.1 + np.cumsum(rng.standard_normal((90, 1)), axis=0) * rng.standard_normal(
        200
    )
    zarr.create_array("x.zarr", data=x)
    Path("c.yaml").write_text("input: {uri: x.zarr}\noutput: {path: r, components: false, report: false}\n")
    assert dpca("run", "c.yaml") == 0
    gram = package.open_gram("r", time="index")
    assert "draw blocks of them" in gram.pca(1).bootstrap(50).caveat
    assert "leave out runs of them" in gram.pca(1).jackknife().caveat
    blocks = gram.pca(1).bootstrap(200, block=15)
    assert "blocks of them" not in blocks.caveat
    alone = gram.pca(1).bootstrap(200)
    wider, width = (np.ptp(np.log(one.explained_variance_interval.values)) for one in (blocks, alone))
    assert wider > 1.5 * width
    assert "were made of all rows" in gram.detrend().pca(1).bootstrap(50).caveat
    with pytest.raises(ConfigError, match="only those of a pca"):
        gram.dmd(2).bootstrap()
    with pytest.raises(ConfigError, match="were resampled before"):
        alone.jackknife()
    with pytest.raises(ConfigError, match="have weights"):
        gram.weighted(np.arange(1.0, 91.0)).pca(1).bootstrap(50)
    with pytest.raises(ConfigError, match="no standard errors"):
        alone.standard_errors()
