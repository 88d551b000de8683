"""The ledger: the finished parts of a run, stored durably, so that no failure loses what was computed.

Each part of a stage is a file of its own, written by the task that computed it, whole or absent
(`dpca.system.durable`), with a checksum. Parts are added up in their order. Once the parts already added take more
than one `SHARE`-th of the data, the sum so far replaces them, and so it does at the end of a stage: the ledger holds
at most an eighth of the data (`dpca.slabs` cuts spans so that it is rarely more), or the parts in the window, two more
and two sums, if that is more.

Files are .npz, whose members carry a CRC-32; pickles are never loaded. Each file records which regions were read for
it, and their state at that time (`Source.state`): a part of data that have changed since is not used.
"""

from __future__ import annotations

import dataclasses
import json
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpca.errors import writing
from dpca.slabs import PARTIALS_SHARE
from dpca.sources.base import Region, Source
from dpca.store.packing import packed, unpacked
from dpca.system import durable, regular

T = TypeVar("T")

SHARE = PARTIALS_SHARE
"""Parts that are already added up may take one byte in so many bytes of the data."""
_PART, _SUM = re.compile(r"(\d+)\.npz"), re.compile(r"sum-(\d+)\.npz")
_SUM_OF = re.compile(r"sum-of-\d+-to-(\d+)\.npz")
"""Parts that a task has added up; they are kept until the sum of all before them is stored."""


class Damaged(Exception):
    """A file of the ledger does not hold what was written."""


@dataclass(frozen=True)
class Read:
    """A region of the input that was read to compute a part."""

    source: str
    """The name of the source's layout."""
    region: tuple[tuple[int, int], ...]
    state: str
    """The state of the region when it was read."""

    @classmethod
    def of(cls, source: Source, region: Region) -> Read | None:
        """The region in its present state; None where that is unknown."""
        state = source.state(region)
        return None if state is None else cls(source.layout.name, tuple((p.start, p.stop) for p in region), state)

    def is_of(self, sources: Sequence[Source]) -> bool:
        """Whether one of the sources has this region in the same state now; a single source may have any name."""
        region = tuple(slice(*piece) for piece in self.region)
        return any(
            source.state(region) == self.state
            for source in sources
            if len(sources) == 1 or source.layout.name == self.source
        )


@dataclass(frozen=True)
class Receipt:
    """A part that is in the ledger."""

    number: int
    damage: str | None = None
    """Damage of the arrays that its task had written, if it was computed again for that."""
    found: Any = None
    """The part itself, if this process still has it in memory; it is not pickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Receipt, (self.number, self.damage)


@dataclass(frozen=True)
class Ledger:
    """The finished parts of a run, in a directory."""

    directory: Path
    run: str
    """A random identifier of the run, so that parts of another run are never taken for its own."""
    data_bytes: int
    say: Callable[[str], None]
    """Called with a sentence about each damaged part."""

    def checkpoint(self, name: str) -> Checkpoint:
        """The finished parts of a stage. Its directory is numbered in the order in which stages began."""
        plain, begun = _plain(name), self._begun
        known = (directory for directory in begun if directory.name.partition("-")[2] == plain)
        directory = next(known, self.directory / f"{len(begun) + 1}-{plain}")
        return self._checkpoint(directory, name)

    def record(self, name: str) -> Checkpoint:
        """Knowledge about what stages have written. It is no stage: none has begun with it."""
        return self._checkpoint(self.directory / f"of-{_plain(name)}", name)

    def _checkpoint(self, directory: Path, name: str) -> Checkpoint:
        with writing(str(directory)):
            durable.make_directories(directory)
        return Checkpoint(str(directory), f"{self.run} {name}", self.data_bytes // SHARE, self.say)

    def complete(self, name: str, n_parts: int) -> bool:
        """Whether a stage is complete: there is a sum of all its parts, which may be damaged."""
        return n_parts in self.checkpoint(name).sums

    def whole(self, name: str, n_parts: int) -> bool:
        """Whether a stage is complete, and the sum of its parts intact, which is not held in memory."""
        if not self.complete(name, n_parts):
            return False
        path = self.checkpoint(name).sums[n_parts]
        if not (intact := _intact(path)):
            self.say(f"{path} is damaged: its {n_parts} parts are computed again")
        return intact

    def begun(self, *names: str) -> list[str]:
        """Those of some stages that have begun."""
        begun = {directory.name.partition("-")[2] for directory in self._begun}
        return [name for name in names if _plain(name) in begun]

    def begin_again(self, *names: str) -> None:
        """Discard all sums and parts of stages whose output is damaged, and can't be computed again in part."""
        for name in names:
            self.checkpoint(name).clear()

    def once(self, name: str, compute: Callable[[], T], like: T) -> T:
        """A value that is computed only once in a run; `like` is a value of the same types."""
        checkpoint = self.checkpoint(name)
        if checkpoint.has(0):
            try:
                return checkpoint.load(0, like)
            except Damaged as damage:
                self.say(f"{damage}: it is computed again")
        value = compute()
        checkpoint.keep(0, value)
        return value

    @property
    def _begun(self) -> list[Path]:
        """The directories of the stages, in the order in which they began."""
        numbers = {path: path.name.partition("-")[0] for path in self.directory.glob("*-*")}
        return sorted(
            (path for path, number in numbers.items() if number.isdecimal()), key=lambda path: int(numbers[path])
        )

    def stale(self, sources: Sequence[Source]) -> list[Path]:
        """The files that were computed from data that have changed since.

        Parameters
        ----------
        sources : the inputs that may have been read
        """
        is_now = cache(lambda read: read.is_of(sources))
        return [path for path in sorted(self.directory.glob("*/*.npz")) if not all(map(is_now, _reads_of(path)))]

    def forget_stale(self, sources: Sequence[Source]) -> bool:
        """Discard the parts that were computed from data that have changed since.

        Returns
        -------
        Whether the run can resume from what is left; it can't if a later stage started from a sum with such a part
        """
        stale = self.stale(sources)
        of_sums = {path.parent for path in stale if _SUM.fullmatch(path.name)}
        if of_sums - set(self._begun[-1:]):
            return False
        for path in stale:
            self.say(f"{path}: other data were read for it than are there now: it is computed again")
        for path in (*stale, *of_sums):
            durable.remove(path)
        return True

    @property
    def empty(self) -> bool:
        """Whether nothing is finished."""
        return not any(self.directory.glob("*/*.npz"))


