import tracemalloc

import h5py
import numpy as np
import pytest
import zarr

from dpca.errors import DataError
from dpca.execution.executors import Threads
from dpca.execution.progress import Progress
from dpca.numerics.accumulators.gram import GramAccumulator
from dpca.numerics.panels import Rules
from dpca.numerics.sketch import COLUMNS
from dpca.sources import as_source, open_source
from dpca.sources.zarr_chunks import ChunkFiles
from tests.runs import RecordingSource, decompose_array
from tests.stores import counted, random_array

LAYOUTS = {
    "chunks along features": {"shape": (12, 300), "chunks": (12, 7), "samples_axis": 0},
    "chunks along samples too": {"shape": (12, 300), "chunks": (5, 16), "samples_axis": 0},
    "whole rows": {"shape": (12, 300), "chunks": (1, 300), "samples_axis": 0},
    "features first": {"shape": (300, 12), "chunks": (11, 4), "samples_axis": 1},
    "three feature axes": {"shape": (9, 12, 8, 5), "chunks": (2, 5, 3, 5), "samples_axis": 1},
    "sharded": {"shape": (12, 320), "chunks": (6, 8), "shards": (12, 40), "samples_axis": 0},
    "shards larger than a slab": {"shape": (12, 320), "chunks": (6, 8), "shards": (12, 160), "samples_axis": 0},
}


