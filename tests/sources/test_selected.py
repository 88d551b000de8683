"""Some samples of an array, in any order: the values, what is read for them, and what is refused."""

import pickle
from collections import Counter
from pathlib import Path

import h5py
import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

from dpca.config.inputs import Input
from dpca.errors import InputError
from dpca.planning.cuts import plan_layout
from dpca.sources import as_source, open_source
from dpca.sources.selected import SelectedSource
from tests.drawn import examples
from tests.runs import RecordingSource, decompose_array
from tests.sources.test_base import SHAPE, SOURCES
from tests.stores import counted, random_array

# One of each reader and order of axes: the values of a chunk are the same whatever it was compressed with.
READERS = ["zarr v2 F order", "zarr v3", "zarr v3 plain", "zarr v3 sharded", "hdf5 contiguous", "hdf5 gzip"]
READERS += ["npy", "npy F order", "dask", "numpy F order", "h5py.Dataset"]


@pytest.mark.parametrize("kind", READERS)
def test_every_region_of_chosen_samples_of_every_source_is_the_array(kind, tmp_path):
    x = random_array(0, SHAPE, "f4")
    source = SOURCES[kind](tmp_path, x)

    @examples(15)
    @given(st.data())
    def regions(data):
        axis = data.draw(st.integers(0, 2))
        chosen = data.draw(st.lists(st.integers(0, SHAPE[axis] - 1), min_size=1, unique=True))
        expected = np.take(x, chosen, axis)
        view = SelectedSource(source, axis, np.array(chosen))
        assert view.layout.shape == expected.shape
        region = tuple(
            slice(*sorted(data.draw(st.lists(st.integers(0, length), min_size=2, max_size=2, unique=True))))
            for length in expected.shape
        )
        with view.open() as reader:
            np.testing.assert_array_equal(reader.read(region), expected[region])
        with pickle.loads(pickle.dumps(view.restrict(region))).open() as reader:
            np.testing.assert_array_equal(reader.read(region), expected[region])

    regions()


@examples(30)
@given(st.data())
def test_slabs_along_chunks_read_each_chunk_with_a_chosen_sample_once_and_no_other(data):
    n, chunk = data.draw(st.integers(2, 40)), data.draw(st.integers(1, 12))
    chosen = data.draw(st.lists(st.integers(0, n - 1), min_size=2, unique=True))
    if data.draw(st.booleans()):
        chosen = sorted(chosen)
    x = random_array(0, (n, 12), "f8")
    array, reads = counted(zarr.create_array({}, data=x, chunks=(chunk, 5)))
    view = SelectedSource(as_source(array), 0, np.array(chosen))
    needed = {f"c/{number // chunk}/{column}" for number in chosen for column in range(3)}
    for keeps in ("samples", "features"):  # all samples of some features at a time, or the reverse
        reads.clear()
        plan = plan_layout(view.layout, 0, 1, keeps, slab_bytes=1)
        with view.open() as reader:
            for tile in (
                plan.tiles_of(0) if plan.n_spans == 1 else [t for s in range(plan.n_spans) for t in plan.tiles_of(s)]
            ):
                for slab in plan.slabs_of(tile):
                    region = plan.region(slab)
                    np.testing.assert_array_equal(reader.read(region), x[chosen][region])
        assert dict(reads) == dict.fromkeys(needed, 1)


def _rows_read(chosen, region):
    recorded = RecordingSource(open_source("x.npy"))
    with SelectedSource(recorded, 0, chosen).open() as reader:
        reader.read(region)
    return [(piece[0].start, piece[0].stop) for piece in recorded.regions]


def test_runs_are_read_as_slices_and_what_lies_between_is_not_read():
    x = np.zeros((100, 20_000), "f8")  # 160 kB a sample
    everything = (slice(0, 9), slice(0, 20_000))
    chosen = np.array([50, 51, 52, 3, 4, 90, 5, 80, 6])
    np.save("x.npy", x)
    assert _rows_read(chosen, everything) == [
        (3, 7), (50, 53), (80, 81), (90, 91)
    ]  # fmt: skip
    assert _rows_read(np.arange(3, 12), everything) == [(3, 12)]
    # A few bytes between two samples are read along: a call would take longer.
    assert _rows_read(chosen, (slice(0, 9), slice(0, 10))) == [(3, 91)]


