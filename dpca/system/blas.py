"""The BLAS libraries of this process, and how many threads they use."""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import Any

from threadpoolctl import ThreadpoolController


def blas_threads(n_threads: int) -> Any:
    """Have every BLAS library use `n_threads` threads from now on, until this context is left or its `restore_original_limits` called."""
    return _libraries(len(sys.modules)).limit(limits=n_threads, user_api="blas")


def blas_libraries() -> list[dict[str, Any]]:
    """What threadpoolctl knows of each BLAS library."""
    return [library for library in _libraries(len(sys.modules)).info() if library.get("user_api") == "blas"]


@lru_cache(maxsize=1)
def _libraries(n_modules: int) -> Any:  # noqa: ARG001 - the key of the cache
    """The libraries that are loaded. Finding them takes as long as a fit of small data; another one comes with another module."""
    return ThreadpoolController()
