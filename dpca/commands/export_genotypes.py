"""A result of genotypes in the files of population genetics: eigenvectors as plink 2 writes them, relationships as GCTA does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

from dpca.errors import InputError
from dpca.numerics.panels import FeatureCounts
from dpca.store.arrays import CONVENTION, FAMILY
from dpca.store.gram import MATRIX, SHARED, check_keeps_matrix, of_groups
from dpca.store.names import sample_names
from dpca.store.results import Result
from dpca.types import F64

Write = Callable[[Path], None]

UNKNOWN_FAMILY = "0"
"""Mark of no family in the files of plink."""
ROWS_BYTES = 2**26
"""Size of the rows of a matrix that are written at a time."""


def plink_files(result: Result, place: Path) -> list[tuple[Path, Write]]:
    """PLACE.eigenvec and PLACE.eigenval, with what writes each: as plink2 --pca does, six digits, eigenvectors of norm 1."""
    if result.arrays["scores"].ndim != 2:
        raise InputError(f"{result.name}: has scores of several kernels, which are no table", "Export it as netcdf.")
    return [
        (_with(place, ".eigenvec"), partial(_write_lines, partial(_eigenvectors, result))),
        (_with(place, ".eigenval"), partial(_write_lines, partial(_eigenvalues, result))),
    ]


def grm_files(result: Result, place: Path) -> list[tuple[Path, Write]]:
    """The genetic relationship matrix as GCTA reads it, with what writes each file; further ones for each group, PLACE-chr1.

    PLACE.grm.bin holds relationships and PLACE.grm.N.bin the numbers of variants that they are of, float32, the rows of the lower
    triangle with its diagonal one after another; PLACE.grm.id family and id of each person.

    Groups have files of their own where the numbers of variants that two people have were kept, as with missing: pairwise.
    """
    check_keeps_matrix(result)
    if CONVENTION not in result.arrays:
        raise InputError(
            f"{result.name}: was not scaled by allele frequencies, so that its Gram matrix holds no relationships",
            "Run it with preprocess.scale: {binomial: plink2} and missing: pairwise.",
        )
    found = _of_one(result, place, partial(_relationships, result), partial(_shared, result))
    if of_groups(SHARED) in result.arrays:  # of plink2's convention, by which parts are scaled as the whole
        for number, name in enumerate(result.names_of_sums):
            own = place.with_name(f"{place.name}-{name if name.startswith('chr') else f'chr{name}'}")
            found += _of_one(result, own, partial(_of_group, result, number), partial(_shared_of_group, result, number))
    return found


def _of_one(
    result: Result, place: Path, matrix: Callable[[slice], F64], shared: Callable[[slice], F64]
) -> list[tuple[Path, Write]]:
    n = result.n_samples
    return [
        (_with(place, ".grm.bin"), partial(_write_triangle, n, matrix)),
        (_with(place, ".grm.N.bin"), partial(_write_triangle, n, shared)),
        (_with(place, ".grm.id"), partial(_write_lines, partial(_ids, result))),
    ]


def _with(place: Path, suffix: str) -> Path:
    return place.with_name(place.name + suffix)


def people_of(result: Result) -> list[tuple[str, str]]:
    """Family and id of each person; 0 where no family is known."""
    names = sample_names(result)
    if FAMILY not in result.arrays:
        return [(UNKNOWN_FAMILY, name) for name in names]
    families = [str(family) for family in np.asarray(result.arrays[FAMILY][...]).tolist()]
    # Where ids repeat in several families, names are family:id; one that has a colon of its own stays.
    ids = [name.removeprefix(f"{family}:") for family, name in zip(families, names, strict=True)]
    made = all(one != name for one, name in zip(ids, names, strict=True)) and len(set(ids)) < len(ids)
    return list(zip(families, ids if made else names, strict=True))


def _eigenvectors(result: Result) -> Iterator[str]:
    scores = np.asarray(result.arrays["scores"][...], np.float64)
    norms = np.linalg.norm(scores, axis=0)
    vectors, people = scores / np.where(norms > 0, norms, 1.0), people_of(result)
    named = any(family != UNKNOWN_FAMILY for family, _ in people)
    yield "\t".join([*(("#FID", "IID") if named else ("#IID",)), *(f"PC{k + 1}" for k in range(vectors.shape[1]))])
    for person, row in zip(people, vectors.tolist(), strict=True):
        yield "\t".join([*(person if named else person[1:]), *(f"{value:.6g}" for value in row)])


def _eigenvalues(result: Result) -> Iterator[str]:
    name = CONVENTION if CONVENTION in result.arrays else "explained_variance"
    for value in np.asarray(result.arrays[name][...], np.float64)[: result.arrays["scores"].shape[1]].tolist():
        yield f"{value:.6g}"


def _ids(result: Result) -> Iterator[str]:
    for person in people_of(result):
        yield "\t".join(person)


def _relationships(result: Result, rows: slice) -> F64:
    """Rows of K, scaled as the convention scales it."""
    return np.asarray(result.arrays[MATRIX][rows], np.float64) * _of_convention(result)


def _of_convention(result: Result) -> float:
    ours, theirs = (float(np.asarray(result.arrays[name][:1])[0]) for name in ("eigenvalues", CONVENTION))
    return theirs / ours if ours else 1.0


def _shared(result: Result, rows: slice) -> F64:
    """Numbers of variants that entries of these rows are of."""
    if SHARED in result.arrays:
        return np.asarray(result.arrays[SHARED][rows], np.float64)
    return np.full((rows.stop - rows.start, result.n_samples), float(counted(result)))


def counted(result: Result) -> int:
    """Number of variants that relationships are of, those included of which all people have the same genotype."""
    return result.n_features - FeatureCounts.of(result.manifest["counts"]).uncounted


def _of_group(result: Result, number: int, rows: slice) -> F64:
    """Rows of the relationships by the variants of one group: the products of all groups were divided by the numbers of all."""
    product = np.asarray(result.arrays[of_groups(MATRIX)][number, rows], np.float64)
    own, of_all = _shared_of_group(result, number, rows), _shared(result, rows)
    return np.divide(product * of_all, own * counted(result), out=np.zeros_like(product), where=own > 0)


def _shared_of_group(result: Result, number: int, rows: slice) -> F64:
    return np.asarray(result.arrays[of_groups(SHARED)][number, rows], np.float64)


def _write_triangle(n: int, rows_of: Callable[[slice], F64], path: Path) -> None:
    """Write the lower triangle of a matrix, with its diagonal, row after row as float32."""
    together = max(1, ROWS_BYTES // (8 * max(1, n)))
    with path.open("wb") as file:
        for start in range(0, n, together):
            rows = slice(start, min(start + together, n))
            values = rows_of(rows).astype("<f4")
            file.write(b"".join(row[: start + number + 1].tobytes() for number, row in enumerate(values)))


def _write_lines(lines: Callable[[], Iterator[str]], path: Path) -> None:
    with path.open("wb") as file:
        file.writelines(f"{line}\n".encode() for line in lines())
