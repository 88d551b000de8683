"""A campaign of damaged and made-up chunks: what is read of each, in a process whose memory is limited.

    python -m workflows.campaigns.hostile --runs 5000 --seed 0
    python -m workflows.campaigns.hostile --seed 0 --only 17

Each run takes a chunk of Zarr or HDF5, in turn of every format below, and changes it: bits of its header or its body, its
length, what it holds. It must be read as the values that were written, or end in the right typed error. Where the format
keeps no checksum (`CHECKED`), other values can't be told from those that were written: they are counted apart, and only of
changes within the compressed bytes. Lost is all else: other values where there is a checksum, or where the chunk held more
or less than belongs there; another exception; a crash; memory.
"""

from __future__ import annotations

import argparse
import lzma
import os
import random
import resource
import subprocess
import sys
import tempfile
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import hdf5plugin
import numcodecs
import numpy as np
import zarr
from zarr.codecs import BloscCodec, GzipCodec, ZstdCodec

SHAPE = (4, 500)
N_BYTES = 4 * 250 * 8
BOMB_BYTES = 2**27
"""What a bomb holds: beyond what a process may take more."""
MEMORY = 2**26
"""What a process may take beyond what it takes for chunks as they were written."""
ADDRESSES = 2**31
"""As many bytes it may ask for, at most."""
BATCH = 250

ZARR: dict[str, dict[str, Any]] = {
    "zarr v3, zstd": {"compressors": ZstdCodec(checksum=True)},
    "zarr v3, zstd in shards": {"compressors": ZstdCodec(checksum=True), "shards": SHAPE},
    "zarr v3, gzip": {"compressors": GzipCodec()},
    "zarr v3, blosc": {"compressors": BloscCodec()},
    "zarr v2, zlib": {"zarr_format": 2, "compressors": numcodecs.Zlib()},
    "zarr v2, blosc of zstd": {"zarr_format": 2, "compressors": numcodecs.Blosc(cname="zstd")},
    "zarr v2, lz4": {"zarr_format": 2, "compressors": numcodecs.LZ4()},
    "zarr v2, bz2": {"zarr_format": 2, "compressors": numcodecs.BZ2()},
    "zarr v2, lzma": {"zarr_format": 2, "compressors": numcodecs.LZMA()},
}
HDF5: dict[str, dict[str, Any]] = {
    "hdf5, deflate": {"compression": "gzip"},
    "hdf5, shuffle, deflate and fletcher32": {"compression": "gzip", "shuffle": True, "fletcher32": True},
    "hdf5, lzf": {"compression": "lzf"},
    "hdf5, zstd": dict(hdf5plugin.Zstd()),
    "hdf5, blosc": dict(hdf5plugin.Blosc()),
    "hdf5, bitshuffle": dict(hdf5plugin.Bitshuffle()),
    "hdf5, LZ4": dict(hdf5plugin.LZ4()),
    "hdf5, BLOSC2": dict(hdf5plugin.Blosc2()),
}
FORMATS = (*ZARR, *HDF5)
UNCHECKED = {
    "zarr v3, blosc", "zarr v2, blosc of zstd", "zarr v2, lz4", "hdf5, lzf", "hdf5, zstd", "hdf5, blosc", "hdf5, bitshuffle", "hdf5, LZ4", "hdf5, BLOSC2"
}  # fmt: skip
"""Formats without a checksum."""

CODECS: dict[str, Callable[[bytes], bytes]] = {
    "zstd": lambda content: bytes(numcodecs.Zstd(1).encode(content)),
    "gzip": lambda content: bytes(numcodecs.GZip(1).encode(content)),
    "blosc": lambda content: bytes(numcodecs.Blosc(clevel=1).encode(content)),
    "zlib": lambda content: zlib.compress(content, 1),
    "deflate": lambda content: zlib.compress(content, 1),
    "lz4": lambda content: bytes(numcodecs.LZ4().encode(content)),
    "bz2": lambda content: bytes(numcodecs.BZ2(1).encode(content)),
    "lzma": lambda content: lzma.compress(content, preset=0),
    "lzf": lambda content: b"".join(
        bytes([len(content[start : start + 32]) - 1]) + content[start : start + 32]
        for start in range(0, len(content), 32)
    ),
}
"""Chunks of any content."""


