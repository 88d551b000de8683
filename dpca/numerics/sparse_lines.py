"""Products of sparse lines: only values that are not zero are multiplied, and centring is a correction of rank one.

Lines are those of the streamed side, T, (w, m): samples, or features, by the kept side. A part P of X_c, kept side by streamed side, is
T' less the means that belong there; it exists only as products P'V = T V - 1 (m'V) and P U = T'U - m (1'U), or with the means of lines.

T'T by products of sparse matrices (Gustavson, ACM TOMS 4, 1978) takes sum r_i^2 multiplications for r_i values in line i, a triangle half of
them; each takes as long as a hundred of those of a dense product in BLAS. So where values are not few, parts of T are made dense, and BLAS
multiplies.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dpca.sources.lines import FEW
from dpca.types import F64

PAYS = {4: 120, 8: 60}
"""Multiplications of a dense product in the time of one of a sparse product, by size of the dense values (measured)."""
OVERHEAD = {4: 800, 8: 400}
"""Lines of a dense product in the time that adding a sparse one to the matrix takes (measured)."""
STEPS = 8
"""The triangle of a sparse product is made of so many strips: 9 / 16 of the whole product's multiplications."""
STRIP = 2**20
"""Most entries of a strip's product, which is sparse at first."""


class Part(Protocol):
    """A part P of X_c, kept side by streamed side, (m, w), that exists only as products."""

    @property
    def lines(self) -> StoredLines:
        """T, scaled as P is where lines are features."""
        ...

    def into(self, vectors: F64) -> F64:
        """P'V for V, (m, j): (w, j)."""
        ...

    def back(self, vectors: F64) -> F64:
        """P U for U, (w, j): (m, j)."""
        ...


@dataclass(frozen=True, eq=False)
class StoredLines:
    """Lines as a sparse matrix T, (w, m), in float64, in canonical form."""

    matrix: Any
    """scipy.sparse.csr_array."""
    dtype: np.dtype[Any]
    """Working precision of dense products."""
    panel_width: int
    """Most lines that are multiplied at a time in working precision."""

    def add_product(self, total: F64) -> Iterator[NDArray[Any]]:
        """Add T'T to a matrix, (m, m), if values are few; else yield the parts of T', (m, at most panel_width), dense, that are to be multiplied.

        A part is valid until the next one.
        """
        w, m = self.matrix.shape
        per_line, size = np.diff(self.matrix.indptr).astype(np.float64), self.dtype.itemsize
        if PAYS[size] * float(per_line @ per_line) < float(w - OVERHEAD[size]) * m * m:
            _add_triangle(self.matrix, total)
            return
        for start in range(0, w, self.panel_width):
            with np.errstate(over="ignore"):  # the product detects infinite values
                yield self.matrix[start : start + self.panel_width].astype(self.dtype).toarray().T


def _add_triangle(lines: Any, total: F64) -> None:
    """Add T'T to a matrix: the blocks right of the diagonal, and their mirror images."""
    m = lines.shape[1]
    step = max(1, -(-m // STEPS))
    for first in range(0, m, step):
        rest = lines if first == 0 else lines[:, first:]
        turned = rest.T.tocsr()
        strip = max(1, min(step, STRIP // (m - first)))
        for start in range(first, min(first + step, m), strip):
            rows = slice(start, min(start + strip, first + step, m))
            product = (turned[rows.start - first : rows.stop - first] @ rest).toarray()
            total[rows, first:] += product
            beyond = product[:, min(first + step, m) - first :]
            total[min(first + step, m) :, rows] += beyond.T


@dataclass(frozen=True, eq=False)
class FeatureLines:
    """Features with all samples, as lines: P = T' - 1 m', (n_samples, w), of lines that are scaled already."""

    lines: StoredLines
    mean: F64
    """m, (w,), scaled as the lines are; 0 without centring."""

    def into(self, vectors: F64) -> F64:
        """P'V = T V - m (1'V)."""
        found: F64 = self.lines.matrix @ vectors
        found -= np.outer(self.mean, vectors.sum(axis=0))
        return found

    def back(self, vectors: F64) -> F64:
        """P U = T'U - 1 (m'U)."""
        found: F64 = self.lines.matrix.T @ vectors
        found -= self.mean @ vectors
        return found


@dataclass(frozen=True, eq=False)
class SampleLines:
    """Samples with all features, as lines: P = F (T' - m 1'), (n_features, w), with the factors F of features."""

    lines: StoredLines
    mean: F64
    """m, (n_features,); 0 without centring."""
    factor: F64
    """Diagonal of F, (n_features,)."""

    def into(self, vectors: F64) -> F64:
        """P'V = T F V - 1 (m'F V)."""
        scaled = self.factor[:, None] * vectors
        found: F64 = self.lines.matrix @ scaled
        found -= self.mean @ scaled
        return found

    def back(self, vectors: F64) -> F64:
        """P U = F (T'U - m (1'U))."""
        found: F64 = self.lines.matrix.T @ vectors
        found -= np.outer(self.mean, vectors.sum(axis=0))
        found *= self.factor[:, None]
        return found


def held(m: int, slab_width: int, n_vectors: int) -> dict[str, int]:
    """Bytes that products of lines take beside the lines themselves, by name of the array.

    Parameters
    ----------
    n_vectors : number of vectors that are multiplied at a time
    """
    values = m * slab_width // FEW
    return {
        "stored values in double precision, scaled, and by the other side": 3 * 12 * values,
        "strip of a product of lines": 24 * min(STRIP, m * -(-m // STEPS)),
        "products of lines with vectors": 3 * 8 * n_vectors * (m + slab_width),
    }
