"""dpca transform and dpca reconstruct: a result applied to new samples, and turned back into samples."""

import os
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray as xr
import zarr

from dpca import PCA
from dpca.methods import projection
from dpca.sources.dask_array import DaskSource
from dpca.store.results import open_result
from tests.commands.calls import X, dpca, dpca_process
from tests.made import made
from tests.stores import counted, random_array

FEATURES = (20, 30)
DIMS = ("time", "lat", "lon")


def make(x, *keys, samples_axis=0, chunks=(5, 20, 7)):
    zarr.create_array("x.zarr", data=x, chunks=chunks)
    Path("c.yaml").write_text(f"input: {{uri: x.zarr, samples_axis: {samples_axis}}}\noutput: {{path: r}}\n")
    assert dpca("run", "c.yaml", *(word for key in keys for word in ("--set", key))) == 0


def run(x, *keys, **how):
    """A result `r` of x."""
    made(make, x, *keys, **how)
    return zarr.open_group("r/result.zarr", mode="r")


def expected_scores(result, new, samples_axis=0):
    """((Y - 1 m') / scale) W / whitening, densely."""
    new = np.moveaxis(np.asarray(new, np.float64), samples_axis, 0).reshape(new.shape[samples_axis], -1)
    mean, scale = (np.asarray(result[name][...]).reshape(-1) for name in ("mean", "scale"))
    components = np.asarray(result["components"][...], np.float64).reshape(result["components"].shape[0], -1)
    scores = ((new - mean) / scale) @ components.T
    whitened = result["scores"].attrs["whitened"]
    return scores / np.sqrt(result["explained_variance"][...]) if whitened else scores


def scores_of(path):
    return np.asarray(zarr.open_group(path, mode="r")["scores"][...])


NEW = random_array(7, (23, *FEATURES), "f4")
KEYS = ("model.n_components=4", "preprocess.scale=std", "model.whiten=true")


@pytest.mark.parametrize(
    ("kind", "n"),
    [("zarr", 1), ("zarr", 23), ("hdf5", 1), ("hdf5 gzip", 23), ("npy", 1), ("npy", 23), ("zarr of whole rows", 23)],
)
def test_new_samples_of_any_number_from_any_source(kind, n, tmp_path):
    result, new = run(X, *KEYS), NEW[:n]
    if kind.startswith("zarr"):
        where = "new.zarr"
        zarr.create_array(where, data=new, chunks=(1, *FEATURES) if "rows" in kind else (n, 7, 9))
    elif kind.startswith("hdf5"):
        where = "new.h5"
        with h5py.File(where, "w") as file:
            file.create_dataset("x", data=new, chunks=(1, 20, 30), compression="gzip" if "gzip" in kind else None)
    else:
        where = "new.npy"
        np.save(where, new)
    assert dpca("transform", "r", where, "--out", "scores.zarr") == 0
    np.testing.assert_allclose(scores_of("scores.zarr"), expected_scores(result, new), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("shape", "axis"), [((30, 3, 4), 0), ((30, 3, 4), 2), ((6, 5, 7), 0), ((6, 5, 7), 1)])
def test_the_samples_of_the_fit_have_the_scores_of_the_fit(shape, axis, monkeypatch):
    """Whichever side was kept, along any axis, in groups of any size."""
    monkeypatch.setattr(projection, "GROUP_SAMPLES", 7)
    x = np.moveaxis(random_array(0, shape, "f8"), 0, axis)
    result = run(x, "model.n_components=5", samples_axis=axis, chunks=(2, 3, 2))
    assert dpca("transform", "r", "x.zarr", "--out", "s.zarr") == 0
    np.testing.assert_allclose(
        scores_of("s.zarr"), result["scores"][...], atol=1e-10 * np.abs(result["scores"][...]).max()
    )


def test_each_chunk_of_new_samples_is_read_once(monkeypatch):
    run(X, "model.n_components=4")
    monkeypatch.setattr(projection, "GROUP_SAMPLES", 8)
    array, reads = counted(zarr.create_array({}, data=NEW, chunks=(4, 7, 9)))
    fitted = PCA(4).fit(X)
    np.testing.assert_allclose(fitted.transform(array), fitted.transform(NEW), atol=1e-5)
    assert set(reads.values()) == {1}
    assert len(reads) == 6 * 3 * 4


