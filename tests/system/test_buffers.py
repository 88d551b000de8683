"""Memory that is used again: by whom, and never while an array over it is left."""

import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from dpca.system.buffers import Buffer, reuse_memory

F8 = np.dtype(np.float64)


def address(array):
    return array.__array_interface__["data"][0]


def in_a_thread(function, initializer=reuse_memory):
    with ThreadPoolExecutor(1, initializer=initializer) as pool:
        return pool.submit(function).result()


def places(hold=False):
    """Where a buffer lay that is gone, an array that was made then, and the next buffer."""
    buffer = Buffer()
    values = buffer.view([1000], F8)
    before, held = address(values), values[3:] if hold else None
    del buffer, values
    between, after = np.empty(1000), Buffer()
    found = before, address(between), address(after.view([1000], F8))
    del held
    return found


def test_memory_of_a_buffer_that_is_gone_is_kept_for_the_next():
    before, between, after = in_a_thread(places)
    assert after == before != between


@pytest.mark.parametrize(("initializer", "kept"), [(reuse_memory, True), (None, False)])
def test_only_a_thread_that_asked_keeps_memory(initializer, kept):
    """A worker of Dask has threads that last; there memory goes back to the system."""

    def left():
        tracemalloc.start()
        try:
            buffer = Buffer()
            buffer.view([2**20], F8)[:] = 1.0
            del buffer
            return tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()

    assert (in_a_thread(left, initializer) > 2**22) == kept


def test_not_while_an_array_over_it_is_left():
    before, _, after = in_a_thread(lambda: places(hold=True))
    assert after != before


def test_it_grows_and_keeps_its_place_where_it_need_not():
    buffer = Buffer()
    first = buffer.view([10], F8)
    assert address(buffer.view([5], F8)) == address(first)
    assert buffer.view([20], F8).shape == (20,)