@pytest.mark.parametrize("kind", ["zarr", "npy", "hdf5"])
def test_reads_hold_what_they_say(kind):
    x = random_array(0, (60, 30_000), "f8")
    if kind == "zarr":
        zarr.create_array("x", data=x, chunks=(7, 1000))
    elif kind == "hdf5":
        h5py.File("x.h5", "w").create_dataset("x", data=x)
    else:
        np.save("x.npy", x)
    source = open_source({"zarr": "x", "hdf5": "x.h5", "npy": "x.npy"}[kind])
    recorded = RecordingSource(source)
    view = SelectedSource(recorded, 0, np.random.default_rng(0).permutation(60)[:45])
    shape = (45, 20_000)
    held, largest = view.held(shape), 0
    with view.open() as reader:
        reader.read(tuple(slice(0, length) for length in shape))
        assert len(reader._buffer._bytes) <= held["slab"]
    for region in recorded.regions:
        largest = max(largest, sum(source.held(tuple(p.stop - p.start for p in region)).values()))
    assert largest <= sum(size for name, size in held.items() if "of one read of chosen samples" in name)


def test_the_state_is_of_the_chunks_that_are_read():
    zarr.create_array("x.zarr", data=random_array(0, (12, 6), "f4"), chunks=(2, 6))
    view = SelectedSource(open_source("x.zarr"), 0, np.array([9, 1, 2]))  # in chunks 4, 0 and 1
    whole = (slice(0, 3), slice(0, 6))
    before = view.state(whole)
    for number, changes in ((2, False), (5, False), (4, True)):
        file = Path(f"x.zarr/c/{number}/0")
        file.write_bytes(file.read_bytes() + b"0")
        assert (view.state(whole) != before) == changes


def test_the_fingerprint_tells_which_samples_they_are():
    np.save("x.npy", np.zeros((6, 3)))
    found = [
        Input(uri="x.npy", samples=s).open().fingerprint()["samples"] for s in ([1, 2], [2, 1], {"start": 1, "stop": 3})
    ]
    assert found[0] != found[1]
    assert found[0] == found[2]


TIMES = np.array(["2001-01-16", "2001-02-15", "2001-03-16", "2002-01-16"], "M8[D]")


def _named():
    """Arrays with names of samples: text, days since a date, hours with a fraction, numbers."""
    days = (TIMES - np.datetime64("1990-01-01")).astype(int)
    coordinates = {
        "text": (np.array(["ann", "bob", "17", "eve"], object), {}),
        "days": (days, {"units": "days since 1990-01-01"}),
        "hours": (days * 24 + 12.0, {"units": "hours since 1990-01-01"}),
        "numbers": (np.array([1001, 1002, 1234567, 1]), {}),
    }
    for name, (values, attributes) in coordinates.items():
        group = zarr.create_group(f"{name}.zarr")
        group.create_array("x", data=np.arange(12.0).reshape(4, 3), dimension_names=("who", "f"))
        dtype = str if values.dtype == object else values.dtype
        group.create_array("who", shape=(4,), dtype=dtype, dimension_names=("who",), attributes=attributes)[:] = values


def _chosen(uri, samples, **more):
    source = Input(uri=uri, samples=samples, **more).open()
    return source.chosen.tolist()


@pytest.mark.parametrize(
    ("name", "samples", "expected"),
    [
        ("text", ["eve", "ann"], [3, 0]),
        ("text", ["17", 0], [2, 0]),
        ("text", [2, 0], [2, 0]),
        ("text", {"start": 1, "step": 2}, [1, 3]),
        ("days", ["2001-02-15", "2001-01"], [1, 0]),
        ("days", ["2002", "2001-03-16T00:00"], [3, 2]),
        ("hours", ["2001-02-15T12:00:00Z", "2001-03-16"], [1, 2]),
        ("numbers", ["1234567", "1"], [2, 3]),
    ],
)
def test_samples_are_chosen_by_number_label_and_range(name, samples, expected):
    _named()
    source = Input(uri=f"{name}.zarr", array="x", samples=samples).open()
    assert source.chosen.tolist() == expected
    with source.open() as reader:
        np.testing.assert_array_equal(
            np.asarray(reader.coordinate(0).values[...]), np.asarray(zarr.open(f"{name}.zarr/who")[...])[expected]
        )
        assert reader.read((slice(0, 2), slice(0, 1)))[:, 0].tolist() == [3.0 * number for number in expected]


def test_samples_without_names_are_called_by_their_numbers():
    np.save("x.npy", np.zeros((5, 3)))
    source = Input(uri="x.npy", samples=[4, 2]).open()
    with source.open() as reader:
        assert reader.coordinate(0).values.tolist() == [4, 2]
        assert reader.coordinate(1) is None


