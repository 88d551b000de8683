"""What two processes do to each other, and what lies in the way: nothing finished is lost, nothing false is published."""

import json
import os
import shutil
import signal
import subprocess
import threading
from contextlib import ExitStack
from itertools import count, takewhile
from pathlib import Path

import numpy as np
import pytest
import zarr

from dpca.commands import aside, batch, run
from dpca.errors import DataError, DpcaError, LedgerError
from dpca.store import directory
from dpca.store.outputs import Outputs
from dpca.system import durable
from dpca.system.scratch import ScratchFolder
from tests.commands.calls import dpca
from tests.made import made
from tests.resume.disturbed import (
    at_slab,
    disturbed,
    killed,
    left_by_a_kill,
    sparse_rows,
    staged,
    ten_spans,
    whole_rows,
)
from tests.stores import before_step, bits, random_array
from tests.system.test_lock import stranger

pytestmark = pytest.mark.long


def before_the_lock(monkeypatch, module, meanwhile):
    """Have another command run to its end just before the next lock is taken."""
    acquire, calls = module.Lock.acquire, []

    def acquiring(lock):
        if not calls:
            calls.append(lock)
            assert meanwhile() == 0
        acquire(lock)

    monkeypatch.setattr(module.Lock, "acquire", acquiring)


def test_a_result_that_another_run_finished_meanwhile_is_not_replaced(config, monkeypatch, capsys):
    before_the_lock(monkeypatch, run, lambda: dpca("run", config, "--set", "model.n_components=2"))
    assert dpca("run", config) == 2
    assert "r: holds a result already" in capsys.readouterr().err
    assert zarr.open_group("r/result.zarr")["scores"].shape == (12, 2)


def test_a_run_that_another_began_meanwhile_is_not_taken_for_the_one_that_is_gone_on_with(config, monkeypatch, capsys):
    left_by_a_kill()

    def begins_anew():
        killed(config, how=("--overwrite",))
        return 0

    before_the_lock(monkeypatch, run, begins_anew)
    found = directory.ResultDirectory("r").unfinished().run
    assert dpca("run", config, "--resume") == 2
    assert "r: another run has just ended there" in capsys.readouterr().err
    assert directory.ResultDirectory("r").unfinished().run != found


@pytest.mark.parametrize("command", ["transform", "reconstruct"])
@pytest.mark.usefixtures("finished")
def test_what_another_command_wrote_meanwhile_is_not_replaced(monkeypatch, capsys, command):
    first = [command, "r", *(["x.zarr"] if command == "transform" else ["--samples", "0:4"]), "--out", "o.zarr"]
    second = [command, "r", *(["x.zarr"] if command == "transform" else ["--samples", "0:5"]), "--out", "o.zarr"]
    before_the_lock(monkeypatch, aside, lambda: dpca(*first))
    assert dpca(*second) == 2
    assert "o.zarr: exists already" in capsys.readouterr().err
    if command == "reconstruct":
        assert zarr.open_group("o.zarr")["reconstruction"].shape[0] == 4
    assert not [name for name in os.listdir() if name.startswith(".o.zarr")]


@pytest.mark.parametrize("when", ["while it computes", "as it fails", "at its end"])
def test_a_run_that_another_has_taken_over_changes_nothing_more(config, monkeypatch, capsys, when):
    """It slept, and the other took it for dead."""
    locks, acquire, decompose = [], run.Lock.acquire, run._decompose

    def acquiring(lock):
        locks.append(lock)
        acquire(lock)

    def taken_over(*arguments):
        done = decompose(*arguments) if when == "at its end" else None
        stranger(Path("r"), 2)
        os.remove("r/.lock/lock.1")
        if when == "as it fails":
            raise DataError("fault", "")
        if when == "while it computes":
            assert not locks[0].held()  # as its beat finds
            return decompose(*arguments)
        return done

    monkeypatch.setattr(run.Lock, "acquire", acquiring)
    monkeypatch.setattr(run, "_decompose", taken_over)
    assert dpca("run", config) == 2
    assert "r: another run has taken it over, since this one did not move for a while" in capsys.readouterr().err
    assert os.listdir("r/.lock") == ["lock.2"]
    assert not Path("r/manifest.json").exists()
    assert directory.mapping(Path("r/status.json")).get("state", "running") == "running"
    assert Path("r/ledger/run.json").exists()
    assert bool(list(Path("r/ledger").glob("*/parts/*/[0-9]*.npz"))) == (when == "at its end")


