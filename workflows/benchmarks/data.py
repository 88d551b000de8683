"""Data of a benchmark, and their exact eigenvalues."""

import json
import math
import os
import shutil
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import psutil
import zarr
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, lobpcg
from threadpoolctl import threadpool_limits

from workflows.genotypes.make import bed_bytes

DECAY, OFFSET = 0.9, 10.0
BLOCK = 4096
TOGETHER = 2**26
"""Values that are made together at most, by each thread."""
POPULATIONS, DRIFT = 25, (0.1, 0.004)
"""How far populations have drifted from what they stem from (F_ST), the first one and the last one: so their components are distinct."""
MODES, GRAIN = 200, 0.05
"""Of a field: waves, of an amplitude that falls as 1 / number; and noise beside the largest of them."""

DENSE = 10_000
"""Samples up to which exact eigenvalues are those of a dense matrix, if it fits the memory."""
COLUMNS, RESIDUAL, ENOUGH = 40, 1e-6, 1e-5
"""Of lobpcg: columns of a block, the relative residual that it goes on to (a value then has an error of 1e-12 over its relative gap), and that without which it is
no reference."""
STEPS, ATTEMPTS = 10, 12
"""Steps of lobpcg between looks at its residuals, and looks."""


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
    data: str = "factors"
    """factors; populations: genotypes of people; fields: smooth ones."""
    iterates: bool = False
    """Whether methods that read the data several times are compared: by passes, and by errors of 10 and of all components."""

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
        width = min(BLOCK, TOGETHER // self.samples)
        step = self.chunks[1] * max(1, width // (self.chunks[1] * across))
        edges = [*range(0, self.shape[1], step), self.shape[1]]
        return [(slice(start, stop), start * across, stop * across) for start, stop in pairwise(edges)]

    def path(self, directory: Path) -> Path:
        """Where the data are."""
        suffix = ".zarr" if self.store.startswith("zarr") else ".h5"
        shape, chunks = ("x".join(map(str, lengths)) for lengths in (self.shape, self.chunks))
        made = self.factors if self.data == "factors" else self.data
        return directory / f"{shape}-{self.dtype}-{self.store}-{chunks}-{made}{suffix}"

    @classmethod
    def of(cls, document: dict[str, Any]) -> "Case":
        """From the YAML file."""
        lists = {name: tuple(document.pop(name)) for name in ("shape", "chunks", "methods")}
        return cls(**lists, **document)


def block_of(case: Case, start: int, stop: int) -> np.ndarray:
    """Some features, of the kind that the case asks for."""
    return KINDS[case.data](case, start, stop)


def factors(case: Case, start: int, stop: int) -> np.ndarray:
    """Factors of decaying weight, white noise, a mean; 0, 1, 2 where integers are asked for."""
    rng, rank = np.random.default_rng((1, start)), case.factors
    scores = np.random.default_rng(0).standard_normal((case.samples, rank), np.float32) * DECAY ** np.arange(rank)
    block = (scores @ rng.standard_normal((rank, stop - start))).astype(np.float32)
    block += rng.standard_normal(block.shape, np.float32)
    if np.dtype(case.dtype).kind in "iu":
        return np.clip(np.rint(block / 3 + 1), 0, 2).astype(case.dtype)
    return (block + np.float32(OFFSET)).astype(case.dtype)


def populations(case: Case, start: int, stop: int) -> np.ndarray:
    """Copies of an allele, 0, 1 or 2, of people of populations that have drifted apart (Balding and Nichols, Genetica 96, 1995)."""
    rng = np.random.default_rng((1, start))
    ancestral = rng.uniform(0.05, 0.5, stop - start)
    block = np.empty((case.samples, stop - start), case.dtype)
    people = np.array_split(np.arange(case.samples), POPULATIONS)
    for of_one, drift in zip(people, np.geomspace(*DRIFT, POPULATIONS), strict=True):
        p = rng.beta(ancestral * (1 - drift) / drift, (1 - ancestral) * (1 - drift) / drift)
        drawn = rng.random((len(of_one), stop - start), np.float32)
        two, some = (p * p).astype(np.float32), (1 - (1 - p) ** 2).astype(np.float32)
        block[of_one] = (drawn < two).astype(case.dtype) + (drawn < some)
    return block


def fields(case: Case, start: int, stop: int) -> np.ndarray:
    """Waves along the features, longer ones with larger amplitudes, which differ from sample to sample; a little noise, a mean."""
    amplitudes = np.random.default_rng(0).standard_normal((case.samples, MODES), np.float32)
    phases = np.random.default_rng(2).uniform(0, 2 * np.pi, MODES)
    number = np.arange(1, MODES + 1)
    at = np.arange(start, stop) / case.features
    waves = np.sin(np.pi * number[:, None] * at + phases[:, None]) / number[:, None]
    block = amplitudes @ waves.astype(np.float32)
    block += np.float32(GRAIN) * np.random.default_rng((1, start)).standard_normal(block.shape, np.float32)
    return (block + np.float32(OFFSET)).astype(case.dtype)


KINDS: dict[str, Callable[[Case, int, int], np.ndarray]] = {
    "factors": factors,
    "populations": populations,
    "fields": fields,
}


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

    with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(write, case.blocks))
    if case.store != "zarr-zstd":
        file.close()
    aside.rename(path)
    return path


def make_bed(case: Case, directory: Path) -> None:
    """Write genotypes beside the data as PLINK has them too, unless they are there."""
    stem = case.path(directory).with_suffix("")
    if stem.with_suffix(".bed").exists():
        return
    array, aside = zarr.open_array(case.path(directory), mode="r"), stem.with_suffix(".bed.part")
    with open(aside, "wb") as bed:
        bed.write(b"\x6c\x1b\x01")
        for part, _, _ in case.blocks:
            bed.write(bed_bytes(np.asarray(array[:, part]).astype(np.int8).T))
    variants = (f"{1 + 22 * j // case.features}\trs{j}\t0\t{j + 1}\tA\tG\n" for j in range(case.features))
    stem.with_suffix(".bim").write_text("".join(variants), encoding="utf-8")
    people = (f"{i} {i} 0 0 0 -9\n" for i in range(case.samples))
    stem.with_suffix(".fam").write_text("".join(people), encoding="utf-8")
    aside.rename(stem.with_suffix(".bed"))


def remove(case: Case, directory: Path) -> None:
    """Remove the data."""
    data = case.path(directory)
    shutil.rmtree(data) if data.is_dir() else data.unlink()
    for suffix in (".bed", ".bim", ".fam"):
        data.with_suffix(suffix).unlink(missing_ok=True)


def opened(data: Path) -> Any:
    """The stored array."""
    return zarr.open_array(data, mode="r") if data.suffix == ".zarr" else h5py.File(data)["x"]


class Streamed:
    """K = X_c X_c' of stored data, of which parts alone are ever in memory, as an operator; centred about the mean."""

    def __init__(self, data: Path, dtype: Any = np.float64, together: int = TOGETHER // 4) -> None:
        self.array = opened(data)
        if self.array.ndim != 2:
            raise ValueError(f"{data} has {self.array.ndim} axes, not two")
        self.dtype = np.dtype(dtype)
        """Of the values and their products; sums over parts are of float64."""
        self.passes = 0
        """How often all of the data was read."""
        samples, features = self.array.shape
        step = self.array.chunks[1] * max(1, together // (samples * self.array.chunks[1]))
        self.parts = [slice(at, min(at + step, features)) for at in range(0, features, step)]
        """Of the features, whole chunks: so many are read together that they have `together` values."""

    def __matmul__(self, q: NDArray[Any]) -> NDArray[np.float64]:
        """K Q, in one pass."""
        self.passes += 1
        return self.times(q, self.parts)

    def times(
        self, q: NDArray[Any], parts: Sequence[slice], along: NDArray[np.float64] | None = None
    ) -> NDArray[np.float64]:
        """X_c X_c' Q over some parts; X_c' Q is written to the rows of `along`, (features, columns)."""
        n_threads, q = os.cpu_count() or 1, np.asarray(q, self.dtype)

        def product(thread: int) -> NDArray[np.float64]:
            total = np.zeros(q.shape)
            for part in parts[thread::n_threads]:
                x = np.asarray(self.array[:, part])
                mean = x.mean(axis=0, dtype=np.float64).astype(self.dtype)
                x = x.astype(self.dtype)
                x -= mean
                image = x.T @ q
                if along is not None:
                    along[part] = image
                total += x @ image
            return total

        with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(n_threads) as pool:
            return np.asarray(sum(pool.map(product, range(n_threads))))

    def operator(self) -> LinearOperator:
        """As scipy takes it."""
        n = self.array.shape[0]

        def times(q: NDArray[Any]) -> NDArray[Any]:
            return (self @ q).astype(self.dtype)

        return LinearOperator((n, n), dtype=self.dtype, matvec=times, rmatvec=times, matmat=times)


def ritz_values(data: Path, vectors: NDArray[np.float64]) -> list[float]:
    """What vectors of samples are worth: the eigenvalues of K on their span, in float64, descending."""
    q = np.linalg.qr(vectors)[0]
    found = np.linalg.eigvalsh(q.T @ (Streamed(data) @ q))[::-1]
    return [float(value) for value in found]


def exact_eigenvalues(case: Case, directory: Path) -> list[float]:
    """The leading eigenvalues of the Gram matrix, in float64 over the same values, dense or by lobpcg; kept beside the data."""
    data = case.path(directory)
    kept = data.with_suffix(".eigenvalues.json")
    if kept.exists():
        found: list[float] = json.loads(kept.read_text())
        return found
    n_threads = os.cpu_count() or 1
    fits = 8 * case.samples**2 * (2 * n_threads + 1) < 0.9 * psutil.virtual_memory().available
    if not case.iterates or (case.samples <= DENSE and fits):
        values = dense_eigenvalues(case, data)
    else:
        values = lobpcg_eigenvalues(data, case.components)
    kept.write_text(json.dumps(values))
    return values


def dense_eigenvalues(case: Case, data: Path) -> list[float]:
    """The leading eigenvalues of the Gram matrix of stored data, by a dense sum."""
    array = opened(data)

    def product(thread: int) -> np.ndarray:
        total = np.zeros((case.samples, case.samples))
        for part, _, _ in case.blocks[thread :: os.cpu_count() or 1]:
            x = np.asarray(array[:, part]).reshape(case.samples, -1).astype(np.float64)
            x -= x.mean(axis=0)
            total += x @ x.T
        return total

    with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(os.cpu_count()) as pool:
        gram = sum(pool.map(product, range(os.cpu_count() or 1)))
    values = np.linalg.eigvalsh(gram)[::-1][: case.components]
    return [float(value) for value in values]


def lobpcg_eigenvalues(data: Path, count: int) -> list[float]:
    """The leading eigenvalues of the Gram matrix of data that is too large for it, by scipy's lobpcg, in float64.

    It shares nothing with dpca: products of blocks with stored values, read as zarr reads them, until relative residuals
    |K u - theta u| / theta are 1e-6, or can't be made smaller. An eigenvalue is off by the square of its residual over the gap to those
    that are not among the leading ones, so that its first dozen digits are right. The residuals are measured by a product more.

    Raises
    ------
    ArithmeticError
        When residuals are too large for a reference.
    """
    k = Streamed(data)
    n = k.array.shape[0]
    block = np.random.default_rng(4).standard_normal((n, min(max(COLUMNS, 2 * count), n // 5)))
    least = np.inf
    for _ in range(ATTEMPTS):
        block = np.linalg.qr(block)[0]
        image = k @ block
        theta, turn = np.linalg.eigh(block.T @ image)
        theta, block, image = theta[::-1], block @ turn[:, ::-1], image @ turn[:, ::-1]
        residuals = np.linalg.norm(image - block * theta, axis=0)[:count] / theta[:count]
        if (found := float(residuals.max())) <= RESIDUAL or (found <= ENOUGH and found > least / 2):
            return [float(value) for value in theta[:count]]
        least = min(least, found)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # that columns beyond those that count have not converged
            _, block = lobpcg(k.operator(), block, tol=RESIDUAL * theta[count - 1], maxiter=STEPS, largest=True)
    raise ArithmeticError(f"lobpcg left a relative residual of {least:.1e} after {k.passes} passes")


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
