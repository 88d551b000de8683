"""Why a config is refused, in words: the line, what was found, what is allowed there, and what to do.

One rule for all keys: what is allowed at a place is looked up in the models of the config, along the path to it. Where several models are told
apart by a key (`kind`), the value decides which of them it is.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.json_schema import SkipJsonSchema

from dpca.config.allowed import ALLOWED, REMEDIES, meant
from dpca.config.reference import words_of
from dpca.errors import DpcaError
from dpca.settings import Setting, either
from dpca.sources.credentials import without_secrets
from dpca.units import NAME, PLAIN

Path_ = tuple[str | int, ...]
Model = type[BaseModel]

_WORDS = {
    "bool_type": either("true or false (yes and no are text in YAML 1.2)", "True or False"),
    "int_type": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "finite_number": "a finite number",
    "string_type": "text",
    "string_too_short": "text that is not empty",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a mapping of keys",
    "none_required": either("null", "None"),
}
"""Allowed values in words, by pydantic's type of error, where its own message uses terms of Python."""

_PATTERNS = {
    PLAIN: "text without control characters (such as line breaks)",
    f"^{NAME.pattern}$": "a letter, and then letters, digits, - and _",
}
"""Texts of these patterns, in words."""

_FIRST: Mapping[Path_, Path_] = {("input",): ("uri",), ("output",): ("path",)}
"""The key to begin with in a section that is missing."""
_NO_MAPPING = frozenset(["model_type", "model_attributes_type"])
_NO_KIND = frozenset(["union_tag_invalid", "union_tag_not_found"])


def explain(
    errors: ValidationError,
    values: dict[str, Any],
    marks: Mapping[Path_, str],
    name: str,
    model: Model,
    under: tuple[str, ...] = (),
) -> tuple[str, str]:
    """One line for each wrong key, and the remedies.

    Parameters
    ----------
    values : what was read
    marks : file:line:column of each value, and of each key with <key> behind it
    name : the file; empty where the values are arguments of Python
    model : what the values are of
    under : the section of a config that they are, where they are not a whole one
    """

    def at(place: Path_) -> str:
        """The beginning of a line: where in the file it is."""
        where = marks.get(place, name)
        return f"{where}: " if where else ""

    def named(place: Path_) -> str:
        """A key as the reader writes it; keys of one section are arguments, and no settings."""
        whole = ".".join(map(str, place))
        return whole if under or not whole else str(Setting(whole))

    lines: dict[Path_, str] = {}
    remedies: dict[Path_, str] = {}
    absent_ones, unfinished = set[Path_](), set[Path_]()
    renamed: list[Path_ | None] = []
    for error in errors.errors():
        if error["type"] == "is_instance_of":  # what only a Python program can give, beside what a file can
            continue
        path, value = _existing(error, values)
        key = named(path) or "the file"
        if error["type"] in _NO_KIND:
            tag, kinds = _tags(options_at(path, model, values))
            near = _near(tag, [each for each in value if each not in keys_at(path, model, values)])
            if near and tag not in value:
                lines[(*path, near)] = (
                    f"{at((*path, near, '<key>'))}unknown key {named((*path, near))} (allowed: {tag}, which is missing)"
                )
                remedies[(*path, near)] = f"Did you mean {named((*path, tag))}?"
            elif tag not in value:
                lines[path] = f"{at(path)}{named((*path, tag))} is missing (allowed: {', '.join(kinds)})"
                remedies[path] = f"Set {named((*path, tag))} to one of them."
            else:
                path, found = (*path, tag), value[tag]
                lines[path] = (
                    f"{at(path)}{named(path)} is {_shown(found, tag)}, but one of {', '.join(kinds)} is allowed"
                )
                close = _near(found, kinds)
                remedies[path] = f"Did you mean {close}?" if close else "Write one of them."
        elif error["type"] in ("extra_forbidden", "invalid_key"):
            allowed = keys_at(path[:-1], model, values)
            lines[path] = f"{at((*path[:-1], str(path[-1]), '<key>'))}unknown key {key} (allowed: {', '.join(allowed)})"
            where = _meant(path, model, values)
            renamed.append(where)
            said = "Leave it out, or write one that is allowed." if where is None else f"Did you mean {named(where)}?"
            remedies[path] = said
        elif error["type"] == "missing":
            owner, path = path, (*path, error["loc"][-1])
            absent_ones.add(path)
            absent = named((*path, *_FIRST.get(path, ())))
            lines[path] = f"{at(owner)}{absent} is missing"
            remedies[path] = f"Set {absent}{_words_of(path, model, values)}."
        elif isinstance(ours := error.get("ctx", {}).get("error"), DpcaError):
            lines[path], remedies[path] = f"{at(path)}{key}: {ours.marked_message}", ours.marked_remedy
        elif error["type"] == "value_error" and _of_any(path) not in ALLOWED:  # of a check of our own, which says all
            lines[path] = f"{at(path)}{key}: {error['msg'].removeprefix('Value error, ')}"
        else:
            options, of_any = options_at(path, model, values), _of_any((*under, *path))
            allowed_ = _allowed(error, options)
            if of_any in ALLOWED:
                lines.pop(path, None)
                allowed_ = ALLOWED[of_any]
            if habit := meant(of_any, value):
                remedies[path] = habit
            elif close := _near(value, _texts(options)):
                remedies[path] = f"Did you mean {close}?"
            elif of_any in REMEDIES:
                remedies[path] = REMEDIES[of_any]
            elif without_secrets(value, _of_any(path)) == value and (
                hint := _rewritten(error["type"], value, path, options)
            ):
                remedies[path] = hint
            text = f"{at(path)}{key} is {_shown(value, _of_any(path))}, but "
            # pydantic reports each member of a union by itself: one line lists them all.
            lines[path] = f"{lines[path]} or {allowed_}" if path in lines else text + allowed_
            unfinished.add(path)
    for path in list(lines):
        if (path in renamed and path in absent_ones) or any(
            other != path and other[: len(path)] == path for other in lines
        ):
            del lines[path]  # a key that is written otherwise, or errors inside it are more specific
        elif path in unfinished:
            lines[path] += " is allowed"
    return "\n".join(lines.values()), " ".join(
        dict.fromkeys(remedies[path] for path in lines if path in remedies)
    ) or "Correct the value."


