"""A published result of which something is gone or damaged: an error that names it, never zeros."""

import os
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
import zarr

from dpca import PCA, open_gram
from dpca.errors import DataError, DpcaError, InputError
from dpca.store import outputs as store_outputs
from dpca.store.derived import open_derived
from dpca.store.outputs import Outputs
from dpca.store.stored import Filed
from tests.commands.calls import dpca
from tests.made import made
from tests.resume.disturbed import in_small_slabs
from tests.stores import random_array

COMMANDS = {
    "transform": ("transform", "r", "x.zarr", "--out", "out.zarr"),
    "reconstruct": ("reconstruct", "r", "--out", "out.zarr"),
    "netcdf": ("export", "r", "--to", "netcdf", "--out", "out.nc"),
    "hdf5": ("export", "r", "--to", "hdf5", "--out", "out.h5"),
    "npz": ("export", "r", "--to", "npz", "--out", "out.npz"),
    "anndata": ("export", "r", "--to", "anndata", "--out", "out.h5ad"),
    "report": ("report", "r", "--out", "out.html"),
    "kernels": ("run", "k.yaml", "--from-gram", "r"),
}
READERS = {
    "components/c/0/3": ("transform", "reconstruct", "netcdf", "hdf5", "npz", "anndata", "report"),
    "mean/c/2": ("transform", "reconstruct", "netcdf", "hdf5", "npz", "kernels"),
    "scale/c/1": ("transform", "reconstruct", "netcdf", "kernels"),
    "scores/c/0/0": ("reconstruct", "hdf5", "anndata", "report"),
    "gram/c/0/0": ("hdf5", "report", "kernels"),
    "feature/c/0": ("transform", "npz", "report"),
}


D = 5000


def result():
    """With a tile a span, so that one of many can be lost."""
    group = zarr.create_group("x.zarr")
    x = random_array(0, (20, D), "f4")
    group.create_array("x", data=x, chunks=(20, 1000), dimension_names=("sample", "feature"))
    group.create_array("feature", data=np.arange(D), dimension_names=("feature",))
    with pytest.MonkeyPatch.context() as patch:
        in_small_slabs(patch)
        patch.setattr(store_outputs, "CHUNK_BYTES", 2**10)
        for name, model in (("c", "n_components: 3"), ("k", "{kind: kernel_pca, kernel: rbf}")):
            Path(f"{name}.yaml").write_text(
                "input: {uri: x.zarr, array: x}\npreprocess: {scale: std}\n"
                f"model: {model if name == 'k' else '{' + model + '}'}\noutput: {{path: {'r' if name == 'c' else 'k'}, report: false}}\n"
            )
        assert dpca("run", "c.yaml") == 0


def cases():
    for chunk, names in READERS.items():
        for name in names:
            # What draws reports is not installed where the other tests run.
            yield pytest.param(chunk, name, marks=pytest.mark.looks if name == "report" else ())


@pytest.mark.parametrize(("chunk", "command"), list(cases()))
def test_what_is_gone_or_damaged_is_an_error(capsys, chunk, command):
    made(result)
    path = Path("r/result.zarr") / chunk
    content = bytearray(path.read_bytes())
    path.unlink()
    assert dpca(*COMMANDS[command]) == 2
    assert f"r: {chunk} is gone" in capsys.readouterr().err
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)
    assert dpca(*COMMANDS[command]) == 2
    assert f"r: its {chunk.partition('/')[0]} can't be read" in capsys.readouterr().err
    assert not list(Path().glob("out*"))


def consolidate(group):
    outputs = Outputs(group)
    outputs.finish()


def test_an_array_of_another_result_or_none_is_not_taken_for_its_own():
    made(result)
    zarr.create_array("r/result.zarr", name="mean", data=np.zeros(D), overwrite=True)
    consolidate("r/result.zarr")
    with pytest.raises(InputError, match="its mean is not the one that was written"):
        PCA.load("r").transform(random_array(1, (2, D), "f4"))
    shutil.rmtree("r/result.zarr/mean")
    consolidate("r/result.zarr")
    with pytest.raises(InputError, match="its mean is gone or damaged"):
        PCA.load("r")
    zarr.create_group("r/result.zarr/mean")
    consolidate("r/result.zarr")
    with pytest.raises(InputError, match="its mean is no array"):
        PCA.load("r")


