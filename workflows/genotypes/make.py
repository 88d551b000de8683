"""A simulated cohort of three populations as PLINK files, and as VCF Zarr: people, calls and missing ones like those of a genotyping array.

Each variant has an ancestral frequency, from which those of the populations drift apart (Balding and Nichols, Genetica 96, 1995).
Among the people are a person who is there twice under two names, and a child with both parents. Further people of the same populations are in
files of their own, in which a tenth of the variants is absent and of a third of them the other allele is counted.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import zarr
from numpy.typing import NDArray

F_ST = (0.01, 0.02, 0.04)
"""How far each population has drifted from the ancestral frequencies."""
POPULATIONS = ("north", "east", "south")
TOGETHER = 10_000
"""Variants that are made at a time."""
CHROMOSOMES = 22
CODES = np.array([3, 2, 0], np.uint8)
"""Codes in a .bed of 0, 1 and 2 copies of the first allele."""
NO_CALL = 1
ALLELES = (("A", "G"), ("C", "T"), ("T", "G"), ("A", "C"))


def frequencies(rng: np.random.Generator, count: int, f_st: Sequence[float]) -> NDArray[np.float64]:
    """Frequencies of an allele in each population, (variants, populations)."""
    ancestral = rng.uniform(0.05, 0.5, count)
    return np.stack([rng.beta(ancestral * (1 - f) / f, (1 - ancestral) * (1 - f) / f) for f in f_st], axis=1)


def bed_bytes(dosages: NDArray[np.int8]) -> bytes:
    """The bytes of variants in a .bed, without its header; dosages are variants by people, -1 where a call is missing."""
    codes = np.where(dosages < 0, NO_CALL, CODES[np.maximum(dosages, 0)]).astype(np.uint8)
    padded = np.zeros((len(codes), -(-codes.shape[1] // 4) * 4), np.uint8)
    padded[:, : codes.shape[1]] = codes
    four = padded.reshape(len(codes), -1, 4)
    return bytes((four[..., 0] | four[..., 1] << 2 | four[..., 2] << 4 | four[..., 3] << 6).tobytes())


def parts(
    n_people: int, n_variants: int, missing: float, seed: int, relatives: bool = True
) -> Iterator[NDArray[np.int8]]:
    """Dosages of variants that follow each other, variants by people.

    Parameters
    ----------
    relatives : whether the last person is the first one again, and the one before a child of the second and the third
    """
    rng = np.random.default_rng(seed)
    population = populations(n_people)
    for number, start in enumerate(range(0, n_variants, TOGETHER)):
        count = min(TOGETHER, n_variants - start)
        of_populations = frequencies(np.random.default_rng([seed, number]), count, F_ST)
        of_people = of_populations.astype(np.float32)[:, population]
        copies = [rng.random(of_people.shape, dtype=np.float32) < of_people for _ in range(2)]
        if relatives:
            for side, parent in zip(copies, (1, 2), strict=True):
                inherited = rng.integers(0, 2, count).astype(bool)
                side[:, -2] = np.where(inherited, copies[0][:, parent], copies[1][:, parent])
                side[:, -1] = side[:, 0]
        dosages = copies[0].astype(np.int8) + copies[1]
        dosages[rng.random(dosages.shape, dtype=np.float32) < missing] = -1
        yield dosages


def populations(n_people: int) -> NDArray[np.int64]:
    """The number of the population of each person; relatives at the end are of the first one."""
    population = np.sort(np.arange(n_people) % len(POPULATIONS))
    population[-2:] = 0
    return population


def write_bed(stem: Path, n_people: int, n_variants: int, missing: float, seed: int, relatives: bool = True) -> None:
    """Write STEM.bed, STEM.bim and STEM.fam, and STEM.csv with the population of each person."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{stem}.bed", "wb") as bed, open(f"{stem}.bim", "w", encoding="utf-8") as bim:
        bed.write(b"\x6c\x1b\x01")
        first = 0
        for dosages in parts(n_people, n_variants, missing, seed, relatives):
            bed.write(bed_bytes(dosages))
            bim.writelines(_line(number, n_variants) for number in range(first, first + len(dosages)))
            first += len(dosages)
    _write_people(stem, "person", populations(n_people))