def test_samples_are_chosen_by_a_file():
    _named()
    np.save("numbers.npy", np.array([3, 1], "u1"))
    np.save("mask.npy", np.array([False, True, False, True]))
    Path("numbers.txt").write_text("3\n1\n\n")
    Path("labels.txt").write_text("eve\nbob\n")
    Path("digits.txt").write_text("17\n")
    for file, expected in (
        ("numbers.npy", [3, 1]), ("mask.npy", [1, 3]), ("numbers.txt", [3, 1]), ("labels.txt", [3, 1]), ("digits.txt", [2])
    ):  # fmt: skip
        assert _chosen("text.zarr", file, array="x") == expected


@pytest.mark.parametrize(
    ("samples", "problem", "remedy"),
    [
        ([0, 4], "input.samples has 4, but text.zarr:x has 4 samples", "from 0 to 3"),
        ([-1], "input.samples has -1, but", "from 0 to 3"),
        ([10**30, 1], f"input.samples has {10**30}, but", "from 0 to 3"),
        ([1, 2, 1], "sample 1 more than once", "once"),
        (["bob", 1], "sample 1 more than once", "once"),
        ([], "input.samples has no sample", "leave it out"),
        ({"start": 3, "stop": 3}, "input.samples has no sample", "leave it out"),
        ({"stop": 5}, "input.samples has stop: 5, but text.zarr:x has 4 samples", "Leave it out"),
        (["bobb"], "'bobb', but no sample of text.zarr:x is called so (they are called ann, bob, 17, eve)", "mean 'bob'"),
        (["zzz"], "'zzz', but no sample", "Give labels as they are there"),
        ("none.txt", "none.txt: labels can't be read: it does not exist", ""),
        ("floats.npy", "is of dtype float64, but integers, a mask (bool) and text", "Convert"),
        ("bytes.npy", "bytes.npy: holds 4 values of dtype uint8, all 0 or 1", "mask.astype(bool)"),
        ("mask.npy", "mask.npy: is a mask of 3 values, but text.zarr:x has 4 samples", "one for each"),
        ("many.npy", "chooses samples by an array of shape (9,)", "one axis"),
        ("table.npy", "chooses samples by an array of shape (2, 2)", "one axis"),
        ("out.txt", "input.samples has 9, but", "from 0 to 3"),
    ],
)  # fmt: skip
def test_choices_that_can_not_be(samples, problem, remedy):
    _named()
    for name, values in {
        "floats": np.zeros(2), "mask": np.ones(3, bool), "bytes": np.array([0, 1, 1, 0], "u1"), "many": np.arange(9), "table": np.zeros((2, 2), int)
    }.items():  # fmt: skip
        np.save(f"{name}.npy", values)
    Path("out.txt").write_text("9\n1\n")
    with pytest.raises(InputError) as error:
        _chosen("text.zarr", samples, array="x")
    assert problem in error.value.message
    assert remedy in error.value.remedy
    assert error.value.key == "input.samples"


def test_labels_that_name_several_samples_or_none():
    _named()
    with pytest.raises(InputError, match=r"'2001', which 3 samples of days.zarr:x share: numbers 0, 1, 2"):
        _chosen("days.zarr", ["2001"], array="x")
    zarr.open("text.zarr/who")[:] = np.array(["a", "b", "a", "c"], object)
    with pytest.raises(InputError, match=r"'a', which 2 samples of .* share: numbers 0, 2"):
        _chosen("text.zarr", ["a"], array="x")
    np.save("x.npy", np.zeros((5, 3)))
    with pytest.raises(InputError, match=r"labels, but the samples of x\.npy have no names"):
        _chosen("x.npy", ["a"])
    zarr.open("text.zarr/who")[:] = np.array(["3", "2", "1", "0"], object)
    Path("lines.txt").write_text("0\n1\n")
    with pytest.raises(InputError, match="may be the names of samples or their places"):
        _chosen("text.zarr", "lines.txt", array="x")


def test_a_decomposition_of_chosen_samples_is_that_of_their_copy():
    x = random_array(0, (40, 700), "f4")
    chosen = np.random.default_rng(1).permutation(40)[:15]
    array, reads = counted(zarr.create_array({}, data=x, chunks=(8, 100)))
    found = decompose_array(SelectedSource(as_source(array), 0, chosen), 4, slab_bytes=6000)
    copy = decompose_array(as_source(zarr.create_array({}, data=x[chosen], chunks=(8, 100))), 4, slab_bytes=6000)
    assert set(Counter(reads).values()) == {2}  # a pass for the Gram matrix, and one for components
    for name in ("gram", "scores", "components", "mean"):
        np.testing.assert_array_equal(found.outputs.array(name)[...], copy.outputs.array(name)[...])
