"""Loading of config files: YAML 1.2, safely, to the configuration, with line and column of every error."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import CollectionEndEvent, CollectionStartEvent, Event
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from dpca.config.explaining import Path_, explain, keys_at
from dpca.config.inputs import Input, Inputs, InputSection, Section
from dpca.config.schema import Config
from dpca.config.together import check_together
from dpca.errors import ConfigError, DpcaError
from dpca.sources.credentials import HIDDEN, SECRET_KEYS, without_credentials, without_secrets
from dpca.system import regular

MOST_BYTES, MOST_DEPTH, MOST_VALUES = 2**16, 20, 10_000
"""Limits of a config. The memory for parsed YAML grows with each of these, not only with the length of the text."""

_YAML_ERRORS = {
    "found character '\\t'": ("", "Indent with spaces: YAML takes no tabs."),
    "found character": ("", "Quote a value that begins with this character."),
    "found undefined alias": ("found undefined alias: nothing has its name", "Quote a value that begins with * or &."),
    "could not determine a constructor": (
        "could not determine a constructor of this tag",
        "Quote a value that begins with !.",
    ),
    "found duplicate key": ("found duplicate key: its mapping has it already", "Correct the line."),
    "mapping values are not allowed": (
        "a colon where no key can be",
        "Keys of one section begin in one column; quote a value that holds a colon.",
    ),
    "expected <block end>": (
        "the line is indented otherwise than those above it",
        "Keys of one section begin in one column.",
    ),
    "expected ',' or": ("", "Close the bracket."),
    "found unexpected end of stream": ("the quote that begins here is not closed", "Close it."),
    "but found another document": ("a second document begins here", "Leave --- out: a config is one document."),
}
"""By the beginning of ruamel's message: a clearer message ("" to keep ruamel's, which must show no value), and the remedy."""


C = TypeVar("C", bound=Section)


@dataclass(frozen=True)
class Positioned(Generic[C]):
    """A configuration, and the positions of its keys in the file."""

    config: C
    marks: Mapping[Path_, str] = field(default_factory=dict)
    """file:line:column of each value, by path."""
    path: str = "CONFIG"
    """The file."""
    overrides: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    """The command that it is of, and its arguments; empty for the usual one, with the file."""

    @property
    def command(self) -> str:
        """The command that runs it, as one would type it; secrets are redacted."""
        words: tuple[str, ...] = self.words if self.words else (self.config.command, self.path)
        return shlex.join(
            [
                "dpca",
                *map(without_credentials, words),
                *(word for override in self.overrides for word in ("--set", _shown(override))),
            ]
        )

    def check_overrides(self) -> None:
        """Refuse secrets in overrides, which are about to be written to a file."""
        for override in self.overrides:
            if _shown(override) != override:
                raise ConfigError(
                    f"--set {_shown(override)}: would be written into a script, or into a record of the run",
                    "Give credentials, and lines of shell, in the environment or in the config.",
                )

    def locate(self, error: DpcaError) -> DpcaError:
        """The error with the line of its key in front, if the file sets that key."""
        path: Path_ = tuple(int(part) if part.isdecimal() else part for part in error.key.split("."))
        mark = self.marks.get(path)
        if mark is None:
            return error
        return error.saying(f"{mark}: {error.marked_message}")

    @contextmanager
    def located(self) -> Iterator[None]:
        """Put the line at fault in front of an error of this block, if it has one."""
        try:
            yield
        except DpcaError as error:
            raise self.locate(error) from error.__cause__


@dataclass(frozen=True)
class Loaded(Positioned[Config]):
    """The configuration of a run, and the positions of its keys."""

    def at(self, place: Path) -> Loaded:
        """This configuration with the result at another place."""
        output = self.config.output.model_copy(update={"path": str(place)})
        return replace(self, config=self.config.model_copy(update={"output": output}))


def load(path: str | Path, overrides: Sequence[str] = ()) -> Loaded:
    """Read a configuration.

    Parameters
    ----------
    path : a YAML file
    overrides : KEY=VALUE, such as model.n_components=30; VALUE is YAML
    """
    begin = "Begin with\ninput:\n  uri: data.zarr\noutput:\n  path: results/mine"
    loaded = Loaded(*read(path, overrides, Config, begin), str(path), tuple(overrides))
    with loaded.located():
        check_together(loaded.config)
    return loaded


def load_values(values: dict[str, Any], overrides: Sequence[str], words: Sequence[str]) -> Loaded:
    """A configuration that a result has recorded, with changes; parameters and errors as of `load`.

    Parameters
    ----------
    values : plain values
    words : the command that it is for, and its arguments, as one would type them
    """
    marks: dict[Path_, str] = {}
    for override in overrides:
        _override(values, marks, override)
    try:
        config = Config.model_validate(values)
    except ValidationError as errors:
        raise ConfigError(*explain(errors, values, marks, "the config of the result", Config)) from None
    loaded = Loaded(config, marks, overrides=tuple(overrides), words=tuple(words))
    with loaded.located():
        check_together(config)
    return loaded


def read(path: str | Path, overrides: Sequence[str], model: type[C], begin: str) -> tuple[C, dict[Path_, str]]:
    """The configuration in a file, and file:line:column of each value.

    Parameters
    ----------
    begin : how such a file begins, for the error of one that is none
    """
    name = str(path)
    values, marks = _parse(_text(path), name)
    if not isinstance(values, dict):
        keys = keys_at((), model)
        raise ConfigError(f"{name}:1:1: is not a mapping of {', '.join(keys[:-1])} and {keys[-1]}", begin)
    _check_command(values, marks, name, model)
    for key in keys_at((), model):
        if key in values and values[key] is None:
            values[key] = {}  # all its lines are commented out
    for override in overrides:
        _override(values, marks, override)
    try:
        return model.model_validate(values), marks
    except ValidationError as errors:
        raise ConfigError(*explain(errors, values, marks, name, model)) from None


OWN = {"run": ("input",), "derive": ("from", "analyses")}
"""The required keys that configs of one command alone have."""


def _check_command(values: Mapping[str, Any], marks: Mapping[Path_, str], name: str, model: type[Section]) -> None:
    """Refuse a config of the other command, and say which that is."""
    mine = OWN[model.command]
    ((command, theirs),) = ((command, keys) for command, keys in OWN.items() if command != model.command)
    theirs = tuple(key for key in theirs if key in values)
    if theirs and not any(key in values for key in mine):
        raise ConfigError(
            f"{marks.get((theirs[0], '<key>'), name)}: this is a config of dpca {command}: it has {' and '.join(theirs)}, where one of dpca "
            f"{model.command} has {' and '.join(mine)}",
            f"Type {shlex.join(['dpca', command, name])}"
            + (" (--plan only says what it would read)." if command == "derive" else "."),
        )


def is_config(given: str) -> bool:
    """Whether an argument is a YAML file with the keys of an input, and no input itself."""
    return given.endswith((".yaml", ".yml")) and Path(given).is_file()


def load_inputs(path: str | Path) -> Inputs:
    """Read the section `input` from a YAML file: that of a config, or its keys (or list) alone."""
    name = str(path)
    values, marks = _parse(_text(path), name)
    inside: Path_ = ("input",) if isinstance(values, dict) and "input" in values else ()
    section = values["input"] if inside else values
    several = isinstance(section, list) and all(isinstance(one, dict) for one in section)
    if not (isinstance(section, dict) or several):
        raise ConfigError(
            f"{marks.get(inside, name + ':1:1')}: is not a mapping of the keys of input, nor a list of such mappings",
            "Begin with\nuri: data.zarr",
        )
    at = {path[len(inside) :]: mark for path, mark in marks.items() if path[: len(inside)] == inside}
    if several:
        section, at = {"input": section}, {("input", *path): mark for path, mark in at.items()}
    model = InputSection if several else Input
    try:
        found = model.model_validate(section)
    except ValidationError as errors:
        raise ConfigError(*explain(errors, section, at, name, model)) from None
    return found.input if isinstance(found, InputSection) else found


def _shown(override: str) -> str:
    """An override, with secrets redacted."""
    key, _, text = override.partition("=")
    try:
        value, _ = _parse(text, key)
    except ConfigError:  # not valid YAML, or aliases that expand beyond the limits of a config
        value = HIDDEN if any(name in text for name in SECRET_KEYS) else text
    shown = without_secrets(value, key.strip())
    if shown == value != HIDDEN:
        return override
    return f"{key}={shown if isinstance(shown, str) else HIDDEN}"


DATA = (".nc", ".nc4", ".h5", ".hdf5", ".he5", ".zarr", ".npy", ".npz", ".bed", ".vcz", ".mat", ".h5ad")
"""Endings of the names of data, where a config is needed."""


def _text(path: str | Path) -> str:
    place = Path(path)
    if place.suffix.lower() in DATA:
        raise ConfigError(
            f"{path}: is data by its name, but a config is needed, a YAML file that names the data",
            f"Make one: dpca init {path} > {place.stem}.yaml. Then give that: {place.stem}.yaml.",
        )
    if place.is_dir() and (place / "manifest.json").exists():
        raise ConfigError(
            f"{path}: is a result, but a config is needed",
            "Look at its report.html; dpca init RESULT writes a config of dpca derive.",
        )
    try:
        with regular.opened(path) as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise ConfigError(
                f"{path}: is larger than {MOST_BYTES} bytes, and no config is",
                "Name a YAML file of the keys of a config.",
            )
        return content.decode("utf-8")
    except (OSError, UnicodeDecodeError) as cause:
        reason = cause.strerror if isinstance(cause, OSError) else "not UTF-8 text"
        raise ConfigError(
            f"{path}: can't be read: {reason}", "Name a YAML file: dpca init DATA > run.yaml writes one."
        ) from cause


def _parse(text: str, name: str) -> tuple[Any, dict[Path_, str]]:
    """Plain values, and file:line:column of each."""
    yaml = YAML(typ="safe", pure=True)
    marks: dict[Path_, str] = {}
    scalars: list[ScalarNode] = []

    def where(at: Node | Event) -> str:
        return f"{name}:{at.start_mark.line + 1}:{at.start_mark.column + 1}"

    def mark(node: Node, path: Path_, at: Node) -> None:
        marks[path] = where(at)
        # Each use of an alias expands to all that it names, which may contain the alias itself.
        if len(path) > MOST_DEPTH or len(marks) > MOST_VALUES:
            raise _excessive(marks.get(path[:1], name))
        if isinstance(node, MappingNode):
            for key, value in node.value:
                if not isinstance(key, ScalarNode):
                    raise ConfigError(f"{where(key)}: a key is no text", "Write KEY: VALUE; quote a bracket in a key.")
                scalars.append(key)
                # The mark is at the value, or at the key if the value is a mapping on further lines, or empty.
                alone = isinstance(value, MappingNode) or not value.value
                mark(value, (*path, str(key.value)), key if alone else value)
                marks[(*path, str(key.value), "<key>")] = where(key)
        elif isinstance(node, SequenceNode):
            for index, value in enumerate(node.value):
                mark(value, (*path, index), value)
        elif isinstance(node, ScalarNode):
            scalars.append(node)

    try:
        depth = 0
        for event in yaml.parse(text):
            depth += isinstance(event, CollectionStartEvent) - isinstance(event, CollectionEndEvent)
            if depth > MOST_DEPTH:
                raise _excessive(where(event))
        node = yaml.compose(text)
        if node is not None:
            mark(node, (), node)
        for scalar in scalars:
            try:
                yaml.constructor.construct_object(scalar)
            except (ValueError, LookupError) as error:
                raise ConfigError(f"{where(scalar)}: can't be read as a value: {error}", "Quote it.") from None
        return yaml.load(text), marks
    except MarkedYAMLError as error:
        raise ConfigError(*_explain_yaml(error, name)) from None
    except YAMLError as error:
        raise ConfigError(f"{name}: not valid YAML: {error}", "Correct the file.") from None


def _excessive(where: str) -> ConfigError:
    return ConfigError(
        f"{where}: is nested more than {MOST_DEPTH} levels deep, or holds more than {MOST_VALUES:,} keys and values, "
        "an alias counted as what it stands for",
        "Write values where they belong, without aliases; no config is as large.",
    )


def _explain_yaml(error: MarkedYAMLError, name: str) -> tuple[str, str]:
    """Position and reason of an error in YAML, and the remedy."""
    problem = (error.problem or error.context or "?").splitlines()[0]
    known = next((start for start in _YAML_ERRORS if problem.startswith(start)), "")
    words, remedy = _YAML_ERRORS.get(known, ("", "Correct the line."))
    if name.startswith("--set"):
        return f"{name}: not valid YAML: {words or problem}", "Quote it for the shell: --set 'KEY=[1, 2]'."
    unclosed = known == "found unexpected end of stream"
    at = error.context_mark if unclosed else error.problem_mark or error.context_mark
    where = f"{name}:{at.line + 1}:{at.column + 1}" if at else name
    return f"{where}: not valid YAML: {words or problem}", remedy


def _override(values: dict[str, Any], marks: dict[Path_, str], override: str) -> None:
    key, equals, text = override.partition("=")
    path: Path_ = tuple(int(part) if part.isdecimal() else part for part in key.strip().split("."))
    if not equals or "" in path:
        raise ConfigError(f"--set {_shown(override)}: is not KEY=VALUE", "Write it like --set model.n_components=30.")
    shown = f"--set {_shown(override)}"
    value, within = _parse(text, shown)
    inner: Any = values
    for part, following in pairwise(path):
        child: Any = inner[part] if isinstance(part, int) else inner.setdefault(part, {})
        if child is None:
            child = inner[part] = {}
        numbered = isinstance(child, list) and isinstance(following, int)
        if isinstance(following, int) and numbered and following >= len(child):
            raise ConfigError(f"{shown}: {part} has {len(child)} entries, from 0", "Name one of them.")
        if not (numbered or (isinstance(child, dict) and isinstance(following, str))):
            raise ConfigError(
                f"{shown}: {part} has no {'keys' if isinstance(following, str) else 'entries'}", "Set the whole of it."
            )
        inner = child
    inner[path[-1]] = value
    for replaced in [other for other in marks if other[: len(path)] == path]:
        del marks[replaced]
    for length in range(1, len(path) + 1):
        marks[path[:length]] = marks[(*path[:length], "<key>")] = shown
    marks.update({(*path, *inside): shown for inside in within})
