"""PCA of dosages by the conventions of plink 2, smartpca and SNPRelate, against dense matrices in float64."""

import json
from pathlib import Path

import h5py
import numpy as np
import pytest
import yaml
import zarr
from hypothesis import given
from hypothesis import strategies as st

from dpca import PCA
from dpca.store.results import open_result
from tests.commands.calls import dpca
from tests.drawn import examples
from tests.genotypes.cohorts import (
    assert_same_vectors,
    cohort,
    decomposed,
    relationships,
    some,
    standardized,
    write_plink,
)
from tests.made import made
from workflows.genotypes.make import write_vcf_zarr

K = 4


def run(uri, convention="plink2", missing="pairwise", *, code=0, out="result", reference=None, **keys):
    """Run in double precision; returns the arrays, or the exit code where it is not 0."""
    scale = {"binomial": convention} | ({} if reference is None else {"reference": reference})
    config = {
        "input": {"uri": str(uri), **keys.pop("input", {})},
        "preprocess": {"scale": scale, "missing": missing, "filters": keys.pop("filters", {})},
        "model": {"n_components": K, "precision": "double"} | keys.pop("model", {}),
        "output": {"path": out, "report": False} | keys.pop("output", {}),
    }
    Path("config.yaml").write_text(yaml.safe_dump(config))
    assert dpca("run", "config.yaml", "--overwrite") == code
    return zarr.open_group(f"{out}/result.zarr", mode="r") if code == 0 else code


def plain_result():
    """Leave the components of a cohort here."""
    run(write_plink(cohort(), "cohort"))


def counts(out="result"):
    return json.loads(Path(out, "manifest.json").read_text())["counts"]


def test_a_run_and_its_report_tell_eigenvalues_of_the_convention(capsys):
    arrays = run(write_plink(cohort(), "cohort"))
    value = f"{arrays['convention_eigenvalues'][0]:.6g}"
    head, first = capsys.readouterr().out.splitlines()[:2]
    assert "plink2 eigenvalue" in head
    assert value in first.split()
    for name in ("jinja2", "bokeh"):
        pytest.importorskip(name)
    from dpca.report.page import document

    contents, _ = document(open_result("result"), None)
    at = contents["head_of_components"].index("plink2 eigenvalue")
    assert [row[at] for row in contents["rows_of_components"]] == [
        f"{one:.6g}" for one in arrays["convention_eigenvalues"][:K]
    ]


def matrix_of(dosages, convention, missing, **how):
    """Z Z', or that of pairs, scaled as the program of the convention does, and Z."""
    if missing == "pairwise":
        return relationships(dosages, **how)[0]
    z, _ = standardized(dosages, convention, **how)
    product = z @ z.T
    divisor = len(dosages) if convention == "plink2" else np.trace(product) / (len(product) - 1)
    return product / divisor


def assert_decomposes(arrays, matrix, rtol=1e-10):
    values, vectors = decomposed(matrix, K)
    np.testing.assert_allclose(arrays["convention_eigenvalues"][:K], values, rtol=rtol)
    scores = arrays["scores"][...]
    assert_same_vectors(scores / np.linalg.norm(scores, axis=0), vectors, 1e-7)


@pytest.mark.parametrize("convention", ["plink2", "smartpca", "snprelate"])
@pytest.mark.parametrize("n_missing", [0.0, 0.03])
def test_conventions(convention, n_missing):
    of = cohort(missing=n_missing)
    missing = "pairwise" if convention == "plink2" else "mean"
    arrays = run(write_plink(of, "cohort"), convention, missing)
    used = (of.dosages >= 0).any(axis=1)
    matrix = matrix_of(of.dosages[used], convention, missing)
    assert_decomposes(arrays, matrix)
    z, varies = standardized(of.dosages, convention)
    assert counts()["monomorphic_features"] == 2
    assert counts()["empty_features"] == 1
    assert (np.isnan(arrays["components"][0]) == ~varies).all()
    if missing == "mean":
        np.testing.assert_allclose(arrays["gram"][...], z @ z.T, rtol=1e-9, atol=1e-9)


