"""Files that are joined along the samples: they read as one array, and those that do not fit are refused by name."""

import json
import pickle
from functools import partial
from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray as xr
import zarr
from hypothesis import given
from hypothesis import strategies as st

from dpca.errors import DpcaError, InputError
from dpca.planning.cuts import plan_layout
from dpca.sources import as_source, joined, open_joined, open_source
from dpca.sources.joining import join
from tests.commands.calls import dpca
from tests.drawn import examples
from tests.made import made
from tests.stores import bits, contents, counted, random_array


def written(kind, path, x, chunks):
    """The file of an array."""
    path = f"{path}.{kind.partition(' ')[0]}"
    if kind == "npy":
        np.save(path, x)
    elif kind == "zarr":
        zarr.create_array(path, data=x, chunks=chunks, overwrite=True)
    else:
        with h5py.File(path, "w") as file:
            file.create_dataset(
                "x", data=x, **({} if "contiguous" in kind else {"chunks": chunks, "compression": "gzip"})
            )
    return path


def cut(x, lengths, axis):
    """Parts of an array along an axis."""
    return np.split(x, np.cumsum(lengths)[:-1], axis)


def netcdf(path, start, length, units="days since 2000-01-01", **attributes):
    """A netCDF file of daily means of X from a day on, and its part of X."""
    field = xr.DataArray(
        X[start : start + length],
        dims=("time", "lat", "lon"),
        coords={
            "time": np.datetime64("2000-01-01", "ns") + np.arange(start, start + length) * np.timedelta64(1, "D"),
            "lat": np.linspace(-80.0, 80, 6),
        },
        attrs={"units": "K", **attributes},
        name="sst",
    )
    how = {"sst": {"chunksizes": (min(5, length), 3, 8), "zlib": True}, "time": {"units": units, "dtype": "f8"}}
    field.to_netcdf(path, engine="h5netcdf", encoding=how)
    return path


X = random_array(0, (30, 6, 8), "f4")
LENGTHS = (10, 15, 5)


def yearly():
    starts = np.cumsum([0, *LENGTHS])
    for number, (start, length) in enumerate(zip(starts, LENGTHS, strict=False)):
        netcdf(f"sst_{number}.nc", start, length, f"days since 2000-01-{start + 1:02d}")
    netcdf("all.nc", 0, 30)


@pytest.fixture
def years():
    """Three files, each with times since its own first day, and one of all."""
    made(yearly)
    return "all.nc"


def one_after_the_other():
    for name, start, length in (("a.nc", 0, 10), ("b.nc", 10, 15), ("c.nc", 25, 5)):
        netcdf(name, start, length)


@pytest.fixture
def config():
    Path("c.yaml").write_text(
        "input: {uri: 'sst_*.nc', array: sst}\nmodel: {n_components: 3}\noutput: {path: r, report: false}\n"
    )
    return "c.yaml"


def test_any_files_read_as_their_concatenation(tmp_path):
    @examples(20)
    @given(st.data())
    def check(data):
        axis = data.draw(st.integers(0, 2), "axis")
        lengths = data.draw(st.lists(st.integers(1, 7), min_size=1, max_size=5), "lengths")
        kinds = data.draw(st.sampled_from([["zarr"], ["hdf5"], ["npy"], ["zarr", "hdf5 contiguous", "hdf5", "npy"]]))
        shape = [5, 4, 6]
        shape[axis] = sum(lengths)
        x = random_array(0, shape, data.draw(st.sampled_from(["f4", "i2", "f8"]), "dtype"))
        uris = [
            written(
                data.draw(st.sampled_from(kinds)),
                tmp_path / str(number),
                part,
                tuple(data.draw(st.integers(1, length)) for length in part.shape),
            )
            for number, part in enumerate(cut(x, lengths, axis))
        ]
        source = open_joined(uris, axis)
        assert source.layout.shape == x.shape
        assert source.layout.dtype == x.dtype
        region = tuple(
            slice(*sorted(data.draw(st.lists(st.integers(0, length), min_size=2, max_size=2)))) for length in shape
        )
        travelled = pickle.loads(pickle.dumps(source.restrict(region)))
        joined.KEPT_OPEN = data.draw(st.integers(1, 4), "files kept open")
        with source.open() as reader, travelled.open() as part:
            np.testing.assert_array_equal(reader.read(region), x[region])
            np.testing.assert_array_equal(reader.read(tuple(map(slice, [0] * 3, shape))), x)
            np.testing.assert_array_equal(part.read(region), x[region])
        assert source.state(region) == travelled.state(region)

    before = joined.KEPT_OPEN
    try:
        check()
    finally:
        joined.KEPT_OPEN = before


