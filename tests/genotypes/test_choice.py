"""Variants that are left out by id and by region, and people that are chosen by family and id."""

from pathlib import Path

import numpy as np
import pytest

from dpca.errors import InputError
from dpca.genotypes.choice import LONG_RANGE, chosen_variants
from dpca.genotypes.plink import BedSource
from dpca.genotypes.tables import of_arrays
from dpca.genotypes.variants import texts
from dpca.sources.choice import chosen_samples
from tests.genotypes.cohorts import cohort, write_plink

CHROMOSOMES = ["1", "chr6", "6", "06", "6", "X"]
POSITIONS = [30_000_000, 24_999_999, 25_000_000, 35_000_000, 35_000_001, 30_000_000]
IDS = ["a", "b", "c", "d", "6:35:A:G", "f"]


@pytest.fixture
def variants():
    alleles = texts(["A"] * 6)
    return of_arrays(
        "x",
        ids=texts(IDS),
        chromosomes=texts(CHROMOSOMES),
        positions=np.array(POSITIONS),
        counted=alleles,
        other=alleles,
    )


@pytest.mark.parametrize(
    ("exclude", "left_out"),
    [
        (["6:25000000-35000000"], "cd"),
        (["chr6:25,000,000-35,000,000", "a"], "acd"),
        (["long_range_ld_grch37"], "cd"),
        (["long_range_ld_GRCh38"], ""),
        (["f", "6:35:A:G", "unknown"], "6:35:A:Gf"),
        ("list.txt", "bf"),
        ("ranges.txt", "cd"),
    ],
)
def test_ids_and_regions_are_left_out(exclude, left_out, variants):
    Path("list.txt").write_text("b\nf\n")
    Path("ranges.txt").write_text("6\t25000000\t35000000\tMHC\n")
    if not left_out:
        with pytest.raises(InputError, match="none of its 6 variants is in the regions"):
            chosen_variants("x", variants, exclude=exclude)
        return
    chosen = chosen_variants("x", variants, exclude=exclude)
    assert "".join(name for name, kept in zip(IDS, chosen, strict=True) if not kept) == left_out


def test_what_matches_nothing_or_ends_before_it_begins_is_refused(variants):
    for exclude, sentence in (
        (["z"], "none of its 6 variants is in the ids"),
        (["2:1-9"], "in the regions"),
        (["6:9-1"], "6:9-1, which ends before"),
    ):
        with pytest.raises(InputError, match=sentence):
            chosen_variants("x", variants, exclude=exclude)
    with pytest.raises(InputError, match=r"Loosen chromosomes, variants, exclude or min_distance"):
        chosen_variants("x", variants, exclude=IDS)


def test_lists_of_long_range_regions_are_in_order_and_hold_the_mhc():
    for regions in LONG_RANGE.values():
        assert all(one.begin < one.end for one in regions)
        assert [int(one.chromosome) for one in regions] == sorted(int(one.chromosome) for one in regions)
        assert any(one.chromosome == "6" and one.begin < 29_000_000 and one.end > 33_000_000 for one in regions)


def test_people_are_chosen_by_family_and_id_as_plink_lists_them():
    write_plink(cohort(n=9, d=40), "x")
    source = BedSource("x.bed")
    rows = [line.split()[:2] for line in Path("x.fam").read_text().splitlines()]
    for content in (
        "\n".join("\t".join(rows[n]) for n in (7, 2)), "#FID\tIID\n" + "\n".join("\t".join(rows[n]) for n in (7, 2)),
        "#IID\n" + "\n".join(rows[n][1] for n in (7, 2)), f"{rows[7][1]}\n{rows[2][1]}\n",
    ):  # fmt: skip
        Path("some.in.id").write_text(content)
        assert chosen_samples(source, 0, "some.in.id").tolist() == [7, 2]
    Path("some.in.id").write_text(f"other {rows[7][1]}\n")
    with pytest.raises(InputError, match=f"'other {rows[7][1]}', but no person has this family and id"):
        chosen_samples(source, 0, "some.in.id")