def test_alike_variants_count_among_those_that_two_people_have_as_in_plink2():
    made(plain_result)
    _, shared = relationships(cohort().dosages)
    arrays = zarr.open_group("result/result.zarr", mode="r")
    np.testing.assert_array_equal(arrays["n_shared_features"][...], shared)


@pytest.mark.parametrize("stored", ["bed", "vcf", "zarr", "zarr by people", "hdf5"])
def test_dosages_are_the_same_however_they_are_stored(stored):
    of = cohort(special=False)
    write_plink(of, "cohort")
    uri, keys = "cohort.bed", {}
    if stored == "vcf":
        calls = np.stack([of.dosages >= 1, of.dosages == 2], axis=2).astype(np.int8)
        calls[of.dosages < 0] = -1
        zarr.create_array("cohort.vcz/call_genotype", data=calls, chunks=(100, 13, 2))
        zarr.open_group("cohort.vcz")
        uri = "cohort.vcz"
    elif stored != "bed":
        values = of.dosages.T if stored == "zarr by people" else of.dosages
        keys = {"samples_axis": 0 if stored == "zarr by people" else 1, "variants": "cohort.bim"}
        if stored == "hdf5":  # as imputed dosages are kept: numbers between 0 and 2, and NaN
            with h5py.File("x.h5", "w") as file:
                file["dosage"] = np.where(values < 0, np.nan, values)
            uri = "x.h5"
        else:
            keys["missing_values"] = [-1]
            zarr.create_array("x.zarr", data=values, chunks=(13, 100) if keys["samples_axis"] == 0 else (100, 13))
            uri = "x.zarr"
    arrays = run(uri, input=keys)
    assert_decomposes(arrays, relationships(of.dosages)[0])
    if stored in ("bed", "hdf5"):
        assert arrays["variant"][:3].tolist() == ["rs0", "rs1", "rs2"]
        assert arrays["variant_position"][1] == of.positions[1]


def test_frequencies_of_some_people():
    of = cohort()
    arrays = run(write_plink(of, "cohort"), "snprelate", "mean", reference=[f"i{number}" for number in range(20)])
    of_reference = np.arange(60) < 20
    z, varies = standardized(of.dosages, "snprelate", reference=of_reference)
    np.testing.assert_allclose(arrays["gram"][...], z @ z.T, rtol=1e-9, atol=1e-8)
    assert counts()["monomorphic_features"] + counts()["empty_features"] == (~varies).sum()
    shares = arrays["scores"][...]
    np.testing.assert_allclose(shares[:20].sum(axis=0), 0, atol=1e-8)
    assert np.abs(shares.sum(axis=0)).max() > 1
    assert json.loads(Path("result/certificate.json").read_text())["verdict"]


def test_reference_that_is_none_of_the_people(capsys):
    code = run(write_plink(cohort(), "cohort"), reference=["nobody"], code=2)
    assert code == 2
    assert "preprocess.scale.reference" in capsys.readouterr().err


FILTERS = {
    "frequency": ({"min_minor_allele_frequency": 0.2}, lambda of, p, missing: np.minimum(p, 1 - p) >= 0.2),
    "missing": ({"max_missing": 0.03}, lambda of, p, missing: missing <= 0.03),
    "chromosomes": ({"chromosomes": [2, "chr03"]}, lambda of, p, missing: np.isin(of.chromosomes, ["2", "3"])),
    "variants": (
        {"variants": ["rs5", "rs7", "rs600", "rs601", "rs700", "rs701"]},
        lambda of, p, missing: np.isin(of.ids, ["rs5", "rs7", "rs600", "rs601", "rs700", "rs701"]),
    ),
    "exclude": (
        {"exclude": ["rs5", "2:1000-60000", "chr03:1-9"]},
        lambda of, p, missing: (
            (np.array(of.ids) != "rs5") & ((np.array(of.chromosomes) != "2") | (np.array(of.positions) > 60000))
        ),
    ),
    "distance": ({"min_distance": 300}, lambda of, p, missing: np.tile([True, False, False], 267)[:800]),
}


