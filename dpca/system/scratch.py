"""The folder for a copy of the input: it belongs to one run, and only that run removes it.

Its name contains the run's random word and a hash of the result's path, so that neither two runs, nor a run and a copy of
its directory, share one. A recorded path alone is not trusted: a file inside names the owner.
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
    """The scratch folder of a run, which may exist."""

    path: Path
    run: str
    output: str
    """The directory of the result."""

    @classmethod
    def of(cls, place: str | Path, run: str, output: str | Path) -> ScratchFolder:
        """The folder of a run, inside the directory `place`."""
        here = str(Path(output).absolute())
        word = hashlib.sha256(here.encode()).hexdigest()[:8]
        return cls(Path(place).absolute() / f"dpca-{run}-{word}", run, here)

    @property
    def copy(self) -> str:
        """Path of the copy."""
        return str(self.path / "copy.zarr")

    def make(self) -> None:
        """Make it, with access for this user alone, since the data may be confidential."""
        if self.path.exists() and not self.is_own:
            raise StorageError(f"{self.path}: is there already, and is not of this run", "Remove it.")
        with writing(str(self.path)):
            durable.make_own(self.path, "a copy of the input", "Remove it.")
            durable.write_json(self.path / _OWNER, self._owner)

    @property
    def is_own(self) -> bool:
        """Whether it exists, and belongs to this run."""
        try:
            return not self.path.is_symlink() and durable.read_json(self.path / _OWNER) == self._owner
        except (OSError, ValueError):
            return False

    def remove(self) -> None:
        """Remove it with its content, if it belongs to this run."""
        if self.is_own:
            with suppress(OSError):
                durable.remove(self.path)

    @property
    def _owner(self) -> dict[str, str]:
        return {"run": self.run, "output": self.output}
