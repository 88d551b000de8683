"""output.spectrum: leading eigenvalues alone, with a proof that none was missed, in results, plans and reports."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import zarr

from dpca import PCA
from dpca.config.model import Model
from dpca.numerics.panels import Rules
from dpca.report import findings
from dpca.store.results import open_result
from tests.commands.calls import dpca, run
from tests.made import made

N, D = 240, 900


def samples():
    """240 samples of six factors and noise."""
    rng = np.random.default_rng(0)
    return rng.standard_normal((N, 6)) * [30, 20, 12, 8, 5, 3] @ rng.standard_normal((6, D)) + rng.standard_normal(
        (N, D)
    )


def write():
    np.save("x.npy", samples())
    Path("c.yaml").write_text("input: {uri: x.npy}\nmodel: {n_components: 4}\noutput: {path: r}\n")


@pytest.fixture
def data():
    write()
    return samples()


def ran(spectrum, *further):
    assert dpca("run", "c.yaml", "--set", f"output.spectrum={spectrum}", "--overwrite", *further) == 0
    return found()


def found():
    return zarr.open_group("r/result.zarr"), json.loads(Path("r/certificate.json").read_text())


def test_leading_eigenvalues_are_those_of_all(data):
    made(run, write, "output.spectrum=all")
    arrays, certificate = found()
    whole = {name: arrays[name][...] for name in ("eigenvalues", "scores", "components", "projection_error")}
    assert certificate["none_missed"] == "all computed"
    assert certificate["n_components"]["suggested"]["rank"] == N - 1
    shutil.rmtree("r")
    made(run, write, "output.spectrum=leading")
    arrays, certificate = found()
    assert certificate["none_missed"] == "proved"
    assert "proved that no larger eigenvalue was missed" in certificate["verdict"]
    assert certificate["n_components"]["suggested"] == {}
    leading = arrays["eigenvalues"][...]
    assert 4 < len(leading) <= 12
    np.testing.assert_allclose(leading, whole["eigenvalues"][: len(leading)], rtol=1e-11)
    for name in ("scores", "components", "projection_error"):
        np.testing.assert_allclose(arrays[name][...], whole[name], rtol=1e-9, atol=1e-9 * np.abs(whole[name]).max())
    kept = np.linalg.svd(data - data.mean(axis=0), compute_uv=False)[:4]
    np.testing.assert_allclose(arrays["singular_values"][...], kept, rtol=1e-12)


def test_noise_is_what_is_left_of_all(data):
    made(run, write, "output.spectrum=leading")
    oracle = np.linalg.svd(data - data.mean(axis=0), compute_uv=False) ** 2 / (N - 1)
    np.testing.assert_allclose(PCA.load("r").noise_variance_, oracle[4:].sum() / (N - 4), rtol=1e-9)


def test_features_are_kept_in_the_same_way(data):
    np.save("x.npy", np.ascontiguousarray(data.T))
    _, certificate = ran("leading", "--set", "model.svd_solver=covariance_eigh")
    assert certificate["solver"] == "covariance_eigh"
    assert certificate["none_missed"] == "proved"


def test_data_that_do_not_allow_it_have_all_computed(data):
    np.save("x.npy", np.repeat(data[:3], 80, axis=0))
    arrays, certificate = ran("leading")
    assert certificate["none_missed"] == "all computed"
    assert arrays["eigenvalues"].shape == (N,)
    assert (arrays["singular_values"][2:] == 0).all()


def test_results_of_versions_before_it_have_all_their_eigenvalues_and_load():
    made(run, write, "output.spectrum=all")
    documents = {name: Path(f"r/{name}.json") for name in ("certificate", "manifest")}
    certificate, manifest = (json.loads(path.read_text()) for path in documents.values())
    del certificate["none_missed"], manifest["config"]["output"]["spectrum"]
    del manifest["config"]["preprocess"]["block_scaling"]  # which a version before that one did not have
    for path, document in zip(documents.values(), (certificate, manifest), strict=True):
        path.write_text(json.dumps(document))
    result = open_result("r")
    (answer,) = findings.answers(result)
    scree = findings.scree(result, answer)
    assert scree.complete
    assert scree.suggested["rank"] == N - 1
    fitted = PCA.load("r")
    assert fitted.block_scaling == "none"
    assert "4 of 4 components" in fitted._repr_html_()


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("model.n_components=rank", "model.n_components: rank"),
        ("model.n_components=0.9", "model.n_components: 0.9"),
        ("model.kind=kernel_pca", "model.kind: kernel_pca"),
        ("preprocess.missing=pairwise", "preprocess.missing: pairwise"),
    ],
)
@pytest.mark.usefixtures("data")
def test_what_needs_all_is_refused(setting, said, capsys):
    assert dpca("run", "c.yaml", "--set", "output.spectrum=leading", "--set", setting) == 2
    assert f"output.spectrum is leading, but {said} needs all eigenvalues" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("n_kept", "n_streamed", "k", "leading"),
    [
        (10_000, 100_000, 20, 20),
        (3000, 8000, 5, 5),
        (2999, 8000, 5, None),  # all take a second
        (3000, 1_000_000, 5, None),  # all take little beside the products
        (4000, 8000, 101, None),  # not so few
        (4000, 8000, None, None),
        (4000, 8000, 0.9, None),
        (4000, 8000, "broken_stick", None),
    ],
)
def test_what_auto_takes(n_kept, n_streamed, k, leading):
    assert Model(k).leading(n_kept, n_streamed) == leading
    assert Model(k, spectrum="all").leading(n_kept, n_streamed) is None
    assert Model(k, Rules(missing="pairwise")).leading(n_kept, n_streamed) is None


@pytest.mark.usefixtures("data")
def test_plans_have_the_arrays_of_it(capsys):
    assert dpca("plan", "c.yaml", "--set", "output.spectrum=leading", "--json") == 0
    plan = json.loads(capsys.readouterr().out)
    assert next(one["shape"] for one in plan["output"]["arrays"] if one["name"] == "eigenvalues") == [12]
