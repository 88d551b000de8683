"""The finished parts of a run, durable: what was computed once is found again after any failure.

A stage's parts are files of their own, written by the task that computed them, whole or absent
(`dpca.system.durable`), with a checksum. They are added up in their order. Where those that are added already take more
than `SHARE` of the data, the sum so far is written in their place, and so at the end of a stage: the ledger holds
at most an eighth of the data (`dpca.slabs` cuts spans so that it is rarely more), or what is in the window and two
sums, if that is more.

Files are .npz, whose members carry a CRC-32; pickles are never loaded. Each says what was read for it, and the state in
which that was (`Source.state`): parts of data that were others for a while are not taken for parts of what is there now.
"""

from __future__ import annotations

import dataclasses
import json
import re
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
from dpca.system import durable

T = TypeVar("T")

SHARE = PARTIALS_SHARE
"""Parts that are added up already may take this fraction of the data, one in so many bytes."""
_PART, _SUM = re.compile(r"(\d+)\.npz"), re.compile(r"sum-(\d+)\.npz")


class Damaged(Exception):
    """A file of the ledger is not what was written."""


@dataclass(frozen=True)
class Read:
    """A region that was read for a part."""

    source: str
    """The name of its layout."""
    region: tuple[tuple[int, int], ...]
    state: str
    """In which it was then."""

    @classmethod
    def of(cls, source: Source, region: Region) -> Read | None:
        """In the state that it is in now; None where nothing tells."""
        state = source.state(region)
        return None if state is None else cls(source.layout.name, tuple((p.start, p.stop) for p in region), state)

    def is_of(self, sources: Sequence[Source]) -> bool:
        """Whether it would be read in the same state now, of one of several sources; of a single one, whatever it is called."""
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
    """What was wrong with what its task had written besides, for which it was done again."""
    found: Any = None
    """The part itself, where it is in this process's memory still; it does not travel."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Receipt, (self.number, self.damage)


@dataclass(frozen=True)
class Ledger:
    """The finished parts of a run, in a directory."""

    directory: Path
    run: str
    """A random word of this run, so that parts of another are never taken for its own."""
    data_bytes: int
    say: Callable[[str], None]
    """Told of damaged parts."""

    def checkpoint(self, name: str) -> Checkpoint:
        """The finished parts of a stage. The name of its directory says as the how many-th it began."""
        plain, begun = re.sub(r"\W+", "-", name), self._begun
        known = (directory for directory in begun if directory.name.partition("-")[2] == plain)
        directory = next(known, self.directory / f"{len(begun) + 1}-{plain}")
        with writing(str(directory)):
            durable.make_directories(directory)
        return Checkpoint(str(directory), f"{self.run} {name}", self.data_bytes // SHARE, self.say)

    def once(self, name: str, compute: Callable[[], T], like: T) -> T:
        """A value that is computed once in a run; `like` has its types."""
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
        """The directories of stages, in the order in which these began."""
        numbers = {path: path.name.partition("-")[0] for path in self.directory.glob("*-*")}
        return sorted(
            (path for path, number in numbers.items() if number.isdecimal()), key=lambda path: int(numbers[path])
        )

    def stale(self, sources: Sequence[Source]) -> list[Path]:
        """The files for which something else was read than there is now.

        Parameters
        ----------
        sources : what may have been read
        """
        is_now = cache(lambda read: read.is_of(sources))
        return [path for path in sorted(self.directory.glob("*/*.npz")) if not all(map(is_now, _reads_of(path)))]

    def forget_stale(self, sources: Sequence[Source]) -> bool:
        """Give up the parts for which something else was read than there is now.

        Returns
        -------
        Whether what is left can be gone on with; else such a part is in a sum that a later stage began with
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
    """The finished parts of a stage. Travels to tasks, which keep what they have computed."""

    def __init__(self, directory: str, key: str, keep_bytes: int, say: Callable[[str], None]) -> None:
        self._directory, self._key, self._keep_bytes, self.say = directory, key, keep_bytes, say
        self._added_bytes = 0
        self._read_for: dict[int, Sequence[Read]] = {}
        """Of each part that is there and not in a sum."""
        self._read_for_sum: list[Read] = []

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "say": _silent, "_read_for": {}, "_read_for_sum": []}

    def has(self, number: int) -> bool:
        """Whether a part is there; `load` says whether it is whole."""
        return self._path(number).exists()

    def keep(self, number: int, value: Any, reads: Sequence[Read] = ()) -> None:
        """Write a part durably, and what was read for it."""
        self._write(self._path(number), value, reads)
        self._read_for[number] = reads

    def load(self, number: int, like: T) -> T:
        """Read a part.

        Raises
        ------
        Damaged
            When it is not what was written.
        """
        value, self._read_for[number] = self._read(self._path(number), like)
        return value

    @property
    def name(self) -> str:
        """As people say it."""
        return self._key.partition(" ")[2]

    def whole(self, number: int, like: Any) -> bool:
        """Whether a part is there and what was written."""
        try:
            self.load(number, like)
        except Damaged:
            return False
        return True

    def forget(self, number: int) -> None:
        """Give up a part."""
        durable.remove(self._path(number))

    def lost(self, damage: Damaged, number: int) -> None:
        """Give up a part that is damaged."""
        self.say(f"{damage}: it is computed again")
        durable.remove(self._path(number))

    def clear(self) -> None:
        """Forget what is finished."""
        for files in (self._files(_SUM), self._files(_PART)):
            for path in files.values():
                durable.remove(path)

    @property
    def n_added(self) -> int:
        """How many parts are in a sum that is kept."""
        return max(self._files(_SUM), default=0)

    def begin(self, empty: T) -> tuple[int, T]:
        """How many parts are added up in a sum that is kept, and that sum; 0 and `empty` if there is none."""
        for count, path in sorted(self._files(_SUM).items(), reverse=True):
            try:
                total, self._read_for_sum = self._read(path, empty)
                return count, total
            except Damaged as damage:
                self.say(f"{damage}: its {count} parts are computed again")
                durable.remove(path)
        return 0, empty

    def n_found(self, n_parts: int) -> int:
        """How many parts are finished, in a sum or on their own."""
        begin = max(self._files(_SUM), default=0)
        return begin + sum(begin <= number < n_parts for number in self._files(_PART))

    def complete(self, n_parts: int) -> bool:
        """Whether all parts are added up."""
        return n_parts in self._files(_SUM)

    def added(self, number: int, total: Any, last: bool, window: int) -> None:
        """Count a part that was added to the sum; write the sum in place of the parts where they are many, or the last.

        As many parts as are in the window may be there besides by the time of the next; two more than those stay in any
        case, since to write a sum costs as much as a part.
        """
        size = self._path(number).stat().st_size
        self._read_for_sum += self._read_for.pop(number)
        self._added_bytes += size
        if not last and self._added_bytes + window * size <= max(self._keep_bytes, (window + 2) * size):
            return
        self._write(Path(self._directory) / f"sum-{number + 1}.npz", total, self._read_for_sum)
        for files, count in ((_SUM, number + 1), (_PART, number + 1)):
            for found, path in self._files(files).items():
                if found < count:
                    durable.DISK.unlink(path)
        self._added_bytes = 0

    def _path(self, number: int) -> Path:
        return Path(self._directory) / f"{number}.npz"

    def _files(self, kind: re.Pattern[str]) -> dict[int, Path]:
        names = {path.name: path for path in Path(self._directory).iterdir()}
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
    """The arrays of a file, which are read when they are asked for; whatever is wrong with them is damage."""
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as stored:
            yield stored
    except (Damaged, MemoryError):
        raise
    except Exception as cause:  # a header may say anything at all
        raise Damaged(f"{path} is damaged ({type(cause).__name__}: {cause})") from cause