def test_a_run_that_slept_before_any_step_of_its_publication_leaves_what_another_has_published(
    config, undisturbed, monkeypatch, capsys
):
    """The other took it for dead, went on with it, and has ended."""
    made(ten_spans)
    assert dpca("run", config, "--set", "model.n_components=2") == 0
    shutil.move("r", "older")
    commit = directory.ResultDirectory.commit

    def another():
        shutil.rmtree("r/.lock")
        assert dpca("run", config, "--resume") == 0

    def slept_before(step):
        shutil.rmtree("r", ignore_errors=True)
        shutil.copytree("older", "r")
        with ExitStack() as stack:
            reached = []

            def committing(*arguments):
                monkeypatch.setattr(directory.ResultDirectory, "commit", commit)
                reached.append(stack.enter_context(before_step(step, another)))
                commit(*arguments)

            monkeypatch.setattr(directory.ResultDirectory, "commit", committing)
            code = dpca("run", config, "--overwrite")
        said = capsys.readouterr().err
        assert code == 0 or (code == 2 and "r: another run has taken it over" in said)
        assert bits("r") == undisturbed
        assert sorted(os.listdir("r")) == ["certificate.json", "manifest.json", "result.zarr", "status.json"]
        return reached[0]()

    steps = list(takewhile(slept_before, count()))
    assert len(steps) > 6


def steep():
    """Eigenvalues over many decades, to be made: a second pass refines what the first has written."""
    n, d = 60, 6000
    u, v = (np.linalg.qr(random_array(seed, (rows, 10), "f8"))[0] for seed, rows in ((0, n), (1, d)))
    x = (u * 10.0 ** (3 - np.arange(10) / 3)) @ v.T + 1e-3 * random_array(2, (n, d), "f8")
    zarr.create_array("x.zarr", data=x.astype("f4"), chunks=(n, 600), dimension_names=("time", "x"))
    Path("c.yaml").write_text(
        "input: {uri: x.zarr}\nmodel: {n_components: 8}\ncompute: {workers: 1}\noutput: {path: r, report: false}\n"
    )


def test_a_run_that_slept_before_it_writes_any_file_changes_nothing_of_another_that_goes_on_with_it(
    monkeypatch, capsys
):
    """The other has written all, and not yet published it, when the first wakes, whose file is of the first pass, or is a status."""
    made(steep)
    assert dpca("run", "c.yaml", "--set", "output.path=expected") == 0
    expected, commit = bits("expected"), directory.ResultDirectory.commit

    def slept_before(step):
        wrote, woken, other = threading.Event(), threading.Event(), []

        def goes_on():
            other.append(dpca("run", "c.yaml", *["--resume"][: Path("r/ledger/run.json").exists()]))
            wrote.set()

        def committing(*arguments):
            if threading.current_thread() is second:
                wrote.set()
                assert woken.wait(60)
            commit(*arguments)

        def meanwhile():
            while Path("r/.lock").exists():  # its beat may write there
                shutil.rmtree("r/.lock", ignore_errors=True)
            second.start()
            assert wrote.wait(60)

        second = threading.Thread(target=goes_on)
        shutil.rmtree("r", ignore_errors=True)
        monkeypatch.setattr(directory.ResultDirectory, "commit", committing)
        with before_step(step, meanwhile, kinds=("write",)) as reached:
            code = dpca("run", "c.yaml")
        woken.set()
        if not reached():
            return False
        second.join()
        said = capsys.readouterr().err
        assert (code == 2 and "r: another run has taken it over" in said) or (code == 0 and other == [2])
        assert other == [0] or (other == [2] and "r: holds a result already" in said)
        assert bits("r") == expected
        return True

    assert len(list(takewhile(slept_before, count()))) > 60


