"""Output that is built beside its place: nothing of another, nothing of before and nothing half written gets into it, and nothing that is not its own goes."""

import os
import shutil
from contextlib import contextmanager
from itertools import count, takewhile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import zarr

from dpca.commands import aside
from dpca.commands.aside import building, check_same_fit, forgetting
from dpca.errors import DataError, LockedError, OutputExistsError, StorageError
from dpca.execution.progress import Progress
from dpca.store.ledger import Ledger, Read
from tests.stores import before_step

OUT, WORK = Path("out.zarr"), Path(".out.zarr.partial")


class Input(SimpleNamespace):
    """An input whose state can be changed."""

    layout = SimpleNamespace(name="x.zarr")

    def state(self, region):
        return self.now


def written(value, out=OUT, **how):
    """An output with an attribute, as a command would build it."""
    with building(out, how.pop("overwrite", False), how.pop("others", [])) as work:
        begin(work)
        zarr.open_group(str(work.arrays), mode="a").attrs.update({"result": value})
        how.pop("meanwhile", lambda: None)()
    return zarr.open_group(str(out), mode="r").attrs["result"]


def begin(work, what="a command", sources=()) -> Ledger:
    return work.begin({"what": what}, [], 10**6, Progress(), list(sources))


def finished(work, what="a command"):
    """One finished part."""
    ledger = begin(work, what)
    ledger.checkpoint("first").keep(0, np.ones(3))
    return ledger


@contextmanager
def failing(out=OUT):
    """A command that fails at its end; a list that gets its error."""
    errors = []
    try:
        with building(out, False, []) as work:
            yield work, errors
            raise DataError("fault", "Mend it.")
    except DataError as error:
        errors.append(error)


def left(what="a command"):
    """What a command leaves that fails after a part; returns its folder."""
    with failing() as (work, _):
        finished(work, what)
    (folder,) = (path for path in WORK.iterdir() if len(path.name) == 64)
    return folder


def test_what_was_built_takes_its_place_and_nothing_else_is_left():
    assert written("new") == "new"
    assert sorted(os.listdir()) == ["out.zarr"]
    (Path("victim") / "kept").mkdir(parents=True)
    WORK.mkdir()
    (WORK / "replaced").symlink_to("victim")  # of a command that was killed between two renames, or of anyone
    assert written("newer", overwrite=True) == "newer"
    assert sorted(os.listdir()) == ["out.zarr", "victim"]
    assert os.listdir("victim") == ["kept"]


@pytest.mark.parametrize("out", ["x.zarr", "x.zarr/inside", "data", "data/x.zarr/c/0", "link", "link/c", "."])
def test_output_does_not_lie_in_or_around_what_is_read(out):
    zarr.create_array("x.zarr", data=np.ones((3, 4)))
    zarr.create_array("data/x.zarr", data=np.ones((3, 4)))
    os.symlink("data/x.zarr", "link")
    before = sorted(Path().rglob("*"))
    with (
        pytest.raises(OutputExistsError, match="is, holds or lies in"),
        building(Path(out), True, [Path("x.zarr"), Path("link")]),
    ):
        pass
    assert sorted(Path().rglob("*")) == before


def test_a_repeated_command_goes_on_and_another_one_begins_anew():
    folder = left()
    assert [path.name for path in folder.glob("parts/*/*")] == ["0.npz"]
    (WORK / "notes.txt").write_text("of a user")
    (folder / "arrays" / ".c.0123.partial").write_text("of a killed process")
    (folder / "arrays" / "c").write_text("of a finished part")
    WORK.chmod(0o755)
    with failing() as (work, _):
        assert begin(work).checkpoint("first").has(0)
        assert sorted(os.listdir(work.arrays)) == ["c"]
        assert WORK.stat().st_mode & 0o777 == 0o700
    with failing() as (work, _):
        assert begin(work, "another command").empty
        assert not folder.exists()
    assert os.listdir(WORK) == ["notes.txt"]


def test_parts_of_data_that_changed_are_not_used_nor_what_follows_from_them():
    data, other = Input(now="one"), Input(now="same")
    data.layout, other.layout = SimpleNamespace(name="a"), SimpleNamespace(name="b")
    with failing() as (work, _):
        first = begin(work, sources=[data, other]).checkpoint("first")
        for number, source in enumerate((data, other)):
            first.keep(number, np.ones(3), [Read.of(source, (slice(0, 4),))])
        data.now = "two"
        ledger = begin(work, sources=[data, other])
        assert [ledger.checkpoint("first").has(number) for number in (0, 1)] == [False, True]
        # A later stage has begun with a sum of the first.
        first.keep(0, np.ones(3), [Read.of(data, (slice(0, 4),))])
        first.load(1, np.ones(3))
        for number in (0, 1):
            first.added(number, np.ones(3), settled=True, last=number == 1, window=1)
        ledger.checkpoint("second").keep(0, np.ones(3))
        data.now = "three"
        assert begin(work, sources=[data, other]).empty
    assert not WORK.exists()