@pytest.mark.parametrize("name", FILTERS)
def test_filters(name):
    of = cohort(special=False, n_chromosomes=4 if name != "distance" else 1)
    filters, used = FILTERS[name]
    present = of.dosages >= 0
    p = np.where(present, of.dosages, 0).sum(axis=1) / present.sum(axis=1) / 2
    kept = used(of, p, 1 - present.mean(axis=1))
    assert 4 < kept.sum() < 800
    arrays = run(write_plink(of, "cohort"), filters=filters)
    assert_decomposes(arrays, relationships(of.dosages[kept])[0])
    assert sum(counts()[f"{kind}_features"] for kind in ("masked", "incomplete", "rare")) == (~kept).sum()


def test_autosomes_and_a_file_of_ids_and_a_mask():
    of = cohort(special=False)
    of.chromosomes[600:] = ["X"] * 200
    Path("kept.in").write_text("".join(f"rs{number}\n" for number in range(0, 800, 2)))
    np.save("mask.npy", np.arange(800) < 50)
    mask = {"uri": "mask.npy", "invert": True}
    write_plink(of, "cohort")
    run("cohort.bed", filters={"chromosomes": "autosomes", "variants": "kept.in", "mask": mask})
    assert counts()["masked_features"] == 800 - (600 - 50) // 2


def test_distances_are_between_variants_that_other_filters_keep():
    of = cohort(special=False, n_chromosomes=1)
    np.save("mask.npy", np.arange(800) % 3 > 0)
    write_plink(of, "cohort")
    arrays = run("cohort.bed", filters={"mask": {"uri": "mask.npy"}, "min_distance": 274})
    used = np.arange(800) % 3 == 1
    assert_decomposes(arrays, relationships(of.dosages[used])[0])


def test_people_are_chosen_by_id():
    of = cohort(special=False)
    chosen = [f"i{number}" for number in (5, 3, 40, 41, 42, 20, 21, 59)]
    write_plink(of, "cohort")
    arrays = run("cohort.bed", input={"samples": chosen})
    assert arrays["sample"][...].tolist() == chosen
    part = some(of, people=[int(name[1:]) for name in chosen])
    assert_decomposes(arrays, relationships(part.dosages)[0])
    assert arrays["sample_family"][...].tolist() == part.families


def test_leaving_a_chromosome_out_reads_nothing(capsys):
    of = cohort()
    write_plink(of, "cohort")
    run("cohort.bed", output={"groups": {"by": "chromosome"}})
    Path("cohort.bed").unlink()
    analyses = [{"name": "loco", "features": {"leave_out": ["3"]}, "model": {"kind": "pca", "n_components": K}}]
    asked = {"from": "result", "analyses": analyses, "components": False, "output": {"path": "derived"}}
    Path("derive.yaml").write_text(yaml.safe_dump(asked))
    assert dpca("derive", "derive.yaml") == 0
    assert "no data read" in capsys.readouterr().out
    kept = np.array(of.chromosomes) != "3"
    values, vectors = decomposed(relationships(of.dosages[kept])[0], K)
    scores = zarr.open_group("derived/result.zarr", mode="r")["loco/scores"][...]
    lengths = np.linalg.norm(scores, axis=0)
    assert_same_vectors(scores / lengths, vectors, 1e-7)
    counted = (of.dosages[kept] >= 0).any(axis=1).sum()
    np.testing.assert_allclose(lengths**2, values * counted, rtol=1e-9)


