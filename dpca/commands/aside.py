"""Output that appears complete or not at all: it is built in a directory beside its place, where a repeated command resumes."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import zarr

from dpca.errors import DataError, DpcaError, LockedError, OutputExistsError, StorageError, writing
from dpca.execution.progress import Progress
from dpca.planning.runplan import RunPlan
from dpca.settings import Setting
from dpca.sources import Source
from dpca.store.directory import DERIVED, ResultDirectory, kind_at
from dpca.store.ledger import Ledger
from dpca.store.results import Result
from dpca.store.unfinished import NUMERICS
from dpca.system import durable
from dpca.system.lock import Lock
from dpca.system.signals import Stopped

_WORD = re.compile(r"[0-9a-f]{64}")
"""The names of directories with finished work."""
_GO_ON = "What is finished is kept: the same command again goes on from there."


class Aside:
    """A directory beside the output: finished parts stay there, so that the same command can resume."""

    def __init__(self, out: Path) -> None:
        self.path = self._work = out.with_name(f".{out.name}.partial")

    @property
    def word(self) -> str:
        """Word that tells this command from others that write to the same place."""
        return self._work.name[:32]

    @property
    def arrays(self) -> Path:
        return self._work / "arrays"

    def begin(
        self,
        what: dict[str, Any],
        plans: Sequence[RunPlan | None],
        n_bytes: int,
        progress: Progress,
        sources: Sequence[Source],
    ) -> Ledger:
        """Resume what the same command has left, if plan and data are the same; else begin anew."""
        cuts = [
            {"plan": asdict(plan.plan), "groups": asdict(plan.groups) if plan.groups else None}
            for plan in plans
            if plan is not None
        ]
        word = durable.digest({**what, "plans": cuts, "numerics": NUMERICS})
        # A folder of its own, so that late tasks of another command on a cluster do not write to it.
        self._work = self.path / word
        with writing(str(self.path)):
            self.path.chmod(0o700)  # the contents are trusted
            for other in self.path.glob("*"):
                if other != self._work and _WORD.fullmatch(other.name):
                    durable.remove(other)
            durable.make_directories(self.arrays)
            durable.remove_partials(self._work)
        ledger = Ledger(self._work / "parts", word, n_bytes, progress.say)
        if ledger.forget_stale(sources):
            return ledger
        self.forget()
        return self.begin(what, plans, n_bytes, progress, sources)

    def check_own(self) -> None:
        """Refuse a place that is a link, or another user's: its contents are trusted as this command's own."""
        durable.check_own(self.path, "what is finished", "Remove it, or choose another --out.")

    def leave(self, above: list[Path]) -> None:
        """Remove the directory, and those above that were made for it, unless they hold something."""
        for directory in (self.path, *above):
            with suppress(OSError):
                durable.DISK.remove_directory(directory)

    @property
    def worth_keeping(self) -> bool:
        """Whether any part is finished."""
        return any(self._work.glob("parts/*/*.npz"))

    def forget(self) -> None:
        """Discard what is finished."""
        if self._work != self.path:
            durable.remove(self._work)


@contextmanager
def building(out: Path, overwrite: bool, others: list[Path], named: str | Setting = "--out") -> Iterator[Aside]:
    """A directory beside `out` to build in; on success what was built is renamed to `out`.

    Parameters
    ----------
    named : the key or the option that sets the path, for messages
    """
    ResultDirectory(out).check_name(named, exports=named == "--out")
    out = Path(os.path.abspath(out))
    for other in map(Path.resolve, others):
        place = out.resolve()
        if place == other or place in other.parents or other in place.parents:
            raise OutputExistsError(
                f"{out}: is, holds or lies in {other}, which is read", f"Choose another {named}.", named
            )
    _check_free(out, overwrite, named)
    ResultDirectory(out.parent).check_place(named)
    aside = Aside(out)
    missing = [parent for parent in aside.path.parents if not parent.exists()]
    lock = Lock(aside.path, out)
    aside.check_own()
    try:
        lock.acquire()
        with durable.asking(lock.check):
            aside.check_own()
            _check_free(out, overwrite, named)  # another command may have ended since
            yield aside
            with writing(str(out)):
                durable.remove_partials(aside.arrays)  # left by workers that were killed while they wrote
                # What was there stays whole until what was built has its name.
                replaced = aside.path / "replaced"
                durable.remove(replaced)
                if os.path.lexists(out):
                    durable.move(out, replaced)
                durable.move(aside.arrays, out)
                durable.remove(replaced)
            aside.forget()
        lock.release()
        aside.leave([])
    except LockedError:
        raise
    except BaseException as error:
        # Who took over has removed what this one wrote.
        if isinstance(error, (StorageError, OSError)) and not lock.held():
            raise LockedError(*lock.taken_over) from error
        kept = aside.worth_keeping
        if not kept and lock.held():
            aside.forget()
        lock.release()
        if not kept:
            aside.leave(missing)
        elif isinstance(error, Stopped):
            error.remedy = _GO_ON
        elif isinstance(error, DpcaError):
            raise error.saying(error.marked_message, f"{error.marked_remedy} {_GO_ON}".strip()) from error.__cause__
        raise


def _check_free(out: Path, overwrite: bool, named: str | Setting) -> None:
    """Refuse a path that holds something that may not be replaced."""
    if not os.path.lexists(out) or (overwrite and _is_ours(out)):
        return
    raise OutputExistsError(
        f"{out}: exists already" + ("" if _is_ours(out) else ", and dpca did not write it"),
        f"Choose another {named}" + (", or replace it with --overwrite." if _is_ours(out) else "."),
        named,
    )


def _is_ours(path: Path) -> bool:
    """Whether the path holds the output of a transform or a reconstruction, or derived analyses."""
    if kind_at(path) == DERIVED:
        return True
    try:
        return "result" in zarr.open_group(str(path), mode="r").attrs
    except (OSError, ValueError, KeyError):
        return False


@contextmanager
def forgetting(aside: Aside) -> Iterator[None]:
    """Discard the finished parts if the data changed while they were read."""
    try:
        yield
    except DataError:
        aside.forget()
        raise


def check_same_fit(fit: Result, aside: Aside) -> None:
    """Refuse output that was computed from a result that was replaced meanwhile."""
    try:
        fit.check_still()
    except DataError:
        aside.forget()
        raise
