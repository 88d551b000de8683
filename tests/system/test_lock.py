"""One run at a time, also where several wait."""

import errno
import json
import os
import re
import socket
import threading
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from dpca.errors import LockedError, OutputExistsError
from dpca.system import lock as system_lock
from dpca.system.lock import Lock
from tests.stores import LINKS


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(system_lock, "STALE_SECONDS", 0.5)
    monkeypatch.setattr(system_lock, "BEAT_SECONDS", 0.05)
    monkeypatch.setattr(system_lock, "POLL_SECONDS", 0.02)


@pytest.fixture(params=LINKS)
def disk(request, monkeypatch):
    monkeypatch.setattr(os, "link", LINKS[request.param])


def stranger(path, number, owner="a stranger"):
    """The lock of a process on another host."""
    (path / ".lock").mkdir(exist_ok=True)
    content = {"owner": owner, "count": 3, "host": "elsewhere", "pid": 1, "boot": "another"}
    (path / ".lock" / f"lock.{number}").write_text(json.dumps(content))


class Once:
    """An event that is awaited in vain, once."""

    def __init__(self):
        self.waited = False

    def wait(self, seconds):
        waited, self.waited = self.waited, True
        return waited


def gone(*pid):
    """psutil.Process, where no other process is there."""
    if pid:
        raise psutil.NoSuchProcess(*pid)
    return psutil.Process(os.getpid())


def another_boot(path, **_):
    return "another"


ELSEWHERE = {
    "another host": ("dpca.system.lock.socket.gethostname", lambda: "elsewhere"),
    "another boot": ("dpca.system.lock.Path.read_text", another_boot),
    "another container": ("dpca.system.lock.os.readlink", lambda path: "pid:[1]"),
}


@pytest.mark.parametrize("place", ELSEWHERE)
def test_an_owner_whose_process_can_not_be_seen_from_here_is_not_dead(tmp_path, monkeypatch, place):
    holder = Lock(tmp_path)
    holder.acquire()
    monkeypatch.setattr(*ELSEWHERE[place])
    monkeypatch.setattr(system_lock, "psutil", SimpleNamespace(**{**vars(psutil), "Process": gone}))
    with pytest.raises(LockedError):
        Lock(tmp_path).acquire()
    assert holder.held()
    holder.release()


def reused(*pid):
    """psutil.Process, where the numbers of others have gone to processes that began later."""
    process = psutil.Process(os.getpid())
    began = process.create_time() + 3600 * bool(pid)
    return SimpleNamespace(create_time=lambda: began, status=process.status)


@pytest.mark.parametrize("process", [gone, reused])
def test_nobody_waits_for_an_owner_that_was_killed_here(tmp_path, monkeypatch, process):
    def waiting(seconds):
        raise AssertionError("it is waited for")

    killed, other = Lock(tmp_path), Lock(tmp_path)
    killed.acquire()
    killed._ended.set()
    monkeypatch.setattr(system_lock, "psutil", SimpleNamespace(**{**vars(psutil), "Process": process}))
    monkeypatch.setattr(system_lock.time, "sleep", waiting)
    other.acquire()
    assert other.held()
    other.release()


@pytest.mark.usefixtures("disk")
def test_a_lock_that_moves_is_kept_and_one_that_does_not_is_taken_over(tmp_path):
    first, second = Lock(tmp_path), Lock(tmp_path)
    first.acquire()
    with pytest.raises(LockedError, match="a run is going on there, in process"):
        second.acquire()
    with pytest.raises(
        LockedError,
        match=rf"^s\.zarr: another command is writing it, process {os.getpid()} on {re.escape(socket.gethostname())}\n.*another --out\.$",
    ):
        Lock(tmp_path, Path("s.zarr")).acquire()
    first.release()
    assert not (tmp_path / ".lock").exists()
    stranger(tmp_path, 7)
    second.acquire()
    assert [path.name for path in (tmp_path / ".lock").glob("lock.*")] == ["lock.8"]
    second.release()
    assert not (tmp_path / ".lock").exists()


def test_a_directory_that_may_not_be_written(tmp_path, monkeypatch):
    def refused(path, **how):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(type(tmp_path), "mkdir", refused)
    with pytest.raises(
        OutputExistsError, match="may not be written: Permission denied\n.*another output.path"
    ) as caught:
        Lock(tmp_path / "r").acquire()
    assert (caught.value.exit_code, caught.value.key) == (2, "output.path")


def test_an_owner_that_slept_finds_out_and_takes_nothing_back(tmp_path):
    """Also where numbers began anew meanwhile, so that the one in its place has its own."""
    slept, other = Lock(tmp_path), Lock(tmp_path)
    slept.acquire()
    slept._ended.set()  # it sleeps
    stranger(tmp_path, 1, owner=slept._owner)
    other.acquire()
    assert not slept.held()
    assert slept.lost
    with pytest.raises(LockedError, match="another run has taken it over"):
        slept.check()
    slept.release()
    assert other.held()
    other.release()
    third = Lock(tmp_path)
    third.acquire()  # number 1 again
    late = Lock(tmp_path)
    late._number, late._lost = 1, False
    assert not late.held()
    late.release()
    assert third.held()
    third.release()