# The copy in scratch.


@pytest.fixture
def rows():
    """An input that is copied."""
    made(whole_rows)
    return "rows.yaml"


PLAIN = "import os, signal, sys, shutil\nimport dpca.methods.spans\n"
LOSING = """
import dpca.methods.decomposition, pathlib
copied = dpca.methods.decomposition._copied
def losing(source, name, copy, place, *more):
    absent = copied(source, name, copy, place, *more)
    os.remove(min(file for file in pathlib.Path(place).rglob("*") if file.is_file() and file.name != "zarr.json"))
    return absent
dpca.methods.decomposition._copied = losing
"""


@pytest.mark.parametrize(
    ("make", "gone"), [(whole_rows, "rows.zarr: c/0/0"), (sparse_rows, "rows.zarr:X: band-000000")]
)
def test_a_copy_of_which_something_is_gone_is_damage_and_is_made_again(make, gone):
    made(make)
    rows = "rows.yaml"
    whole = disturbed("", "run", rows, "--set", "output.path=whole", start=PLAIN)
    assert whole.returncode == 0, whole.stderr
    done = disturbed(LOSING, "run", rows, start=PLAIN)
    assert done.returncode == 1
    assert f"{gone} is gone from the copy that was made of it" in done.stderr
    again = disturbed("", "run", rows, "--resume", start=PLAIN)
    assert again.returncode == 0, again.stderr
    assert bits("r") == bits("whole")


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_copied_run_and_its_original_have_a_scratch_of_their_own(rows, elsewhere):
    Path("fast").mkdir()
    where = ("--set", "compute.scratch=fast") if elsewhere else ()
    stop = at_slab(3, "os.kill(os.getpid(), signal.SIGKILL)")
    assert disturbed(stop, "run", rows, *where, start=PLAIN).returncode < 0
    subprocess.run(["cp", "-a", "r", "r2"], check=True)
    folders = lambda: sorted(str(path) for path in Path().glob("**/dpca-*/copy.zarr"))  # noqa: E731
    mine = [path for path in folders() if not path.startswith("r2")]
    again = disturbed("", "run", rows, "--resume", *where, "--set", "output.path=r2", start=PLAIN)
    assert again.returncode == 0, again.stderr
    assert folders() == mine
    again = disturbed("", "run", rows, "--resume", *where, start=PLAIN)
    assert again.returncode == 0, again.stderr
    assert bits("r") == bits("r2")
    assert folders() == os.listdir("fast") == []


def test_runs_of_one_path_on_two_hosts_have_scratch_folders_of_their_own():
    one, two = (ScratchFolder.of("fast", word * 32, "/out/r") for word in "ab")
    one.make()
    assert one.path.stat().st_mode & 0o777 == 0o700
    Path(one.copy).mkdir()
    two.remove()
    # Nor does a folder go that says to be another's, or a link.
    os.symlink(one.path, two.path)
    two.remove()
    ScratchFolder(one.path, "c" * 32, "/out/r").remove()
    assert Path(one.copy).is_dir()
    one.remove()
    assert not one.path.exists()


def test_what_a_record_calls_its_scratch_is_not_removed_unless_it_is(config):
    left_by_a_kill()
    Path("victim").mkdir()
    Path("victim/file").write_text("")
    record = Path("r/ledger/run.json")
    document = json.loads(record.read_text())["document"]
    durable.write_checked(record, {**document, "scratch": str(Path("victim").absolute())})
    assert dpca("run", config, "--resume") == 0
    assert Path("victim/file").exists()


# Data that change while they are read.


def changing(slab, then="", chunk=1):
    """Rewrites a chunk while the run is at a slab, and keeps what was there; three slabs later something else happens."""
    action = f"import zarr; shutil.copy2('x.zarr/c/0/{chunk}', 'kept'); z = zarr.open_array('x.zarr', mode='r+'); "
    action += f"z.blocks[0, {chunk}] = z.blocks[0, {chunk}] + 1.0"
    later = f"\n        if len(seen) == {slab + 3}:\n            {then}" if then else ""
    return "import shutil\n" + at_slab(slab, action + later)