def test_a_pass_reads_each_chunk_of_each_file_once(tmp_path):
    @examples(15)
    @given(st.data())
    def check(data):
        lengths = data.draw(st.lists(st.integers(2, 9), min_size=2, max_size=4))
        x = random_array(0, (sum(lengths), 24, 10), "f4")
        counts, sources, n_chunks = [], [], 0
        for part in cut(x, lengths, 0):
            chunks = (
                data.draw(st.integers(1, len(part))),
                *data.draw(st.sampled_from([(3, 10), (4, 5), (6, 2), (8, 3)])),
            )
            array, reads = counted(zarr.create_array({}, data=part, chunks=chunks))
            counts.append(reads)
            n_chunks += array.nchunks
            sources.append(as_source(array))
        source = join(sources)
        keeps = data.draw(st.sampled_from(["samples", "features"]))
        plan = plan_layout(source.layout, 0, 1, keeps, slab_bytes=data.draw(st.sampled_from([1, 2000])))
        read = np.full_like(x, np.nan)
        with source.open() as reader:
            for tile in (tile for span in range(plan.n_spans) for tile in plan.tiles_of(span)):
                for region in map(plan.region, plan.slabs_of(tile)):
                    read[region] = reader.read(region)
        np.testing.assert_array_equal(read, x)
        assert {count for reads in counts for count in reads.values()} == {1}
        assert sum(map(len, counts)) == n_chunks

    check()


def test_the_grid_is_that_of_one_file_where_files_end_where_chunks_do():
    uris = [written("zarr", str(number), part, (5, 2, 8)) for number, part in enumerate(cut(X, LENGTHS, 0))]
    assert open_joined(uris).layout.chunks == (5, 2, 8)
    uris = [written("zarr", str(number), part, (4, 2, 8)) for number, part in enumerate(cut(X, LENGTHS, 0))]
    assert open_joined(uris).layout.chunks == ((4, 4, 2, 4, 4, 4, 3, 4, 1), 2, 8)


def test_chunks_of_features_that_differ_are_read_together_and_said(capsys):
    for number, (part, chunk) in enumerate(zip(cut(X, LENGTHS, 0), (2, 4, 4), strict=True)):
        written("zarr", f"x{number}", part, (5, 3, chunk))
    assert open_joined(["x0.zarr", "x1.zarr", "x2.zarr"]).layout.chunks == (5, 3, 4)
    for number, (part, chunk) in enumerate(zip(cut(X, LENGTHS, 0), (3, 4, 4), strict=True)):
        written("zarr", f"x{number}", part, (5, 3, chunk))
    assert dpca("inspect", "x*.zarr", "--samples-axis", "0") == 0
    said = capsys.readouterr().out
    assert "chunks of 5 x 3 x 4 in x1.zarr and of 5 x 3 x 3 in x0.zarr do not end together: 5 x 3 x 8 are read" in said


def refusal(*uris, axis=0, gaps="error", **how):
    with pytest.raises(InputError) as caught:
        open_joined(uris, axis, gaps, opened=partial(open_source, **how))
    assert caught.value.remedy
    return caught.value.message


def npy(name, x):
    np.save(name, x)
    return name


