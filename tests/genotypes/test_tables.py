"""Genotypes that are easily mixed up: ids that repeat, alleles that are swapped, chromosomes that programs leave out, people who are children."""

import json
from pathlib import Path

import numpy as np
import pytest
import yaml
import zarr

from dpca.errors import InputError, StorageError
from dpca.genotypes.tables import read_variants
from dpca.sources import open_source
from tests.commands.calls import dpca
from tests.genotypes.cohorts import cohort, decomposed, some, standardized, write_plink
from tests.genotypes.test_aligned import expected, projected
from tests.made import made
from tests.numerics.test_dosages import K, assert_decomposes, matrix_of, run

NEW = np.arange(60) % 4 == 0


def parts(of):
    return some(of, people=np.flatnonzero(~NEW)), some(of, people=np.flatnonzero(NEW))


def swapped(of):
    """The same genotypes by copies of the other allele."""
    found = some(of)
    found.alleles = [pair[::-1] for pair in of.alleles]
    found.dosages = np.where(of.dosages < 0, of.dosages, 2 - of.dosages).astype(np.int8)
    return found


@pytest.mark.parametrize("ids", ["unnamed", "on each chromosome"])
def test_variants_of_one_id_are_told_apart_by_their_places(ids, capsys):
    of = cohort(d=400)
    of.ids = ["."] * 400 if ids == "unnamed" else [f"rs{number % 100}" for number in range(400)]
    reference, new = parts(of)
    run(write_plink(reference, "reference"), model={"n_components": 3})
    write_plink(some(new, variants=np.random.default_rng(0).permutation(400)[:360]), "new")
    capsys.readouterr()
    scores = projected()
    assert "360 of 400 variants of result are in new.bed" in capsys.readouterr().err
    known = np.isin(of.positions, open_source("new.bed").variants.positions[...])
    np.testing.assert_allclose(scores, expected(reference, new, known), atol=1e-10)


def test_files_are_joined_where_they_count_the_same_alleles(capsys):
    one, other = parts(cohort())
    write_plink(one, "a")
    write_plink(other, "b")
    arrays = run("a.bed", input={"uri": ["a.bed", "b.bed"]}, filters={"chromosomes": [1, 2]})
    assert arrays["variant_counted_allele"][...].tolist() == [pair[0] for pair in one.alleles]
    assert arrays["sample_family"][...].tolist() == one.families + other.families
    together = np.hstack([one.dosages, other.dosages])
    used = np.isin(one.chromosomes, ["1", "2"])
    assert_decomposes(arrays, matrix_of(together, "plink2", "pairwise", used=used))
    write_plink(swapped(other), "b")
    capsys.readouterr()
    assert run("a.bed", input={"uri": ["a.bed", "b.bed"]}, code=2) == 2
    assert "b.bed: counted allele G of variant rs0, but A in a.bed" in capsys.readouterr().err


def test_new_people_of_a_kernel_have_their_alleles_turned(capsys):
    reference, new = parts(cohort(missing=0.0))
    write_plink(reference, "reference")
    config = {
        "input": {"uri": "reference.bed"},
        "model": {"kind": "kernel_pca", "kernel": "rbf", "gamma": 1e-3, "n_components": 3, "precision": "double"},
        "preprocess": {"missing": "mean"},
        "output": {"path": "result", "report": False},
    }
    Path("c.yaml").write_text(yaml.safe_dump(config))
    assert dpca("run", "c.yaml") == 0
    write_plink(new, "new")
    plain = projected()
    write_plink(swapped(new), "new")
    np.testing.assert_allclose(projected(), plain, atol=1e-12)
    write_plink(some(new, variants=range(700)), "new")
    capsys.readouterr()
    assert dpca("transform", "result", "new.bed", "--out", "other.zarr") == 2
    assert "new.bed: has 700 of 800 variants of result, but a kernel needs all" in capsys.readouterr().err


def test_alleles_that_are_not_known_are_not_guessed(capsys):
    """Of a fit of several inputs it is not kept which alleles were counted."""
    reference, new = parts(cohort())
    write_plink(reference, "reference")
    np.save("table.npy", np.random.default_rng(0).standard_normal((45, 5)))
    inputs = [{"name": "genotypes", "uri": "reference.bed"}, {"name": "table", "uri": "table.npy"}]
    config = {
        "input": inputs,
        "preprocess": {"missing": "mean"},
        "model": {"n_components": 2},
        "output": {"path": "result"},
    }
    Path("c.yaml").write_text(yaml.safe_dump(config))
    assert dpca("run", "c.yaml") == 0
    write_plink(new, "new")
    np.save("new.npy", np.zeros((15, 5)))
    Path("new.yaml").write_text(
        yaml.safe_dump([{"name": "genotypes", "uri": "new.bed"}, {"name": "table", "uri": "new.npy"}])
    )
    capsys.readouterr()
    assert dpca("transform", "result", "new.yaml", "--out", "new.zarr") == 2
    assert "keeps no record of the alleles of its variants" in capsys.readouterr().err