def two_results():
    """Of equal shapes, so that arrays of one can't be told from those of the other."""
    for place, seed in (("other", 1), ("r", 0)):
        np.save("x.npy", random_array(seed, (12, 40), "f8"))
        assert dpca("run", "c.yaml", "--set", f"output.path={place}") == 0


def two_fits():
    Path("c.yaml").write_text("input: {uri: x.npy}\nmodel: {n_components: 3}\noutput: {path: r, report: false}\n")
    Path("d.yaml").write_text("from: r\nanalyses: [{name: a, model: {kind: pca}}]\noutput: {path: d, report: false}\n")
    two_results()


WHOLE = {
    "csv": lambda: dpca("export", "r", "--to", "csv", "--out", "e"),
    "npz": lambda: dpca("export", "r", "--to", "npz", "--out", "e.npz"),
    "hdf5": lambda: dpca("export", "r", "--to", "hdf5", "--out", "e.h5"),
    "netcdf": lambda: dpca("export", "r", "--to", "netcdf", "--out", "e.nc"),
    "derive": lambda: dpca("derive", "d.yaml"),
    "load": lambda: PCA.load("r"),
    "save": lambda: PCA.load("r").save("e"),
    "open_gram": lambda: open_gram("r").pca(2),
}


@pytest.mark.parametrize("reader", WHOLE)
def test_no_reader_mixes_two_results(reader, monkeypatch):
    """The result is replaced after each array that is read, in turn: an answer is of one result, or there is none."""
    Path("c.yaml").write_text("input: {uri: x.npy}\nmodel: {n_components: 3}\noutput: {path: r, report: false}\n")
    Path("d.yaml").write_text(
        "from: r\nanalyses: [{name: a, model: {kind: pca}}]\ncomponents: false\noutput: {path: e, report: false}\n"
    )
    two_results()
    read, refused = Filed._read, 0
    for at in (0, 1, 3):
        seen = iter(range(1000))

        def replacing(self, how, seen=seen, at=at):
            found = read(self, how)
            if next(seen) == at:
                os.rename("r", "aside")
                os.rename("other", "r")
            return found

        with monkeypatch.context() as patch:
            patch.setattr(Filed, "_read", replacing)
            try:
                ended = WHOLE[reader]()
            except DpcaError:
                ended = 2
        if Path("aside").exists():
            os.rename("r", "other")
            os.rename("aside", "r")
            refused += ended == 2
            assert ended == 2
    assert refused


IN_USE = {
    "transform": lambda fit: fit.transform(random_array(2, (2, 40), "f8")),
    "inverse_transform": lambda fit: np.asarray(fit.inverse_transform(np.ones((2, 3)))),
    "components": lambda fit: np.asarray(fit.components_),
    "scores": lambda fit: np.asarray(fit._result.arrays["scores"]),
    "save": lambda fit: fit.save("copy"),
    "gram": lambda fit: open_gram(fit).pca(2).eigenvalues,
}


@pytest.mark.parametrize("used", ["loaded", "used before", "pickled"])
@pytest.mark.parametrize("call", IN_USE)
def test_a_fit_in_use_answers_with_its_own_result_or_not_at_all(used, call, monkeypatch):
    """Its directory holds the result of another run by now."""
    made(two_fits)
    monkeypatch.setattr(PCA, "_carried_bytes", 0)  # a pickle names the directory
    fit = PCA.load("r")
    if used == "used before":
        IN_USE["transform"](fit)
        IN_USE["inverse_transform"](fit)
    if used == "pickled":
        fit = pickle.loads(pickle.dumps(fit))
    os.rename("r", "aside")
    os.rename("other", "r")
    with pytest.raises(DataError, match="r: was replaced while it was read"):
        IN_USE[call](fit)
    os.rename("r", "other")
    os.rename("aside", "r")
    IN_USE[call](fit)


def test_derived_analyses_in_use_are_of_one_run_too():
    made(two_fits)
    assert dpca("derive", "d.yaml") == 0
    opened = open_derived("d")
    scores = opened.arrays["a/scores"]
    before = np.asarray(scores)
    assert dpca("derive", "d.yaml", "--overwrite") == 0
    with pytest.raises(DataError, match="d: was replaced while it was read"):
        np.asarray(scores)
    np.testing.assert_array_equal(np.asarray(open_derived("d").arrays["a/scores"]), before)
