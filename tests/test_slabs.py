import math

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from dpca.slabs import Cuts, grow, make_plan, split

lengths = st.integers(1, 60)


@st.composite
def chunkings(draw, length):
    if draw(st.booleans()):
        return draw(st.integers(1, length))
    edges = sorted(draw(st.sets(st.integers(1, length - 1), max_size=8))) if length > 1 else []
    return tuple(int(size) for size in np.diff([0, *edges, length]))


@st.composite
def arrays(draw):
    shape = tuple(draw(st.lists(lengths, min_size=2, max_size=4)))
    return {
        "shape": shape,
        "chunks": [draw(chunkings(length)) for length in shape],
        "samples_axis": draw(st.integers(0, len(shape) - 1)),
        "order": draw(st.sampled_from("CF")),
        "itemsize": draw(st.sampled_from([1, 2, 4, 8])),
        "n_components": draw(st.integers(1, 20)),
        "slab_bytes": draw(st.integers(1, 5000)),
        "n_spans": draw(st.one_of(st.none(), st.integers(1, 50))),
    }


def plan_of(case):
    case = dict(case)
    return make_plan(case.pop("shape"), case.pop("itemsize"), case.pop("chunks"), **case)


def pieces(cuts):
    return [cuts[index] for index in range(len(cuts))]


@given(st.data())
def test_cuts_cover_an_axis_once_and_coarsening_keeps_their_edges(data):
    length = data.draw(lengths)
    cuts = Cuts.of(length, data.draw(chunkings(length)))
    for level in (cuts, cuts.coarsen(data.draw(st.integers(1, 80)))):
        found = pieces(level)
        assert [p.start for p in found] == [0, *(p.stop for p in found[:-1])]
        assert found[-1].stop == length
        assert max(p.stop - p.start for p in found) == level.step
        for piece in found:
            inner = list(cuts.within(piece))
            assert inner[0].start == piece.start
            assert inner[-1].stop == piece.stop
            assert all(part in pieces(cuts) for part in inner)


@given(st.data())
def test_coarsening_joins_only_up_to_the_limit(data):
    length, limit = data.draw(lengths), data.draw(st.integers(1, 80))
    cuts = Cuts.of(length, data.draw(chunkings(length)))
    for piece in pieces(cuts.coarsen(limit)):
        assert piece.stop - piece.start <= limit or len(list(cuts.within(piece))) == 1


@given(arrays())
def test_spans_read_every_feature_once_along_chunk_edges(case):
    plan = plan_of(case)
    seen = np.zeros(plan.feature_shape, int)
    chunks = [Cuts.of(length, chunk) for length, chunk in zip(case["shape"], case["chunks"], strict=True)]
    grid = chunks[: plan.samples_axis] + chunks[plan.samples_axis + 1 :]
    for span in range(plan.n_spans):
        tiles = list(plan.tiles_of(span))
        assert plan.bounds_of(span) == tuple(
            slice(min(p.start for p in along), max(p.stop for p in along)) for along in zip(*tiles, strict=True)
        )
        for tile in tiles:
            for slab in plan.slabs_of(tile):
                seen[slab] += 1
                for cuts, piece in zip(grid, slab, strict=True):
                    edges = {0, *(p.stop for p in pieces(cuts))}
                    assert {piece.start, piece.stop} <= edges
    assert (seen == 1).all()


@given(arrays())
def test_a_slab_exceeds_its_bytes_only_where_one_column_of_chunks_does(case):
    plan = plan_of(case)
    for span in range(plan.n_spans):
        for tile in plan.tiles_of(span):
            for slab in plan.slabs_of(tile):
                features = math.prod(p.stop - p.start for p in slab)
                size = features * plan.n_samples * case["itemsize"]
                joined = [
                    len(list(Cuts.of(length, chunk).within(piece)))
                    for length, chunk, piece in zip(
                        plan.feature_shape, plan.features_in(case["chunks"]), slab, strict=True
                    )
                ]
                assert size <= case["slab_bytes"] or math.prod(joined) == 1


@given(st.lists(st.integers(1, 12), min_size=1, max_size=4), st.integers(1, 200))
def test_split_cuts_a_flattened_array_in_order(shape, limit):
    order = np.arange(math.prod(shape)).reshape(shape)
    end = 0
    for box, start, stop in split(shape, limit):
        assert start == end
        assert stop - start <= limit
        np.testing.assert_array_equal(order[box].reshape(-1), np.arange(start, stop))
        end = stop
    assert end == order.size


