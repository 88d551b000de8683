"""Images of NIfTI: their values beside nibabel's, where voxels lie, and maps that come back as images."""

import gzip
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from dpca import PCA
from dpca.errors import InputError, StorageError
from dpca.sources import as_source, open_source
from dpca.sources.nifti import VoxelSpace
from tests.commands.calls import dpca
from tests.sources.test_zarr_array import whole

nibabel = pytest.importorskip("nibabel")

MNI = np.array([[-2.0, 0, 0, 90], [0, 2, 0, -126], [0, 0, 2, -72], [0, 0, 0, 1]])
OBLIQUE = MNI + np.array([[0.1, 0.3, 0, 0], [-0.3, 0.1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]])
RNG = np.random.default_rng(0)
MASK = RNG.random((5, 4, 3)) > 0.3


def write(affine=MNI, n=6, ending=".nii.gz", packed=True, stem="sub-"):
    """Images of people, packed as scanners do; returns their values."""
    values = []
    for number in range(n):
        image = nibabel.Nifti1Image((RNG.normal(size=MASK.shape) * 100).astype("i2"), affine)
        image.header.set_xyzt_units("mm")
        if packed:
            image.header.set_slope_inter(0.1, 5)
        image.to_filename(f"{stem}{number}{ending}")
        values.append(nibabel.load(f"{stem}{number}{ending}").get_fdata())
    nibabel.Nifti1Image(MASK.astype("u1"), affine).to_filename("mask.nii.gz")
    return np.array(values)


def run(uri="sub-*.nii.gz"):
    preprocess = "preprocess: {filters: {mask: {uri: mask.nii.gz}}}\n"
    Path("c.yaml").write_text(
        f"input: {{uri: '{uri}'}}\n{preprocess}model: {{n_components: 3, precision: double}}\noutput: {{path: out, report: false}}\n"
    )
    return dpca("run", "c.yaml", "--overwrite")


@pytest.mark.parametrize("affine", [MNI, OBLIQUE], ids=["along the axes", "oblique"])
def test_components_come_back_as_images_in_the_space_of_the_data(affine):
    x = write(affine)
    assert not run()
    assert not dpca("export", "out", "--to", "nifti")
    found = nibabel.load("out-components.nii.gz")
    np.testing.assert_allclose(found.affine, affine, atol=1e-6)
    assert found.shape == (*MASK.shape, 3)
    assert found.header.get_xyzt_units()[0] == "mm"
    centred = x[:, MASK] - x[:, MASK].mean(axis=0)
    v = np.linalg.svd(centred, full_matrices=False)[2][:3]
    np.testing.assert_allclose(np.abs((found.get_fdata()[MASK] * v.T).sum(axis=0)), 1, atol=1e-6)
    assert not found.get_fdata()[~MASK].any()
    mean = nibabel.load("out-mean.nii.gz")
    np.testing.assert_allclose(mean.get_fdata()[MASK][:, 0], x[:, MASK].mean(axis=0), rtol=1e-5)
    assert not dpca("reconstruct", "out", "--out", "back.zarr")
    assert not dpca("export", "back.zarr", "--to", "nifti")
    back = nibabel.load("back-reconstruction.nii.gz")
    np.testing.assert_allclose(back.affine, affine, atol=1e-6)
    assert back.shape == (*MASK.shape, 6)


@pytest.mark.parametrize("affine", [MNI, OBLIQUE], ids=["along the axes", "oblique"])
def test_an_image_whose_voxels_lie_elsewhere_is_refused_by_every_command(affine, capsys):
    write(affine)
    elsewhere = affine.copy()
    elsewhere[0, 3] += 2
    assert not run()
    nibabel.Nifti1Image(np.ones(MASK.shape, "i2"), elsewhere).to_filename("new.nii.gz")
    for command in (
        ("transform", "out", "new.nii.gz", "--out", "s.zarr"),
        ("extend", "out", "new.nii.gz", "--output", "more"),
    ):
        assert dpca(*command) == 2
        assert re.search(r"voxels lie elsewhere|along 'x' is 92", capsys.readouterr().err)
    nibabel.Nifti1Image(MASK.astype("u1"), elsewhere).to_filename("mask.nii.gz")
    assert run() == 2
    assert re.search(r"mask\.nii\.gz: (its voxels lie elsewhere|position 0 along 'x')", capsys.readouterr().err)
    nibabel.Nifti1Image(np.ones(MASK.shape, "i2"), elsewhere).to_filename("sub-9.nii.gz")
    assert run() == 2
    assert re.search(r"sub-9\.nii\.gz: (its voxels lie elsewhere|position 0 along 'x')", capsys.readouterr().err)
    fitted = PCA(2).fit([f"sub-{n}.nii.gz" for n in range(6)])
    with pytest.raises(InputError, match=r"new\.nii\.gz: (its voxels lie elsewhere|position 0 along 'x')"):
        fitted.transform("new.nii.gz")


