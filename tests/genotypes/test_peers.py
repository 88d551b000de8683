"""The digits of plink 2 and smartpca, and files that other libraries read and write (`make peers`)."""

from pathlib import Path

import numpy as np
import pytest
import yaml
import zarr

from dpca.sources import open_source
from tests.commands.calls import dpca
from tests.genotypes.cohorts import (
    assert_same_vectors,
    cohort,
    plink2,
    printed,
    smartpca,
    some,
    standardized,
    write_plink,
)
from tests.numerics.test_dosages import run
from tests.peers import imported

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.long]
K = 10
TEN = {"n_components": K}


def assert_prints_the_same(stem, arrays):
    """The printed digits of plink 2: six of each number."""
    values, vectors = printed(stem, K)
    np.testing.assert_allclose(arrays["convention_eigenvalues"][:K], values, rtol=5.1e-6)
    scores = arrays["scores"][...]
    assert_same_vectors(scores / np.linalg.norm(scores, axis=0), vectors, 5.1e-7)


@pytest.mark.parametrize("seed", [0, 1])
def test_plink2_pca(seed):
    of = cohort(seed, n=120, d=5000, missing=0.02)
    bed = write_plink(of, "cohort")
    plink2("--bfile", "cohort", "--pca", K, "--out", "theirs")
    assert_prints_the_same("theirs", run(bed, model=TEN))


def test_plink2_pca_of_common_variants_of_autosomes():
    of = cohort(n=120, d=5000)
    of.chromosomes[4000:] = ["X"] * 1000
    bed = write_plink(of, "cohort")
    plink2("--bfile", "cohort", "--autosome", "--maf", 0.1, "--geno", 0.03, "--pca", K, "--out", "theirs")
    filters = {"chromosomes": "autosomes", "min_minor_allele_frequency": 0.1, "max_missing": 0.03}
    assert_prints_the_same("theirs", run(bed, model=TEN, filters=filters))


def test_plink2_without_a_chromosome_needs_no_read():
    of = cohort(n=120, d=5000)
    bed = write_plink(of, "cohort")
    plink2("--bfile", "cohort", "--not-chr", 2, "--pca", K, "--out", "theirs")
    run(bed, model=TEN, output={"groups": {"by": "chromosome"}})
    bed.unlink()
    analyses = [{"name": "loco", "features": {"leave_out": ["2"]}, "model": {"kind": "pca", "n_components": K}}]
    asked = {"from": "result", "analyses": analyses, "components": False, "output": {"path": "derived"}}
    Path("derive.yaml").write_text(yaml.safe_dump(asked))
    assert dpca("derive", "derive.yaml") == 0
    scores = zarr.open_group("derived/result.zarr", mode="r")["loco/scores"][...]
    assert_same_vectors(scores / np.linalg.norm(scores, axis=0), printed("theirs", K)[1], 5.1e-7)


def test_relationships_are_plink2s_byte_by_byte():
    of = cohort(n=120, d=5000)
    bed = write_plink(of, "cohort")
    plink2("--bfile", "cohort", "--make-grm-bin", "--out", "theirs")
    run(bed)
    assert dpca("export", "result", "--to", "grm", "--out", "ours") == 0
    assert Path("ours.grm.N.bin").read_bytes() == Path("theirs.grm.N.bin").read_bytes()
    ours, theirs = (np.fromfile(f"{name}.grm.bin", "<f4") for name in ("ours", "theirs"))
    # Sums in another order: the last bit of float32 differs in less than one of 1000.
    np.testing.assert_allclose(ours, theirs, rtol=1.2e-7, atol=1e-9)
    assert (ours == theirs).mean() > 0.999
    theirs = [line for line in Path("theirs.grm.id").read_text().splitlines() if not line.startswith("#")]
    assert Path("ours.grm.id").read_text().splitlines() == theirs


def test_plink2_reads_exported_eigenvectors():
    of = cohort(n=120, d=1000)
    run(write_plink(of, "cohort"), model=TEN)
    assert dpca("export", "result", "--to", "plink", "--out", "ours") == 0
    lines = [
        f"{family}\t{one}\t{number % 7}.5"
        for number, (family, one) in enumerate(zip(of.families, of.people, strict=True))
    ]
    Path("phenotype.txt").write_text("\n".join(["#FID\tIID\theight", *lines]) + "\n")
    plink2(
        "--bfile",
        "cohort",
        "--pheno",
        "phenotype.txt",
        "--pheno-name",
        "height",
        "--covar",
        "ours.eigenvec",
        "--glm",
        "hide-covar",
        "--out",
        "glm",
    )
    assert len(Path("glm.height.glm.linear").read_text().splitlines()) > 900


