"""Genotypes of PLINK 2: a .pgen with its .pvar and .psam, hard calls or dosages. The only file that knows pgenlib (extra `pgen`)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpca.errors import InputError
from dpca.genotypes.dosages import MISSING
from dpca.genotypes.plink import GenotypeFile, read_people, together
from dpca.genotypes.tables import count_variants, stem_of
from dpca.genotypes.variants import DIMS
from dpca.sources.base import Layout, Reader, Region, size_of
from dpca.sources.coordinate import Coordinate
from dpca.system import regular

NO_CALL = -9
"""A missing call of pgenlib, and a missing dosage."""
HEAD_BYTES, BLOCK = 12, 2**16
"""Bytes before the list of blocks, and the number of variants in a block."""
LISTED, WHOLE_NUMBERS = 0x10, (0x01, 0x02)
"""Modes: with a list of the types of records; and of hard calls alone, two bits each."""
DOSAGE = 0x60
"""Bits of the type of a record with dosages."""


class PgenSource(GenotypeFile):
    """The dosages of a .pgen, people by variants: copies of the alternate allele; a missing call is -1, a missing dosage NaN.

    Dosages are float32 where any variant has them, else hard calls, int8.
    """

    kind = "pgen"

    def __init__(self, path: str | os.PathLike[str]) -> None:
        stem = stem_of(os.fspath(path))
        variants = next(
            (name for name in (f"{stem}.pvar", f"{stem}.pvar.zst", f"{stem}.bim") if os.path.isfile(name)),
            f"{stem}.pvar",
        )
        people = next((name for name in (f"{stem}.psam", f"{stem}.fam") if os.path.isfile(name)), f"{stem}.psam")
        super().__init__(path, ("psam", people), ("pvar", variants))
        n, d = len(read_people(people).names), count_variants(variants)
        self._check_alleles()
        with _opened(self.path, n) as file:
            stored = file.get_raw_sample_ct(), file.get_variant_ct()
            if stored != (n, d):
                raise InputError(
                    f"{self.path}: has {stored[1]:,} variants of {stored[0]:,} people, but {d:,} variants are in {variants} and {n:,} people in {people}",
                    "The three files belong together: write them again, or restore what was cut off.",
                    key="input.uri",
                )
            self.dosages = _has_dosages(self.path, file, n, d)
        self.layout = Layout(
            self.path,
            (n, d),
            np.dtype(np.float32 if self.dosages else np.int8),
            (max(1, n), together(n)),
            codec="pgen",
            order="F",
            dims=DIMS,
            missing_values=() if self.dosages else (float(MISSING),),
        )

    def _check_alleles(self) -> None:
        alleles = self.variants.counted
        for piece, counted in Coordinate(DIMS[1], alleles, alleles.parts).pieces():
            several = np.char.find(np.asarray(counted.tolist(), str), ",") >= 0 if len(counted) else np.zeros(0, bool)
            if several.any():
                at = int(np.argmax(several))
                raise InputError(
                    f"{self.path}: variant {self.variants.ids[piece][at]} has the alternate alleles {counted[at]}, but one is allowed",
                    "Leave such variants out, plink2 --max-alleles 2 --make-pgen, or make one of each, plink2 --make-pgen multiallelics=-.",
                    key="input.uri",
                )

    def held(self, shape: tuple[int, ...]) -> dict[str, int]:
        whole = size_of((self.layout.shape[0], shape[1]), self.layout.dtype)
        return {"slab": whole, "calls as they are decoded": whole}

    @contextmanager
    def open(self) -> Iterator[Reader]:
        with _opened(self.path, self.layout.shape[0]) as file:
            yield _PgenReader(self, file)


class _PgenReader(Reader):
    def __init__(self, source: PgenSource, file: Any) -> None:
        super().__init__(source.layout)
        self._source, self._file = source, file

    def _read(self, region: Region) -> NDArray[Any]:
        people, variants = region
        out = self._buffer.view((variants.stop - variants.start, self.layout.shape[0]), self.layout.dtype)
        if self._source.dosages:
            self._file.read_dosages_range(variants.start, variants.stop, out)
            out[out == NO_CALL] = np.nan
        else:
            self._file.read_range(variants.start, variants.stop, out)
            out[out == NO_CALL] = MISSING
        return out[:, people].T

    def coordinate(self, axis: int) -> Coordinate | None:
        return self._source.coordinate(axis)


@contextmanager
def _opened(path: str, n_people: int) -> Iterator[Any]:
    try:
        import pgenlib
    except ImportError as cause:
        raise InputError(
            f"{path}: is a file of PLINK 2, which pgenlib reads, and that is not installed",
            "pip install pgenlib, or pip install '.[pgen]' in the clone; or convert it: plink2 --pfile STEM --make-bed --out STEM.",
            key="input.uri",
        ) from cause
    try:
        file = pgenlib.PgenReader(os.fsencode(path), raw_sample_ct=n_people)
    except Exception as cause:  # of any type, by what is damaged
        raise InputError(
            f"{path}: can't be read as a .pgen: {cause}", "Restore it from its source.", key="input.uri"
        ) from cause
    try:
        yield file
    except RuntimeError as cause:
        raise InputError(
            f"{path}: can't be read as a .pgen: {cause}", "Restore it from its source.", key="input.uri"
        ) from cause
    finally:
        with suppress(RuntimeError):
            file.close()


def _has_dosages(path: str, file: Any, n: int, d: int) -> bool:
    """Whether some variant has dosages, by the types of its records, which the header lists (specification of PLINK 2 binary files, .pgen header).

    Where the header does not, all variants are read.
    """
    with regular.opened(path) as opened:
        head = opened.read(HEAD_BYTES)
        mode, storage = head[2], head[-1] & 15
        if mode in WHOLE_NUMBERS:
            return False
        if mode == LISTED and storage < 4:  # types of 4 bits: hard calls without phase
            return False
        if mode == LISTED and storage < 8:
            n_blocks, of_lengths, of_alleles = -(-d // BLOCK), (storage & 3) + 1, (head[-1] >> 4) & 3
            opened.seek(HEAD_BYTES + 8 * n_blocks)
            for block in range(n_blocks):
                count = min(BLOCK, d - block * BLOCK)
                if (np.frombuffer(opened.read(count), np.uint8) & DOSAGE).any():
                    return True
                flags = -(-count // 8) if head[-1] >> 6 == 3 else 0
                opened.seek(count * (of_lengths + of_alleles) + flags, os.SEEK_CUR)
            return False
    found = np.empty(n, np.float32)
    for number in range(d):
        file.read_dosages(number, found)
        if (found != np.round(found)).any():
            return True
    return False