def test_arrays_that_do_not_fit_are_refused_by_name():
    a, b = npy("a.npy", X[:10]), npy("b.npy", X[10:])
    assert refusal(a, b, npy("c.npy", X[:, 0])) == "c.npy: has 2 axes, but a.npy and 1 more have 3 axes"
    assert (
        refusal(a, npy("c.npy", X[:, :5]))
        == "c.npy: has 5 features along axis 1, but a.npy has 6 features along axis 1"
    )
    said = "c.npy: has values of dtype float64, but a.npy and 1 more have values of dtype float32"
    assert refusal(npy("c.npy", X.astype("f8")), a, b) == said
    assert refusal(a, npy("c.npy", X[:0])) == "c.npy: has no samples along axis 0 of shape (0, 6, 8)"
    assert refusal(a, b, a) == "a.npy: is there twice"
    assert refusal(a, b, "./a.npy") == "./a.npy: is there twice, also as a.npy"
    assert "absent.npy: does not exist" in refusal(a, "absent.npy")
    with h5py.File("d.h5", "w") as one, h5py.File("e.h5", "w") as other:
        one["x"], other["y"] = X[:10], X[10:]
    assert refusal("d.h5", "e.h5") == "e.h5:y: has array y, but d.h5:x has array x"


def test_a_pattern_that_nothing_matches_is_refused_with_the_folder(capsys, config):
    assert dpca("validate", config) == 0
    assert "its input sst_*.nc does not exist here" in capsys.readouterr().err
    assert dpca("run", config) == 2
    said = capsys.readouterr().err
    assert f"c.yaml:1:14: sst_*.nc: no file matches this pattern, looked for in {Path.cwd()}" in said
    assert "looked for in /nowhere, which does not exist" in refusal("/nowhere/*/sst_*.nc")


def test_a_path_with_the_signs_of_a_pattern_that_exists_is_no_pattern():
    npy("x[1].npy", X)
    assert open_joined(["x[1].npy"]).layout.shape == X.shape


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"units": "degC"}, "b.nc:sst: has units 'degC', but a.nc:sst and 1 more have units 'K'"),
        (
            {"lat": np.linspace(80, -80, 6)},
            "b.nc:sst: position 0 along 'lat' is 80.0, but a.nc:sst has -80.0 there (6 differ)",
        ),
        ({"lat": None}, "b.nc:sst: has no coordinate along axis 1, but a.nc:sst has one"),
        (
            {"time": None},
            "b.nc:sst: has no coordinate of the samples, but a.nc:sst and 1 more have a coordinate of the samples",
        ),
        ({"dims": {"lon": "x"}}, "b.nc:sst: has axis 2 called 'x', but a.nc:sst and 1 more have axis 2 called 'lon'"),
        (
            {"calendar": "noleap"},
            "b.nc:sst: has times in 'days since 2000-01-01 noleap', which can't be converted to those of a.nc:sst, "
            "'days since 2000-01-01 proleptic_gregorian'",
        ),
        ({"time_units": "m"}, "b.nc:sst: has numbers along 'time', but a.nc:sst has times"),
        (
            {"shift": -1},
            "b.nc:sst: begins at 2000-01-10, but a.nc:sst, before it, ends at 2000-01-10: they overlap, up to 2000-01-10",
        ),
        (
            {"shift": -10},
            "b.nc:sst: begins at 2000-01-01, but a.nc:sst, before it, ends at 2000-01-10: they overlap, up to 2000-01-10",
        ),
        ({"shift": -100}, "b.nc:sst: begins at 1999-10-03, but a.nc:sst, before it, ends at 2000-01-10"),
        (
            {"order": [0, 1, 3, 2, *range(4, 15)]},
            "b.nc:sst: the times of its samples do not increase: sample 3 is of 2000-01-13, and the one before it of 2000-01-14",
        ),
    ],
)
def test_files_whose_coordinates_do_not_fit_are_refused_by_name(change, said):
    made(one_after_the_other)
    with xr.open_dataset("b.nc", decode_times=False) as file:
        b = file.load()
    if "units" in change:
        b.sst.attrs["units"] = change["units"]
    for name in {"lat", "time"} & set(change):
        b = b.drop_vars(name) if change[name] is None else b.assign_coords({name: change[name]})
    b = b.rename(change.get("dims", {}))
    if "time" in b.coords:
        b["time"].attrs |= {"calendar": change.get("calendar", "proleptic_gregorian")}
        b["time"].attrs |= {"units": change.get("time_units", "days since 2000-01-01")}
        values = b["time"].values + change.get("shift", 0)
        b = b.assign_coords(time=("time", values[change.get("order", slice(None))], b["time"].attrs))
    b.to_netcdf("b.nc", engine="h5netcdf")
    assert refusal("a.nc", "b.nc", "c.nc", axis="time", array="sst") == said


