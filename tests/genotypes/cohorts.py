"""Cohorts of people of several populations, in the files of population genetics, and what their programs compute of them."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from workflows.genotypes.make import bed_bytes, frequencies

SMARTPCA = "/usr/lib/eigensoft/smartpca"


@dataclass
class Cohort:
    """Dosages, variants by people, -1 where a call is missing, and what is known of both."""

    dosages: np.ndarray
    chromosomes: list
    positions: list
    ids: list
    people: list
    families: list
    alleles: list
    """(counted, other) of each variant."""

    @property
    def population(self):
        return np.array([int(family[3:]) for family in self.families])


def cohort(seed=0, n=60, d=800, missing=0.02, n_chromosomes=4, special=True):
    """People of three populations (Balding and Nichols, Genetica 96, 1995); if `special`, some variants without variation."""
    rng = np.random.default_rng(seed)
    population = np.sort(np.arange(n) % 3)
    frequency = frequencies(rng, d, (0.05, 0.08, 0.12))[:, population]
    dosages = rng.binomial(2, frequency).astype(np.int8)
    if special:
        dosages[3], dosages[10], dosages[17] = 0, 2, 1
    dosages[rng.random(dosages.shape) < missing] = -1
    if special:
        dosages[24] = -1
    chromosomes = [str(1 + number * n_chromosomes // d) for number in range(d)]
    pairs = [("A", "G"), ("C", "T"), ("T", "G"), ("A", "C")]
    return Cohort(
        dosages,
        chromosomes,
        [1000 + 137 * number for number in range(d)],
        [f"rs{number}" for number in range(d)],
        [f"i{number}" for number in range(n)],
        [f"pop{one}" for one in population],
        [pairs[number % 4] for number in range(d)],
    )


def write_plink(of, stem):
    """Write a cohort as STEM.bed, STEM.bim and STEM.fam; returns the path of the .bed."""
    stem = Path(stem)
    stem.with_suffix(".bed").write_bytes(b"\x6c\x1b\x01" + bed_bytes(of.dosages))
    variants = zip(of.chromosomes, of.ids, of.positions, of.alleles, strict=True)
    lines = [f"{one}\t{name}\t0\t{at}\t{a}\t{b}\n" for one, name, at, (a, b) in variants]
    stem.with_suffix(".bim").write_text("".join(lines))
    people = zip(of.families, of.people, strict=True)
    stem.with_suffix(".fam").write_text("".join(f"{family}\t{one}\t0\t0\t0\t1\n" for family, one in people))
    return stem.with_suffix(".bed")


def some(of, variants=None, people=None):
    """A cohort with some variants and some people, by their numbers."""
    v = np.arange(len(of.ids)) if variants is None else np.asarray(variants)
    p = np.arange(len(of.people)) if people is None else np.asarray(people)
    take = lambda values, at: [values[number] for number in at]  # noqa: E731
    return Cohort(
        of.dosages[np.ix_(v, p)],
        take(of.chromosomes, v),
        take(of.positions, v),
        take(of.ids, v),
        take(of.people, p),
        take(of.families, p),
        take(of.alleles, v),
    )


def standardized(dosages, convention, reference=None, used=None):
    """Z, people by variants, and the mask of variants that have variation, dense in float64.

    Parameters
    ----------
    reference : mask of the people whose frequencies count; None for all
    """
    present = dosages >= 0
    copies = np.where(present, dosages, 0).astype(np.float64)
    of = np.ones(dosages.shape[1], bool) if reference is None else reference
    n, total = present[:, of].sum(axis=1), copies[:, of].sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = total / n
        p = (1 + total) / (2 + 2 * n) if convention == "smartpca" else mean / 2
        deviation = np.sqrt(p * (1 - p) * (2 if convention == "plink2" else 1))
    varies = (n > 0) & (mean > 0) & (mean < 2)
    varies &= True if used is None else used
    z = np.where(present, copies - np.nan_to_num(mean)[:, None], 0.0)
    z = np.where(varies[:, None], z / np.where(varies, deviation, 1.0)[:, None], 0.0)
    return z.T, varies


def relationships(dosages, used=None):
    """The genetic relationship matrix of plink 2 and GCTA, and the numbers of variants that two people have."""
    z, _ = standardized(dosages, "plink2", used=used)
    present = (dosages >= 0).astype(np.float64) if used is None else (dosages[used] >= 0).astype(np.float64)
    shared = present.T @ present
    return z @ z.T / shared, shared


def decomposed(matrix, k):
    """The k largest eigenvalues, and their vectors."""
    values, vectors = np.linalg.eigh(matrix)
    return values[::-1][:k], vectors[:, ::-1][:, :k]


def assert_same_vectors(found, expected, atol):
    """Vectors, in columns, that are the same up to their signs."""
    signs = np.sign(np.sum(found * expected, axis=0))
    np.testing.assert_allclose(found * signs, expected, rtol=0, atol=atol)


def needed(program):
    """The path of a program; the test skips where it is not installed, unless the environment says that it has to be."""
    found = shutil.which(program) if os.path.basename(program) == program else program
    if found is None or not os.path.exists(found):
        if os.environ.get("DPCA_NEEDS_PEERS"):
            raise AssertionError(f"{program} is not installed, and DPCA_NEEDS_PEERS is set")
        pytest.skip(f"{program} is not installed (apt-get install plink2 eigensoft)")
    return found


def plink2(*arguments):
    """Run plink 2 in one thread."""
    command = [needed("plink2"), *map(str, arguments), "--threads", "1"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def printed(stem, k):
    """The eigenvalues and the eigenvectors that plink 2 printed."""
    rows = [line.split() for line in Path(f"{stem}.eigenvec").read_text().splitlines()]
    vectors = np.array([[float(value) for value in row[-k:]] for row in rows[1:]])
    return np.loadtxt(f"{stem}.eigenval"), vectors


def smartpca(bed, k, n_fitted=None):
    """The eigenvalues and the coordinates that smartpca prints, by altnormstyle: NO, usenorm: YES, numoutlieriter: 0.

    Parameters
    ----------
    n_fitted : the number of people, from the first on, that it fits; it projects the others by least squares (lsqproject). None for all
    """
    stem = str(bed)[: -len(".bed")]
    settings = {
        "genotypename": f"{stem}.bed",
        "snpname": f"{stem}.bim",
        "indivname": f"{stem}.fam",
        "evecoutname": f"{stem}.evec",
        "evaloutname": f"{stem}.eval",
        "altnormstyle": "NO",
        "usenorm": "YES",
        "numoutlieriter": 0,
        "numoutevec": k,
        "numthreads": 1,
    }
    if n_fitted is not None:
        rows = [line.split() for line in Path(f"{stem}.fam").read_text().splitlines()]
        people = [" ".join([*row[:5], "fitted" if n < n_fitted else "new"]) for n, row in enumerate(rows)]
        Path(f"{stem}.pedind").write_text("\n".join(people) + "\n")
        Path(f"{stem}.populations").write_text("fitted\n")
        settings |= {"indivname": f"{stem}.pedind", "poplistname": f"{stem}.populations", "lsqproject": "YES"}
    Path(f"{stem}.par").write_text("".join(f"{name}: {value}\n" for name, value in settings.items()))
    done = subprocess.run([needed(SMARTPCA), "-p", f"{stem}.par"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line.split() for line in Path(f"{stem}.evec").read_text().splitlines()[1:]]
    return np.loadtxt(f"{stem}.eval"), np.array([[float(value) for value in row[1 : 1 + k]] for row in rows])
