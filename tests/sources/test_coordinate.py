"""Coordinates of every kind, wherever two arrays have to have the same: another order is refused, in Python and of files."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr
import yaml

from dpca import PCA, KernelPCA, open_gram
from dpca.errors import ConfigError, InputError
from dpca.sources import open_source
from dpca.sources.cf import same_units
from dpca.sources.coordinate import Coordinate, Parts, difference
from dpca.store.results import open_result
from tests.commands.calls import dpca
from tests.stores import random_array

N, CELLS = 5, 6
X = random_array(0, (N, CELLS), "f8") * [1, 2, 3, 4, 5, 6] + [0, 5, 1, 7, 2, 9]
LAT = np.repeat([50.0, 51.5], 3)
LON = np.tile([7.0, 8.0, 9.5], 2)
NAMES = np.array(["ac", "b", "ca", "d", "eb", "f"])

INDEXES = {
    "numbers": LON + LAT,
    "text": NAMES,
    "bytes": NAMES.astype("S"),
    "text of variable length": NAMES.astype(np.dtypes.StringDType()),
    "dates": pd.date_range("2001-01-01", periods=CELLS),
    "dates with a zone": pd.date_range("2001-01-01", periods=CELLS, tz="Europe/Berlin"),
    "categories": pd.Categorical(NAMES),
    "categories of numbers": pd.Categorical([3, 1, 2, 7, 5, 4]),
    "intervals": pd.interval_range(0, CELLS),
    "periods": pd.period_range("2001-01", periods=CELLS, freq="M"),
    "integers as objects": np.array([3, 1, 2, 7, 5, 4], object),
    "integers of pandas": pd.array([3, 1, 2, 7, 5, 4], dtype="Int64"),
    "mixed": np.array(["a", 1, 2.5, None, "b", 3], object),
    "several levels": pd.MultiIndex.from_arrays([LAT, LON], names=("lat", "lon")),
}
STORED = ("numbers", "text", "bytes", "text of variable length", "dates")


def indexed(kind):
    data = xr.DataArray(X, dims=("sample", "cell"), name="t2m")
    index = INDEXES[kind]
    if isinstance(index, pd.MultiIndex):
        return data.assign_coords(xr.Coordinates.from_pandas_multiindex(index, "cell"))
    return data.assign_coords(cell=index)


def along_cells():
    """Latitude and longitude of each cell, which has no index."""
    coords = {"lat": ("cell", LAT), "lon": ("cell", LON), "height": 2.0}
    return xr.DataArray(X, dims=("sample", "cell"), coords=coords, name="t2m")


def on_a_grid():
    """Latitude and longitude of a grid, of two axes each."""
    coords = {"lat": (("y", "x"), LAT.reshape(2, 3)), "lon": (("y", "x"), LON.reshape(2, 3)), "height": 2.0}
    return xr.DataArray(X.reshape(N, 2, 3), dims=("sample", "y", "x"), coords=coords, name="t2m")


KINDS = {
    **{kind: (lambda kind=kind: indexed(kind)) for kind in INDEXES},
    "of each cell, no index": along_cells,
    "of a grid, no index": on_a_grid,
}
IN_FILES = (*STORED, "of each cell, no index", "of a grid, no index")


def reversed_features(data):
    return data.isel(dict.fromkeys(data.dims[1:], slice(None, None, -1)))


REFUSED = r"(feature|position) .* along '(lat|lon|cell)' is .*differ"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lazy", [False, True])
def test_features_in_another_order_are_refused_in_python(kind, lazy):
    data = KINDS[kind]()
    given = data.chunk() if lazy else data
    fitted = PCA(2).fit(given)
    np.testing.assert_allclose(fitted.transform(given), fitted.transform(data))
    with pytest.raises(InputError, match=REFUSED):
        fitted.transform(reversed_features(given))
    weights = data[0] * 0 + 1.5
    PCA(2, weights=weights).fit(given)
    with pytest.raises(InputError, match=REFUSED):
        PCA(2, weights=reversed_features(data[:1] * 0 + 1.5)[0]).fit(given)


@pytest.mark.parametrize("kind", KINDS)
def test_saved_results_keep_them(kind, tmp_path):
    data = KINDS[kind]()
    PCA(2).fit(data).save(tmp_path / "r")
    loaded = PCA.load(tmp_path / "r")
    np.testing.assert_allclose(loaded.transform(data), PCA(2).fit(data).transform(data), atol=1e-9)
    with pytest.raises(InputError, match=REFUSED):
        loaded.transform(reversed_features(data))


def written(data, path):
    """A file of a Dataset; netCDF of text and bytes by netCDF's own rules."""
    if path.endswith(".zarr"):
        data.to_dataset().to_zarr(path, consolidated=False)
    else:
        classic = path.endswith(".cdf")
        data.to_dataset().to_netcdf(path, engine="scipy" if classic else "h5netcdf")
    return path