def test_images_and_paths_in_python_are_the_same_data():
    x = write()
    paths = [f"sub-{n}.nii.gz" for n in range(6)]
    images = [nibabel.load(path) for path in paths]
    changed = [nibabel.Nifti1Image(one, MNI) for one in x]
    expected = np.linalg.svd(x[:, MASK] - x[:, MASK].mean(axis=0), compute_uv=False)[:3]
    for data, mask in (
        (paths, "mask.nii.gz"),
        (images, nibabel.load("mask.nii.gz")),
        (changed, MASK),
        ("sub-*.nii.gz", MASK),
    ):
        fitted = PCA(3, precision="double", filters={"mask": mask}).fit(data)
        np.testing.assert_allclose(fitted.singular_values_, expected, rtol=1e-10)
        assert fitted.components_.shape == (3, *MASK.shape)


def test_an_image_that_was_changed_in_memory_is_not_that_of_its_file():
    x = write(n=2)
    renamed, turned, filled = (nibabel.load("sub-0.nii.gz") for _ in range(3))
    renamed.set_filename("sub-1.nii.gz")
    np.testing.assert_allclose(whole(as_source(renamed).only)[0], x[0], atol=1e-9)
    turned.affine[0, 3] += 1
    assert as_source(turned).about(VoxelSpace).affine[0, 3] == 91
    filled.get_fdata()[...] = 7
    assert (whole(as_source(filled))[0] == 7).all()
    shutil.copy("sub-0.nii.gz", "SUB.NII.GZ")
    np.testing.assert_array_equal(whole(open_source("SUB.NII.GZ"))[0], whole(open_source("sub-0.nii.gz"))[0])


def test_an_image_that_is_no_list_of_volumes_is_refused():
    nibabel.Nifti1Image(np.zeros((2, 3, 4, 5, 6), "f4"), MNI).to_filename("x.nii")
    with pytest.raises(InputError, match=r"x\.nii: has shape \(2, 3, 4, 5, 6\)"):
        open_source("x.nii")
    nibabel.Nifti2Image(np.zeros((2, 3, 4), "f4"), MNI).to_filename("two.nii")
    assert open_source("two.nii").layout.shape == (1, 2, 3, 4)


@pytest.mark.parametrize(("cut", "said"), [("values", r"x\.nii\.gz: ends within volume 5"), ("file", r"x\.nii\.gz")])
def test_an_image_that_ends_early_is_named(cut, said):
    nibabel.Nifti1Image(np.ones((5, 4, 3, 6), "i2"), MNI).to_filename("x.nii.gz")
    source, stored = open_source("x.nii.gz"), Path("x.nii.gz").read_bytes()
    # Of the file itself gzip tells; values may also lack in one that is whole.
    Path("x.nii.gz").write_bytes(gzip.compress(gzip.decompress(stored)[:-100]) if cut == "values" else stored[:-20])
    with source.open() as reader, pytest.raises(StorageError, match=said):
        reader.read(tuple(slice(0, length) for length in source.layout.shape))


def test_a_result_of_no_images_is_not_exported_as_images(capsys):
    np.save("x.npy", RNG.normal(size=(6, 12)))
    PCA(2).fit("x.npy").save("r")
    assert dpca("export", "r", "--to", "nifti") == 2
    assert "has no maps of voxels whose places are known" in capsys.readouterr().err
