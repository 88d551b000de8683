"""Kernel PCA from the command line: sweeps, kept Gram matrices, new samples, pre-images, and what can be wrong."""

import json
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray as xr
import zarr

from dpca import KernelPCA
from tests.commands.calls import dpca
from tests.made import made
from tests.stores import random_array

X = random_array(0, (24, 10, 60), "f8")
NEW = random_array(1, (7, 10, 60), "f8")
LABELS = np.arange(24) % 3

SWEEP = """
input: {uri: x.zarr}
model:
  kind: kernel_pca
  kernel: [linear, rbf, poly, sigmoid, cosine]
  gamma: [1e-4, 1e-3, median]
  degree: [2, 3]
  n_components: 4
  labels: {uri: labels.npy}
output: {path: r}
"""
PCA = "input: {uri: x.zarr}\noutput: {path: r}\n"
ONE = """
input: {uri: x.zarr}
model: {kind: kernel_pca, kernel: rbf, gamma: 1e-3, n_components: 4, fit_inverse_transform: true, alpha: 0.1}
output: {path: r}
"""


def data():
    zarr.create_array("x.zarr", data=X, chunks=(8, 10, 7), dimension_names=("time", "lat", "lon"))
    zarr.create_array("new.zarr", data=NEW, chunks=(7, 5, 20), dimension_names=("time", "lat", "lon"))
    np.save("labels.npy", LABELS)


@pytest.fixture(autouse=True)
def _data():
    made(data)


def run(text, *arguments):
    Path("c.yaml").write_text(text)
    return dpca("run", "c.yaml", *arguments)


def make(text, *arguments):
    """The data and a result of them, for `made`."""
    data()
    assert run(text, *arguments) == 0


def loaded(path="r"):
    return xr.open_zarr(f"{path}/result.zarr").load()


def test_a_sweep_is_every_kernel_of_one_gram_matrix(capsys):
    assert run(SWEEP) == 0
    result = loaded()
    assert result.scores.dims == ("kernel_case", "time", "component")
    assert {"kernel", "gamma", "degree", "coef0"} <= set(result.coords)
    assert list(result.kernel.values) == ["linear"] + ["rbf"] * 3 + ["poly"] * 6 + ["sigmoid"] * 3 + ["cosine"]
    flat = X.reshape(24, -1)
    distances = ((flat[:, None] - flat) ** 2).sum(-1)[np.triu_indices(24, 1)]
    assert float(result.gamma[3]) == pytest.approx(1 / np.median(distances))
    for case in result.kernel_case.values if "kernel_case" in result.coords else range(14):
        of_case = result.isel(kernel_case=case)
        keys = {
            name: float(of_case[name]) for name in ("gamma", "degree", "coef0") if np.isfinite(float(of_case[name]))
        }
        alone = KernelPCA(4, kernel=str(of_case.kernel.values), **keys)
        scores = alone.fit_transform(X)
        np.testing.assert_allclose(of_case.scores, scores, atol=1e-8 * np.abs(scores).max())
        np.testing.assert_allclose(of_case.eigenvalues[:4], alone.eigenvalues_, rtol=1e-9)
        np.testing.assert_allclose(of_case.variance_captured, alone.explained_variance_ratio_.sum(), rtol=1e-9)
        near = ((scores[:, None] - scores) ** 2).sum(-1) + np.diag(np.full(24, np.inf))
        right = (LABELS[near.argmin(1)] == LABELS).mean()
        assert float(of_case.neighbour_accuracy) == pytest.approx(right)
        spectrum = of_case.eigenvalues.values / of_case.eigenvalues.values.sum()
        assert float(of_case.components_95) == 1 + np.flatnonzero(np.cumsum(spectrum) >= 0.95)[0]
        positive = spectrum[spectrum > 0]
        assert float(of_case.effective_rank) == pytest.approx(np.exp(-(positive * np.log(positive)).sum()))
    printed = capsys.readouterr().out
    assert "case  kernel        gamma  degree   coef0  captured  for 95 %  effective rank  neighbours" in printed
    assert "14 of 14 kernels, from one Gram matrix" in printed
    assert "24 samples, 600 features, 1 read of the data," in printed
    manifest = json.loads(Path("r/manifest.json").read_text())
    assert manifest["counts"]["bytes_decoded"] == X.nbytes


