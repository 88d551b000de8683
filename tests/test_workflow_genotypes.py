"""The workflow of genotypes, on fewer people and variants: what its README and its figure say."""

import csv
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from tests.commands.calls import dpca
from workflows.genotypes.make import write_bed, write_new, write_vcf_zarr

pytestmark = pytest.mark.long
CONFIGS = Path(__file__).parents[1] / "configs"


@pytest.fixture(scope="module")
def cohort(tmp_path_factory):
    """The folder in which the commands of the README were run."""
    place = tmp_path_factory.mktemp("genotypes")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        folder = Path("dpca-genotypes")
        write_bed(folder / "cohort", 150, 8800, 0.01, seed=0)
        write_vcf_zarr(folder / "cohort.vcz", 150, 8800, 0.01, seed=0)
        write_new(folder / "new", 30, 8800, 0.01, seed=0)
        run = ("run", CONFIGS / "genotypes.yaml", "--set", "output.report=false")
        assert dpca(*run) == 0
        uri = ("--set", "input.uri=dpca-genotypes/cohort.vcz", "--set", "output.path=results/genotypes-vcf")
        assert dpca(*run, *uri) == 0
        assert dpca("transform", "results/genotypes", folder / "new.bed", "--out", "results/genotypes-new.zarr") == 0
        assert dpca("derive", CONFIGS / "genotypes-derived.yaml") == 0
        assert dpca("export", "results/genotypes", "--to", "plink") == 0
        assert dpca("export", "results/genotypes", "--to", "grm") == 0
        yield place


def opened(place, name):
    return xr.open_zarr(place / "results" / name).load()


def test_populations_are_apart_and_relatives_make_components_of_their_own(cohort):
    result = opened(cohort, "genotypes/result.zarr")
    labels = np.array(result["labels"].values.tolist())
    scores = result["scores"].values[:-2]  # without the two that are related to others
    centres = np.array([scores[labels[:-2] == name, :2].mean(axis=0) for name in ("north", "east", "south")])
    spread = max(scores[labels[:-2] == name, :2].std(axis=0).max() for name in ("north", "east", "south"))
    nearest = min(np.linalg.norm(centres[i] - centres[j]) for i, j in ((0, 1), (0, 2), (1, 2)))
    assert nearest > 5 * spread
    assert set(np.argsort(-np.abs(result["scores"].values[:, 2]))[:2].tolist()) == {0, 149}


def test_vcf_zarr_gives_the_same(cohort):
    beds, vcfs = opened(cohort, "genotypes/result.zarr"), opened(cohort, "genotypes-vcf/result.zarr")
    np.testing.assert_allclose(beds["gram"], vcfs["gram"], rtol=1e-5, atol=0.05)
    np.testing.assert_allclose(beds["convention_eigenvalues"], vcfs["convention_eigenvalues"], rtol=1e-5, atol=1e-6)
    assert beds["variant"].values.tolist() == vcfs["variant"].values.tolist()


def test_new_people_are_among_their_populations(cohort):
    result, new = opened(cohort, "genotypes/result.zarr"), opened(cohort, "genotypes-new.zarr")
    labels = np.array(result["labels"].values.tolist())
    with open(cohort / "dpca-genotypes" / "new.csv") as file:
        of_new = np.array([row["population"] for row in csv.DictReader(file)])
    divided = (new["scores"].values / new["shrinkage"].values)[:, :2]
    for name in ("north", "east", "south"):
        centre = result["scores"].values[labels == name, :2].mean(axis=0)
        found = divided[of_new == name].mean(axis=0)
        assert np.linalg.norm(found - centre) < 0.15 * np.linalg.norm(centre)


def test_a_chromosome_is_left_out_without_a_read(cohort):
    found = xr.open_zarr(cohort / "results" / "genotypes-derived" / "result.zarr", group="without_8").load()
    whole = opened(cohort, "genotypes/result.zarr")
    for k in range(2):
        assert abs(np.corrcoef(found["scores"].values[:, k], whole["scores"].values[:, k])[0, 1]) > 0.99
    assert (found["variance_share"].sel(group="8") == 0).all()


def test_files_of_other_programs_are_there(cohort):
    results = cohort / "results"
    assert len((results / "genotypes.eigenvec").read_text().splitlines()) == 151
    assert len(np.fromfile(results / "genotypes.grm.bin", "<f4")) == 150 * 151 // 2
    assert len(list(results.glob("genotypes-chr*.grm.N.bin"))) == 22


@pytest.mark.looks
def test_a_figure_is_drawn(cohort):
    pytest.importorskip("matplotlib", reason="needs pip install '.[figures]'")
    from workflows.genotypes.draw import draw

    with open(cohort / "dpca-genotypes" / "new.csv") as file:
        of_new = [row["population"] for row in csv.DictReader(file)]
    draw(opened(cohort, "genotypes/result.zarr"), opened(cohort, "genotypes-new.zarr"), of_new, "genotypes.png")
    assert Path("genotypes.png").stat().st_size > 20_000
