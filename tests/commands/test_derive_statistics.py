"""Statistics of samples by `dpca derive`: labels and targets from files, what is planned and written, and what is refused."""

import json
from contextlib import chdir
from pathlib import Path

import numpy as np
import pytest
import zarr
from threadpoolctl import threadpool_limits

import dpca as package
from dpca.analyses.config import AnalysisSection
from dpca.analyses.kinds import Distances
from dpca.analyses.memory import held
from tests.commands.calls import dpca

N, D = 60, 500
RUN = """
input: {uri: x.zarr, array: x, samples_axis: sample}
model: {n_components: 3, precision: double, svd_solver: SOLVER}
output: {path: r, components: false, report: false}
"""
ALL = """
from: r
analyses:
  - {name: near, model: {kind: distances}}
  - {name: points, samples: [select: {samples: {stop: 40}}], model: {kind: pcoa, n_components: 4}}
  - {name: groups, model: {kind: permanova, by: {uri: t.csv, column: group}, permutations: 99, seed: 4, strata: {uri: t.csv, column: site}}}
  - {name: scores, model: {kind: manova, by: {uri: t.csv, column: group}, n_components: 3}}
  - {name: height, samples: [select: {samples: {stop: 50}}], model: {kind: ridge, target: {uri: unsorted.csv, column: height, key: name}, left_out: true}}
  - {name: some, model: {kind: ridge, target: {uri: y.npy}, alpha: [10, 1000.0]}}
  - {name: h2, model: {kind: heritability, target: {uri: y.npy}, covariates: {uri: t.csv, columns: [site]}}}
output: {path: d, report: false}
"""
MADE = {
    "near": {"distances": (N, N)},
    "points": {"scores": (40, 4), "eigenvalues": (4,)},
    "groups": {"pseudo_f": (), "p_value": (), "sum_of_squares": (3,), "permuted_f": (99,), "group_size": (3,)},
    "scores": {"statistic": (4,), "f_value": (4,), "p_value": (4,), "canonical_correlations": (2,)},
    "height": {"leave_one_out": (50,), "predicted_left_out": (10,), "mean_squared_error": (33,)},
    "some": {"leave_one_out": (N,), "r2": (2,)},
    "h2": {"heritability": (), "log_likelihood": (201,)},
}


def samples():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((N, 6)) @ rng.standard_normal((6, D)) + rng.standard_normal((N, D)) + 3
    y = x @ rng.standard_normal(D) / 30 + rng.standard_normal(N)
    return x, y, np.arange(N) % 3, np.arange(N) % 2


@pytest.fixture(scope="module", params=["gram_eigh", "tsqr"])
def place(request, tmp_path_factory):
    """A finished run."""
    place = tmp_path_factory.mktemp("kept")
    x, y, group, site = samples()
    with chdir(place):
        stored = zarr.open_group("x.zarr", mode="w")
        stored.create_array("x", data=x, chunks=(N, 100), dimension_names=("sample", "feature"))
        names = stored.create_array("sample", data=np.arange(N), dimension_names=("sample",))
        assert names.shape == (N,)
        np.save("y.npy", y)
        lines = [f"{n},{'abc'[group[n]]},{'sn'[site[n]]},{float(y[n])!r}" for n in range(N)]
        Path("t.csv").write_text("name,group,site,height\n" + "\n".join(lines) + "\n")
        lines = [lines[n] for n in np.random.default_rng(1).permutation(N)]
        Path("unsorted.csv").write_text("name,group,site,height\n" + "\n".join(lines) + "\n")
        Path("r.yaml").write_text(RUN.replace("SOLVER", request.param))
        assert dpca("run", "r.yaml") == 0
        Path("d.yaml").write_text(ALL)
    return place


@pytest.fixture
def here(place, monkeypatch):
    monkeypatch.chdir(place)