@pytest.mark.parametrize("first", ["kernel_pca", "pca"])
def test_a_kept_gram_matrix_serves_without_the_data(first):
    """Which need not be there any more."""
    made(make, ONE if first == "kernel_pca" else PCA)
    made(make, SWEEP.replace("path: r", "path: direct"))
    shutil.rmtree("x.zarr")
    assert run(SWEEP.replace("path: r", "path: later"), "--from-gram", "r") == 0
    direct, later = loaded("direct"), loaded("later")
    for name in direct.data_vars:
        np.testing.assert_array_equal(direct[name], later[name], err_msg=name)
    manifest = json.loads(Path("later/manifest.json").read_text())
    assert manifest["counts"]["passes"] == manifest["counts"]["bytes_decoded"] == 0
    assert manifest["gram_from"] == "r"
    if first == "pca":  # and the matrix that was kept again serves as well
        assert run(SWEEP.replace("path: r", "path: last"), "--from-gram", "later") == 0
        np.testing.assert_array_equal(loaded("last").scores, later.scores)


def test_a_kept_gram_matrix_has_the_digits_that_its_products_had(capsys):
    """Whatever is asked for now; and its sketch is kept beside it, so that they are known."""
    zarr.create_array("x.zarr", data=X.astype("f4"), chunks=(8, 10, 7), overwrite=True)
    first = "input: {uri: x.zarr}\nmodel: {n_components: 4, precision: single}\noutput: {path: r, components: false}\n"
    assert run(first) == 0
    linear = "input: {uri: x.zarr}\nmodel: {kind: kernel_pca, n_components: 4}\noutput: {path: k}\n"
    assert run(linear, "--from-gram", "r", "--set", "model.precision=double") == 0
    assert (
        "model.precision is double, but the Gram matrix that r keeps is of products in single precision"
        in capsys.readouterr().err
    )
    certificates = [json.loads(Path(f"{path}/certificate.json").read_text()) for path in ("r", "k")]
    kept, later = ([component["digits"] for component in found["components"]] for found in certificates)
    np.testing.assert_allclose(later, kept, atol=0.15)
    assert max(later) < 9
    manifest = json.loads(Path("r/manifest.json").read_text())
    del manifest["arrays"]["gram_sketch"]  # as results of earlier versions are
    Path("r/manifest.json").write_text(json.dumps(manifest))
    assert run(linear.replace("path: k", "path: old"), "--from-gram", "r") == 0
    (old,) = {min(c["digits"] for c in json.loads(Path("old/certificate.json").read_text())["components"])}
    assert old < min(later)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("preprocess: {scale: std}", 'preprocess.scale: "none", now "std"'),
        ("input: {uri: y.zarr}", 'input.uri: "x.zarr", now "y.zarr"'),
        ("model: {kind: pca}", "--from-gram is for kernels of a Gram matrix, but model.kind is pca"),
    ],
)
def test_a_gram_matrix_of_other_values_is_refused(change, sentence, capsys):
    made(make, ONE)
    key, _, value = change.partition(": ")
    given = {"input": "{uri: x.zarr}", "model": "{kind: kernel_pca}", "output": "{path: r2}", key: value}
    assert run("".join(f"{name}: {text}\n" for name, text in given.items()), "--from-gram", "r") == 2
    assert sentence in capsys.readouterr().err
    assert not Path("r2").exists()


def test_a_result_without_a_gram_matrix(capsys):
    assert run(ONE, "--set", "output.gram=false") == 0
    assert run(SWEEP.replace("path: r", "path: r2"), "--from-gram", "r") == 2
    assert "r: keeps no Gram matrix" in capsys.readouterr().err


def test_new_samples_and_pre_images():
    made(make, ONE)
    assert dpca("transform", "r", "new.zarr", "--out", "scores.zarr") == 0
    fit = KernelPCA(4, kernel="rbf", gamma=1e-3, fit_inverse_transform=True, alpha=0.1).fit(X)
    scores = zarr.open_array("scores.zarr/scores", mode="r")[...]
    np.testing.assert_allclose(scores, fit.transform(NEW), atol=1e-12)
    assert dpca("transform", "r", "x.zarr", "--out", "again.zarr") == 0
    np.testing.assert_allclose(zarr.open_array("again.zarr/scores", mode="r")[...], loaded().scores, atol=1e-12)
    assert dpca("reconstruct", "r", "--out", "back.zarr", "--samples", "3:9,1") == 0
    back = xr.open_zarr("back.zarr").reconstruction
    assert back.dims == ("time", "lat", "lon")
    chosen = fit.eigenvectors_[[3, 4, 5, 6, 7, 8, 1]] * np.sqrt(fit.eigenvalues_)
    np.testing.assert_allclose(back, fit.inverse_transform(chosen), atol=1e-10)
    assert json.loads(Path("r/manifest.json").read_text())["counts"]["passes"] == 1