def values() -> np.ndarray:
    return np.round(np.random.default_rng(0).normal(size=SHAPE), 2)


def prepare(place: Path) -> None:
    """Write every format once, and a bomb of each codec."""
    for name, how in ZARR.items():
        chunks = (4, 250)
        zarr.create_array(place / f"{name}.zarr", shape=SHAPE, chunks=chunks, dtype="f8", **how)[...] = values()
    for name, how in HDF5.items():
        with h5py.File(place / f"{name}.h5", "w") as file:
            file.create_dataset("x", data=values(), chunks=(4, 250), **how)
    for codec, encode in CODECS.items():
        # Streams one behind the other where the codec is slow.
        parts = 64 if codec in ("bz2", "lzma") else 1
        bomb = (
            b"\0\0" + b"\xe0\xff\0" * (BOMB_BYTES // 264)
            if codec == "lzf"
            else encode(bytes(BOMB_BYTES // parts)) * parts
        )
        (place / f"{codec}.bomb").write_bytes(bomb)


def flipped(draw: random.Random, stored: bytes, first: int, last: int) -> bytes:
    """One to three bits, or a whole byte, changed between two places."""
    found = bytearray(stored)
    for _ in range(draw.choice((1, 1, 2, 3))):
        at = draw.randrange(first, max(first + 1, min(last, len(found))))
        found[at] = draw.choice((0, 255, found[at] ^ 1 << draw.randrange(8)))
    return bytes(found)


def changed(draw: random.Random, name: str, stored: bytes, place: Path) -> tuple[str, bytes]:
    """How a chunk is changed, and what it is then."""
    codec = next((codec for codec in CODECS if codec in name), "zstd")
    encode, how = CODECS[codec], draw.choice(("header", "body", "length", "content", "bomb"))
    if how == "header":
        return how, flipped(draw, stored, 0, 24)
    if how == "body":
        return how, flipped(draw, stored, 0, len(stored))
    if how == "length":
        cut = stored[: draw.randrange(1, len(stored))]
        return how, draw.choice(
            (cut, stored[len(cut) :], stored + stored, stored + bytes(draw.randrange(1, 99)), bytes(1))
        )
    content = values()[:, :250].tobytes()
    if how == "content":
        n_bytes = draw.choice((1, N_BYTES // 2, N_BYTES - 1, N_BYTES + 1, N_BYTES + 8, 9 * N_BYTES))
        stored = encode((content * 10)[:n_bytes])
    else:
        stored = (place / f"{codec}.bomb").read_bytes()
    return how, bytes(numcodecs.Fletcher32().encode(stored)) if "fletcher32" in name else stored


def chunk(place: Path, name: str, content: bytes | None = None) -> bytes:
    """The stored bytes of the first chunk, and of a shard all; other content takes their place."""
    if name in ZARR:
        array = place / f"{name}.zarr"
        path = array / ("0.0" if (array / ".zarray").exists() else "c/0/0")
        found = path.read_bytes()
        if content is not None:
            path.write_bytes(content)
        return found
    with h5py.File(place / f"{name}.h5", "r" if content is None else "r+") as file:
        found = bytes(file["x"].id.read_direct_chunk((0, 0))[1])
        if content is not None:
            file["x"].id.write_direct_chunk((0, 0), content)
        return found


def outcome(place: Path, name: str, how: str) -> str:
    """What comes of reading the first chunk."""
    from dpca.errors import DpcaError
    from dpca.sources import open_source

    try:
        with open_source(place / (f"{name}.zarr" if name in ZARR else f"{name}.h5")).open() as reader:
            found = reader.read((slice(0, 4), slice(0, 250)))
    except DpcaError:
        return "right error"
    except BaseException as cause:
        return f"lost: {how} of {name}: {type(cause).__name__}: {cause}".replace("\n", " ")
    if found.tobytes() == values()[:, :250].tobytes():
        return "same values"
    return "other values" if name in UNCHECKED and how in ("header", "body") else f"lost: {how} of {name}: other values"


def read_in_turn(place: Path, seed: int, first: int, last: int) -> None:
    """In a process of its own: say the number of each run before it, and its outcome after, in a file: codecs print, too."""
    import dpca.sources.retries

    dpca.sources.retries.RETRY_SECONDS = ()
    warnings.simplefilter("ignore")
    original = {name: chunk(place, name) for name in FORMATS}
    for name in FORMATS:
        assert outcome(place, name, "none") == "same values", name
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    resource.setrlimit(resource.RLIMIT_AS, (taken() + ADDRESSES,) * 2)
    lines = (place / "outcomes").open("w", buffering=1)
    for number in range(first, last):
        name, draw = FORMATS[number % len(FORMATS)], random.Random(f"{seed} {number}")
        how, content = changed(draw, name, original[name], place)
        chunk(place, name, content)
        lines.write(f"{number}\n")
        found = outcome(place, name, how)
        more = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - largest)
        if more > MEMORY:
            found = f"lost: {how} of {name}: {more} bytes more of memory"
        lines.write(f"{found}\n")
        chunk(place, name, original[name])
        if more > MEMORY:
            return


def taken() -> int:
    """Bytes of addresses of this process."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def outcomes(place: Path, seed: int, first: int, runs: int) -> Iterator[tuple[int, str]]:
    """Number and outcome of each run, in as many processes as it takes."""
    root = Path(__file__).parents[1]
    while first < runs:
        (place / "outcomes").unlink(missing_ok=True)
        last = min(runs, first + BATCH)
        command = [sys.executable, "-m", "workflows.campaigns.hostile", "--read", str(place), str(first), str(last)]
        done = subprocess.run(
            [*command, "--seed", str(seed)], cwd=root, capture_output=True, text=True, env=os.environ, check=False
        )
        lines = (place / "outcomes").read_text().splitlines() if (place / "outcomes").exists() else []
        if not lines:
            raise RuntimeError(done.stderr)
        yield from zip(map(int, lines[: len(lines) // 2 * 2 : 2]), lines[1::2], strict=True)
        first = int(lines[-2 if len(lines) % 2 == 0 else -1]) + 1
        if len(lines) % 2:
            for name in FORMATS:  # what it left is no chunk as it was written
                (place / f"{name}.h5").unlink(missing_ok=True)
            yield first - 1, f"lost: the process ended with {done.returncode}: {done.stderr[-500:]}"
            prepare(place)


def campaign(runs: int, seed: int, report: bool = True, only: int | None = None) -> Counter[str]:
    """Run it, or of it only the run of a number; returns how many runs there were of each outcome."""
    table: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="dpca-hostile-") as directory:
        prepare(Path(directory))
        first, last = (0, runs) if only is None else (only, only + 1)
        for number, found in outcomes(Path(directory), seed, first, last):
            if found.startswith("lost"):
                print(
                    f"{found}; repeat it: python -m workflows.campaigns.hostile --seed {seed} --only {number}",
                    file=sys.stderr,
                )
            table[found.split(":")[0]] += 1
    if report:
        columns = ("same values", "right error", "other values", "lost")
        print(
            "| chunks | same values | right error | other values, no checksum | lost |\n| --- | --- | --- | --- | --- |"
        )
        print(f"| {table.total()} | " + " | ".join(str(table[column]) for column in columns) + " |")
    return table


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="The number of a single run, to repeat it.")
    parser.add_argument("--read", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.read:
        read_in_turn(Path(given.read[0]), given.seed, int(given.read[1]), int(given.read[2]))
    else:
        sys.exit(bool(campaign(given.runs, given.seed, only=given.only)["lost"]))