RESTORE = "shutil.copy2('kept', 'x.zarr/c/0/{chunk}')"
ENDS = {
    "its end": "",
    "Ctrl-C": "raise KeyboardInterrupt",
    "kill -9": "os.kill(os.getpid(), signal.SIGKILL)",
}


def restore(chunk=1):
    shutil.copy2("kept", f"x.zarr/c/0/{chunk}")


@pytest.mark.parametrize(
    ("slab", "end"), [(1, "its end"), (5, "kill -9"), (8, "Ctrl-C"), (14, "its end"), (14, "kill -9")]
)
def test_what_was_read_of_changed_data_is_not_used_when_they_are_restored(config, undisturbed, slab, end):
    done = disturbed(changing(slab, ENDS[end]), "run", config, "--set", "compute.workers=1")
    assert done.returncode in (2, 130, -signal.SIGKILL), done.stderr
    if end == "its end":
        assert "changed while it was read" in done.stderr
    restore()
    assert dpca("run", config, "--resume") == 0
    assert bits("r") == undisturbed


def test_data_that_changed_for_a_while_are_noticed_at_the_end(config, undisturbed):
    done = disturbed(changing(1, RESTORE.format(chunk=1)), "run", config, "--set", "compute.workers=1")
    assert done.returncode == 2
    assert "changed while it was read: it is now what it was at first, but was not between" in done.stderr
    assert dpca("run", config, "--resume") == 0
    assert bits("r") == undisturbed


def test_data_that_change_in_the_second_pass_do_not_cost_the_first(config, undisturbed, capsys):
    twice = "import dpca.methods.decomposition\ndpca.methods.decomposition.KeptSource = lambda source: source\n"
    what = twice + changing(11, RESTORE.format(chunk=8), chunk=8)
    done = disturbed(what, "run", config, "--set", "compute.workers=1")
    assert done.returncode == 2
    assert "x.zarr: changed while it was read: it is now what it was at first" in done.stderr
    capsys.readouterr()
    assert dpca("run", config, "--resume") == 0
    said = capsys.readouterr().err
    assert "-components/sum-10.npz: other data were read for it than are there now: it is computed again" in said
    assert "gram in double: 10 of 10 spans were finished before" in said
    assert bits("r") == undisturbed


def test_data_that_change_while_a_span_reads_them_end_the_run(config, undisturbed):
    done = disturbed(changing(1, chunk=0), "run", config, "--set", "compute.workers=1")
    assert done.returncode == 2
    assert "x.zarr: changed while it was read: region [0:12, 0:600]" in done.stderr
    restore(chunk=0)
    assert dpca("run", config, "--resume") == 0
    assert bits("r") == undisturbed


def test_only_the_span_that_read_changed_data_is_computed_again(config, undisturbed, capsys):
    done = disturbed(changing(2, ENDS["kill -9"], chunk=3), "run", config, "--set", "compute.workers=1")
    assert done.returncode == -signal.SIGKILL
    restore(chunk=3)
    capsys.readouterr()
    assert dpca("run", config, "--resume") == 0
    assert "1-gram-in-double/3.npz: other data were read for it than are there now" in capsys.readouterr().err
    assert bits("r") == undisturbed


def test_what_a_partition_read_of_changed_data_is_computed_again(config, undisturbed, capsys):
    assert dpca("batch", "init", config, "--partitions", 2) == 0
    done = disturbed(changing(2, chunk=4), "batch", "partition", "r", "--index", "0")
    assert done.returncode == 2, done.stderr
    assert "changed while it was read" in done.stderr
    (part,) = Path("r/ledger").glob("*/parts/*/4.npz")
    restore(chunk=4)
    assert dpca("batch", "finalize", "r") == 1
    assert not part.exists()
    for _ in range(4):
        for index in (0, 1):
            dpca("batch", "partition", "r", "--index", index)
        assert dpca("batch", "finalize", "r") == 0
        if Path("r/manifest.json").exists():
            break
    assert bits("r") == undisturbed