def test_projection_as_plink2_scores_it():
    """Without missing calls: plink 2's --score with variance-standardize by the reference's frequencies, sums of z w."""
    of = cohort(n=160, d=3000, missing=0.0, special=False)
    reference, others = some(of, people=range(100)), some(of, people=range(100, 160))
    write_plink(reference, "reference")
    write_plink(others, "new")
    arrays = run("reference.bed", missing="mean", model=TEN)
    components = np.nan_to_num(arrays["components"][...])
    head = "\t".join(["ID", "A1", *(f"PC{k}" for k in range(K))])
    rows = [
        "\t".join([name, counted, *(repr(float(value)) for value in row)])
        for name, (counted, _), row, used in zip(
            of.ids, of.alleles, components.T, ~np.isnan(arrays["mean"][...]), strict=True
        )
        if used
    ]
    Path("weights.txt").write_text("\n".join([head, *rows]) + "\n")
    plink2("--bfile", "reference", "--freq", "--out", "reference")
    how = ["header-read", "variance-standardize", "no-mean-imputation", "cols=scoresums"]
    plink2(
        "--bfile",
        "new",
        "--read-freq",
        "reference.afreq",
        "--score",
        "weights.txt",
        1,
        2,
        *how,
        "--score-col-nums",
        f"3-{K + 2}",
        "--out",
        "theirs",
    )
    theirs = np.array(
        [[float(one) for one in line.split()[-K:]] for line in Path("theirs.sscore").read_text().splitlines()[1:]]
    )
    assert dpca("transform", "result", "new.bed", "--out", "ours.zarr") == 0
    ours = zarr.open_group("ours.zarr", mode="r")["scores"][...]
    np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=2e-4)


@pytest.mark.parametrize("n_missing", [0.0, 0.02])
def test_smartpca(n_missing):
    """Eigenvalues to the six decimals that it prints, coordinates to its four (6e-5).

    Of people with missing calls smartpca prints coordinates that fit their calls by least squares (lsqproject), of norm 1 in all: they
    follow from the same components.
    """
    of = cohort(n=120, d=5000, missing=n_missing, special=False)
    bed = write_plink(of, "cohort")
    values, coordinates = smartpca(bed, K)
    arrays = run(bed, "smartpca", "mean", model=TEN)
    np.testing.assert_allclose(arrays["convention_eigenvalues"][:], values, atol=6e-7)
    z, varies = standardized(of.dosages, "smartpca")
    components = arrays["components"][...][:, varies].T
    present = (of.dosages >= 0).T[:, varies]
    fitted = [
        np.linalg.lstsq(components[here], row[here], rcond=None)[0]
        for here, row in zip(present, z[:, varies], strict=True)
    ]
    fitted = np.array(fitted) if n_missing else arrays["scores"][...]
    assert_same_vectors(fitted / np.linalg.norm(fitted, axis=0), coordinates, 6e-5)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.8, 0.95])
def test_projection_of_people_with_missing_calls_is_smartpcas(share):
    """Coordinates of new people to the four decimals that smartpca prints by lsqproject; with means in place of calls they shrink."""
    of, k, n = cohort(n=150, d=6000, missing=0.0, special=False), 2, 120
    order = np.random.default_rng(0).permutation(150)
    of = some(of, people=order)
    gaps = np.random.default_rng(1).random(of.dosages.shape) < share
    gaps[:, :n] = False
    of.dosages[gaps] = -1
    _, coordinates = smartpca(write_plink(of, "all"), k, n_fitted=n)
    write_plink(some(of, people=range(n)), "fitted")
    write_plink(some(of, people=range(n, 150)), "new")
    arrays = run("fitted.bed", "smartpca", "mean", model={"n_components": k})
    assert dpca("transform", "result", "new.bed", "--out", "new.zarr") == 0
    assert dpca("transform", "result", "new.bed", "--out", "shrunk.zarr", "--projection", "mean") == 0
    new, shrunk = zarr.open_group("new.zarr", mode="r"), zarr.open_group("shrunk.zarr", mode="r")
    fitted, found = arrays["scores"][...], new["scores"][...]
    factors = (fitted * coordinates[:n]).sum(axis=0) / (fitted**2).sum(axis=0)
    np.testing.assert_allclose(fitted * factors, coordinates[:n], atol=1e-4)
    np.testing.assert_allclose(found * factors, coordinates[n:], atol=1e-4)
    np.testing.assert_allclose(new["call_rate"][...], 1 - gaps[:, n:].mean(axis=0), atol=0.01)
    slope = (shrunk["scores"][...] * found).sum(axis=0) / (found**2).sum(axis=0)
    np.testing.assert_allclose(slope, 1 - share, atol=0.07)


