"""Rotation of components: varimax, promax and spatial ICA, from moments of the maps, never from the maps themselves.

Loadings L = W diag(sqrt(lambda)) of the leading components are rotated, with lambda their explained variances, and the
standardized scores with them (Richman, Journal of Climatology 6, 1986; xeofs does the same):

- rotated loadings L R, explained variances s^2 their column sums of squares, components L R diag(1 / s) of length 1;
- rotated scores Z diag(1 / sqrt(lambda)) R^-T diag(s), so that rotated scores times rotated components is Z W' as before;
- factor correlation (R'R)^-1, the correlation of the rotated scores: I where R is orthogonal. R has columns for which its
  diagonal is 1.

With correlated scores explained variances do not add up to a total.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np

from dpca.numerics.fourth_moments import FourthMoments, Loadings
from dpca.numerics.spatial_ica import fastica, jade, whitened, whitening
from dpca.numerics.turns import Turn, iterated, orthogonal
from dpca.types import F64

Kind = Literal["varimax", "promax", "fastica", "jade"]
Algorithm = Literal["parallel", "deflation"]
OBLIQUE = ("promax", "fastica", "jade")
"""Kinds whose scores are correlated."""


@dataclass(frozen=True)
class Rotating:
    """Which rotation is asked for."""

    kind: Kind
    n_components: int | None = None
    """How many leading components are rotated; None for all."""
    normalize: bool = True
    """Kaiser's rule for varimax and promax: each feature counts the same, whatever its communality."""
    power: float = 4.0
    """Power of the loadings in the target of promax."""
    algorithm: Algorithm = "parallel"
    """Algorithm of FastICA: all components at once, or one after another (deflation)."""

    @property
    def of_loadings(self) -> bool:
        """Whether loadings are rotated; maps of length 1, whitened, are unmixed otherwise."""
        return self.kind in ("varimax", "promax")

    def loadings(self, variances: F64, n_features: int) -> Loadings:
        """The columns whose moments are needed of orthonormal maps with these explained variances."""
        scales = np.sqrt(variances) if self.of_loadings else np.ones_like(variances)
        return Loadings.of(scales, self.normalize and self.of_loadings, n_features)

    def turn(self, moments: FourthMoments, variances: F64) -> tuple[RotationResult, Turn] | None:
        """The rotation that the moments give, and the iteration behind it; for promax it is varimax, which its target needs.

        Returns
        -------
        None where ICA is not defined, since a combination of the maps is the same everywhere
        """
        if self.of_loadings:
            found = varimax(moments)
            return RotationResult(variances, found.matrix), found
        white = whitening(moments)
        if white is None:
            return None
        sources = whitened(moments, white)
        found = jade(sources) if self.kind == "jade" else fastica(sources, deflation=self.algorithm == "deflation")
        return RotationResult.of_maps(variances, white @ found.matrix), found


def varimax(moments: FourthMoments) -> Turn:
    """The orthogonal R that makes the sum over columns of the variance of squared loadings as large as it can.

    Kaiser, Psychometrika 23, 1958, for all columns at once, R <- orthogonal part of L'(Y^3 - Y diag(1/d sum Y^2)) with
    Y = L R (Horst 1965; Sherin, Psychometrika 31, 1966). L'Y^3 and L'L follow from the moments.

    Parameters
    ----------
    moments : of the loadings, divided by their communality for Kaiser's rule
    """
    second, fourth, n_features = moments.second, moments.fourth, max(1.0, moments.n_features)

    def step(turn: F64) -> F64:
        products = second @ turn
        squares = np.einsum("aj,aj->j", turn, products)
        return orthogonal(fourth.cubes(turn) - products * (squares / n_features))

    return iterated(np.eye(len(second)), step)


def add_targets(sums: F64, loadings: F64, turn: F64, power: float) -> None:
    """Add a part of the features to Y'(sign(Y) |Y|^power), Y = L R, in place: what promax needs of loadings L that varimax has turned.

    Parameters
    ----------
    sums : (k, k)
    loadings : (k, w), as they were for the moments
    """
    turned = turn.T @ loadings
    sums += turned @ (np.sign(turned) * np.abs(turned) ** power).T


def promax(moments: FourthMoments, turn: F64, targets: F64) -> F64:
    """The oblique R of promax: R_varimax T, T = (Y'Y)^-1 Y'P with target P = sign(Y) |Y|^power.

    Hendrickson and White, British Journal of Statistical Psychology 17, 1964. The columns of T are scaled so that (T'T)^-1,
    the correlation of the scores, has diagonal 1; scaling the columns of the target changes nothing.

    Parameters
    ----------
    targets : sums of `add_targets`
    """
    oblique = np.asarray(np.linalg.solve(turn.T @ moments.second @ turn, targets), np.float64)
    return np.asarray(turn @ _unit(oblique), np.float64)


def _unit(matrix: F64) -> F64:
    """The matrix with its columns scaled so that (R'R)^-1 has diagonal 1."""
    inverse = np.linalg.inv(matrix)
    return np.asarray(matrix * np.linalg.norm(inverse, axis=1), np.float64)


@dataclass(frozen=True)
class RotationResult:
    """A rotation R of leading components, and what it makes of them."""

    variances: F64
    """Explained variances of the components, lambda, (k,), all positive."""
    matrix: F64
    """R, (k, k): row a for the component a, column j for the rotated component j."""

    @classmethod
    def of_maps(cls, variances: F64, mixing: F64) -> Self:
        """The rotation for which W B, with its columns scaled to length 1, are the rotated components."""
        return cls(variances, _unit(mixing / np.sqrt(variances)[:, None]))

    @property
    def explained_variance(self) -> F64:
        """s^2, the column sums of squares of rotated loadings, (k,)."""
        return np.asarray(np.einsum("a,aj->j", self.variances, self.matrix**2))

    @property
    def factor_correlation(self) -> F64:
        """(R'R)^-1, the correlation of rotated scores, (k, k)."""
        inverse = np.linalg.inv(self.matrix)
        return np.asarray(inverse @ inverse.T, np.float64)

    @property
    def to_components(self) -> F64:
        """(k, k): rotated components are it times W'."""
        return ((np.sqrt(self.variances)[:, None] * self.matrix) / np.sqrt(self.explained_variance)).T

    def to_scores(self, whiten: bool = False) -> F64:
        """(k, k): rotated scores are the scores times it; both are whitened, or neither is."""
        inverse = np.linalg.inv(self.matrix).T
        if whiten:
            return np.asarray(inverse, np.float64)
        return np.asarray((inverse / np.sqrt(self.variances)[:, None]) * np.sqrt(self.explained_variance), np.float64)

    @property
    def ordered(self) -> RotationResult:
        """This rotation with explained variances descending."""
        return replace(self, matrix=self.matrix[:, np.argsort(-self.explained_variance, kind="stable")])

    @staticmethod
    def signs(low: F64, high: F64) -> F64:
        """Signs that make the entry of largest magnitude in each column positive, from its least and largest entry."""
        return np.where(-low > high, -1.0, 1.0)

    def signed(self, signs: F64) -> RotationResult:
        """This rotation with a sign for each rotated component."""
        return replace(self, matrix=self.matrix * signs)


def mixed(certificate: dict[str, Any], k: int) -> list[int]:
    """The components among the first k that are not reliable, although they are not zero."""
    return [one["index"] for one in certificate["components"][:k] if not one["reliable"] and one["singular_value"] > 0]
