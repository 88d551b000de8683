"""What this machine can do with these data, measured there and then: the floor of each pass.

    floor = bytes / decode rate + n^2 d / syrk rate  |  bytes / decode rate + 2 n d k / product rate + bytes written / write rate

Every rate is of all cores, one thread each, and of nothing but itself: data in the page cache, memory that is used again.
"""

import math
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import h5py
import numcodecs
import numpy as np
import zarr
from threadpoolctl import threadpool_limits

from dpca.sources import open_source
from workflows.benchmarks.data import Case

PANEL = 4096


def rate(work: Callable[[int, int], float], seconds: float) -> float:
    """Units a second of a piece of work that is repeated in a thread for each core, for so long."""
    n_threads = os.cpu_count() or 1

    def repeat(thread: int) -> tuple[float, float]:
        work(thread, 0)
        began, units, count = time.perf_counter(), 0.0, 0
        while (spent := time.perf_counter() - began) < seconds or not count:
            units += work(thread, count)
            count += 1
        return units, spent

    with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(n_threads) as pool:
        return sum(units / spent for units, spent in pool.map(repeat, range(n_threads)))


def decode_rate(case: Case, data: Path, seconds: float) -> float:
    """Decoded bytes a second: of Zarr the codec on files that are read, of HDF5 h5py itself."""
    size = math.prod(case.chunks) * np.dtype(case.dtype).itemsize
    grid = [length // chunk for length, chunk in zip(case.shape, case.chunks, strict=True)]
    columns = math.prod(grid)  # whole chunks alone
    n_threads = os.cpu_count() or 1
    if data.suffix == ".zarr":
        array, codec = zarr.open_array(data, mode="r"), numcodecs.Zstd()
        buffers = [np.empty(size, np.uint8) for _ in range(n_threads)]

        def decode(thread: int, count: int) -> float:
            index = np.unravel_index((thread + count * n_threads) % columns, grid)
            key = array.metadata.encode_chunk_key(tuple(map(int, index)))
            codec.decode((data / key).read_bytes(), out=buffers[thread])
            return size

        return rate(decode, seconds)
    with h5py.File(data, rdcc_nbytes=0) as file:
        slab = [np.empty((case.samples, case.chunks[1]), case.dtype) for _ in range(n_threads)]

        def read(thread: int, count: int) -> float:
            start = (thread + count * n_threads) % grid[1] * case.chunks[1]
            file["x"].read_direct(slab[thread], np.s_[:, start : start + case.chunks[1]])
            return slab[thread].nbytes

        return rate(read, seconds)


def reader_rate(data: Path, seconds: float) -> float:
    """Decoded bytes a second, chunk by chunk of features through dpca's own reader."""
    source = open_source(str(data))
    samples, features = source.layout.shape[0], source.layout.chunk_shape[1:]
    across = source.layout.shape[1] // features[0]
    with ExitStack() as stack:
        readers = [stack.enter_context(source.open()) for _ in range(os.cpu_count() or 1)]

        def read(thread: int, count: int) -> float:
            start = (thread + count * len(readers)) % across * features[0]
            rest = (slice(0, length) for length in features[1:])
            return readers[thread].read((slice(0, samples), slice(start, start + features[0]), *rest)).nbytes

        return rate(read, seconds)


def product_rates(case: Case, seconds: float) -> tuple[float, float]:
    """Flops a second of X X' (counted as n^2 a column) and of alpha' X (2 n k a column)."""
    dtype = np.float64 if case.dtype == "float64" else np.float32
    panels = [
        np.random.default_rng(t).standard_normal((case.samples, PANEL)).astype(dtype)
        for t in range(os.cpu_count() or 1)
    ]
    out = [np.empty((case.samples, case.samples), dtype) for _ in panels]
    alpha = np.ones((case.components, case.samples), dtype)
    components = [np.empty((case.components, PANEL), dtype) for _ in panels]

    def syrk(thread: int, _: int) -> float:
        np.matmul(panels[thread], panels[thread].T, out=out[thread])
        return case.samples**2 * PANEL

    def project(thread: int, _: int) -> float:
        np.matmul(alpha, panels[thread], out=components[thread])
        return 2 * case.samples * case.components * PANEL

    return rate(syrk, seconds), rate(project, seconds)


def pass_rate(case: Case, seconds: float) -> float:
    """Flops a second of X (X' Q), with the columns of a block of dpca's own (4 n l a column of X)."""
    width, columns = min(PANEL, 2**25 // case.samples), case.components + 20
    panels = [np.ones((case.samples, width), np.float32) for _ in range(os.cpu_count() or 1)]
    q = np.ones((case.samples, columns), np.float32)

    def multiply(thread: int, _: int) -> float:
        np.matmul(panels[thread], np.matmul(panels[thread].T, q))
        return 4.0 * case.samples * columns * width

    return rate(multiply, seconds)


def floor_of_pass(case: Case, data: Path, seconds: float) -> dict[str, float]:
    """Rates, and the seconds below which no pass of an iteration over these data can be done on this machine."""
    decode, multiply = decode_rate(case, data, seconds), pass_rate(case, seconds)
    flops = 4.0 * case.samples * (case.components + 20) * case.features
    return {
        "decode_bytes_per_second": decode,
        "reader_bytes_per_second": reader_rate(data, seconds),
        "pass_flops_per_second": multiply,
        "seconds": case.bytes / decode + flops / multiply,
    }


def write_rate(case: Case, directory: Path, seconds: float) -> float:
    """Bytes of components a second, as zarr writes them."""
    dtype = np.float64 if case.dtype == "float64" else np.float32
    width = 2**17
    path = directory / "written.zarr"
    array = zarr.create_array(
        path, shape=(case.components, width * 64), chunks=(case.components, width), dtype=dtype, overwrite=True
    )
    values = np.random.default_rng(0).standard_normal((case.components, width)).astype(dtype)

    def write(thread: int, count: int) -> float:
        start = (thread * 32 + count % 32) * width
        array[:, start : start + width] = values
        return values.nbytes

    return rate(write, seconds)


def floor(case: Case, data: Path, directory: Path, seconds: float) -> dict[str, float]:
    """Rates, and the seconds below which no two passes over these data can be done on this machine."""
    decode = decode_rate(case, data, seconds)
    syrk, project = product_rates(case, seconds)
    write = write_rate(case, directory, seconds)
    itemsize = 8 if case.dtype == "float64" else 4
    first = case.bytes / decode + case.samples**2 * case.features / syrk
    second = case.bytes / decode + 2 * case.samples * case.features * case.components / project
    second += case.components * case.features * itemsize / write
    return {
        "decode_bytes_per_second": decode,
        "reader_bytes_per_second": reader_rate(data, seconds),
        "syrk_flops_per_second": syrk,
        "projection_flops_per_second": project,
        "write_bytes_per_second": write,
        "first_pass_seconds": first,
        "second_pass_seconds": second,
        "seconds": first + second,
    }
