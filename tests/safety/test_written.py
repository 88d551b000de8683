"""What is written: for whom, where, and what it may replace."""

import os
import shutil
import stat
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import zarr

from dpca import PCA, open_gram
from dpca.estimators.base import scratch_beside
from dpca.planning.rechunk import copy_in
from dpca.sources import as_source
from dpca.system import durable
from tests.commands.calls import dpca
from tests.made import made
from tests.safety.common import X, a_finished_run, config


def array_at(path, chunks):
    zarr.create_array(path, data=X, chunks=chunks)
    return zarr.open_array(path, mode="r")


def derive_config():
    Path("d.yaml").write_text("{from: r, analyses: [{name: a, model: {kind: pca}}], output: {path: d}}")
    return "d.yaml"


def fitted():
    pca = PCA(n_components=2, store="fits").fit(array_at("z.zarr", (6, 10)))
    pca.save("saved")
    return 0


def mapped():
    return 0 if open_gram("r", store="maps").pca(2).components() is not None else 1


WRITERS = {
    "run": lambda: dpca("run", "c.yaml", "--keep-ledger", "--set", "output.path=new"),
    "batch": lambda: dpca("batch", "init", "c.yaml", "--set", "output.path=b"),
    "transform": lambda: dpca("transform", "r", "x.npy", "--out", "t"),
    "reconstruct": lambda: dpca("reconstruct", "r", "--out", "t"),
    "derive": lambda: dpca("derive", derive_config()),
    "extend": lambda: dpca("extend", "r", "y.npy", "--output", "more"),
    "submit an array": lambda: dpca("submit", "c.yaml", "--set", "output.path=s"),
    "submit a job": lambda: dpca("submit", "c.yaml", "--as", "job", "--set", "output.path=s"),
    "a fit": fitted,
    "maps": mapped,
    **{
        f"export {to}": lambda to=to: dpca("export", "r", "--to", to, "--out", f"e.{to}")
        for to in ("csv", "npz", "hdf5", "netcdf", "anndata")
    },
}


@pytest.fixture
def umask():
    """Sets the mask of what this process makes."""
    before = os.umask(0o022)
    yield os.umask
    os.umask(before)


def a_run_to_write_from():
    np.save("x.npy", X)
    np.save("y.npy", X + 1)
    assert dpca("run", config("x.npy", "compute: {memory: 1 GiB}")) == 0


@pytest.mark.parametrize(
    ("name", "mask"), [*product(WRITERS, [0o000, 0o077]), *product(["run", "submit a job"], [0o002, 0o022])]
)
def test_what_is_written_is_not_for_everyone_to_write(sbatch, umask, name, mask):
    """Whatever the umask; and where that lets no one else read, no one else can."""
    made(a_run_to_write_from)
    before = set(Path().rglob("*"))
    umask(mask)
    assert WRITERS[name]() == 0
    written = [path for path in Path().rglob("*") if path not in before]
    inputs = ("x.npy", "y.npy", "z.zarr", "d.yaml")
    modes = {str(path): stat.S_IMODE(path.lstat().st_mode) for path in written if path.parts[0] not in inputs}
    assert modes
    assert {path: oct(mode) for path, mode in modes.items() if mode & (mask | 0o002)} == {}
    own = {path: oct(mode) for path, mode in modes.items() if Path(path).parts[0].endswith(".slurm")}
    assert set(own.values()) <= {"0o700", "0o600"}
    assert bool(own) == name.startswith("submit")


@pytest.mark.parametrize("mask", [0o000, 0o002, 0o022])
def test_a_copy_of_the_data_is_its_users_alone(umask, mask, monkeypatch):
    """In the directory for temporary files, where estimators make it, and wherever else one is made."""
    monkeypatch.setattr("tempfile.tempdir", os.getcwd())
    source = as_source(array_at("z.zarr", (2, 40)))
    umask(mask)
    scratch = Path(scratch_beside(None).path)
    assert copy_in(source.layout, (0,), (6, 10)).create(str(scratch))
    assert scratch.parent == Path.cwd()
    assert oct(stat.S_IMODE(scratch.stat().st_mode)) == "0o700"


def other_users(path):
    """A folder of another user."""
    if os.geteuid():
        pytest.skip("needs root, to make what another user owns")
    path.mkdir()
    os.chown(path, 12345, 12345)


def linked(path):
    Path("behind").mkdir()
    path.symlink_to(Path("behind").resolve())


@pytest.mark.parametrize("made", [other_users, linked])
@pytest.mark.parametrize("way", ["array", "job"])
def test_scripts_are_written_into_no_folder_of_others(sbatch, made, way, capsys):
    np.save("x.npy", X)
    config(os.path.abspath("x.npy"))
    made(Path("r.slurm"))
    assert dpca("submit", "c.yaml", "--as", way) == 2
    assert "where scripts and logs would be kept" in capsys.readouterr().err
    assert not list(Path("r.slurm").iterdir())
    assert not Path("r").exists()