def test_a_dask_array_of_irregular_chunks_is_computed_once(monkeypatch):
    import dask.array as da

    monkeypatch.setattr(projection, "GROUP_SAMPLES", 8)
    computed = []

    def block(values, block_info=None):
        computed.append(block_info[0]["chunk-location"])
        return values

    fitted = PCA(4).fit(X)
    lazy = da.from_array(NEW, chunks=((3, 9, 1, 10), (20,), (30,))).map_blocks(
        block, dtype="f4", meta=np.empty((0,) * 3)
    )
    assert isinstance(lazy, da.Array)
    assert DaskSource(lazy).layout.shape == NEW.shape
    computed.clear()
    np.testing.assert_allclose(fitted.transform(lazy), fitted.transform(NEW), atol=1e-5)
    assert sorted(computed) == sorted(set(computed))
    assert len(computed) == 4


def test_where_samples_are_may_be_said_in_yaml():
    result = run(X, "model.n_components=4")
    with h5py.File("new.h5", "w") as file:
        file["first"], file["second"] = np.zeros(3), np.moveaxis(NEW, 0, 2)
    Path("new.yaml").write_text("input:\n  uri: new.h5\n  array: second\n  samples_axis: 2\n")
    assert dpca("transform", "r", "new.yaml", "--out", "a.zarr") == 0
    Path("bare.yaml").write_text("uri: new.h5\narray: second\nsamples_axis: 2\n")
    assert dpca("transform", "r", "bare.yaml", "--out", "b.zarr") == 0
    for path in ("a.zarr", "b.zarr"):
        np.testing.assert_allclose(scores_of(path), expected_scores(result, NEW), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("uri: new.h5\narry: second\n", "bad.yaml:2:1: unknown key arry"),
        ("input:\n  uri: new.h5\n  samples_axis: [1.5]\n", "bad.yaml:3:17: samples_axis is [1.5]"),
        ("array: second\n", "uri is missing"),
        ("- 1\n", "bad.yaml:1:1: is not a mapping of the keys of input"),
    ],
)
def test_what_is_wrong_in_that_yaml_is_named_with_its_line(text, said, capsys):
    run(X, "model.n_components=4")
    Path("bad.yaml").write_text(text)
    capsys.readouterr()
    assert dpca("transform", "r", "bad.yaml", "--out", "s.zarr") == 2
    assert said in capsys.readouterr().err


def dataset(values, **coordinates):
    return xr.Dataset({"sst": (DIMS, values)}, coords={"lat": np.arange(20.0), "lon": np.arange(30.0)} | coordinates)


def fitted_to_a_field():
    dataset(X).to_zarr("field.zarr", zarr_format=3, consolidated=False)
    Path("c.yaml").write_text("input: {uri: field.zarr, array: sst, samples_axis: time}\noutput: {path: r}\n")
    assert dpca("run", "c.yaml", "--set", "model.n_components=4") == 0


def test_features_are_known_by_name(capsys):
    made(fitted_to_a_field)
    dataset(NEW, time=np.arange(100, 123)).to_zarr("new.zarr", zarr_format=3, consolidated=False)
    assert dpca("transform", "r", "new.zarr", "--out", "s.zarr") == 0
    with xr.open_zarr("s.zarr") as scores:
        np.testing.assert_array_equal(scores.time, np.arange(100, 123))
    dataset(NEW, lat=np.arange(20.0)[::-1]).to_zarr("flipped.zarr", zarr_format=3, consolidated=False)
    assert dpca("transform", "r", "flipped.zarr", "--out", "t.zarr") == 2
    assert "feature 0 along 'lat' is 19.0, but r was fitted to 0.0 there (20 differ)" in capsys.readouterr().err
    dataset(NEW).rename(lat="y").to_zarr("renamed.zarr", zarr_format=3, consolidated=False)
    assert dpca("transform", "r", "renamed.zarr", "--out", "t.zarr") == 2
    assert "axis 1 is 'y', but r was fitted to 'lat' there" in capsys.readouterr().err
    dataset(NEW).transpose("time", "lon", "lat").to_zarr("turned.zarr", zarr_format=3, consolidated=False)
    assert dpca("transform", "r", "turned.zarr", "--out", "t.zarr") == 2
    said = capsys.readouterr().err
    assert (
        "has 30 (lon) x 20 (lat) features a sample (shape 23 x 30 x 20, samples along axis 0), but r was fitted to 20"
        in said
    )
    for shape, words, remedy in (
        ((20, 30, 5), "has 30 x 5 features a sample (shape 20 x 30 x 5, ", "lie along axis 2: say so in a YAML file"),
        ((5,), "has no features a sample (shape 5, samples along axis 0)", "Give new samples with the features of the"),
    ):
        np.save("other.npy", np.zeros(shape, "f4"))
        Path("other.yaml").write_text("uri: other.npy\n")
        assert dpca("transform", "r", "other.yaml", "--out", "t.zarr") == 2
        said = capsys.readouterr().err
        assert words in said
        assert remedy in said
    assert not os.path.exists("t.zarr")


