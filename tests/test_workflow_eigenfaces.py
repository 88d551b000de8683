"""The workflow of eigenfaces: what its README and its figure say."""

import csv
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
import zarr

from tests.commands.calls import dpca
from workflows.eigenfaces.make import make

CONFIG = Path(__file__).parents[1] / "configs" / "eigenfaces.yaml"


@pytest.fixture(scope="module")
def faces(tmp_path_factory):
    """Result, pictures and rows of the table."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("faces"))
        Path("dpca-faces").mkdir()
        make(Path("dpca-faces"))
        assert dpca("run", CONFIG, "--set", "output.report=false") == 0
        with open("dpca-faces/pictures.csv") as file:
            rows = list(csv.DictReader(file))
        yield xr.open_zarr("results/eigenfaces/result.zarr").load(), zarr.open_array("dpca-faces/faces.zarr")[:], rows


def test_components_have_the_shape_of_pictures(faces):
    result, pictures, rows = faces
    assert result.components.shape == (80, 112, 92)
    assert result["mean"].values.ravel() == pytest.approx(pictures.mean(axis=0))
    assert list(result["sample"].values) == [row["picture"] for row in rows]
    assert list(result.labels.values) == [row["person"] for row in rows]


def test_components_are_of_light_of_people_and_of_expressions(faces):
    result, _, rows = faces
    scores = result.scores.values
    between = {}
    for name in ("light", "person", "expression"):
        groups = np.unique([row[name] for row in rows], return_inverse=True)[1]
        means = np.array([scores[groups == group].mean(axis=0) for group in range(groups.max() + 1)])
        between[name] = (means[groups] ** 2).sum(axis=0) / (scores**2).sum(axis=0)
    assert between["light"][0] > 0.95
    assert (between["person"][[3, 6]] > 0.85).all()
    assert between["expression"][5] > 0.85


def test_faces_come_back_from_few_components(faces):
    result, pictures, _ = faces
    errors = []
    for k in (5, 20, 80):
        scores, components = result.scores.values[:, :k], result.components.values[:k].reshape(k, -1)
        rest = pictures - result["mean"].values.ravel() - scores @ components
        errors.append(np.sqrt(np.mean(rest**2)))
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 5  # noise alone has 4


@pytest.mark.looks
def test_a_figure_is_drawn(faces):
    pytest.importorskip("matplotlib", reason="needs pip install '.[figures]'")
    from workflows.eigenfaces.draw import draw

    draw(*faces[:2], "faces.png")
    assert Path("faces.png").stat().st_size > 50_000
