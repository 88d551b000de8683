"""Reading genotypes: .bed, VCF Zarr, tables of variants; and what is refused."""

import os
from pathlib import Path

import numpy as np
import pytest
import yaml
import zarr
from hypothesis import given
from hypothesis import strategies as st

from dpca.errors import InputError, StorageError
from dpca.genotypes.dosages import MISSING, MULTIALLELIC, NOT_DIPLOID
from dpca.genotypes.plink import People
from dpca.genotypes.tables import read_variants
from dpca.genotypes.variants import Variants, plain_chromosome
from dpca.sources import list_arrays, open_source
from tests.commands.calls import dpca
from tests.drawn import examples
from tests.genotypes.cohorts import cohort, some, write_plink


def read(source, people=None, variants=None):
    n, d = source.layout.shape
    region = (slice(*(people or (0, n))), slice(*(variants or (0, d))))
    with source.open() as reader:
        return np.array(reader.read(region))


@given(n=st.integers(1, 21), d=st.integers(1, 40), seed=st.integers(0, 99), data=st.data())
@examples(30)
def test_any_region_of_a_bed(tmp_path_factory, n, d, seed, data):
    rng = np.random.default_rng(seed)
    of = cohort(n=n, d=d, special=False)
    of.dosages[...] = rng.integers(-1, 3, (d, n))
    source = open_source(write_plink(of, tmp_path_factory.mktemp("bed") / "x"))
    first, start = data.draw(st.integers(0, n - 1)), data.draw(st.integers(0, d - 1))
    stop, last = data.draw(st.integers(first + 1, n)), data.draw(st.integers(start + 1, d))
    np.testing.assert_array_equal(read(source), of.dosages.T)
    np.testing.assert_array_equal(read(source, (first, stop), (start, last)), of.dosages.T[first:stop, start:last])


def test_what_is_known_of_a_bed():
    of = cohort()
    source = open_source(write_plink(of, "x"))
    assert source.layout.dims == ("sample", "variant")
    assert source.layout.dtype == np.int8
    assert source.stored_bytes() == 3 + 800 * 15
    with source.open() as reader:
        assert reader.coordinate(0).values[...].tolist() == of.people
        assert reader.coordinate(1).values[...].tolist() == of.ids
    variants = source.about(Variants)
    assert variants.chromosomes[...].tolist() == of.chromosomes
    assert variants.positions[...].tolist() == of.positions
    assert list(zip(variants.counted[...].tolist(), variants.other[...].tolist(), strict=True)) == of.alleles
    assert source.about(People).families.tolist() == of.families


def test_ids_of_any_characters():
    of = cohort(n=6, d=30)
    of.ids[3], of.ids[7] = "a\x85b", "1:55:A:<DEL>é\u2028"
    assert open_source(write_plink(of, "x")).about(Variants).ids[...].tolist() == of.ids
    bim = Path("x.bim")
    bim.write_bytes(bim.read_bytes().replace("é".encode(), b"\xe9"))
    with pytest.raises(InputError, match=r"x\.bim: is not UTF-8"):
        open_source("x.bed").variants.ids[...]


def test_ids_that_repeat_in_other_families_are_told_apart():
    of = cohort(n=6, d=30)
    of.people = ["a", "b", "a", "c", "d", "e"]
    source = open_source(write_plink(of, "x"))
    with source.open() as reader:
        assert reader.coordinate(0).values[...].tolist()[:3] == ["pop0:a", "pop0:b", "pop1:a"]
    of.families[2] = "pop0"
    with pytest.raises(InputError, match=r"x.fam: 2 people are called pop0:a \(family:id\)"):
        open_source(write_plink(of, "x"))


def changed(name, change):
    path = Path(name)
    path.write_bytes(change(path.read_bytes()))


def cut(text):
    return b"\n".join(
        line.rpartition(b"\t")[0] if number == 2 else line for number, line in enumerate(text.split(b"\n"))
    )


BAD = {
    "magic": (
        "x.bed",
        lambda old: b"VCF" + old[3:],
        r"x.bed: begins with bytes 56 43 46, but a .bed of PLINK 1 with 6c 1b",
    ),
    "person after person": ("x.bed", lambda old: old[:2] + b"\0" + old[3:], "stored person after person"),
    "cut off": (
        "x.bed",
        lambda old: old[:-7],
        r"has 11,996 bytes, but 800 variants of x.bim and 60 people of x.fam make 12,003",
    ),
    "longer": ("x.bed", lambda old: old + b"\0", "make 12,003"),
    "other variants": ("x.bim", lambda old: old.split(b"\n", 1)[1], "799 variants of x.bim"),
    "other people": ("x.fam", lambda old: old + b"f i99 0 0 0 1\n" * 5, r"i99"),
    "more people": (
        "x.fam",
        lambda old: old + b"".join(b"f j%d 0 0 0 1\n" % k for k in range(5)),
        "65 people of x.fam",
    ),
    "a line of the fam": ("x.fam", lambda old: old.replace(b"pop0\ti0\t0\t0\t0\t1", b"pop0"), "line 1 has 1 field"),
    "fields": ("x.bim", cut, "line 3 has 5 fields, but a .bim has 6"),
    "position": ("x.bim", lambda old: old.replace(b"\t1137\t", b"\there\t"), "'here' is no position"),
}


