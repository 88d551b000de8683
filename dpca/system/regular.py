"""Files that are opened whoever made them: regular ones alone, and of bounded size where they are read whole.

A pipe in place of a file would be waited for without end, and a device such as /dev/zero has no end.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterator
from io import BufferedReader
from itertools import count
from typing import Any, BinaryIO

from dpca.errors import InputError

DOCUMENT_BYTES = 2**26
"""Most bytes of a document: the manifest of a run on ten thousand files has five million."""
LINE_BYTES = 2**20
"""Most bytes of a line of a table or of a list of names."""
_KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a directory",
}


def opened(path: str | os.PathLike[str], most: int | None = None) -> BufferedReader:
    """A regular file, open for reading bytes; links are followed.

    Parameters
    ----------
    most : bytes that it has at most; None for any number
    """
    return open(path, "rb", opener=lambda place, flags: _descriptor(place, flags, most))


def _descriptor(path: str, flags: int, most: int | None) -> int:
    # Opened without waiting for the other end of a pipe; regular files know no O_NONBLOCK.
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    facts = os.fstat(descriptor)
    kind = stat.S_IFMT(facts.st_mode)
    problem = ""
    if kind != stat.S_IFREG:
        problem = f"it is {_KINDS.get(kind, 'of another kind')}, and no regular file"
    elif most is not None and facts.st_size > most:
        problem = f"it has {facts.st_size} bytes, and {most} at most are read"
    if problem:
        os.close(descriptor)
        raise OSError(errno.EINVAL, problem, path)
    return descriptor


def read_text(path: str | os.PathLike[str], most: int = DOCUMENT_BYTES) -> str:
    """The text of a file (UTF-8)."""
    with opened(path, most) as file:
        return file.read(most + 1).decode()


def read_json(path: str | os.PathLike[str]) -> Any:
    """The value in a file of JSON."""
    return parsed(read_text(path))


def parsed(text: str | bytes) -> Any:
    """The value of a text of JSON."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def lines_of(file: BinaryIO) -> Iterator[bytes]:
    """The lines of an open file, read one after the other, so that its position is that of the next."""
    for number in count(1):
        line = file.readline(LINE_BYTES + 1)
        if len(line) > LINE_BYTES:
            raise InputError(
                f"{file.name}: line {number} has more than {LINE_BYTES} bytes, which no line of a table or list has",
                "Name a text file with a line for each.",
            )
        if not line:
            return
        yield line
