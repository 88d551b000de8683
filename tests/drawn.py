"""The number of examples of a property test: few in `make test`, many in `make properties`."""

import os

from hypothesis import settings

TIMES = int(os.environ.get("DPCA_EXAMPLES", "1"))
"""How many times as many examples are drawn as in `make test`."""


def examples(number: int) -> settings:
    """A decorator that draws `number` examples, or a multiple of it."""
    return settings(max_examples=number * TIMES)
