"""The data of a result, where they are read again: a result may come from someone else, and names places."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dpca.config.inputs import Input
from dpca.errors import InputError
from dpca.sources.credentials import without_credentials
from dpca.store.results import Result


def input_of(result: Result, data: Sequence[str] = (), remedy: str = "Name the place yourself.") -> Input:
    """The input of a result of one group of features, to be read again.

    A path is read where the manifest says that it is. A URL is not: whoever wrote the manifest would choose what this machine
    asks of a network, with the credentials that it has there. It is read where the caller names it.

    Parameters
    ----------
    data : where they are now, as the caller says; none to read them where the result says
    remedy : how the caller can say so
    """
    asked = {**result.asked_input, "storage_options": {}}
    if data:
        asked["uri"] = list(data) if len(data) > 1 else data[0]
    check_places({key: value for key, value in asked.items() if key != "uri" or not data}, result.name, remedy)
    return Input.model_validate(asked)


def check_places(recorded: Mapping[str, Any], name: str, remedy: str) -> None:
    """Refuse URLs among the settings that a manifest records.

    Parameters
    ----------
    recorded : plain values
    name : of the result, for the message
    """
    for key, text in _texts(recorded):
        if "://" in text or "::" in text:
            raise InputError(
                f"{name}: says that {key} is {without_credentials(text)}, but only a path is read because a result names it: "
                "a result may come from someone else",
                remedy,
            )


def paths_of(result: Result, data: Sequence[str] = ()) -> list[Path]:
    """The paths of the data of a result that lie on this machine, or of `data` in their place."""
    asked = data or result.asked_input["uri"]
    return [Path(uri) for uri in ([asked] if isinstance(asked, str) else asked) if "://" not in uri]


def _texts(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Every text among plain values, with its key."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _texts(item, f"{key}.{name}".lstrip("."))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item, key)
    elif isinstance(value, str):
        yield key, value
