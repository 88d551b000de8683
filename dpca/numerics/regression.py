"""The least-squares fit of regressors to each feature, which the first pass subtracts: X_c = (I - Q Q') X."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpca.slabs import Plan
from dpca.types import F64

EPS = float(np.finfo(np.float64).eps)
UNKNOWN = 1e-10
"""The values that are present say nothing of a direction that has a smaller share of its squares at them."""
CONVERGED = 1e-10
"""Where values are missing, the fit is iterated until its residual is this share of the first; a second fit finds the rest."""


@dataclass(frozen=True)
class Fit:
    """The fit to the features of a block."""

    constant: F64
    """Remainder beside the mean that had been subtracted: rounding, or what missing values make of it, (w,)."""
    coefficients: F64
    """Coefficients of each regressor, (p, w)."""
    size: F64
    """The size of the fit's rounding errors over eps, (w,): its root mean square times the root of its number of terms."""


@dataclass(frozen=True, eq=False)
class Regression:
    """A projector on what regressors of the samples explain. It is small, and every task has it."""

    basis: F64
    """Q, orthonormal, (n, q); the first column is constant."""
    to_coefficients: F64
    """Matrix that turns coefficients of the other columns of Q into those of the regressors, (p, q - 1)."""

    @property
    def n_parameters(self) -> int:
        """The number of independent regressors, q, the constant included."""
        return int(self.basis.shape[1])

    @property
    def n_regressors(self) -> int:
        """The number of regressors, p, which may depend on each other; the constant is none of them."""
        return len(self.to_coefficients)

    def subtract(self, block: F64, missing: NDArray[np.bool_] | None) -> Fit:
        """Subtract the fit from a block, in place; missing values become 0, which is the fit.

        It is done twice: what one fit leaves of itself is its rounding error, which may be large beside what remains.

        Parameters
        ----------
        block : (n, w), less the means
        missing : where values are missing, and 0 in the block: the fit is to the others; None for nowhere
        """
        total = np.zeros((self.n_parameters, block.shape[1]))
        for _ in range(2):
            found = self.basis.T @ block
            if missing is not None:
                found = self._solved(found, missing, EPS**2 * np.einsum("nf,nf->f", block, block))
            block -= self.basis @ found
            if missing is not None:
                block[missing] = 0.0
            total += found
        n, q = self.basis.shape
        size = np.sqrt(q * np.einsum("qf,qf->f", total, total) / n)
        return Fit(total[0] * self.basis[0, 0], self.to_coefficients @ total[1:], size)

    def _solved(self, products: F64, missing: NDArray[np.bool_], rounding: F64) -> F64:
        """The b of Q'P Q b = Q'P x for each feature, where P takes the values that are present, by conjugate gradients.

        Of its matrix nothing is held, whose eigenvalues are the shares that are present, of each group of samples. There
        are few different ones, and each iteration finds one. Of a group without a value nothing is found: 0.

        Parameters
        ----------
        products : Q'P x, (q, w)
        rounding : squares of what the products of each feature have as rounding errors, (w,)
        """
        found, residual = np.zeros_like(products), products.copy()
        direction, squares = residual.copy(), np.einsum("qf,qf->f", products, products)
        enough = np.maximum(CONVERGED**2 * squares, len(self.basis) * rounding)
        for _ in range(len(products)):
            if (squares <= enough).all():
                break
            image = self.basis @ direction
            image[missing] = 0.0
            image = self.basis.T @ image
            curvature = np.einsum("qf,qf->f", direction, image)
            going = (squares > enough) & (curvature > UNKNOWN * np.einsum("qf,qf->f", direction, direction))
            enough[~going] = np.inf
            step = np.divide(squares, curvature, out=np.zeros_like(squares), where=going)
            found += step * direction
            residual -= step * image
            before, squares = squares, np.einsum("qf,qf->f", residual, residual)
            direction = residual + np.divide(squares, before, out=np.zeros_like(squares), where=going) * direction
        return found

    def held(self, plan: Plan) -> dict[str, int]:
        """Bytes that a task holds, by name of the array."""
        n, q = self.basis.shape
        width = plan.block_width
        return {
            "regressors": 8 * (n * q + self.to_coefficients.size),
            "fit to a block": 8 * (2 * n * width + 6 * max(q, self.n_regressors) * width),
            "coefficients of regressors of a tile": 8
            * self.n_regressors
            * (plan.tile_width + 2 * plan.slab_width + 2 * plan.panel_width),
        }
