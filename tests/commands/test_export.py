"""A result in the formats of others: the same values again, by each one's own library."""

import csv
import resource
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
import zarr

from dpca.commands import export as commands_export
from tests.commands.calls import dpca, run
from tests.made import made
from tests.stores import random_array

N, K = 12, 3


def days():
    """With names of samples, and a coordinate of features."""
    group = zarr.create_group("x.zarr")
    group.create_array(
        "t", data=random_array(0, (N, 20, 30), "f8"), chunks=(N, 7, 30), dimension_names=("day", "lat", "lon")
    )
    names = np.array([f"day {i}, é" for i in range(N)], np.dtypes.StringDType())
    group.create_array("day", shape=(N,), dtype=str, dimension_names=("day",))[...] = names
    group.create_array("lat", data=np.linspace(-60, 60, 20), dimension_names=("lat",))
    Path("c.yaml").write_text(f"input: {{uri: x.zarr, array: t}}\nmodel: {{n_components: {K}}}\noutput: {{path: r}}\n")
    Path("labels.txt").write_text("\n".join("ab"[i % 2] for i in range(N)))


@pytest.fixture
def result(capsys):
    made(run, days)
    capsys.readouterr()
    return {name: array[...] for name, array in zarr.open_group("r/result.zarr", mode="r").arrays()}


def test_netcdf(result):
    xarray = pytest.importorskip("xarray")
    assert dpca("export", "r", "--to", "netcdf") == 0
    with xarray.open_dataset("r.nc", engine="h5netcdf") as found:
        assert found["components"].dims == ("component", "lat", "lon")
        for name, values in result.items():
            np.testing.assert_array_equal(found[name], values)


def test_netcdf_with_maps_in_the_unit_of_the_data(result, capsys):
    xarray = pytest.importorskip("xarray")
    assert dpca("export", "r", "--to", "netcdf", "--as-covariance", "--out", "maps.nc") == 0
    data = zarr.open_array("x.zarr/t")[...]
    with xarray.open_dataset("maps.nc", engine="h5netcdf") as found:
        z = found["scores"] / found["scores"].std("day", ddof=1)
        expected = np.einsum("nk,nij->kij", z, data - data.mean(axis=0)) / (N - 1)
        np.testing.assert_allclose(found["as_covariance"], expected, atol=1e-6)
        assert found["as_covariance"].sel(component=1).dims == ("lat", "lon")
    capsys.readouterr()
    assert dpca("export", "r", "--to", "npz", "--as-covariance") == 2
    assert "maps as_covariance are for netcdf, but npz was asked for" in capsys.readouterr().err
    assert dpca("export", "r", "--to", "netcdf", "--as-correlation", "--out", "c.nc") == 2
    assert "standard deviation of each feature" in capsys.readouterr().err


def test_hdf5(result, monkeypatch):
    monkeypatch.setattr(commands_export, "BLOCK_BYTES", 1000)
    assert dpca("export", "r", "--to", "hdf5", "--out", "mine.h5") == 0
    with h5py.File("mine.h5") as found:
        assert [dim.label for dim in found["components"].dims] == ["component", "lat", "lon"]
        for name, values in result.items():
            if values.dtype.kind in "biuf":
                np.testing.assert_array_equal(found[name][...], values)
        assert found["day"].asstr()[3] == "day 3, é"


def test_npz(result, monkeypatch):
    monkeypatch.setattr(commands_export, "BLOCK_BYTES", 1000)
    assert dpca("export", "r", "--to", "npz") == 0
    with np.load("r.npz", allow_pickle=False) as found:
        assert set(found) == set(result)
        for name, values in result.items():
            np.testing.assert_array_equal(
                found[name], np.array(values.tolist(), str) if values.dtype.kind not in "biuf" else values
            )


def test_csv_has_every_digit_and_names_that_need_quotes(result):
    assert dpca("export", "r", "--to", "csv", "--labels", "labels.txt") == 0
    with open("r-scores.csv", encoding="utf-8", newline="") as file:
        head, *rows = csv.reader(file)
    assert head == ["day", "label", "score_1", "score_2", "score_3"]
    assert [row[:2] for row in rows] == [[f"day {i}, é", "ab"[i % 2]] for i in range(N)]
    np.testing.assert_array_equal([[float(word) for word in row[2:]] for row in rows], result["scores"])
    with open("r-spectrum.csv", encoding="utf-8", newline="") as file:
        head, *rows = csv.reader(file)
    assert [float(row[head.index("singular_values")]) for row in rows] == result["singular_values"].tolist()


def test_a_file_is_named_and_no_directory(result, capsys):
    assert dpca("export", "r", "--to", "npz", "--out", ".") == 2
    assert ".: is a directory\n  Name a file with --out." in capsys.readouterr().err
    assert dpca("export", "r", "--to", "csv", "--out", "x.csv") == 0
    assert capsys.readouterr().out.split() == ["x-scores.csv", "x-spectrum.csv"]