def config(path, uri, **more):
    keys = {"array": "t2m", "uri": uri, **more.pop("input", {})}
    document = {"input": keys, "model": {"n_components": 2}, "output": {"path": "r", "report": False}, **more}
    Path(path).write_text(yaml.safe_dump(document))
    return path


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("ending", [".zarr", ".nc", ".cdf"])
@pytest.mark.parametrize("kind", IN_FILES)
def test_features_in_another_order_are_refused_of_files(kind, ending, capsys):
    if ending == ".nc" and kind == "bytes":
        pytest.skip("netCDF writes bytes as characters: the next test")
    data = KINDS[kind]()
    a, b = written(data, f"a{ending}"), written(reversed_features(data), f"b{ending}")
    assert dpca("run", config("c.yaml", a)) == 0
    weights = written((data[0] * 0 + 1.5).rename("t2m"), f"w{ending}")
    turned = written(reversed_features(data[:1] * 0 + 1.5)[0].rename("t2m"), f"v{ending}")
    by = [{"uri": one, "array": "t2m"} for one in (weights, turned)]
    for command, right in (
        (("transform", "r", config("new.yaml", a), "--out", "s"), True),
        (("transform", "r", config("b.yaml", b), "--out", "t"), False),
        (("extend", "r", "b.yaml", "--output", "e", "--allow-repeats"), False),
        (("run", config("j.yaml", [a, b], input={"gaps": "allow"}), "--overwrite"), False),
        (("run", config("w.yaml", a, preprocess={"weights": by[0]}), "--overwrite"), True),
        (("run", config("v.yaml", a, preprocess={"weights": by[1]}), "--overwrite"), False),
    ):
        capsys.readouterr()
        code = dpca(*command)
        said = capsys.readouterr().err
        assert (code == 0) == right, (command, said)
        assert right or ("along" in said and "differ" in said), (command, said)


@pytest.mark.parametrize("index", [True, False])
def test_names_of_characters_in_netcdf(index):
    h5netcdf = pytest.importorskip("h5netcdf")
    name = "cell" if index else "name"
    with h5netcdf.File("c.nc", "w") as file:
        file.dimensions = {"sample": N, "cell": CELLS, "length": 3}
        x = file.create_variable("x", ("sample", "cell"), "f8", data=X)
        x.attrs["coordinates"] = name
        letters = np.array([list(one.ljust(3, "\0")) for one in NAMES], "S1")
        file.create_variable(name, ("cell", "length"), "S1", data=letters)
    with open_source("c.nc", "x").open() as reader:
        found = reader.coordinate(1) if index else reader.auxiliaries()[0].coordinate
        assert found is not None
        assert [str(one) for one in found.values[...]] == NAMES.tolist()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("ending", [".zarr", ".nc", ".cdf"])
@pytest.mark.parametrize("kind", ["of each cell, no index", "of a grid, no index"])
def test_results_of_commands_keep_them(kind, ending):
    data = KINDS[kind]().assign_coords(subject=("sample", [f"s{n}" for n in range(N)]))
    a = written(data, f"a{ending}")
    assert dpca("run", config("c.yaml", a)) == 0
    assert dpca("transform", "r", "c.yaml", "--out", "s.zarr") == 0
    assert dpca("reconstruct", "r", "--out", "back.zarr", "--samples", "2:5") == 0
    assert dpca("export", "r", "--to", "netcdf", "--out", "r.nc") == 0
    components, scores = xr.open_zarr("r/result.zarr")["components"], xr.open_zarr("s.zarr")["scores"]
    back, exported = xr.open_zarr("back.zarr"), xr.open_dataset("r.nc", engine="h5netcdf")
    for found in (components, back, exported):
        for name in ("lat", "lon"):
            np.testing.assert_array_equal(found.coords[name], data.coords[name])
            assert found.coords[name].dims == data.coords[name].dims
        assert float(found.coords["height"]) == 2.0
    subjects = data["subject"].values.tolist()
    assert scores.coords["subject"].values.tolist() == subjects
    assert back.coords["subject"].values.tolist() == subjects[2:5]
    assert exported.coords["subject"].values.tolist() == subjects
    loaded = PCA.load("r")
    np.testing.assert_array_equal(loaded.to_xarray()["components"].coords["lat"], data["lat"])
    assert open_result("r").coordinate("lat") is not None


