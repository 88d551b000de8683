"""dpca inspect and dpca init where there are several variables of the same samples."""

import json
from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray as xr
import zarr

from dpca.config.loading import load
from tests.commands.calls import dpca
from tests.stores import random_array

N, LAT, LON = 30, np.linspace(-75.0, 75.0, 4), np.arange(5) * 70.0
TIME = np.datetime64("1990-01-15", "ns") + np.arange(N) * np.timedelta64(30, "D")


def variable(seed, units, *, spread=1.0, dims=("time", "lat", "lon")):
    lengths = {"time": N, "lat": len(LAT), "lon": len(LON)}
    values = spread * random_array(seed, tuple(lengths[dim] for dim in dims), "f4")
    return dims, values, {"units": units}


def dataset(**variables):
    return xr.Dataset(variables, coords={"time": TIME, "lat": LAT, "lon": LON})


def model():
    """Two variables that belong together, and what lies beside variables in files."""
    found = dataset(
        tas=variable(0, "K", spread=10.0),
        pr=variable(1, "mm day-1", dims=("lat", "lon", "time")),
        flag=variable(2, "1"),
        index=variable(3, "1", dims=("time",)),
        orog=variable(4, "m", dims=("lat", "lon")),
        time_bnds=(("time", "two"), np.zeros((N, 2))),
        cells=(("time", "two"), np.zeros((N, 2))),
        label=(("time", "two"), np.full((N, 2), "a")),
    )
    found.tas.attrs["ancillary_variables"] = "flag"
    found.lat.attrs["bounds"] = "cells"
    return found


def written(data, path):
    if path.endswith(".zarr"):
        data.drop_vars("label", errors="ignore").to_zarr(path, mode="w", consolidated=False)
    else:
        data.to_netcdf(path, engine="h5netcdf")
    return path


def inspected(capsys, *arguments):
    capsys.readouterr()
    assert dpca("inspect", *arguments, "--json") == 0
    return json.loads(capsys.readouterr().out)


def started(capsys, *arguments):
    """A config as dpca init prints it; its text, and what it says when loaded."""
    capsys.readouterr()
    assert dpca("init", *arguments) == 0
    text = capsys.readouterr().out
    Path("started.yaml").write_text(text)
    assert max(map(len, text.splitlines())) <= 120
    return text, load("started.yaml").config


def arrays_of(config):
    return [(one.name, one.uri, one.array, one.samples_axis, one.weights) for one in config.inputs]


@pytest.mark.parametrize("place", ["model.nc", "model.zarr"])
def test_variables_of_a_file_are_proposed_side_by_side_and_run_as_they_are(place, capsys):
    data = model()
    data.tas[:, 1, :2] = np.nan
    text, config = started(capsys, written(data, place))
    assert sorted(arrays_of(config)) == [(name, place, name, "time", "sqrt_cos_lat") for name in ("pr", "tas")]
    assert config.preprocess.missing == "mean"
    assert config.preprocess.block_scaling == "total_variance"
    told = " ".join(text.replace("#", "").split())
    assert "Chosen here since values of tas are missing" in told
    assert "Chosen here since units differ, mm day-1, K (seen: pr from" in told
    assert f"dpca init {place} --array pr prints its config" in told
    assert dpca("run", "started.yaml", "--set", "output.report=false") == 0
    arrays = zarr.open_group(f"{config.output.path}/result.zarr", mode="r")
    assert arrays["components_tas"].shape == (20, 4, 5)
    assert arrays["components_pr"].shape == (20, 4, 5)
    assert int(np.isnan(arrays["mean_tas"][:]).sum()) == 2


def test_one_of_them_can_be_chosen_and_is_proposed_as_before(capsys):
    written(model(), "model.nc")
    _, config = started(capsys, "model.nc", "--array", "pr")
    assert arrays_of(config) == [(None, "model.nc", "pr", "time", None)]
    assert config.preprocess.weights == "sqrt_cos_lat"
    assert inspected(capsys, "model.nc", "--array", "flag")["side_by_side"] == []