def read_all(path):
    variants = open_source(path).variants
    return variants.ids[...], variants.positions[...]


@pytest.mark.parametrize("name", BAD)
def test_files_that_do_not_belong_together(name):
    write_plink(cohort(), "x")
    place, change, said = BAD[name]
    changed(place, change)
    with pytest.raises(InputError, match=said):
        read_all("x.bed")


@pytest.mark.parametrize("name", ["x.bim", "x.fam"])
def test_a_bed_alone(name):
    write_plink(cohort(), "x")
    Path(name).unlink()
    with pytest.raises(InputError, match=f"{name}: is not there"):
        open_source("x.bed")


def test_a_bed_that_ends_early_while_it_is_open_is_named():
    write_plink(cohort(n=6, d=40, special=False), "x")
    source = open_source("x.bed")
    with source.open() as reader:
        os.truncate("x.bed", 3 + 2 * 20 + 1)
        with pytest.raises(StorageError, match=r"x\.bed: ends within variant 20"):
            reader.read((slice(0, 6), slice(10, 40)))


CALLS = np.array(
    [
        [[0, 0], [0, 1], [-1, -2]],  # a lone dot
        [[1, 1], [0, 1], [-1, 1]],
        [[1, 2], [0, 1], [0, 0]],
        [[1, -2], [0, 1], [0, 0]],
        [[1, 0], [1, 0], [1, 1]],
    ],
    np.int8,
)


def vcf_zarr(calls=CALLS, path="x.vcz"):
    group = zarr.open_group(path, mode="w")
    group.create_array("call_genotype", data=calls, chunks=(2, 2, calls.shape[2]))
    text = np.dtypes.StringDType()
    d = len(calls)
    beside = {
        "variant_contig": np.arange(d, dtype=np.int8) // 3,
        "contig_id": np.array(["chr1", "chrX"], text),
        "variant_position": np.arange(d, dtype=np.int32) * 10,
        "variant_allele": np.array([["A", "G", "T" * (number == 2)] for number in range(d)], text),
        "variant_id": np.array(["rs1", ".", "rs3", "rs4", "rs5"][:d], text),
        "sample_id": np.array(["s1", "s2", "s3"], text),
    }
    for name, values in beside.items():
        array = group.create_array(name, shape=values.shape, dtype=str if values.dtype == text else values.dtype)
        array[...] = values
    return path


def test_dosages_of_a_vcf_zarr():
    path = vcf_zarr()
    source = open_source(path)
    assert list_arrays(path) == []
    expected = [[0, 2, MULTIALLELIC, NOT_DIPLOID, 1], [1, 1, 1, 1, 1], [MISSING, MISSING, 0, 0, 2]]
    assert read(source).tolist() == expected
    assert read(source, (1, 3), (2, 5)).tolist() == [row[2:5] for row in expected[1:3]]
    assert source.variants.ids[...].tolist() == ["rs1", "chr1:10:A:G", "rs3", "rs4", "rs5"]
    assert source.variants.counted[...].tolist() == ["G"] * 5
    with source.open() as reader:
        assert reader.coordinate(0).values[...].tolist() == ["s1", "s2", "s3"]
    assert read(open_source(path, of_format={"multiallelic": "count"}))[0].tolist() == [0, 2, 2, NOT_DIPLOID, 1]
    for people in (None, (1, 3)):  # whether the third allele is called among those that are read or not
        assert set(read(open_source(path, of_format={"multiallelic": "leave_out"}), people)[:, 2].tolist()) == {MISSING}


def run(uri, filters=None, **keys):
    config = {
        "input": {"uri": uri, **keys},
        "preprocess": {"scale": {"binomial": "plink2"}, "missing": "mean", "filters": filters or {}},
        "model": {"n_components": 1},
        "output": {"path": "result", "report": False},
    }
    Path("config.yaml").write_text(yaml.safe_dump(config))
    return dpca("run", "config.yaml")


def test_calls_that_are_no_dosage_matter_where_a_variant_is_used(capsys):
    path = vcf_zarr()
    assert run(path) == 2
    error = capsys.readouterr().err
    assert "the first at index [0, 2] (sample 0): a call of a third allele" in error
    assert "Set input.multiallelic: leave_out, or count" in error
    assert run(path, {"chromosomes": "all"}, multiallelic="count") == 2
    assert "a call with another number of alleles than 2" in capsys.readouterr().err
    assert run(path, multiallelic="count") == 0