def keys_at(path: Path_, model: Model, values: Any = None) -> list[str]:
    """The keys that are allowed at a path of a config, in order."""
    return list(dict.fromkeys(key for one in _models(options_at(path, model, values)) for key in _fields(one)))


def required(model: Model) -> list[str]:
    """The keys that have no default."""
    return [key for key, field in _fields(model).items() if field.is_required()]


def options_at(path: Path_, model: Model, values: Any = None) -> list[Any]:
    """Alternatives at a path: models, lists, mappings, literals, types.

    Parameters
    ----------
    values : what the file has; of models that are told apart by a key, only that remains of which the value is
    """
    options: list[Any] = [model]
    for part in path:
        inside = [inner for option in _of_kind(options, values) for inner in _inside(option, part)]
        options = [one for inner in inside for one in _flat(inner)]
        values = _value(values, part)
    return _of_kind(options, values)


def _flat(annotation: Any) -> Iterator[Any]:
    """The members of unions."""
    origin = get_origin(annotation)
    if origin is Annotated:
        if not any(isinstance(one, SkipJsonSchema) for one in get_args(annotation)):  # type: ignore[misc]  # of a Python program
            yield from _flat(get_args(annotation)[0])
    elif origin in (Union, UnionType):
        for one in get_args(annotation):
            yield from _flat(one)
    else:
        yield annotation


def _inside(option: Any, part: str | int) -> Iterator[Any]:
    """Alternatives under a key, or at a place of a list."""
    origin, inner = get_origin(option), get_args(option)
    if isinstance(part, int) and origin in (list, tuple):
        yield inner[0]
    elif isinstance(part, str) and origin is dict:
        yield inner[1]
    elif isinstance(part, str) and _is_model(option) and part in _fields(option):
        yield _fields(option)[part].annotation


def _of_kind(options: list[Any], value: Any) -> list[Any]:
    """The options without models that a value is not of, by the key that tells them apart."""
    tag, _ = _tags(options)
    if not isinstance(value, dict) or tag not in value:
        return options
    of_it = [one for one in _models(options) if _kind(one, tag) == value[tag]]
    return [one for one in options if not _is_model(one) or one in of_it] if of_it else options


def _tags(options: list[Any]) -> tuple[str, list[str]]:
    """The key that tells models apart, and its values; empty where none does."""
    models = _models(options)
    shared = [key for key in _fields(models[0]) if all(_kind(one, key) for one in models)] if len(models) > 1 else []
    return (shared[0], [_kind(one, shared[0]) for one in models]) if shared else ("", [])