@pytest.mark.parametrize("kind", ["subjects", "numbers"])
def test_samples_in_another_order_are_refused_side_by_side(kind, capsys):
    subjects = [f"s{n}" for n in range(N)] if kind == "subjects" else np.arange(N) * 1.5
    one = xr.DataArray(X, dims=("sample", "a"), coords={"subject": ("sample", subjects)}, name="t2m")
    two = one.rename(a="b") + 1
    two = two.assign_coords(n_obs=("sample", np.arange(N)))
    with pytest.raises(InputError, match="the samples are in another order"):
        PCA(2).fit({"one": one, "two": two[::-1]})
    PCA(2).fit({"one": one.assign_coords(n_obs=("sample", np.arange(N) % 3)), "two": two})
    one.to_dataset().to_zarr("one.zarr", consolidated=False)
    two[::-1].to_dataset().to_zarr("two.zarr", consolidated=False)
    inputs = [{"name": name, "uri": f"{name}.zarr", "array": "t2m"} for name in ("one", "two")]
    Path("c.yaml").write_text(yaml.safe_dump({"input": inputs, "output": {"path": "r"}}))
    assert dpca("run", "c.yaml") == 2
    assert "the samples are in another order" in capsys.readouterr().err


def of_numbers(values):
    values = np.asarray(values)
    return Coordinate("lat", values, Parts.of(values.dtype))


FINE = np.linspace(-60, 60, 14_401)  # of a grid of 1 km


@pytest.mark.parametrize(
    ("ours", "theirs", "same"),
    [
        (FINE, FINE.astype("f4"), True),
        (FINE, FINE.astype("f4").astype("f8"), True),
        (FINE, np.nextafter(FINE, 90), True),
        (FINE, FINE + 1e-14, True),
        (FINE, np.arange(14_401) * (120 / 14_400) - 60, True),
        (FINE, FINE + 1e-3, False),
        (FINE, FINE[::-1], False),
        ([1, 2, 3], [1.0, 2.0, 3.0], True),
        ([1, 2, 3], [1, 2, 4], False),
        ([1.0, np.nan], [1.0, np.nan], True),
        ([1.0, np.nan], [np.nan, 1.0], False),
        ([36524.0, 36525.0], [36524.0, 36525.1], False),
        ([3.9e9, 3.9e9 + 60], [3.9e9, 3.9e9 + 61], False),
        ([5.0], [5.1], False),
        ([5.1], [np.float32(5.1)], True),
        ([50.0, 50.0, 51.5], [50.0, 51.5, 50.0], False),
        ([0.0, 1.0, 1.0 + 1e-9], [0.0, 1.0 + 1e-9, 1.0], False),
    ],
)
def test_numbers_are_equal_up_to_rounding(ours, theirs, same):
    assert (difference(of_numbers(theirs), of_numbers(ours)) is None) == same
    assert (difference(of_numbers(ours), of_numbers(theirs)) is None) == same


def months(start, index, engine, path):
    """A month of 6-hourly fields whose axis of time has no dates itself; `index` is what stands there."""
    times = np.datetime64(f"2001-{start:02}-01", "ns") + np.arange(4) * np.timedelta64(6, "h")
    coords = {"time_centered": ("time_counter", times, {"standard_name": "time"})}
    if index is not None:
        coords["time_counter"] = np.full(4, index)
    x = random_array(start, (4, 3, 5), "f8")
    data = xr.DataArray(x, dims=("time_counter", "y", "x"), coords=coords, name="tos")
    data.time_centered.encoding = {"units": "hours since 1900-01-01", "dtype": "f8"}
    if engine == "zarr":
        data.to_dataset().to_zarr(path, consolidated=False)
    else:
        data.to_dataset().to_netcdf(path, engine=engine)
    return data