def test_inspect_lists_them_with_the_command_for_each(capsys):
    written(model(), "model.nc")
    found = inspected(capsys, "model.nc")
    assert found["array"] in ("pr", "tas")
    assert {one["name"]: (one["shape"], one["dims"], one["units"]) for one in found["side_by_side"]} == {
        "pr": ([4, 5, N], ["lat", "lon", "time"], "mm day-1"),
        "tas": ([N, 4, 5], ["time", "lat", "lon"], "K"),
    }
    assert dpca("inspect", "model.nc") == 0
    shown = capsys.readouterr().out
    for one in found["side_by_side"]:
        assert one["command"] in shown
        _, config = started(capsys, *one["command"].split()[2:])
        assert arrays_of(config)[0][2:4] == (one["array"], "time")
    assert "tas: 30 x 4 x 5 (time, lat, lon) float32, K; dpca init model.nc --array tas" in shown


def test_the_command_names_the_axis_where_it_would_be_guessed_otherwise(capsys):
    file = zarr.create_group("wide.zarr")
    file.create_array("field", data=random_array(0, (30, 8, 9), "f4"), dimension_names=("run", "y", "x"))
    file.create_array("sites", data=random_array(1, (30, 6), "f4"), dimension_names=("run", "site"))
    commands = {one["name"]: one["command"] for one in inspected(capsys, "wide.zarr")["side_by_side"]}
    assert commands == {
        "field": "dpca init wide.zarr --array field",
        "sites": "dpca init wide.zarr --array sites --samples-axis run",
    }
    _, config = started(capsys, *commands["sites"].split()[2:])
    assert config.input.samples_axis == "run"


@pytest.mark.parametrize(
    ("units", "scaling", "reason"),
    [
        (("m s-1", "m s-1"), "none", "all are in m s-1"),
        (("m s-1", "Pa"), "total_variance", "units differ, m s-1, Pa"),
        (("m s-1", ""), "total_variance", "units differ, m s-1, unknown"),
        (("", ""), "total_variance", "units are not known"),
    ],
)
def test_scaling_follows_from_the_units(units, scaling, reason, capsys):
    u, v = (variable(number, unit) for number, unit in enumerate(units))
    written(dataset(u=u, v=v), "wind.nc")
    text, config = started(capsys, "wind.nc")
    assert config.preprocess.block_scaling == scaling
    assert f"Chosen here since {reason} (seen: u from" in " ".join(text.replace("#", "").split())


def test_files_of_different_variables_lie_side_by_side_and_of_the_same_one_end_to_end(capsys):
    data = dataset(tas=variable(0, "K"), pr=variable(1, "mm"), orog=variable(4, "m", dims=("lat", "lon")))
    for part, piece in (("a", slice(0, 18)), ("b", slice(18, N))):
        for name in ("tas", "pr"):
            written(data[[name, "orog"]].isel(time=piece), f"{name}_{part}.nc")
        written(data.isel(time=piece), f"both_{part}.nc")
    for name in ("tas", "pr"):
        written(data[[name]], f"{name}.nc")

    def places(*given):
        _, config = started(capsys, *given)
        return {one.name: one.uri for one in config.inputs}

    assert places("tas.nc", "pr.nc") == {"tas": "tas.nc", "pr": "pr.nc"}
    assert places("tas_a.nc", "tas_b.nc") == {None: ["tas_a.nc", "tas_b.nc"]}
    assert places("tas_*.nc", "pr_*.nc") == {"tas": ["tas_a.nc", "tas_b.nc"], "pr": ["pr_a.nc", "pr_b.nc"]}
    assert places("both_*.nc") == {name: ["both_a.nc", "both_b.nc"] for name in ("pr", "tas")}
    assert "uri: both_*.nc" in Path("started.yaml").read_text().replace('"', "")
    found = inspected(capsys, "tas.nc", "pr.nc")
    assert [(one["name"], one["array"], one["n_features"]) for one in found["inputs"]] == [
        ("tas", "tas", 20),
        ("pr", "pr", 20),
    ]
    assert (found["n_samples"], found["n_features"], found["block_scaling"]) == (N, 40, "total_variance")
    assert dpca("inspect", "tas.nc", "pr.nc") == 0
    assert "together 2 inputs side by side: 30 samples, the same in all, of 40 features" in capsys.readouterr().out


