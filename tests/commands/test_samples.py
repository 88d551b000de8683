"""Chosen samples, names, labels and shapes, from a config to the result and its exports."""

import csv
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import zarr

from dpca import PCA, KernelPCA, open_gram
from dpca.errors import ConfigError
from dpca.store.results import open_result
from tests.commands.calls import dpca
from tests.made import made
from tests.resume.disturbed import in_small_slabs
from tests.stores import bits, random_array

N, DAYS = 24, 30
X = random_array(0, (N, 20, 30), "f8")


TIME = np.datetime64("2001-01-15", "ns") + np.arange(N) * np.timedelta64(DAYS, "D")


def write():
    import xarray

    field = xarray.DataArray(
        np.moveaxis(X, 0, 1), {"time": TIME, "lat": np.linspace(-60, 60, 20)}, ("lat", "time", "lon"), "sst"
    )
    field.to_dataset().to_zarr("x.zarr", encoding={"sst": {"chunks": (7, 5, 30)}}, zarr_format=3, consolidated=False)


@pytest.fixture
def months():
    """A field as xarray writes it: months along an axis that is not the first, in chunks of five."""
    pytest.importorskip("xarray")
    made(write)
    return [str(moment) for moment in TIME.astype("M8[D]")]


def config(keys, **others):
    sections = {"model": "{n_components: 3}", "output": "{path: r}", **others}
    text = f"input: {{uri: x.zarr, array: sst, samples_axis: time, {keys}}}\n"
    Path("c.yaml").write_text(text + "".join(f"{name}: {value}\n" for name, value in sections.items()))
    return "c.yaml"


def of_a_copy(chosen):
    """The same, of a stored copy of these samples in the same chunks of features."""
    group = zarr.create_group("copy.zarr", overwrite=True)
    kept = np.moveaxis(X[chosen], 0, 1)
    group.create_array("sst", data=kept, chunks=(7, 5, 30), dimension_names=("lat", "time", "lon"))
    assert dpca("run", config("", output="{path: copy}"), "--set", "input.uri=copy.zarr") == 0
    return open_result("copy")


def values_of(result, *names):
    return {name: np.asarray(result.arrays[name][...]).tobytes() for name in names}


ALL = ("scores", "components", "mean", "gram", "eigenvalues")


def test_a_run_of_samples_chosen_by_their_time_is_that_of_a_stored_copy(months, capsys):
    chosen = [20, 3, 4, 5, 11, 0]
    assert dpca("run", config(f"samples: {[months[number] for number in chosen]}".replace("'", ""))) == 0
    assert "6 of 24 samples, 600 features" in capsys.readouterr().out
    result = open_result("r")
    assert values_of(result, *ALL) == values_of(of_a_copy(chosen), *ALL)
    assert result.manifest["input"]["n_stored"] == N
    assert dpca("export", "r", "--to", "csv") == 0
    rows = list(csv.reader(Path("r-scores.csv").read_text().splitlines()))
    assert [row[0] for row in rows[1:]] == [months[number] for number in chosen]
    xarray = sys.modules["xarray"]
    with xarray.open_zarr("r/result.zarr") as found:
        assert [str(moment)[:10] for moment in found.time.values] == [months[number] for number in chosen]


