"""Matrices of AnnData: names of cells and genes come with them, and what is sparse is said to be."""

import json

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


MATRICES = [np.asarray, scipy.sparse.csr_matrix, scipy.sparse.csc_matrix]


@pytest.fixture(params=["h5ad", "zarr"])
def written(request):
    def write(x):
        made = x if isinstance(x, anndata.AnnData) else annotated(x)
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
@pytest.mark.parametrize(("array", "genes"), [("X", 30), ("raw/X", 40)])
def test_a_sparse_matrix_is_read_as_the_dense_one_with_its_names(written, kind, array, genes):
    source = open_source(written(kind(X)), array)
    assert source.layout.dims == ("obs_names", "var_names")
    with source.open() as reader:
        np.testing.assert_array_equal(reader.read((slice(0, 6), slice(0, genes))), X[:, :genes])
        assert [reader.coordinate(axis).values[...].tolist() for axis in (0, 1)] == [CELLS, GENES[:genes]]


def test_sparse_matrices_are_listed_as_what_they_are(written, capsys):
    place = written(scipy.sparse.csr_matrix(X))
    with pytest.raises(
        InputError, match=r"has no array 'y'; it holds X \(6, 30\) \(sparse\), layers/counts \(6, 30\), obs"
    ):
        open_source(place, "y")
    listed = {item["path"]: (item["shape"], item["dtype"]) for item in list_arrays(place)}
    assert listed["X"] == ([6, 30], "csr_matrix")
    assert "X/data" not in listed
    assert dpca("inspect", place, "--array", "X") == 0
    assert "6 x 30 (obs_names, var_names) float32" in capsys.readouterr().out


@pytest.mark.parametrize("kind", MATRICES)
def test_x_is_meant_whatever_stands_beside_it(written, kind, capsys):
    made = annotated(kind(X))
    made.obsp["connectivities"] = scipy.sparse.eye(6, format="csr")
    made.varp["correlation"], made.varm["loadings"] = np.eye(30), np.eye(30)
    made.uns["pca"] = {"loadings": np.ones((50, 50))}
    place = written(made)
    assert open_source(place).layout.name == f"{place}:X"
    assert dpca("inspect", place, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["array"], found["shape"]) == ("X", [6, 30])
    assert not [sentence for sentence in found["watch_out"] if "array" in sentence]
    assert dpca("init", place) == 0
    assert '\n  array: "X"\n' in capsys.readouterr().out
    assert dpca("init", place, "--array", "obsp/connectivities") == 0
    assert "\n  array: obsp/connectivities\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("layers", "raw", "meant"), [(True, False, "layers/counts"), (False, True, "raw/X"), (False, False, None)]
)
def test_without_x_another_matrix_of_cells_and_genes_is_meant(written, layers, raw, meant, capsys):
    made = annotated(X)
    made.X = None
    if not layers:
        del made.layers["counts"]
    if not raw:
        made.raw = None
    place = written(made)
    if meant is None:
        for command in ("inspect", "init"):
            assert dpca(command, place) == 2
            assert "which array? It holds obs/_index (6,), obsm/X_pca (6, 3)" in capsys.readouterr().err
        return
    assert open_source(place).layout.name == f"{place}:{meant}"
    assert dpca("inspect", place) == 0
    assert f"array    {meant}" in capsys.readouterr().out


def test_a_guess_between_two_matrices_is_said_to_be_one(written, capsys):
    made = annotated(X)
    made.X = None
    place = written(made)
    with pytest.raises(InputError, match=r"which array\? It holds layers/counts"):
        open_source(place)
    assert dpca("inspect", place) == 0
    shown = capsys.readouterr().out
    assert "array    raw/X" in shown
    assert "a guess, the largest: set input.array, to raw/X or another one (layers/counts)" in shown


def test_a_sparse_matrix_alone():
    group = zarr.create_group("s.zarr", attributes={"encoding-type": "csr_matrix", "shape": [6, 40]})
    group.create_array("data", data=X.ravel())
    with pytest.raises(InputError, match=r"s\.zarr: is no sparse matrix: it has no array indices"):
        open_source("s.zarr")
    assert open_source("s.zarr", "data").layout.shape == (240,)
    group.create_array("indices", data=np.tile(np.arange(40), 6))
    group.create_array("indptr", data=np.arange(0, 241, 40))
    with open_source("s.zarr").open() as reader:
        np.testing.assert_array_equal(reader.read((slice(0, 6), slice(0, 40))), X)


def test_names_that_lie_in_another_file_are_not_read():
    annotated(X).write_h5ad("a.h5ad")
    annotated(X).write_h5ad("victim.h5ad")
    with h5py.File("a.h5ad", "r+") as file:
        del file["obs"]
        file["obs"] = h5py.ExternalLink("victim.h5ad", "obs")
    assert open_source("a.h5ad", "X").layout.dims == (None, "var_names")


@pytest.mark.parametrize("estimator", [library.PCA, library.KernelPCA])
def with_columns(x):
    made = annotated(x)
    made.var["variable"] = np.arange(30) % 3 == 1
    made.var["none"] = False
    made.var["level"] = np.arange(30.0)
    made.var["kind"] = pandas.Categorical(["a", "b"] * 15)
    return made


