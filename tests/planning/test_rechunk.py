import os
from contextlib import contextmanager
from pathlib import Path

import dask.array as da
import h5py
import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

from dpca import PCA
from dpca.config.model import Model
from dpca.errors import DataError, InputError, OverBudgetError
from dpca.execution.executors import Threads
from dpca.execution.progress import Progress
from dpca.execution.stage import Runner
from dpca.methods.dataset import Dataset
from dpca.methods.decomposition import streamed
from dpca.methods.stages import Stages
from dpca.planning import processes, search
from dpca.planning.cuts import plan_layout
from dpca.planning.job import Job
from dpca.planning.rechunk import plan_copy
from dpca.planning.runplan import Attempt, Concurrency, RunPlan, Scratch, Workers
from dpca.planning.search import plan_run
from dpca.sources import as_source, open_source
from dpca.sources.groups import alone
from dpca.system.machine import Budget
from tests.drawn import examples
from tests.runs import RecordingSource, arrays_of, decompose_array
from tests.stores import counted, random_array

MIB = 2**20


@st.composite
def stored(draw):
    shape = tuple(draw(st.lists(st.integers(2, 12), min_size=2, max_size=3)))
    return {
        "shape": shape,
        "chunks": tuple(draw(st.integers(1, length)) for length in shape),
        "axis": draw(st.integers(0, len(shape) - 1)),
        "dtype": draw(st.sampled_from(["u1", "f4", "f8"])),
        "budget": draw(st.integers(64, 10**6)),
    }


@contextmanager
def copied(source, copy, tmp_path, n_tasks=2):
    plan = plan_layout(copy.layout, 0, 1, divide=True)
    made = RunPlan.of(plan, "copy", copy, concurrency=Concurrency(n_tasks, 2 * n_tasks))
    stages = Stages(Runner(Threads(n_tasks), Progress()))
    with streamed(Dataset(alone(source), (plan,)), made, str(tmp_path), stages) as (data, absent):
        yield data.groups[0].source, absent


@given(stored())
@examples(30)
def test_a_copy_has_the_same_values_and_reads_each_chunk_once(tmp_path_factory, case):
    x = random_array(0, case["shape"], case["dtype"])
    array, reads = counted(zarr.create_array({}, data=x, chunks=case["chunks"], config={"write_empty_chunks": True}))
    source = as_source(array)
    copy = plan_copy(source.layout, (case["axis"],), case["budget"])
    path = tmp_path_factory.mktemp("copy") / "copy.zarr"
    with copied(source, copy, path) as (streams, absent):
        with streams.open() as reader:
            np.testing.assert_array_equal(reader.read(tuple(slice(0, length) for length in x.shape)), x)
        assert absent == 0
        assert sum(f.stat().st_size for f in (path / "c").rglob("*") if f.is_file()) == copy.bytes
    assert set(reads.values()) == {1}
    assert not path.exists()


@given(stored())
def test_a_band_is_of_whole_chunks_and_fits_its_share(case):
    """So no stored chunk is read by two tasks; a band of one chunk is the least there can be."""
    array = zarr.create_array({}, shape=case["shape"], chunks=case["chunks"], dtype=case["dtype"])
    layout = as_source(array).layout
    copy = plan_copy(layout, (case["axis"],), case["budget"])
    for unit, chunk, length in zip(copy.unit, layout.chunk_shape, layout.shape, strict=True):
        assert unit % chunk == 0 or unit >= length
    assert copy.layout.chunk_bytes <= case["budget"] // 16 or copy.unit == layout.chunk_shape
    assert copy.layout.divisible


ROWS = {"shape": (12, 4000), "chunks": (1, 4000)}


def small_slabs(monkeypatch):
    monkeypatch.setattr(search, "SLAB_BYTES", 12 * 8 * 256)
    monkeypatch.setattr(search, "SLAB_WIDTH", 1)


def rows(kind, x):
    if kind == "zarr":
        zarr.create_array("x.zarr", data=x, chunks=ROWS["chunks"])
        return open_source("x.zarr")
    if kind == "dask":
        return as_source(da.from_array(x, chunks=ROWS["chunks"]))
    with h5py.File("x.h5", "w") as file:
        file.create_dataset("x", data=x, chunks=ROWS["chunks"], compression="gzip")
    return open_source("x.h5")


@pytest.mark.parametrize("kind", ["zarr", "hdf5", "dask"])
def test_whole_rows_give_the_bits_that_columns_give(kind, monkeypatch):
    """The copy has other chunks than the input, but the same slabs as storage without chunks would have."""
    small_slabs(monkeypatch)
    x = random_array(0, ROWS["shape"], "f8")
    source = RecordingSource(rows(kind, x))
    axis, model = 0, Model(3)
    copy = plan_copy(source.layout, (axis,), 10**6)
    plan = plan_layout(copy.layout, axis, 3, slab_bytes=12 * 8 * 256, divide=True)
    from dpca.methods.decomposition import decompose
    from dpca.store.outputs import Outputs

    attempts = tuple(Attempt(rung, Concurrency(2, 4)) for rung in model.ladder(source.layout.dtype, "samples"))
    made = RunPlan.of(plan, "copy", copy, concurrency=Concurrency(2, 4), attempts=attempts)
    job = Job(alone(source), model, made, Scratch("scratch.zarr", 0))
    found = decompose(job, Outputs("r.zarr"), Runner(Threads(2), Progress()))
    assert not os.path.exists("scratch.zarr")
    expected = decompose_array(x, 3, slab_bytes=12 * 8 * 256)
    assert arrays_of(found) == arrays_of(expected)
    seen = np.zeros(x.shape, int)
    for region in source.regions:
        seen[region] += 1
    assert (seen == 1).all()  # the input is read once for both passes
    assert found.counts["bytes_copied_to_scratch"] >= x.nbytes


