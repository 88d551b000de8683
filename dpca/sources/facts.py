"""Facts about the samples or the features of a source, beside their coordinates: each kind of them is a class of some room above."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from numpy.typing import NDArray


class Facts(ABC):
    """Facts about samples, or about features, in the order of the source."""

    of_samples: ClassVar[bool]
    """Whether they are about samples."""

    @abstractmethod
    def of(self, chosen: NDArray[np.int64]) -> Self:
        """The facts about some of the samples, or of the features."""

    def called(self, lines: Sequence[str]) -> Sequence[int | str]:
        """The numbers of the samples that the lines of a file of names mean, where they are more than names; the lines where they are not."""
        return lines

    @classmethod
    @abstractmethod
    def joined(cls, names: Sequence[str], each: Sequence[Self | None]) -> Self | None:
        """The facts about arrays that are joined along their samples; refuses arrays whose facts do not fit each other.

        Parameters
        ----------
        names : of the arrays, for errors
        each : the facts about each; None for an array of which none are known
        """


A = TypeVar("A", bound=Facts)
Kinds = tuple[type[Facts], ...]


def kinds_of(sources: Sequence[Any]) -> Kinds:
    """The kinds of facts that any of the sources knows."""
    return tuple(dict.fromkeys(kind for source in sources for kind in source.knows))
