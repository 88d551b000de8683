"""dpca inspect and dpca init: what a file holds, and a config that runs on it."""

import json
import os
import re
from pathlib import Path

import h5py
import numpy as np
import pytest
import zarr

from dpca.analyses.config import load_derive
from dpca.commands import inspection
from dpca.commands.inspection import inspect
from dpca.config.loading import load
from dpca.config.schema import Config
from dpca.system.machine import Budget
from tests.commands.calls import X, dpca, sets
from tests.stores import random_array


def inspected(capsys, *arguments):
    capsys.readouterr()
    assert dpca("inspect", *arguments, "--json") == 0
    return json.loads(capsys.readouterr().out)


def started(capsys, *arguments):
    """A config written by dpca init, as a user redirects it."""
    capsys.readouterr()
    assert dpca("init", *arguments) == 0
    Path("started.yaml").write_text(capsys.readouterr().out)
    return "started.yaml"


def make(kind):
    if kind == "zarr v2":
        zarr.create_array("x.zarr", data=X, chunks=(5, 20, 7), zarr_format=2)
        return "x.zarr"
    if kind == "zarr v3 in shards":
        zarr.create_array("x.zarr", data=X, chunks=(4, 10, 5), shards=(12, 10, 15))
        return "x.zarr"
    if kind == "zarr group":
        group = zarr.create_group("g.zarr")
        group.create_array("station", data=np.arange(12.0))
        group.create_array("fields/small", data=X[:, :2, :2])
        group.create_array("fields/sst", data=X, chunks=(12, 5, 30))
        return "g.zarr"
    if kind == "npy":
        np.save("x.npy", X)
        return "x.npy"
    with h5py.File("x.h5", "w") as file:
        how = {"chunks": (6, 10, 30), "compression": "gzip"} if kind == "hdf5 gzip" else {}
        file.create_dataset("deep/x", data=X, **how)
        file.create_dataset("deep/y", data=np.arange(3.0))
    return "x.h5"


KINDS = ["zarr v2", "zarr v3 in shards", "zarr group", "npy", "hdf5", "hdf5 gzip"]


@pytest.mark.parametrize("kind", KINDS)
def test_what_lies_there(kind, capsys):
    found = inspected(capsys, make(kind))
    assert found["shape"] == [12, 20, 30]
    assert found["dtype"] == "float32"
    assert found["bytes"] == X.nbytes
    assert 0 < found["stored_bytes"] < 2 * X.nbytes
    assert (found["samples_axis"], found["n_samples"], found["n_features"]) == (0, 12, 600)
    assert found["values"]["minimum"] >= X.min()
    assert found["values"]["maximum"] <= X.max()
    assert found["array"] == {"zarr group": "fields/sst", "hdf5": "deep/x", "hdf5 gzip": "deep/x"}.get(kind)
    chunks = {
        "zarr v2": [5, 20, 7],
        "zarr v3 in shards": [4, 10, 5],
        "zarr group": [12, 5, 30],
        "hdf5 gzip": [6, 10, 30],
    }
    assert found["chunks"] == chunks.get(kind)
    assert "zstd" in found["codec"] if "zarr" in kind else {"hdf5 gzip": "deflate"}.get(kind, "none") == found["codec"]
    assert dpca("inspect", found["uri"]) == 0
    shown = capsys.readouterr().out
    assert "12 x 20 x 30 float32, 28.8 kB, " in shown
    assert "samples  axis 0: 12 samples of 600 features" in shown


@pytest.mark.parametrize("kind", KINDS)
def test_a_started_config_runs_as_it_is(kind, capsys):
    config = started(capsys, make(kind))
    text = Path(config).read_text()
    assert dpca("run", config) == 0
    (result,) = Path("results").glob("*/result.zarr")
    assert zarr.open_group(result, mode="r")["components"].shape == (12, 20, 30)
    for section in Config.model_fields:
        assert f"\n{section}:" in text
    # Every key is there, explained, with the value that would hold without it unless the data need another.
    found = load(config).config
    plain = Config.model_validate({"input": {"uri": found.input.uri}, "output": {"path": found.output.path}})
    assert found.model_dump(exclude={"input"}) == plain.model_dump(exclude={"input"})
    assert max(map(len, text.splitlines())) <= 120