def test_the_linear_kernel_has_pcas_reconstruction():
    assert run("input: {uri: x.zarr}\nmodel: {n_components: 5}\noutput: {path: pca}\n") == 0
    assert run("input: {uri: x.zarr}\nmodel: {kind: kernel_pca, n_components: 5}\noutput: {path: r}\n") == 0
    for result in ("pca", "r"):
        assert dpca("reconstruct", result, "--out", f"{result}.zarr", "--n-components", "3") == 0
    found, expected = (xr.open_zarr(f"{result}.zarr").reconstruction.values for result in ("r", "pca"))
    np.testing.assert_allclose(found, expected, atol=1e-10)


def test_one_kernel_of_a_sweep_is_named(capsys):
    assert run(SWEEP, "--set", "model.whiten=true") == 0
    capsys.readouterr()
    assert dpca("transform", "r", "new.zarr", "--out", "s.zarr") == 2
    assert "r: has 14 kernels, and --kernel-case says which\n  Give a number from 0 to 13" in capsys.readouterr().err
    assert dpca("transform", "r", "new.zarr", "--out", "s.zarr", "--kernel-case", "14") == 2
    assert dpca("transform", "r", "x.zarr", "--out", "s.zarr", "--kernel-case", "5") == 0
    expected = loaded().scores[5]
    np.testing.assert_allclose(zarr.open_array("s.zarr/scores", mode="r")[...], expected, atol=1e-9)


def test_training_data_that_moved_or_changed(capsys):
    made(make, ONE)
    shutil.move("x.zarr", "moved.zarr")
    assert dpca("transform", "r", "new.zarr", "--out", "s.zarr") == 2
    error = capsys.readouterr().err
    assert "r: a kernel needs its training data again, which can't be opened at x.zarr: x.zarr: does not exist" in error
    assert "say where they are now with --training" in error
    assert dpca("transform", "r", "new.zarr", "--out", "s.zarr", "--training", "moved.zarr") == 0
    zarr.open_array("moved.zarr", mode="r+")[0, 0, 0] = 9.0
    assert dpca("transform", "r", "new.zarr", "--out", "s2.zarr", "--training", "moved.zarr") == 2
    assert "moved.zarr: the training data of r changed since it was made" in capsys.readouterr().err
    assert not Path("s2.zarr").exists()
    assert dpca("reconstruct", "r", "--out", "s2.zarr", "--training", "moved.zarr") == 2


def test_pre_images_need_their_regression(capsys):
    assert run(ONE.replace("fit_inverse_transform: true", "fit_inverse_transform: false")) == 0
    assert dpca("reconstruct", "r", "--out", "back.zarr") == 2
    assert "samples of kernel rbf(gamma=0.001) can't be reconstructed" in capsys.readouterr().err


def test_a_regression_that_gives_the_mean_says_so_and_fixed_point_does_not(capsys):
    assert run(ONE.replace("gamma: 1e-3", "gamma: 1e-9")) == 0
    assert dpca("reconstruct", "r", "--out", "flat.zarr") == 0
    assert (
        "ridge regression gives the mean for each; model.fit_inverse_transform: fixed_point" in capsys.readouterr().err
    )
    text = ONE.replace("path: r", "path: r2").replace(
        "fit_inverse_transform: true", "fit_inverse_transform: fixed_point"
    )
    assert run(text.replace("n_components: 4", "n_components: 23"), "--from-gram", "r") == 0
    assert dpca("reconstruct", "r2", "--out", "back.zarr") == 0
    np.testing.assert_allclose(xr.open_zarr("back.zarr").reconstruction, X, atol=1e-7)
    assert run(text.replace("kernel: rbf", "kernel: poly"), "--overwrite") == 2
    assert "c.yaml:3:" in capsys.readouterr().err


def test_options_of_kernels_on_a_result_of_pca(capsys):
    made(make, PCA)
    assert dpca("transform", "r", "new.zarr", "--out", "s.zarr", "--kernel-case", "0") == 2
    assert "--kernel-case is for results of kernel_pca" in capsys.readouterr().err