def test_a_script_that_is_a_link_is_replaced_and_what_it_leads_to_is_not(sbatch):
    np.save("x.npy", X)
    config(os.path.abspath("x.npy"))
    Path("r.slurm").mkdir()
    Path("mine").write_text("mine")
    Path("r.slurm/job.sbatch").symlink_to(Path("mine").resolve())
    assert dpca("submit", "c.yaml", "--as", "job") == 0
    assert Path("mine").read_text() == "mine"
    assert not Path("r.slurm/job.sbatch").is_symlink()
    assert stat.S_IMODE(os.stat("r.slurm").st_mode) == 0o700


LINKS = [".lock", "ledger", "ledger/RUN", "ledger/RUN/parts", "ledger/RUN/result.zarr"]
LEFT = ["lock.1", ".x.partial", "inside/.x.partial", "0.npz", "run.json"]


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize(
    "command", [("run",), ("run", "--resume"), ("run", "--overwrite"), ("partition",), ("finalize",)]
)
def test_nothing_is_removed_behind_a_link(command, link, capsys):
    """In a result that someone else has made, or can write to."""
    np.save("x.npy", X)
    assert dpca("batch", "init", config("x.npy")) == 0
    (run,) = (path.name for path in Path("r/ledger").iterdir() if path.is_dir())
    place = Path("r", link.replace("RUN", run))
    Path("behind").mkdir()
    if place.exists():
        shutil.copytree(place, "behind", dirs_exist_ok=True)
        shutil.rmtree(place)
    for name in LEFT:
        Path("behind", name).parent.mkdir(exist_ok=True)
        Path("behind", name).touch()
    place.symlink_to(Path("behind").resolve())
    before = {path: path.stat().st_mtime_ns for path in Path("behind").rglob("*")}
    if command[0] == "run":
        assert dpca(*command, "c.yaml") == 2
    else:
        code = dpca("batch", command[0], "r", *("--index", "0") * (command[0] == "partition"))
        assert code == 2 or (command[0], link) == ("partition", ".lock")
    assert {path: path.stat().st_mtime_ns for path in Path("behind").rglob("*")} == before
    if (command[0], link) != ("partition", ".lock") and command != ("run",):
        assert f"{place}: is a link, where dpca writes and removes files" in capsys.readouterr().err


@pytest.mark.parametrize("there", ["x.npy", "r/manifest.json", "r/result.zarr/zarr.json", "other.html"])
def test_a_report_and_an_export_replace_nothing_of_others(there, capsys):
    made(a_finished_run)
    Path("other.html").write_text("<!doctype html><title>mine</title>")
    before = Path(there).read_bytes()
    for call in (("report", "r"), ("export", "r", "--to", "npz")):
        assert dpca(*call, "--out", there) == 2
        if there.startswith("r/"):
            assert dpca(*call, "--out", there, "--overwrite") == 2
            assert "is a part of the result" in capsys.readouterr().err
    assert Path(there).read_bytes() == before


def test_an_output_that_is_replaced_is_whole_at_every_step(monkeypatch):
    """Stopped anywhere, what has its name is the old one or the new one, and the same command ends well."""
    made(a_finished_run)
    np.save("more.npy", X * 2)
    expected = []
    for data, out in (("x.npy", "t.zarr"), ("more.npy", "n.zarr")):
        assert dpca("transform", "r", data, "--out", out) == 0
        expected.append(zarr.open_array(f"{out}/scores")[...])
    for at in range(20):
        steps = iter(range(1000))

        def stopped(original, steps=steps, at=at):
            def step(*arguments):
                of_output = any(str(one).endswith(("t.zarr", "replaced")) for one in arguments)
                if of_output and next(steps) == at:
                    raise KeyboardInterrupt
                return original(*arguments)

            return step

        with monkeypatch.context() as patch:
            for name in ("rename", "unlink", "remove_tree", "remove_directory"):
                patch.setattr(durable.Disk, name, stopped(getattr(durable.Disk, name)))
            ended = dpca("transform", "r", "more.npy", "--out", "t.zarr", "--overwrite")
        if Path("t.zarr").exists():
            scores = zarr.open_array("t.zarr/scores")[...]
            assert any(np.array_equal(scores, known) for known in expected)
        if ended == 0:
            break
        assert dpca("transform", "r", "x.npy", "--out", "t.zarr", "--overwrite") == 0
        np.testing.assert_array_equal(zarr.open_array("t.zarr/scores")[...], expected[0])
    assert ended == 0
    assert at >= 3