# Who comes late.


@pytest.fixture
def turned(monkeypatch):
    """Components that are made orthonormal after they were written."""
    x = random_array(0, (12, 6000), "f4")
    x[6:] = x[:6] + 1e-3 * x[6:]
    zarr.create_array("x.zarr", data=x, chunks=(12, 600))
    Path("c.yaml").write_text("input: {uri: x.zarr}\nmodel: {n_components: 10}\noutput: {path: r}\n")
    from tests.resume.disturbed import in_small_slabs

    in_small_slabs(monkeypatch)
    return "c.yaml"


def test_a_partition_that_comes_late_does_not_change_the_result(turned, monkeypatch):
    """It is held at its first write until the stage after its own has ended, and let go just before the result is declared."""
    assert dpca("run", turned, "--set", "output.path=expected") == 0
    assert json.loads(Path("expected/certificate.json").read_text())["orthogonality_before"] is not None
    names = sorted(zarr.open_group("expected/result.zarr", mode="r"))
    assert not [name for name in names if "_in_hand" in name], "of what is only on the way nothing is left"
    assert dpca("batch", "init", turned, "--partitions", 3) == 0
    go_on, at_write, failures = threading.Event(), threading.Event(), []
    write = Outputs.write_part

    def held(outputs, name, region, values):
        if threading.current_thread() is late:
            at_write.set()
            assert go_on.wait(60)
        write(outputs, name, region, values)

    def partition():
        try:
            batch.partition(Path("r"), 1, lambda _: None)
        except DpcaError as error:
            failures.append(error)

    late = threading.Thread(target=partition)
    commit = directory.ResultDirectory.commit

    def after_the_late_one(*what):
        go_on.set()
        late.join()
        commit(*what)

    monkeypatch.setattr(Outputs, "write_part", held)
    monkeypatch.setattr(directory.ResultDirectory, "commit", after_the_late_one)
    for _ in range(6):
        stage = batch.status(Path("r")).get("stage", "")
        if stage.startswith("components") and not at_write.is_set():
            late.start()
            assert at_write.wait(60)
        for index in range(3):
            dpca("batch", "partition", "r", "--index", index)
        assert dpca("batch", "finalize", "r") == 0
        if Path("r/manifest.json").exists():
            break
    assert "is gone" in str(failures[0])
    assert bits("r") == bits("expected")


@pytest.mark.parametrize("begun_anew", [False, True])
def test_a_partition_whose_run_has_ended_meanwhile_says_so(config, monkeypatch, capsys, begun_anew):
    assert dpca("batch", "init", config, "--partitions", 2) == 0
    decompose = run._decompose

    def after_the_end(*arguments):
        monkeypatch.setattr(run, "_decompose", decompose)
        if begun_anew:
            assert dpca("batch", "init", config, "--partitions", 2, "--overwrite") == 0
        else:
            shutil.rmtree("r/ledger")
        return decompose(*arguments)

    monkeypatch.setattr(run, "_decompose", after_the_end)
    assert dpca("batch", "partition", "r", "--index", "0") == LedgerError.exit_code
    assert "r: its run ended while this partition was computed" in capsys.readouterr().err


# Copies of a job array's directory, and what is wrong with its record.


