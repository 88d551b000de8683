"""Files that are an array each: one table of formats, each of which is read in any region, and refuses what is damaged."""

import builtins
import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dpca.genotypes  # noqa: F401  whose formats are known once it is imported
from dpca.errors import DpcaError, InputError
from dpca.sources import as_source, open_joined, open_source
from tests.crossings import pgen
from tests.drawn import examples
from tests.sources.test_zarr_array import whole

RNG = np.random.default_rng(0)
VOLUMES = RNG.integers(-300, 300, (4, 3, 5, 2)).astype("i2")
PICTURES = RNG.integers(0, 255, (3, 6, 5)).astype("u1")
COLOURS = RNG.integers(0, 255, (1, 6, 5, 3)).astype("u1")
NUMBERS = RNG.normal(size=(7, 4))


def images(ending, n=4, dtype="i2"):
    def write(stem):
        import nibabel

        values = np.moveaxis(VOLUMES[:n], 0, -1).astype(dtype)
        nibabel.Nifti1Image(values if n > 1 else values[..., 0], np.eye(4)).to_filename(f"{stem}{ending}")
        return f"{stem}{ending}", VOLUMES[:n]

    return write


def picture(ending, values):
    def write(stem):
        from PIL import Image

        Image.fromarray(values[0]).save(f"{stem}{ending}")
        return f"{stem}{ending}", values

    return write


def stack(stem):
    import tifffile

    tifffile.imwrite(f"{stem}.tif", PICTURES, photometric="minisblack")
    return f"{stem}.tif", PICTURES


def text(ending, separator=",", header=True, names=True):
    def write(stem):
        rows = [separator.join(["", *"abcd"] if names else list("abcd"))] * header
        rows += [
            separator.join([*([f"p{n}"] if names else []), *map(repr, row.tolist())]) for n, row in enumerate(NUMBERS)
        ]
        content = ("\n".join(rows) + "\n").encode()
        Path(f"{stem}{ending}").write_bytes(gzip.compress(content) if ending.endswith(".gz") else content)
        return f"{stem}{ending}", NUMBERS

    return write


def parquet(stem):
    import pandas as pd

    pd.DataFrame(NUMBERS, columns=list("abcd")).to_parquet(f"{stem}.parquet", row_group_size=3)
    return f"{stem}.parquet", NUMBERS


def of_plink(stem):
    calls = np.random.default_rng(1).integers(0, 3, (9, 20))
    pgen(calls, stem)
    return f"{stem}.pgen", calls


def npy(stem):
    np.save(f"{stem}.npy", np.asfortranarray(NUMBERS))
    return f"{stem}.npy", NUMBERS


FORMATS = {
    "npy": npy,
    "nii": images(".nii"),
    "nii.gz": images(".nii.gz"),
    "one volume": images(".nii.gz", 1),
    "big-endian": images(".nii", dtype=">i2"),
    "png": picture(".png", PICTURES[:1]),
    "colours": picture(".png", COLOURS),
    "stack": stack,
    "csv": text(".csv"),
    "csv.gz": text(".csv.gz"),
    "tsv": text(".tsv", "\t", names=False),
    "bare": text(".csv", ";", header=False, names=False),
    "parquet": parquet,
    "pgen": of_plink,
}
PACKAGES = {"nii": "nibabel", "png": "PIL", "stack": "tifffile", "parquet": "pyarrow", "pgen": "pgenlib"}


@pytest.mark.parametrize("name", FORMATS)
@examples(25)
@given(data=st.data())
def test_any_region_is_that_of_the_whole(name, tmp_path_factory, data):
    path, values = FORMATS[name](str(tmp_path_factory.mktemp("x") / "x"))
    source = open_source(path)
    assert source.layout.shape == values.shape
    region = []
    for length in values.shape:
        start = data.draw(st.integers(0, length - 1))
        region.append(slice(start, data.draw(st.integers(start + 1, length))))
    with source.open() as reader:
        np.testing.assert_array_equal(reader.read(tuple(region)), values[tuple(region)])
        again = tuple(slice(0, length) for length in values.shape)
        np.testing.assert_array_equal(reader.read(again), values)


@pytest.mark.parametrize("name", FORMATS)
def test_a_change_of_the_file_is_a_change_of_the_source(name):
    path, values = FORMATS[name]("x")
    source = open_source(path)
    before, region = source.state(tuple(slice(0, 1) for _ in values.shape)), tuple(slice(0, 1) for _ in values.shape)
    identity = source.fingerprint()
    with open(path, "ab") as file:
        file.write(b"\n")
    assert source.state(region) != before
    assert source.fingerprint() != identity


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("share", [0.0, 0.02, 0.5, 0.9])
def test_a_truncated_file_is_refused_in_a_sentence(name, share):
    path, values = FORMATS[name]("x")
    content = Path(path).read_bytes()
    Path(path).write_bytes(content[: int(share * len(content))])
    try:
        found, _ = whole(open_source(path))
    except DpcaError as error:
        problem = error.message
    else:  # a table may end after any row, or digit; a picture is whole where its end has no values
        problem = path if name in ("csv", "tsv", "bare") or np.array_equal(found, values) else "wrong numbers"
    assert path in problem


@pytest.mark.parametrize("name", FORMATS)
def test_what_is_no_such_file_is_refused_in_a_sentence(name):
    path, _ = FORMATS[name]("x")
    head = Path(path).read_bytes()[:4]
    Path(path).write_bytes(head + RNG.bytes(3000))
    with pytest.raises(DpcaError, match="x"):
        whole(open_source(path))


@pytest.mark.parametrize("name", PACKAGES)
def test_a_package_that_is_not_there_is_named(name, monkeypatch):
    path, _ = FORMATS[name]("x")
    real = builtins.__import__

    def without(module, *rest):
        if module.partition(".")[0] == PACKAGES[name]:
            raise ImportError(f"No module named {module!r}", name=PACKAGES[name])
        return real(module, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(InputError, match=r"that is not installed\npip install"):
        open_source(path)


@pytest.mark.parametrize("name", ["one volume", "png", "colours"])
def test_a_file_that_is_one_sample_is_a_mask_without_an_axis_of_samples(name):
    path, values = FORMATS[name]("x")
    np.testing.assert_array_equal(whole(open_source(path).only)[0], values[0])
    assert open_source(path).only.layout.dims == open_source(path).layout.dims[1:]


def test_a_list_of_files_is_joined_by_name_and_one_of_another_shape_is_refused():
    for n in (2, 10, 1):
        picture(".png", PICTURES[n % 3 :][:1])(f"a{n}")
    source = as_source(["a1.png", "a2.png", "a10.png"])
    np.testing.assert_array_equal(whole(source)[0], PICTURES[[1, 2, 1]])
    with source.open() as reader:
        assert list(reader.coordinate(0).values[...]) == ["a1", "a2", "a10"]
    np.testing.assert_array_equal(whole(as_source("a*.png"))[0], PICTURES[[1, 1, 2]])
    picture(".png", PICTURES[:1, :4])("b")
    with pytest.raises(InputError, match=r"b\.png: has 4 features along axis 1"):
        open_joined(["a1.png", "b.png"])


def test_a_folder_of_samples_is_an_input():
    Path("some").mkdir()
    for n in range(3):
        picture(".png", PICTURES[n:][:1])(f"some/p{n}")
    Path("some/notes.txt").write_text("x")
    np.testing.assert_array_equal(whole(as_source("some"))[0], PICTURES)
    images(".nii", 1)("some/brain")
    with pytest.raises(InputError, match="some: has pictures and images of NIfTI"):
        as_source("some")
