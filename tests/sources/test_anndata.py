"""Matrices of AnnData: names of cells and genes come with them, and what is sparse is said to be."""

import h5py
import numpy as np
import pytest
import scipy.sparse
import zarr

import dpca as library
from dpca.errors import InputError
from dpca.sources import list_arrays, open_source
from tests.commands.calls import dpca
from tests.stores import random_array

anndata = pytest.importorskip("anndata")
pandas = pytest.importorskip("pandas")
pytestmark = pytest.mark.filterwarnings("ignore")
X = random_array(0, (6, 40), "f4")
CELLS, GENES = [f"cell {i}" for i in range(6)], [f"gene {i}" for i in range(40)]


def annotated(x):
    """With other genes in what is called raw, and names in a column that is not called _index."""
    whole = anndata.AnnData(
        x, pandas.DataFrame(index=CELLS), pandas.DataFrame(index=pandas.Index(GENES, name="symbol"))
    )
    made = whole[:, :30].copy()
    made.raw = whole
    made.layers["counts"] = np.asarray(X[:, :30])
    made.obsm["X_pca"] = X[:, :3]
    return made


@pytest.fixture(params=["h5ad", "zarr"])
def written(request):
    def write(x):
        made = annotated(x)
        made.write_h5ad("a.h5ad") if request.param == "h5ad" else made.write_zarr("a.zarr")
        return f"a.{request.param}"

    return write


@pytest.mark.parametrize(("array", "genes"), [("X", 30), ("layers/counts", 30), ("raw/X", 40)])
def test_names_of_cells_and_genes_come_with_a_matrix(written, array, genes):
    source = open_source(written(X), array)
    assert source.layout.dims == ("obs_names", "var_names")
    with source.open() as reader:
        found = [reader.coordinate(axis).values[...].tolist() for axis in (0, 1)]
    assert found == [CELLS, GENES[:genes]]


def test_other_arrays_have_no_names_of_cells(written):
    assert open_source(written(X), "obsm/X_pca").layout.dims == (None, None)
    with h5py.File("b.h5", "w") as file:
        file["X"], file["obs/_index"] = X, CELLS
        file["obs"].attrs["_index"] = "_index"
    assert open_source("b.h5", "X").layout.dims == (None, None)


def test_names_are_in_the_result_and_in_what_is_exported(written, capsys):
    place = written(X)
    config = ("--set", f"input.uri={place}", "--set", "input.array=X", "--set", "model.n_components=2")
    with open("c.yaml", "w") as file:
        file.write("input: {uri: x}\noutput: {path: r}\n")
    assert dpca("run", "c.yaml", *config) == 0
    assert dpca("export", "r", "--to", "anndata") == 0
    found = anndata.read_h5ad("r.h5ad")
    assert (list(found.obs_names), list(found.var_names)) == (CELLS, GENES[:30])
    # Genes in another order are other features.
    other = annotated(X)[:, ::-1].copy()
    other.write_h5ad("other.h5ad")
    with open("other.yaml", "w") as file:
        file.write("uri: other.h5ad\narray: X\n")
    assert dpca("transform", "r", "other.yaml", "--out", "s.zarr") == 2
    assert "feature 0 along 'var_names' is 'gene 29', but r was fitted to 'gene 0'" in capsys.readouterr().err


@pytest.mark.parametrize("kind", [scipy.sparse.csr_matrix, scipy.sparse.csc_matrix])
def test_a_sparse_matrix_is_said_to_be_sparse(written, kind, capsys):
    place = written(kind(X))
    encoding = f"{kind.__name__}"
    for array in ("X", None):
        given = () if array is None else ("--array", array)
        assert dpca("inspect", place, *given) == 2
        assert f"{array or 'raw/X'} is a sparse matrix ({encoding}), and sparse" in capsys.readouterr().err
    with pytest.raises(
        InputError, match=r"which array\? It holds X \(6, 30\) \(sparse\), layers/counts \(6, 30\), obs"
    ):
        open_source(place)
    listed = {item["path"]: (item["shape"], item["dtype"]) for item in list_arrays(place)}
    assert listed["X"] == ([6, 30], encoding)
    assert "X/data" not in listed


def test_what_is_said_of_a_sparse_matrix_makes_it_dense(written):
    with pytest.raises(InputError, match="sparse matri") as caught:
        open_source(written(scipy.sparse.csr_matrix(X)), "X")
    _, *lines = caught.value.remedy.splitlines()
    exec("\n".join(lines), {"anndata": anndata})
    with open_source("dense.h5ad", "X").open() as reader:
        np.testing.assert_array_equal(reader.read((slice(0, 6), slice(0, 30))), X[:, :30])
        assert reader.coordinate(0).values[...].tolist() == CELLS


def test_a_sparse_matrix_alone():
    group = zarr.create_group("s.zarr", attributes={"encoding-type": "csr_matrix", "shape": [6, 40]})
    group.create_array("data", data=X.ravel())
    for array in (None, "data"):
        if array is None:
            with pytest.raises(InputError, match=r"s\.zarr: what is there is a sparse matrix \(csr_matrix\)"):
                open_source("s.zarr")
        else:
            assert open_source("s.zarr", array).layout.shape == (240,)


def test_names_that_lie_in_another_file_are_not_read():
    annotated(X).write_h5ad("a.h5ad")
    annotated(X).write_h5ad("victim.h5ad")
    with h5py.File("a.h5ad", "r+") as file:
        del file["obs"]
        file["obs"] = h5py.ExternalLink("victim.h5ad", "obs")
    assert open_source("a.h5ad", "X").layout.dims == (None, "var_names")


@pytest.mark.parametrize("estimator", [library.PCA, library.KernelPCA])
@pytest.mark.parametrize("x", [X, scipy.sparse.csr_matrix(X)])
def test_an_anndata_object_is_no_array(estimator, x):
    remedy = (
        r"dense: adata.X.toarray\(\) in memory" if scipy.sparse.issparse(x) else r"adata.X, or adata.layers\['NAME'\]"
    )
    with pytest.raises(
        InputError, match=f"X is an AnnData object, but an array is allowed\nGive its matrix[:,] {remedy}"
    ):
        estimator(2).fit(anndata.AnnData(x))
    with pytest.raises(InputError, match="X is an AnnData object"):
        estimator(2).fit(X).transform(anndata.AnnData(x))