@pytest.mark.parametrize("engine", ["zarr", "h5netcdf", "scipy"])
@pytest.mark.parametrize("index", [None, 0.0])
def test_dates_beside_an_axis_without_any_are_those_of_the_samples(engine, index, capsys):
    parts = [months(number, index, engine, f"{number}.x") for number in (1, 2)]
    whole = xr.concat(parts, "time_counter")
    given = {"array": "tos", "samples_axis": "time_counter", "gaps": "allow"}
    assert dpca("run", config("c.yaml", ["2.x", "1.x"], input=given)) == 2
    assert "1.x:tos: begins at 2001-01-01" in capsys.readouterr().err
    assert dpca("run", config("c.yaml", ["1.x", "2.x"], input=given)) == 0
    assert dpca("run", config("one.yaml", "1.x", input=given), "--set", "output.path=one") == 0
    for path, expected in (("r", whole), ("one", parts[0])):
        found = xr.open_zarr(f"{path}/result.zarr")
        np.testing.assert_array_equal(found["time_counter"], expected["time_centered"])
    fitted = PCA(2, samples_axis="time_counter", regress_out={"trend": 1}).fit(parts[0])
    days = (parts[0]["time_centered"] - parts[0]["time_centered"][0]).values / np.timedelta64(1, "D")
    z = np.column_stack([np.ones(4), days])
    x = parts[0].values.reshape(4, -1)
    left = x - z @ np.linalg.lstsq(z, x, rcond=None)[0]
    np.testing.assert_allclose(fitted.singular_values_, np.linalg.svd(left, compute_uv=False)[:2], rtol=1e-9)


@pytest.mark.parametrize("dim", ["valid_time", "ocean_time", "time_counter", "date", "T"])
@pytest.mark.parametrize("dims", [("lat", "lon", 0), ("member", 0, "lat"), (0, "lat", "lon")])
def test_the_axis_with_dates_is_that_of_the_samples(dim, dims, capsys):
    names = [dim if one == 0 else one for one in dims]
    times = pd.date_range("2001-01-01", periods=7)
    data = xr.DataArray(np.ones([7 if one == dim else 3 for one in names]), dims=names, coords={dim: times}, name="t2m")
    data.to_dataset().to_netcdf("x.nc", engine="h5netcdf")
    assert dpca("inspect", "x.nc") == 0
    assert f"{dim!r}" in capsys.readouterr().out
    assert dpca("init", "x.nc") == 0
    assert yaml.safe_load(capsys.readouterr().out)["input"]["samples_axis"] == dim


SPELLED = [
    ("K", "kelvin", True),
    ("m s-1", "m/s", True),
    ("m s**-1", "meter second^-1", True),
    ("kg m-2 s-1", "kg/m2/s", True),
    ("kg m**-2", "kg.m-2", True),
    ("hPa", "millibar", True),
    ("W m-2", "W m-2", True),
    ("K", "degC", False),
    ("K", "k", False),
    ("Pa", "hPa", False),
    ("m s-1", "ms-1", False),
    ("m s-1", "m s", False),
    ("mm", "m", False),
    ("1e-3 m", "mm", False),
    ("1", "%", False),
]