def test_statistics_are_written_and_told_and_no_data_are_read(here, capsys):
    assert dpca("derive", "d.yaml", "--overwrite") == 0
    said = capsys.readouterr().out
    assert "7 analyses in" in said
    assert "no data read" in said
    document = json.loads(Path("d/certificate.json").read_text())["analyses"]
    for name, arrays in MADE.items():
        found = zarr.open_group(f"d/result.zarr/{name}", mode="r")
        assert {array: found[array].shape for array in arrays} == arrays
        assert document[name]["maps"] is None
        assert document[name]["verdict"] in said
    assert document["groups"]["seed"] == 4
    _, y, group, site = samples()
    gram = package.open_gram("r")
    ours = gram.permanova(group, permutations=99, seed=4, strata=np.array(["s", "n"])[site])
    assert document["groups"]["p_value"] == ours.certificate["p_value"]
    with threadpool_limits(1, user_api="blas"):  # as the command does: on some CPUs two threads give other last bits
        height = package.open_gram("r").isel(sample=slice(50)).ridge(y, left_out=True)
    stored = zarr.open_group("d/result.zarr/height", mode="r")
    np.testing.assert_array_equal(stored["predicted_left_out"][...], height.predicted_left_out.values)
    assert np.corrcoef(height.predicted_left_out, y[50:])[0, 1] > 0.5
    assert stored["sample_left_out"][...].tolist() == list(range(50, 60))
    assert document["h2"]["fixed_effects"] == 2
    assert zarr.open_group("d/result.zarr/groups", mode="r")["group"].shape == (3,)


def test_the_plan_counts_distances():
    def planned(count):
        analyses = [AnalysisSection(name=f"n{number}", model=Distances(kind="distances")) for number in range(count)]
        return sum(array.bytes * array.count for array in held(N, analyses))

    assert planned(9) - planned(1) == 8 * 8 * N * N


def test_maps_of_other_analyses_are_made_beside_statistics(here):
    both = "analyses=[{name: near, model: {kind: distances}}, {name: eofs, model: {kind: pca, n_components: 2}}]"
    assert dpca("derive", "d.yaml", "--set", both, "--set", "output.path=both") == 0
    assert zarr.open_group("both/result.zarr/eofs", mode="r")["components"].shape == (2, D)
    assert "components" not in zarr.open_group("both/result.zarr/near", mode="r")


BAD = [
    ("{kind: permanova, by: month}", "needs dates"),
    ("{kind: permanova, by: {uri: t.csv}}", "which column?"),
    ("{kind: permanova, by: {uri: t.csv, column: name}}", "has one row alone, and so have 59 others"),
    ("{kind: permanova, by: {uri: t.csv, column: group}, strata: {uri: s.npy}}", "but there are 60 samples"),
    ("{kind: permanova, by: {uri: t.csv, column: group}, permutations: -1}", "permutations"),
    ("{kind: manova, by: {uri: t.csv, column: group}, n_components: 58}", "n_components is 58, but 1 to 57"),
    ("{kind: ridge, target: {uri: t.csv, column: group}}", "group of sample 0 is a"),
    ("{kind: ridge, target: {uri: s.npy}}", "there are 60 samples"),
    ("{kind: ridge, target: {uri: two.npy}}", "has 2 numbers for each sample"),
    ("{kind: ridge, target: {uri: nan.npy}}", "target of sample 7 is nan"),
    ("{kind: ridge, target: {uri: y.npy}, alpha: -2}", "alpha"),
    ("{kind: ridge, target: {uri: y.npy}, left_out: true}", "all 60 samples took part"),
    ("{kind: heritability, target: {uri: y.npy}, covariates: {uri: y.npy}}", "does not vary beside the fixed effects"),
]


@pytest.mark.parametrize("place", ["gram_eigh"], indirect=True)
@pytest.mark.parametrize(("model", "said"), BAD)
def test_bad_input_is_named(here, model, said, capsys):
    np.save("s.npy", np.arange(5.0))
    np.save("two.npy", np.ones((N, 2)))
    np.save("nan.npy", np.where(np.arange(N) == 7, np.nan, 1.0))
    arguments = ("--set", f"analyses=[{{name: bad, model: {model}}}]", "--set", "output.path=bad")
    assert dpca("derive", "d.yaml", *arguments) == 2
    assert said in capsys.readouterr().err
    assert not Path("bad").exists()


def test_in_a_notebook(here):
    gram = package.open_gram("r")
    x, y, group, site = samples()
    found = gram.permanova(group, permutations=9)
    assert found.kind == "permanova"
    assert "pseudo-F" in repr(found)
    assert float(found.pseudo_f) == found.certificate["pseudo_f"]
    assert found.sum_of_squares.sel(source="total") == pytest.approx((x - x.mean(0)).var(0).sum() * N)
    with pytest.raises(package.errors.ConfigError, match="no components among the features"):
        found.components()
    with pytest.raises(package.errors.ConfigError, match="it has no components"):
        found.rest()
    assert gram.manova(group, 2).statistic.dims == ("test",)
    assert gram.pcoa(3).scores.shape == (N, 3)
    heritability = gram.heritability(y, site)
    assert heritability.heritability.shape == ()
    assert 0 < heritability.certificate["h2"] <= 1
    assert gram.ridge(y, 10.0).to_xarray()["leave_one_out"].dims == ("sample",)
