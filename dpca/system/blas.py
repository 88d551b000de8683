"""The BLAS libraries of this process, and how many threads they use.

Limits are of the process, and those of threadpoolctl do not nest between threads: the one that is left last restores what it found,
which may be the limit of another; its later versions let one thread alone set them. So all who want one are kept here, and the least
of them holds. OpenBLAS on OpenMP has limits of each thread, which nest by themselves.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

from dpca.errors import ClusterError

ATTEMPTS = 3
"""How often something is computed again whose number of BLAS threads another library has changed."""

T = TypeVar("T")

_lock = threading.Lock()
_wanted: dict[object, int] = {}
"""The numbers of threads that are wanted now, by who wants them."""
_before: dict[str, int] = {}
"""Threads of each library before anyone wanted a number, by its file."""


@contextmanager
def blas_threads(n_threads: int) -> Iterator[None]:
    """Have every BLAS library use `n_threads` threads in this context, or fewer where others want fewer at the same time."""
    me = object()
    own = [(library, library.num_threads) for library in _libraries(len(sys.modules)) if _of_thread(library)]
    for library, _ in own:
        library.set_num_threads(n_threads)
    with _lock:
        _wanted[me] = n_threads
        _apply()
    try:
        yield
    finally:
        with _lock:
            del _wanted[me]
            _apply()
        for library, before in own:
            library.set_num_threads(before)


def with_one_thread(compute: Callable[[], T]) -> T:
    """Result of a function with one BLAS thread from its beginning to its end, as their number changes the bits of a product."""
    with blas_threads(1):
        for _ in range(ATTEMPTS):
            before = _counts()
            result = compute()
            after = _counts()
            if all(after.get(library) == count for library, count in before.items()):
                return result
            del result  # before it is computed again: there is memory for one
            with _lock:
                _apply()
    raise ClusterError(
        f"the number of BLAS threads of this process was changed {ATTEMPTS} times while a span was computed",
        "Do not set it (threadpool_limits, mkl.set_num_threads) beside a fit in the same process.",
    )


def blas_libraries() -> list[dict[str, Any]]:
    """BLAS libraries as threadpoolctl knows them."""
    return [library.info() for library in _libraries(len(sys.modules))]


def _apply() -> None:
    """Set the least number that is wanted; where none is, what was before."""
    least = min(_wanted.values(), default=None)
    for library in _libraries(len(sys.modules)):
        if _of_thread(library):
            continue
        if least is not None:
            _before.setdefault(library.filepath, library.num_threads)
            _set(library, least)
        elif library.filepath in _before:
            _set(library, _before.pop(library.filepath))


def _set(library: Any, n_threads: int) -> None:
    # Where threadpoolctl lets one thread alone set limits, this one takes its place, and leaves it.
    leave = getattr(library, "clear_controlling_thread", None)
    if leave is not None:
        leave(force=True)
    library.set_num_threads(n_threads)
    if leave is not None:
        leave(force=True)


def _of_thread(library: Any) -> bool:
    return getattr(library, "threading_layer", "") == "openmp"


def _counts() -> dict[str, int]:
    return {library.filepath: library.num_threads for library in _libraries(len(sys.modules))}


@lru_cache(maxsize=1)
def _libraries(n_modules: int) -> Any:  # noqa: ARG001 - the key of the cache
    """The libraries that are loaded. Finding them takes as long as a fit of small data; another one comes with another module."""
    return ThreadpoolController().select(user_api="blas").lib_controllers