def test_of_what_was_there_before_nothing_is_left_in_a_copy():
    zarr.create_array("copy", data=np.ones((6, 40)), chunks=(1, 40))
    Path("copy/zarr.json").write_text("{")
    source = as_source(zarr.create_array({}, data=random_array(0, (6, 40), "f8"), chunks=(1, 40)))
    copy = plan_copy(source.layout, (0,), 10**5)
    assert copy.create("copy")
    assert not Path("copy/c").exists()
    assert not copy.create("copy")  # this one is gone on with


def test_a_value_in_the_copy_is_named_as_in_the_input_and_scratch_is_removed(monkeypatch):
    x = random_array(0, ROWS["shape"], "f4")
    x[7, 1234] = np.nan
    zarr.create_array("x.zarr", data=x, chunks=ROWS["chunks"])
    source = open_source("x.zarr")
    copy = plan_copy(source.layout, (0,), 10**6)
    with (
        pytest.raises(DataError, match=r"x\.zarr: 1 missing values .* \[7, 1234\] \(sample 7\)"),
        copied(source, copy, "scratch.zarr") as (streams, _),
    ):
        decompose_array(streams, 2)
    assert not os.path.exists("scratch.zarr")


def test_absent_chunks_and_packing_survive_the_copy():
    array = zarr.create_array("x.zarr", shape=(6, 400), chunks=(1, 400), dtype="i2", fill_value=9)
    array.attrs.update({"scale_factor": 0.5, "add_offset": 10.0, "_FillValue": 9})
    array[:4] = np.arange(1600).reshape(4, 400) % 7
    source = open_source("x.zarr")
    copy = plan_copy(source.layout, (0,), 10**6)
    with copied(source, copy, "scratch.zarr") as (streams, absent):
        assert absent == 2
        assert streams.layout.packing == (0.5, 10.0)
        assert streams.layout.missing_values == (9.0,)
        with streams.open() as reader:
            assert (reader.read((slice(4, 6), slice(0, 400))) == 9).all()


def test_the_estimator_copies_too_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(search, "SLAB_BYTES", 2**18)
    monkeypatch.setattr(search, "SLAB_WIDTH", 1)
    monkeypatch.setattr(processes, "LIBRARIES_BYTES", 0)
    monkeypatch.setattr(processes, "TASK_BYTES", 0)
    x = random_array(0, (64, 40_000), "f4")
    array = zarr.create_array(tmp_path / "x.zarr", data=x, chunks=(1, 40_000))
    store = tmp_path / "out" / "result.zarr"
    store.parent.mkdir()
    whole = PCA(3).fit(x)
    source = as_source(array)
    workers = Workers(0, 2, Budget(8 * MIB, "of this test"))
    assert plan_run(alone(source), Model(3), workers=workers, scratch=Scratch("s", 10**9)).only.reading == "copy"
    pca = PCA(3, memory="8 MiB", store=store).fit(array)
    np.testing.assert_allclose(pca.singular_values_, whole.singular_values_, rtol=1e-5)
    np.testing.assert_allclose(pca.transform(array), whole.transform(x), rtol=1e-3, atol=1e-3)
    assert [path.name for path in store.parent.iterdir()] == ["result.zarr"]
    with pytest.raises(OverBudgetError):
        PCA(3, memory="100 kB").fit(array)


def test_a_lazy_array_whose_bands_compute_the_whole_is_not_copied():
    x = da.from_array(random_array(0, (60, 20_000), "f4"), chunks=(1, 20_000))
    plan = {"workers": Workers(0, 1, Budget(190 * MIB, "of this test")), "scratch": Scratch("s", 10**12)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processes, "TASK_BYTES", 2 * MIB)
        patch.setattr(search, "SLAB_BYTES", 2**20)
        patch.setattr(search, "SLAB_WIDTH", 1)
        assert plan_run(alone(as_source(x)), Model(3), **plan).only.reading == "copy"
        with pytest.raises(InputError, match="share ancestors"):
            plan_run(alone(as_source(x - x.mean(axis=0))), Model(3), **plan)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("length", [997, 1000])
def test_chunks_of_any_length_can_be_copied(axis, length):
    shape = (6, 3 * length + 7) if axis == 0 else (3 * length + 7, 6)
    chunks = (1, length) if axis == 0 else (length, 1)
    x = random_array(0, shape, "f8")
    source = as_source(zarr.create_array({}, data=x, chunks=chunks))
    with copied(source, plan_copy(source.layout, (axis,), 10**5), "scratch.zarr") as (streams, _):
        with streams.open() as reader:
            np.testing.assert_array_equal(reader.read(tuple(slice(2, n - 1) for n in shape)), x[2:-1, 2:-1])
        found = decompose_array(streams, 2, samples_axis=axis)
    dense = np.linalg.svd((x if axis == 0 else x.T) - x.mean(axis, keepdims=True).reshape(1, -1), compute_uv=False)
    np.testing.assert_allclose(found.spectrum.singular_values, dense[:2])
