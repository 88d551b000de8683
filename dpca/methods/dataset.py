"""The data of a run as groups of features of the same samples: the passes go over one group after another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dpca.execution.stage import InTurn
from dpca.methods.passes import Pass, columns_of
from dpca.numerics.division import Division
from dpca.numerics.ladder import Rung
from dpca.numerics.panels import Rules
from dpca.numerics.regression import Regression
from dpca.numerics.weights import SampleWeights
from dpca.slabs import Plan
from dpca.sources import Source
from dpca.sources.groups import Groups, dtype_of, named, names_of_sums
from dpca.sources.labels import labelled
from dpca.store.outputs import Outputs
from dpca.types import F64


@dataclass(frozen=True)
class Dataset:
    """Samples whose features lie in one or more groups, and how the passes cut each; all cuts keep the same samples.

    Sums over features are sums over groups. Where samples stream by (`keeps` is features) there is one group.
    """

    groups: Groups
    plans: tuple[Plan, ...]
    """How each group is cut."""
    sample_weights: SampleWeights | None = None
    """Weights of the samples; None for equal ones."""
    reference: F64 | None = None
    """Samples of dosages whose means and frequencies are taken: 1, else 0, (n_samples,); None for all."""
    regression: Regression | None = None
    """The fit of regressors that is subtracted beside means; None for none."""
    factors: F64 = field(default_factory=lambda: np.ones(0))
    """Factors of the features of each input, once they are known; empty before."""
    n_folds: int = 0
    """Groups of spans of features that are added up for validation; 0 for none."""

    @property
    def name(self) -> str:
        """The name of the data in messages."""
        return named(self.groups)

    def sample(self, number: int) -> str:
        """A sample in messages: its number, and its name if it has one."""
        found = next((found for one in self.groups if (found := labelled(one.source, one.samples_axis))), None)
        return f"sample {number}" if found is None else f"sample {number} ({found.names[number]})"

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the groups; that of the only one is empty."""
        return tuple(group.name for group in self.groups)

    @property
    def names_of_sums(self) -> tuple[str, ...]:
        """Names of the groups of features that have a Gram matrix each: the inputs, or labels within them."""
        return names_of_sums(self.groups)

    @property
    def sizes_of_sums(self) -> tuple[int, ...]:
        """Number of features of each of these."""
        return tuple(
            size
            for group in self.groups
            for size in ((group.n_features,) if group.labels is None else group.labels.sizes)
        )

    @property
    def divisions(self) -> tuple[Division, ...]:
        """How the features of each input are divided among sums."""
        found, first = list[Division](), 0
        for group, plan in zip(self.groups, self.plans, strict=True):
            found.append(Division.of(plan, first, group.labels, self.n_folds))
            first += 1 if group.labels is None else len(group.labels.names)
        return tuple(found)

    @property
    def plan(self) -> Plan:
        """How the first group is cut: the samples are the same in all."""
        return self.plans[0]

    @property
    def n_samples(self) -> int:
        return self.plan.n_samples

    @property
    def n_features(self) -> int:
        return sum(plan.n_features for plan in self.plans)

    def divisor(self, ddof: int) -> float:
        """The divisor of variances."""
        return self.n_samples - ddof if self.sample_weights is None else self.sample_weights.divisor(ddof)

    @property
    def n_counted(self) -> int:
        """Number of samples, where a weight of frequency counts as many as one stands for."""
        weights = self.sample_weights
        counted = weights is not None and weights.kind == "frequency"
        return max(round(weights.total), self.n_samples) if weights is not None and counted else self.n_samples

    def dimension(self, n_features: int) -> int:
        """Number of eigenvalues of so many features, min(n, d)."""
        return min(self.n_counted, n_features)

    @property
    def shares(self) -> F64 | None:
        """The share of each sample in the means, (n_samples,); None where they are equal."""
        if self.reference is not None:
            shares: F64 = self.reference / self.reference.sum()
            return shares
        return None if self.sample_weights is None else self.sample_weights.shares

    @property
    def n_kept(self) -> int:
        """Size of the kept side: of the samples, or of the features."""
        return self.plan.n_kept

    @property
    def keeps_samples(self) -> bool:
        """Whether features stream by, and the matrix is over samples."""
        return self.plan.keeps == "samples"

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the values; where groups differ, one that holds all of them."""
        return dtype_of(self.groups)

    @property
    def n_values(self) -> int:
        return sum(group.layout.n_values for group in self.groups)

    @property
    def n_bytes(self) -> int:
        """Size of the data after decoding."""
        return sum(group.layout.bytes for group in self.groups)

    @property
    def n_spans(self) -> int:
        return sum(plan.n_spans for plan in self.plans)

    @property
    def weighted(self) -> bool:
        """Whether features of any group have weights."""
        return any(group.weights is not None for group in self.groups)

    def random_columns(self, rules: Rules) -> F64:
        """The random matrix Omega of the sketch, (m, t): the same for all groups."""
        return columns_of(self.plan, rules)

    def read_from(self, sources: Sequence[Source]) -> Dataset:
        """The dataset, read from other sources that hold the same values."""
        pairs = zip(self.groups, sources, strict=True)
        return replace(self, groups=tuple(replace(group, source=source) for group, source in pairs))

    def weights_of_all(self) -> F64 | None:
        """Weights of all features of a dataset of one group, flattened; None for equal ones."""
        (group,) = self.groups
        return None if group.weights is None else group.weights.of_all(self.plan.feature_shape)

    def work(
        self,
        rules: Rules,
        rung: Rung,
        *,
        outputs: Outputs | None = None,
        writes: tuple[str, ...] = (),
        stored_dtype: np.dtype[Any] | None = None,
        n_known: int = 0,
        backwards: bool = False,
    ) -> InTurn:
        """A pass over all groups.

        Parameters
        ----------
        outputs, writes, stored_dtype, n_known : as in `dpca.methods.passes.Pass`
        backwards : whether the last span of the last group comes first
        """
        factors = self.factors if len(self.factors) else np.ones(len(self.groups))
        works = [
            Pass(
                group.source,
                plan,
                rules,
                rung.dtype,
                rung.solver,
                group=number,
                name=group.name,
                division=division,
                factor=float(factors[number]),
                weights=group.weights,
                sample_weights=self.sample_weights,
                reference=self.reference,
                regression=self.regression,
                outputs=outputs,
                writes=writes,
                stored_dtype=stored_dtype,
                n_known=n_known,
                backwards=backwards,
            )
            for number, (group, plan, division) in enumerate(zip(self.groups, self.plans, self.divisions, strict=True))
        ]
        return InTurn.of(works[::-1] if backwards else works)
