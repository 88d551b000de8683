"""Groups of samples, as operators along the samples: means of groups, what varies within them, and what between them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dpca.derived.operators import EXTENDED, Matrix, Operator, Remainder, SparseOperator, like
from dpca.errors import ConfigError, DataError


@dataclass(frozen=True, eq=False)
class GroupMeans(SparseOperator):
    """The mean of each group of samples: of each year, of each time over the members of an ensemble."""

    labels: NDArray[Any]
    """Labels of the samples, (n,)."""

    def __post_init__(self) -> None:
        _checked_labels(self.labels)

    @property
    def gain(self) -> float | None:
        return 1.0

    @cached_property
    def matrix(self) -> Any:
        """1 / (size of the group) for each sample in it, (groups, n)."""
        members = _members(self.labels)
        return sparse.csr_array(members.multiply(1.0 / members.sum(axis=1)[:, None]))

    def rows(self, samples: NDArray[Any]) -> NDArray[Any]:
        """The labels of the groups, sorted."""
        return np.unique(self.labels)


@dataclass(frozen=True, eq=False)
class Anomalies(Remainder):
    """Less the mean of the sample's group: anomalies from a climatology (labels: months), or what varies within groups."""

    labels: NDArray[Any]
    """Labels of the samples, (n,)."""

    def __post_init__(self) -> None:
        labels = _checked_labels(self.labels)
        if len(np.unique(labels)) == len(labels):
            raise ConfigError(
                f"each of the {len(labels)} samples is a group of its own, and nothing is left without the means of groups",
                "Group the samples by labels that several of them share.",
            )

    @cached_property
    def basis(self) -> Any:
        """1 / sqrt(size) for the members of each group, sparse, (n, groups)."""
        return _directions(self.labels)


Within = Anomalies


@dataclass(frozen=True, eq=False)
class Between(Operator):
    """The mean of the sample's group, less the mean of all: P - 11'/n. What varies between groups, each as often as it has samples."""

    labels: NDArray[Any]
    """Labels of the samples, (n,)."""

    def __post_init__(self) -> None:
        labels = _checked_labels(self.labels)
        if len(np.unique(labels)) == 1:
            raise ConfigError(
                f"all {len(labels)} samples are in one group, and nothing varies between groups",
                "Group the samples by labels that differ.",
            )

    @property
    def n_in(self) -> int:
        return len(self.labels)

    @property
    def gain(self) -> float | None:
        return 0.0

    @cached_property
    def basis(self) -> Any:
        """Basis of the groups, as of `Anomalies`."""
        return _directions(self.labels)

    def apply(self, matrix: Matrix) -> Matrix:
        basis = like(self.basis, matrix)
        return np.asarray(basis @ (basis.T @ matrix) - matrix.mean(axis=0))

    def adjoint(self, matrix: Matrix) -> Matrix:
        return self.apply(matrix)


def _members(labels: NDArray[Any]) -> Any:
    """1 where a sample is in a group, sparse, (groups, n)."""
    groups = np.unique(labels, return_inverse=True)[1]
    n = len(groups)
    return sparse.csr_array((np.ones(n, EXTENDED), (groups, np.arange(n))), shape=(int(groups.max()) + 1, n))


def _directions(labels: NDArray[Any]) -> Any:
    """The groups as orthonormal columns, sparse, (n, groups)."""
    members = _members(labels)
    return sparse.csr_array(members.multiply(1.0 / np.sqrt(members.sum(axis=1))[:, None]).T)


def _checked_labels(labels: NDArray[Any]) -> NDArray[Any]:
    labels = np.asarray(labels)
    if labels.ndim != 1 or not labels.size:
        raise ConfigError(f"labels of samples have shape {labels.shape}, but one a sample is allowed")
    if labels.dtype.kind in "fcmM" and not (labels == labels).all():
        raise DataError(
            f"the label of sample {int(np.flatnonzero(labels != labels)[0])} is missing",
            "Give each sample a label, or select those that have one.",
        )
    return labels
