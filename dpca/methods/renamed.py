"""Arrays that stages write under names of their own, and that get their names in the result when all of them are written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from dpca.store.ledger import Checkpoint, Damaged, Ledger
from dpca.store.outputs import Outputs


@dataclass(frozen=True)
class Renamed:
    """Arrays of a result, and the stages that write them.

    Once they have their names, what links these stages is gone, so that no part can be repeated alone: if one of the sums or of the
    arrays is damaged, all stages begin again. Metadata have no checksum, so that the ledger has their digest.
    """

    outputs: Outputs
    ledger: Ledger | None
    say: Callable[[str], None]
    """Called with a sentence about what is damaged."""
    stages: tuple[str, ...]
    """Names of the stages; all but the first are carried out only where they are needed."""
    n_parts: int
    """The number of parts of each stage."""
    names: tuple[str, ...]
    """Names of the arrays in the result."""

    def are_there(self, pending: Iterable[str]) -> bool:
        """Whether all was written before, and is intact.

        Parameters
        ----------
        pending : names of arrays that are removed or renamed when all is written
        """
        if self.ledger is None or any(name in self.outputs for name in pending):
            return False
        first, *more = self.stages
        stages = [first, *self.ledger.begun(*more)]
        if all(self.ledger.whole(name, self.n_parts) for name in stages):
            damage = next((problem for name in self.names if (problem := self.outputs.damage(name))), None)
            if damage is None and self._are_other_than_described(self.ledger):
                damage = f"the metadata of {', '.join(self.names)} are damaged"
            if damage is None:
                return True
            self.say(f"{damage}: it is computed again")
        self.ledger.begin_again(*stages)
        return False

    def rename(self, pending: Sequence[str]) -> None:
        """Give the arrays their names."""
        for name, new in zip(pending, self.names, strict=True):
            self.outputs.rename(name, new)
        if self.ledger is not None:
            self._description(self.ledger).keep(0, self.outputs.metadata_of(self.names))

    def _description(self, ledger: Ledger) -> Checkpoint:
        return ledger.record(f"metadata of {self.names[0]}")

    def _are_other_than_described(self, ledger: Ledger) -> bool:
        """Whether their metadata are others than those with which they got their names last."""
        description, now = self._description(ledger), self.outputs.metadata_of(self.names)
        try:
            return description.has(0) and not np.array_equal(description.load(0, now), now)
        except Damaged:
            return False
