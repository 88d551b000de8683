"""A disk that loses power: what was not flushed is gone, or half there, and nothing happens after."""

import shutil
import tempfile
from pathlib import Path

from dpca import durable


class Crash(BaseException):
    """The machine is off."""


class Hasty(durable.Disk):
    """Never waits for the disk: for runs whose power stays on."""

    def write(self, path, save):
        with open(path, "xb") as file:
            save(file)

    def flush_directory(self, path):
        pass


class FailingDisk(durable.Disk):
    """Does what a disk does until a step, and then what is left of it.

    Parameters
    ----------
    step : the step at which power is lost; each has up to three: before it, within it, after it but before a flush
    keep : whether names that were not flushed are found again all the same; what files hold that were not, is half
    """

    def __init__(self, step, keep):
        self.left, self.keep, self.off = step, keep, False
        self._undo = {}
        self._saved = Path(tempfile.mkdtemp())

    def close(self):
        shutil.rmtree(self._saved, ignore_errors=True)

    def _pass(self):
        if self.off:
            raise Crash
        self.left -= 1
        if self.left < 0:
            self.off = True
            self._lose()
            raise Crash

    def _lose(self):
        """Names that were not flushed: as they were before, the last change first."""
        changes = sorted((change for changes in self._undo.values() for change in changes), key=lambda c: -c[0])
        for _, undo in changes:
            if not self.keep:
                undo()

    def _changed(self, directory, undo):
        number = sum(map(len, self._undo.values()))
        self._undo.setdefault(Path(directory), []).append((number, undo))

    def _save(self, path):
        """A copy of what is at a path, to be put back."""
        copy = self._saved / str(len(list(self._saved.iterdir())))
        if path.is_dir():
            shutil.copytree(path, copy)
        elif path.exists():
            shutil.copy(path, copy)
        else:
            return lambda: _remove(path)
        return lambda: (_remove(path), path.parent.is_dir() and _copy(copy, path))

    def write(self, path, save):
        self._pass()
        self._changed(path.parent, lambda: _remove(path))
        with open(path, "xb") as file:
            save(file)
        if self.left == 0:  # within: written, not flushed
            content = path.read_bytes()
            path.write_bytes(content[: len(content) // 2])
        self._pass()

    def rename(self, source, target):
        self._pass()
        put_back, is_directory = self._save(target), source.is_dir()
        super().rename(source, target)

        def undo():
            if target.exists():
                (_copytree if is_directory else shutil.copy)(target, source)
            put_back()

        self._changed(target.parent, undo)
        self._pass()

    def unlink(self, path):
        self._pass()
        undo = self._save(path)
        super().unlink(path)
        self._changed(path.parent, undo)
        self._pass()

    def make_directory(self, path):
        self._pass()
        if not path.exists():
            super().make_directory(path)
            self._changed(path.parent, lambda: _remove(path))
        self._pass()

    def remove_tree(self, path):
        self._pass()
        undo = self._save(path)
        if self.left == 0:  # within: some of it is gone
            for number, file in enumerate(sorted(path.rglob("*"))):
                if file.is_file() and number % 2:
                    file.unlink()
            self._pass()
        super().remove_tree(path)
        self._changed(path.parent, undo)
        self._pass()

    def flush_directory(self, path):
        self._pass()
        if not path.is_dir():
            raise FileNotFoundError(path)
        self._undo.pop(Path(path), None)
        self._pass()


def _remove(path):
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _copytree(source, target):
    shutil.copytree(source, target, dirs_exist_ok=True)


def _copy(source, target):
    (_copytree if source.is_dir() else shutil.copy)(source, target)
