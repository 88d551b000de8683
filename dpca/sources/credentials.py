"""What of a URL and its options nobody but the store may see."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, unquote

HIDDEN = "(hidden)"
"""Stands for a secret."""
SHORTEST = 4
"""Shorter words, such as `us` or a flag, are no secrets, and would be found everywhere."""
CHAINED = re.compile(r"::(?![^\[\]]*\])")
"""Between the URLs of a chain, as fsspec has them (`simplecache::s3://bucket/x`); not inside an address of IPv6."""


def without_credentials(uri: str) -> str:
    """A URL, or a chain of them, without user, password and query; a path as it is."""
    return "::".join(_parts(link)[0] for link in CHAINED.split(uri))


def in_text(text: str) -> str:
    """A text without the credentials of its URLs."""
    return re.sub(r"\S+://\S+", lambda found: without_credentials(found[0]), text)


def _parts(uri: str) -> tuple[str, str, str]:
    """What may be shown of a URL; its user and password; its query."""
    scheme, found, rest = uri.partition("://")
    if not found:
        return uri, "", ""
    (place,) = re.findall(r"^[^/?#]*", rest)
    if "@" not in place and re.search(r":(?!\d*$)", place):  # no port: a password that holds a / or the like
        place = rest
    user, at, _ = place.rpartition("@")
    shown, *query = re.split(r"[?#]", rest[len(user + at) :], maxsplit=1)
    return f"{scheme}://{shown}", user, "".join(query)


@dataclass(frozen=True)
class Secrets:
    """The words of a URL and of storage options that must not be in what a library says of them."""

    words: tuple[str, ...] = ()

    @classmethod
    def of(cls, uri: str, storage_options: Mapping[str, Any] | None = None) -> Secrets:
        found = set(_texts(storage_options or {}))
        for link in CHAINED.split(uri):
            _, user, query = _parts(link)
            found |= {user, *user.split(":"), query, *(value for _, value in parse_qsl(query))}
        found |= {unquote(word) for word in found}
        return cls(tuple(sorted((word for word in found if len(word) >= SHORTEST), key=len, reverse=True)))

    def hidden(self, text: str) -> str:
        """A text without them."""
        for word in self.words:
            text = text.replace(word, HIDDEN)
        return text

    def cause(self, error: BaseException) -> BaseException | None:
        """An error as the cause of another, unless it gives one of them away."""
        return None if self.hidden(str(error)) != str(error) else error

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Have libraries warn without them."""
        with warnings.catch_warnings(record=True) as given:
            yield
        for warning in given:
            text = self.hidden(str(warning.message))
            warnings.warn_explicit(text, warning.category, warning.filename, warning.lineno)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, str):
        yield value