def test_the_plan_and_what_is_printed_of_a_file_count_the_chosen(months, capsys):
    assert dpca("plan", config("samples: {stop: 20, step: 2}"), "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["n_samples"], document["n_stored"]) == (10, N)
    assert dpca("plan", "c.yaml") == 0
    assert "10 of 24 samples, 600 features" in capsys.readouterr().out
    Path("i.yaml").write_text("uri: x.zarr\narray: sst\nsamples_axis: time\nsamples: [1, 2, 3]\n")
    assert dpca("inspect", "i.yaml") == 0
    assert "axis 1: 3 of 24 samples of 600 features" in capsys.readouterr().out
    assert dpca("init", "i.yaml") == 0
    Path("made.yaml").write_text(capsys.readouterr().out)
    assert dpca("run", "made.yaml", "--set", "output.path=made", "--set", "model.n_components=2") == 0
    assert open_result("made").n_samples == 3


def test_a_job_array_and_a_resumed_run_choose_the_same_samples(months, monkeypatch):
    in_small_slabs(monkeypatch)
    np.save("chosen.npy", np.array([5, 2, 19, 7]))
    assert dpca("run", config("samples: chosen.npy"), "--set", "output.path=expected") == 0
    assert dpca("batch", "init", "c.yaml", "--partitions", "2") == 0
    for _ in range(4):
        for index in range(2):
            dpca("batch", "partition", "r", "--index", index)
        if dpca("batch", "finalize", "r") == 0 and Path("r/manifest.json").exists():
            break
    assert bits("r") == bits("expected")
    assert dpca("run", "c.yaml", "--resume") == 0  # it has ended
    assert dpca("run", config("samples: [5, 2, 19, 7]"), "--resume") == 0  # the same ones, told otherwise


def test_a_run_does_not_resume_with_other_samples(months, capsys):
    assert dpca("run", config("samples: [1, 2, 3]")) == 0
    capsys.readouterr()
    assert dpca("run", config("samples: [1, 3, 2]"), "--resume") != 0
    assert "another config or input: samples.sha256" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ("samples: [1]", "c.yaml:1:63: x.zarr:sst: input.samples chooses 1 of 24 samples, but PCA needs at least 2"),
        ("samples: [1.5]", "input.samples is [1.5], but a list of numbers and labels"),
        ("samples: {start: 1, stopp: 4}", "unknown key input.samples.stopp"),
        (
            "samples: ['2001-01-16']",
            "c.yaml:1:63: input.samples has '2001-01-16', but no sample of x.zarr:sst is called so",
        ),
        ("feature_shape: [600]", "input.feature_shape is [600], but a list of two integers or more"),
        ("feature_shape: [20, 30]", "only one axis of features can be given a shape"),
        ("sample_names: n.txt", "Write sample_names: {uri: PATH}."),
    ],
)
def test_configs_that_can_not_be(months, keys, sentence, capsys):
    assert dpca("run", config(keys)) == 2
    assert sentence in capsys.readouterr().err


def test_a_kernel_matrix_has_no_samples_to_choose(capsys):
    zarr.create_array("x.zarr", data=X[:, 0, :] @ X[:, 0, :].T)
    text = "input: {uri: x.zarr, samples: [1, 2]}\nmodel: {kind: kernel_pca, kernel: precomputed}\noutput: {path: r}\n"
    Path("c.yaml").write_text(text)
    assert dpca("run", "c.yaml") == 2
    assert "c.yaml:1:31: input.samples is set, but the input is a kernel matrix" in capsys.readouterr().err


def test_new_samples_are_chosen_in_a_yaml_file(months):
    assert dpca("run", config("samples: {stop: 10}")) == 0
    Path("new.yaml").write_text(f"uri: x.zarr\narray: sst\nsamples_axis: time\nsamples: [{months[3]}, 17]\n")
    assert dpca("transform", "r", "new.yaml", "--out", "new.zarr") == 0
    flat = X.reshape(N, -1)
    expected = PCA(3).fit(flat[:10]).transform(flat[[3, 17]])
    np.testing.assert_allclose(np.abs(zarr.open("new.zarr/scores")[...]), np.abs(expected), rtol=1e-9)
    assert dpca("transform", "r", "x.zarr", "--out", "all.zarr") == 0  # a path alone is of all samples
    assert zarr.open("all.zarr/scores").shape == (N, 3)


def test_a_kernel_finds_its_chosen_training_samples_again(months):
    assert (
        dpca("run", config("samples: [9, 1, 4, 2, 3]", model="{kind: kernel_pca, kernel: rbf, n_components: 2}")) == 0
    )
    Path("x.zarr").rename("moved.zarr")
    assert dpca("transform", "r", "moved.zarr", "--out", "new.zarr", "--training", "moved.zarr") == 0
    flat = X.reshape(N, -1)
    expected = KernelPCA(2, kernel="rbf").fit(flat[[9, 1, 4, 2, 3]]).transform(flat)
    np.testing.assert_allclose(zarr.open("new.zarr/scores")[...], expected, rtol=1e-9, atol=1e-12)