def _reads_of(path: Path) -> list[Read]:
    """What was read for a part or a sum; nothing where it is damaged, which is found when it is used."""
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
    """Bytes that NumPy holds to write so many into a file that is no plain one: a buffer of 16 MiB, and a copy of it."""
    return 2 * min(n_bytes, 2**24)


def packed(value: Any, name: str = "value") -> dict[str, NDArray[Any]]:
    """A number, an array, or a dataclass of them, as arrays by name. Names with an underscore are left out.

    The numbers of a dataclass are one array of integers and one of floats, since a file holds an array at the cost of 300 bytes.
    Fields with `symmetric` in their metadata are there as the rows of their upper triangle, in bands: half the bytes, and no copy.
    """
    if not dataclasses.is_dataclass(value):
        return {name: np.asarray(value)}
    found: dict[str, NDArray[Any]] = {
        f"{name}.{kind}": np.array([getattr(value, field) for field in fields], dtype)
        for (kind, dtype), fields in _numbers(value).items()
    }
    for field in _fields(value):
        part, key = getattr(value, field.name), f"{name}.{field.name}"
        if _is_number(part):
            continue
        if "symmetric" in field.metadata:
            found |= {f"{key}.{band.start}": part[band, band.start :] for band in _bands(len(part))}
        else:
            found |= packed(part, key)
    return found


