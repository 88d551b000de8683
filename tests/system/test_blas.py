"""Threads of BLAS: how many a product uses decides its bits, whoever else wants another number."""

import threading

import pytest

from dpca.errors import ClusterError
from dpca.system import blas


def counts():
    return set(blas._counts().values())


def test_the_least_that_is_wanted_holds_and_what_was_before_comes_back():
    before = counts()
    with blas.blas_threads(2):
        with blas.blas_threads(1):
            assert counts() == {1}
        assert counts() == {2}
    assert counts() == before


def test_numbers_are_set_by_one_thread_at_a_time(monkeypatch):
    apply, free = blas._apply, []

    def applying():
        if not blas._lock.locked():
            free.append(threading.current_thread())
        apply()

    monkeypatch.setattr(blas, "_apply", applying)
    others = iter([2, 1])

    def compute():
        """Something beside which another library sets a number, once."""
        for library in blas._libraries(0):
            blas._set(library, next(others, 1))

    with blas.blas_threads(1):
        blas.with_one_thread(compute)
    assert free == []


def test_what_others_change_each_time_is_an_error():
    others = iter(range(2, 99))
    with pytest.raises(ClusterError, match="the number of BLAS threads of this process was changed 3 times"):
        blas.with_one_thread(lambda: [blas._set(library, next(others)) for library in blas._libraries(0)])