def test_labels_and_names_go_into_the_result_and_its_exports(capsys):
    np.save("x.npy", X.reshape(N, -1))
    people = [f"p{number}" for number in range(N)]
    Path("people.csv").write_text("id,age\n" + "".join(f"{name},{50 + i}\n" for i, name in enumerate(people)))
    rows = [f"{name}\tcase, {i % 3}\n" for i, name in enumerate(people)]
    Path("diagnoses.tsv").write_text("who\tdiagnosis\n" + "".join(reversed(rows)))
    Path("features.txt").write_text("\n".join(f"f{number}" for number in range(600)))
    Path("c.yaml").write_text(
        "input:\n  uri: x.npy\n  samples: [p7, p3, p4, 20]\n  sample_names: {uri: people.csv, column: id}\n"
        "  feature_names: {uri: features.txt}\n"
        "model: {n_components: 2, labels: {uri: diagnoses.tsv, column: diagnosis, key: who}}\noutput: {path: r}\n"
    )
    assert dpca("run", "c.yaml") == 0
    result, labels, names = open_result("r"), ["case, 1", "case, 0", "case, 1", "case, 2"], ["p7", "p3", "p4", "p20"]
    assert result.labels.tolist() == labels
    assert result.arrays["labels"].dims == ("sample",)
    assert result.coordinate("sample").values[...].tolist() == names
    assert result.coordinate("feature").values[...].tolist()[-1] == "f599"
    for to in ("netcdf", "hdf5", "csv", "npz", "anndata"):
        assert dpca("export", "r", "--to", to) == 0
    assert [row[:2] for row in csv.reader(Path("r-scores.csv").read_text().splitlines())] == [
        ["sample", "label"],
        *map(list, zip(names, labels, strict=True)),
    ]
    assert np.load("r.npz")["labels"].tolist() == labels
    h5py = sys.modules["h5py"]
    with h5py.File("r.h5") as file:
        assert file["labels"].asstr()[...].tolist() == labels
    xarray, anndata = pytest.importorskip("xarray"), pytest.importorskip("anndata")
    with xarray.open_dataset("r.nc", engine="h5netcdf") as found:
        assert found.labels.values.tolist() == labels
    table = anndata.read_h5ad("r.h5ad")
    assert table.obs["label"].tolist() == labels
    assert table.obs_names.tolist() == names
    assert table.var_names[0] == "f0"


def test_other_kernels_of_a_kept_matrix_have_the_labels_of_its_samples():
    np.save("x.npy", X.reshape(N, -1))
    np.save("l.npy", np.arange(N))
    text = "input: {uri: x.npy, samples: [9, 1, 4, 2, 3]}\noutput: {path: r}\nmodel: "
    Path("c.yaml").write_text(text + "{kind: kernel_pca, kernel: rbf, n_components: 2, labels: {uri: l.npy}}\n")
    assert dpca("run", "c.yaml") == 0
    Path("d.yaml").write_text(Path("c.yaml").read_text().replace("rbf", "linear").replace("path: r", "path: s"))
    assert dpca("run", "d.yaml", "--from-gram", "r") == 0
    assert open_result("s").labels.tolist() == [9, 1, 4, 2, 3]
    assert open_result("s").coordinate("sample").values[...].tolist() == [9, 1, 4, 2, 3]
    assert dpca("run", "d.yaml", "--from-gram", "r", "--overwrite", "--set", "input.samples=[9, 1]") == 2