def test_the_fastest_axis_becomes_whole_before_a_slower_one_grows():
    cuts = [Cuts(100, 10), Cuts(30, 10)]
    assert [cut.step for cut in grow(cuts, (1, 0), 100)] == [10, 10]
    assert [cut.step for cut in grow(cuts, (1, 0), 250)] == [10, 20]
    assert [cut.step for cut in grow(cuts, (1, 0), 700)] == [20, 30]
    assert [cut.step for cut in grow(cuts, (0, 1), 700)] == [70, 10]


def test_a_plan_of_a_billion_features_is_as_small_as_any():
    small = make_plan((1000, 10**5), 4, (1000, 1000))
    large = make_plan((1000, 10**9), 4, (1000, 1000))
    assert len(repr(large)) < len(repr(small)) + 20
    assert 2048 < large.n_spans <= 4096
    first = next(iter(large.tiles_of(255)))
    assert first[0].start % large.tiles[0].step == 0


@given(n=st.integers(10, 30_000), d=st.integers(10**4, 10**10), itemsize=st.sampled_from([1, 2, 4, 8]))
@example(n=3896, d=2_244_001, itemsize=2)  # 18 tiles, of which 17 spans would be right: two for each of 9 is too few
def test_partials_take_an_eighth_of_the_data_unless_spans_were_too_few_then(n, d, itemsize):
    plan = make_plan((n, d), itemsize, (n, 1000))
    assert 1 <= plan.n_spans <= 4096
    assert plan.n_spans <= plan.n_tiles
    if plan.n_spans >= 32:
        assert plan.n_spans * 8 * n * n <= n * d * itemsize / 8
    assert plan.n_spans >= min(plan.n_tiles, 16, max(4, d // 65536))
    tiles = {len(list(plan.tiles_of(span))) for span in {0, plan.n_spans // 2, plan.n_spans - 1}}
    assert max(tiles) - min(tiles) <= 1


@given(d=st.integers(10**4, 6 * 10**6), itemsize=st.sampled_from([1, 2, 4, 8]), allowed=st.integers(4, 31))
@example(d=2_376_001, itemsize=1, allowed=19)  # 1954 samples, 19 tiles
@example(d=15_001, itemsize=8, allowed=6)  # 313 samples, 6 tiles
def test_there_are_never_fewer_spans_than_are_to_be_shared_out(d, itemsize, allowed):
    """Where an eighth of the data holds few partials: as many tiles for each span would leave half of the spans there."""
    n = 1 + d * itemsize // (64 * allowed)
    plan = make_plan((n, d), itemsize, (n, 1000))
    nearest = 2 ** round(np.log2(max(1, d / 32768)))  # a power of two, of spans as wide as their partial is worth
    assert plan.n_spans >= min(plan.n_tiles, 16, max(4, nearest))


def test_data_that_are_not_wide_are_shared_out_too():
    """Else a single core would work on what is wide enough for one chunk of 1 MiB of the mean."""
    for n, d in ((500, 10**6), (5000, 80_000), (100, 10**5)):
        plan = make_plan((n, d), 4, (n, 512))
        assert plan.n_tiles >= 16 or plan.slab_width * 16 > d
        assert plan.n_spans >= 4


def test_output_chunks_are_between_one_and_64_mebibytes_where_the_data_are_wide():
    for n, k in ((100, 5), (500, 20), (2000, 100), (5000, 5000)):
        plan = make_plan((n, 10**7), 4, (n, 1000), n_components=k)
        width = plan.tiles[0].step
        assert 4 * k * width <= 64 * 2**20
        assert 8 * width >= 2**20 or 8 * k * width >= 2**25  # the mean, unless components bound the tile


def test_slabs_follow_shards_that_fit():
    packed = make_plan((10, 10_000), 4, (10, 100), shards=(10, 1000), slab_bytes=2000 * 40)
    assert packed.slabs[0].step == 2000
    too_big = make_plan((10, 10_000), 4, (10, 100), shards=(10, 1000), slab_bytes=300 * 40)
    assert too_big.slabs[0].step == 300