def result_of(reference):
    """Leave the components of a cohort here."""
    run(write_plink(reference, "reference"), model={"n_components": 3})


@pytest.mark.parametrize(
    ("dtype", "factor", "offset"), [("i2", 0.01, 0.0), ("i2", 0.5, 1.0), ("u1", 0.01, 0.0), ("f4", 1.0, 0.0)]
)
def test_packed_dosages_are_turned_as_dosages(dtype, factor, offset):
    reference, new = parts(cohort(missing=0.0))
    made(result_of, reference)
    there = np.arange(800) % 10 > 0
    other = some(swapped(new), variants=np.flatnonzero(there))
    write_plink(other, "bim")
    stored = np.rint((other.dosages.T - offset) / factor).astype(dtype)
    array = zarr.create_array("new.zarr", data=stored, chunks=(15, 100))
    array.attrs.update(scale_factor=factor, add_offset=offset)
    asked = {"uri": "new.zarr", "samples_axis": 0, "variants": "bim.bim"}
    Path("new.yaml").write_text(yaml.safe_dump(asked))
    assert dpca("transform", "result", "new.yaml", "--out", "scores.zarr") == 0
    scores = zarr.open_group("scores.zarr", mode="r")["scores"][...]
    np.testing.assert_allclose(scores, expected(reference, new, there), atol=1e-9)


def test_chromosomes_that_programs_leave_out(capsys):
    of = cohort()
    of.chromosomes = ["X" if one == "3" else "26" if one == "4" else one for one in of.chromosomes]
    uri = write_plink(of, "x")
    used = np.isin(of.chromosomes, ["1", "2"])
    assert_decomposes(run(uri), matrix_of(of.dosages, "plink2", "pairwise", used=used))
    assert "variants of chromosomes X, 26 were left out, as plink2 does" in capsys.readouterr().err
    assert_decomposes(run(uri, filters={"chromosomes": "all"}), matrix_of(of.dosages, "plink2", "pairwise"))
    of.chromosomes = ["38" if one == "1" else one for one in of.chromosomes]  # of dogs 26 is one
    used = ~np.isin(of.chromosomes, ["X"])
    assert_decomposes(run(write_plink(of, "x")), matrix_of(of.dosages, "plink2", "pairwise", used=used))


def test_regions_of_which_everybody_has_two_copies_are_used_as_plink2_does(capsys):
    of = cohort()
    of.chromosomes = [{"2": "25", "3": "PAR1", "4": "0"}.get(one, one) for one in of.chromosomes]
    of.chromosomes[:50], of.chromosomes[50:100] = ["XY"] * 50, ["23"] * 50
    uri = write_plink(of, "x")
    for how, names in (({}, ("23",)), ({"convention": "smartpca", "missing": "mean"}, ("XY", "23", "25", "PAR1", "0"))):
        used = ~np.isin(of.chromosomes, names)
        convention, missing = how.get("convention", "plink2"), how.get("missing", "pairwise")
        assert_decomposes(run(uri, **how), matrix_of(of.dosages, convention, missing, used=used))
        assert (
            f"variants of chromosomes {', '.join(names)} were left out, as {convention} does" in capsys.readouterr().err
        )


def test_positions_as_r_writes_them(capsys):
    of = cohort(special=False, n_chromosomes=1)
    uri = write_plink(of, "x")
    expected = run(uri, filters={"min_distance": 300})["scores"][...]
    of.positions = [f"{at:.0e}" if at % 1000 == 0 else f"{at}.0" for at in of.positions]
    assert "1e+03" in of.positions
    np.testing.assert_array_equal(run(write_plink(of, "x"), filters={"min_distance": 300})["scores"][...], expected)
    for wrong in ("1.5", "1e", "nan", "1e+99"):
        of.positions[7] = wrong
        run(write_plink(of, "x"), filters={"min_distance": 300}, code=2)
        assert f"x.bim: {wrong!r} is no position in base pairs" in capsys.readouterr().err


def test_a_person_without_a_call_is_named(capsys):
    of = cohort()
    of.dosages[:, [7, 20]] = -1
    run(write_plink(of, "x"), code=2)
    assert (
        "x.bed: sample 7 (i7), sample 20 (i20): without any value in the 799 features that are used"
        in capsys.readouterr().err
    )