@pytest.mark.filterwarnings("ignore")
def test_anndata(result):
    anndata = pytest.importorskip("anndata")
    assert dpca("export", "r", "--to", "anndata", "--labels", "labels.txt") == 0
    found = anndata.read_h5ad("r.h5ad")
    np.testing.assert_array_equal(found.obsm["X_pca"], result["scores"])
    np.testing.assert_array_equal(found.varm["PCs"], result["components"].reshape(K, -1).T)
    np.testing.assert_array_equal(found.uns["pca"]["variance"], result["explained_variance"])
    assert found.obs_names[3] == "day 3, é"
    assert list(found.obs["label"][:2]) == ["a", "b"]


def genes(units, calendar="standard", values=range(N)):
    """A run of named features along one axis, of which two have the same name, over days."""
    group = zarr.create_group("g.zarr")
    group.create_array("t", data=random_array(0, (N, 30), "f8"), dimension_names=("time", "gene"))
    time = group.create_array("time", data=np.array(values, "f8"), dimension_names=("time",))
    time.attrs.update(units=units, calendar=calendar)
    names = np.array(["a", "a", *(f"gene {i}" for i in range(2, 30))], np.dtypes.StringDType())
    group.create_array("gene", shape=(30,), dtype=str, dimension_names=("gene",))[...] = names
    Path("g.yaml").write_text("input: {uri: g.zarr, array: t}\nmodel: {n_components: 3}\noutput: {path: g}\n")
    assert dpca("run", "g.yaml") == 0


@pytest.mark.filterwarnings("ignore")
def test_anndata_has_names_of_features_and_dates_of_samples():
    anndata = pytest.importorskip("anndata")
    genes("days since 2001-02-03")
    assert dpca("export", "g", "--to", "anndata") == 0
    found = anndata.read_h5ad("g.h5ad")
    assert list(found.var_names[:3]) == ["a", "a-1", "gene 2"]
    assert found.obs_names[1] == "2001-02-04"


@pytest.mark.parametrize(
    ("units", "step", "dtype", "last"),
    [
        ("days since 2001-02-03", 1, "M8[D]", "2001-02-14"),
        ("days since 1850-01-01", 1 / 24, "M8[s]", "1850-01-01T11:00:00"),
        ("seconds since 2001-02-03 12:00", 0.25, "M8[ms]", "2001-02-03T12:00:02.750"),
    ],
)
def test_dates_in_npz_are_dates(units, step, dtype, last):
    genes(units, values=np.arange(N) * step)
    assert dpca("export", "g", "--to", "npz", "--overwrite") == 0
    with np.load("g.npz", allow_pickle=False) as found:
        assert found["time"].dtype == dtype
        assert str(found["time"][-1]) == last
        assert "time.units" not in found


@pytest.mark.parametrize(
    ("units", "calendar", "step"),
    [
        ("days since 1850-01-01", "noleap", 1),
        ("seconds since 2001-02-03", "standard", 1 / 2048),
        ("months since 2001-01-01", "standard", 1),
    ],
)
def test_times_in_npz_that_are_no_dates_keep_their_units(units, calendar, step):
    genes(units, calendar, np.arange(N) * step)
    assert dpca("export", "g", "--to", "npz", "--overwrite") == 0
    with np.load("g.npz", allow_pickle=False) as found:
        np.testing.assert_array_equal(found["time"], np.arange(N) * step)
        assert (str(found["time.units"]), str(found["time.calendar"])) == (units, calendar)


def test_anndata_of_features_that_are_chosen_otherwise_by_now_is_refused(capsys):
    anndata, pd = pytest.importorskip("anndata"), pytest.importorskip("pandas")
    for first in (0, 1):
        chosen = pd.DataFrame({"chosen": np.arange(20) % 2 == first}, index=[f"g{number}" for number in range(20)])
        anndata.AnnData(random_array(0, (N, 20), "f8"), var=chosen).write_h5ad("cells.h5ad")
        if first == 0:
            Path("y.yaml").write_text(
                "input: {uri: cells.h5ad, features: {column: chosen}}\nmodel: {n_components: 2}\noutput: {path: y, report: false}\n"
            )
            assert dpca("run", "y.yaml") == 0
            assert dpca("export", "y", "--to", "anndata") == 0
            assert anndata.read_h5ad("y.h5ad").var["chosen"].tolist() == chosen["chosen"].tolist()
    assert dpca("export", "y", "--to", "anndata", "--overwrite") == 2
    assert "column 'chosen' chooses other features than when y was made" in capsys.readouterr().err


