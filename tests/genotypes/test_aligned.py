"""New people in the components of a reference: by id, whatever allele is counted, with variants missing."""

from pathlib import Path

import numpy as np
import pytest
import yaml
import zarr

from tests.commands.calls import dpca
from tests.genotypes.cohorts import cohort, some, standardized, write_plink
from tests.made import made

K = 3
OTHER = {"A": "T", "G": "C", "C": "G", "T": "A"}


def result_of(reference):
    """Leave the components of a cohort here."""
    write_plink(reference, "reference")
    config = {
        "input": {"uri": "reference.bed"},
        "preprocess": {"scale": {"binomial": "plink2"}, "missing": "pairwise"},
        "model": {"n_components": K, "precision": "double"},
        "output": {"path": "result", "report": False},
    }
    Path("config.yaml").write_text(yaml.safe_dump(config))
    assert dpca("run", "config.yaml") == 0


@pytest.fixture
def people():
    """A reference of 45 people, with its result, and 15 others in the same variants."""
    of = cohort(d=2000)
    new = np.arange(60) % 4 == 0
    reference, others = some(of, people=np.flatnonzero(~new)), some(of, people=np.flatnonzero(new))
    made(result_of, reference)
    return reference, others


def projected(uri="new.bed", *more):
    assert dpca("transform", "result", uri, "--out", "new.zarr", "--overwrite", *more) == 0
    return zarr.open_group("new.zarr", mode="r")["scores"][...]


def expected(reference, others, known=None):
    """Scores by the means and deviations of the reference, by least squares on the calls that there are; `known` variants of the others."""
    components = np.nan_to_num(zarr.open_group("result/result.zarr", mode="r")["components"][...])
    both, _ = standardized(
        np.hstack([reference.dosages, others.dosages]), "plink2", reference=np.arange(60) < reference.dosages.shape[1]
    )
    z, there = both[reference.dosages.shape[1] :], (others.dosages >= 0).T & (True if known is None else known)
    return np.array(
        [np.linalg.lstsq(components[:, one].T, row[one], rcond=None)[0] for one, row in zip(there, z, strict=True)]
    )


def test_the_same_variants(people, capsys):
    write_plink(people[1], "new")
    np.testing.assert_allclose(projected(), expected(*people), atol=1e-10)
    said = capsys.readouterr().err
    assert "2,000 of 2,000 variants of result are in new.bed\n" in said
    assert "closer to 0" in said


def test_swapped_alleles_other_orders_and_missing_variants(people, capsys):
    reference, others = people
    rng = np.random.default_rng(1)
    there = np.sort(rng.permutation(2000)[:1500])
    new = some(others, variants=rng.permutation(there))
    swapped = rng.random(1500) < 0.4
    for number in np.flatnonzero(swapped):
        new.alleles[number] = new.alleles[number][::-1]
        calls = new.dosages[number]
        new.dosages[number] = np.where(calls < 0, calls, 2 - calls)
    for number in range(10):  # of another strand, or another variant
        new.alleles[number] = tuple(OTHER[one] for one in new.alleles[number])
    write_plink(new, "new")
    numbers = [int(name[2:]) for name in new.ids]
    known = np.isin(np.arange(2000), numbers[10:])
    np.testing.assert_allclose(projected(), expected(reference, others, known), atol=1e-10)
    said = capsys.readouterr().err
    assert (
        f"1,490 of 2,000 variants of result are in new.bed, {swapped[10:].sum()} of them with alleles swapped" in said
    )
    assert "10 are there with other alleles, and were not used" in said
    assert "For the other 510 calls of everyone are missing" in said


