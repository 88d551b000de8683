"""What estimators share: scikit-learn's contract, checks of parameters, memory, and a place for large outputs."""

from __future__ import annotations

import numbers
import os
import re
import tempfile
import uuid
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from dask.utils import parse_bytes
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import validate_data

from dpca.dimension import NComponents
from dpca.errors import ConfigError, DpcaError
from dpca.machine import free_disk
from dpca.runplan import Scratch

_SET = re.compile(r"\bSet (?:preprocess|model)\.([a-z_]+): ([a-z_]+)")
_KEY = re.compile(r"\b(?:input|preprocess|model|compute)\.([a-z_]+)\b")


class Streaming(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """An estimator that streams X; subclasses have the parameters that are used here."""

    n_components: NComponents
    samples_axis: int | str
    memory: int | str | None
    ddof: int
    client: Any
    store: str | os.PathLike[str] | None

    def _validated(self, X: Any, reset: bool) -> Any:
        """What scikit-learn checks of tables: names and number of features, sparse, complex and text data."""
        table = isinstance(X, np.ndarray | list | tuple) or hasattr(X, "iloc") or hasattr(X, "tocsr")
        # scikit-learn would take what is masked for a value.
        if not table or self.samples_axis != 0 or np.ndim(X) > 2 or isinstance(X, np.ma.MaskedArray):
            return X
        return validate_data(
            self, X, reset=reset, dtype="numeric", ensure_all_finite=False, ensure_min_samples=1, ensure_min_features=1
        )

    def _n_components(self) -> NComponents:
        asked: Any = self.n_components
        if isinstance(asked, numbers.Integral):
            return int(asked)
        return float(asked) if isinstance(asked, numbers.Real) else asked

    def _check_choices(self, allowed: Mapping[str, tuple[object, ...]]) -> None:
        """Refuse parameters that are not among what is allowed for each."""
        for name, values in allowed.items():
            if getattr(self, name) not in values:
                raise ConfigError(
                    f"{name} is {getattr(self, name)!r}, but {' or '.join(map(repr, values))} is allowed",
                    "Pass one of these.",
                )

    def _check_kinds(self) -> None:
        """Refuse a samples axis, a divisor and a client that are of another kind."""
        axis, ddof, client = (getattr(self, name) for name in ("samples_axis", "ddof", "client"))
        for name, right, allowed in (
            ("samples_axis", isinstance(axis, numbers.Integral | str), "an integer or a dimension's name"),
            ("ddof", isinstance(ddof, numbers.Integral), "an integer"),
            ("client", client is None or hasattr(client, "scheduler_info"), "a distributed.Client or None"),
        ):
            if not right:
                raise ConfigError(f"{name} is {getattr(self, name)!r}, but {allowed} is allowed", "Pass one.")

    def _check_n_components(self, rules: Iterable[str]) -> None:
        asked: Any = self.n_components
        number = isinstance(asked, numbers.Integral) and not isinstance(asked, bool)
        share = isinstance(asked, numbers.Real) and not number and 0 < float(asked) < 1
        if not (asked is None or number or share or (isinstance(asked, str) and asked in rules)):
            raise ConfigError(
                f"n_components is {asked!r}, but an integer, a share of the variance between 0 and 1, None, "
                f"{', '.join(map(repr, rules))} are allowed",
                "Pass one of these.",
            )

    def _memory_bytes(self) -> int | None:
        if self.memory is None:
            return None
        given: Any = self.memory
        try:
            amount = 0 if isinstance(given, bool) or given == "" else int(parse_bytes(given))
        except (ValueError, TypeError, AttributeError):
            amount = 0
        if amount < 1:
            raise ConfigError(
                f"memory is {given!r}, but an amount such as '8 GiB' or None is allowed", "Pass one of these."
            )
        return amount

    def _scratch(self) -> Scratch:
        """A place for a copy of X, beside the outputs if there is a place for them."""
        home = os.path.dirname(os.path.abspath(self.store)) if self.store is not None else tempfile.gettempdir()
        path = os.path.join(home, f".dpca-{uuid.uuid4().hex}.zarr")
        return Scratch(path, free_disk(home))

    def _directory(self) -> str:
        if self.store is not None:
            return os.fspath(self.store)
        # Dask arrays over it may outlive this estimator, so it goes with the process.
        directory = tempfile.TemporaryDirectory(prefix="dpca-", ignore_cleanup_errors=True)
        weakref.finalize(Streaming, directory.cleanup)
        return os.path.join(directory.name, "result.zarr")


@contextmanager
def in_python() -> Iterator[None]:
    """Name parameters as Python has them, where an error names keys of the configuration."""
    try:
        yield
    except DpcaError as error:
        remedy = _SET.sub(r"Pass \1='\2'", error.remedy)
        message, remedy = (_KEY.sub(_parameter, text) for text in (error.message, remedy))
        raise type(error)(message, remedy, error.key) from error.__cause__


def _parameter(match: re.Match[str]) -> str:
    return {"scratch": "store"}.get(match[1], match[1])