def test_the_samples_axis_is_known_by_its_name_or_guessed_and_says_why(capsys):
    def guess(shape, dims=None, *arguments):
        zarr.create_array("a.zarr", data=np.ones(shape), dimension_names=dims, overwrite=True)
        found = inspected(capsys, "a.zarr", *arguments)
        return found["samples_axis"], found["samples_axis_reason"], any("is a guess" in s for s in found["watch_out"])

    assert guess((40, 5, 6), ("lat", "lon", "time")) == (2, "its dimension is called 'time'", False)
    assert guess((7, 900)) == (0, "the shorter of two axes: there are fewer samples than features", False)
    assert guess((900, 7)) == (
        1,
        "the shorter of two axes, since samples are fewer than features in general, so check this",
        True,
    )
    axis, reason, warned = guess((30, 5, 6))
    assert (axis, warned) == (0, True)
    assert "by convention" in reason
    assert guess((30, 5, 6), None, "--samples-axis", "2") == (2, "as told", False)
    assert guess((30, 5, 6), ("a", "b", "c"), "--samples-axis", "b") == (1, "as told", False)


def watched_for(capsys, *arguments):
    return "\n".join(inspected(capsys, *arguments)["watch_out"])


def test_what_to_watch_out_for_in_the_values(capsys):
    x = random_array(0, (10, 50), "f8")
    x[3, 4] = np.nan
    np.save("nan.npy", x)
    assert "% of the values that were looked at are missing. A run refuses missing values unless" in watched_for(
        capsys, "nan.npy"
    )
    assert load(started(capsys, "nan.npy")).config.preprocess.missing == "mean"
    np.save("inf.npy", np.where(np.isnan(x), np.inf, x))
    assert "there are infinities" in watched_for(capsys, "inf.npy")
    genotypes = np.random.default_rng(0).integers(-1, 3, (10, 50), dtype="i1")
    np.save("genotypes.npy", genotypes)
    assert "the minimum is -1 as stored. If that marks missing values, say so in input.missing_values" in watched_for(
        capsys, "genotypes.npy"
    )
    np.save("station.npy", np.where(np.isnan(x), 9.96921e36, x).astype("f4"))
    assert "the maximum is 9.96921e+36 as stored. If that marks" in watched_for(capsys, "station.npy")
    np.save("signs.npy", np.sign(x[:, 5:]))
    assert not watched_for(capsys, "signs.npy")
    np.save("long.npy", np.arange(500).reshape(10, 50))
    assert "int64 is multiplied in double precision" in watched_for(capsys, "long.npy")


@pytest.mark.long
def test_what_to_watch_out_for_in_chunks_and_shapes(capsys, monkeypatch):
    zarr.create_array("small.zarr", data=np.ones((50, 2000), "f4"), chunks=(1, 10))
    assert "chunks are small (40 B): chunks of 50 x 2,000 would be read faster" in watched_for(capsys, "small.zarr")
    np.save("tall.npy", np.ones((900, 7)))
    assert "fewer features (7) than samples (900): if that is not so, the axes are swapped" in watched_for(
        capsys, "tall.npy", "--samples-axis", "0"
    )
    zarr.create_array("tall.zarr", shape=(50_000, 10**6), chunks=(50_000, 10), dtype="f4")

    def watched_with(memory):
        with monkeypatch.context() as patch:
            patch.setattr(inspection, "memory_budget", lambda: Budget(memory, "of this test"))
            return watched_for(capsys, "tall.zarr")

    said = watched_with(2**20)
    assert re.search(r"the smallest plan takes 1.13 GiB of memory .*\. Set compute.memory to 1156 MiB or more", said)
    assert "eigensolve" not in said
    said = watched_with(2**33)
    assert (
        "the 50,000 x 50,000 matrix over samples takes 18.6 GiB, and more for its eigensolve, which does not fit"
        in said
    )
    assert "(model.svd_solver: block_krylov)" in said
    assert re.search(r"the eigensolve of 50,000 samples takes \d+(\.\d)? GiB of memory", watched_with(2**40))
    monkeypatch.setenv("SLURM_MEM_PER_NODE", "1500")
    zarr.create_array("rows.zarr", shape=(500, 10**7), chunks=(1, 10**7), dtype="f4")
    assert "a run copies it to scratch once (20 GB). Chunks of 500 x" in watched_for(capsys, "rows.zarr")