class Checkpoint:
    """The finished parts of a stage. It is pickled to the tasks, which write what they have computed."""

    def __init__(self, directory: str, key: str, keep_bytes: int, say: Callable[[str], None]) -> None:
        self.directory, self._key, self._keep_bytes, self.say = directory, key, keep_bytes, say
        self._added_bytes = 0
        self._read_for: dict[int, Sequence[Read]] = {}
        """The regions read for each part that is not yet in a stored sum."""
        self._read_for_sum: list[Read] = []

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "say": _silent, "_read_for": {}, "_read_for_sum": []}

    def has(self, number: int) -> bool:
        """Whether a part is stored; `load` tells whether it is intact."""
        return self._path(number).exists()

    def keep(self, number: int, value: Any, reads: Sequence[Read] = ()) -> None:
        """Write a part durably, with the regions that were read for it."""
        self._write(self._path(number), value, reads)
        self._read_for[number] = reads

    def load(self, number: int, like: T) -> T:
        """Read a part."""
        value, self._read_for[number] = self._read(self._path(number), like)
        return value

    @property
    def name(self) -> str:
        """The name of the stage, as people say it."""
        return self._key.partition(" ")[2]

    def whole(self, number: int, like: Any) -> bool:
        """Whether a part is stored and intact."""
        try:
            self.load(number, like)
        except Damaged:
            return False
        return True

    def forget(self, number: int) -> None:
        """Discard a part."""
        durable.remove(self._path(number))

    def lost(self, damage: Damaged, number: int) -> None:
        """Discard a damaged part, and say so."""
        self.say(f"{damage}: it is computed again")
        durable.remove(self._path(number))

    def clear(self) -> None:
        """Discard all sums and parts of the stage."""
        for files in (self._files(_SUM), self._files(_SUM_OF), self._files(_PART)):
            for path in files.values():
                durable.remove(path)

    @property
    def n_added(self) -> int:
        """The number of parts in the stored sum."""
        return max(self.sums, default=0)

    def begin(self, empty: T) -> tuple[int, T]:
        """The number of parts in the stored sum, and that sum; 0 and `empty` if there is none."""
        for count, path in sorted(self.sums.items(), reverse=True):
            try:
                total, self._read_for_sum = self._read(path, empty)
                return count, total
            except Damaged as damage:
                self.say(f"{damage}: its {count} parts are computed again")
                durable.remove(path)
        return 0, empty

    def n_found(self, n_parts: int) -> int:
        """The number of finished parts, in the stored sum or as files of their own."""
        begin = self.n_added
        return begin + sum(begin <= number < n_parts for number in self._files(_PART))

    @property
    def sums(self) -> dict[int, Path]:
        """The stored sums, by their number of parts."""
        return self._files(_SUM)

    def has_sum_of(self, numbers: range) -> bool:
        """Whether the sum of some parts is stored."""
        return self._path_of(numbers).exists()

    def keep_sum_of(self, numbers: range, value: Any) -> None:
        """Write the sum of parts that were loaded, durably, with the regions that were read for them."""
        self._write(self._path_of(numbers), value, [read for number in numbers for read in self._read_for.pop(number)])

    def load_sum_of(self, numbers: range, like: T) -> T:
        """Read the sum of some parts."""
        path = self._path_of(numbers)
        try:
            value, reads = self._read(path, like)
        except Damaged:
            durable.remove(path)
            raise
        self._read_for |= dict.fromkeys(numbers, ()) | {numbers[-1]: reads}
        return value

    def added(self, number: int, total: Any, settled: bool, last: bool, window: int) -> None:
        """Record that a part was added; replace the parts by the sum where they are too many, or after the last.

        Parameters
        ----------
        settled : whether the sum has the part; else neighbours are added up with it first

        By the next call the window may have added as many parts as it holds; two more than those are kept in any
        case, since writing a sum costs as much as writing a part.
        """
        size = self._path(number).stat().st_size
        self._read_for_sum += self._read_for.pop(number)
        self._added_bytes += size
        few = self._added_bytes + window * size <= max(self._keep_bytes, (window + 2) * size)
        if not settled or (few and not last):
            return
        self._write(Path(self.directory) / f"sum-{number + 1}.npz", total, self._read_for_sum)
        for files, count in ((_SUM, number + 1), (_SUM_OF, number + 1), (_PART, number + 1)):
            for index, path in self._files(files).items():
                if index < count:
                    durable.DISK.unlink(path)
        self._added_bytes = 0

    def _path(self, number: int) -> Path:
        return Path(self.directory) / f"{number}.npz"

    def _path_of(self, numbers: range) -> Path:
        return Path(self.directory) / f"sum-of-{numbers[0]}-to-{numbers[-1]}.npz"

    def _files(self, kind: re.Pattern[str]) -> dict[int, Path]:
        names = {path.name: path for path in Path(self.directory).iterdir()}
        return {int(match[1]): path for name, path in names.items() if (match := kind.fullmatch(name))}

    def _write(self, path: Path, value: Any, reads: Sequence[Read]) -> None:
        key, listed = f"{self._key} {path.name}", json.dumps([dataclasses.astuple(read) for read in reads])
        with writing(str(path)):
            arrays = {**packed(value), "key": _as_bytes(key), "reads": _as_bytes(listed)}
            durable.write(path, lambda file: np.savez(file, allow_pickle=False, **arrays))

    def _read(self, path: Path, like: T) -> tuple[T, list[Read]]:
        with _opened(path) as stored:
            if stored["key"].tobytes() != f"{self._key} {path.name}".encode():
                raise Damaged(f"{path} is of another run or place")
            value: T = unpacked(like, stored)
            return value, _reads_in(stored)