def write_new(stem: Path, n_people: int, n_variants: int, missing: float, seed: int) -> None:
    """Write further people of the same populations as STEM.bed, STEM.bim, STEM.fam and STEM.csv."""
    population = np.sort(np.arange(n_people) % len(POPULATIONS))
    rng = np.random.default_rng(seed + 1)
    with open(f"{stem}.bed", "wb") as bed, open(f"{stem}.bim", "w", encoding="utf-8") as bim:
        bed.write(b"\x6c\x1b\x01")
        for number, frequency in enumerate(_of_seed(seed, n_variants)):
            calls = rng.binomial(2, frequency[population]).astype(np.int8)
            calls[rng.random(n_people) < missing] = -1
            if number % 10 == 9:
                continue
            if swapped := number % 3 == 1:
                calls = np.where(calls < 0, calls, 2 - calls).astype(np.int8)
            bed.write(bed_bytes(calls[None]))
            bim.write(_line(number, n_variants, swapped))
    _write_people(stem, "new", population)


def _of_seed(seed: int, n_variants: int) -> Iterator[NDArray[np.float64]]:
    """The frequencies of each variant of a cohort in its populations."""
    for number, start in enumerate(range(0, n_variants, TOGETHER)):
        yield from frequencies(np.random.default_rng([seed, number]), min(TOGETHER, n_variants - start), F_ST)


def _line(number: int, n_variants: int, swapped: bool = False) -> str:
    """The line of a variant in a .bim."""
    chromosome, position = place(number, n_variants)
    counted, other = ALLELES[number % len(ALLELES)][:: -1 if swapped else 1]
    return f"{chromosome}\trs{number}\t0\t{position}\t{counted}\t{other}\n"


def _write_people(stem: Path, name: str, population: NDArray[np.int64]) -> None:
    with open(f"{stem}.fam", "w", encoding="utf-8") as fam, open(f"{stem}.csv", "w", encoding="utf-8") as table:
        table.write("person,population\n")
        for number, one in enumerate(population):
            fam.write(f"{POPULATIONS[one]}\t{name}{number}\t0\t0\t0\t-9\n")
            table.write(f"{name}{number},{POPULATIONS[one]}\n")


def place(number: int, n_variants: int) -> tuple[int, int]:
    """Chromosome and position of a variant."""
    chromosome = 1 + CHROMOSOMES * number // n_variants
    first = -(-(chromosome - 1) * n_variants // CHROMOSOMES)
    return chromosome, 10_000 + 5_000 * (number - first)


def write_vcf_zarr(path: Path, n_people: int, n_variants: int, missing: float, seed: int) -> None:
    """Write the same calls as a VCF Zarr, with the arrays that vcf2zarr writes and dpca reads."""
    group = zarr.create_group(str(path), overwrite=True, attributes={"vcf_zarr_version": "0.4"})
    rows = min(TOGETHER, n_variants)
    calls = group.create_array(
        "call_genotype",
        shape=(n_variants, n_people, 2),
        chunks=(rows, min(1000, n_people), 2),
        dtype="i1",
        dimension_names=("variants", "samples", "ploidy"),
    )
    start = 0
    for dosages in parts(n_people, n_variants, missing, seed):
        both = np.stack([dosages >= 1, dosages == 2], axis=2).astype(np.int8)
        both[dosages < 0] = -1
        calls[start : start + len(dosages)] = both
        start += len(dosages)
    places = [place(number, n_variants) for number in range(n_variants)]
    alleles = [ALLELES[number % len(ALLELES)][::-1] for number in range(n_variants)]
    _put(group, "variant_contig", np.array([chromosome - 1 for chromosome, _ in places], np.int8), ("variants",))
    _put(group, "variant_position", np.array([position for _, position in places], np.int32), ("variants",))
    _put(group, "variant_id", np.array([f"rs{number}" for number in range(n_variants)]), ("variants",))
    _put(group, "variant_allele", np.array(alleles), ("variants", "alleles"))
    _put(group, "contig_id", np.array([str(1 + number) for number in range(CHROMOSOMES)]), ("contigs",))
    _put(group, "sample_id", np.array([f"person{number}" for number in range(n_people)]), ("samples",))


def _put(group: zarr.Group, name: str, values: NDArray[np.generic], dims: tuple[str, ...]) -> None:
    text = values.dtype.kind == "U"
    array = group.create_array(name, shape=values.shape, dtype=str if text else values.dtype, dimension_names=dims)
    array[...] = values.astype(np.dtypes.StringDType()) if text else values


def main() -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--people", type=int, default=600)
    parser.add_argument("--variants", type=int, default=60_000)
    parser.add_argument("--missing", type=float, default=0.01)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    how = (asked.people, asked.variants, asked.missing, asked.seed)
    write_bed(asked.folder / "cohort", *how)
    write_vcf_zarr(asked.folder / "cohort.vcz", *how)
    n_new = asked.people // 10
    write_new(asked.folder / "new", n_new, *how[1:])
    print(
        f"{asked.folder}: cohort.bed and cohort.vcz, {asked.people:,} people, {asked.variants:,} variants; new.bed, {n_new:,} people"
    )


if __name__ == "__main__":
    main()
