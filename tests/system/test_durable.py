"""Directories are changed through one disk alone, and links are not followed where something is removed."""

import errno
import os
import shutil
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import zarr

from dpca import slabs
from dpca.commands.apply import Placement, transform
from dpca.commands.run import run
from dpca.config.loading import load
from dpca.store.synced import SyncedStore
from dpca.system import durable
from tests.stores import LINKS
from workflows.campaigns.crashes import unflushed, watched

CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate", "shutil.rmtree"}


class Auditor:
    """What is changed in a directory while it looks, but by `durable.DISK`. An audit hook stays as long as its process."""

    def __init__(self):
        self.place, self.found, self.thread = None, [], threading.local()
        sys.addaudithook(self.hook)

    def hook(self, event, args):
        if self.place is None or getattr(self.thread, "in_disk", False):
            return
        if event in CHANGES or (event == "open" and args[2] & (os.O_CREAT | os.O_WRONLY | os.O_RDWR)):
            named = [arg for arg in args[:2] if isinstance(arg, str | os.PathLike)]
            for path in [Path(os.path.abspath(name)) for name in named]:
                made_already = event == "os.mkdir" and path.is_dir()
                if self.place in path.parents and ".lock" not in path.parts and not made_already:
                    self.found.append(f"{event} {path}")


class Marking(durable.Disk):
    """Tells an auditor when it is at work."""

    def __init__(self, auditor):
        self._auditor = auditor

    def __getattribute__(self, name):
        method = super().__getattribute__(name)
        if name.startswith("_"):
            return method

        def call(*args):
            self._auditor.thread.in_disk = True
            try:
                return method(*args)
            finally:
                self._auditor.thread.in_disk = False

        return call


@pytest.fixture(scope="module")
def auditor():
    return Auditor()


@contextmanager
def audited(auditor, place):
    with pytest.MonkeyPatch.context() as patch, unflushed():
        patch.setattr(durable, "DISK", Marking(auditor))
        auditor.place, auditor.found = Path(place).absolute(), []
        yield auditor.found
        auditor.place = None


def test_results_are_changed_through_the_disk_alone(auditor, monkeypatch):
    monkeypatch.setattr(slabs, "TILE_WIDTH", 1)
    Path("out").mkdir()
    zarr.create_array("x.zarr", data=np.random.default_rng(0).normal(size=(5, 40)), chunks=(5, 10))
    Path("c.yaml").write_text("input: {uri: x.zarr}\nmodel: {n_components: 2}\noutput: {path: out/r}\n")
    config = load("c.yaml", [])
    with watched("out") as power:
        run(config)
    power.restart(power.left(power.moments[-30], seed=1))  # with arrays that zarr deletes, to write them again
    with audited(auditor, "out") as found:
        run(config, resume=True)
        run(config, overwrite=True)
        for _ in range(2):
            transform("out/r", "x.zarr", "out/t", overwrite=True, place=Placement(workers=1))
    assert found == []


def test_an_auditor_sees_what_bypasses_the_disk(auditor):
    Path("out").mkdir()
    with audited(auditor, "out") as found:
        os.mkdir("out/made")
        Path("out/written").write_text("")
        durable.make_directories(Path("out/other"))
        shutil.rmtree("out/made")
    assert [change.split()[0] for change in found] == ["os.mkdir", "open", "shutil.rmtree", "os.rmdir"]


def test_a_file_that_could_not_be_written_leaves_the_old_one_and_nothing_else():
    def full(file):
        file.write(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    Path("out").mkdir()
    durable.write_json(Path("out/status.json"), {"state": "running"})
    with pytest.raises(OSError, match="No space left"):
        durable.write(Path("out/status.json"), full)
    assert os.listdir("out") == ["status.json"]
    assert durable.read_json(Path("out/status.json")) == {"state": "running"}


@pytest.mark.parametrize(
    ("deep", "left"), [(True, ["r/in", "r/in/kept"]), (False, ["r/in", "r/in/.b.partial", "r/in/kept"])]
)
def test_what_killed_processes_had_half_written_is_removed(deep, left):
    Path("r/in").mkdir(parents=True)
    for name in ("r/.a.partial", "r/in/.b.partial", "r/in/kept"):
        Path(name).touch()
    durable.remove_partials(Path("r"), deep)
    assert sorted(map(str, Path("r").rglob("*"))) == left


@pytest.fixture
def elsewhere():
    """A directory with a file that is nobody's to remove, and a link to it in another one."""
    Path("elsewhere").mkdir()
    Path("elsewhere/.thesis.partial").write_text("x")
    Path("r").mkdir()
    Path("r/link").symlink_to(Path("elsewhere").absolute())
    yield
    assert os.listdir("elsewhere") == [".thesis.partial"]


def test_of_a_link_the_link_alone_is_removed(elsewhere):
    durable.remove(Path("r/link"))
    assert os.listdir("r") == []
    Path("r/link").symlink_to("nowhere")
    durable.remove(Path("r/link"))
    assert os.listdir("r") == []


def test_a_directory_is_removed_with_the_links_in_it(elsewhere):
    durable.remove(Path("r"))
    assert not Path("r").exists()


def test_a_directory_is_removed_in_which_late_tasks_still_write(tmp_path, monkeypatch):
    """Threads of a command that was told to stop end when their span does."""
    work, late, rmdir = tmp_path / "work", ["a", "b"], os.rmdir
    work.mkdir()

    def writing_before(*given, **more):
        if late:
            (work / late.pop()).write_bytes(b"late")
        rmdir(*given, **more)

    monkeypatch.setattr(os, "rmdir", writing_before)
    durable.remove(work)
    assert (late, os.listdir(tmp_path)) == ([], [])


def test_what_takes_the_place_of_a_directory_while_it_is_removed_stays(tmp_path, monkeypatch):
    """A process that slept while it removed an old result, and another has published the new one."""
    work, new, rmdir = tmp_path / "work", tmp_path / "new", os.rmdir
    for directory in (work, new):
        directory.mkdir()
        (directory / directory.name).touch()

    def replaced_before(*given, **more):
        if new.exists():
            rmdir(work)
            new.rename(work)
        rmdir(*given, **more)

    monkeypatch.setattr(os, "rmdir", replaced_before)
    with pytest.raises(OSError, match="not empty"):
        durable.remove(work)
    assert os.listdir(work) == ["new"]


def test_what_was_begun_is_not_looked_for_behind_links(elsewhere):
    durable.remove_partials(Path("r"))


def test_a_link_that_is_moved_stays_a_link(elsewhere):
    durable.move(Path("r/link"), Path("r/other"))
    assert Path("r/other").readlink() == Path("elsewhere").absolute()


def test_zarr_deletes_no_more_than_a_link(elsewhere):
    SyncedStore("r").delete_sync("link")
    assert os.listdir("r") == []


@pytest.mark.parametrize("link", LINKS)
def test_a_file_takes_a_free_name_alone_also_where_no_file_has_two(link, monkeypatch):
    monkeypatch.setattr(os, "link", LINKS[link])
    for text in ("first", "second"):
        Path(text).write_text(text)
    durable.put(Path("first"), Path("there"), overwrite=False)
    with pytest.raises(FileExistsError):
        durable.put(Path("second"), Path("there"), overwrite=False)
    assert Path("there").read_text() == "first"
    durable.put(Path("second"), Path("there"), overwrite=True)
    assert Path("there").read_text() == "second"
    assert os.listdir() == ["there"]