def test_features_whose_names_are_text_come_along_and_are_compared(capsys):
    names = [f"gene{number}" for number in range(50)]
    cohort = xr.Dataset({"X": (("sample", "gene"), random_array(0, (9, 50), "f4"))}, coords={"gene": names})
    cohort.to_zarr("a.zarr", zarr_format=2, consolidated=False)
    Path("c.yaml").write_text("input: {uri: a.zarr, array: X}\noutput: {path: r}\n")
    assert dpca("run", "c.yaml") == 0
    with xr.open_zarr("r/result.zarr") as result:
        assert result.gene.values.tolist() == names
    others = cohort.assign_coords(gene=[*names[:49], "other"], sample=[f"p{number}" for number in range(9)])
    others.to_zarr("b.zarr", zarr_format=2, consolidated=False)
    assert dpca("transform", "r", "b.zarr", "--out", "s.zarr") == 2
    assert (
        "feature 49 along 'gene' is 'other', but r was fitted to 'gene49' there (1 differ)" in capsys.readouterr().err
    )
    others.assign_coords(gene=names).to_zarr("c.zarr", zarr_format=2, consolidated=False)
    assert dpca("transform", "r", "c.zarr", "--out", "s.zarr") == 0
    with xr.open_zarr("s.zarr") as scores:
        assert scores.sample.values.tolist() == [f"p{number}" for number in range(9)]
    with h5py.File("d.h5", "w") as file:
        data = file.create_dataset("X", data=random_array(0, (9, 50), "f4"))
        file["gene"] = np.array([*names[:49], "other"], h5py.string_dtype())
        file["gene"].make_scale("gene")
        data.dims[1].attach_scale(file["gene"])
    assert dpca("transform", "r", "d.h5", "--out", "t.zarr") == 2
    assert "feature 49 along 'gene' is 'other'" in capsys.readouterr().err


def test_a_value_that_is_not_finite_leaves_nothing_behind_and_an_earlier_output_as_it_was(capsys):
    run(X, "model.n_components=4")
    zarr.create_array("new.zarr", data=NEW, chunks=(4, 7, 9))
    assert dpca("transform", "r", "new.zarr", "--out", "s.zarr") == 0
    before = scores_of("s.zarr")
    broken = NEW.copy()
    broken[17, 3, 4] = np.nan
    zarr.create_array("new.zarr", data=broken, chunks=(4, 7, 9), overwrite=True)
    for out in ("s.zarr", "t.zarr"):
        assert dpca("transform", "r", "new.zarr", "--out", out, "--overwrite") == 2
        assert "the first at index [17, 3, 4] (sample 17): nan" in capsys.readouterr().err
    np.testing.assert_array_equal(scores_of("s.zarr"), before)
    assert not [name for name in os.listdir() if name.startswith(("t.zarr", "."))]


def test_nothing_is_replaced_unasked_or_that_is_no_zarr_group(capsys):
    run(X, "model.n_components=4")
    assert dpca("transform", "r", "x.zarr", "--out", "s.zarr") == 0
    assert dpca("transform", "r", "x.zarr", "--out", "s.zarr") == 2
    assert "exists already" in capsys.readouterr().err
    os.mkdir("mine")
    assert dpca("transform", "r", "x.zarr", "--out", "mine", "--overwrite") == 2
    assert "and dpca did not write it" in capsys.readouterr().err
    assert dpca("transform", "r", "x.zarr", "--out", "s.zarr", "--overwrite") == 0


