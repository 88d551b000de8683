"""Formats that are not read: each refusal has a command, which makes a file that is read."""

import importlib.util
import shlex
import shutil
import subprocess
from pathlib import Path

import h5py
import numpy as np
import pytest
import scipy.io
import scipy.sparse

from dpca import PCA
from dpca.errors import ConfigError, DataError, InputError
from dpca.sources import open_source
from tests.commands.calls import dpca
from tests.genotypes.cohorts import cohort, write_plink
from tests.sources.test_zarr_array import whole
from tests.stores import random_array

X = random_array(0, (6, 4), "f8").round(3)


def genotypes(path, how):
    if shutil.which("plink2") is None:
        pytest.skip("needs plink2")
    write_plink(cohort(n=6, d=40, special=False), "made")
    made = ["plink2", "--bfile", "made", *how.split(), "--out", Path(path).name.partition(".")[0]]
    subprocess.run(made, check=True, capture_output=True)


def of(content):
    """Files that begin as such files do, where nothing here writes them."""
    return lambda path: Path(path).write_bytes(content)


GENOTYPES = 6, 40
FORMATS = {
    "x.npz": (lambda path: np.savez(path, NAME=X), X),
    "x.mat": (lambda path: scipy.io.savemat(path, {"NAME": X}), X),
    "x.mtx": (lambda path: scipy.io.mmwrite(path, scipy.sparse.csr_matrix(X)), X),
    "y.vcf.gz": (lambda path: genotypes(path, "--export vcf bgz"), GENOTYPES),
    "y.bgen": (lambda path: genotypes(path, "--export bgen-1.2"), GENOTYPES),
    "x.rds": (of(b"\x1f\x8b"), "rdata.read_rds"),
}
"""What writes a file, and its values, their shape, or what the command calls."""


def carried_out(command):
    """Carry out a command, which is Python or PLINK 2; False where it needs what is not here."""
    words = shlex.split(command)
    if words[0] == "plink2":
        subprocess.run(words, check=True, capture_output=True)
        return True
    assert words[:2] == ["python", "-c"]
    imports, _, statement = words[2].partition(";")
    modules = imports.removeprefix("import ").split(", ")
    if any(importlib.util.find_spec(module.partition(".")[0]) is None for module in modules):
        return False
    exec(f"{imports}\n{statement.strip()}", {})
    return True


@pytest.mark.parametrize("name", FORMATS)
def test_the_command_of_a_refusal_makes_a_file_that_is_read(name):
    write, expected = FORMATS[name]
    write(name)
    with pytest.raises(InputError, match="but (a|an) ") as caught:
        open_source(name)
    assert caught.value.message.startswith(f"{name}: is")
    command, then = caught.value.remedy.removeprefix("Convert it by `").split("`, and set input.uri: ")
    if isinstance(expected, str):
        assert expected in command
        return
    made = next(then[:end] for end in range(len(then)) if then[:end].endswith((".npy", ".h5ad", ".bed")))
    if carried_out(command):
        if isinstance(expected, tuple):
            assert open_source(made).layout.shape == expected
        else:
            np.testing.assert_allclose(whole(open_source(made))[0], expected)


def test_files_of_grib_name_the_engine_that_opens_them():
    Path("x.nc").write_bytes(b"GRIB\0\0\0\2")
    with pytest.raises(InputError, match=r"x\.nc: is a file of GRIB, .*\nSet input\.engine: cfgrib"):
        open_source("x.nc")


def test_a_format_that_is_not_known_is_refused_too():
    Path("x.docx").write_text("1,2")
    with pytest.raises(InputError, match=r"x\.docx: is neither Zarr nor .*\nConvert it to one of them"):
        open_source("x.docx")


def test_what_python_is_given_in_place_of_an_array_is_answered_by_what_to_do():
    with h5py.File("model.nc", "w") as file:
        file["x"] = np.where(np.arange(240) == 3, np.nan, np.arange(240.0)).reshape(6, 40)
    with (
        h5py.File("model.nc") as file,
        pytest.raises(DataError, match=r"^model\.nc:x: 1 missing values .*\nPass missing="),
    ):
        PCA().fit(file["x"])
    with pytest.raises(ConfigError, match=r"n_components is 5.*\nSet n_components to a number from 1 to 4"):
        PCA(5).fit(X)


LONG = "x" * 300


@pytest.mark.parametrize(
    "call",
    [
        ("run", "c.yaml", "--set", f"output.path={LONG}"),
        ("run", "c.yaml", "--set", f"compute.scratch={LONG}"),
        ("run", "c.yaml", "--set", f"input.uri={LONG}"),
        ("batch", "init", "c.yaml", "--partitions", "2", "--set", f"output.path={LONG}"),
    ],
)
def test_a_name_that_the_file_system_does_not_take_is_an_error_in_words(call, capsys):
    np.save("x.npy", X)
    Path("c.yaml").write_text("input: {uri: x.npy}\nmodel: {n_components: 2}\noutput: {path: r}\n")
    assert dpca(*call) == 2
    shown = capsys.readouterr().err
    assert "is longer than the file system takes" in shown or "does not exist" in shown
    assert "defect" not in shown
