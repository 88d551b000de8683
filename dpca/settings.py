"""Settings as messages speak of them: `model.precision` in a config is `precision` in Python, and may be an option of a command.

A message names a setting by `MODEL.precision`, which leaves a mark in its text. Whoever shows the message, shows the mark
in the words of the reader: `YAML`, `PYTHON`, or a `Surface` of a command's own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_BEGIN, _END = "\ue000", "\ue001"  # no text of a user has characters for private use
_MARK = re.compile(f"{_BEGIN}(.*?){_END}", re.DOTALL)


class Setting:
    """A setting by its key in a config; its attributes are the settings inside it.

    In a text it is its name: f"{MODEL.precision} is 'single'". `at` is the setting with a value, `set_to` tells to give it that.
    """

    def __init__(self, key: str) -> None:
        self.key = key

    def __getattr__(self, name: str) -> Setting:
        if name.startswith("_"):
            raise AttributeError(name)
        return Setting(f"{self.key}.{name}")

    def __str__(self) -> str:
        return _mark(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Setting) and other.key == self.key

    def __hash__(self) -> int:
        return hash(self.key)

    def at(self, value: Any) -> str:
        """The setting with a value: model.precision: double; in Python precision='double'."""
        return _mark(self.key, value)

    def set_to(self, value: Any) -> str:
        """The advice to give a setting a value: Set model.precision: double; in Python Pass precision='double'."""
        return _mark(self.key, value, True)


def _mark(*parts: Any) -> str:
    return f"{_BEGIN}{json.dumps(parts, ensure_ascii=False)}{_END}"


def either(in_yaml: str, in_python: str) -> str:
    """Words that differ where a config or a command is written, and in Python."""
    return _mark("", in_yaml, in_python)


INPUT, PREPROCESS, MODEL, OUTPUT, COMPUTE = map(Setting, ("input", "preprocess", "model", "output", "compute"))
RESUME = Setting("resume")
"""The option that goes on with a run."""
_PARAMETERS = ("input", "preprocess", "model", "compute")
"""Sections whose keys are parameters of Python, by the same names."""
_NAMES = {RESUME.key: "dpca run --resume"}


@dataclass(frozen=True)
class Surface:
    """A place where settings are given: what they are called there, and how a value is written."""

    python: bool = False
    names: Mapping[str, str] = field(default_factory=dict)
    """Names of settings, by key, that do not follow from the key."""

    def name(self, key: str) -> str:
        """The name of a setting."""
        section, _, inside = key.partition(".")
        of_python = inside if self.python and section in _PARAMETERS else ""
        return self.names.get(key) or _NAMES.get(key) or of_python or key

    def with_value(self, key: str, value: Any) -> str:
        """A setting with a value."""
        name = self.name(key)
        if self.python:
            return f"{name}={value!r}"
        return f"{name}={_yaml(value)}" if name.startswith("--") else f"{name}: {_yaml(value)}"

    def words(self, text: str) -> str:
        """A text whose marks are what they are called here."""
        return _MARK.sub(lambda mark: self._words(*json.loads(mark[1])), text)

    def _words(self, key: str, *given: Any) -> str:
        if not key:
            return str(given[self.python])
        if not given:
            return self.name(key)
        verb = ("Pass " if self.python else "Set ") if len(given) > 1 else ""
        return verb + self.with_value(key, given[0])


YAML = Surface()
PYTHON = Surface(
    python=True,
    names={
        "compute.scratch": "store",
        "preprocess.sample_weights": "sample_weight",
        "preprocess.sample_weights.kind": "sample_weight_kind",
        "output.gram": "keep_gram",
    },
)


def _yaml(value: Any) -> str:
    """A value on one line of YAML; text as it is."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_yaml(one)}" for key, one in value.items()) + "}"
    return value if isinstance(value, str) else json.dumps(value)
