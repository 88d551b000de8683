"""The code of dpca, parsed for the rules that tests hold it to."""

import ast
from functools import cache
from pathlib import Path

import dpca


@cache
def parsed():
    """The tree of every file, by its path."""
    return {path: ast.parse(path.read_text()) for path in sorted(Path(dpca.__file__).parent.rglob("*.py"))}
