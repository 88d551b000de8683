"""Sparse matrices of HDF5, Zarr and scipy, read slab by slab as the dense matrix."""

import pickle
from collections import Counter
from itertools import pairwise

import h5py
import numpy as np
import pytest
import scipy.sparse
import zarr
from hypothesis import given
from hypothesis import strategies as st

import dpca
from dpca.errors import DataError, InputError, OverBudgetError
from dpca.sources import as_source, base, open_source, sparse
from dpca.sources.anndata_layout import Sparse
from dpca.sources.chosen import Selection
from tests.drawn import examples
from tests.runs import decompose_array
from tests.stores import CountingStore

DTYPES = ("f4", "f8", "f2", ">f8", "i2", "u1", "i8", "?")
COMPRESSED = {None: {}, "gzip": {"compression": "gzip", "shuffle": True}}
KINDS = ("csr", "csc")
WHOLE = (slice(0, 200), slice(0, 30))


def random_matrix(rng, shape, density, dtype):
    """A dense matrix with empty rows and columns."""
    values = np.where(rng.random(shape) < density, rng.integers(-3, 90, shape), 0)
    values[rng.random(shape[0]) < 0.2] = 0
    values[:, rng.random(shape[1]) < 0.2] = 0
    return values.astype(dtype)


def parts_of(x, kind, index="i8"):
    """data, indices and indptr of a dense matrix, for any dtype."""
    lines = x if kind == "csr" else x.T
    rows, columns = np.nonzero(lines)
    indptr = np.searchsorted(rows, np.arange(len(lines) + 1))
    return {"data": lines[rows, columns], "indices": columns.astype(index), "indptr": indptr.astype(index)}


def write(path, parts, shape, kind, chunks=None, **how):
    """A matrix of AnnData's layout, in HDF5 or Zarr by the suffix."""
    chunks = chunks or {}
    attributes = {"encoding-type": f"{kind}_matrix", "encoding-version": "0.1.0", "shape": list(shape)}
    if str(path).endswith(".h5"):
        with h5py.File(path, "w") as file:
            group = file.create_group("X")
            group.attrs.update(attributes)
            for name, values in parts.items():
                chunk = (min(chunks[name], len(values)),) if name in chunks and len(values) else None
                group.create_dataset(name, data=values, chunks=chunk, **(how if chunk else {}))
        return open_source(path, "X")
    root = zarr.create_group(path, **how)
    group = root.create_group("X", attributes=attributes)
    for name, values in parts.items():
        length = min(chunks.get(name, len(values)), len(values))
        group.create_array(name, data=values, chunks=(max(1, length), *values.shape[1:]))
    return open_source(path, "X")


def read(source, region):
    with source.open() as reader:
        return np.array(reader.read(region))


def drawn_pieces(data, length):
    return slice(*sorted((data.draw(st.integers(0, length)), data.draw(st.integers(0, length)))))


@given(st.data())
@pytest.mark.parametrize("storage", ["hdf5", "hdf5 gzip", "zarr v2", "zarr v3", "scipy"])
@examples(12)
def test_any_region_is_that_of_the_dense_matrix(storage, tmp_path_factory, data):
    kind, rng = data.draw(st.sampled_from(KINDS)), np.random.default_rng(data.draw(st.integers(0, 99)))
    shape = data.draw(st.tuples(st.integers(1, 40), st.integers(1, 12)))
    dtypes = [dtype for dtype in DTYPES if storage != "scipy" or dtype not in ("f2", ">f8")]
    x = random_matrix(rng, shape, data.draw(st.sampled_from((0, 0.1, 0.6, 1))), data.draw(st.sampled_from(dtypes)))
    parts = parts_of(x, kind, data.draw(st.sampled_from(("i4", "i8"))))
    chunks = {name: data.draw(st.integers(1, max(1, len(values)))) for name, values in parts.items()}
    path = tmp_path_factory.mktemp("x") / ("x.h5" if storage.startswith("hdf5") else "x.zarr")
    if storage == "scipy":
        source = as_source(getattr(scipy.sparse, f"{kind}_array")(tuple(parts.values()), shape))
    elif storage.startswith("hdf5"):
        source = write(path, parts, shape, kind, chunks, **COMPRESSED["gzip" if "gzip" in storage else None])
    else:
        source = write(path, parts, shape, kind, chunks, zarr_format=int(storage[-1]))
    assert (source.layout.shape, source.layout.dtype) == (
        x.shape,
        x.dtype.newbyteorder("=") if storage == "zarr v3" else x.dtype,
    )
    chosen = Selection(1, shape[1], np.flatnonzero(rng.random(shape[1]) < 0.5), "chosen")
    for whole, source_of in ((x, source), (x[:, chosen.positions], source.choose(chosen))):
        again = pickle.loads(pickle.dumps(source_of))
        regions = [tuple(drawn_pieces(data, length) for length in whole.shape) for _ in range(4)]
        with again.open() as reader:  # one after the other: what a reader keeps belongs to the region before
            for region in regions:
                np.testing.assert_array_equal(reader.read(region), whole[region])
        for region in regions:
            np.testing.assert_array_equal(read(again.restrict(region), region), whole[region])


