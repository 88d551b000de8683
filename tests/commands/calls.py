"""Calling the commands, and the array that their tests share."""

import subprocess
import sys

from dpca.cli.app import main
from tests.stores import random_array

X = random_array(0, (12, 20, 30), "f4")


def dpca(*arguments):
    """In this process, which is faster; `test_as_a_process` shows that it is the same."""
    try:
        main([str(argument) for argument in arguments])
    except SystemExit as stop:
        return stop.code
    return 0


def dpca_process(*arguments):
    """In a process of its own, for what depends on its memory or environment."""
    return subprocess.run([sys.executable, "-m", "dpca", *map(str, arguments)], capture_output=True, text=True)