def test_operators_along_samples_are_refused_where_entries_were_divided(capsys):
    made(plain_result)
    analyses = [{"name": "half", "samples": [{"select": {"samples": list(range(30))}}], "model": {"kind": "pca"}}]
    asked = {"from": "result", "analyses": analyses, "components": False, "output": {"path": "derived"}}
    Path("derive.yaml").write_text(yaml.safe_dump(asked))
    assert dpca("derive", "derive.yaml") == 2
    assert "missing: pairwise" in capsys.readouterr().err


@given(
    seed=st.integers(0, 2**20),
    n=st.integers(3, 24),
    d=st.integers(2, 90),
    missing=st.sampled_from([0.0, 0.1, 0.6]),
    convention=st.sampled_from(["plink2", "smartpca", "snprelate"]),
    dtype=st.sampled_from(["i1", "i2", "f4", "f8"]),
    by_people=st.booleans(),
)
@examples(20)
def test_any_dosages(seed, n, d, missing, convention, dtype, by_people):
    rng = np.random.default_rng(seed)
    dosages = rng.binomial(2, rng.uniform(0, 1, (d, 1)), (d, n)).astype(np.int8)
    dosages[rng.random((d, n)) < missing] = -1
    z, varies = standardized(dosages, convention)
    if varies.sum() < 2 or np.linalg.matrix_rank(z) < 2:
        return
    x = np.where(dosages < 0, np.nan, dosages).astype(dtype) if dtype[0] == "f" else dosages.astype(dtype)
    if dtype[0] == "i" and missing:
        x = np.ma.masked_equal(x, -1)
    fit = PCA(2, scale={"binomial": convention}, missing="mean", precision="double", samples_axis=0 if by_people else 1)
    fit.fit(x.T if by_people else x)
    values, _ = decomposed(z @ z.T, 2)
    np.testing.assert_allclose(fit.singular_values_**2, values, rtol=1e-8, atol=1e-9)


def test_in_python():
    of = cohort(missing=0.0, special=False)
    fit = PCA(K, scale={"binomial": "smartpca"}, filters={"min_minor_allele_frequency": 0.1}).fit(of.dosages.T)
    p = of.dosages.mean(axis=1) / 2
    z, _ = standardized(of.dosages, "smartpca", used=np.minimum(p, 1 - p) >= 0.1)
    np.testing.assert_allclose(fit.singular_values_**2, decomposed(z @ z.T, K)[0], rtol=1e-5)
    scores = fit.transform(of.dosages.T)
    np.testing.assert_allclose(scores, fit.fit_transform(of.dosages.T), atol=1e-3)


@pytest.mark.parametrize(
    ("given_keys", "said"),
    [
        ({"preprocess": {"center": False}}, "frequencies are half the means"),
        ({"preprocess": {"regress_out": {"covariates": {"uri": "age.npy"}}}}, "no dosages"),
        ({"preprocess": {"filters": {"min_variance": 0.1}}}, "min_minor_allele_frequency says the same"),
        ({"model": {"svd_solver": "covariance_eigh"}}, "samples stream by"),
    ],
)
def test_what_is_not_defined_for_dosages(given_keys, said, capsys):
    write_plink(cohort(), "cohort")
    np.save("age.npy", np.arange(60.0))
    config = {
        "input": {"uri": "cohort.bed"},
        "preprocess": {"scale": {"binomial": "plink2"}, "missing": "mean"} | given_keys.get("preprocess", {}),
        "model": given_keys.get("model", {}),
        "output": {"path": "result"},
    }
    Path("config.yaml").write_text(yaml.safe_dump(config))
    assert dpca("run", "config.yaml") == 2
    assert said in capsys.readouterr().err