def test_packed_values_are_shown_as_they_count(capsys):
    array = zarr.create_array("packed.zarr", data=np.full((4, 30), 10, "i2"), fill_value=0)
    array.attrs.update({"scale_factor": 0.5, "add_offset": 270.0, "_FillValue": -1})
    array[0, 0] = -1
    found = inspected(capsys, "packed.zarr")
    assert (found["values"]["minimum"], found["values"]["maximum"]) == (275.0, 275.0)
    assert found["values"]["missing"] == pytest.approx(1 / 120)
    assert any("values are packed: stored * 0.5 + 270 is what is analysed" in s for s in found["watch_out"])


def test_netcdf_names_its_dimensions(capsys):
    with h5py.File("ocean.nc", "w") as file:
        sst = file.create_dataset("sst", data=X)
        for axis, (dim, values) in enumerate({"time": np.arange(12.0), "lat": np.arange(20.0)}.items()):
            file[dim] = values
            file[dim].make_scale(dim)
            sst.dims[axis].attach_scale(file[dim])
    found = inspected(capsys, "ocean.nc")
    assert found["array"] == "sst"
    assert found["dims"] == ["time", "lat", None]
    assert {item["path"] for item in found["arrays"]} == {"sst", "time", "lat"}
    assert "samples_axis: time" in Path(started(capsys, "ocean.nc")).read_text()


def test_metadata_one_chunk_and_the_first_and_last_sample_are_all_that_is_read(capsys):
    """Other chunks are damaged here: reading any of them would end in an error."""
    zarr.create_array("x.zarr", data=X, chunks=(4, 20, 10))
    for chunk in range(3):
        Path(f"x.zarr/c/1/0/{chunk}").write_bytes(b"no zstd frame")
    assert inspected(capsys, "x.zarr")["shape"] == [12, 20, 30]


@pytest.mark.parametrize("chunks", [None, (12, 40, 30), (1, 40, 30)])
def test_land_is_seen_wherever_it_lies(chunks, capsys, monkeypatch):
    """In a file without chunks, in one large chunk that can't be read in part, and in a chunk a sample."""
    monkeypatch.setattr(inspection, "SAMPLED_BYTES", 1000)
    x = random_array(0, (12, 40, 30), "f4")
    x[:, 30:, 20:] = np.nan
    with h5py.File("x.h5", "w") as file:
        file.create_dataset("x", data=x, chunks=chunks, compression=None if chunks is None else "gzip")
    assert inspected(capsys, "x.h5")["values"]["land"] == pytest.approx(100 / 1200)
    config = started(capsys, "x.h5")
    assert load(config).config.preprocess.missing == "mean"
    assert dpca("run", config, *sets("model.n_components=2", "output.report=false")) == 0


@pytest.mark.parametrize("command", ["inspect", "init"])
def test_nothing_to_analyse_is_said_by_name(command, capsys):
    np.save("line.npy", np.arange(5.0))
    np.save("text.npy", np.array(["a", "b"]))
    zarr.create_group("empty.zarr")
    zarr.create_group("lines.zarr").create_array("a", data=np.arange(4.0))
    zarr.open_group("lines.zarr").create_array("b", data=np.arange(4.0))
    Path("page.html").write_text("<html>")
    for uri, message in [
        ("absent.zarr", "absent.zarr: does not exist"),
        ("line.npy", "line.npy: an array of shape (5,) with samples along axis 0 has no features"),
        ("text.npy", "text.npy: values are of dtype <U1"),
        ("empty.zarr", "empty.zarr"),
        ("lines.zarr", "lines.zarr: holds no array of two axes or more"),
        ("page.html", "page.html"),
    ]:
        assert dpca(command, uri) == 2, uri
        assert f"dpca: error: {message}" in capsys.readouterr().err
    assert not os.path.exists("results")


def test_a_chunk_that_is_too_large_is_not_looked_into():
    zarr.create_array("x.zarr", data=X, chunks=X.shape)
    found = inspect("x.zarr", opened_bytes=5_000)
    assert found["values"] is None
    assert any("chunks are too large to look into one (28.1 KiB each)" in s for s in found["watch_out"])


