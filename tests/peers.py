"""Libraries that results are compared with: where they are not installed, tests skip, and in `make peers` they fail."""

import os
import warnings
from importlib import import_module

import pytest


def imported(name):
    """A library, without what it warns of as it is imported."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if os.environ.get("DPCA_NEEDS_PEERS"):
            return import_module(name)
        return pytest.importorskip(name, reason=f"{name} is not installed (make peers)")