def test_a_gap_may_be_allowed(capsys):
    netcdf("a.nc", 0, 10), netcdf("b.nc", 12, 8)
    assert "there is a gap of 3 days" in refusal("a.nc", "b.nc", array="sst")
    assert open_joined(["a.nc", "b.nc"], gaps="allow", opened=partial(open_source, array="sst")).layout.shape == (
        18,
        6,
        8,
    )
    assert dpca("inspect", "a.nc", "b.nc") == 0
    assert "Add the file that is missing between them, or set input.gaps: allow" in capsys.readouterr().out
    for day in (0, 1, 2, 5):
        netcdf(f"{day}.nc", day, 1)
    said = refusal(*(f"{day}.nc" for day in (0, 1, 2, 5)), array="sst")
    assert said == (
        "5.nc:sst: begins at 2000-01-06, but 2.nc:sst, before it, ends at 2000-01-03: there is a gap of 3 days, and the usual "
        "step is 1"
    )


@pytest.mark.parametrize(
    ("first", "times", "units", "calendar", "then", "expected"),
    [
        # units of the first file, its times, units of the second; the calendar of both, or of each
        ("days since 1950-01-01", [0, 1], "days since 1950-01-03", "", [0, 1], [0, 1, 2, 3]),
        ("days since 1950-01-01", [0, 0.5], "hours since 1950-01-02 00:00:00", "", [0, 12], [0, 0.5, 1, 1.5]),
        ("days since 1950-01-01", [0, 1], "hours since 1950-01-03", "", [0, 30], [0, 1, 2, 3.25]),
        ("hours since 1900-1-1", [-24, 0], "days since 1800-01-01T12:00Z", "", [36524, 36525], [-24, 0, 12, 36]),
        ("hours since 2000-01-01", [0, 1], "hours since 2000-01-01 00:00 -02:00", "", [0, 1], [0, 1, 2, 3]),
        ("days since 2000-02-28", [0], "days since 2000-03-01", "noleap", [0], [0, 1]),
        ("days since 2000-02-28", [0], "days since 2000-03-01", "all_leap", [0], [0, 2]),
        ("days since 2000-02-28", [0], "days since 2000-03-01", "360_day", [0], [0, 3]),
        ("days since 1900-02-28", [0], "days since 1900-03-01", "julian", [0], [0, 2]),
        ("days since 1582-10-04", [0], "days since 1582-10-15", "standard", [0], [0, 1]),
        ("months since 2000-01-01", [0], "months since 2000-01-01", "", [1], [0, 1]),
    ],
)
def test_times_are_those_of_the_first_units(first, times, units, calendar, then, expected):
    calendars = [calendar.split()[0], calendar.split()[-1]] if calendar else [None, None]
    for name, written_in, of, numbers in zip("ab", (first, units), calendars, (times, then), strict=True):
        attributes = {"units": written_in, **({"calendar": of} if of else {})}
        group = zarr.create_group(f"{name}.zarr")
        group.create_array("x", data=X[: len(numbers)], dimension_names=("time", "lat", "lon"))
        group.create_array("time", data=np.array(numbers), dimension_names=("time",), attributes=attributes)
    with open_joined(
        ["a.zarr", "b.zarr"], "time", gaps="allow", opened=partial(open_source, array="x")
    ).open() as reader:
        time = reader.coordinate(0)
        np.testing.assert_array_equal(time.values[...], expected)
        assert time.attributes["units"] == first
        # Integers stay integers, unless an hour is no whole number of days.
        whole = np.array(times).dtype.kind == "i" and "hours since 1950" not in units
        assert time.values.dtype.kind == ("i" if whole else "f")
    assert not calendar or "can't be converted" in _with_another_calendar()


