"""Groups of features as users ask for them: some of them, weighted against each other."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from dpca.derived.feature_groups import multiplied_by, weighted_sum
from dpca.derived.gram import AnyProducts, matrix_of
from dpca.errors import ConfigError
from dpca.numerics.accumulators.gram import eigh
from dpca.numerics.panels import BlockScaling
from dpca.types import F64

GROUP = "group"
SHOWN = 6
"""Groups that are named in words."""
SCALINGS = ("none", "first_eigenvalue", "total_variance")


@dataclass(frozen=True, eq=False)
class FeatureMatrices:
    """The groups of features that results have a Gram matrix of each, and how they count."""

    names: tuple[str, ...]
    parts: tuple[int, ...]
    """For each the number of the result, or of its input, that it is in."""
    read: Callable[[str], AnyProducts]
    """Reads the products of the samples in one of them."""
    divisor: float
    """Divisor of variances of the run."""
    shared: Callable[[str], tuple[F64, int]] | None = None
    """Where products of two samples are divided by the number of features that both have: reads these of one of them, (n, n), and the number
    of features that count there. What `read` gives is not divided. None for other products."""
    weights: tuple[float, ...] = ()
    """Factors of the products of each; empty before any are chosen, when all count as they are."""

    @property
    def all_weights(self) -> tuple[float, ...]:
        """The weights of all groups."""
        return self.weights or (1.0,) * len(self.names)

    @property
    def products(self) -> AnyProducts:
        """The products of samples whose features are those of all groups, weighted; each is read."""
        names = [name for name, weight in zip(self.names, self.all_weights, strict=True) if weight]
        found = weighted_sum([self.read(name) for name in names], [weight for weight in self.all_weights if weight])
        return found if self.ratios is None else multiplied_by(found, self.ratios)

    @property
    def each(self) -> Iterator[AnyProducts]:
        """The products of each group as they are in the sum, without its weight."""
        for name in self.names:
            yield self.read(name) if self.ratios is None else multiplied_by(self.read(name), self.ratios)

    @cached_property
    def ratios(self) -> F64 | None:
        """The number of features over that which two samples have, of the groups that count, (n, n); None where products are not divided."""
        if self.shared is None:
            return None
        if not set(self.all_weights) <= {0.0, 1.0}:
            raise ConfigError(
                "features are weighted, but products were divided by the number of features that two samples have (missing: pairwise)",
                "Leave weights and scaling out: groups can be chosen, and left out.",
                key="features",
            )
        found = [self.shared(name) for name, weight in zip(self.names, self.all_weights, strict=True) if weight]
        counts = np.sum([one for one, _ in found], axis=0)
        total = sum(number for _, number in found)
        ratios: F64 = np.divide(total, counts, out=np.zeros_like(counts), where=counts > 0)
        return ratios

    @property
    def factors(self) -> F64 | None:
        """Factors of the features of each part, (parts,): roots of weights; None where all count as they are."""
        if not self.weights or set(self.weights) == {1.0}:
            return None
        found = dict[int, float]()
        for name, part, weight in zip(self.names, self.parts, self.weights, strict=True):
            if found.setdefault(part, weight) != weight:
                raise ConfigError(
                    f"group {name} counts otherwise than others of the same input, and components are made of whole inputs",
                    "Leave components out (components: false): scores and spectrum need none; or run with inputs side by side.",
                    key="features",
                )
        return np.sqrt([found[part] for part in sorted(found)])

    def chosen(
        self,
        only: Sequence[str] | None = None,
        leave_out: Sequence[str] = (),
        weights: Mapping[str, float] | None = None,
        scaling: BlockScaling = "none",
    ) -> FeatureMatrices:
        """Some of the groups, weighted.

        Parameters
        ----------
        only, leave_out : names of groups that count, and of ones that do not
        weights : of products, by name; 1 for others
        scaling : first_eigenvalue divides the products of each group by its first eigenvalue (multiple factor analysis), total_variance by its total
            variance, both of the samples as the run had them; weights come on top
        """
        given = dict(weights or {})
        for name in (*(only or ()), *leave_out, *given):
            self.number(name)
        if scaling not in SCALINGS:
            raise ConfigError(
                f"scaling is {scaling!r}, but {', '.join(SCALINGS)} is allowed", "Choose one.", key="scaling"
            )
        wrong = next((name for name, weight in given.items() if not (np.isfinite(weight) and weight >= 0)), None)
        if wrong is not None:
            raise ConfigError(f"the weight of group {wrong} is {given[wrong]}, but 0 or more is allowed", key="weights")
        found = [
            before * given.get(name, 1.0) * float((only is None or name in only) and name not in leave_out)
            for name, before in zip(self.names, self.all_weights, strict=True)
        ]
        if not any(found):
            raise ConfigError(
                f"no group of features is left of {', '.join(self.names)}", "Leave one in.", key="features"
            )
        if scaling != "none":
            sizes = [
                _size(self.read(name), scaling) if weight else 1.0
                for name, weight in zip(self.names, found, strict=True)
            ]
            found = [
                weight * (self.divisor / size if size > 0 else 1.0) for weight, size in zip(found, sizes, strict=True)
            ]
        return replace(self, weights=tuple(found))

    @property
    def told(self) -> str:
        """Which groups count, and how much, in words; empty where all count as they are."""
        if not self.weights:
            return ""
        words = [
            f"{name}" + (f" times {weight:.4g}" if weight != 1 else "")
            for name, weight in zip(self.names, self.weights, strict=True)
            if weight
        ]
        shown = ", ".join(words) if len(words) <= SHOWN else f"{len(words)} of {len(self.names)} groups"
        return f"features of {shown}"

    def number(self, name: str) -> int:
        """The number of a group."""
        if name in self.names:
            return self.names.index(name)
        near = difflib.get_close_matches(name, self.names, n=1)
        raise ConfigError(
            f"there is no group of features {name!r}, but {', '.join(self.names[:10])}"
            + (f" and {len(self.names) - 10} more" if len(self.names) > 10 else ""),
            f"Did you mean {near[0]!r}?" if near else "Name one of them.",
            key="features",
        )


def _size(products: AnyProducts, scaling: BlockScaling) -> float:
    """Divisor of the products of a group, times the divisor of variances."""
    if scaling == "total_variance":
        return products.total
    return float(eigh(matrix_of(products), lambda *_: 1).eigenvalues[0])