def test_files_that_killed_workers_had_half_written_are_not_published():
    half = ".c.0.0123456789abcdef0123456789abcdef.partial"
    written("new", meanwhile=lambda: next(WORK.glob("*/arrays")).joinpath(half).write_text("half"))
    assert sorted(os.listdir(OUT)) == ["zarr.json"]


def test_what_fails_before_a_part_is_finished_leaves_nothing_and_what_fails_later_says_that_it_goes_on():
    out = Path("new/folder/out.zarr")
    with failing(out) as (work, errors):
        begin(work)
    assert errors[0].remedy == "Mend it."
    assert os.listdir() == []
    with failing(out) as (work, errors):
        finished(work)
    assert errors[0].remedy == "Mend it. What is finished is kept: the same command again goes on from there."
    assert os.listdir("new/folder") == [".out.zarr.partial"]


def changed():
    raise DataError("changed", "")


def data_that_changed(work):
    with forgetting(work):
        changed()


def fit_that_changed(work):
    check_same_fit(SimpleNamespace(check_still=changed), work)


@pytest.mark.parametrize("change", [data_that_changed, fit_that_changed])
def test_parts_of_data_or_of_a_fit_that_changed_meanwhile_are_forgotten(change):
    with failing() as (work, errors):
        finished(work)
        change(work)
    assert errors[0].message == "changed"
    assert not WORK.exists()


def after_the_lock(monkeypatch, change):
    acquire = aside.Lock.acquire

    def acquiring(lock):
        acquire(lock)
        change()

    monkeypatch.setattr(aside.Lock, "acquire", acquiring)


def led_elsewhere():
    """The work folder as a link to a folder with something in it."""
    if WORK.exists():
        shutil.move(WORK, "moved")
    os.symlink("victim", WORK)


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_a_work_folder_that_is_a_link_is_refused(monkeypatch, when):
    folder = Path("victim") / ("0" * 64)
    folder.mkdir(parents=True)
    if when == "before":
        led_elsewhere()
    else:
        after_the_lock(monkeypatch, led_elsewhere)
    with pytest.raises(OutputExistsError, match="link"):
        written("new")
    assert [path.name for path in Path("victim").rglob("*")] == [folder.name]
    assert not OUT.exists()


def test_a_work_folder_with_a_file_in_its_place_is_refused():
    WORK.write_text("of a user")
    with pytest.raises(OutputExistsError):
        written("new")
    assert WORK.read_text() == "of a user"


def test_what_is_there_is_refused_before_anything_is_made_or_waited_for(monkeypatch):
    written("old")
    monkeypatch.setattr(aside.Lock, "acquire", lambda lock: pytest.fail("it waits"))
    with pytest.raises(OutputExistsError, match="exists already"):
        written("new")
    assert not WORK.exists()


@pytest.mark.parametrize("overwrite", [False, True])
def test_what_appears_at_the_place_while_a_command_waits_is_not_replaced(monkeypatch, overwrite):
    def appears():
        OUT.mkdir()
        (OUT / "thesis.txt").write_text("all of it")

    after_the_lock(monkeypatch, appears)
    with pytest.raises(OutputExistsError, match="exists already, and dpca did not write it"):
        written("new", overwrite=overwrite)
    assert (OUT / "thesis.txt").read_text() == "all of it"
    assert not WORK.exists()


def taken_over():
    """Another command takes the lock, as of one that sleeps."""
    (WORK / ".lock" / "lock.7").write_text('{"owner": "another"}')


@pytest.mark.parametrize("error", [None, StorageError("a file is gone", "Look."), DataError("fault", "")])
def test_a_command_whose_lock_was_taken_over_publishes_nothing_and_removes_nothing_of_the_other(error):
    written("old")

    def meanwhile():
        taken_over()
        if error is not None:
            raise error

    expected = DataError if isinstance(error, DataError) else LockedError
    with pytest.raises(expected):
        written("new", overwrite=True, meanwhile=meanwhile)
    assert zarr.open_group("out.zarr", mode="r").attrs["result"] == "old"
    assert (WORK / ".lock" / "lock.7").exists()
    assert next(WORK.glob("*/arrays")).is_dir()  # which the other may be using now


def test_a_command_that_slept_before_any_step_leaves_what_another_has_published_meanwhile():
    """The other took it for dead, did the same, and has ended."""

    def another():
        shutil.rmtree(WORK / ".lock")
        written("new", overwrite=True)

    def slept_before(step):
        shutil.rmtree(OUT, ignore_errors=True)
        written("old")
        with before_step(step, another) as reached:
            try:
                written("new", overwrite=True)
            except LockedError:
                assert reached()
        assert zarr.open_group("out.zarr", mode="r").attrs["result"] == "new"
        assert not any(path.name != ".lock" for path in WORK.rglob("*"))
        return reached()

    steps = list(takewhile(slept_before, count()))
    assert len(steps) > 3
