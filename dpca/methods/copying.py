"""The tasks that copy the input to scratch: each reads a band of whole chunks, and writes it as one chunk."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import zarr

from dpca.errors import writing
from dpca.execution.stage import Work
from dpca.planning.rechunk import Copy
from dpca.sources.base import Region, Source
from dpca.sources.zarr_chunks import key_of
from dpca.store.synced import SyncedStore


@dataclass(frozen=True)
class CopyTask(Work):
    """Settings that all tasks of a copy share."""

    source: Source
    copy: Copy
    path: str
    synced: bool
    """Whether a chunk is flushed to the disk before it counts as written."""

    @property
    def n_parts(self) -> int:
        return self.copy.n_units

    @property
    def writes(self) -> tuple[str, ...]:  # type: ignore[override]
        return (self.path,)

    @property
    def place(self) -> str:
        return str(Path(self.path).parent)

    @property
    def blocks(self) -> Mapping[Any, Any]:
        return self.source.blocks

    def with_blocks(self, blocks: Mapping[Any, Any]) -> Self:
        return replace(self, source=self.source.with_blocks(blocks))

    def damage(self, number: int) -> str | None:
        """Fault of a band that was copied before: chunks are uncompressed, so their size tells."""
        array = zarr.open_array(self.path, mode="r")
        pairs = zip(self.copy.region(number), self.copy.unit, strict=True)
        key = key_of(array, tuple(piece.start // step for piece, step in pairs))
        path = Path(self.path) / key
        size = path.stat().st_size if path.exists() else 0
        expected = self.copy.layout.chunk_bytes
        return None if size == expected else f"{path} has {size} bytes, not {expected}"

    def part(self, number: int) -> tuple[Self, int]:
        return replace(self, source=self.source.restrict(self.copy.region(number))), number

    @property
    def read_seconds(self) -> float:
        return self.source.layout.read_seconds

    def inputs(self, number: int) -> tuple[tuple[Source, Region], ...]:
        return ((self.source, self.copy.region(number)),)


def copy_unit(work: CopyTask, number: int, report: Callable[[int], None]) -> int:
    """Copy one band; returns how many of its chunks are absent from the input."""
    region = work.copy.region(number)
    # Otherwise a chunk of fill values would not be written, and would look lost.
    array = zarr.open_array(SyncedStore(work.path) if work.synced else work.path, mode="r+").with_config(
        {"write_empty_chunks": True}
    )
    with work.source.open() as reader:
        values = reader.read(region)
        with writing(f"{work.path}: the copy of {work.source.layout.name}"):
            array[region] = values
        report(values.nbytes)
        return reader.absent_chunks
