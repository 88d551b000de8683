"""Entries of an axis that a column of a table chooses."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpca.errors import InputError
from dpca.slabs import placed
from dpca.sources.coordinate import PIECE_VALUES, Coordinate, Vector

Region = tuple[slice, ...]


@dataclass(frozen=True, eq=False)
class Selection:
    """The chosen entries of an axis, in the order of storage."""

    axis: int
    length: int
    """Length of the axis in storage."""
    positions: NDArray[np.int64]
    """(n,), ascending: where they are in storage."""
    column: str
    """Name of the column that chooses them."""

    @classmethod
    def of(cls, name: str, axis: int, length: int, column: str, mask: Vector) -> Selection:
        """The entries for which a column is true.

        Parameters
        ----------
        name, length : of the matrix, for error messages, and of its axis
        mask : the column
        """
        if getattr(mask.dtype, "kind", "O") != "b":
            raise InputError(
                f"{name}: column {column!r} is of dtype {mask.dtype}, but a boolean column is allowed",
                f"Store it as one: adata.var[{column!r}] = adata.var[{column!r}].astype(bool).",
                key="input.features",
            )
        if mask.shape != (length,):
            raise InputError(
                f"{name}: column {column!r} has shape {mask.shape}, but there are {length:,} features",
                "Write the file again: its table does not belong to its matrix.",
                key="input.features",
            )
        steps = Coordinate(column, mask, mask.parts).pieces()
        found = [piece.start + np.flatnonzero(values) for piece, values in steps]
        positions = np.concatenate([np.empty(0, np.int64), *found])
        if not positions.size:
            raise InputError(
                f"{name}: column {column!r} is true for none of the {length:,} features",
                "Name another column.",
                key="input.features",
            )
        return cls(axis, length, positions, column)

    def stored(self, region: Region) -> Region:
        """The smallest region of storage that holds a region of the chosen entries."""
        chosen = self.positions[region[self.axis]]
        piece = slice(int(chosen[0]), int(chosen[-1]) + 1) if chosen.size else slice(0, 0)
        return placed(region, self.axis, piece)

    def coordinate(self, stored: Coordinate | None) -> Coordinate | None:
        """The part of a coordinate along the axis that belongs to the chosen entries."""
        if stored is None or stored.values.shape != (self.length,):
            return None
        values = stored.values

        def read(piece: slice) -> NDArray[Any]:
            chosen = self.positions[piece]
            first, last = (int(chosen[0]), int(chosen[-1]) + 1) if chosen.size else (0, 0)
            found = [np.asarray(values[first:first])]
            for start in range(first, last, PIECE_VALUES):
                here = chosen[(chosen >= start) & (chosen < start + PIECE_VALUES)]
                if here.size:
                    found.append(np.asarray(values[start : min(start + PIECE_VALUES, last)])[here - start])
            return np.concatenate(found)

        return replace(stored, values=Vector(stored.name, self.positions.shape, values.dtype, read, stored.parts))

    @cached_property
    def fingerprint(self) -> dict[str, Any]:
        """Identity of the choice, for a manifest."""
        digest = hashlib.sha256(self.positions.astype("<i8").tobytes()).hexdigest()
        return {"column": self.column, "of": self.length, "chosen_sha256": digest}