def _with_another_calendar():
    group = zarr.open_group("b.zarr", mode="r+")
    group["time"].attrs["calendar"] = "none"
    return refusal("a.zarr", "b.zarr", axis="time", array="x", gaps="allow")


def test_names_of_samples_are_joined():
    for name, subjects in (("a.zarr", ["s1", "s2"]), ("b.zarr", ["subject 3"])):
        group = zarr.create_group(name)
        group.create_array("x", data=X[: len(subjects)], dimension_names=("subject", "lat", "lon"))
        group.create_array("subject", data=np.array(subjects), dimension_names=("subject",))
    with open_joined(["a.zarr", "b.zarr"], "subject", opened=partial(open_source, array="x")).open() as reader:
        assert reader.coordinate(0).values[...].tolist() == ["s1", "s2", "subject 3"]
        assert [list(values) for _, values in reader.coordinate(0).pieces(2)] == [["s1", "s2"], ["subject 3"]]


def test_files_that_are_packed_differently_are_unpacked():
    packed = random_array(1, (9, 5, 4), "i2")
    packed[2, 3, 1] = packed[5, 0, 0] = -99
    factors, expected = (0.5, 0.25, 2.0), []
    for number, (part, factor) in enumerate(zip(cut(packed, (4, 3, 2), 0), factors, strict=True)):
        attributes = {"scale_factor": factor, "add_offset": float(number), "_FillValue": -99}
        zarr.create_array(f"x{number}.zarr", data=part, chunks=(2, 5, 4), attributes=attributes)
        expected.append(np.where(part == -99, np.nan, part * factor + number))
    source = open_joined(["x0.zarr", "x1.zarr", "x2.zarr"])
    assert source.layout.dtype == np.float64
    assert source.layout.packing == (1.0, 0.0)
    with source.open() as reader:
        np.testing.assert_array_equal(reader.read(tuple(map(slice, [0] * 3, packed.shape))), np.concatenate(expected))
    for number, mark in enumerate((-99.0, 1e20)):
        x = X.copy()
        x[number, 2, 3] = mark
        zarr.create_array(f"z{number}.zarr", data=x, attributes={"_FillValue": mark})
    source = open_joined(["z0.zarr", "z1.zarr"])
    assert source.layout.dtype == np.float32
    with source.open() as reader:
        read = reader.read(tuple(map(slice, [0] * 3, source.layout.shape)))
        assert np.argwhere(np.isnan(read)).tolist() == [[0, 2, 3], [31, 2, 3]]
    for number in (0, 1):
        zarr.create_array(f"y{number}.zarr", data=X.astype("i8"), attributes={"scale_factor": factors[number]})
    assert refusal("y0.zarr", "y1.zarr").startswith("y1.zarr: has scale_factor 0.25, add_offset 0 and")


def test_an_error_in_a_read_names_the_file():
    uris = [written("zarr", f"x{number}", part, (5, 3, 4)) for number, part in enumerate(cut(X, LENGTHS, 0))]
    Path("x1.zarr/c/2/1/1").write_bytes(b"no chunk")
    with open_joined(uris).open() as reader, pytest.raises(DpcaError, match=r"^x1\.zarr: chunk \(2, 1, 1\)"):
        reader.read(tuple(map(slice, [0] * 3, X.shape)))
    source = open_joined([npy("a.npy", X[:10]), npy("b.npy", X[10:])])
    Path("b.npy").unlink()
    with source.open() as reader, pytest.raises(DpcaError, match=r"^b\.npy: can't be opened"):
        reader.read(tuple(map(slice, [0] * 3, X.shape)))


def test_a_run_on_three_files_is_the_run_on_one(years, config):
    assert dpca("run", config) == 0
    assert dpca("run", config, "--set", f"input.uri={years}", "--set", "output.path=one") == 0
    assert contents("r/result.zarr") == contents("one/result.zarr")
    with xr.open_zarr("r/result.zarr") as result:
        np.testing.assert_array_equal(result.time, np.arange("2000-01-01", "2000-01-31", dtype="M8[D]"))
    manifest = json.loads(Path("r/manifest.json").read_text())
    assert manifest["config"]["input"]["uri"] == ["sst_0.nc", "sst_1.nc", "sst_2.nc"]


