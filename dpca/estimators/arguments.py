"""Arguments of methods, checked by their annotations: of another type than these they are refused in a sentence."""

from __future__ import annotations

import inspect
import numbers
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import Any, TypeVar

from dpca.errors import ConfigError

Class = TypeVar("Class", bound=type)
KINDS: dict[str, tuple[type, str]] = {
    "int": (numbers.Integral, "an integer"),
    "float": (numbers.Real, "a number"),
    "str": (str, "text"),
    "bool": (bool, "True or False"),
}
"""Types by the annotation that stands for them, with their words."""


def checked(of: Class) -> Class:
    """A class whose public methods, also inherited ones, check the types of their arguments."""
    for name, method in inspect.getmembers(of, inspect.isfunction):
        if not name.startswith("_"):
            setattr(of, name, _checked(method))
    return of


def _checked(method: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(method)
    rules = {name: one.annotation for name, one in signature.parameters.items() if _kinds(one.annotation)}

    @wraps(method)
    def call(*args: Any, **named: Any) -> Any:
        with suppress(TypeError):  # of too many arguments, or too few: the method itself says so
            given = signature.bind(*args, **named).arguments
            for name in rules.keys() & given.keys():
                check(name, given[name], rules[name])
        return method(*args, **named)

    return call if rules else method


def _kinds(annotation: Any) -> list[str]:
    """The names of the types of an annotation, such as int and None; none where there is another one among them."""
    names = [name.strip() for name in annotation.split("|")] if isinstance(annotation, str) else []
    names = ["str" if name.startswith("Literal[") else name for name in names]
    return names if names and all(name in (*KINDS, "None") for name in names) and names != ["None"] else []


def check(name: str, value: Any, annotation: str) -> None:
    """Refuse a value of another type."""
    kinds = _kinds(annotation)
    for kind in kinds:
        if kind == "None" and value is None:
            return
        if kind in KINDS and isinstance(value, KINDS[kind][0]) and (kind == "bool" or not isinstance(value, bool)):
            return
    words = " or ".join("None" if kind == "None" else KINDS[kind][1] for kind in kinds)
    raise ConfigError(f"{name} is {value!r}, but {words} is allowed", "Pass one.")