@pytest.mark.parametrize("to", ["netcdf", "hdf5", "anndata"])
def test_a_file_that_the_disk_does_not_take_ends_in_a_sentence_and_the_process_lives(result, to, capsys):
    pytest.importorskip("anndata")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (9000, limits[1]))
    try:
        assert dpca("export", "r", "--to", to, "--out", "file") == 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "file: could not be written: File too large" in capsys.readouterr().err
    assert not [path for path in Path.cwd().iterdir() if "file" in path.name or path.suffix == ".partial"]


@pytest.mark.parametrize("to", ["csv", "npz"])
def test_what_is_there_is_replaced_only_when_asked(result, to, capsys):
    assert dpca("export", "r", "--to", to) == 0
    assert dpca("export", "r", "--to", to) == 2
    assert "exists" in capsys.readouterr().err
    assert dpca("export", "r", "--to", to, "--out", "nodir/x") == 1
    assert "could not be written: its directory does not exist" in capsys.readouterr().err
    assert dpca("export", "r", "--to", to, "--overwrite") == 0
    assert not list(Path().glob(".*partial*"))


def test_a_library_that_is_not_installed(result, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "h5netcdf", None)
    assert dpca("export", "r", "--to", "netcdf") == 2
    assert "which is not installed" in capsys.readouterr().err
    assert not Path("r.nc").exists()


def named(dim, name, suffix=".zarr", attributes=None):
    """A result of data whose features' coordinate is called so, and whose samples are called so."""
    names = np.array([f"{name}{i}" for i in range(N)], np.dtypes.StringDType())
    x = random_array(0, (N, 20), "f8")
    if suffix == ".h5":
        with h5py.File("y.h5", "w") as file:
            file["x"], file[dim] = x, np.arange(20.0)
            file[dim].make_scale(dim)
            file["x"].dims[1].attach_scale(file[dim])
    else:
        group = zarr.create_group("y.zarr")
        group.create_array("x", data=x, dimension_names=("day", dim))
        day = group.create_array("day", shape=(N,), dtype=str, dimension_names=("day",), attributes=attributes or {})
        day[...] = names
    Path("y.yaml").write_text(f"input: {{uri: y{suffix}, array: x}}\nmodel: {{n_components: 3}}\noutput: {{path: r}}\n")
    assert dpca("run", "y.yaml") == 0


FORMATS = ("netcdf", "hdf5", "npz", "anndata", "csv")


@pytest.mark.parametrize(
    ("dim", "suffix"),
    [
        *((dim, ".zarr") for dim in ("n" * 255, "é" * 128, "n" * 300, "a\0b", "a\nb", "a\ud800b")),
        *((dim, ".h5") for dim in ("n" * 255, "n" * 300)),  # HDF5 has no names that can't be printed
    ],
)
def test_a_dimension_has_a_name_that_files_can_have_or_none(dim, suffix):
    made(named, dim, "", suffix)
    (_, found) = zarr.open_group("r/result.zarr", mode="r")["components"].metadata.dimension_names
    assert found == (dim if dim == "n" * 255 else "feature")


@pytest.mark.parametrize("suffix", [".zarr", ".h5"])
@pytest.mark.parametrize("dim", ["n" * 255, "n" * 300])
def test_a_result_of_a_long_name_is_exported_with_it_or_without(dim, suffix):
    made(named, dim, "", suffix)
    for to in FORMATS:
        assert dpca("export", "r", "--to", to) == 0


@pytest.mark.parametrize("name", ["a\0b", "units"])
def test_a_name_that_a_format_can_not_hold_is_said(name, capsys):
    named("lat", name, attributes={"units": "a\0b"} if name == "units" else None)
    for to in FORMATS:
        refused = to in ("netcdf", "hdf5") or (to == "anndata" and name != "units")
        assert dpca("export", "r", "--to", to) == (2 if refused else 0)
        assert ("r: its names, or what its coordinates say" in capsys.readouterr().err) == refused


def test_units_that_are_no_time_are_kept(capsys):
    named("lat", "", attributes={"units": "days since"})
    assert dpca("export", "r", "--to", "netcdf") == 0


