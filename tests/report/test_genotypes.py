"""What a report says of genotypes: relatives by name, regions that dominate, loadings by chromosome."""

from pathlib import Path

import numpy as np

from dpca.methods.alleles import variants_of
from dpca.report.genotypes import chromosomes_of, of_genotypes, regions_of
from dpca.store.results import open_result
from tests.genotypes.cohorts import cohort, write_plink
from tests.numerics.test_dosages import run
from workflows.genotypes.make import write_bed


def test_relatives_and_people_who_are_there_twice():
    write_bed(Path("x"), 90, 8000, 0.01, seed=0)
    run("x.bed", model={"n_components": 6})
    found = of_genotypes(open_result("result"))
    pairs = [(first, second, kind) for first, second, _, kind in found["pairs"]]
    assert pairs[0] == ("person0", "person89", "the same person twice, or identical twins")
    assert sorted(pairs[1:]) == [
        ("person1", "person88", "parent and child, or siblings"),
        ("person2", "person88", "parent and child, or siblings"),
    ]
    assert found["pairs_said"].startswith("3 pairs of people are more alike than 0.175")


def test_populations_are_no_relatives():
    run(write_plink(cohort(n=60, d=6000, special=False), "x"))
    found = of_genotypes(open_result("result"))
    assert found["pairs"] == []
    assert found["warnings"] == []


def test_a_region_that_dominates_is_warned_of():
    """An inversion: 300 of 9000 variants of chromosome 2 follow the two states of it."""
    of = cohort(n=80, d=9000, missing=0.0, special=False)
    of.positions = [20_000 * (number % 2250) + 1 for number in range(9000)]
    states = np.random.default_rng(1).binomial(2, 0.4, 80).astype(np.int8)
    of.dosages[3000:3090] = states
    run(write_plink(of, "x"))
    result = open_result("result")
    regions = regions_of(result, variants_of(result))
    (warning,) = of_genotypes(result)["warnings"]
    worst = max(regions, key=lambda region: region.share)
    assert worst.chromosome == "2"
    assert worst.start == 2_000_000 * (20_000 * (3000 - 2250) // 2_000_000)
    assert f"component {worst.component + 1} is dominated by one region: chromosome 2, 14 to 16 Mb" in warning
    components = result.arrays["components"][...]
    inside = (np.array(of.chromosomes) == "2") & (np.array(of.positions) // 2_000_000 == 7)
    np.testing.assert_allclose(worst.share, (components[worst.component, inside] ** 2).sum(), rtol=1e-9)


def test_loadings_are_drawn_by_chromosome_where_these_follow_each_other():
    of = cohort()
    run(write_plink(of, "x"))
    assert chromosomes_of(open_result("result")).tolist() == of.chromosomes
    of.chromosomes = 2 * of.chromosomes[::2]
    run(write_plink(of, "x"))
    assert chromosomes_of(open_result("result")) is None
