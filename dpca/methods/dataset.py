"""The data of a run as groups of features of the same samples: the passes go over one group after another."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from dpca.execution.stage import InTurn
from dpca.methods.passes import Pass, columns_of
from dpca.numerics.accumulators.factors import F64
from dpca.numerics.ladder import Rung
from dpca.numerics.panels import Rules
from dpca.numerics.weights import SampleWeights
from dpca.slabs import Plan
from dpca.sources import Source
from dpca.sources.weights import FeatureWeights


@dataclass(frozen=True)
class FeatureGroup:
    """Features that one source holds, and how the passes cut them."""

    source: Source
    plan: Plan
    name: str = ""
    """Empty in a dataset of one group."""
    weights: FeatureWeights | None = None
    """Weights of the features; None for equal ones."""


@dataclass(frozen=True)
class Dataset:
    """Samples whose features lie in one or more groups; the cuts of every group keep the same samples.

    Sums over features are sums over groups. Where samples stream by (`keeps` is features), and where arrays with
    feature axes are written, there is one group.
    """

    groups: tuple[FeatureGroup, ...]
    sample_weights: SampleWeights | None = None
    """Weights of the samples; None for equal ones."""

    @classmethod
    def of(
        cls,
        source: Source,
        plan: Plan,
        weights: FeatureWeights | None = None,
        sample_weights: SampleWeights | None = None,
    ) -> Self:
        """A dataset of one group."""
        return cls((FeatureGroup(source, plan, weights=weights),), sample_weights)

    @property
    def only(self) -> FeatureGroup:
        """The group of a dataset of one."""
        (group,) = self.groups
        return group

    @property
    def name(self) -> str:
        """The name of the data in messages."""
        return ", ".join(group.source.layout.name for group in self.groups)

    @property
    def n_samples(self) -> int:
        return self.groups[0].plan.n_samples

    @property
    def n_features(self) -> int:
        return sum(group.plan.n_features for group in self.groups)

    def divisor(self, ddof: int) -> float:
        """The divisor of variances."""
        return self.n_samples - ddof if self.sample_weights is None else self.sample_weights.divisor(ddof)

    @property
    def n_kept(self) -> int:
        """Size of the kept side: of the samples, or of the features."""
        return self.groups[0].plan.n_kept

    @property
    def keeps_samples(self) -> bool:
        """Whether features stream by, and the matrix is over samples."""
        return self.groups[0].plan.keeps == "samples"

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the values; where groups differ, one that holds all of them."""
        first, *others = (group.source.layout.dtype for group in self.groups)
        return first if all(dtype == first for dtype in others) else np.result_type(first, *others)

    @property
    def n_values(self) -> int:
        return sum(group.source.layout.n_values for group in self.groups)

    @property
    def n_bytes(self) -> int:
        """Size of the data after decoding."""
        return sum(group.source.layout.bytes for group in self.groups)

    @property
    def n_spans(self) -> int:
        return sum(group.plan.n_spans for group in self.groups)

    def random_columns(self, rules: Rules) -> F64:
        """The random matrix Omega of the sketch, (m, t): the same for all groups."""
        return columns_of(self.groups[0].plan, rules)

    def read_from(self, source: Source) -> Dataset:
        """The dataset of one group, read from another source that holds the same values."""
        return replace(self, groups=(replace(self.only, source=source),))

    def weights_of_all(self) -> F64 | None:
        """Weights of all features of a dataset of one group, flattened; None for equal ones."""
        weights = self.only.weights
        return None if weights is None else weights.of_all(self.only.plan.feature_shape)

    def work(self, rules: Rules, rung: Rung, **how: Any) -> InTurn:
        """A pass over all groups; `how` are further settings of `Pass`."""
        return InTurn.of(
            [
                Pass(
                    group.source,
                    group.plan,
                    rules,
                    rung.dtype,
                    rung.solver,
                    weights=group.weights,
                    sample_weights=self.sample_weights,
                    **how,
                )
                for group in self.groups
            ]
        )