def test_default_gamma_of_wide_data_gives_the_identity_and_says_so(capsys):
    zarr.create_array("wide.zarr", data=100 * random_array(0, (12, 5000), "f4"), chunks=(12, 500))
    assert run("input: {uri: wide.zarr}\nmodel: {kind: kernel_pca, kernel: rbf}\noutput: {path: r}\n") == 0
    error = capsys.readouterr().err
    assert "note: kernel rbf(gamma=0.0002) is the identity, or nearly" in error
    assert "model.gamma: median" in error


def test_an_indefinite_kernel_is_truncated_and_reported(capsys):
    assert run(ONE.replace("rbf, gamma: 1e-3", "sigmoid, gamma: 5e-3"), "--set", "preprocess.center=true") == 0
    certificate = json.loads(Path("r/certificate.json").read_text())
    assert certificate["case"]["negative_eigenvalues"] > 0 > certificate["case"]["most_negative"]
    assert "is not positive semidefinite:" in capsys.readouterr().err
    assert float(loaded().eigenvalues.min()) == 0


def test_a_case_without_an_answer_costs_no_other(capsys):
    text = SWEEP.replace("gamma: [1e-4, 1e-3, median]", "gamma: [1e-3, 1e200]").replace("degree: [2, 3]", "degree: 3")
    assert run(text) == 0
    captured = capsys.readouterr()
    assert "no answer, see the note" in captured.out
    assert (
        "note: kernel poly(gamma=1e+200, degree=3, coef0=1): its value overflows between samples 0 and 0"
        in captured.err
    )
    result = loaded()
    assert np.isnan(result.scores.isel(kernel_case=4)).all()
    assert np.isfinite(result.scores.isel(kernel_case=3)).all()
    assert dpca("transform", "r", "new.zarr", "--out", "s.zarr", "--kernel-case", "4") == 2
    assert "kernel case 4 has no answer" in capsys.readouterr().err
    assert run(ONE.replace("rbf, gamma: 1e-3", "poly, gamma: 1e200").replace("path: r", "path: r2")) == 2
    assert "c.yaml:3:" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["zarr", "hdf5", "npy"])
def test_a_kernel_matrix_as_input(kind, capsys):
    flat = X.reshape(24, -1)
    gram, cross = flat @ flat.T, NEW.reshape(7, -1) @ flat.T
    for name, values in (("k", gram), ("c", cross)):
        if kind == "zarr":
            zarr.create_array(f"{name}.zarr", data=values, chunks=(5, 6))
        elif kind == "hdf5":
            with h5py.File(f"{name}.hdf5", "w") as file:
                file.create_dataset("k", data=values, chunks=(5, 6), compression="gzip")
        else:
            np.save(f"{name}.npy", values)
    config = f"input: {{uri: k.{kind}}}\nmodel: {{kind: kernel_pca, kernel: precomputed}}\noutput: {{path: r}}\n"
    Path("c.yaml").write_text(config)
    assert dpca("plan", "c.yaml") == 0
    assert run(config) == 0
    expected = KernelPCA(20).fit(X)
    np.testing.assert_allclose(loaded().scores, expected.fit_transform(X), atol=1e-8)
    assert dpca("transform", "r", f"c.{kind}", "--out", "s.zarr") == 0
    np.testing.assert_allclose(zarr.open_array("s.zarr/scores", mode="r")[...], expected.transform(NEW), atol=1e-8)
    assert dpca("reconstruct", "r", "--out", "b.zarr") == 2
    assert "has no features" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ("model: {kernel: rbf}", "c.yaml:2:17: model.kernel is 'rbf', but model.kind is pca, which has no kernel"),
        ("model: {kind: kernel_pca, svd_solver: tsqr}", "kernels are of the Gram matrix"),
        ("model: {kind: kernel_pca, kernel: [rbf, precomputed]}", "precomputed says that the input is a kernel matrix"),
        (
            "model: {kind: kernel_pca, kernel: precomputed}\npreprocess: {scale: std}",
            "preprocess.scale is 'std', but the input is a kernel matrix",
        ),
        ("model: {kind: kernel_pca, n_components: mle}", "n_components is mle, a rule for noise in linear PCA"),
        ("model: {kind: kernel_pca, kernel: []}", "model.kernel is [], but linear, poly"),
        ("model: {kind: kernel_pca, labels: {uri: none.npy}}", "none.npy: labels can't be read: it does not exist"),
        (
            "model: {labels: {uri: zip.npz}}",
            "zip.npz: labels can't be read: it is no text (UTF-8), and neither Zarr nor",
        ),
        ("model: {labels: {uri: g.zarr}}", "g.zarr: which array? it holds temp, time"),
        ("model: {labels: {uri: g.zarr, array: tim}}", "g.zarr: has no array 'tim'; it holds temp, time"),
        ("model: {labels: {uri: l.h5}}", "l.h5: which array? it holds y"),
        ("model: {labels: {uri: l.h5, array: z}}", "c.yaml:2:36: l.h5: has no array 'z'; it holds y"),
        ("model: {labels: {uri: gap.txt}}", "gap.txt: line 2 is empty, so sample 1 has no label"),
        ("model: {labels: {uri: header.txt}}", "there are 24 samples (is the first line a header?)"),
        (
            "model: {kind: kernel_pca, labels: {uri: short.txt}}",
            "short.txt: holds labels of shape (2,), but there are 24",
        ),
    ],
)
def test_configs_that_can_not_be(keys, sentence, capsys):
    Path("short.txt").write_text("a\nb\n")
    Path("gap.txt").write_text("group\n\n" + "a\n" * 22 + "\n")
    Path("header.txt").write_text("group\n" + "a\n" * 24)
    np.savez("zip.npz", y=LABELS)
    for name in ("temp", "time"):
        zarr.create_array("g.zarr", name=name, shape=(24,), dtype="f4")
    with h5py.File("l.h5", "w") as file:
        file["y"] = LABELS
    assert run(f"input: {{uri: x.zarr}}\n{keys}\noutput: {{path: r}}\n") == 2
    assert sentence in capsys.readouterr().err
    assert not Path("r").exists()


