"""The tasks that copy the input to scratch: each reads a band of whole chunks, and writes it as one file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from dpca.execution.stage import Work
from dpca.planning.rechunk import Copy
from dpca.sources.base import Region, Source


@dataclass(frozen=True)
class CopyTask(Work):
    """Settings that all tasks of a copy share."""

    source: Source
    copy: Copy
    path: str
    synced: bool
    """Whether a band is flushed to the disk before it counts as written."""

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
        return self.copy.damage(self.path, number)

    def part(self, number: int) -> tuple[Self, int]:
        return replace(self, source=self.source.restrict(self.copy.region(number))), number

    @property
    def read_seconds(self) -> float:
        return self.source.layout.read_seconds

    def inputs(self, number: int) -> tuple[tuple[Source, Region], ...]:
        return ((self.source, self.copy.region(number)),)


def copy_unit(work: CopyTask, number: int, report: Callable[[int], None]) -> int:
    """Copy one band; returns how many of its chunks are absent from the input."""
    with work.source.open() as reader:
        report(work.copy.write(work.path, number, reader, synced=work.synced))
        return reader.absent_chunks