@pytest.mark.parametrize(
    ("layout", "components"),
    [*((layout, True) for layout in LAYOUTS), ("chunks along samples too", False), ("sharded", False)],
)
def test_each_pass_reads_every_stored_chunk_once(layout, components):
    case = dict(LAYOUTS[layout])
    axis, shape = case.pop("samples_axis"), case.pop("shape")
    array, reads = counted(zarr.create_array({}, data=random_array(0, shape, "f4"), **case))
    decompose_array(as_source(array), 3, samples_axis=axis, slab_bytes=12 * 4 * 60, n_spans=4, components=components)
    passes = 2 if components else 1
    chunks = {key: count for key, count in reads.items() if "Suffix" not in repr(key)}  # but for the shards' indices
    assert set(chunks.values()) == {passes}
    assert len(chunks) >= np.prod([-(-s // c) for s, c in zip(array.shape, array.shards or array.chunks, strict=True)])


@pytest.mark.parametrize("kind", ["hdf5", "npy", "npy F order", "numpy"])
def test_each_pass_reads_every_value_once(kind, tmp_path):
    x = random_array(0, (12, 20, 9), "f8")
    if kind == "hdf5":
        with h5py.File("x.h5", "w") as file:
            file.create_dataset("x", data=x, chunks=(5, 6, 4))
    elif kind != "numpy":
        np.save("x.npy", np.asfortranarray(x) if "F" in kind else x)
    source = as_source(x) if kind == "numpy" else open_source("x.h5" if kind == "hdf5" else "x.npy")
    recording = RecordingSource(source)
    decompose_array(recording, 3, slab_bytes=12 * 8 * 30, n_spans=3)
    seen = np.zeros(x.shape, int)
    for region in recording.regions:
        seen[region] += 1
    assert (seen == 2).all()
    assert len(recording.regions) > 6


def test_a_missing_value_is_named_in_the_arrays_own_indices():
    x = random_array(0, (6, 10, 8), "f4")
    x[4, 7, 5] = np.nan
    x[5, 7, 6] = np.nan
    stored = np.ascontiguousarray(np.moveaxis(x, 0, 1))
    with pytest.raises(
        DataError, match=r"the NumPy array: 2 missing values \(NaN\) in region .* \[7, 4, 5\] \(sample 4\): nan"
    ) as caught:
        decompose_array(stored, 2, samples_axis=1)
    assert "preprocess.missing: mean" in caught.value.remedy


def test_infinity_is_named_and_not_said_to_be_fillable():
    x = random_array(0, (6, 10), "f8")
    x[2, 3] = -np.inf
    with pytest.raises(DataError, match=r"1 infinities .* \[2, 3\] \(sample 2\): -inf") as caught:
        decompose_array(x, 2, rules=Rules(missing="mean"))
    assert "mean" not in caught.value.remedy


def test_the_sentinel_of_a_file_is_a_missing_value():
    with h5py.File("x.nc", "w") as file:
        data = file.create_dataset("x", data=np.arange(12, dtype="i2").reshape(3, 4))
        data.attrs["_FillValue"] = np.int16(5)
    with pytest.raises(DataError, match=r"x\.nc:x: 1 missing values \(NaN or 5\) .* \[1, 1\] \(sample 1\): 5"):
        decompose_array(open_source("x.nc"), 2)
    found = decompose_array(open_source("x.nc"), 2, rules=Rules(missing="mean"))
    assert found.counts["missing_values"] == 1
    assert found.outputs.array("mean")[1] == 5.0  # of 1 and 9


def test_values_whose_sum_overflows_are_named():
    with pytest.raises(DataError, match=r"so large that their sum overflows float64"):
        decompose_array(np.full((4, 5), 1.7e308), 1)


def test_the_second_pass_begins_where_the_first_ended():
    """So that it finds in the page cache what was read last."""
    recording = RecordingSource(as_source(random_array(0, (12, 400), "f4")))
    decompose_array(recording, 3, executor=Threads(1), slab_bytes=12 * 4 * 20, n_spans=5, tile_width=1)
    first, second = recording.regions[:20], recording.regions[20:]
    assert first == sorted(first, key=lambda region: region[1].start)
    spans = [second[start : start + 4] for start in range(0, 20, 4)]
    assert [slab for span in reversed(spans) for slab in span] == first


def test_large_chunks_are_announced_once_a_pass_before_they_are_needed(monkeypatch):
    zarr.create_array("x.zarr", data=random_array(0, (64, 4096 * 6), "f4"), chunks=(64, 4096))
    events, read = [], ChunkFiles.read

    def recorded(self, index, *how):
        events.append(("read", index))
        return read(self, index, *how)

    expect = ChunkFiles.expect
    monkeypatch.setattr(ChunkFiles, "read", recorded)
    monkeypatch.setattr(
        ChunkFiles, "expect", lambda self, index: (events.append(("announced", index)), expect(self, index))
    )
    decompose_array(open_source("x.zarr"), 3, executor=Threads(1), slab_bytes=2**20, n_spans=1)
    for event in ("announced", "read"):
        assert sorted(index for what, index in events if what == event) == sorted(2 * [(0, i) for i in range(6)])
    for start in (0, 12):  # of each pass
        of_pass = events[start : start + 12]
        for number in range(5):
            assert of_pass.index(("announced", (0, number + 1))) < of_pass.index(("read", (0, number)))


@pytest.mark.parametrize("samples_axis", [0, 1])
@pytest.mark.parametrize("dtype", ["f4", "f8", "u1", "i2"])
def test_after_the_first_slab_nothing_of_its_size_is_allocated(dtype, samples_axis, monkeypatch):
    """Chunks are decoded into memory that is used again, panels filled in place, and BLAS takes them as they are."""
    shape, chunks = ((300, 20_000), (300, 2000)) if samples_axis == 0 else ((20_000, 300), (2000, 300))
    zarr.create_array("x.zarr", data=random_array(0, shape, dtype), chunks=chunks)
    sizes: list[int] = []
    report = Progress.advance

    def measured(self, n_bytes):
        sizes.append(tracemalloc.get_traced_memory()[1] - tracemalloc.get_traced_memory()[0])
        tracemalloc.reset_peak()
        report(self, n_bytes)

    monkeypatch.setattr(Progress, "advance", measured)
    tracemalloc.start()
    try:
        decompose_array(
            open_source("x.zarr"),
            3,
            samples_axis=samples_axis,
            executor=Threads(1),
            slab_bytes=300 * 2000 * np.dtype(dtype).itemsize,
            n_spans=1,
            components=False,
        )
    finally:
        tracemalloc.stop()
    assert len(sizes) == 10
    a_value_a_feature = 8 * 2000
    # Means and the like, and a block's products with random columns; a copy of a slab has 300 of them.
    assert max(sizes[2:]) < (8 + COLUMNS) * a_value_a_feature, sizes


@pytest.mark.parametrize("layout", LAYOUTS)
def test_products_are_of_contiguous_panels_in_working_precision(layout, monkeypatch):
    """Else BLAS would be handed a copy, or NumPy would not see a symmetric product."""
    case = dict(LAYOUTS[layout])
    axis, shape = case.pop("samples_axis"), case.pop("shape")
    seen, add = [], GramAccumulator.add

    def recorded(self, matrix):
        seen.append(matrix)
        assert matrix.dtype == np.float32
        assert matrix.flags.c_contiguous or matrix.flags.f_contiguous
        return add(self, matrix)

    monkeypatch.setattr(GramAccumulator, "add", recorded)
    array = zarr.create_array({}, data=random_array(0, shape, "f4"), **case)
    decompose_array(as_source(array), 3, samples_axis=axis, slab_bytes=12 * 4 * 60, n_spans=4, components=False)
    assert sum(matrix.shape[1] for matrix in seen) == np.prod(shape) // 12