def test_files_of_other_samples_are_refused_by_name(capsys):
    written(dataset(tas=variable(0, "K")), "tas.nc")
    written(dataset(pr=variable(1, "mm")).assign_coords(time=TIME[::-1]), "pr.nc")
    written(dataset(sic=variable(2, "%")).isel(time=slice(0, 20)), "sic.nc")
    assert dpca("init", "tas.nc", "pr.nc") == 2
    assert "input pr: sample 0 of pr.nc:pr is 1992-" in capsys.readouterr().err
    assert dpca("inspect", "tas.nc", "sic.nc") == 2
    assert "input sic: sic.nc:sic has 20 samples along axis 0, but tas, tas.nc:tas, has 30" in capsys.readouterr().err


@pytest.mark.parametrize("named", [True, False], ids=["other times", "no names"])
def test_arrays_that_only_are_of_one_length_are_not_taken_for_the_same_samples(named, capsys):
    with h5py.File("runs.h5", "w") as file:
        for number in range(2):
            values = file.create_dataset(f"run{number}/x", data=random_array(number, (N, 6 + number), "f4"))
            if named:
                file[f"run{number}/time"] = np.arange(N) + number
                file[f"run{number}/time"].make_scale("time")
                values.dims[0].attach_scale(file[f"run{number}/time"])
    _, config = started(capsys, "runs.h5")
    assert config.input.array == "run1/x"
    assert inspected(capsys, "runs.h5")["side_by_side"] == []


def test_samples_with_one_coordinate_are_the_same_whatever_its_name(capsys):
    with h5py.File("two.h5", "w") as file:
        for name, dim in (("2m temperature", "time"), ("wind", "hour")):
            values = file.create_dataset(name, data=random_array(0, (N, 40), "f4"))
            file[dim] = np.arange(N)
            file[dim].make_scale(dim)
            values.dims[0].attach_scale(file[dim])
    _, config = started(capsys, "two.h5")
    assert arrays_of(config) == [
        ("x2m-temperature", "two.h5", "2m temperature", "time", None),
        ("wind", "two.h5", "wind", "hour", None),
    ]


def test_a_list_of_inputs_is_described_one_after_the_other_and_keeps_its_keys(capsys):
    written(dataset(tas=variable(0, "K")), "tas.nc")
    written(dataset(pr=variable(1, "mm")), "pr.nc")
    listed = [
        {"name": "t", "uri": "tas.nc", "array": "tas", "samples_axis": "time", "samples": {"stop": 25}},
        {"name": "p", "uri": "pr.nc", "array": "pr", "samples_axis": "time", "samples": {"stop": 25}},
    ]
    Path("list.yaml").write_text(json.dumps(listed))
    found = inspected(capsys, "list.yaml")
    assert [(one["name"], one["n_samples"], one["n_stored"]) for one in found["inputs"]] == [("t", 25, N), ("p", 25, N)]
    _, config = started(capsys, "list.yaml")
    assert [one.samples.stop for one in config.inputs] == [25, 25]
    assert dpca("run", "started.yaml", "--set", "output.report=false") == 0
    capsys.readouterr()
    assert dpca("init", "list.yaml", "--array", "tas") == 2
    assert "a list of inputs, each of which has its own" in capsys.readouterr().err
    listed[1]["samples"] = {"start": 5}
    Path("list.yaml").write_text(json.dumps({"input": listed}))
    assert dpca("inspect", "list.yaml") == 2
    assert "input p: sample 0 of pr.nc:pr is 1990-06-14" in capsys.readouterr().err
    del listed[1]["name"]
    Path("list.yaml").write_text(json.dumps(listed))
    assert dpca("inspect", "list.yaml") == 2
    assert "input.1 has no name" in capsys.readouterr().err


def test_what_a_file_says_of_units_writes_no_key(capsys):
    units = "K\noutput: {path: /elsewhere}\n"
    written(dataset(tas=variable(0, units), pr=variable(1, "mm")), "model.nc")
    _, config = started(capsys, "model.nc")
    assert config.output.path == "results/model-pr-tas"