def test_a_place_that_is_no_result_is_refused(capsys):
    run(X, "output.components=false", "model.n_components=4")
    for place, said in (
        ("nowhere", "nowhere: does not exist"),
        ("c.yaml", "c.yaml: is a file, and no result of dpca run"),
        ("x.zarr", "x.zarr: is no result of dpca run"),
        ("r", "r: has no components"),
    ):
        assert dpca("transform", place, "x.zarr", "--out", "s.zarr") == 2
        assert said in capsys.readouterr().err
    shutil.move("r/result.zarr", "moved")
    manifest = Path("r/manifest.json").read_text()
    for text, said in (
        (manifest, "r: its result.zarr is gone"),
        ("{", "r: its manifest.json is damaged"),
        ("{}", "r: its manifest.json is damaged"),
        ('{"format_version": 99}', "r: has format_version 99, but this dpca reads up to 2"),
    ):
        Path("r/manifest.json").write_text(text)
        assert dpca("reconstruct", "r", "--out", "s.zarr") == 2
        assert said in capsys.readouterr().err
    os.remove("r/manifest.json")
    assert dpca("reconstruct", "r", "--out", "s.zarr") == 2
    shown = capsys.readouterr().err
    assert "r: its run has not ended well (see dpca status r)" in shown
    assert "Go on with it with dpca run --resume." in shown


@pytest.mark.parametrize(
    "command",
    [
        ("transform", "r", "x.npy", "--out"),
        ("reconstruct", "r", "--out"),
        ("run", "c.yaml", "--set", "output.path="),
        ("plan", "c.yaml", "--set", "output.path="),
        ("extend", "r", "new.npy", "--output"),
        ("derive", "d.yaml", "--set", "output.path="),
    ],
)
@pytest.mark.parametrize(("ending", "to"), [(".nc", "netcdf"), (".npy", "npz"), (".CSV", "csv"), (".mat", None)])
def test_a_name_of_a_file_makes_no_directory(command, ending, to, capsys):
    """Whatever command it is given to: the message says how a file of that format is made."""
    np.save("x.npy", random_array(0, (9, 40), "f8"))
    np.save("new.npy", random_array(1, (2, 40), "f8"))
    Path("c.yaml").write_text("input: {uri: x.npy}\nmodel: {n_components: 2}\noutput: {path: r, report: false}\n")
    Path("d.yaml").write_text("from: r\nanalyses: [{name: a, model: {kind: pca}}]\noutput: {path: d, report: false}\n")
    assert dpca("run", "c.yaml") == 0
    *words, last = command
    out = [f"{last}s{ending}"] if last.endswith("=") else [last, f"s{ending}"]
    assert dpca(*words, *out) == 2
    said = capsys.readouterr().err
    assert f"s{ending}: {ending.lower()} is the name of a file, but a directory is made" in said
    assert (f"dpca export s --to {to}" in said) == (to is not None and command[0] != "derive")
    assert not Path(f"s{ending}").exists()


def test_an_out_below_a_file_is_refused(capsys):
    run(X, "model.n_components=4")
    Path("afile").write_text("")
    for out in ("afile/s.zarr", "afile/deeper/s.zarr"):
        assert dpca("transform", "r", "x.zarr", "--out", out) == 2
        shown = capsys.readouterr().err
        assert f"{os.getcwd()}/afile: exists and is not a directory" in shown
        assert "Choose another --out." in shown


def test_more_memory_than_there_is_exits_3_and_says_how_much_would_do(capsys):
    run(X, "model.n_components=4")
    capsys.readouterr()
    assert dpca("transform", "r", "x.zarr", "--out", "s.zarr", "--memory", "100MiB") == 3
    assert "Set --memory to " in capsys.readouterr().err
    assert dpca("reconstruct", "r", "--out", "s.zarr", "--memory", "much") == 2
    assert "--memory is 'much', but an amount such as 8GiB is allowed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("shape", "axis", "whiten"),
    [
        *(((30, 3, 4), axis, whiten) for axis, whiten in ((0, "true"), (1, "false"), (2, "true"))),
        *(((6, 5, 7), axis, whiten) for axis, whiten in ((0, "false"), (1, "true"), (2, "false"))),
    ],
)
def test_a_reconstruction_is_the_mean_and_what_components_explain(shape, axis, whiten, monkeypatch):
    monkeypatch.setattr(projection, "CHUNK_BYTES", 500)
    x = np.moveaxis(random_array(0, shape, "f8"), 0, axis)
    keys = ("model.n_components=3", "preprocess.scale=std", f"model.whiten={whiten}")
    make(x, *keys, samples_axis=axis, chunks=(2, 3, 2))
    rows = np.moveaxis(x, axis, 0)
    mean, scale = rows.mean(axis=0), rows.std(axis=0, ddof=1)
    u, s, vt = np.linalg.svd(((rows - mean) / scale).reshape(len(rows), -1), full_matrices=False)

    def explained(k):
        return mean + scale * ((u[:, :k] * s[:k]) @ vt[:k]).reshape(rows.shape)

    assert dpca("reconstruct", "r", "--out", "y.zarr") == 0
    found = zarr.open_group("y.zarr", mode="r")["reconstruction"]
    assert found.shape == x.shape
    np.testing.assert_allclose(found[...], np.moveaxis(explained(3), 0, axis), atol=1e-9)
    assert dpca("reconstruct", "r", "--out", "z.zarr", "--samples", "4,0:3", "--n-components", "1") == 0
    expected = np.moveaxis(explained(1)[[4, 0, 1, 2]], 0, axis)
    np.testing.assert_allclose(zarr.open_group("z.zarr", mode="r")["reconstruction"][...], expected, atol=1e-9)
    assert dpca("reconstruct", "r", "--out", "some.zarr", "--components", "3,1") == 0
    expected = np.moveaxis(explained(3) - explained(2) + explained(1), 0, axis)
    np.testing.assert_allclose(zarr.open_group("some.zarr", mode="r")["reconstruction"][...], expected, atol=1e-9)