def test_an_owner_that_slept_ends_where_the_next_lock_can_not_be_read_yet(tmp_path):
    """As over a network file system that knows the name before the content."""
    slept = Lock(tmp_path)
    slept.acquire()
    (tmp_path / ".lock" / "lock.2").write_text("")
    assert not slept.held()
    slept.release()
    assert {path.name for path in (tmp_path / ".lock").iterdir()} == {"lock.1", "lock.2"}


def test_an_owner_that_never_saw_that_it_was_followed_removes_no_lock_of_another(tmp_path):
    """It slept from its last look until its end, and numbers began anew meanwhile."""
    slept = Lock(tmp_path)
    slept.acquire()
    slept._ended.set()  # it sleeps
    stranger(tmp_path, 1)
    slept.release()
    assert [path.name for path in (tmp_path / ".lock").iterdir()] == ["lock.1"]


def test_an_owner_that_was_followed_writes_no_more_into_a_lock(tmp_path):
    """Its own number may be another's by then."""
    slept = Lock(tmp_path)
    slept.acquire()
    slept._ended.set()  # it sleeps ...
    stranger(tmp_path, 1)
    content = (tmp_path / ".lock" / "lock.1").read_text()
    slept._ended = Once()
    slept._beat()  # ... and wakes up
    assert (tmp_path / ".lock" / "lock.1").read_text() == content


def test_one_who_waits_leaves_a_directory_to_another_that_took_over_first(tmp_path, monkeypatch):
    """Also where the lock of that one can't be read yet."""
    stranger(tmp_path, 1)
    monkeypatch.setattr(system_lock.time, "sleep", lambda seconds: (tmp_path / ".lock" / "lock.2").write_text(""))
    with pytest.raises(LockedError):
        Lock(tmp_path).acquire()


@pytest.mark.usefixtures("disk")
def test_a_newcomer_that_began_while_another_waited_is_not_pushed_aside(tmp_path):
    holder, waiter, newcomer = Lock(tmp_path), Lock(tmp_path), Lock(tmp_path)
    holder.acquire()
    make, moves = waiter._make, waiter._moves

    def gone(*_):  # the holder does not move: the waiter makes the next number ...
        waiter._moves = moves
        return False

    def slowly(number):  # ... while the holder ends, and another begins at 1
        waiter._make = make
        holder.release()
        newcomer.acquire()
        return make(number)

    waiter._make, waiter._moves = slowly, gone
    with pytest.raises(LockedError):
        waiter.acquire()
    assert newcomer.held()
    newcomer.release()


@pytest.mark.usefixtures("disk")
def test_of_many_that_want_it_at_once_one_has_it(tmp_path):
    locks, got = [Lock(tmp_path) for _ in range(6)], []
    barrier = threading.Barrier(len(locks))

    def take(lock):
        barrier.wait()
        try:
            lock.acquire()
        except LockedError:
            return
        got.append(lock)

    threads = [threading.Thread(target=take, args=(lock,)) for lock in locks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [lock for lock in got if lock.held()] == got
    assert len(got) == 1
    got[0].release()


def test_what_owners_that_were_killed_left_is_removed(tmp_path):
    stranger(tmp_path, 1)
    Path(tmp_path, ".lock", ".lock.1.abc.partial").write_text("{")
    lock = Lock(tmp_path)
    lock.acquire()
    lock.release()
    assert not (tmp_path / ".lock").exists()


def test_a_file_in_the_place_of_the_lock(tmp_path):
    (tmp_path / ".lock").write_text("mine")
    with pytest.raises(OutputExistsError, match=r"\.lock: is a file"):
        Lock(tmp_path).acquire()


def test_a_link_is_no_place_for_a_lock(tmp_path):
    """Also one that came while the lock was held: files behind it stay."""
    behind = tmp_path / "behind"
    behind.mkdir()
    (behind / ".x.partial").touch()
    (tmp_path / ".lock").symlink_to(behind)
    with pytest.raises(OutputExistsError, match=r"\.lock: is a link, where dpca writes and removes files of its own\n"):
        Lock(tmp_path).acquire()
    (tmp_path / ".lock").unlink()
    lock = Lock(tmp_path)
    lock.acquire()
    (tmp_path / ".lock" / "lock.1").rename(behind / "lock.1")
    (tmp_path / ".lock").rmdir()
    (tmp_path / ".lock").symlink_to(behind)
    lock.release()
    assert {path.name for path in behind.iterdir()} >= {".x.partial", "lock.1"}


def test_an_owner_is_named_also_where_a_system_has_no_proc(tmp_path, monkeypatch):
    def absent(path):
        raise FileNotFoundError(path)

    monkeypatch.setattr("dpca.system.lock.os.readlink", absent)
    holder = Lock(tmp_path)
    holder.acquire()
    with pytest.raises(LockedError, match=f"in process {os.getpid()} on {re.escape(socket.gethostname())}"):
        Lock(tmp_path).acquire()
    holder.release()