def _kind(model: Model, key: str) -> str:
    """The one text that a key of a model may have; empty if it is not only one."""
    field = _fields(model).get(key)
    values = get_args(field.annotation) if field is not None and get_origin(field.annotation) is Literal else ()
    return values[0] if len(values) == 1 and isinstance(values[0], str) else ""


def _is_model(option: Any) -> bool:
    return isinstance(option, type) and issubclass(option, BaseModel)


def _is_list(option: Any) -> bool:
    return get_origin(option) in (list, tuple)


def _models(options: list[Any]) -> list[Model]:
    return [one for one in options if _is_model(one)]


def _fields(model: Model) -> dict[str, Any]:
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _value(values: Any, part: str | int) -> Any:
    if isinstance(values, dict):
        return values.get(part)
    return values[part] if isinstance(values, list) and isinstance(part, int) and part < len(values) else None


def _texts(options: list[Any]) -> list[str]:
    """The texts that are allowed, alone or in a list."""
    inner = [one for option in options if get_origin(option) is list for one in _flat(get_args(option)[0])]
    literals = [one for one in (*options, *inner) if get_origin(one) is Literal]
    return [text for one in literals for text in get_args(one) if isinstance(text, str)]


def _near(given: Any, texts: Sequence[Any]) -> str:
    """The text that was probably meant, also by an entry of a list; empty if none is like it, or it is one of them."""
    if isinstance(given, list):
        return next(filter(None, (_near(one, texts) for one in given if not isinstance(one, list))), "")
    names = [text for text in texts if isinstance(text, str)]
    if not isinstance(given, str) or given in names:
        return ""
    folded = {name.lower(): name for name in reversed(names)}
    found = difflib.get_close_matches(given.lower(), folded, n=1)
    return folded[found[0]] if found else ""


def _meant(path: Path_, model: Model, values: Any) -> Path_ | None:
    """The key that was probably meant by an unknown one: one that is written like it, or the same in another section."""
    last = str(path[-1])
    if near := _near(last, keys_at(path[:-1], model, values)):
        return (*path[:-1], near)
    above = (path[:length] for length in range(len(path) - 2, -1, -1))
    beside = ((one,) for one in keys_at((), model) if not any(map(_is_list, options_at((one,), model))))
    return next(((*place, last) for place in (*above, *beside) if last in keys_at(place, model, values)), None)


def _allowed(error: Any, options: list[Any]) -> str:
    """Allowed values in place of one, in words."""
    kind, context = error["type"], error.get("ctx", {})
    tag, kinds = _tags(options)
    if kind in _NO_MAPPING and kinds:
        return f"a mapping of keys, of which {tag} is one of {', '.join(kinds)},"
    if kind in _NO_MAPPING:
        keys = dict.fromkeys(key for one in _models(options) for key in _fields(one))
        return f"a mapping of keys ({', '.join(keys)})" if keys else "a mapping of keys"
    if kind in ("too_short", "too_long"):
        number = context["min_length" if kind == "too_short" else "max_length"]
        what = "a mapping" if context["field_type"].startswith("Dict") else "a list"
        return f"{what} of at {'least' if kind == 'too_short' else 'most'} {number} entr{'y' if number == 1 else 'ies'}"
    if kind == "string_pattern_mismatch" and context["pattern"] in _PATTERNS:
        return _PATTERNS[context["pattern"]]
    if kind == "literal_error" and context["expected"] == "True":
        return "true"
    words: str = error["msg"].removeprefix("Input should be ").replace("greater than or equal to", "at least")
    return _WORDS.get(kind, words.replace("less than or equal to", "at most"))


def _words_of(path: Path_, model: Model, values: Any) -> str:
    """Allowed values of a key that is missing, after a colon; empty where it is any text."""
    words = ALLOWED.get(_of_any(path), "")
    owner = next((one for one in _models(options_at(path[:-1], model, values)) if path[-1] in _fields(one)), None)
    if not words and owner is not None:
        words = words_of(owner.model_json_schema(), str(path[-1]))
    return f": {words}" if words and not words.startswith("text") and len(path) > 1 else ""


