"""Extended EOF analysis, multichannel singular spectrum analysis: components of windows of samples that follow each other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpca.derived.gram import Transformed
from dpca.derived.operators import Center, Chain, SelectRows
from dpca.derived.pca import Components, UpTo, leading
from dpca.errors import ConfigError
from dpca.numerics.spectrum import reciprocal


@dataclass(frozen=True, eq=False)
class Extended(Components):
    """Components that consist of one map a lag; all of a component's together have norm 1.

    Scores have a row a window, named after its first sample: row i is of the rows i + lags of A X. Coefficients have one set a lag,
    (lags, n, k): the map at lag l is X_c' C_l.
    """

    lags: NDArray[np.intp]
    """In rows, (lags,)."""


def extended(samples: Transformed, lags: int, step: int = 1, n_components: int | UpTo | None = None) -> Extended:
    """Principal components of windows [x_t, x_{t + step}, ..., x_{t + (lags - 1) step}], about their mean.

    H (sum_l S_l K S_l') H, where S_l selects the rows from l on and H centres (Weare and Nasstrom, Mon. Weather Rev. 110, 1982;
    the reduced covariance of Ghil et al., Rev. Geophys. 40, 2002, section 4).

    Parameters
    ----------
    samples : A X, whose rows follow each other at regular times
    lags : the number of rows in a window
    step : their distance
    n_components : None for all
    """
    if lags < 1 or step < 1:
        raise ConfigError(f"lags is {lags} and step {step}, but 1 or more is allowed", key="lags")
    windows = samples.n - (lags - 1) * step
    if windows < 2:
        raise ConfigError(
            f"{lags} lags of {step} take {(lags - 1) * step + 1} of {samples.n} rows, and {max(windows, 0)} windows are left, "
            "but two or more are needed",
            "Take fewer lags, or a smaller step.",
            key="lags",
        )
    starts = np.arange(lags) * step
    shifts = [SelectRows(np.arange(start, start + windows), samples.n) for start in starts]
    centred = Chain(windows, (Center(windows),))
    exposed = float(sum(samples.exposed[shift.indices].sum() for shift in shifts))
    products = samples.products.beside(shifts).under(centred)
    eigenvalues, vectors, rank = leading(samples, products, n_components, exposed)
    scales = np.sqrt(eigenvalues)
    weights = centred.adjoint(vectors * reciprocal(scales))
    of_rows = np.stack([shift.adjoint(weights) for shift in shifts])
    coefficients = np.stack([samples.chain.adjoint(of_lag) for of_lag in of_rows])
    return Extended(
        eigenvalues,
        products.total,
        rank,
        vectors * scales,
        coefficients,
        samples.errors(of_rows, coefficients, eigenvalues, exposed),
        samples.amplification,
        starts,
    )
