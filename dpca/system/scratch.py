"""The folder of a copy of the input: it belongs to one run, and only that run removes it.

Its name has the run's random word and the place of the result, so that neither two runs, nor a run and a copy of its
directory, share one. What a record says of where it is is not believed: a file inside tells whose it is.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from dpca.errors import StorageError, writing
from dpca.system import durable

_OWNER = "dpca.json"


@dataclass(frozen=True)
class ScratchFolder:
    """A folder of a run, which may be there."""

    path: Path
    run: str
    output: str
    """The directory of the result."""

    @classmethod
    def of(cls, place: str | Path, run: str, output: str | Path) -> ScratchFolder:
        """That of a run in a directory for such folders."""
        here = str(Path(output).absolute())
        word = hashlib.sha256(here.encode()).hexdigest()[:8]
        return cls(Path(place).absolute() / f"dpca-{run}-{word}", run, here)

    @property
    def copy(self) -> str:
        """Where the copy is."""
        return str(self.path / "copy.zarr")

    def make(self) -> None:
        """Make it, for this user alone, as data may be that nobody else may read.

        Raises
        ------
        StorageError
            When it can't be made, or something else is there.
        """
        if self.path.exists() and not self.is_own:
            raise StorageError(f"{self.path}: is there already, and is not of this run", "Remove it.")
        with writing(str(self.path)):
            durable.make_directories(self.path)
            self.path.chmod(0o700)
            durable.write_json(self.path / _OWNER, self._owner)

    @property
    def is_own(self) -> bool:
        """Whether it is there, and is this run's."""
        try:
            return not self.path.is_symlink() and durable.read_json(self.path / _OWNER) == self._owner
        except (OSError, ValueError):
            return False

    def remove(self) -> None:
        """Remove it with what it holds; nothing where it is not this run's."""
        if self.is_own:
            with suppress(OSError):
                durable.remove(self.path)

    @property
    def _owner(self) -> dict[str, str]:
        return {"run": self.run, "output": self.output}