def test_variants_that_are_missing_shrink_scores_by_their_squared_loadings(people):
    _, others = people
    write_plink(others, "new")
    whole = projected("new.bed", "--projection", "mean")
    full = zarr.open_group("new.zarr", mode="r")["shrinkage"][...]
    write_plink(some(others, variants=range(0, 2000, 2)), "new")
    half = projected("new.bed", "--projection", "mean")
    found = zarr.open_group("new.zarr", mode="r")["shrinkage"][...]
    components = np.nan_to_num(zarr.open_group("result/result.zarr", mode="r")["components"][...])
    shares = (components[:, ::2] ** 2).sum(axis=1) / (components**2).sum(axis=1)
    np.testing.assert_allclose(found, full * shares, rtol=1e-12)
    slopes = (whole * half).sum(axis=0) / (whole**2).sum(axis=0)
    np.testing.assert_allclose(slopes[:2], shares[:2], atol=0.05)


def test_an_allele_that_nobody_has_is_unknown(people):
    reference, others = people
    new = some(others)
    unvaried = np.flatnonzero([(row[row >= 0] == 0).all() for row in new.dosages])
    assert unvaried.size
    for number in unvaried:
        new.alleles[number] = ("0", new.alleles[number][1])
    write_plink(new, "new")
    np.testing.assert_allclose(projected(), expected(reference, others), atol=1e-10)


def test_people_as_vcf_zarr(people):
    reference, others = people
    calls = np.stack([others.dosages >= 1, others.dosages == 2], axis=2).astype(np.int8)
    calls[others.dosages < 0] = -1
    text = np.dtypes.StringDType()
    group = zarr.open_group("new.vcz", mode="w")
    group.create_array("call_genotype", data=calls, chunks=(300, 7, 2))
    beside = {
        "variant_contig": np.array([int(one) - 1 for one in others.chromosomes]),
        "variant_position": np.array(others.positions),
        "contig_id": np.array(["1", "2", "3", "4"], text),
        "variant_id": np.array(others.ids, text),
        "variant_allele": np.array([pair[::-1] for pair in others.alleles], text),
        "sample_id": np.array(others.people, text),
    }
    for name, values in beside.items():
        array = group.create_array(name, shape=values.shape, dtype=str if values.dtype == text else values.dtype)
        array[...] = values
    np.testing.assert_allclose(projected("new.vcz"), expected(reference, others), atol=1e-10)
    assert zarr.open_group("new.zarr", mode="r")["sample"][...].tolist() == others.people


def test_no_variant_in_common(people, capsys):
    new = some(people[1])
    new.ids = [f"other{number}" for number in range(2000)]
    write_plink(new, "new")
    assert dpca("transform", "result", "new.bed", "--out", "new.zarr") == 2
    error = capsys.readouterr().err
    assert "new.bed: has no variant of result, whose ids are such as rs0; its own are such as other0" in error
    assert not Path("new.zarr").exists()


def test_shrinkage_is_that_of_people_who_are_left_out_in_turn():
    """The estimate beside the slope of scores that all others predict, for each person: within 5 % where components are separated, and below."""
    of = cohort(n=90, d=4000, missing=0.0, special=False)
    write_plink(of, "reference")
    config = {
        "input": {"uri": "reference.bed"},
        "preprocess": {"scale": {"binomial": "plink2"}},
        "model": {"n_components": 2, "precision": "double"},
        "output": {"path": "result", "report": False},
    }
    Path("config.yaml").write_text(yaml.safe_dump(config))
    assert dpca("run", "config.yaml") == 0
    write_plink(some(of, people=range(5)), "new")
    projected()
    found = zarr.open_group("new.zarr", mode="r")["shrinkage"][...]
    z, _ = standardized(of.dosages, "plink2")
    matrix, scores = z @ z.T, zarr.open_group("result/result.zarr", mode="r")["scores"][...]
    predicted = np.zeros_like(scores)
    for person in range(90):
        others = np.delete(np.arange(90), person)
        values, vectors = np.linalg.eigh(matrix[np.ix_(others, others)])
        values, vectors = values[::-1][:2], vectors[:, ::-1][:, :2]
        vectors = vectors * np.sign((vectors * scores[others]).sum(axis=0))
        predicted[person] = matrix[person, others] @ vectors / np.sqrt(values)
    slopes = (predicted * scores).sum(axis=0) / (scores**2).sum(axis=0)
    assert (slopes < 0.95).all()
    np.testing.assert_allclose(found, slopes, rtol=0.05)
