"""Secrets, in one place: settings by their names, and user, password and query of any URL. All that is written or shown passes here."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, unquote

from dpca.errors import ConfigError
from dpca.units import is_url

HIDDEN = "(hidden)"
"""Replaces a secret in a text."""
SECRET_KEYS = frozenset({"storage_options", "job_script_prologue"})
"""Settings of which no value is shown, wherever they stand: lines of shell export passwords."""
SHORTEST = 4
"""Length from which a word counts as a secret: shorter ones, such as `us` or a flag, would be found everywhere."""
CHAINED = re.compile(r"::(?![^\[\]]*\])")
"""The separator of chained URLs in fsspec (`simplecache::s3://bucket/x`); not the :: inside an IPv6 address."""


def without_credentials(uri: str) -> str:
    """A URL, or a chain of them, without user, password and query; a path unchanged."""
    return "::".join(_parts(link)[0] for link in CHAINED.split(uri))


def without_secrets(values: Any, key: str = "") -> Any:
    """A configuration, or its values at a key, safe to write down and to show: secret settings and credentials of URLs are redacted.

    Parameters
    ----------
    values : plain values
    key : their key in the configuration, such as model.labels
    """
    if isinstance(values, Mapping):
        return {name: without_secrets(value, f"{key}.{name}") for name, value in values.items()}
    if isinstance(values, list | tuple):
        return [without_secrets(value, key) for value in values]
    if values is not None and SECRET_KEYS.intersection(key.split(".")):
        return HIDDEN
    return without_credentials(values) if isinstance(values, str) else values


def check_local(place: str | os.PathLike[str], named: str) -> None:
    """Refuse a URL where a file or a folder is made: one of its name would be, with the password in it.

    Parameters
    ----------
    named : the parameter or the option that sets the place
    """
    if is_url(os.fspath(place)):
        raise ConfigError(
            f"{named} is a URL, where only a path on this machine can be", "Name a file or a folder of this machine."
        )


def in_text(text: str) -> str:
    """A text without the credentials of its URLs."""
    return re.sub(r"\S+://\S+", lambda match: without_credentials(match[0]), text)


def _parts(uri: str) -> tuple[str, str, str]:
    """The part of a URL that may be shown; its user and password; its query."""
    scheme, separator, rest = uri.partition("://")
    if not separator:
        return uri, "", ""
    (place,) = re.findall(r"^[^/?#]*", rest)
    if "@" not in place and re.search(r":(?!\d*$)", place):  # not a port, but a password that contains a / or similar
        place = rest
    user, at, _ = place.rpartition("@")
    shown, *query = re.split(r"[?#]", rest[len(user + at) :], maxsplit=1)
    return f"{scheme}://{shown}", user, "".join(query)


@dataclass(frozen=True)
class Secrets:
    """Secret words of a URL and of storage options, to be redacted from the messages of libraries."""

    words: tuple[str, ...] = ()

    @classmethod
    def of(cls, uri: str, storage_options: Mapping[str, Any] | None = None) -> Secrets:
        words = set(_texts(storage_options or {}))
        for link in CHAINED.split(uri):
            _, user, query = _parts(link)
            words |= {user, *user.split(":"), query, *(value for _, value in parse_qsl(query))}
        words |= {unquote(word) for word in words}
        return cls(tuple(sorted((word for word in words if len(word) >= SHORTEST), key=len, reverse=True)))

    def hidden(self, text: str) -> str:
        """A text with the secrets redacted."""
        for word in self.words:
            text = text.replace(word, HIDDEN)
        return text

    def cause(self, error: BaseException) -> BaseException | None:
        """The error, to be the cause of another; None if its text contains a secret."""
        return None if self.hidden(str(error)) != str(error) else error

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Redact the warnings that libraries give inside this block."""
        with warnings.catch_warnings(record=True) as caught:
            yield
        for warning in caught:
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
