"""Flattened features in the shape that they had."""

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

from dpca.config.inputs import Input
from dpca.errors import InputError
from dpca.planning.cuts import plan_layout
from dpca.sources import as_source
from dpca.sources.folded import FoldedSource
from tests.drawn import examples
from tests.runs import RecordingSource
from tests.stores import counted, random_array

SHAPES = st.lists(st.integers(1, 6), min_size=2, max_size=4)


def _folded(x, shape, axis):
    """(n, *shape), with the samples first or last."""
    return x.reshape(len(x), *shape) if axis == 0 else x.T.reshape(*shape, len(x))


@examples(100)
@given(SHAPES, st.integers(0, 1), st.sampled_from("CF"), st.data())
def test_every_region_is_that_of_the_reshaped_array(shape, axis, order, data):
    x = random_array(0, (3, int(np.prod(shape))), "f8")
    expected = _folded(x, shape, axis)
    view = FoldedSource(as_source(np.array(x if axis == 0 else x.T, order=order)), axis, shape)
    region = tuple(
        slice(*sorted(data.draw(st.lists(st.integers(0, length), min_size=2, max_size=2)))) for length in expected.shape
    )
    assert view.layout.shape == expected.shape
    with view.open() as reader:
        np.testing.assert_array_equal(reader.read(region), expected[region])
    with view.restrict(region).open() as reader:
        np.testing.assert_array_equal(reader.read(region), expected[region])


@examples(30)
@given(SHAPES, st.integers(0, 1), st.integers(1, 40), st.integers(0, 400), st.booleans(), st.data())
def test_slabs_are_ranges_of_the_stored_axis_that_end_where_chunks_do(shape, axis, chunk, n_bytes, divide, data):
    x = random_array(0, (3, int(np.prod(shape))), "f8")
    stored = x if axis == 0 else x.T
    array, reads = counted(zarr.create_array({}, data=stored, chunks=(2, chunk) if axis == 0 else (chunk, 2)))
    recorded = RecordingSource(as_source(array))
    view = FoldedSource(recorded, axis, shape)
    samples = axis if axis == 0 else len(shape)
    plan = plan_layout(view.layout, samples, 1, slab_bytes=n_bytes, divide=divide)
    with view.open() as reader:
        for span in range(plan.n_spans):
            for tile in plan.tiles_of(span):
                for slab in plan.slabs_of(tile):
                    region = plan.region(slab)
                    np.testing.assert_array_equal(reader.read(region), _folded(x, shape, axis)[region])
                    assert reader.read(region).size == int(
                        np.prod([piece.stop - piece.start for piece in recorded.regions[-1]])
                    )
    if not divide:
        assert set(reads.values()) == {2}  # each slab was read twice here


def test_the_samples_axis_stays_where_it_is():
    np.save("x.npy", np.zeros((12, 5)))
    for axis in (1, -1):
        where = Input(uri="x.npy", samples_axis=axis, feature_shape=[3, 4], samples=[4, 0])
        source = where.open()
        assert source.layout.shape == (3, 4, 2)
        assert source.layout.axis_of(where.samples_axis) == 2
    where = Input(uri="x.npy", samples_axis=-2, feature_shape=[1, 5])
    assert where.open().layout.axis_of(where.samples_axis) == 0


@pytest.mark.parametrize(
    ("shape", "feature_shape", "sentence"),
    [
        ((5, 12), [3, 5], "input.feature_shape is [3, 5], which is 15 features, but there are 12"),
        ((5, 3, 4), [3, 4], "input.feature_shape is [3, 4], but the array has shape (5, 3, 4)"),
    ],
)
def test_shapes_that_do_not_fit(shape, feature_shape, sentence):
    np.save("x.npy", np.zeros(shape))
    with pytest.raises(InputError) as error:
        Input(uri="x.npy", feature_shape=feature_shape).open()
    assert sentence in str(error.value)
    assert error.value.key == "input.feature_shape"