def unpacked(like: Any, arrays: Mapping[str, NDArray[Any]], name: str = "value") -> Any:
    """The value that `packed` took apart, of the types of `like`, and of the sizes of its symmetric fields."""
    if not dataclasses.is_dataclass(like) or isinstance(like, type):
        return _of_type(like, arrays[name], name)
    parts: dict[str, Any] = {}
    for (kind, dtype), fields in _numbers(like).items():
        stored = _of_type(np.empty(0, dtype), arrays[f"{name}.{kind}"], f"{name}.{kind}")
        for field_name, number in zip(fields, stored, strict=True):
            parts[field_name] = _of_type(getattr(like, field_name), number, name)
    for field in _fields(like):
        part, key = getattr(like, field.name), f"{name}.{field.name}"
        if _is_number(part):
            continue
        parts[field.name] = (
            _symmetric(part, arrays, key) if "symmetric" in field.metadata else unpacked(part, arrays, key)
        )
    return dataclasses.replace(like, **parts)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.generic)


def _numbers(value: Any) -> dict[tuple[str, str], list[str]]:
    """The fields of a dataclass that are numbers, by what they are stored as."""
    found: dict[tuple[str, str], list[str]] = {}
    for field in _fields(value):
        part = getattr(value, field.name)
        if _is_number(part):
            kind = ("floats", "f8") if isinstance(part, float | np.floating) else ("integers", "i8")
            found.setdefault(kind, []).append(field.name)
    return found


def _fields(value: Any) -> list[dataclasses.Field[Any]]:
    return [field for field in dataclasses.fields(value) if not field.name.startswith("_")]


def _bands(m: int) -> list[slice]:
    step = max(256, -(-m // 16))
    return [slice(start, min(start + step, m)) for start in range(0, m, step)]


def _symmetric(like: NDArray[Any], arrays: Mapping[str, NDArray[Any]], name: str) -> NDArray[Any]:
    found = np.empty_like(like)
    for band in _bands(len(like)):
        rows = _of_type(like, arrays[f"{name}.{band.start}"], f"{name}.{band.start}")
        found[band, band.start :] = rows
        found[band.start :, band] = rows.T
    return found


def _of_type(like: Any, found: NDArray[Any], name: str) -> Any:
    if not isinstance(like, np.ndarray):
        return type(like)(found.item())
    if found.dtype != like.dtype or found.ndim != like.ndim:
        raise ValueError(f"{name} is {found.ndim}-dimensional {found.dtype}, not {like.ndim}-dimensional {like.dtype}")
    return found
