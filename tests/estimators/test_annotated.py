"""AnnData as X: a layer, a mask of genes, and results where scanpy has them."""

import pickle

import numpy as np
import pytest
import scipy.sparse

from dpca import PCA, KernelPCA
from dpca.errors import ConfigError, InputError

anndata = pytest.importorskip("anndata")
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")

RNG = np.random.default_rng(0)
COUNTS = (RNG.poisson(1.0, (40, 25)) * RNG.integers(0, 2, (40, 25))).astype("f4")
HIGHLY = RNG.random(25) > 0.4


def annotated(values=COUNTS, container=scipy.sparse.csr_matrix):
    made = anndata.AnnData(container(values))
    made.obs_names = [f"c{n}" for n in range(len(values))]
    made.var_names = [f"g{n}" for n in range(values.shape[1])]
    made.var["highly_variable"] = HIGHLY
    made.layers["twice"] = container(2 * values)
    return made


@pytest.mark.parametrize("container", [scipy.sparse.csr_matrix, scipy.sparse.csc_matrix, np.asarray])
@pytest.mark.parametrize("mask", [None, "highly_variable", HIGHLY])
@pytest.mark.parametrize("layer", [None, "twice"])
def test_a_fit_is_left_where_scanpy_has_it(container, mask, layer):
    data = annotated(container=container)
    fitted = PCA(4, precision="double").fit(data, layer=layer, mask=mask)
    used = np.ones(25, bool) if mask is None else HIGHLY
    x = COUNTS[:, used].astype("f8") * (1 if layer is None else 2)
    u, s, vt = np.linalg.svd(x - x.mean(axis=0), full_matrices=False)
    signs = np.sign((data.obsm["X_pca"] * u[:, :4]).sum(axis=0))
    np.testing.assert_allclose(data.obsm["X_pca"] * signs, u[:, :4] * s[:4], atol=1e-9)
    np.testing.assert_allclose(data.varm["PCs"][used] * signs, vt[:4].T, atol=1e-6)
    assert not data.varm["PCs"][~used].any()
    pca = data.uns["pca"]
    np.testing.assert_allclose(pca["variance"], s[:4] ** 2 / 39, rtol=1e-9)
    np.testing.assert_allclose(pca["variance_ratio"], s[:4] ** 2 / (s**2).sum(), rtol=1e-9)
    named = mask if isinstance(mask, str) else None
    expected = {"zero_center": True, "use_highly_variable": named is not None, "mask_var": named}
    assert pca["params"] == (expected if layer is None else {**expected, "layer": layer})
    # New cells have their genes by name, in any order.
    new = annotated(COUNTS[:6])[:, RNG.permutation(25)].copy()
    for model in (fitted, pickle.loads(pickle.dumps(fitted))):
        np.testing.assert_allclose(model.transform(new), data.obsm["X_pca"][:6], atol=1e-6)


def test_a_file_that_is_not_read_yet_is_streamed():
    annotated().write_h5ad("x.h5ad")
    data = anndata.read_h5ad("x.h5ad", backed="r")
    fitted = PCA(3, precision="double").fit(data)
    np.testing.assert_allclose(data.obsm["X_pca"], fitted.transform(COUNTS.astype("f8")), atol=1e-6)


def test_what_is_not_there_is_named():
    data = annotated()
    with pytest.raises(InputError, match="layer is 'no', but the AnnData object has the layers twice"):
        PCA(2).fit(data, layer="no")
    with pytest.raises(InputError, match="mask is 'no', but var of the AnnData object has the columns highly_variable"):
        PCA(2).fit(data, mask="no")
    with pytest.raises(InputError, match=r"mask is of dtype int64 and shape \(25,\), but bool"):
        PCA(2).fit(data, mask=np.ones(25, int))
    assert "X_pca" not in data.obsm
    fitted = PCA(2).fit(data, mask="highly_variable")
    with pytest.raises(InputError, match="the AnnData object lacks"):
        fitted.transform(data[:, :5].copy())
    with pytest.raises(ConfigError, match="layer and mask are of AnnData, but X is none"):
        PCA(2).fit(COUNTS, mask="highly_variable")
    for model in (KernelPCA(2), PCA(2).fit(COUNTS)):
        with pytest.raises(InputError, match="X is an AnnData object, but a matrix is allowed"):
            model.transform(data) if isinstance(model, PCA) else model.fit(data)
