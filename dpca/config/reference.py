"""Markdown tables of all keys of a config, made from its JSON Schema."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

Schema = dict[str, Any]

REQUIRED = "required"


def reference(schema: Schema, root: str = "", elsewhere: Sequence[str] = ()) -> str:
    """A table for each section, in the order of the config: keys, allowed values, defaults, meanings.

    Parameters
    ----------
    root : the name of the section of the keys that are in no section
    elsewhere : sections that another reference has
    """
    return "\n\n".join(_sections(schema, schema, "", root, elsewhere))


def words_of(section: Schema, key: str) -> str:
    """Allowed values of a key of a section, in words; empty where it is a mapping of keys."""
    words = _allowed(section, section["properties"][key]).replace("`", "")
    return "" if words == "keys" else words.replace(", keys", ", or a mapping of keys")


def _sections(
    schema: Schema, section: Schema, name: str, root: str = "", elsewhere: Sequence[str] = ()
) -> Iterator[str]:
    rows, below = [], []
    for key, field in section["properties"].items():
        path = f"{name}.{key}" if name else key
        nested = [] if path in elsewhere else _nested(schema, field)
        below += [_sections(schema, option, path) for option in nested]
        if name or root or not nested:
            default = REQUIRED if key in section.get("required", ()) else f"`{_plain(field.get('default'))}`"
            if path in elsewhere:
                default = "as of a run"
            meaning = field.get("description", "").replace("|", "\\|")
            rows.append(f"| `{key}` | {_allowed(schema, field)} | {default} | {meaning} |")
    if rows:
        kind = section["properties"].get("kind", {}).get("const")
        head = f"### `{name or root}`{f', kind: {kind}' if kind else ''}\n\n{section.get('description', '')}\n\n| key | allowed | default | meaning |\n| --- | --- | --- | --- |\n"
        yield head + "\n".join(rows)
    for sections in below:
        yield from sections


def _nested(schema: Schema, field: Schema) -> list[Schema]:
    """The sections that a key may hold, alone or in a list."""
    found: dict[str, Schema] = {}
    for option in _options(field):
        resolved = _resolved(schema, option)
        if "properties" in resolved:
            found.setdefault(resolved["title"], resolved)
        elif "items" in resolved or "oneOf" in resolved:
            for one in [resolved["items"]] if "items" in resolved else resolved["oneOf"]:
                found |= {inner["title"]: inner for inner in _nested(schema, one) if inner["title"] not in found}
    return list(found.values())


def _options(field: Schema) -> list[Schema]:
    options: list[Schema] = field.get("anyOf") or field.get("oneOf") or [field]
    return options


def _resolved(schema: Schema, field: Schema) -> Schema:
    if "$ref" not in field:
        return field
    definition: Schema = schema["$defs"][field["$ref"].rpartition("/")[2]]
    return definition


def _allowed(schema: Schema, field: Schema) -> str:
    """Allowed values in words; "a list of these" if a list may hold the values that are allowed alone."""
    options = _options(field)
    alone = dict.fromkeys(word for option in options if "items" not in option for word in _words(schema, option))
    lists = [dict.fromkeys(_words(schema, option["items"])) for option in options if "items" in option]
    return ", ".join([*alone, *("a list of these" if {*items} <= {*alone} else _list_of(items) for items in lists)])


def _list_of(items: dict[str, None]) -> str:
    return f"a list ({', '.join(items)})"


def _words(schema: Schema, field: Schema) -> Iterator[str]:
    option = _resolved(schema, field)
    if "enum" in option:
        yield from (f"`{_plain(value)}`" for value in option["enum"])
    elif "const" in option:
        yield f"`{_plain(option['const'])}`"
    elif "anyOf" in option:
        for one in option["anyOf"]:
            yield from _words(schema, one)
    elif "oneOf" in option:
        yield "keys"
    elif option.get("type") == "array":
        yield _list_of(dict.fromkeys(_words(schema, option["items"])))
    elif "properties" in option or option.get("type") == "object":
        yield "keys"
    elif option.get("type") == "null":
        yield "`null`"
    elif "examples" in option:
        yield f"text such as `{option['examples'][0]}`"
    elif "pattern" in option and "\\w" in option["pattern"]:
        yield "an amount such as `8 GiB`"
    else:
        kind = {"integer": "an integer", "number": "a number", "boolean": "`true`, `false`", "string": "text"}
        bounds = [
            f"{sign} {option[name]:g}"
            for name, sign in (
                ("minimum", ">="),
                ("exclusiveMinimum", ">"),
                ("maximum", "<="),
                ("exclusiveMaximum", "<"),
            )
            if name in option
        ]
        yield kind[option["type"]] + (" " + " and ".join(bounds) if bounds else "")


def _plain(value: Any) -> str:
    """A value as YAML writes it."""
    return value if isinstance(value, str) else json.dumps(value)