def _rewritten(kind: str, value: Any, path: Path_, options: list[Any]) -> str:
    """Advice in a sentence: a value alone where a list or a mapping is needed, or a name with signs that none may have.

    Parameters
    ----------
    kind : pydantic's type of error
    """
    key = f"{path[-1]}: " if path and isinstance(path[-1], str) else ""
    alone = isinstance(value, str | int | float) and not isinstance(value, bool)
    if kind == "string_pattern_mismatch":
        meant = re.sub("[^A-Za-z0-9_-]", "_", value)
        return f"Did you mean {meant}?" if path[-1:] == ("name",) and NAME.fullmatch(meant) else ""
    others = [one for one in options if one is not NoneType]
    if kind == "list_type" and others and all(map(_is_list, others)):
        models = _models(list(_flat(get_args(others[0])[0])))
        if models and isinstance(value, dict):
            return "Make a list of it, also of one: begin its first line with a dash."
        inner = _as_mapping(value, models) if models and alone else _yaml(value) if alone else ""
        return f"Write {key}[{inner}]." if inner else ""
    if kind in _NO_MAPPING and others and all(map(_is_model, others)):
        found = _as_mapping(value, _models(others)) if alone else ""
        tag, kinds = _tags(others)
        if not found and kinds:
            return f"Write {key}{{{tag}: {kinds[0]}}}, or another kind, with its keys."
        return f"Write {key}{found}." if found else ""
    return ""


def _as_mapping(value: Any, models: list[Model]) -> str:
    """The mapping that was probably meant by a value alone; empty if there is none."""
    tag, kinds = _tags(models)
    if kinds:  # then only its kind can be meant
        kind = value if value in kinds else _near(value, kinds)
        return (
            _mapping({tag: kind, **dict.fromkeys(_lacking(models[kinds.index(kind)], {tag: kind}) or (), ...)})
            if kind
            else ""
        )
    return next(filter(None, (_as_key_of(value, one) for one in models)), "") or _as_kind(value, models[0])


def _as_key_of(value: Any, model: Model) -> str:
    """The mapping that has a value alone under the key that takes it, or that has a key of this name; empty if there is none."""
    for key in _fields(model):
        lacking = _lacking(model, {key: value})
        if lacking is not None:
            return _mapping({key: value, **dict.fromkeys(lacking, ...)})
    near = value if value in _fields(model) else _near(value, [*_fields(model)])
    if not near:
        return ""
    empty: tuple[Any, ...] = ({}, True)
    return next(
        (_mapping({near: given}) for given in empty if _lacking(model, {near: given}) == []), _mapping({near: ...})
    )


def _lacking(model: Model, values: dict[str, Any]) -> list[str] | None:
    """The keys that values lack to be allowed, if these are all that they lack."""
    try:
        model.model_validate(values)
    except ValidationError as errors:
        found = errors.errors()
        lacks_keys = all(error["type"] == "missing" and len(error["loc"]) == 1 for error in found)
        return [str(error["loc"][0]) for error in found] if lacks_keys else None
    return []


def _as_kind(value: Any, model: Model) -> str:
    """The mapping of the kind whose name is like a text."""
    kind = _fields(model).get("kind")
    near = "" if kind is None else _near(value, _texts([*_flat(kind.annotation)]))
    return _mapping({"kind": near}) if near else ""


def _mapping(values: Mapping[Any, Any]) -> str:
    """A mapping on one line of YAML; ... stands for what is left to say."""
    return "{" + ", ".join(f"{key}: {'...' if value is ... else _yaml(value)}" for key, value in values.items()) + "}"


def _yaml(value: Any) -> str:
    plain = isinstance(value, str) and re.fullmatch(r"[A-Za-z_./][\w./-]*", value, re.ASCII)
    return str(value) if plain else json.dumps(value, ensure_ascii=False)


def _shown(value: Any, key: str) -> str:
    return either("empty", "None") if value is None else repr(without_secrets(value, key))


def _of_any(path: Path_) -> str:
    """A key, the same for any input of a list."""
    return ".".join(str(part) for part in path if not isinstance(part, int))


def _existing(error: Any, values: Any) -> tuple[Path_, Any]:
    """The parts of an error's location that are keys of the file: pydantic also names members of a union there."""
    path: list[str | int] = []
    for part in error["loc"]:
        inside = isinstance(values, dict) and part in values
        alone = error["type"] in _NO_MAPPING and _of_any(tuple(path)) not in ALLOWED  # a value of a list of mappings
        if inside or (isinstance(values, list) and isinstance(part, int) and (alone or isinstance(values[part], dict))):
            values = values[part]
            path.append(part)
    return tuple(path), values
