"""What must not give wrong numbers: kept matrices, training data and kernel matrices that are not what they should be."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
import zarr

from dpca import KernelPCA
from tests.commands.calls import dpca
from tests.made import made
from tests.stores import random_array

X, NEW = random_array(0, (24, 10, 60), "f8"), random_array(1, (7, 10, 60), "f8")
MODEL = "{kind: kernel_pca, kernel: rbf, gamma: 1e-3, n_components: 4}"


def data():
    zarr.create_array("x.zarr", data=X, chunks=(8, 10, 7), dimension_names=("time", "lat", "lon"))
    zarr.create_array("new.zarr", data=NEW, chunks=(7, 5, 20), dimension_names=("time", "lat", "lon"))


@pytest.fixture(autouse=True)
def _data():
    made(data)


def run(*arguments, model=MODEL, uri="x.zarr", more="", path="r"):
    Path("c.yaml").write_text(f"input: {{uri: {uri}{more}}}\nmodel: {model}\noutput: {{path: {path}}}\n")
    return dpca("run", "c.yaml", *arguments)


def make(**how):
    """The data and a result of them, for `made`."""
    data()
    assert run(**how) == 0


def scores_of(path="r"):
    return xr.open_zarr(f"{path}/result.zarr").scores.values


@pytest.mark.parametrize(("axis", "uri"), [("0", "./x.zarr"), ("-3", "absolute"), ("time", "x.zarr")])
def test_the_same_data_by_other_names_have_the_same_gram_matrix(axis, uri):
    made(make, more=f", samples_axis: {'time' if axis == 'time' else 0}")
    uri = str(Path("x.zarr").absolute()) if uri == "absolute" else uri
    assert run("--from-gram", "r", uri=uri, more=f", samples_axis: {axis}", path="r2") == 0
    np.testing.assert_array_equal(scores_of("r2"), scores_of())


def test_a_gram_matrix_of_data_that_changed_is_refused(capsys):
    made(make)
    zarr.open_array("x.zarr", mode="r+")[0, 0, 0] = 9.0
    assert run("--from-gram", "r", path="r2") == 2
    assert (
        "x.zarr: changed since r was made of it: sizes or times of its chunk files are others"
        in capsys.readouterr().err
    )
    assert not Path("r2").exists()


def test_a_gram_matrix_of_samples_along_another_axis_is_refused(capsys):
    np.save("square.npy", random_array(2, (12, 12), "f8"))
    assert run(uri="square.npy") == 0
    assert run("--from-gram", "r", uri="square.npy", more=", samples_axis: 1", path="r2") == 2
    assert "input.samples_axis: 0, now 1" in capsys.readouterr().err


def test_a_kept_gram_matrix_without_its_chunks_is_refused(capsys):
    made(make)
    for name in ("gram_mean_product", "gram"):
        shutil.rmtree(f"r/result.zarr/{name}/c")
        assert run("--from-gram", "r", path="r2") == 2
        assert f"r: {name}/c" in (error := capsys.readouterr().err)
        assert "is gone" in error


def test_a_result_without_its_certificate_says_so(capsys):
    made(make)
    Path("r/certificate.json").unlink()
    assert dpca("transform", "r", "new.zarr", "--out", "s.zarr") == 2
    assert "r: its certificate.json is gone or damaged" in capsys.readouterr().err


def test_no_password_is_printed(capsys):
    made(make)
    assert run("--from-gram", "r", uri="https://user:SECRET@example.com/y.zarr", path="r2") == 2
    assert "SECRET" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("task", "command"), [("cross_span", ("transform", "r", "new.zarr")), ("preimage_span", ("reconstruct", "r"))]
)
def test_training_data_that_change_while_they_are_read(task, command, monkeypatch, capsys):
    made(make, model=MODEL.replace("}", ", fit_inverse_transform: true}"))
    original = getattr(__import__("dpca.methods.training", fromlist=[task]), task)

    def changing(*arguments):
        zarr.open_array("x.zarr", mode="r+")[0, 0, 0] = np.random.default_rng().normal()
        return original(*arguments)

    monkeypatch.setattr(f"dpca.methods.training.{task}", changing)
    assert dpca(*command, "--out", "s.zarr") == 2
    assert "x.zarr: changed while it was read: region" in capsys.readouterr().err
    assert not Path("s.zarr").exists()


@pytest.mark.parametrize("out", ["x.zarr", "x.zarr/scores"])
def test_training_data_are_not_written_to(out, capsys):
    made(make)
    assert dpca("transform", "r", "new.zarr", "--out", out, "--overwrite") == 2
    assert "which is read" in capsys.readouterr().err
    np.testing.assert_array_equal(zarr.open_array("x.zarr", mode="r")[...], X)


def test_new_samples_too_large_for_single_precision_are_multiplied_in_double():
    x = random_array(0, (20, 500), "f4") + np.float32(300)
    new = np.concatenate([x[:3], x[3:6]])
    new[1, 7] = 9.96921e36
    fit = KernelPCA(3, kernel="rbf", gamma=1e-3).fit(x)
    scores = fit.transform(new)
    alone = fit.transform(new[[0, 2, 3, 4, 5]])
    np.testing.assert_allclose(scores[[0, 2, 3, 4, 5]], alone, atol=1e-4)
    far = fit.transform(np.full((1, 500), 1e6, "f4"))  # so is any sample that is far from all
    np.testing.assert_allclose(scores[[1]], far, atol=1e-6)


@pytest.mark.parametrize("axis", [0, 1])
def test_a_kernel_matrix_lies_either_way(axis):
    flat = X.reshape(24, -1)
    gram, cross = flat @ flat.T, NEW.reshape(7, -1) @ flat.T
    np.save("k.npy", gram)
    np.save("c.npy", cross if axis == 0 else cross.T)
    model = "{kind: kernel_pca, kernel: precomputed, n_components: 4}"
    assert run(model=model, uri="k.npy", more=f", samples_axis: {axis}") == 0
    assert dpca("transform", "r", "c.npy", "--out", "s.zarr") == 0
    found = zarr.open_array("s.zarr/scores", mode="r")[...]
    np.testing.assert_allclose(found, KernelPCA(4).fit(X).transform(NEW), atol=1e-8)
    assert dpca("transform", "r", "c.npy", "--out", "s.zarr", "--overwrite", "--training", "x.zarr") == 2


def test_a_kernel_matrix_that_is_negative_has_no_component():
    flat = X.reshape(24, -1)
    np.save("k.npy", -flat @ flat.T)
    assert run(model="{kind: kernel_pca, kernel: precomputed, n_components: 4}", uri="k.npy") == 0
    certificate = json.loads(Path("r/certificate.json").read_text())
    assert certificate["rank"] == certificate["reliable_components"] == 0
    assert certificate["case"]["negative_eigenvalues"] == 23
    assert certificate["case"]["most_negative"] == -1
    assert not scores_of().any()


def test_a_kernel_matrix_is_as_exact_as_it_is_stored():
    x = random_array(0, (40, 5), "f8")
    np.save("k.npy", (x @ x.T).astype("f4"))
    assert run(model="{kind: kernel_pca, kernel: precomputed, n_components: rank}", uri="k.npy") == 0
    assert scores_of().shape == (40, 5)


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ("coef0: .nan", "c.yaml:2:34: model.coef0 is nan, but a number or a list of them is allowed"),
        ("coef0: .inf", "model.coef0 is inf, but a number or a list of them is allowed"),
        ("gamma: [1, .inf]", "but a number from 0, median, null or a list of them is allowed"),
        ("alpha: .inf", "model.alpha is inf, but a finite number is allowed"),
    ],
)
def test_numbers_that_are_none(keys, sentence, capsys):
    assert run(model=f"{{kind: kernel_pca, {keys}}}") == 2
    assert sentence in capsys.readouterr().err


def test_fixed_point_needs_the_gram_matrix(capsys):
    model = MODEL.replace("}", ", fit_inverse_transform: fixed_point}")
    assert run("--set", "output.gram=false", model=model) == 2
    assert "needs the Gram matrix, but output.gram is false" in capsys.readouterr().err


def test_dimensions_that_are_called_like_results():
    zarr.create_array("y.zarr", data=X, chunks=(24, 10, 7), dimension_names=("time", "gamma", "kernel"))
    zarr.create_group("g.zarr")
    assert run(uri="y.zarr", model="{kind: kernel_pca, kernel: [rbf], gamma: 1e-3, n_components: 4}") == 0
    result = xr.open_zarr("r/result.zarr")
    assert result["mean"].dims == ("feature_gamma", "feature_kernel")
    assert float(result.gamma[0]) == 1e-3


def test_samples_that_are_alike_cost_no_other_kernel(capsys):
    zarr.create_array("same.zarr", data=np.repeat(random_array(0, (2, 40), "f8"), [11, 1], axis=0), chunks=(12, 40))
    assert (
        run(uri="same.zarr", model="{kind: kernel_pca, kernel: [linear, rbf], gamma: [median, 0.1], n_components: 1}")
        == 0
    )
    captured = capsys.readouterr()
    assert "the median of the squared distances between samples is 0" in captured.err
    assert np.isfinite(scores_of()).all(axis=(1, 2)).tolist() == [True, False, True]
    zarr.create_array("constant.zarr", data=np.ones((12, 40)), chunks=(12, 40))
    assert run(uri="constant.zarr", model="{kind: kernel_pca, kernel: [rbf, cosine]}", path="r2") == 0
    assert "is constant" in capsys.readouterr().err


def test_components_beyond_a_kernels_own_are_marked():
    assert run(model="{kind: kernel_pca, kernel: [linear, rbf], gamma: 1e-3, n_components: 0.5}") == 0
    result = xr.open_zarr("r/result.zarr").load()
    own = result.n_components.values
    assert own[0] != own[1]
    fewer = int(own.argmin())
    assert np.isnan(result.projection_error[fewer, own[fewer] :]).all()
    assert not result.scores[fewer, :, own[fewer] :].any()


def test_what_init_prints_leaves_center_to_the_kind(capsys):
    assert dpca("init", "x.zarr", "--all") == 0
    text = capsys.readouterr().out
    Path("i.yaml").write_text(text.replace("kind: pca", "kind: kernel_pca").replace("kernel: linear", "kernel: poly"))
    assert dpca("run", "i.yaml", "--set", "output.path=r", "--set", "model.n_components=4") == 0
    np.testing.assert_allclose(np.abs(scores_of()), np.abs(KernelPCA(4, kernel="poly").fit_transform(X)), atol=1e-9)
