"""Linear discriminants of groups of rows in their leading principal components: canonical variates.

Rao, J. R. Stat. Soc. B 10, 1948; Hastie, Tibshirani and Friedman, The Elements of Statistical Learning, 2nd ed., section 4.3.3. With the
scatters B between groups and W within them of the leading scores, B a = rho^2 / (1 - rho^2) W a, where rho are the canonical correlations
of the scores with the groups. They do not depend on the scale of the scores, and so only on the space that the components span.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpca.derived.operators import EPS
from dpca.derived.statistics import Grouped
from dpca.errors import ConfigError, DataError
from dpca.types import F64


@dataclass(frozen=True, eq=False)
class Discriminants:
    """The directions in which groups differ most, for their spread: k of them, g - 1 at most."""

    axes: F64
    """Directions in the orthonormal scores, (m, k): scores times these have variance 1 within groups, with divisor n, as scikit-learn has it."""
    correlations2: F64
    """Squares of the canonical correlations, (k,)."""

    @property
    def share(self) -> F64:
        """The part of each in the variance between groups, in units of that within them, (k,)."""
        ratio = self.correlations2 / (1 - self.correlations2)
        return np.asarray(ratio / (ratio.sum() or 1.0))

    def errors(self, angle: float) -> F64:
        """Relative errors of rho^2 / (1 - rho^2) where the space of the components is turned by an angle in radians, (k,).

        rho^2 are the squared cosines of the angles between two spaces: a turn of one by t changes rho^2 by at most 2 t rho (1 - rho^2)^(1/2).
        """
        with np.errstate(divide="ignore"):
            found = 2 * angle / np.sqrt(self.correlations2 * (1 - self.correlations2))
        return np.asarray(np.minimum(found, 1.0))


def discriminants(vectors: F64, groups: Grouped) -> Discriminants:
    """The linear discriminants of groups.

    Parameters
    ----------
    vectors : leading components of rows as orthonormal columns of mean 0, (n, m)
    """
    n, m = vectors.shape
    g, degrees = len(groups.names), groups.residual_degrees
    if m > degrees:
        raise ConfigError(
            f"groups are told apart in {m} components, but at most {degrees} can be: {n:,} rows in {g:,} groups",
            f"Give 1 to {degrees}.",
            key="n_components",
        )
    sums = np.zeros((g, m))
    np.add.at(sums, groups.codes, vectors)
    between = sums / np.sqrt(groups.sizes)[:, None]
    # Of orthonormal columns the scatters between and within groups sum to I: they have the same directions.
    _, cosines, directions = np.linalg.svd(between, full_matrices=False)
    k = min(g - 1, m)
    correlations2 = np.clip(cosines[:k] ** 2, 0.0, 1.0)
    if 1 - correlations2[0] <= m * EPS:
        raise DataError(
            f"the rows of each of the {g:,} groups are the same in a direction of the {m} components: the spread within groups is 0 there",
            "Give fewer components, or groups that vary.",
            key="n_components",
        )
    axes = directions[:k].T * np.sqrt(n / (1 - correlations2))
    scores = vectors @ axes
    largest = scores[np.abs(scores).argmax(axis=0), np.arange(k)]
    return Discriminants(axes * np.sign(largest), correlations2)