def test_marks_among_packed_values_are_seen_as_stored(capsys):
    array = zarr.create_array("packed.zarr", data=np.full((4, 30), 10, "i2"), chunks=(4, 30))
    array.attrs.update({"scale_factor": 0.01})
    array[0, 0] = -32768
    assert "the minimum is -32768 as stored. If that marks" in watched_for(capsys, "packed.zarr")


@pytest.mark.parametrize("name", ["0x10", "1e5", ".inf", "null", "Yes", "12", "a: b", "-x", "plain/name_1"])
def test_names_that_yaml_would_take_for_something_else_are_quoted(name, capsys):
    group = zarr.create_group("g.zarr")
    group.create_array(name, data=X)
    group.create_array("small", data=X[:, :2, :2])
    assert load(started(capsys, "g.zarr")).config.input.array == name


def test_fields_on_the_globe_are_known_and_their_config_runs_as_it_is(tmp_path, monkeypatch, capsys):
    """Latitudes, land and a cycle of seasons, in a calendar of models."""
    xr = pytest.importorskip("xarray")
    pytest.importorskip("cftime")
    monkeypatch.chdir(tmp_path)
    values = random_array(0, (36, 6, 9), "f8")
    values[:, 2, :4] = np.nan
    time = np.arange(36) * 30.0 + 15
    xr.DataArray(
        values,
        dims=("time", "lat", "lon"),
        coords={
            "time": ("time", time, {"units": "days since 1990-01-01", "calendar": "360_day"}),
            "lat": ("lat", np.linspace(-75, 75, 6), {"units": "degrees_north"}),
        },
        name="t",
    ).to_netcdf("t.nc", engine="h5netcdf")
    facts = inspect("t.nc")
    assert facts["latitudes"] == "lat"
    assert facts["cycle"] == "month"
    assert facts["values"]["land"] == pytest.approx(4 / 54)
    capsys.readouterr()
    assert dpca("init", "t.nc") == 0
    shown = capsys.readouterr()
    assert "Monthly data: the first components will be the seasonal cycle" in shown.err
    assert len(re.findall(r"^  (?!#)", shown.out, re.MULTILINE)) == 12
    taken = shown.out.replace("# regress_out: {", "regress_out: {")
    Path("t.yaml").write_text(taken)
    assert load(Path("t.yaml")).config.preprocess.regress_out.seasonal_cycle == "month"
    assert "# Chosen here since lat holds latitudes" in shown.out
    Path("t.yaml").write_text(shown.out)
    config = load(Path("t.yaml")).config
    assert (config.preprocess.weights, config.preprocess.missing) == ("sqrt_cos_lat", "mean")
    assert dpca("run", "t.yaml", "--set", "output.report=false") == 0
    counts = json.loads(Path(config.output.path, "manifest.json").read_text())["counts"]
    assert counts["empty_features"] == 4


def test_a_config_of_derived_analyses_of_a_result_runs_as_it_is(capsys):
    """With the analyses that its samples are for: of the anomalies, where they have dates."""
    xr = pytest.importorskip("xarray")
    months = np.arange("2000-01", "2003-01", dtype="M8[M]").astype("M8[ns]")
    x = xr.DataArray(random_array(0, (36, 40), "f8"), dims=("time", "site"), coords={"time": months}, name="t")
    x.to_netcdf("t.nc", engine="h5netcdf")
    for asked in ("gram_eigh", "tsqr"):
        text = f"input: {{uri: t.nc}}\nmodel: {{n_components: 3, svd_solver: {asked}}}\noutput: {{path: {asked}, report: false}}\n"
        Path("c.yaml").write_text(text)
        assert dpca("run", "c.yaml") == 0
    np.save("plain.npy", np.asarray(x))
    Path("c.yaml").write_text("input: {uri: plain.npy}\noutput: {path: plain, report: false}\n")
    assert dpca("run", "c.yaml") == 0
    for result, names in (
        ("gram_eigh", ["anomalies", "detrended", "years"]),
        ("tsqr", ["anomalies", "detrended", "years"]),
        ("plain", ["all"]),
    ):
        config = started(capsys, result)
        loaded = load_derive(config).config
        assert [one.name for one in loaded.analyses] == names
        assert dpca("derive", config) == 0
    assert dpca("init", "gram_eigh-derived") == 2
    assert "holds derived analyses" in capsys.readouterr().err
