"""Rotated scores of new samples, by the command and by the estimator."""

from pathlib import Path

import numpy as np
import pytest
import zarr

from dpca import PCA
from dpca.errors import ConfigError
from tests.commands.calls import dpca
from tests.methods.test_rotating import KINDS, mixture


@pytest.mark.parametrize(("kind", "whiten"), [*((kind, False) for kind in KINDS), ("varimax", True), ("promax", True)])
def test_the_estimator_transforms_to_rotated_scores_and_back(kind, whiten):
    x = mixture((40, 500))
    pca = PCA(5, rotation={"kind": kind, "n_components": 4}, whiten=whiten)
    scores = pca.fit_transform(x)
    assert scores.shape == (40, 4)
    np.testing.assert_allclose(pca.transform(x), scores, atol=1e-8 * np.abs(scores).max())
    if whiten:
        np.testing.assert_allclose(scores.var(0, ddof=1), 1)
    # In the span of four components, of which the fifth is left out.
    plain = PCA(4).fit(x)
    expected = plain.inverse_transform(plain.transform(x))
    np.testing.assert_allclose(pca.inverse_transform(scores), expected, atol=1e-7)
    deviations = np.sqrt(pca.rotated_explained_variance_) if whiten else 1
    np.testing.assert_allclose(scores * deviations @ pca.rotated_components_ + pca.mean_, expected, atol=1e-7)
    assert len(pca.get_feature_names_out()) == 4
    assert pca.components_.shape == (5, 500)


def test_a_fit_with_a_rotation_is_saved_and_loaded_and_fitted_anew_without():
    x = mixture((40, 500))
    pca = PCA(4, rotation="promax").fit(x)
    pca.save("r")
    loaded = PCA.load("r")
    assert loaded.rotation["kind"] == "promax"
    np.testing.assert_allclose(loaded.transform(x), pca.transform(x))
    np.testing.assert_array_equal(loaded.factor_correlation_, pca.factor_correlation_)
    np.testing.assert_array_equal(np.asarray(loaded.rotated_components_), pca.rotated_components_)
    pca.set_params(rotation=None).fit(x)
    assert pca.rotated_components_ is None
    assert not hasattr(pca, "rotation_matrix_")
    np.testing.assert_allclose(pca.transform(x), PCA(4).fit_transform(x), atol=1e-9)


def test_a_rotation_that_there_is_not_is_refused_with_those_that_there_are():
    for wrong, said in (
        ("oblimin", "rotation.kind is 'oblimin', but 'varimax', 'promax', 'fastica' or 'jade'"),
        ({"kind": "varimax", "powr": 3}, "unknown key rotation.powr .*\nDid you mean rotation.power"),
        (4, "rotation is 4, but a mapping of keys .*\nPass rotation="),
        ({"kind": "promax", "power": 1}, "rotation.power is 1, but greater than 1"),
    ):
        with pytest.raises(ConfigError, match=said):
            PCA(4, rotation=wrong).fit(mixture((40, 500)))


def test_a_rotation_of_components_that_are_not_reliable_warns():
    rng = np.random.default_rng(0)
    u, v = np.linalg.qr(rng.normal(size=(20, 5)))[0], np.linalg.qr(rng.normal(size=(3000, 5)))[0]
    x = (u * [1, 0.5, 0.2, 6e-4, 1e-7]) @ v.T
    with pytest.warns(UserWarning, match="varimax mixes component 4, which is not reliable"):
        PCA(4, center=False, svd_solver="gram_eigh", precision="single", rotation="varimax").fit(x)


@pytest.mark.parametrize("several", [False, True])
def test_the_command_writes_rotated_scores_beside_the_scores(several):
    x = mixture((40, 500))
    np.save("x.npy", x[:30])
    np.save("new.npy", x[30:])
    given, new = "{uri: x.npy}", "new.npy"
    if several:
        for name, rows in (("x", x[:30]), ("new", x[30:])):
            np.save(f"{name}_a.npy", rows[:, :200])
            np.save(f"{name}_b.npy", rows[:, 200:])
        given = "[{uri: x_a.npy, name: a}, {uri: x_b.npy, name: b}]"
        new = "new.yaml"
        Path(new).write_text("- {uri: new_a.npy, name: a}\n- {uri: new_b.npy, name: b}\n")
    Path("c.yaml").write_text(
        f"input: {given}\nmodel: {{n_components: 4, rotation: {{kind: promax}}}}\noutput: {{path: r}}\n"
    )
    assert dpca("run", "c.yaml") == 0
    assert dpca("transform", "r", new, "--out", "s.zarr") == 0
    found = zarr.open_group("s.zarr", mode="r")
    assert found["rotated_scores"].metadata.dimension_names[1] == "rotated_component"
    pca = PCA(4, rotation="promax").fit(x[:30])
    np.testing.assert_allclose(found["rotated_scores"][...], pca.transform(x[30:]), atol=1e-7)
    np.testing.assert_allclose(found["scores"][...], PCA(4).fit(x[:30]).transform(x[30:]), atol=1e-7)