@pytest.mark.parametrize("kind", ["zarr", "hdf5", "npy", "text"])
def test_labels_from_anywhere(kind):
    words = np.array(["left", "right", "both"])[LABELS]
    where = {"zarr": "l.zarr", "hdf5": "l.h5", "npy": "l.npy", "text": "l.txt"}[kind]
    if kind == "zarr":
        zarr.create_array(where, shape=(24,), dtype=str)[:] = words.astype(object)
    elif kind == "hdf5":
        with h5py.File(where, "w") as file:
            file["y"] = words.astype(object)
    elif kind == "npy":
        np.save(where, words)
    else:
        Path(where).write_text("\n".join(words))
    array = ", array: y" if kind == "hdf5" else ""
    asked = "input: {{uri: x.zarr}}\nmodel: {{kind: kernel_pca, kernel: [linear], labels: {}}}\noutput: {{path: {}}}\n"
    assert run(asked.format(f"{{uri: {where}{array}}}", "a")) == 0
    made(make, asked.format("{uri: labels.npy}", "b"))
    found, expected = (float(loaded(path).neighbour_accuracy[0]) for path in "ab")
    assert found == expected > 0


def test_center_decides_what_a_kernel_sees():
    base = "input: {uri: x.zarr}\nmodel: {kind: kernel_pca, kernel: poly, gamma: 1e-3, n_components: 3}\n"
    assert run(base + "output: {path: raw}\n") == 0
    assert run(base + "preprocess: {center: true}\noutput: {path: centred}\n") == 0
    for path, center in (("raw", False), ("centred", True)):
        expected = KernelPCA(3, kernel="poly", gamma=1e-3, center=center).fit(X)
        np.testing.assert_allclose(loaded(path).eigenvalues[:3], expected.eigenvalues_, rtol=1e-10)
        assert dpca("transform", path, "new.zarr", "--out", f"{path}.zarr") == 0
        found = zarr.open_array(f"{path}.zarr/scores", mode="r")[...]
        np.testing.assert_allclose(found, expected.transform(NEW), atol=1e-9 * np.abs(found).max())


def test_new_samples_without_any_value_are_nan(capsys):
    made(make, ONE, "--set", "preprocess.missing=mean")
    new = NEW.copy()
    new[2] = np.nan
    np.save("new.npy", new)
    assert dpca("transform", "r", "new.npy", "--out", "t.zarr") == 0
    assert "note: sample 2: no value of a feature that the fit kept, and NaN in the result" in capsys.readouterr().err
    scores = zarr.open_group("t.zarr")["scores"][:]
    assert np.flatnonzero(np.isnan(scores).all(axis=1)).tolist() == [2]
    np.testing.assert_allclose(np.delete(scores, 2, 0), KernelPCA.load("r").transform(np.delete(NEW, 2, 0)), atol=1e-9)
