"""The workflow of brains, on fewer and smaller ones: what its README and its figure say."""

import csv
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import xarray as xr

from tests.commands.calls import dpca
from workflows.brains.make import anatomy, make

CONFIG = Path(__file__).parents[1] / "configs" / "brains.yaml"
SHAPE = (24, 28, 22)


@pytest.fixture(scope="module")
def brains(tmp_path_factory):
    """The result, and the folder of what was read."""
    place = tmp_path_factory.mktemp("brains")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        Path("dpca-brains").mkdir()
        make(Path("dpca-brains"), people=60, shape=SHAPE)
        assert dpca("run", CONFIG, "--set", "output.report=false") == 0
        yield xr.open_zarr("results/brains/result.zarr").load(), place / "dpca-brains"


def test_ages_are_found_by_the_names_of_participants(brains):
    result, place = brains
    with open(place / "participants.tsv") as file:
        ages = {row["participant_id"]: row["age"] for row in csv.DictReader(file, delimiter="\t")}
    names = list(result["volume"].values)
    assert names == sorted(ages)
    assert names != list(ages)
    assert list(result.labels.values) == [ages[name] for name in names]


def test_a_component_is_what_age_takes(brains):
    result, _ = brains
    ages = result.labels.values.astype(float)
    along_age = [abs(np.corrcoef(ages, scores)[0, 1]) for scores in result.scores.values.T]
    assert np.argmax(along_age) == 2
    assert along_age[2] > 0.9
    mask, _, lost = anatomy(SHAPE)
    assert abs(np.corrcoef(lost[mask], result.components.values[2][mask])[0, 1]) > 0.7


def test_only_the_brain_is_used(brains):
    result, _ = brains
    mask, _, _ = anatomy(SHAPE)
    assert (np.isfinite(result.components.values) == mask).all()
    assert float(result.explained_variance_ratio[0] / result.explained_variance_ratio[3]) > 5


def test_components_are_written_as_nifti(brains):
    result, place = brains
    assert dpca("export", place.parent / "results" / "brains", "--to", "nifti", "--out", "brains") == 0
    given, image = nib.load(place / "brain_mask.nii.gz"), nib.load("brains-components.nii.gz")
    mask, values = given.get_fdata() > 0, image.get_fdata(dtype=np.float32)
    assert (image.affine == given.affine).all()
    assert (values[~mask] == 0).all()
    assert (result.components.values[:, mask] == values[mask].T).all()


@pytest.mark.looks
def test_a_figure_is_drawn(brains):
    pytest.importorskip("matplotlib", reason="needs pip install '.[figures]'")
    from workflows.brains.draw import draw

    draw(brains[0], "brains.png")
    assert Path("brains.png").stat().st_size > 20_000
