"""A machine that loses power: what was not flushed is lost, kept, or half there.

Nothing of dpca is replaced. At each call of os.fsync a directory is looked at as it is, and what that call flushes is on
the disk from then on: of a directory its names, of a file its content. So a flush that is missing is missed, and whatever
makes, renames or deletes something is seen, zarr as well as dpca.
"""

import ast
import os
import re
import shutil
import threading
import types
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from dpca.system import durable

RANDOM_WORD = re.compile("[0-9a-f]{32}")
"""What names differ by from run to run; what is drawn does not depend on it."""


@contextmanager
def unflushed():
    """Nothing waits for the disk: for runs whose power stays on."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda number: None)
        yield


@contextmanager
def watched(place):
    """What is flushed in a directory meanwhile, as `Power`."""
    power = Power(place)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", power.fsync)
        try:
            yield power
        finally:
            power.end()


@dataclass(frozen=True)
class Moment:
    """What a directory holds, and what of it is on the disk for certain. Files and directories are known by their inodes."""

    names: dict[int, dict[str, int]]
    """In each directory."""
    flushed_names: dict[int, dict[str, int]]
    flushed_files: frozenset[int]


class Power:
    """The moments at which power may be lost: before each flush, and after all.

    Parameters
    ----------
    place : the directory that is looked at; what is in it at first is on the disk. Locks in it are not seen: they do not outlive
        their process
    """

    def __init__(self, place):
        self._place, self._lock = Path(place).absolute(), threading.Lock()
        # Every file that ever was there stays here, with its content, and directories stay open, so no inode is used again.
        self._kept = self._place.with_name(f"kept-{os.urandom(4).hex()}")
        self._kept.mkdir()
        self._files, self._directories = set(), {}
        self._root = os.stat(self._place).st_ino
        self._flushed_names, self._flushed_files = self._look(), frozenset(self._files)
        self.moments = []

    def fsync(self, number):
        """In the place of os.fsync."""
        with self._lock:
            self._pass()
            flushed, names = os.fstat(number).st_ino, self.moments[-1].names
            if flushed in names:
                self._flushed_names = {**self._flushed_names, flushed: names[flushed]}
            else:
                self._flushed_files |= {flushed}

    def end(self):
        self._pass()
        for number in self._directories.values():
            os.close(number)
        self._contents = {int(path.name): path.read_bytes() for path in self._kept.iterdir()}
        shutil.rmtree(self._kept)

    def _pass(self):
        self.moments.append(Moment(self._look(), self._flushed_names, self._flushed_files))

    def _look(self):
        names, left = {}, [(self._root, self._place)]
        for inode, directory in left:
            names[inode] = {}
            with suppress(FileNotFoundError), os.scandir(directory) as entries:
                for entry in entries:
                    if entry.name != ".lock" and self._is_kept(entry):
                        names[inode][entry.name] = entry.inode()
                        if entry.is_dir():
                            left.append((entry.inode(), entry.path))
        return names

    def _is_kept(self, entry):
        """Keep what is there from being forgotten; False where another thread has just removed it."""
        inode = entry.inode()
        try:
            if entry.is_dir() and inode not in self._directories:
                self._directories[inode] = os.open(entry.path, os.O_RDONLY)
            elif not entry.is_dir() and inode not in self._files:
                os.link(entry.path, self._kept / str(inode))
                self._files.add(inode)
        except FileNotFoundError:
            return False
        return True

    def left(self, moment, seed):
        """What is found after power was lost: the content of each file by its path in the place, and None of each directory.

        Parameters
        ----------
        moment : when, of `moments`
        seed : 0 loses all changes of names and all contents that were not flushed; 1 keeps all; others draw what is kept, and
            how much of a content. A rename is lost or kept whole, unless one of its two directories was flushed
        """
        left, kept = {}, {}
        likely = seed if seed < 2 else Random(seed).uniform(0.1, 0.9)

        def drawn(path):
            return Random(f"{seed} {RANDOM_WORD.sub('', path)}")

        def part(content, draw):
            end = round(len(content) * (seed if seed < 2 else draw.choice((0, draw.random(), 1))))
            return content[:end] + bytes((len(content) - end) * (seed > 1 and draw.random() < 0.3))

        def walk(path, inode):
            before, now = moment.flushed_names.get(inode, {}), moment.names.get(inode, {})
            for name in sorted(before.keys() | now.keys()):
                here, old, found = path + name, before.get(name), now.get(name)
                if found != old and not kept.setdefault(found or old, drawn(here).random() < likely):
                    found = old
                if found in self._directories:
                    left[here] = None
                    walk(here + "/", found)
                elif found:
                    content = self._contents[found]
                    left[here] = content if found in moment.flushed_files else part(content, drawn(here))

        walk("", self._root)
        return left

    def restart(self, left):
        """Have in the place what was found."""
        shutil.rmtree(self._place)
        self._place.mkdir()
        for path, content in left.items():
            if content is None:
                (self._place / path).mkdir()
            else:
                (self._place / path).write_bytes(content)


def _flushes():
    """The source of `durable`, and the statements in it that flush, by the functions they are in."""
    tree = ast.parse(Path(durable.__file__).read_text())
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    calls = [
        (function.name, node) for function in functions for node in ast.walk(function) if isinstance(node, ast.Expr)
    ]
    return tree, {
        f"{name}: {ast.unparse(node)}": node
        for name, node in calls
        if isinstance(node.value, ast.Call) and getattr(node.value.func, "attr", "") in ("fsync", "flush_path")
    }


FLUSHES = list(_flushes()[1])
"""Every flush that `durable` makes."""


@contextmanager
def without(flush):
    """`durable` without one of its flushes."""
    tree, flushes = _flushes()
    flushes[flush].value = ast.copy_location(ast.Constant(None), flushes[flush])
    mutant = types.ModuleType(durable.__name__)
    exec(compile(tree, durable.__file__, "exec"), mutant.__dict__)
    with pytest.MonkeyPatch.context() as patch:
        for name in (
            vars(durable).keys() - vars(types.ModuleType("")).keys() - {"__file__", "__cached__", "__builtins__"}
        ):
            patch.setattr(durable, name, getattr(mutant, name))
        yield