@contextmanager
def _opened(path: Path) -> Iterator[Mapping[str, NDArray[Any]]]:
    """The arrays of a file, read on access; any error in reading them is raised as `Damaged`."""
    try:
        with regular.opened(path) as file, np.load(file, allow_pickle=False) as stored:
            yield stored
    except (Damaged, MemoryError):
        raise
    except Exception as cause:  # a damaged header may raise any error
        raise Damaged(f"{path} is damaged ({type(cause).__name__}: {cause})") from cause


def _plain(name: str) -> str:
    """The name of a stage in the name of its directory."""
    return re.sub(r"\W+", "-", name)


def _intact(path: Path) -> bool:
    """Whether the checksums of a file are right."""
    try:
        with regular.opened(path) as file, zipfile.ZipFile(file) as stored:
            return stored.testzip() is None
    except Exception:  # a damaged header may raise any error
        return False


def _reads_of(path: Path) -> list[Read]:
    """The regions read for a part or a sum; none if the file is damaged, which is detected when it is used."""
    try:
        with _opened(path) as stored:
            return _reads_in(stored)
    except Damaged:
        return []


def _reads_in(stored: Mapping[str, NDArray[Any]]) -> list[Read]:
    return [
        Read(source, tuple((int(start), int(stop)) for start, stop in region), state)
        for source, region, state in json.loads(stored["reads"].tobytes())
    ]


def _as_bytes(text: str) -> NDArray[np.uint8]:
    return np.frombuffer(text.encode(), np.uint8)


def _silent(sentence: str) -> None:
    pass


def held_to_keep(n_bytes: int) -> int:
    """Memory that NumPy takes to write to a file other than a plain one: a buffer of up to 16 MiB, and its copy."""
    return 2 * min(n_bytes, 2**24)