def test_frequencies_are_of_dosages(capsys):
    np.save("x.npy", np.random.default_rng(0).standard_normal((5, 40)))
    filters = {"min_minor_allele_frequency": 0.1}
    config = {"input": {"uri": "x.npy"}, "preprocess": {"filters": filters}, "output": {"path": "result"}}
    Path("config.yaml").write_text(yaml.safe_dump(config))
    assert dpca("run", "config.yaml") == 2
    assert "features are not scaled as dosages of alleles" in capsys.readouterr().err


def test_fewer_variants_than_people_are_scaled_the_same():
    of = cohort(n=60, d=30, special=False)
    arrays = run(write_plink(of, "cohort"), "smartpca", "mean")
    assert_decomposes(arrays, matrix_of(of.dosages, "smartpca", "mean"))


def test_job_arrays_and_threads_give_the_same_bits():
    write_plink(cohort(d=3000), "cohort")
    once = {name: array[...] for name, array in run("cohort.bed").arrays()}
    assert dpca("run", "config.yaml", "--overwrite", "--set", "compute.workers=1") == 0
    again = zarr.open_group("result/result.zarr", mode="r")
    for name in ("gram", "scores", "components", "n_shared_features", "eigenvalues"):
        np.testing.assert_array_equal(again[name][...], once[name])


def test_the_cohort_of_the_workflow_is_the_same_as_bed_and_as_vcf_zarr():
    from workflows.genotypes.make import write_bed

    write_bed(Path("a"), 30, 500, 0.02, seed=3)
    write_vcf_zarr(Path("a.vcz"), 30, 500, 0.02, seed=3)
    beds, vcfs = run("a.bed", out="bed"), run("a.vcz", out="vcf")
    np.testing.assert_allclose(beds["gram"][...], vcfs["gram"][...], rtol=1e-12, atol=1e-9)
    for name in ("sample", "variant", "variant_chromosome", "variant_position", "variant_counted_allele"):
        assert beds[name][...].tolist() == vcfs[name][...].tolist()


def test_hapmap_against_snprelate(shared_data):
    """SNPRelate's validation: its matrix and eigenvalues to its digits, loadings to 3, and projected scores to 4."""
    place = shared_data("hapmap-genotypes")
    chromosome = np.load(place / "chromosome.npy")
    rows = (f"v{number},{one},{number},A,G\n" for number, one in enumerate(chromosome))
    Path("variants.csv").write_text("id,chromosome,position,counted,other\n" + "".join(rows))
    uri = place / "genotype_279x9088_int8.npy"
    chosen = {"missing_values": [-1], "variants": "variants.csv"}
    arrays = run(
        uri,
        "snprelate",
        "mean",
        input={**chosen, "samples": {"stop": 90}},
        filters={"chromosomes": "autosomes"},
        model={"n_components": 8},
    )
    expected = np.load(place / "reference_grm_90x90.npy")
    gram = arrays["gram"][...]
    np.testing.assert_allclose(gram * 89 / np.trace(gram), expected, rtol=0, atol=1e-13)
    values = decomposed(expected, 8)[0]
    np.testing.assert_allclose(arrays["convention_eigenvalues"][:8], values, rtol=1e-12)
    np.testing.assert_allclose(values[:3], [11.2913591, 5.55147016, 1.55349622], rtol=1e-8)
    components = arrays["components"][...]
    used = ~np.isnan(components[0])
    assert used.sum() == 8695
    loadings = np.load(place / "reference_snploading_8x8695.npy")
    assert_same_vectors(components[:, used].T, loadings.T, 5.01e-4)
    Path("new.yaml").write_text(yaml.safe_dump({"input": {"uri": str(uri), **chosen, "samples": {"stop": 100}}}))
    assert dpca("transform", "result", "new.yaml", "--out", "projected.zarr", "--projection", "mean") == 0
    scores = zarr.open_group("projected.zarr", mode="r")["scores"][...]
    projected = scores / arrays["singular_values"][...]
    assert_same_vectors(projected, np.load(place / "reference_samploading_100x8.npy"), 1.5e-4)