def test_a_reconstruction_has_the_axes_and_coordinates_of_the_input():
    made(fitted_to_a_field)
    assert dpca("reconstruct", "r", "--out", "y.zarr", "--samples", "2,5") == 0
    with xr.open_zarr("y.zarr") as again:
        assert again.reconstruction.dims == ("time", "lat", "lon")
        assert again.reconstruction.dtype == np.float32
        np.testing.assert_array_equal(again.lon, np.arange(30.0))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--samples", "3:99"), "'3:99' is not among the 12 samples"),
        (("--components", "1,9"), "--components is 1,9, but r has the components 1 to 4, each once"),
        (("--components", "2,2"), "each once"),
        (("--components", "x"), "Write it like 1,2,5"),
        (("--components", "1", "--n-components", "2"), "one says which are used"),
        (("--samples", "5:5"), "'5:5' is empty: a range ends before its second number"),
        (("--samples", "0:100"), "Numbers from 0 to 11 are allowed; a range may end at 12."),
        (("--samples", "12"), "'12' is not among the 12 samples"),
        (("--samples=-1",), "'-1' counts from the end"),
        (("--samples", "first"), "'first' is neither a number nor a range"),
        (("--n-components", "9"), "--n-components is 9, but r has 4 components"),
    ],
)
def test_samples_and_components_that_there_are_not(arguments, said, capsys):
    run(X, "model.n_components=4")
    capsys.readouterr()
    assert dpca("reconstruct", "r", "--out", "y.zarr", *arguments) == 2
    assert said in capsys.readouterr().err
    assert not os.path.exists("y.zarr")


def test_all_components_give_the_data_back():
    run(X.astype("f8"), "model.n_components=12")
    assert dpca("reconstruct", "r", "--out", "y.zarr") == 0
    np.testing.assert_allclose(zarr.open_group("y.zarr", mode="r")["reconstruction"][...], X, atol=1e-12)


@pytest.mark.long
def test_as_a_process_in_little_memory():
    """The command watches itself, and would stop at its budget."""
    x = np.random.default_rng(0).normal(size=(40, 200_000)).astype("f4")
    run(x, "model.n_components=10", chunks=(10, 20_000))
    for arguments in (("transform", "r", "x.zarr"), ("reconstruct", "r")):
        done = dpca_process(*arguments, "--out", f"{arguments[0]}.zarr", "--memory", "260MiB", "--workers", "1")
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr


def test_what_is_read_is_never_replaced(capsys):
    run(X, "model.n_components=4")
    zarr.create_array("mine.zarr", data=NEW, chunks=(4, 7, 9))
    for arguments, out in (
        (("transform", "r", "mine.zarr"), "mine.zarr"),
        (("transform", "r", "mine.zarr"), "mine.zarr/inside"),
        (("transform", "r", "mine.zarr"), "r/result.zarr"),
        (("reconstruct", "r"), "r"),
    ):
        assert dpca(*arguments, "--out", out, "--overwrite") == 2
        assert "which is read" in capsys.readouterr().err
    zarr.create_array("theirs.zarr", data=NEW)
    assert dpca("transform", "r", "mine.zarr", "--out", "theirs.zarr", "--overwrite") == 2
    assert "dpca did not write it" in capsys.readouterr().err
    np.testing.assert_array_equal(zarr.open_array("mine.zarr", mode="r")[...], NEW)