@pytest.mark.parametrize("ploidy", [1, 4])
def test_another_ploidy(ploidy):
    with pytest.raises(InputError, match="but variants x samples x 2 integers are allowed"):
        open_source(vcf_zarr(np.zeros((5, 3, ploidy), np.int8)))


def test_values_that_are_no_dosages(capsys):
    x = np.random.default_rng(0).integers(0, 3, (8, 40)).astype(np.float64)
    x[3, 17] = 2.5
    np.save("x.npy", x)
    assert run("x.npy") == 2
    error = capsys.readouterr().err
    assert "x.npy: 1 values in region" in error
    assert "[3, 17] (sample 3): 2.5" in error
    x[3, 17] = -9
    np.save("x.npy", x.astype(np.int8))
    assert run("x.npy") == 2
    assert "(sample 3): -9" in capsys.readouterr().err
    assert run("x.npy", missing_values=[-9]) == 0


def test_no_variant_left(capsys):
    of = cohort()
    write_plink(of, "x")
    assert run("x.bed", {"variants": ["none"]}) == 2
    assert "none of the 1 ids of the list is one of its 800 variants, such as rs0" in capsys.readouterr().err
    assert run("x.bed", {"chromosomes": [9]}) == 2
    assert "has no variant of chromosome 9; its chromosomes are 1, 2, 3, 4" in capsys.readouterr().err
    assert run("x.bed", {"chromosomes": [1], "variants": ["rs799"]}) == 2
    assert "none of 800 variants is left by preprocess.filters" in capsys.readouterr().err
    of.dosages[...] = np.where(np.arange(800) % 2, 2, 0)[:, None]
    write_plink(of, "x")
    assert run("x.bed") == 2
    assert "all 800 features are left out: 800 of which all have the same genotype" in capsys.readouterr().err


def test_filters_of_variants_need_to_know_them(capsys):
    np.save("x.npy", np.ones((3, 20), np.int8))
    assert run("x.npy", {"min_distance": 100}) == 2
    assert "no chromosome, position and id are known" in capsys.readouterr().err
    Path("v.csv").write_text("id,chromosome,position,counted,other\n" + "".join(f"v{k},1,{k},A,G\n" for k in range(19)))
    assert run("x.npy", variants="v.csv") == 2
    assert "v.csv: has 19 variants, but x.npy has 20 features" in capsys.readouterr().err
    Path("v.csv").write_text("id,chromosome,pos\n")
    assert run("x.npy", variants="v.csv") == 2
    assert "has no column 'position'" in capsys.readouterr().err


def test_groups_by_chromosome_need_to_know_them(capsys):
    np.save("x.npy", np.random.default_rng(0).integers(0, 3, (5, 20)).astype(np.int8))
    config = {
        "input": {"uri": "x.npy"},
        "preprocess": {"scale": {"binomial": "plink2"}},
        "output": {"path": "result", "groups": {"by": "chromosome"}},
    }
    Path("config.yaml").write_text(yaml.safe_dump(config))
    assert dpca("run", "config.yaml") == 2
    assert "output.groups.by is set" in capsys.readouterr().err


def test_a_table_of_variants():
    of = some(cohort(), variants=range(5))
    write_plink(of, "x")
    lines = ["id\tchromosome\tposition\tcounted\tother"]
    rows = zip(of.ids, of.chromosomes, of.positions, of.alleles, strict=True)
    Path("x.tsv").write_text("\n".join([*lines, *(f"{i}\t{c}\t{p}\t{a}\t{b}" for i, c, p, (a, b) in rows)]) + "\n")
    table, bim = read_variants("x.tsv"), read_variants("x.bim")
    for field in ("ids", "chromosomes", "positions", "counted", "other"):
        assert getattr(table, field)[...].tolist() == getattr(bim, field)[...].tolist()


@pytest.mark.parametrize(
    ("name", "plain"), [("chr1", "1"), ("01", "1"), ("X", "X"), ("chrx", "X"), ("MT", "MT"), ("chr0", "0")]
)
def test_names_of_chromosomes(name, plain):
    assert plain_chromosome(name) == plain


def test_inspect_and_init_know_genotypes(capsys):
    write_plink(cohort(), "x")
    assert dpca("inspect", "x.bed") == 0
    assert "60 samples of 800 features" in capsys.readouterr().out
    assert dpca("init", "x.bed") == 0
    text = capsys.readouterr().out
    assert 'scale: {"binomial": "plink2"}' in text
    assert "missing: pairwise" in text
    Path("config.yaml").write_text(text)
    assert dpca("run", "config.yaml", "--set", "output.report=false") == 0