def test_a_duplicated_name_is_a_note(capsys):
    np.save("x.npy", X.reshape(N, -1))
    Path("names.txt").write_text("a\nb\n" * (N // 2))
    Path("c.yaml").write_text("input: {uri: x.npy, sample_names: {uri: names.txt}}\noutput: {path: r}\n")
    assert dpca("run", "c.yaml") == 0
    assert "note: input.sample_names: 'a', 'b' name more than one sample" in capsys.readouterr().err


@pytest.mark.parametrize("tall", [False, True])
def test_flattened_faces_have_their_shape_again(shared_data, tall, monkeypatch):
    faces = np.load(shared_data("orl-faces") / "faces_400x10304_u8.npy")
    zarr.create_array("x.zarr", data=faces.T if tall else faces, chunks=(1000, 400) if tall else (400, 1000))
    zarr.create_array("images.zarr", data=faces.reshape(400, 112, 92), chunks=(400, 4, 92))
    axis = int(tall)
    text = f"input: {{uri: x.zarr, samples_axis: {axis}, feature_shape: [112, 92], samples: {{step: 4}}}}\n"
    Path("c.yaml").write_text(text + "model: {n_components: 5}\noutput: {path: r}\n")
    assert dpca("run", "c.yaml") == 0
    Path("d.yaml").write_text(
        "input: {uri: images.zarr, samples: {step: 4}}\nmodel: {n_components: 5}\noutput: {path: s}\n"
    )
    assert dpca("run", "d.yaml") == 0
    found, expected = open_result("r"), open_result("s")
    assert found.arrays["components"].dims == ("component", "feature_0", "feature_1")
    for name in ("scores", "components", "mean"):
        got, right = (np.asarray(result.arrays[name][...]) for result in (found, expected))
        np.testing.assert_allclose(got, right, atol=1e-5 * np.abs(right).max())
    assert dpca("transform", "r", "x.zarr", "--out", "new.zarr") == 0
    scores = zarr.open("new.zarr/scores")[...]
    np.testing.assert_allclose(scores[::4], found.arrays["scores"][...], atol=1e-4 * np.abs(scores).max())
    assert dpca("reconstruct", "r", "--out", "back.zarr", "--samples", "0:2") == 0
    assert zarr.open("back.zarr/reconstruction").shape == ((112, 92, 2) if tall else (2, 112, 92))


MONTHS = np.arange("2000-01", "2001-01", dtype="M8[M]")
MIDDLES = [f"{month}-16T12:00:00" for month in MONTHS.astype(str)]
AXES = {
    "dates of a file": (np.array(MIDDLES, "M8[ns]"), {"2000-02": [1], "2000-02-16 12:00": [1], "2000-02-17": []}),
    "dates of names": (np.array(MIDDLES), {"2000-02": [1], "2000-02-16T12": [1], "2000-02-17": []}),
    "months of names": (MONTHS.astype(str), {"2000-02": [1], "2000-03-01": []}),
    "names": (np.array([f"s-{n:02}" for n in range(12)]), {"s-01": [1], "s": []}),
    "numbers in tenths": (0.1 * np.arange(12), {"0.30000000000000004": [3], "0.3": [], "0.2": [2]}),
    "numbers in single precision": (0.1 * np.arange(12, dtype="f4"), {"0.3": [3], "0.2": [2]}),
    "integers": (np.arange(12) + 19_990_000, {"19990003": [3], "19990003.0": [3], "3": []}),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", AXES)
def test_a_label_means_the_same_samples_in_every_command(kind):
    """In input.samples, in a notebook, in a config of derive, in the column of a table, and of a reconstruction."""
    xarray = pytest.importorskip("xarray")
    values, labels = AXES[kind]
    data = xarray.DataArray(X[:12, 0], {"t": values}, ("t", "lon"), "x")
    data.to_dataset().to_zarr("x.zarr", consolidated=False)
    own = "{uri: x.zarr, array: x, samples_axis: t%s}"
    sections = "model: {n_components: 2}\noutput: {path: r, report: false}\n"
    Path("c.yaml").write_text(f"input: {own % ''}\n{sections}")
    assert dpca("run", "c.yaml") == 0
    gram = open_gram("r")
    for label, rows in labels.items():
        code = 0 if rows else 2
        assert (
            dpca("run", "c.yaml", "--overwrite", "--set", "output.path=one", "--set", f"input.samples=['{label}', 5]")
            == code
        )
        if rows:
            np.testing.assert_allclose(
                open_result("one").arrays["mean"][...], X[[rows[0], 5], 0].mean(axis=0), rtol=1e-12
            )
        try:
            found = gram.sel(t=[label])._rows.origin.tolist()
        except ConfigError:
            found = []
        assert found == rows, label
        select = f"analyses: [{{name: a, samples: [{{select: {{samples: ['{label}', 5, 7]}}}}], model: {{kind: pca}}}}]"
        Path("d.yaml").write_text(f"from: r\n{select}\ncomponents: false\noutput: {{path: d, report: false}}\n")
        assert dpca("derive", "d.yaml", "--overwrite") == (0 if rows else 2)
        if label.isdigit():  # which is a number from 0
            continue
        assert dpca("reconstruct", "r", "--samples", f"{label},5", "--out", "back", "--overwrite") == code
        if rows:
            assert dpca("reconstruct", "r", "--samples", f"{rows[0]},5", "--out", "by", "--overwrite") == 0
            back, by = (np.asarray(zarr.open_group(one)["reconstruction"]) for one in ("back", "by"))
            np.testing.assert_array_equal(back, by)
    names = [str(one) for one in (gram._rows.axis.names)]
    short = {name[:7] if kind.startswith("dates") else name: number for number, name in enumerate(names)}
    lines = [f"{name},{number}" for name, number in reversed(list(short.items()))]
    Path("t.csv").write_text("\n".join(["month,flag", *lines]) + "\n")
    table = "{uri: t.csv, column: flag, key: month}"
    assert dpca("run", "c.yaml", "--set", "output.path=l", "--set", f"model.labels={table}") == 0
    assert open_result("l").labels.tolist() == [str(number) for number in range(12)]


def test_names_of_samples_may_be_dates_of_several_files(capsys):
    """As the dates of an array that has none itself: with their units and calendar, in the units of the first file."""
    xarray = pytest.importorskip("xarray")
    times = xarray.date_range("2000-01-16", periods=12, freq="MS", calendar="noleap", use_cftime=True)
    for number, units in enumerate(["days since 1990-01-01", "hours since 1980-01-01"]):
        part = xarray.DataArray(times[6 * number : 6 * number + 6], dims="when")
        part.encoding = {"units": units}
        part.to_dataset(name="time_centered").to_netcdf(f"{number}.nc", engine="h5netcdf")
    np.save("x.npy", X[:12, 0])
    names = "{uri: [0.nc, 1.nc], array: time_centered}"
    Path("c.yaml").write_text(
        f"input: {{uri: x.npy, samples: ['2000-02', '2000-09', '2000-05'], sample_names: {names}}}\n"
        "model: {n_components: 1}\npreprocess: {regress_out: {trend: 1}}\noutput: {path: r, report: false}\n"
    )
    assert dpca("run", "c.yaml") == 0, capsys.readouterr().err
    found = xarray.open_zarr("r/result.zarr", consolidated=False)["sample"]
    assert found.values.tolist() == [times[0], times[7], times[3]]
    for wrong, problem in (("[0.nc]", "there are 12 samples"), ("[0.nc, 0.nc, 1.nc]", "there are 12 samples")):
        assert dpca("run", "c.yaml", "--set", f"input.sample_names.uri={wrong}", "--set", "output.path=s") == 2
        assert problem in capsys.readouterr().err


def test_a_feature_axis_of_a_name_of_dpca_keeps_it_and_its_coordinate(capsys):
    xarray = pytest.importorskip("xarray")
    names = {"component": ["u", "v", "w"], "sample": [0.5, 1.5, 2.5, 3.5], "group": ["a", "b", "c", "d", "e"]}
    x = random_array(0, (6, 3, 4, 5), "f8")
    data = xarray.DataArray(x, {"time": np.arange(6), **names}, ("time", *names), "x")
    data.to_dataset().to_zarr("x.zarr", consolidated=False)
    Path("c.yaml").write_text(
        "input: {uri: x.zarr, array: x, samples_axis: time}\nmodel: {n_components: 2}\noutput: {path: r, report: false}\n"
    )
    assert dpca("run", "c.yaml") == 0
    found = xarray.open_zarr("r/result.zarr", consolidated=False)["components"]
    assert found.dims == ("component", "feature_component", "feature_sample", "feature_group")
    for name, values in names.items():
        assert found[f"feature_{name}"].values.tolist() == values
    assert dpca("transform", "r", "x.zarr", "--out", "s") == 0
    data.isel(group=slice(None, None, -1)).to_dataset().to_zarr("y.zarr", consolidated=False)
    assert dpca("transform", "r", "y.zarr", "--out", "t") == 2
    assert "feature_group" in capsys.readouterr().err
    fitted = PCA(2, samples_axis="time").fit(data)
    assert fitted.inverse_transform(fitted.transform(data)).dims == data.dims