def test_a_failure_leaves_no_directory_that_was_not_there():
    run(X, "model.n_components=4")
    np.save("bad.npy", np.full((2, *FEATURES), np.nan))
    assert dpca("transform", "r", "bad.npy", "--out", "deep/er/s.zarr") == 2
    assert not os.path.exists("deep")


def test_text_coordinates_of_hdf5_come_along():
    with h5py.File("w.h5", "w") as file:
        data = file.create_dataset("X", data=random_array(0, (9, 50), "f4"))
        file["gene"] = np.array([f"gene{number}" for number in range(50)], h5py.string_dtype())
        file["gene"].make_scale("gene")
        data.dims[1].attach_scale(file["gene"])
    Path("c.yaml").write_text("input: {uri: w.h5, array: X}\noutput: {path: r}\n")
    assert dpca("run", "c.yaml") == 0
    with xr.open_zarr("r/result.zarr") as result:
        assert result.gene.values[:2].tolist() == ["gene0", "gene1"]
    np.save("new.npy", random_array(1, (3, 50), "f4"))  # the array of the fit is named, this one has none
    assert dpca("transform", "r", "new.npy", "--out", "s.zarr") == 0


def test_a_value_that_cannot_be_filled_in_is_told_apart_from_one_that_can(capsys):
    run(X, "model.n_components=4", "preprocess.missing=mean")
    new = NEW.copy()
    new[0, 0, 0], new[20, 3, 4] = np.nan, np.inf
    np.save("new.npy", new)
    assert dpca("transform", "r", "new.npy", "--out", "s.zarr") == 2
    assert "1 infinities in region" in capsys.readouterr().err
    new[20, 3, 4] = 0
    np.save("new.npy", new)
    assert dpca("transform", "r", "new.npy", "--out", "s.zarr") == 0
    run_again = ("--overwrite", "--set", "preprocess.missing=mean", "--set", "preprocess.center=false")
    assert dpca("run", "c.yaml", *run_again) == 0
    assert dpca("transform", "r", "new.npy", "--out", "t.zarr") == 2
    assert "a fit without centring keeps no means that could" in capsys.readouterr().err


@pytest.mark.long
def test_components_that_are_stored_in_large_chunks_are_planned_for():
    x = np.random.default_rng(0).normal(size=(200, 60_000))
    run(x, "model.n_components=150", chunks=(200, 5000))
    zarr.create_array("new.zarr", data=np.ones((600, 60_000), "u1"), chunks=(300, 500))
    for arguments in (("transform", "r", "new.zarr"), ("reconstruct", "r", "--samples", "0:20")):
        done = dpca_process(*arguments, "--out", "out.zarr", "--memory", "450MiB", "--workers", "1", "--overwrite")
        assert done.returncode == 0, done.stderr


def test_new_samples_without_any_value_are_named(config, capsys):
    assert dpca("run", config, "--set", "preprocess.missing=mean") == 0
    new = X.copy()
    new[3], new[5, 0] = np.nan, np.nan
    np.save("new.npy", new)
    capsys.readouterr()
    assert dpca("transform", "out/r", "new.npy", "--out", "s.zarr") == 0
    said = capsys.readouterr().err
    assert "note: sample 3: no value of a feature that the fit kept, and NaN in the result" in said
    assert (
        "note: 30 missing values of 1 new sample, most of sample 5 (30), counted as what the fit expects there" in said
    )
    scores = zarr.open_array("s.zarr/scores")[...]
    np.testing.assert_array_equal(np.flatnonzero(np.isnan(scores).all(axis=1)), [3])
    assert np.isfinite(np.delete(scores, 3, axis=0)).all()
    assert "all scores are 0" not in said
    np.save("new.npy", np.repeat(open_result("out/r").arrays["mean"][...][None], 2, axis=0))
    assert dpca("transform", "out/r", "new.npy", "--out", "m.zarr") == 0
    said = capsys.readouterr().err
    assert "samples 0, 1: all scores are 0, since they have no value other than the fit's mean" in said
    np.save("none.npy", X[:0])
    assert dpca("transform", "out/r", "none.npy", "--out", "t.zarr") == 2
    assert "none.npy: has no samples along axis 0 of shape (0, 20, 30)" in capsys.readouterr().err
