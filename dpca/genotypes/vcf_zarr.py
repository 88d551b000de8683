"""VCF Zarr: calls of alleles, variants by samples by ploidy, as vcf2zarr writes them, read as dosages.

The format is that of Czech et al. (GigaScience 14, 2025): `call_genotype` holds the numbers of the alleles of each call, -1 where one
is missing, and -2 where a call has fewer than others; further arrays describe variants and samples.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dpca.errors import InputError
from dpca.genotypes.dosages import CODES, MISSING, MULTIALLELIC, NOT_DIPLOID, Multiallelic
from dpca.genotypes.variants import DIMS, UNNAMED, Texts, Variants, named_by_place, texts, vector
from dpca.settings import INPUT
from dpca.sources.base import Reader, Region, Source, size_of
from dpca.sources.coordinate import Coordinate, Parts, Vector
from dpca.sources.facts import A, Kinds
from dpca.sources.view import View, ViewReader

PLOIDY = 2
ABSENT = -2
"""The number of an allele that a call does not have, as of a chromosome without a pair."""


class VcfZarrSource(View):
    """The dosages of calls: copies of all alleles but the first, which VCF calls REF.

    Parameters
    ----------
    calls : the source of `call_genotype`
    beside : a function that gives the vector of another array of the group; None where there is none
    multiallelic : what becomes of calls of a third allele
    """

    def __init__(
        self, calls: Source, beside: Callable[[str], Vector | None], multiallelic: Multiallelic = "error"
    ) -> None:
        layout = calls.layout
        if len(layout.shape) != 3 or layout.shape[2] != PLOIDY or layout.dtype.kind != "i":
            raise InputError(
                f"{layout.name}: has shape {layout.shape} and dtype {layout.dtype}, but variants x samples x 2 integers are allowed: calls of "
                "people with two sets of chromosomes",
                "Dosages of other ploidies are analysed as an array of numbers of their own.",
                key="input.array",
            )
        variants, samples, _ = layout.shape
        by_variant, by_sample, _ = layout.chunks
        super().__init__(
            calls,
            replace(
                layout,
                shape=(samples, variants),
                dtype=np.dtype(np.int8),
                chunks=(by_sample, by_variant),
                shards=layout.shards and (layout.shards[1], layout.shards[0]),
                divisible=False,
                order="F",
                dims=DIMS,
                missing_values=(float(MISSING),),
                stored_dtype=None,
                codes=CODES,
            ),
        )
        self._beside, self._multiallelic = beside, multiallelic
        if multiallelic == "leave_out" and beside("variant_allele") is None:
            raise InputError(
                f"{layout.name}: has no variant_allele beside it, which tells variants of more than two alleles",
                f"{INPUT.multiallelic.set_to('error')}, or count.",
                key="input.multiallelic",
            )

    def behind(self, region: Region) -> Region:
        samples, variants = region
        return (variants, samples, slice(0, PLOIDY))

    def reader(self, reader: Reader) -> Reader:
        return _VcfReader(self, reader)

    def held(self, shape: tuple[int, ...]) -> dict[str, int]:
        return {
            "dosages of a slab": size_of(shape, self.layout.dtype),
            "masks of its calls": 3 * PLOIDY * size_of(shape, self.layout.dtype),
            **super().held((shape[1], shape[0], PLOIDY)),
        }

    def fingerprint(self) -> dict[str, Any]:
        return {**super().fingerprint(), "multiallelic": self._multiallelic}

    @property
    def place(self) -> tuple[str | list[str], str | None] | None:
        return self._source.place

    def __getstate__(self) -> dict[str, Any]:
        """State for a worker: without what was read of samples."""
        return {name: value for name, value in self.__dict__.items() if name != "samples"}

    def dosages(self, calls: NDArray[Any], first_variant: int, out: NDArray[np.int8]) -> NDArray[np.int8]:
        """Copies of all alleles but the first, (variants, samples), and codes for what is no dosage.

        Parameters
        ----------
        first_variant : the number of the first of these variants
        """
        first, second = calls[..., 0], calls[..., 1]
        np.add(first, second, out=out, casting="same_kind")
        plain = calls.size > 0 and calls.min() >= 0 and calls.max() <= 1
        if not plain:
            self._decode(first, second, out)
        if self._multiallelic == "leave_out":
            out[self._has_third(slice(first_variant, first_variant + len(out)))] = MISSING
        return out

    def _decode(self, first: NDArray[Any], second: NDArray[Any], out: NDArray[np.int8]) -> None:
        np.copyto(out, ((first > 0).astype(np.int8) + (second > 0)))
        if self._multiallelic == "error":
            out[(first > 1) | (second > 1)] = MULTIALLELIC
        out[(first == MISSING) | (second == MISSING)] = MISSING
        out[((first == ABSENT) & (second >= 0)) | ((first >= 0) & (second == ABSENT))] = NOT_DIPLOID
        out[(first < 0) & (second < 0)] = MISSING  # as of a lone dot

    def _has_third(self, variants: slice) -> NDArray[np.bool_]:
        """Mask of the variants with more than two alleles, which does not depend on the samples in hand."""
        alleles = self._beside("variant_allele")
        assert alleles is not None
        further = texts(np.asarray(alleles[variants])[:, PLOIDY:].reshape(-1))
        named = ~np.isin(further, texts(UNNAMED)).reshape(variants.stop - variants.start, -1)
        return np.asarray(named.any(axis=1))

    @property
    def variants(self) -> Variants | None:
        """Variants by the arrays beside; None where one is missing.

        The id of a variant without one is chromosome:position:first:second, the alleles last.
        """
        names = ("variant_contig", "contig_id", "variant_position", "variant_allele")
        found = [self._beside(name) for name in names]
        if any(one is None for one in found):
            return None
        contig, contigs, position, alleles = (one for one in found if one is not None)
        names_of_contigs, given = texts(contigs[...]), self._beside("variant_id")

        def chromosomes(piece: slice) -> Texts:
            return np.asarray(names_of_contigs[contig[piece]])

        def allele(number: int, piece: slice) -> Texts:
            some = np.asarray(alleles[piece])
            return texts(some[:, number] if number < some.shape[1] else [""] * len(some))

        def ids(piece: slice) -> Texts:
            named = texts(["."] * (piece.stop - piece.start) if given is None else given[piece])
            if not np.isin(named, texts(UNNAMED)).any():
                return named
            return named_by_place(named, chromosomes(piece), position[piece], allele(0, piece), allele(1, piece))

        n, name = self.layout.shape[1], self.layout.name
        return Variants(
            ids=vector(name, n, ids),
            chromosomes=vector(name, n, chromosomes),
            positions=vector(name, n, lambda piece: position[piece].astype(np.int64), np.int64),
            counted=vector(name, n, partial(allele, 1)),
            other=vector(name, n, partial(allele, 0)),
        )

    @property
    def knows(self) -> Kinds:
        return (Variants,)

    def about(self, kind: type[A]) -> A | None:
        return cast("A | None", self.variants) if kind is Variants else None

    @cached_property
    def samples(self) -> Texts | None:
        """Ids of the samples."""
        found = self._beside("sample_id")
        return None if found is None else texts(found[...])


class _VcfReader(ViewReader):
    def __init__(self, source: VcfZarrSource, reader: Reader) -> None:
        super().__init__(source.layout, reader)
        self._source = source

    def parts(self, region: Region) -> list[Region]:
        return [self._source.behind(region)]

    def _read(self, region: Region) -> NDArray[Any]:
        calls = self._reader.read(self._source.behind(region))
        out = self._buffer.view(calls.shape[:2], np.dtype(np.int8))
        return self._source.dosages(calls, region[1].start, out).T

    def coordinate(self, axis: int) -> Coordinate | None:
        if axis == 1:
            variants = self._source.variants
            return None if variants is None else Coordinate(DIMS[1], variants.ids, variants.ids.parts)
        names = self._source.samples
        return None if names is None else Coordinate(DIMS[0], names, Parts.of(names.dtype))
