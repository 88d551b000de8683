import pickle

import dask
import dask.array as da
import h5py
import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone

from dpca import PCA, KernelPCA
from dpca.errors import DataError, InputError
from dpca.slabs import make_plan
from dpca.sources import as_source


def test_a_part_carries_only_its_own_blocks():
    source = as_source(da.random.default_rng(0).normal(size=(20, 1000), chunks=(10, 10)))
    part = source.restrict((slice(0, 20), slice(100, 120)))
    assert len(pickle.dumps(part)) < len(pickle.dumps(source)) / 10


def test_unknown_chunk_sizes_are_refused_with_the_cure():
    x = da.random.default_rng(0).normal(size=(5, 50), chunks=(5, 10))
    with pytest.raises(InputError, match="unknown chunk sizes") as caught:
        as_source(x[:, x[0] > 0])
    assert "compute_chunk_sizes" in caught.value.remedy


def test_slabs_that_share_their_ancestors_are_refused_and_others_are_not():
    def check(array):
        plan = make_plan(array.shape, 8, array.chunks, slab_bytes=20 * 8 * 20)
        slabs = [plan.region(s) for span in range(plan.n_spans) for t in plan.tiles_of(span) for s in plan.slabs_of(t)]
        as_source(array).check_sharing(iter(slabs), len(slabs))

    x = da.random.default_rng(0).normal(size=(20, 2000), chunks=(10, 20))
    for shared in (x - x.mean(), da.cumsum(x, axis=1), x.rechunk((20, 2000)).rechunk((10, 20))):
        with pytest.raises(InputError, match="share ancestors"):
            check(shared)
    for fine in (x, x - x.mean(axis=0), x * 2 + 1, x.T.T, x[:, 7:], (x - x.mean()).persist()):
        check(fine)


def test_the_users_own_blocks_are_not_written_to():
    x = np.random.default_rng(0).normal(5, 1, (10, 40))
    before = x.copy()
    PCA(2).fit(da.from_array(x, chunks=(10, 20), asarray=False, name=False))
    PCA(2).fit(x)
    np.testing.assert_array_equal(x, before)


def test_an_error_inside_the_graph_says_which_block():
    def fail(block, block_info=None):
        if block_info[0]["chunk-location"] == (0, 2):
            raise RuntimeError("no such tape")
        return block

    x = da.ones((4, 40), chunks=(4, 10)).map_blocks(fail, dtype=float)
    with pytest.raises(DataError, match=r"block of region \[0:4, 20:30\]: RuntimeError: no such tape\n(?s:.*)in fail"):
        PCA(2).fit(x)


BLOCKS = np.random.default_rng(0).normal(size=(2, 12, 50))


@pytest.mark.parametrize("method", ["fit", "transform"])
@pytest.mark.parametrize(
    ("make", "dtype", "said"),
    [
        (lambda block: block[:, :40], "f8", r"has shape \(12, 40\), but \(12, 50\) is declared"),
        (lambda block: np.hstack([block, block]), "f8", r"has shape \(12, 100\), but \(12, 50\) is declared"),
        (lambda block: block[0], "f8", r"has shape \(50,\), but"),
        (lambda block: 9 * block, "i4", "is of dtype float64, but int32 is declared"),
        (lambda block: block + 1e8, "f4", "is of dtype float64, but float32 is declared"),
        (lambda block: block * 1j, "f8", "is of dtype complex128, but float64 is declared"),
        (lambda block: (block * 2**60).astype("i8"), "f8", "is of dtype int64, but float64 is declared"),
        (lambda block: (9 * block).astype("i4"), "f4", "is of dtype int32, but float32 is declared"),
        (lambda block: sparse.csr_array(block[:, :40]), "f8", r"has shape \(12, 40\), but \(12, 50\) is declared"),
        (lambda block: sparse.csr_array(9 * block), "i4", "is of dtype float64, but int32 is declared"),
        (np.ndarray.tolist, "f8", r"is a builtins\.list, and no array"),
    ],
)
def test_a_block_that_is_not_what_was_declared_is_refused(make, dtype, said, method):
    x = declared(make, dtype)
    with pytest.raises(DataError, match=r"the block of region \[0:12, (0:50|50:100)\] " + said):
        PCA(2).fit(x) if method == "fit" else PCA(2).fit(np.hstack(BLOCKS).astype(dtype)).transform(x)


@pytest.mark.parametrize(("made", "dtype"), [("f4", "f8"), ("i2", "f4"), ("?", "f4"), ("i4", "f8"), (">f4", "f4")])
def test_a_block_of_a_narrower_dtype_keeps_its_values(made, dtype):
    x = declared(lambda block: (9 * block).astype(made), dtype)
    found, expected = PCA(2).fit(x), PCA(2).fit(np.hstack([(9 * block).astype(made).astype(dtype) for block in BLOCKS]))
    np.testing.assert_array_equal(found.singular_values_, expected.singular_values_)


SPARSE = sparse.random(60, 90, 0.1, random_state=0, format="csr")


def in_blocks(kind, meta):
    """`SPARSE` in blocks of a format, some of fewer samples and features, as `meta` declares them."""
    dense = da.from_array(SPARSE.toarray(), chunks=((25, 20, 15), (50, 40)))
    return dense.map_blocks(kind, dtype="f8", meta=meta)


@pytest.mark.parametrize("kind", [sparse.csr_matrix, sparse.csr_array, sparse.csc_matrix, sparse.coo_matrix])
@pytest.mark.parametrize("meta", [np.empty((0, 0)), sparse.csr_matrix((0, 0))])
def test_sparse_blocks_are_made_dense(kind, meta):
    x, dense = in_blocks(kind, meta), SPARSE.toarray()
    for model in (PCA(3, scale="std"), KernelPCA(3, kernel="rbf", gamma=0.1)):
        found, expected = clone(model).fit(x), clone(model).fit(dense)
        np.testing.assert_allclose(found.transform(x), expected.transform(dense), atol=1e-9)
        if kind is not sparse.coo_matrix:  # of which SciPy takes no part
            np.testing.assert_allclose(found.transform(x[5:33]), expected.transform(dense[5:33]), atol=1e-9)


def test_a_part_of_a_sparse_block_is_read():
    source = as_source(in_blocks(sparse.coo_matrix, np.empty((0, 0))))
    with source.open() as reader:
        for region in (np.s_[0:60, 0:90], np.s_[3:47, 10:70], np.s_[24:26, 49:51]):
            np.testing.assert_array_equal(reader.read(region), SPARSE.toarray()[region])


def test_the_lazy_matrix_of_anndata(tmp_path):
    anndata = pytest.importorskip("anndata")
    anndata.AnnData(SPARSE.astype("f4")).write_h5ad(tmp_path / "a.h5ad")
    with h5py.File(tmp_path / "a.h5ad") as file:
        lazy = anndata.experimental.read_elem_lazy(file["X"], chunks=(16, 90))
        found = PCA(3).fit(lazy)
    np.testing.assert_allclose(found.singular_values_, PCA(3).fit(SPARSE.astype("f4").toarray()).singular_values_)


def declared(make, dtype):
    """Two blocks beside each other, which `make` makes, and which are declared to be (12, 50) of a dtype."""
    parts = [da.from_delayed(dask.delayed(make)(block), (12, 50), dtype) for block in BLOCKS]
    return da.concatenate(parts, axis=1)
