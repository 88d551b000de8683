"""Data of a benchmark, and their exact eigenvalues."""

import json
import math
import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import zarr
from threadpoolctl import threadpool_limits

DECAY, OFFSET = 0.9, 10.0
BLOCK = 4096


@dataclass(frozen=True)
class Case:
    """What a YAML file of configs/benchmarks says."""

    name: str
    shape: tuple[int, ...]
    """Samples first."""
    dtype: str
    store: str
    """zarr-zstd, hdf5-gzip or hdf5-gzip-shuffle."""
    chunks: tuple[int, ...]
    components: int
    memory: str
    rounds: int
    methods: tuple[str, ...]
    factors: int = 30
    """Of which the data are made beside noise."""
    cold: bool = False
    """Whether the page cache is emptied of the data before each run; else they are read into it."""

    @property
    def samples(self) -> int:
        return self.shape[0]

    @property
    def features(self) -> int:
        return math.prod(self.shape[1:])

    @property
    def bytes(self) -> int:
        return self.samples * self.features * np.dtype(self.dtype).itemsize

    @property
    def blocks(self) -> list[tuple[slice, int, int]]:
        """Parts of the first feature axis that are made together, whole chunks, and which features they are."""
        across = math.prod(self.shape[2:])
        step = self.chunks[1] * max(1, BLOCK // (self.chunks[1] * across))
        edges = [*range(0, self.shape[1], step), self.shape[1]]
        return [(slice(start, stop), start * across, stop * across) for start, stop in pairwise(edges)]

    def path(self, directory: Path) -> Path:
        """Where the data are."""
        suffix = ".zarr" if self.store.startswith("zarr") else ".h5"
        shape, chunks = ("x".join(map(str, lengths)) for lengths in (self.shape, self.chunks))
        return directory / f"{shape}-{self.dtype}-{self.store}-{chunks}-{self.factors}{suffix}"

    @classmethod
    def of(cls, document: dict[str, Any]) -> "Case":
        """From the YAML file."""
        lists = {name: tuple(document.pop(name)) for name in ("shape", "chunks", "methods")}
        return cls(**lists, **document)


def block_of(case: Case, start: int, stop: int) -> np.ndarray:
    """Some features: factors of decaying weight, white noise, a mean; 0, 1, 2 where integers are asked for."""
    rng, rank = np.random.default_rng((1, start)), case.factors
    scores = np.random.default_rng(0).standard_normal((case.samples, rank), np.float32) * DECAY ** np.arange(rank)
    block = (scores @ rng.standard_normal((rank, stop - start))).astype(np.float32)
    block += rng.standard_normal(block.shape, np.float32)
    if np.dtype(case.dtype).kind in "iu":
        return np.clip(np.rint(block / 3 + 1), 0, 2).astype(case.dtype)
    return (block + np.float32(OFFSET)).astype(case.dtype)


def make(case: Case, directory: Path) -> Path:
    """Write the data, unless they are there."""
    path = case.path(directory)
    if path.exists():
        return path
    directory.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}")
    if case.store == "zarr-zstd":
        array = zarr.create_array(aside, shape=case.shape, chunks=case.chunks, dtype=case.dtype, overwrite=True)
    else:
        file = h5py.File(aside, "w")
        array = file.create_dataset(
            "x",
            case.shape,
            case.dtype,
            chunks=case.chunks,
            compression="gzip",
            compression_opts=1,
            shuffle="shuffle" in case.store,
        )

    def write(block: tuple[slice, int, int]) -> None:
        part, start, stop = block
        array[:, part] = block_of(case, start, stop).reshape(case.samples, -1, *case.shape[2:])

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(write, case.blocks))
    if case.store != "zarr-zstd":
        file.close()
    aside.rename(path)
    return path


def exact_eigenvalues(case: Case, directory: Path) -> list[float]:
    """The leading eigenvalues of the Gram matrix, by a dense sum in float64 over the same values; kept beside the data."""
    kept = case.path(directory).with_suffix(".eigenvalues.json")
    if kept.exists():
        found: list[float] = json.loads(kept.read_text())
        return found

    def product(part: int) -> np.ndarray:
        total = np.zeros((case.samples, case.samples))
        for _, start, stop in case.blocks[part :: os.cpu_count() or 1]:
            x = block_of(case, start, stop).astype(np.float64)
            x -= x.mean(axis=0)
            total += x @ x.T
        return total

    with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(os.cpu_count()) as pool:
        gram = sum(pool.map(product, range(os.cpu_count() or 1)))
    values = np.linalg.eigvalsh(gram)[::-1][: case.components]
    kept.write_text(json.dumps(values.tolist()))
    return [float(value) for value in values]


def files_of(data: Path) -> list[Path]:
    """The files of a dataset."""
    return sorted(path for path in data.rglob("*") if path.is_file()) if data.is_dir() else [data]


def evict(data: Path) -> None:
    """Have the system forget what it holds of a dataset in its page cache."""
    for path in files_of(data):
        with open(path, "rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read_all(data: Path) -> float:
    """Read a dataset once, by a thread for each core, so that the page cache holds it; bytes a second."""

    def read(files: list[Path]) -> int:
        buffer, count = bytearray(2**23), 0
        for path in files:
            with open(path, "rb", buffering=0) as file:
                while found := file.readinto(buffer):
                    count += found
        return count

    n_threads, files = os.cpu_count() or 1, files_of(data)
    began = time.perf_counter()
    with ThreadPoolExecutor(n_threads) as pool:
        count = sum(pool.map(read, [files[thread::n_threads] for thread in range(n_threads)]))
    return count / (time.perf_counter() - began)
