"""Memory that is used again: by whom, and never while an array over it is left."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from dpca.system.buffers import Buffer, reuse_memory

F8 = np.dtype(np.float64)


def address(array):
    return array.__array_interface__["data"][0]


def in_a_thread(function, initializer=reuse_memory):
    with ThreadPoolExecutor(1, initializer=initializer) as pool:
        return pool.submit(function).result()


def taken_twice(hold=False):
    """Whether the memory of a buffer that is gone is that of the next."""
    buffer = Buffer()
    values = buffer.view([1000], F8)
    values[:] = 1.0
    before = address(values)
    held = values[3:] if hold else None
    del buffer, values
    other = Buffer().view([1000], F8) if held is not None else None
    again = Buffer()
    found = address(again.view([1000], F8)) == before
    if held is not None:
        other[:] = 2.0
        assert (held == 1.0).all()
    return found


def test_memory_of_a_buffer_that_is_gone_is_that_of_the_next():
    assert in_a_thread(taken_twice)


def test_not_while_an_array_over_it_is_left():
    assert not in_a_thread(lambda: taken_twice(hold=True))


def test_memory_of_someone_else_is_never_the_next_ones():
    """Also a part of a block of which nobody has that part by name any more."""

    def lent():
        block = np.zeros(16_000, np.uint8)
        Buffer(block[:8000]).view([1000], F8)
        Buffer().view([1000], F8)[:] = 1.0
        return block.any()

    assert not in_a_thread(lent)


def test_it_grows_and_keeps_its_place_where_it_need_not():
    buffer = Buffer()
    first = buffer.view([10], F8)
    assert address(buffer.view([5], F8)) == address(first)
    assert buffer.view([20], F8).shape == (20,)
