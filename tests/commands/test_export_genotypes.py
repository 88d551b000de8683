"""Results of genotypes in the files of plink and GCTA."""

from pathlib import Path

import numpy as np
import yaml
import zarr

from tests.commands.calls import dpca
from tests.genotypes.cohorts import cohort, decomposed, relationships, write_plink
from tests.made import made
from tests.numerics.test_dosages import plain_result, run

K = 4


def triangle(place):
    return np.fromfile(place, "<f4")


def lower(matrix):
    return matrix[np.tril_indices(len(matrix))].astype("<f4")


def test_eigenvectors_as_plink2_writes_them(capsys):
    of = cohort()
    made(plain_result)
    arrays = zarr.open_group("result/result.zarr", mode="r")
    capsys.readouterr()
    assert dpca("export", "result", "--to", "plink") == 0
    assert capsys.readouterr().out.split() == ["result.eigenvec", "result.eigenval"]
    head, *rows = Path("result.eigenvec").read_text().splitlines()
    assert head == "#FID\tIID\tPC1\tPC2\tPC3\tPC4"
    assert [tuple(row.split("\t")[:2]) for row in rows] == list(zip(of.families, of.people, strict=True))
    scores = arrays["scores"][...]
    vectors = scores / np.linalg.norm(scores, axis=0)
    assert [row.split("\t")[2:] for row in rows] == [[f"{value:.6g}" for value in row] for row in vectors]
    values = decomposed(relationships(of.dosages)[0], K)[0]
    np.testing.assert_allclose(np.loadtxt("result.eigenval"), values, rtol=6e-6)
    assert dpca("export", "result", "--to", "plink") == 2
    assert "result.eigenvec: exists" in capsys.readouterr().err


def test_people_without_families():
    of = cohort()
    of.families = ["0"] * 60
    run(write_plink(of, "cohort"))
    assert dpca("export", "result", "--to", "plink", "--out", "other") == 0
    head, first, *_ = Path("other.eigenvec").read_text().splitlines()
    assert head.split("\t")[:2] == ["#IID", "PC1"]
    assert first.split("\t")[0] == "i0"
    assert dpca("export", "result", "--to", "grm", "--out", "other") == 0
    assert Path("other.grm.id").read_text().splitlines()[:2] == ["0\ti0", "0\ti1"]


def test_ids_that_repeat_are_written_without_their_family():
    of = cohort()
    of.people[20:] = of.people[:40]
    run(write_plink(of, "cohort"))
    assert dpca("export", "result", "--to", "plink") == 0
    rows = Path("result.eigenvec").read_text().splitlines()[1:]
    assert [tuple(row.split("\t")[:2]) for row in rows] == list(zip(of.families, of.people, strict=True))


def test_relationships_as_gcta_reads_them():
    of = cohort()
    made(plain_result)
    assert dpca("export", "result", "--to", "grm") == 0
    matrix, shared = relationships(of.dosages)
    np.testing.assert_allclose(triangle("result.grm.bin"), lower(matrix), rtol=2e-7, atol=1e-7)
    np.testing.assert_array_equal(triangle("result.grm.N.bin"), lower(shared))
    lines = Path("result.grm.id").read_text().splitlines()
    assert lines == [f"{family}\t{one}" for family, one in zip(of.families, of.people, strict=True)]


def test_relationships_of_each_chromosome():
    of = cohort()
    run(write_plink(of, "cohort"), output={"groups": {"by": "chromosome"}})
    assert dpca("export", "result", "--to", "grm") == 0
    for name in ("1", "2", "3", "4"):
        matrix, shared = relationships(of.dosages[np.array(of.chromosomes) == name])
        np.testing.assert_allclose(triangle(f"result-chr{name}.grm.bin"), lower(matrix), rtol=1e-6, atol=1e-6)
        np.testing.assert_array_equal(triangle(f"result-chr{name}.grm.N.bin"), lower(shared))
    assert len(list(Path().glob("result*.grm.id"))) == 5


def test_relationships_with_means_in_place_of_missing_calls():
    of = cohort(missing=0.0, special=False)
    run(write_plink(of, "cohort"), missing="mean")
    assert dpca("export", "result", "--to", "grm") == 0
    matrix, shared = relationships(of.dosages)
    np.testing.assert_allclose(triangle("result.grm.bin"), lower(matrix), rtol=2e-7, atol=1e-7)
    np.testing.assert_array_equal(triangle("result.grm.N.bin"), lower(shared))


def test_other_data_have_no_relationships(capsys):
    np.save("x.npy", np.random.default_rng(0).standard_normal((8, 50)))
    config = {"input": {"uri": "x.npy"}, "output": {"path": "result", "report": False}}
    Path("config.yaml").write_text(yaml.safe_dump(config))
    assert dpca("run", "config.yaml") == 0
    assert dpca("export", "result", "--to", "grm") == 2
    assert "was not scaled by allele frequencies" in capsys.readouterr().err
    assert dpca("export", "result", "--to", "plink") == 0
    assert Path("result.eigenvec").read_text().startswith("#IID\tPC1")