def test_frequencies_of_founders(capsys):
    of = cohort(missing=0.0, special=False)
    uri = write_plink(of, "x")
    lines = Path("x.fam").read_text().splitlines()
    for number in range(0, 60, 3):
        fields = lines[number].split("\t")
        fields[2:4] = ["i1", "i2"] if number else ["0", "i2"]
        lines[number] = "\t".join(fields)
    Path("x.fam").write_text("\n".join(lines) + "\n")
    run(uri)
    assert "20 people have parents in the .fam" in capsys.readouterr().err
    founders = np.arange(60) % 3 > 0
    z, _ = standardized(of.dosages, "plink2", founders)
    assert_decomposes(run(uri, reference="founders"), z @ z.T / len(of.dosages))
    run(uri, missing="mean", reference="founders", output={"groups": {"by": "chromosome"}})
    analyses = [{"name": "loco", "features": {"leave_out": ["3"]}, "model": {"kind": "pca", "n_components": K}}]
    asked = {"from": "result", "analyses": analyses, "components": False, "output": {"path": "derived"}}
    Path("d.yaml").write_text(yaml.safe_dump(asked))
    capsys.readouterr()
    assert dpca("derive", "d.yaml") == 2
    assert "is about the mean of some people" in capsys.readouterr().err
    run(uri, reference="founders", output={"groups": {"by": "chromosome"}})
    assert dpca("derive", "d.yaml") == 0
    z = z * (np.array(of.chromosomes) != "3")
    derived = zarr.open_group("derived/result.zarr", mode="r")["loco/singular_values"][...]
    np.testing.assert_allclose(derived**2, decomposed(z @ z.T, K)[0], rtol=1e-9)


def test_more_genotypes_than_people():
    write_plink(cohort(n=59), "x")
    lines = Path("x.fam").read_text().splitlines(keepends=True)
    Path("x.fam").write_text("".join(lines[:57]))
    source = open_source("x.bed")
    with (
        pytest.raises(StorageError, match=r"x.bed: has genotypes of more people than x.fam has lines \(57\)"),
        source.open() as reader,
    ):
        reader.read((slice(0, 57), slice(0, 800)))


def test_one_chromosome_by_two_names():
    of = cohort()
    of.chromosomes = [one if number % 2 else f"chr{one}" for number, one in enumerate(of.chromosomes)]
    arrays = run(write_plink(of, "x"), output={"groups": {"by": "chromosome"}})
    assert arrays["n_shared_features_by_group"].shape[0] == 4
    assert dpca("export", "result", "--to", "grm") == 0
    assert len(list(Path().glob("result-chr*.grm.bin"))) == 4


HEAD = "id,chromosome,position,counted,other\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (HEAD + "rs1,1,5,A,G\nrs2,1,6,A\n", r"x.csv: line 3 has no other"),
        (HEAD + "rs1,1\n", r"x.csv: line 2 has no position"),
        (HEAD + "rs1,1,99999999999999999999,A,G\n", r"'99999999999999999999' is no position"),
    ],
)
def test_tables_with_less_than_they_should_have(text, said):
    Path("x.csv").write_text(text)
    with pytest.raises(InputError, match=said):
        read_variants("x.csv").positions[...]


def test_a_table_that_is_not_there(capsys):
    np.save("x.npy", np.ones((4, 3)))
    assert run("x.npy", input={"variants": "nope.bim"}, code=2) == 2
    assert "nope.bim" in capsys.readouterr().err


def test_codes_are_of_calls_only(capsys):
    x = np.random.default_rng(0).integers(0, 3, (8, 40)).astype(np.int8)
    x[3, 17] = -2
    np.save("x.npy", x)
    assert run("x.npy", missing="mean", code=2) == 2
    error = capsys.readouterr().err
    assert "-2" in error
    assert "autosomes" not in error


def test_dosages_that_rounding_put_beside_their_limits():
    x = cohort(missing=0.0, special=False).dosages.T.astype(np.float64)
    np.save("x.npy", x)
    plain = run("x.npy", missing="error")["convention_eigenvalues"][:K]
    np.save("x.npy", np.clip(x, 1e-8, None) * (1 + 1e-7))
    np.testing.assert_allclose(run("x.npy", missing="error")["convention_eigenvalues"][:K], plain, rtol=1e-5)


def test_an_id_that_has_a_colon_of_its_own():
    of = cohort()
    of.people = [f"{family}:{one}" for family, one in zip(of.families, of.people, strict=True)]
    run(write_plink(of, "x"))
    assert dpca("export", "result", "--to", "plink") == 0
    rows = [line.split("\t")[:2] for line in Path("result.eigenvec").read_text().splitlines()[1:]]
    assert rows == [list(pair) for pair in zip(of.families, of.people, strict=True)]


def test_how_many_ids_of_a_list_are_there(capsys):
    of = cohort()
    Path("list.txt").write_text("\n".join([*of.ids[:300], "other1", "other2"]))
    run(write_plink(of, "x"), filters={"variants": "list.txt", "min_distance": 200, "max_missing": 0.5})
    error = capsys.readouterr().err
    assert "300 of 302 ids of preprocess.filters.variants are there" in error
    assert "min_distance was applied before the filters by frequency" in error
    assert json.loads(Path("result/manifest.json").read_text())["notes"]


@pytest.mark.parametrize("convention", ["smartpca", "snprelate"])
def test_conventions_that_fill_with_means(convention, capsys):
    assert run(write_plink(cohort(), "x"), convention, "pairwise", code=2) == 2
    assert f"{convention} fills missing calls with the mean" in capsys.readouterr().err