@pytest.mark.parametrize("kind", MATRICES)
@pytest.mark.parametrize("suffix", ["h5ad", "zarr"])
def test_a_column_chooses_genes(kind, suffix):
    made = with_columns(kind(X))
    made.write_h5ad("a.h5ad") if suffix == "h5ad" else made.write_zarr("a.zarr")
    chosen = np.flatnonzero(made.var["variable"])
    source = open_source(f"a.{suffix}", "X", column="variable")
    with source.open() as reader:
        for region in ((slice(0, 6), slice(0, 10)), (slice(1, 4), slice(2, 7)), (slice(2, 3), slice(9, 10))):
            np.testing.assert_array_equal(reader.read(region), X[region[0], chosen[region[1]]])
        genes = reader.coordinate(1)
        assert genes.values[...].tolist() == [GENES[i] for i in chosen]
        assert genes.values[slice(3, 5)].tolist() == [GENES[i] for i in chosen[3:5]]
    assert source.fingerprint() != open_source(f"a.{suffix}", "X").fingerprint()


@pytest.mark.parametrize("suffix", ["h5ad", "zarr"])
def test_a_column_that_chooses_nothing_is_named(suffix):
    made = with_columns(scipy.sparse.csr_matrix(X))
    made.write_h5ad("a.h5ad") if suffix == "h5ad" else made.write_zarr("a.zarr")
    for column, problem in {
        "gone": "var has no column 'gone'; it has variable, none, level, kind",
        "none": "column 'none' is true for none of the 30 features",
        "level": "column 'level' is of dtype float64, but a boolean column is allowed",
        "kind": "column 'kind' is categorical, but a boolean column is allowed",
    }.items():
        with pytest.raises(InputError, match=problem) as caught:
            open_source(f"a.{suffix}", "X", column=column)
        assert caught.value.key == "input.features"
    with pytest.raises(InputError, match="no table has column 'variable'"):
        open_source(f"a.{suffix}", "obsm/X_pca", column="variable")


def test_a_run_of_the_chosen_genes_says_so_and_is_that_of_them_alone(capsys):
    with_columns(scipy.sparse.csr_matrix(X)).write_h5ad("a.h5ad")
    with open("c.yaml", "w") as file:
        file.write(
            "input: {uri: a.h5ad, array: X, features: {column: variable}}\nmodel: {n_components: 2}\noutput: {path: r}\n"
        )
    assert dpca("plan", "c.yaml") == 0
    assert dpca("run", "c.yaml") == 0
    found = library.PCA.load("r")
    expected = library.PCA(2).fit(X[:, 1:30:3])
    assert found.n_features_in_ == 10
    np.testing.assert_array_equal(np.asarray(found.components_), expected.components_)
    assert found._result.manifest["config"]["input"]["features"] == {"column": "variable"}
    assert dpca("transform", "r", "a.h5ad", "--out", "s.zarr") == 0
    np.testing.assert_allclose(zarr.open_group("s.zarr")["scores"][...], found.transform(X[:, 1:30:3]), atol=1e-5)
    assert dpca("export", "r", "--to", "anndata") == 0
    exported = anndata.read_h5ad("r.h5ad")
    assert list(exported.var_names) == GENES[:30]
    np.testing.assert_array_equal(exported.varm["PCs"][1:30:3], expected.components_.T)
    assert not np.delete(exported.varm["PCs"], slice(1, 30, 3), axis=0).any()
    assert exported.uns["pca"]["params"] == {"zero_center": True, "use_highly_variable": False, "mask_var": "variable"}
    assert dpca("run", "c.yaml", "--overwrite", "--set", "input.samples_axis=1") == 2
    assert "samples lie along axis 1, of which input.features chooses some" in capsys.readouterr().err


@pytest.mark.parametrize("kind", MATRICES)
def test_what_is_exported_is_what_scanpy_finds(kind):
    scanpy = pytest.importorskip("scanpy")
    made = with_columns(kind(X))
    made.write_h5ad("a.h5ad")
    with open("c.yaml", "w") as file:
        file.write(
            "input: {uri: a.h5ad, array: X, features: {column: variable}}\nmodel: {n_components: 3}\noutput: {path: r}\n"
        )
    assert dpca("run", "c.yaml") == 0
    assert dpca("export", "r", "--to", "anndata") == 0
    found = anndata.read_h5ad("r.h5ad")
    scanpy.pp.pca(made, n_comps=3, mask_var="variable", svd_solver="arpack")
    signs = np.sign((found.obsm["X_pca"] * made.obsm["X_pca"]).sum(axis=0))
    np.testing.assert_allclose(found.obsm["X_pca"] * signs, made.obsm["X_pca"], atol=1e-4)
    np.testing.assert_allclose(found.varm["PCs"] * signs, made.varm["PCs"], atol=1e-5)
    for name in ("variance", "variance_ratio"):
        np.testing.assert_allclose(found.uns["pca"][name], made.uns["pca"][name], rtol=1e-4)
    assert found.uns["pca"]["params"] == made.uns["pca"]["params"]


@pytest.mark.parametrize("kind", MATRICES)
def test_the_matrix_of_a_backed_anndata_is_read_from_its_file(kind):
    annotated(kind(X)).write_h5ad("a.h5ad")
    backed = anndata.read_h5ad("a.h5ad", backed="r")
    found = library.PCA(2).fit(backed.X)
    np.testing.assert_allclose(found.singular_values_, library.PCA(2).fit(X[:, :30]).singular_values_, rtol=1e-6)
