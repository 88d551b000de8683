"""Reads that fail are tried again."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from dpca.errors import DpcaError
from dpca.sources.credentials import Secrets

T = TypeVar("T")

RETRY_SECONDS = (0.1, 0.5, 2.0)
"""Pauses before each retry of a failed read."""


def tried_again(
    read: Callable[[], T],
    explain: Callable[[Exception], DpcaError],
    secrets: Secrets,
    again: Callable[[], None] = lambda: None,
) -> T:
    """The result of `read`, with a few retries, since stores fail occasionally.

    Parameters
    ----------
    explain : makes the error for the last failure
    again : called before each retry
    """
    for pause in (*RETRY_SECONDS, None):
        try:
            return read()
        except (DpcaError, MemoryError):
            raise
        except Exception as cause:
            if pause is None:
                raise explain(cause) from secrets.cause(cause)
            again()
            time.sleep(pause)
    raise AssertionError  # the last pause is None
