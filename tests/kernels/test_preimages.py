"""Pre-images by fixed-point iteration, against the iteration on the samples themselves."""

import numpy as np
import pytest
import zarr

from dpca import KernelPCA
from dpca.errors import ConfigError
from tests.stores import random_array


def iterated(x, start, images, gamma):
    """Mika et al. 1999, eq. 10, on samples."""
    for _ in range(2000):
        weights = images * np.exp(-gamma * ((start[:, None] - x) ** 2).sum(-1))
        start = weights @ x / weights.sum(1, keepdims=True)
    return start


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_it_is_the_iteration_on_the_samples(dtype, center):
    x, new = random_array(0, (40, 30), dtype), random_array(1, (6, 30), dtype)
    fit = KernelPCA(5, kernel="rbf", gamma=0.005, fit_inverse_transform="fixed_point", center=center).fit(x)
    scores = fit.transform(new)
    x64 = x.astype(float)
    kernel = np.exp(-0.005 * ((x64[:, None] - x64) ** 2).sum(-1))
    centred = kernel - kernel.mean(0) - kernel.mean(1)[:, None] + kernel.mean()
    values, vectors = np.linalg.eigh(centred)
    alpha = vectors[:, ::-1][:, :5] / np.sqrt(values[::-1][:5])
    alpha *= np.sign((alpha * fit.eigenvectors_).sum(0))
    images = scores @ alpha.T
    images += (1 - images.sum(1))[:, None] / 40
    expected = iterated(x64, images @ x64, images, 0.005)
    np.testing.assert_allclose(fit.inverse_transform(scores), expected, atol=1e-6 if dtype == "f8" else 1e-3)


def test_all_components_give_the_samples_back(tmp_path):
    x = zarr.create_array(str(tmp_path / "x.zarr"), data=random_array(0, (30, 7, 50), "f8"), chunks=(10, 7, 9))
    fit = KernelPCA(kernel="rbf", gamma="median", fit_inverse_transform="fixed_point", store=tmp_path / "out").fit(x)
    np.testing.assert_allclose(np.asarray(fit.inverse_transform(fit.transform(x))), x[...], atol=1e-9)


def test_faces_are_found_where_the_regression_gives_the_mean(shared_data):
    faces = np.load(shared_data("orl-faces") / "faces_400x10304_u8.npy").astype(float)
    train, clean = np.delete(faces, np.s_[::5], 0), faces[::5]
    noisy = clean + np.random.default_rng(0).normal(scale=20, size=clean.shape)

    def error(how):
        fit = KernelPCA(50, kernel="rbf", gamma="median", fit_inverse_transform=how).fit(train)
        return np.sqrt(((fit.inverse_transform(fit.transform(noisy)) - clean) ** 2).mean())

    assert error("fixed_point") < 0.6 * error(True)


def test_where_weights_cancel_it_begins_at_the_nearest_sample():
    x = np.array([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0], [10.0, 10.0]])
    fit = KernelPCA(3, kernel="rbf", gamma=0.1, fit_inverse_transform="fixed_point").fit(x)
    scores = -3 * fit.transform(x)  # far outside of what samples have
    found = fit.inverse_transform(scores)
    assert np.isfinite(found).all()
    assert (np.abs(found) < 20).all()


def test_it_is_for_rbf():
    with pytest.raises(ConfigError, match="fit_inverse_transform is fixed_point, which is for rbf, but kernel is poly"):
        KernelPCA(kernel="poly", fit_inverse_transform="fixed_point").fit(np.eye(5))