@pytest.mark.parametrize("kind", KINDS)
def test_duplicates_are_added_up_in_any_order_and_zeros_and_nan_are_values(kind):
    rng = np.random.default_rng(0)
    indices, ends = rng.integers(0, 7, 60), np.array([0, 0, 20, 21, 45, 60])
    values = rng.integers(-5, 5, 60).astype("f8")
    values[50] = np.nan
    shape = (5, 7) if kind == "csr" else (7, 5)
    matrix = getattr(scipy.sparse, f"{kind}_array")((values, indices, ends), shape)
    source = write("x.h5", {"data": values, "indices": indices, "indptr": ends}, shape, kind, {"data": 8, "indices": 5})
    np.testing.assert_array_equal(read(source, tuple(map(slice, (0, 0), shape))), matrix.toarray())


@pytest.mark.parametrize("block", [64, sparse.BLOCK])
def test_the_values_of_a_line_need_not_fit_a_block(block, monkeypatch):
    monkeypatch.setattr(sparse, "BLOCK", block)
    x = np.random.default_rng(0).normal(size=(3, 1000))
    np.testing.assert_array_equal(read(as_source(scipy.sparse.csr_array(x)), (slice(0, 3), slice(0, 1000))), x)


@pytest.mark.parametrize("storage", ["x.h5", "x.zarr", "scipy"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["f4", "f8", "u1"])
def test_lines_are_those_of_the_dense_matrix_however_many_blocks_they_are_read_in(storage, kind, dtype, monkeypatch):
    monkeypatch.setattr(sparse, "BLOCK", 16)
    shape, rng = (90, 70), np.random.default_rng(0)
    x = random_matrix(rng, shape, 0.06, dtype)
    chosen = Selection(1, shape[1], np.flatnonzero(rng.random(shape[1]) < 0.7), "chosen")
    if storage == "scipy":
        whole = as_source(scipy.sparse.csr_array(x))
    else:
        whole = write(storage, parts_of(x, kind), shape, kind, {"data": 5, "indices": 7, "indptr": 9})
    for source, values in ((whole, x), (whole.choose(chosen), x[:, chosen.positions])):
        regions = [(slice(0, 90), slice(0, 40)), (slice(20, 60), slice(5, 45)), (slice(60, 61), slice(40, 45))]
        with source.open() as reader:
            found = [reader.read_lines(region) for region in regions]
            assert reader.bytes_read == sum(
                values[region].nbytes for region, lines in zip(regions, found, strict=True) if lines
            )
        assert found[0] is not None
        for region, lines in zip(regions, found, strict=True):
            if lines is not None:
                made = scipy.sparse.csr_array((lines.values, lines.places, lines.ends), lines.shape).toarray()
                np.testing.assert_array_equal(made if source.lines_axis == 0 else made.T, values[region])


@pytest.fixture(scope="module")
def x():
    return random_matrix(np.random.default_rng(0), (200, 30), 0.3, "f4")


@pytest.fixture
def short_lines(monkeypatch):
    """Slabs may be cut between any two rows."""
    monkeypatch.setattr(sparse, "LINES_BYTES", 1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("solver", ["gram_eigh", "covariance_eigh"])
@pytest.mark.usefixtures("short_lines")
def test_a_result_has_the_bits_of_the_dense_array(kind, solver, x):
    # The same chunks, so the same plan.
    source = write("x.h5", parts_of(x, kind), x.shape, kind, {"data": 100, "indices": 70, "indptr": 9})
    with h5py.File("dense.h5", "w") as file:
        file.create_dataset("X", data=x, chunks=source.layout.chunks)
    how = {"solver": solver, "slab_bytes": 2000}
    found, expected = (decompose_array(s, 4, **how) for s in (source, open_source("dense.h5")))
    for name in ("scores", "components", "singular_values", "mean"):
        np.testing.assert_array_equal(*(np.asarray(answer.outputs.array(name)[...]) for answer in (found, expected)))


@pytest.mark.usefixtures("short_lines")
def test_a_pass_reads_a_chunk_once_but_for_those_that_spans_share(x):
    parts = parts_of(x, "csr")
    write("x.zarr", parts, x.shape, "csr", {"data": 40, "indices": 64, "indptr": 7}, zarr_format=3)
    store = CountingStore(zarr.storage.LocalStore("x.zarr"), Counter())
    source = as_source(zarr.open_group(store, path="X", mode="r"))
    for n_spans in (1, 4):
        store.reads.clear()
        edges = [round(50 * span * 4 / n_spans) for span in range(n_spans + 1)]
        for start, stop in pairwise(edges):  # a span
            with source.open() as reader:
                for first in range(start, stop, 10):
                    region = (slice(first, first + 10), slice(0, 30))
                    np.testing.assert_array_equal(reader.read(region), x[region])
        chunks = {
            name: -(-len(values) // step) for (name, values), step in zip(parts.items(), (40, 64, 7), strict=True)
        }
        for name, count in chunks.items():
            reads = [n for key, n in store.reads.items() if f"X/{name}/c/" in str(key)]
            assert len(reads) == count
            assert sum(reads) - count <= n_spans - 1
            assert max(reads) <= (1 if n_spans == 1 else 2)


def test_where_samples_stream_rows_need_no_copy_and_columns_get_one():
    x = scipy.sparse.random_array((40_000, 200), density=0.002, dtype="f4", rng=np.random.default_rng(0))
    parts = {name: getattr(x.tocsc(), name) for name in ("data", "indices", "indptr")}
    write("x.zarr", parts, x.shape, "csc")
    # In memory, lines are turned where the other side is streamed.
    for made, reading in ((x.tocsr(), "columns"), (x.tocsc(), "columns"), (zarr.open_group("x.zarr")["X"], "copy")):
        fit = dpca.PCA(2, memory="220 MiB").fit(made)
        assert fit._result.manifest["reading"] == reading
        np.testing.assert_allclose(fit.singular_values_, singular_values(x, 2), rtol=1e-5)


def singular_values(x, k):
    """Of the centred matrix, from its covariance in float64."""
    n, mean = x.shape[0], np.asarray(x.mean(axis=0), "f8").reshape(1, -1)
    gram = (x.T @ x).astype("f8").toarray() - n * mean.T @ mean
    return np.sqrt(np.linalg.eigvalsh(gram)[::-1][:k])


ESTIMATORS = [dpca.PCA(3), dpca.PCA(3, scale="std"), dpca.KernelPCA(3, kernel="rbf", gamma=0.1)]


@pytest.mark.parametrize(
    ("container", "estimator"),
    [
        *(("csr_array", estimator) for estimator in ESTIMATORS),
        *(("csc_array", estimator) for estimator in ESTIMATORS),
        *((container, ESTIMATORS[0]) for container in ("coo_array", "csr_matrix", "lil_array", "dok_array")),
    ],
)
def test_estimators_take_sparse_matrices_of_scipy(container, estimator, x):
    made = getattr(scipy.sparse, container)(x.astype("f8"))
    found = estimator.fit(made)
    scores = found.transform(made)
    dense = estimator.fit(x.astype("f8"))
    np.testing.assert_allclose(scores, dense.transform(x.astype("f8")), atol=1e-10)
    assert isinstance(dense._result.arrays["mean"][...], np.ndarray)


def test_data_in_memory_are_copied_where_kernels_need_them_again(x):
    made = scipy.sparse.csr_array(x)
    fit = dpca.KernelPCA(2, kernel="rbf", gamma=0.01).fit(made)
    expected = fit.transform(x)
    made.data[:] = 0
    np.testing.assert_array_equal(fit.transform(x), expected)


def test_missing_values_are_those_that_are_stored_as_missing():
    x = random_matrix(np.random.default_rng(0), (40, 6), 0.5, "f8")
    x[3, 2] = x[17, 5] = np.nan
    found, expected = (dpca.PCA(2, missing="mean").fit(values) for values in (scipy.sparse.csr_array(x), x))
    np.testing.assert_allclose(found.singular_values_, expected.singular_values_, rtol=1e-12)
    with pytest.raises(DataError, match="sparse matrix"):
        dpca.PCA(2).fit(scipy.sparse.csr_array(x))


def damaged(parts, name, at, value):
    changed = {key: values.copy() for key, values in parts.items()}
    changed[name][at] = value
    return changed


@pytest.mark.parametrize(
    ("name", "at", "value", "problem", "suffix"),
    [
        ("indices", 30, 30, r"indices: entry 30, of row \d+, is 30, but 0 to 29 is allowed", "h5"),
        ("indices", 0, -1, r"indices: entry 0, of row \d+, is -1, but", "zarr"),
        ("indptr", 0, 5, "indptr: entry 0 is 5, but they ascend from 0 to", "h5"),
        ("indptr", 77, 2, "indptr: entry 77 is 2, but they ascend", "h5"),
        ("indptr", 77, 2, "indptr: entry 77 is 2, but they ascend", "zarr"),
        ("indptr", 200, 10**6, "indptr: entry 200 is 1000000, but they ascend from 0 to", "h5"),
        ("indptr", 90, -(2**63), "indptr: entry 90 is -9223372036854775808, but", "zarr"),
        ("indptr", 90, 2**63 - 1, "indptr: entry 90 is 9223372036854775807, but", "h5"),
    ],
)
def test_what_is_damaged_is_named(name, at, value, problem, suffix, x):
    source = write(f"x.{suffix}", damaged(parts_of(x, "csr"), name, at, value), x.shape, "csr", {name: 16})
    with pytest.raises(DataError, match=problem):
        read(source, WHOLE)
    with pytest.raises(DataError, match=problem):
        dpca.PCA(2).fit(as_source_of(f"x.{suffix}"))


def as_source_of(path):
    return zarr.open_group(path)["X"] if path.endswith("zarr") else h5py.File(path)["X"]


@pytest.mark.parametrize(
    ("suffix", "change", "problem"),
    [
        ("h5", {"indices": np.zeros(3, "i4")}, r"data has shape \(\d+,\) and indices has \(3,\)"),
        (
            "zarr",
            {"indptr": np.zeros(200, "i4")},
            r"indptr has shape \(200,\), but a csr_matrix of shape \(200, 30\) has 201",
        ),
        ("h5", {"indptr": np.zeros(201, "f4")}, "indptr float32, but integers"),
        ("zarr", {"data": np.zeros((3, 3))}, r"data has shape \(3, 3\)"),
        ("h5", {"data": np.zeros(3, "c8")}, "dtype complex64"),
        ("zarr", {"data": np.zeros(3, "c8")}, "dtype complex64"),
        ("h5", {"shape": (200,)}, "which array"),
        ("zarr", {"shape": (200,)}, "which array"),
        ("h5", {"shape": (200, -30)}, "which array"),
        ("zarr", {"shape": (200.5, 30)}, "which array"),
        ("h5", {"shape": (10**15, 30)}, "indptr has shape"),
    ],
)
def test_arrays_that_make_up_no_matrix_are_refused(change, problem, suffix, x):
    parts = {**parts_of(x, "csr"), **change}
    shape = parts.pop("shape", x.shape)
    with pytest.raises(InputError, match=problem.replace("which array", "which array|is no sparse matrix")):
        write(f"x.{suffix}", parts, shape, "csr")


def test_a_shape_far_beyond_memory_is_refused_before_anything_is_allocated(x):
    parts = parts_of(x, "csr")
    write("x.h5", parts, (200, 10**13), "csr")
    with pytest.raises(OverBudgetError):
        dpca.PCA(2, memory="1 GiB").fit(h5py.File("x.h5")["X"])


def test_other_arrays_of_scipy_are_refused_by_their_shape():
    with pytest.raises(InputError, match=r"has shape \(40,\)"):
        as_source(scipy.sparse.coo_array(np.ones(40)))


def test_what_a_reader_holds_does_not_grow_with_the_values(x):
    few = as_source(scipy.sparse.csr_array(x))
    many = as_source(scipy.sparse.csr_array(np.ones((200, 30), "f4")))
    assert few.held((10, 30)) == many.held((10, 30))


def test_a_change_of_a_chunk_is_a_change_of_the_regions_that_lie_in_it(x):
    source = write("x.zarr", parts_of(x, "csr"), x.shape, "csr", {"data": 100, "indices": 100, "indptr": 50})
    regions = [(slice(start, start + 50), slice(0, 30)) for start in range(0, 200, 50)]
    before = [source.state(region) for region in regions]
    identity = source.fingerprint()
    array = zarr.open_array("x.zarr", path="X/data")
    array[:3] = [7, 7, 7]
    after = [source.state(region) for region in regions]
    assert [old == new for old, new in zip(before, after, strict=True)] == [False, True, True, True]
    assert source.fingerprint() != identity
    assert isinstance(source, base.Source)
    assert Sparse.of(zarr.open_group("x.zarr", path="X")) == Sparse((200, 30), "csr_matrix")
