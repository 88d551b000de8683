"""Genotypes of PLINK 2, beside the .bed that plink2 makes of them."""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from dpca.errors import InputError
from dpca.genotypes.pgen import PgenSource
from dpca.genotypes.plink import BedSource
from tests.crossings import pgen
from tests.genotypes.cohorts import cohort, write_plink
from tests.sources.test_zarr_array import whole

needs_plink2 = pytest.mark.skipif(shutil.which("plink2") is None, reason="needs plink2")


def plink2(*words):
    subprocess.run(["plink2", "--silent", *words], check=True, capture_output=True)


@needs_plink2
@pytest.mark.parametrize("packed", [(), ("vzs",)])
def test_calls_people_and_variants_are_those_of_the_bed(packed):
    write_plink(cohort(n=31, d=300), "made")
    plink2("--bfile", "made", "--make-pgen", *packed, "--out", "p")
    ours, bed = PgenSource("p.pgen"), BedSource("made.bed")
    np.testing.assert_array_equal(whole(ours)[0], whole(bed)[0])
    for field in ("ids", "chromosomes", "positions", "counted", "other"):
        assert getattr(ours.variants, field)[...].tolist() == getattr(bed.variants, field)[...].tolist(), field
    with ours.open() as one, bed.open() as other:
        assert one.coordinate(0).values[...].tolist() == other.coordinate(0).values[...].tolist()
        np.testing.assert_array_equal(
            one.read((slice(3, 9), slice(100, 207))), other.read((slice(3, 9), slice(100, 207)))
        )


@needs_plink2
def test_dosages_are_those_of_the_file_and_a_missing_one_is_nan():
    g = np.random.default_rng(0)
    dosages = g.uniform(0, 2, (20, 6)).round(3)
    there = g.random(dosages.shape) > 0.2
    head = [
        "##fileformat=VCFv4.2",
        "##contig=<ID=1,length=9999>",
        '##FORMAT=<ID=DS,Number=1,Type=Float,Description="d">',
    ]
    names = ["#CHROM", "POS", "ID", "REF", "ALT", "QUAL", "FILTER", "INFO", "FORMAT", *(f"p{n}" for n in range(6))]
    rows = [
        [
            "1",
            str(100 + v),
            f"rs{v}",
            "G",
            "A",
            ".",
            ".",
            ".",
            "DS",
            *(str(d) if t else "." for d, t in zip(*one, strict=True)),
        ]
        for v, one in enumerate(zip(dosages, there, strict=True))
    ]
    Path("d.vcf").write_text("\n".join([*head, *map("\t".join, [names, *rows])]) + "\n")
    plink2("--vcf", "d.vcf", "dosage=DS", "--make-pgen", "--out", "d")
    source = PgenSource("d.pgen")
    assert source.layout.dtype == "f4"
    rows = [[*row[:9], *row[9:]] if v == 11 else [*row[:8], "GT", *["0/1"] * 6] for v, row in enumerate(rows)]
    Path("late.vcf").write_text(
        "\n".join([*head, '##FORMAT=<ID=GT,Number=1,Type=String,Description="g">', *map("\t".join, [names, *rows])])
        + "\n"
    )
    plink2("--vcf", "late.vcf", "dosage=DS", "--make-pgen", "--out", "late")
    late = PgenSource("late.pgen")
    np.testing.assert_allclose(whole(late)[0][:, 11], np.where(there, dosages, np.nan)[11], atol=1e-4)
    # PLINK 2 keeps dosages in 1/16384.
    np.testing.assert_allclose(whole(source)[0], np.where(there, dosages, np.nan).T, atol=1e-4)


def test_files_that_do_not_belong_together_and_several_alternate_alleles_are_refused():
    pgen(np.zeros((5, 7), int), "x")
    people, variants = Path("x.psam").read_text(), Path("x.pvar").read_text()
    Path("x.psam").write_text(people + "more\tNA\n")
    with pytest.raises(InputError, match=r"x\.pgen: (has 7 variants of 5 people|can't be read)"):
        PgenSource("x.pgen")
    Path("x.psam").write_text(people)
    Path("x.pvar").write_text(variants + "1\t999\trs999\tG\tA\n")
    with pytest.raises(InputError, match=r"x\.pgen: has 7 variants of 5 people, but 8 variants are in x\.pvar"):
        PgenSource("x.pgen")
    Path("x.pvar").write_text(variants.replace("rs3\tG\tA", "rs3\tG\tA,T"))
    with pytest.raises(InputError, match=r"variant rs3 has the alternate alleles A,T, but one is allowed"):
        PgenSource("x.pgen")
    Path("x.pvar").write_text(variants.replace("rs3\tG\tA", "rs3\tG"))
    with pytest.raises(InputError, match=r"x\.pvar: line 6 has 4 fields, but its header has 5"):
        PgenSource("x.pgen")
    Path("x.pvar").unlink()
    with pytest.raises(InputError, match=r"x\.pvar: is not there, beside x\.pgen"):
        PgenSource("x.pgen")