def test_a_copied_job_array_goes_on_by_itself(config, undisturbed, tmp_path, capsys):
    assert dpca("batch", "init", config, "--partitions", 2) == 0
    for index in (0, 1):
        assert dpca("batch", "partition", "r", "--index", index) == 0
    subprocess.run(["cp", "-a", "r", "r2"], check=True)
    assert dpca("batch", "finalize", "r2") == 0
    assert json.loads(Path("r/ledger/batch.json").read_text())["document"]["stage"].startswith("gram")
    for index in (0, 1):
        assert dpca("batch", "partition", "r2", "--index", index) == 0
    assert dpca("batch", "finalize", "r2") == 0
    assert bits("r2") == undisturbed
    assert not Path("r/manifest.json").exists()


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"format_version": 1}', "\x00", [], {}])
def test_a_record_of_a_job_array_that_is_damaged_is_said_to_be_so(config, capsys, text):
    assert dpca("batch", "init", config, "--partitions", 2) == 0
    record = Path("r/ledger/batch.json")
    record.write_text(text) if isinstance(text, str) else durable.write_checked(record, text)
    for arguments in (("finalize", "r"), ("partition", "r", "--index", "0"), ("status", "r")):
        assert dpca("batch", *arguments) == 2
        assert "r: its batch.json can't be read" in capsys.readouterr().err


def test_a_job_array_whose_directory_is_gone_says_so(config, tmp_path, monkeypatch, capsys):
    here = tmp_path / "project"
    here.mkdir()
    shutil.move("x.zarr", here)
    shutil.move(config, here)
    monkeypatch.chdir(here)
    assert dpca("batch", "init", config, "--partitions", 2, "--set", f"output.path={tmp_path / 'r'}") == 0
    monkeypatch.chdir(tmp_path)
    shutil.rmtree(here)
    assert dpca("batch", "partition", "r", "--index", "0") == 2
    assert (
        f"r: was begun in {here}, where relative paths of its config start, but that is gone" in capsys.readouterr().err
    )


# Damage that no checksum covered.


def test_a_part_whose_zip_header_is_damaged_is_computed_again(config, undisturbed, capsys):
    left_by_a_kill()
    (part, *_) = Path("r/ledger").glob("*/parts/*/[0-9]*.npz")
    content = bytearray(part.read_bytes())
    for mark in (b"PK\x03\x04", b"PK\x01\x02"):
        at = content.find(mark)
        content[at + (6 if mark == b"PK\x03\x04" else 8)] |= 1  # "encrypted"
    part.write_bytes(content)
    assert dpca("run", config, "--resume") == 0
    assert "is damaged (RuntimeError" in capsys.readouterr().err
    assert bits("r") == undisturbed


@pytest.mark.parametrize("change", [("dimension_names", ["component", "other"]), ("attributes", {"units": "K"})])
def test_metadata_of_arrays_under_way_are_written_anew(config, undisturbed, change):
    left_by_a_kill(16)
    tiles = len(staged("*components*"))
    (path,) = Path("r/ledger").glob("*/result.zarr/components_~in_hand_of_components/zarr.json")
    key, value = change
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    assert dpca("run", config, "--resume") == 0
    assert bits("r") == undisturbed
    assert tiles > 1


# What lies where dpca keeps what is finished.


@pytest.mark.usefixtures("finished")
def test_a_link_in_the_way_of_a_transform_is_refused_and_not_followed(capsys):
    word = "0" * 64
    Path("victim", word).mkdir(parents=True)
    os.symlink("victim", ".d.zarr.partial")
    assert dpca("transform", "r", "x.zarr", "--out", "d.zarr") == 2
    assert ".d.zarr.partial: is a link, where what is finished would be kept" in capsys.readouterr().err
    assert os.listdir("victim") == [word]


@pytest.mark.usefixtures("finished")
def test_what_another_user_put_there_is_not_adopted(monkeypatch, capsys):
    Path(".d.zarr.partial").mkdir()
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert dpca("transform", "r", "x.zarr", "--out", "d.zarr") == 2
    assert ".d.zarr.partial: is another user's" in capsys.readouterr().err


@pytest.mark.usefixtures("finished")
def test_what_is_kept_of_a_transform_is_for_its_user_alone():
    what = "import dpca.methods.applying\nspan = dpca.methods.applying.Projection.slab_regions\ndef dying(*a):\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    done = disturbed(
        what + "dpca.methods.applying.Projection.slab_regions = dying\n", "transform", "r", "x.zarr", "--out", "o.zarr"
    )
    assert done.returncode < 0
    assert Path(".o.zarr.partial").stat().st_mode & 0o777 == 0o700
