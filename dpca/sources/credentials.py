"""What of a URL and its options nobody but the store may see."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit, urlunsplit

SHORTEST = 4
"""Shorter words, such as `us` or a flag, are no secrets, and would be found everywhere."""


def without_credentials(uri: str) -> str:
    """A URL without its user, password and query; a path as it is."""
    if "://" not in uri:
        return uri
    parts = urlsplit(uri)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


@dataclass(frozen=True)
class Secrets:
    """The words of a URL and of storage options that must not be in what a library says of them."""

    words: tuple[str, ...] = ()

    @classmethod
    def of(cls, uri: str, storage_options: Mapping[str, Any] | None = None) -> Secrets:
        found = set(_texts(storage_options or {}))
        if "://" in uri:
            parts = urlsplit(uri)
            user = parts.netloc.rpartition("@")[0]
            values = [value for _, value in parse_qsl(parts.query)]
            found |= {user, *user.split(":"), parts.query, *values}
            found |= {unquote(word) for word in found}
        return cls(tuple(sorted((word for word in found if len(word) >= SHORTEST), key=len, reverse=True)))

    def hidden(self, text: str) -> str:
        """A text without them."""
        for word in self.words:
            text = text.replace(word, "(hidden)")
        return text

    def cause(self, error: BaseException) -> BaseException | None:
        """An error as the cause of another, unless it gives one of them away."""
        return None if self.hidden(str(error)) != str(error) else error


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, str):
        yield value