@pytest.mark.parametrize(("ours", "theirs", "same"), SPELLED)
def test_units_are_the_same_however_they_are_written(ours, theirs, same):
    assert same_units(ours, theirs) == same_units(theirs, ours) == same


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kernel", [False, True])
def test_new_samples_have_the_units_of_the_fit(kernel, tmp_path):
    """Of one fit, in memory and of files: the same units, also written otherwise, none, and others."""
    data = xr.DataArray(X + 280, dims=("sample", "cell"), name="t2m", attrs={"units": "K"})
    fitted = (KernelPCA(2, kernel="poly", fit_inverse_transform=True) if kernel else PCA(2)).fit(data)
    fitted.save(tmp_path / "saved")
    loaded = type(fitted).load(tmp_path / "saved")
    model = {"kind": "kernel_pca", "kernel": "poly", "fit_inverse_transform": True} if kernel else {}
    more = {"model": {"n_components": 2, **model}}
    assert dpca("run", config("c.yaml", written(data, "a.zarr"), **more)) == 0
    assert dpca("reconstruct", "r", "--out", "back") == 0
    assert [xr.open_zarr("r/result.zarr")["mean"].units, xr.open_zarr("back")["reconstruction"].units] == ["K", "K"]
    if kernel:
        assert fitted.inverse_transform(fitted.transform(data)).attrs == data.attrs
    for number, units in enumerate(["K", "kelvin", None, "degC", "mK"]):
        new = data.assign_attrs(units=units) if units else data.drop_attrs()
        wanted = units in ("K", "kelvin", None)
        file = config(f"{number}.yaml", written(new, f"{number}.nc"))
        assert dpca("transform", "r", file, "--out", f"s{number}") == (0 if wanted else 2)
        for one, given in ((fitted, new), (fitted, new.chunk()), (loaded, new)):
            if wanted:
                np.testing.assert_allclose(one.transform(given), fitted.transform(data), atol=1e-6)
            else:
                with pytest.raises(InputError, match=f"has units '{units}', but .* was fitted to units 'K'"):
                    one.transform(given)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("ending", [".zarr", ".nc", ".cdf"])
def test_members_of_an_ensemble_are_joined_and_named(ending, capsys):
    """Files of the same times: refused with the way out, joined by it; means over members, and members' own, are those of xarray."""
    times = xr.date_range("2001-01-01", periods=8, freq="MS")
    x = random_array(0, (3, 8, 40), "f8")
    whole = xr.DataArray(x, {"member": ["r1", "r2", "r3"], "time": times}, ("member", "time", "cell"), "t2m")
    files = []
    for number, one in enumerate(whole):
        one = one.drop_vars("member")
        one.time.encoding = {"units": ["days since 1850-01-01", "hours since 2000-01-01"][number % 2], "dtype": "f8"}
        files.append(written(one, f"{one_name(number)}{ending}"))
    given = {"samples_axis": "time"}
    path = config("c.yaml", files, input=given)
    assert dpca("run", path) == 2
    assert "input.members: true" in capsys.readouterr().err
    assert dpca("inspect", *files, "--array", "t2m") == 0
    assert "24 samples" in capsys.readouterr().out
    assert dpca("init", *files, "--array", "t2m") == 0
    assert yaml.safe_load(capsys.readouterr().out)["input"]["members"] is True
    assert dpca("run", path, "--set", "input.members=true") == 0
    result = xr.open_zarr("r/result.zarr")
    assert result.member.dims == ("time",)
    assert result.member.values.tolist() == [one_name(number) for number in range(3) for _ in range(8)]
    np.testing.assert_array_equal(result.time, np.tile(times, 3))
    gram = open_gram("r")
    mean = whole.mean("member").values
    centred = mean - mean.mean(0)
    expected = np.linalg.svd(centred, compute_uv=False)[:2] ** 2 / 7
    found = gram.means("time")
    assert found._rows.axis.names == [str(one)[:10] for one in times.values]
    np.testing.assert_allclose(found.pca(2).explained_variance, expected, rtol=1e-9)
    assert found.detrend().filter("running_mean", window=3).n_samples == 6
    within = (x - x.mean(1, keepdims=True)).reshape(24, -1)
    anomalies = gram.anomalies("member").pca(2).explained_variance
    np.testing.assert_allclose(anomalies, np.linalg.svd(within, compute_uv=False)[:2] ** 2 / 23, rtol=1e-9)
    with pytest.raises(ConfigError, match="grouped by 'memb'.*time, member"):
        gram.means("memb")
    steps = "analyses: [{name: a, samples: [{means: {by: time}}, {anomalies: {by: time.season}}], model: {kind: pca}}]"
    Path("d.yaml").write_text(f"from: r\n{steps}\noutput: {{path: d, report: false}}\n")
    assert dpca("derive", "d.yaml") == 0, capsys.readouterr().err
    other = written(whole[0].drop_vars("member").assign_coords(time=times + np.timedelta64(1, "D")), f"late{ending}")
    assert (
        dpca(
            "run", config("late.yaml", [files[0], other], input={**given, "members": True}), "--set", "output.path=late"
        )
        == 2
    )
    assert "sample 0 of 2001-01-02, but 2001-01-01" in capsys.readouterr().err


def one_name(number):
    return f"tas_r{number}i1p1"