def test_bed_reader_reads_the_same():
    bed_reader = imported("bed_reader")
    of = cohort(n=61, d=3000)
    source = open_source(write_plink(of, "cohort"))
    theirs = bed_reader.open_bed("cohort.bed").read(dtype="int8")
    with source.open() as reader:
        np.testing.assert_array_equal(reader.read((slice(0, 61), slice(0, 3000))), np.where(theirs == -127, -1, theirs))


VCF = """##fileformat=VCFv4.3
##contig=<ID=1,length=1000000>
##contig=<ID=X,length=1000000>
##FORMAT=<ID=GT,Number=1,Type=String,Description="Genotype">
#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\tFORMAT\ts1\ts2\ts3
1\t100\trs1\tA\tG\t.\tPASS\t.\tGT\t0/0\t0/1\t./.
1\t200\t.\tC\tT\t.\tPASS\t.\tGT\t1/1\t0|1\t./1
1\t300\trs3\tC\tT,G\t.\tPASS\t.\tGT\t1/2\t0|1\t0/0
X\t400\trs4\tC\tT\t.\tPASS\t.\tGT\t1\t0|1\t0/0
1\t500\trs5\tG\tA\t.\tPASS\t.\tGT\t0/1\t1/1\t0/0
"""


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_vcf_zarr_as_vcf2zarr_writes_it(zarr_format):
    vcf, pysam = imported("bio2zarr.vcf"), imported("pysam")
    Path("x.vcf").write_text(VCF.replace("X\t400", "1\t400").replace("1\t400\trs4", "X\t400\trs4"))
    lines = VCF.splitlines()
    Path("x.vcf").write_text("\n".join([*lines[:8], lines[9], lines[8]]) + "\n")  # sorted by chromosome
    pysam.tabix_index("x.vcf", preset="vcf", force=True)
    vcf.convert(["x.vcf.gz"], "x.vcz", zarr_format=zarr_format)
    source = open_source("x.vcz", of_format={"multiallelic": "count"})
    with source.open() as reader:
        values = reader.read((slice(0, 3), slice(0, 5)))
        assert reader.coordinate(0).values[...].tolist() == ["s1", "s2", "s3"]
        assert reader.coordinate(1).values[...].tolist() == ["rs1", "1:200:C:T", "rs3", "rs5", "rs4"]
    assert values.tolist() == [[0, 2, 2, 1, -2], [1, 1, 1, 2, 1], [-1, -1, 0, 0, 0]]
    assert source.variants.counted[...].tolist() == ["G", "T", "T", "A", "T"]
    assert source.variants.chromosomes[...].tolist() == ["1", "1", "1", "1", "X"]
    leave_out = run(
        "x.vcz",
        missing="mean",
        input={"multiallelic": "leave_out"},
        filters={"chromosomes": "autosomes"},
        model={"n_components": 1},
    )
    assert np.isnan(leave_out["mean"][...]).tolist() == [False, False, True, False, True]


def test_the_same_cohort_by_plink2_and_vcf2zarr():
    """.bed to VCF by plink 2, to Zarr by vcf2zarr: the same people, variants and relationships."""
    vcf, pysam = imported("bio2zarr.vcf"), imported("pysam")
    of = cohort(n=60, d=900)
    bed = write_plink(of, "cohort")
    plink2("--bfile", "cohort", "--export", "vcf", "id-paste=iid", "--out", "cohort")
    pysam.tabix_index("cohort.vcf", preset="vcf", force=True)
    vcf.convert(["cohort.vcf.gz"], "cohort.vcz", variants_chunk_size=100, samples_chunk_size=17)
    ours, theirs = run(bed, out="bed"), run("cohort.vcz", out="vcz")
    np.testing.assert_allclose(ours["gram"][...], theirs["gram"][...], rtol=1e-9, atol=1e-8)
    for name in ("sample", "variant", "variant_chromosome", "variant_position"):
        assert ours[name][...].tolist() == theirs[name][...].tolist()
