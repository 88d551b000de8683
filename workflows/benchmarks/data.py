"""Data of a benchmark, and their exact eigenvalues."""

import json
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import zarr
from threadpoolctl import threadpool_limits

RANK, DECAY, OFFSET = 30, 0.9, 10.0
BLOCK = 4096


@dataclass(frozen=True)
class Case:
    """What a YAML file of configs/benchmarks says."""

    name: str
    samples: int
    features: int
    dtype: str
    store: str
    """zarr-zstd, hdf5-gzip or hdf5-gzip-shuffle."""
    chunks: tuple[int, int]
    components: int
    memory: str
    rounds: int
    methods: tuple[str, ...]

    @property
    def bytes(self) -> int:
        return self.samples * self.features * np.dtype(self.dtype).itemsize

    @property
    def blocks(self) -> list[tuple[int, int]]:
        """Features that are made together: whole chunks, so that no two threads write one."""
        width = self.chunks[1] * max(1, BLOCK // self.chunks[1])
        return [(start, min(start + width, self.features)) for start in range(0, self.features, width)]

    def path(self, directory: Path) -> Path:
        """Where the data are."""
        suffix = ".zarr" if self.store.startswith("zarr") else ".h5"
        chunks = "x".join(map(str, self.chunks))
        return directory / f"{self.samples}x{self.features}-{self.dtype}-{self.store}-{chunks}{suffix}"

    @classmethod
    def of(cls, document: dict[str, Any]) -> "Case":
        """From the YAML file."""
        chunks = tuple(document.pop("chunks"))
        return cls(chunks=chunks, methods=tuple(document.pop("methods")), **document)


def block_of(case: Case, start: int, stop: int) -> np.ndarray:
    """Some features: thirty factors of decaying weight, white noise, a mean; 0, 1, 2 where integers are asked for."""
    rng = np.random.default_rng((1, start))
    scores = np.random.default_rng(0).standard_normal((case.samples, RANK), np.float32) * DECAY ** np.arange(RANK)
    block = (scores @ rng.standard_normal((RANK, stop - start))).astype(np.float32)
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
    shape = (case.samples, case.features)
    if case.store == "zarr-zstd":
        array = zarr.create_array(aside, shape=shape, chunks=case.chunks, dtype=case.dtype, overwrite=True)
    else:
        file = h5py.File(aside, "w")
        array = file.create_dataset(
            "x",
            shape,
            case.dtype,
            chunks=case.chunks,
            compression="gzip",
            compression_opts=1,
            shuffle="shuffle" in case.store,
        )

    def write(block: tuple[int, int]) -> None:
        start, stop = block
        array[:, start:stop] = block_of(case, start, stop)

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
        for start, stop in case.blocks[part :: os.cpu_count() or 1]:
            x = block_of(case, start, stop).astype(np.float64)
            x -= x.mean(axis=0)
            total += x @ x.T
        return total

    with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(os.cpu_count()) as pool:
        gram = sum(pool.map(product, range(os.cpu_count() or 1)))
    values = np.linalg.eigvalsh(gram)[::-1][: case.components]
    kept.write_text(json.dumps(values.tolist()))
    return [float(value) for value in values]
