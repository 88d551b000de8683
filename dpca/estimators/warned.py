"""dpca's own warnings, at the line of the reader's code that called it."""

from __future__ import annotations

import sys
import warnings

BETWEEN = frozenset(("dpca", "sklearn", "contextlib", "functools"))
"""Packages whose frames may lie between: scikit-learn wraps `transform`."""


def warn(sentence: str, category: type[Warning] = UserWarning) -> None:
    """Warn of the line that called dpca."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).partition(".")[0] in BETWEEN:
        frame, level = frame.f_back, level + 1
    warnings.warn(sentence, category, stacklevel=level)
