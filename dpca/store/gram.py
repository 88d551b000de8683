"""The arrays of a Gram matrix in a result."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dpca.errors import InputError
from dpca.numerics.accumulators.gram import GramAccumulator
from dpca.numerics.accumulators.tallies import Counts
from dpca.numerics.gram_matrix import GramMatrix, SummedFeatures
from dpca.numerics.ladder import BLOCK_KRYLOV, Rung
from dpca.numerics.panels import FeatureCounts
from dpca.numerics.sketch import COLUMNS, Sketch, random_columns
from dpca.settings import INPUT, MODEL, OUTPUT
from dpca.store.arrays import GROUP, Dims
from dpca.store.outputs import Outputs
from dpca.store.results import Result
from dpca.system.machine import LIBRARIES_BYTES, memory_budget
from dpca.types import F64
from dpca.units import describe_memory

MATRIX, FACTOR = "gram", "r_factor"
MEAN_PRODUCT, MEAN_NORM2, SKETCH, NORMS2 = "gram_mean_product", "gram_mean_norm2", "gram_sketch", "gram_norms2"
SHARED = "n_shared_features"
"""Number of features that both of two samples have, by which products were divided."""
COUNTED = "n_counted_features"
"""Number of features of a group that count among those that two samples have."""
ALL = (MATRIX, FACTOR, MEAN_PRODUCT, MEAN_NORM2, SKETCH, NORMS2, SHARED)
FOLDS, PAIR = "by_fold", "pair"
PAIRS = 2**20
"""Pairs of samples in a chunk."""


def shapes(
    n_samples: int, solver: str, centered: bool, n_groups: int = 1, n_folds: int = 0, pairs: bool = False
) -> dict[str, list[int]]:
    """Shape of each array, by name.

    Parameters
    ----------
    n_groups, n_folds : the number of named groups of features, and of groups for validation
    pairs : whether features are counted that two samples have in common
    """
    n = n_samples
    matrix = FACTOR if solver == "tsqr" else MATRIX
    columns = min(COLUMNS, n - centered)
    found = {matrix: [n, n], MEAN_PRODUCT: [n], MEAN_NORM2: [], NORMS2: [n], SKETCH: [n, columns]}
    if pairs:
        found[SHARED] = [n, n]
    if n_groups > 1:
        found |= {of_groups(name): [n_groups, *shape] for name, shape in found.items()}
    return found | ({f"{matrix}_{FOLDS}": [n_folds, n * (n + 1) // 2]} if n_folds else {})


def of_groups(name: str) -> str:
    """The name of an array that has one for each named group of features."""
    return f"{name}_by_{GROUP}"


def write_gram(
    outputs: Outputs, gram: GramMatrix, dims: Dims, groups: Sequence[GramMatrix] = (), folds: Sequence[F64] = ()
) -> None:
    """Write the arrays of a Gram matrix.

    Parameters
    ----------
    groups : that of each named group of features, whose sum it is; none where there is one group
    folds : K, or R, of each of the groups of features for validation; of each half is written, the rows of its lower triangle (of R: the
        columns of its upper one) one after another
    """
    name, axes = (FACTOR, ("row", dims.sample)) if gram.is_factor else (MATRIX, (dims.sample, dims.sample_b))
    outputs.write(name, gram.kept, axes)
    outputs.write(MEAN_PRODUCT, gram.mean_product, (dims.sample,))
    outputs.write(MEAN_NORM2, gram.mean_norm2, ())
    if gram.sketch is not None:
        outputs.write(SKETCH, gram.sketch.product, (dims.sample, "random_column"))
        outputs.write(NORMS2, gram.norms2, (dims.sample,))
    if gram.absent is not None:
        outputs.write(SHARED, _shared(gram), axes)
    if groups:
        outputs.write_stack(of_groups(name), len(groups), lambda number: groups[number].kept, (GROUP, *axes))
        if gram.absent is not None:
            outputs.write(of_groups(COUNTED), np.array([one.features.counted for one in groups]), (GROUP,))
            outputs.write_stack(of_groups(SHARED), len(groups), lambda number: _shared(groups[number]), (GROUP, *axes))
        for small in (MEAN_PRODUCT, MEAN_NORM2, NORMS2):
            values = np.array([getattr(one, small.removeprefix("gram_")) for one in groups])
            outputs.write(of_groups(small), values, (GROUP, dims.sample)[: values.ndim])
        sketches = [one.sketch.product for one in groups if one.sketch is not None]
        outputs.write(of_groups(SKETCH), np.array(sketches), (GROUP, dims.sample, "random_column"))
    if folds:
        _write_folds(outputs, f"{name}_{FOLDS}", folds, gram.is_factor)


def _shared(gram: GramMatrix) -> NDArray[np.int64]:
    """Number of features that both of two samples have, (n, n)."""
    assert gram.shared is not None
    return gram.shared.astype(np.int64)


def _write_folds(outputs: Outputs, name: str, folds: Sequence[F64], is_factor: bool) -> None:
    """Half of each matrix, in bands of rows that make no copy of a whole one."""
    n = len(folds[0])
    n_pairs = n * (n + 1) // 2
    outputs.create_array(name, (len(folds), n_pairs), (1, min(n_pairs, PAIRS)), np.float64, ("fold", PAIR))
    array = outputs.array(name)
    for number, matrix in enumerate(folds):
        half = np.empty(n_pairs)
        for row in range(n):
            start = row * (row + 1) // 2
            half[start : start + row + 1] = matrix[: row + 1, row] if is_factor else matrix[row, : row + 1]
        array[number] = half


def read_shared(result: Result, group: int | None = None) -> tuple[F64, int]:
    """Number of features that both of two samples have, (n, n), and the number that count among these; of all, or of a named group."""
    if group is None or len(result.names_of_sums) == 1:
        return _read(result, SHARED), result.n_features - FeatureCounts.of(result.manifest["counts"]).uncounted
    counted = np.asarray(result.arrays[of_groups(COUNTED)][...])
    return np.asarray(result.arrays[of_groups(SHARED)][group], np.float64), int(counted[group])


def keeps_gram(result: Result) -> bool:
    """Whether a result keeps a Gram matrix, or its factor."""
    return MATRIX in result.arrays or FACTOR in result.arrays


def check_keeps_matrix(result: Result) -> None:
    """Raise an InputError if a result does not keep K itself."""
    if MATRIX not in result.arrays:
        raise _missing(result, MATRIX)


def read_gram(result: Result) -> GramMatrix:
    """The Gram matrix of a result."""
    counts, certificate, rung = result.manifest["counts"], result.certificate, rung_of(result)
    kept = _read(result, FACTOR if FACTOR in result.arrays else MATRIX)
    sketch: Sketch | None = None
    if SKETCH in result.arrays:
        sketch, norms2 = (
            Sketch(random_columns(len(kept), result.rules.centered), _read(result, SKETCH), _off(result)),
            _read(result, NORMS2),
        )
    else:  # of an earlier version: norms from products
        norms2 = np.einsum("ij,ij->j", kept, kept) if rung.solver == "tsqr" else np.diagonal(kept).copy()
    found = GramMatrix(
        kept=kept,
        mean_product=_read(result, MEAN_PRODUCT),
        mean_norm2=float(_read(result, MEAN_NORM2)),
        norms2=norms2,
        features=SummedFeatures(result.n_features, FeatureCounts.of(counts)),
        rung=rung,
        exact=certificate["exact_products"],
        difference=certificate["trace_check"],
        sketch=sketch,
        counts=Counts(
            n_missing=counts["missing_values"],
            n_filled=result.filled_values,
            absent_chunks=counts["absent_chunks"],
        ),
    )
    result.check_still()
    return found


def read_group(result: Result, number: int) -> GramMatrix:
    """The Gram matrix of one of the named groups of features of a result (`Result.names_of_sums`); the only one is that of all."""
    if len(result.names_of_sums) == 1:
        return read_gram(result)
    of_all, matrix = SummedFeatures(result.n_features), FACTOR if FACTOR in result.arrays else MATRIX

    def read(name: str) -> F64:
        if of_groups(name) not in result.arrays:
            raise InputError(
                f"{result.name}: keeps no {of_groups(name)}, which an earlier version did not write",
                "Run it again, with --overwrite.",
            )
        return np.asarray(result.arrays[of_groups(name)][number], np.float64)

    certificate, rung = result.certificate, rung_of(result)
    return GramMatrix(
        kept=read(matrix),
        mean_product=read(MEAN_PRODUCT),
        mean_norm2=float(read(MEAN_NORM2)),
        norms2=read(NORMS2),
        features=of_all,
        rung=rung,
        exact=certificate["exact_products"],
        difference=certificate["trace_check"],
        sketch=Sketch(random_columns(result.n_samples, result.rules.centered), read(SKETCH), _off(result)),
    )


def _off(result: Result) -> float:
    """`Sketch.off`, which earlier versions did not know."""
    return float(result.certificate.get("rounded_before", 0.0))


def rung_of(result: Result) -> Rung:
    """Solver and precision of the products in the Gram matrix of a result."""
    numerics = result.manifest["numerics"]
    return Rung(numerics["solver"], np.dtype(numerics["working_dtype"]))


def read_products(result: Result) -> F64:
    """K alone, (n, n), also where R is kept; nothing else is read."""
    if FACTOR not in result.arrays:
        return _read(result, MATRIX)
    factor = _read(result, FACTOR)
    return factor.T @ factor


def _read(result: Result, name: str) -> F64:
    if name not in result.arrays:
        raise _missing(result, name)
    return np.asarray(result.arrays[name][...], np.float64)


def _missing(result: Result, name: str) -> InputError:
    return no_matrix(result, "", f"there is no {name}")


AGAIN = f"Run it again with {OUTPUT.gram.at(True)} and {MODEL.svd_solver.at('gram_eigh')}, and --overwrite."


def no_matrix(result: Result, of_what: str, why: str, remedy: str = AGAIN, key: str = "", then: str = "") -> InputError:
    """The error for a result without a Gram matrix of its samples; under block_krylov it says which number of samples would have one.

    Parameters
    ----------
    of_what, then : continue "no Gram matrix", before and after the reason
    why, remedy : for results of other solvers
    """
    if result.manifest["numerics"]["solver"] == BLOCK_KRYLOV:
        n, budget = result.n_samples, memory_budget()
        most, needed = largest_matrix(budget.bytes), held_with_matrix(n)
        why = f"svd_solver was block_krylov, which makes no {n:,} x {n:,} matrix"
        if n > most:
            remedy = (
                f"That takes {describe_memory(needed)}; with {describe_memory(budget.bytes)}, {budget.origin}, up to about {most:,} samples fit: choose so "
                f"many with {INPUT.samples} and {MODEL.svd_solver.at('gram_eigh')}, or run it where there is more memory."
            )
    return InputError(f"{result.name}: keeps no Gram matrix{of_what} ({why}){then}", remedy, key=key)


def held_with_matrix(n_samples: int) -> int:
    """Memory that a run with the n x n matrix takes at least, in bytes: with two spans in hand, or in its eigensolve."""
    spans = 3 * 8 * n_samples * n_samples
    return LIBRARIES_BYTES + max(spans, sum(GramAccumulator.held_to_finish(n_samples, 1).values()))


def largest_matrix(n_bytes: int) -> int:
    """The largest number of samples whose matrix fits so much memory."""
    low, high = 0, 2
    while held_with_matrix(high) <= n_bytes:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if held_with_matrix(middle) <= n_bytes else (low, middle)
    return low
