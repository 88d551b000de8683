"""A result in the formats of others: the same values again, by each one's own library."""

import csv
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
import zarr

from tests.commands.calls import dpca
from tests.stores import random_array

N, K = 12, 3


@pytest.fixture
def result():
    """With names of samples, and a coordinate of features."""
    group = zarr.create_group("x.zarr")
    group.create_array(
        "t", data=random_array(0, (N, 20, 30), "f8"), chunks=(N, 7, 30), dimension_names=("day", "lat", "lon")
    )
    names = np.array([f"day {i}, é" for i in range(N)], np.dtypes.StringDType())
    group.create_array("day", shape=(N,), dtype=str, dimension_names=("day",))[...] = names
    group.create_array("lat", data=np.linspace(-60, 60, 20), dimension_names=("lat",))
    Path("c.yaml").write_text(f"input: {{uri: x.zarr, array: t}}\nmodel: {{n_components: {K}}}\noutput: {{path: r}}\n")
    assert dpca("run", "c.yaml") == 0
    Path("labels.txt").write_text("\n".join("ab"[i % 2] for i in range(N)))
    return {name: array[...] for name, array in zarr.open_group("r/result.zarr", mode="r").arrays()}


def test_netcdf(result):
    xarray = pytest.importorskip("xarray")
    assert dpca("export", "r", "--to", "netcdf") == 0
    with xarray.open_dataset("r.nc", engine="h5netcdf") as found:
        assert found["components"].dims == ("component", "lat", "lon")
        for name, values in result.items():
            np.testing.assert_array_equal(found[name], values)


def test_hdf5(result, monkeypatch):
    monkeypatch.setattr("dpca.export.BLOCK_BYTES", 1000)
    assert dpca("export", "r", "--to", "hdf5", "--out", "mine.h5") == 0
    with h5py.File("mine.h5") as found:
        assert [dim.label for dim in found["components"].dims] == ["component", "lat", "lon"]
        for name, values in result.items():
            if values.dtype.kind in "biuf":
                np.testing.assert_array_equal(found[name][...], values)
        assert found["day"].asstr()[3] == "day 3, é"


def test_npz(result, monkeypatch):
    monkeypatch.setattr("dpca.export.BLOCK_BYTES", 1000)
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
    assert head == ["day", "label", "score_0", "score_1", "score_2"]
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