@pytest.mark.long
def test_every_command_takes_files_that_are_joined(years, config, capsys):
    assert dpca("plan", config) == 0
    assert "sst_0.nc:sst to sst_2.nc:sst (3 files): 30 x 6 x 8" in capsys.readouterr().out
    assert dpca("init", "sst_*.nc", "--array", "sst") == 0
    Path("started.yaml").write_text(capsys.readouterr().out)
    assert dpca("run", "started.yaml") == 0
    assert Path("results/sst-sst/manifest.json").exists()
    assert dpca("run", config) == 0
    assert dpca("transform", "r", "sst_*.nc", "--out", "joined.zarr") == 0
    assert dpca("transform", "r", years, "--out", "one.zarr") == 0
    joined_scores, scores = (xr.open_zarr(path).load() for path in ("joined.zarr", "one.zarr"))
    np.testing.assert_allclose(joined_scores.scores, scores.scores, rtol=0, atol=1e-10 * abs(scores.scores).max())
    np.testing.assert_array_equal(joined_scores.time, scores.time)
    Path("new.yaml").write_text("uri: [sst_0.nc, sst_1.nc]\narray: sst\nsamples_axis: time\n")
    assert dpca("transform", "r", "new.yaml", "--out", "new.zarr") == 0
    np.testing.assert_allclose(xr.open_zarr("new.zarr").scores, scores.scores[:25], rtol=0, atol=1e-10 * 1e3)


def test_kernels_find_their_training_files_again(years, config):
    keys = [word for key in ("model.kind=kernel_pca", "model.kernel=rbf") for word in ("--set", key)]
    assert dpca("run", config, *keys) == 0
    assert dpca("transform", "r", "sst_*.nc", "--out", "scores.zarr") == 0
    with xr.open_zarr("r/result.zarr") as result, xr.open_zarr("scores.zarr") as new:
        np.testing.assert_allclose(new.scores, result.scores, rtol=0, atol=1e-4)
    assert dpca("run", config, *keys, "--set", "output.path=more", "--from-gram", "r") == 0


def test_a_job_array_has_the_same_bits_and_notices_a_file_that_changes(years, config, capsys):
    assert dpca("run", config, "--set", "output.path=whole") == 0
    assert dpca("batch", "init", config, "--partitions", "1") == 0
    while not Path("r/manifest.json").exists():
        assert dpca("batch", "partition", "r", "--index", "0") == 0
        dpca("batch", "finalize", "r")
    assert bits("r") == bits("whole")
    capsys.readouterr()
    assert dpca("batch", "init", config, "--partitions", "1", "--overwrite") == 0
    netcdf("sst_1.nc", 10, 15, "days since 2000-01-11", history="written again")
    assert dpca("batch", "partition", "r", "--index", "0") == 2
    said = capsys.readouterr().err
    assert "the input sst_0.nc:sst to sst_2.nc:sst (3 files) changed since the run began" in said
    assert "sst_1.nc:sst: the file was written at" in said
    assert dpca("run", config, "--resume") == 2


def test_the_state_of_a_region_is_that_of_the_files_it_touches():
    source = open_joined([npy("a.npy", X[:10]), npy("b.npy", X[10:])])
    whole, first = (tuple(map(slice, [0] * 3, (length, *X.shape[1:]))) for length in (30, 10))
    before = source.state(whole), source.state(first)
    npy("b.npy", X[10:] + 1)
    assert source.state(whole) != before[0]
    assert source.state(first) == before[1]


def test_what_a_reader_holds_does_not_grow_with_the_number_of_files():
    layout = open_source(npy("a.npy", X[:1])).layout
    few, many = (join([as_source(np.zeros(layout.shape, "f4"))] * n) for n in (joined.KEPT_OPEN, 5000))
    assert sum(few.held((1, 6, 8)).values()) == sum(many.held((1, 6, 8)).values())
