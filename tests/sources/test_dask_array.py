import dask.array as da
import numpy as np
import pytest

from dpca import PCA
from dpca.errors import InputError
from dpca.slabs import make_plan
from dpca.sources import as_source


def test_a_part_carries_only_its_own_blocks():
    source = as_source(da.random.default_rng(0).normal(size=(20, 1000), chunks=(10, 10)))
    whole = len(dict(source._array.__dask_graph__()))
    part = source.restrict((slice(0, 20), slice(100, 120)))
    assert len(dict(part._array.__dask_graph__())) <= 8 < whole


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
    with pytest.raises(Exception, match=r"chunk \(0, 2\).*no such tape"):
        PCA(2).fit(x)
