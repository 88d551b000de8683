"""Rotated components of a derived PCA, beside those of a fit on the same rows."""

import json
from pathlib import Path

import numpy as np
import pytest
import yaml
import zarr

import dpca
from dpca import PCA
from dpca.errors import ConfigError
from tests.commands.calls import dpca as command
from tests.made import made
from tests.methods.test_rotating import KINDS, mixture
from tests.numerics.test_fourth_moments import up_to_order_and_sign

pytest.importorskip("xarray")


def gram_of(x):
    """Leave a result here, without components."""
    group = zarr.create_group("x.zarr")
    group.create_array("x", data=x, chunks=(60, 4, 20), dimension_names=("time", "lat", "lon"))
    group.create_array("time", data=np.arange(60.0), dimension_names=("time",))
    asked = {
        "input": {"uri": "x.zarr", "array": "x"},
        "model": {"n_components": 2},
        "output": {"path": "r", "components": False},
    }
    Path("c.yaml").write_text(yaml.safe_dump(asked))
    assert command("run", "c.yaml") == 0


@pytest.fixture
def x():
    x = mixture((60, 9, 20))
    made(gram_of, x)
    return x


@pytest.mark.parametrize("kind", KINDS)
def test_they_are_those_of_a_fit_on_the_rows(x, kind):
    found = dpca.open_gram("r").isel(time=slice(10, 50)).pca(4).rotated(kind)
    arrays = found.to_xarray()
    fit = PCA(4, rotation=kind).fit(x[10:50])
    ours = arrays["rotated_components"].transpose("rotated_component", ...).values.reshape(4, -1).T
    theirs = fit.rotated_components_.reshape(4, -1).T
    np.testing.assert_allclose(ours, up_to_order_and_sign(ours, theirs), atol=1e-5)
    np.testing.assert_allclose(arrays["rotated_explained_variance"], fit.rotated_explained_variance_, rtol=1e-5)
    np.testing.assert_allclose(
        arrays["rotated_explained_variance_ratio"], fit.rotated_explained_variance_ratio_, rtol=1e-5
    )
    maps = found.components()
    assert maps.dims == ("rotated_component", "lat", "lon")
    assert maps.identical(arrays["rotated_components"])
    head, told, *others = repr(found).splitlines()
    assert head == f"<dpca {kind} of pca: time: 40, component: 4>"
    shares = ", ".join(f"{100 * share:.3g} %" for share in arrays["rotated_explained_variance_ratio"].values)
    assert told == f"  4 components rotated in {found.certificate['iterations']} iterations: {shares} of the variance"
    assert others[0] == "  40 of 60 samples"
    assert found._repr_html_().startswith(f"<pre>&lt;dpca {kind}")
    scores = fit.transform(x)
    np.testing.assert_allclose(arrays["rotated_scores"].values, scores[10:50], atol=1e-4 * np.abs(scores).max())
    np.testing.assert_allclose(found.transform(x[:10]), scores[:10], atol=1e-4 * np.abs(scores).max())
    assert ("factor_correlation" in arrays) == (kind != "varimax")


@pytest.mark.parametrize("kind", ["varimax", "promax"])
def test_dpca_derive_has_the_same(x, kind):
    """From the maps that the command has written, chunk by chunk; without maps it says what is missing."""
    rows = "samples: [select: {samples: {start: 10, stop: 50}}]"
    model = f"{{kind: pca, n_components: 5, rotation: {{kind: {kind}, n_components: 4}}}}"
    text = f"from: r\nanalyses: [{{name: a, {rows}, model: {model}}}]\noutput: {{path: d, report: false}}\n"
    Path("d.yaml").write_text(text + "components: false\n")
    assert command("derive", "d.yaml") == 0
    found = zarr.open_group("d/result.zarr")["a"]
    assert "rotated_scores" not in found
    certificate = json.loads(Path("d/certificate.json").read_text())["analyses"]["a"]
    assert "there are no maps" in certificate["caveat"]
    assert command("derive", "d.yaml", "--components") == 0
    found = zarr.open_group("d/result.zarr")["a"]
    fit = PCA(4, rotation=kind).fit(x[10:50])
    ours, theirs = found["rotated_components"][...].reshape(4, -1).T, fit.rotated_components_.reshape(4, -1).T
    np.testing.assert_allclose(ours, up_to_order_and_sign(ours, theirs), atol=1e-5)
    assert found["rotated_components"].metadata.dimension_names == ("rotated_component", "lat", "lon")
    np.testing.assert_allclose(found["rotated_explained_variance"], fit.rotated_explained_variance_, rtol=1e-5)
    scores = fit.transform(x[10:50])
    np.testing.assert_allclose(found["rotated_scores"], scores, atol=1e-4 * np.abs(scores).max())
    assert ("factor_correlation" in found) == (kind != "varimax")
    certificate = json.loads(Path("d/certificate.json").read_text())["analyses"]["a"]
    assert certificate["rotation"]["kind"] == kind
    assert certificate["rotation"]["converged"]


def test_a_rotation_of_more_than_there_are_is_refused_with_its_line(x, capsys):
    Path("d.yaml").write_text(
        "from: r\nanalyses:\n  - name: a\n    model:\n      kind: pca\n      n_components: 3\n      rotation:\n        kind: varimax\n"
        "        n_components: 5\noutput: {path: d}\n"
    )
    assert command("derive", "d.yaml") == 2
    said = capsys.readouterr().err
    assert "d.yaml:" in said
    assert "rotation.n_components is 5, but only the 3 components of n_components can be rotated" in said


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("rotation: {kind: varimax, n_components: 15}", "15 components are to be rotated, but the analysis has 11"),
        ("n_components: 120, rotation: {kind: varimax}", "at most 100 can be"),
    ],
)
def test_a_rotation_that_can_not_be_is_refused_before_the_read(x, capsys, model, said):
    Path("d.yaml").write_text(
        "from: r\nanalyses:\n  - name: a\n    samples: [select: {samples: {stop: 12}}]\n"
        f"    model: {{kind: pca, {model}}}\noutput: {{path: d}}\n"
    )
    capsys.readouterr()
    assert command("derive", "d.yaml") == 2
    told = capsys.readouterr().err
    assert said in told
    assert "d.yaml:5" in told
    assert "to read" not in told


def test_only_real_orthonormal_components_are_rotated(x):
    gram = dpca.open_gram("r")
    with pytest.raises(ConfigError, match="extended can't be rotated"):
        gram.extended(3, n_components=2).rotated("varimax")
    with pytest.raises(ConfigError, match="not one of varimax"):
        gram.pca(3).rotated("oblimin")
    few = gram.pca(3)
    with pytest.raises(ConfigError, match="7 components are to be rotated, but the analysis has 3"):
        few.rotated("varimax", n_components=7)
    assert few._made == []  # no maps were made for it


def test_each_group_of_features_has_its_own_maps(x):
    command("run", "c.yaml", "--set", "output.path=s")
    found = dpca.open_gram(["r", "s"]).pca(3).rotated("varimax")
    maps, alone = found.components(), dpca.open_gram("r").pca(3).rotated("varimax")
    assert list(maps.data_vars) == ["rotated_components_r", "rotated_components_s"]
    assert maps["rotated_components_r"].dims[0] == "rotated_component"
    ours = maps["rotated_components_r"].values.reshape(3, -1).T * np.sqrt(2)  # the same features twice
    theirs = alone.components().values.reshape(3, -1).T
    np.testing.assert_allclose(ours, up_to_order_and_sign(ours, theirs), atol=1e-5)
