"""Variants of a source of genotypes."""

from __future__ import annotations

from dataclasses import dataclass

from dpca.sources.coordinate import Vector


@dataclass(frozen=True, eq=False)
class Variants:
    """Variants of a source, in its order; read in parts, by indexing."""

    ids: Vector
    """(d,)."""
    chromosomes: Vector
    """Names, (d,)."""
    positions: Vector
    """In base pairs, (d,)."""
    counted: Vector
    """The allele whose copies are counted, (d,)."""
    other: Vector
    """The other one, (d,)."""

    def __len__(self) -> int:
        return int(self.ids.shape[0])