def test_a_table_has_no_formulas():
    named("lat", "=1+")
    Path("labels.txt").write_text("\n".join(["-1.5", "+cmd|' /C calc'!A0", "@x", "-x", "2", "a=b"] * 2))
    assert dpca("export", "r", "--to", "csv", "--labels", "labels.txt") == 0
    with open("r-scores.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))[1:]
    assert [row[0] for row in rows] == [f"'=1+{i}" for i in range(N)]
    assert [row[1] for row in rows[:6]] == ["-1.5", "'+cmd|' /C calc'!A0", "'@x", "'-x", "2", "a=b"]
    scores = zarr.open_group("r/result.zarr", mode="r")["scores"][...]
    np.testing.assert_array_equal([[float(value) for value in row[2:]] for row in rows], scores)


def test_of_two_exports_at_a_time_one_is_refused(result, monkeypatch, capsys):
    """The second begins when nothing is there, and ends when something is."""
    from dpca.commands import export

    write = export.WRITERS["npz"]

    def meanwhile(*arguments):
        Path("r.npz").write_text("of another")
        write(*arguments)

    monkeypatch.setitem(export.WRITERS, "npz", meanwhile)
    assert dpca("export", "r", "--to", "npz") == 2
    assert "r.npz: exists" in capsys.readouterr().err
    assert Path("r.npz").read_text() == "of another"
    assert dpca("export", "r", "--to", "npz", "--overwrite") == 0
    assert not list(Path().glob(".*.partial"))


@pytest.fixture
def scores(result):
    assert dpca("transform", "r", "x.zarr", "--out", "s.zarr") == 0
    return {name: array[...] for name, array in zarr.open_group("s.zarr", mode="r").arrays()}


@pytest.mark.filterwarnings("ignore")
def test_scores_of_new_samples_go_where_those_of_a_result_go(scores, capsys):
    anndata, xarray = pytest.importorskip("anndata"), pytest.importorskip("xarray")
    capsys.readouterr()
    for to in ("netcdf", "hdf5", "npz", "csv", "anndata"):
        assert (
            dpca("export", "s.zarr", "--to", to, *(["--labels", "labels.txt"] if to in ("csv", "anndata") else [])) == 0
        )
    assert capsys.readouterr().out.split() == ["s.nc", "s.h5", "s.npz", "s-scores.csv", "s.h5ad"]
    expected = scores["scores"]
    with xarray.open_dataset("s.nc", engine="h5netcdf") as netcdf, h5py.File("s.h5") as hdf5, np.load("s.npz") as npz:
        assert netcdf["scores"].dims == ("day", "component")
        for found in (netcdf, hdf5, npz):
            np.testing.assert_array_equal(np.asarray(found["scores"]), expected)
        assert [str(names[3]) for names in (netcdf["day"].values, hdf5["day"].asstr()[...], npz["day"])] == 3 * [
            "day 3, é"
        ]
    cells = anndata.read_h5ad("s.h5ad")
    np.testing.assert_array_equal(cells.obsm["X_pca"], expected)
    assert (cells.obs_names[3], *cells.obs["label"][:2]) == ("day 3, é", "a", "b")
    with open("s-scores.csv", newline="", encoding="utf-8") as file:
        head, *rows = csv.reader(file)
    assert head == ["day", "label", *(f"score_{i}" for i in range(1, K + 1))]
    np.testing.assert_array_equal(np.array([row[2:] for row in rows], "f8"), expected)
    for to in ("plink", "grm"):
        assert dpca("export", "s.zarr", "--to", to) == 2
        assert "s.zarr: holds no result" in capsys.readouterr().err
    assert dpca("export", "s.zarr", "--to", "csv") == 2
    assert "exists" in capsys.readouterr().err


def test_scores_without_names_and_of_a_sample_without_values():
    np.save("new.npy", np.where(np.arange(2)[:, None, None] > 0, np.nan, random_array(3, (2, 20, 30), "f8")))
    made(run, days, "preprocess.missing=mean")
    assert dpca("transform", "r", "new.npy", "--out", "sub/scores") == 0
    assert dpca("export", "sub/scores", "--to", "csv") == 0
    head, *_, second = Path("sub/scores-scores.csv").read_text().splitlines()
    assert head == "day,score_1,score_2,score_3"
    assert second == "1" + K * ",nan"
    assert dpca("export", "sub/scores", "--to", "netcdf") == 0


def test_a_reconstruction_is_exported_as_an_array(result, capsys):
    xarray = pytest.importorskip("xarray")
    assert dpca("reconstruct", "r", "--samples", "0:3", "--out", "b.zarr") == 0
    assert dpca("export", "b.zarr", "--to", "netcdf") == 0
    with xarray.open_dataset("b.nc", engine="h5netcdf") as found:
        np.testing.assert_array_equal(found["reconstruction"], zarr.open_array("b.zarr/reconstruction")[...])
        assert found["reconstruction"].dims == ("day", "lat", "lon")
    assert dpca("export", "b.zarr", "--to", "csv") == 2
    assert "b.zarr: holds day, lat, reconstruction, and no scores, which csv is for" in capsys.readouterr().err


def test_a_part_of_scores_that_is_gone_is_said(scores, capsys):
    Path("s.zarr/scores/c/0/0").unlink()
    assert dpca("export", "s.zarr", "--to", "npz") == 2
    assert "s.zarr: scores/c/0/0 is gone" in capsys.readouterr().err
    zarr.create_group("other.zarr")
    assert dpca("export", "other.zarr", "--to", "npz") == 2
    assert "other.zarr: is no result of dpca run" in capsys.readouterr().err
