"""What products of genotypes cost on this machine: those of dosages in single and double precision, and the counts of pairs of missing calls.

Dosages are integers from 0 to 2, but each variant is divided by a deviation of its own, so that products of what is centred and scaled are
products of real numbers. Products of 8 bits, with sums of 32 bits, are exact for integers alone: the weight of a variant can stand on one side, in two or
three digits of 7 bits, each a product more. They are timed where onnxruntime and onnx are installed, and bfloat16 with MKL where that is.
"""

from __future__ import annotations

import ctypes
import glob
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from threadpoolctl import threadpool_limits

from dpca.numerics.accumulators.tallies import FeatureTally

N, WIDTH, MISSING = 2000, 4096, 0.01


def seconds(work: Callable[[], Any], rounds: int = 5) -> float:
    """The shortest time of some rounds."""
    work()
    found = []
    for _ in range(rounds):
        began = time.perf_counter()
        work()
        found.append(time.perf_counter() - began)
    return min(found)


def told(what: str, taken: float) -> None:
    """Print a time for each genotype, and what a cohort of 2000 x 500,000 would take on one thread."""
    print(f"{what:66} {taken / (N * WIDTH) * 1e9:7.2f} ns a genotype {taken / WIDTH * 500_000:7.1f} s")


def counted_pairs(absent: NDArray[np.bool_]) -> None:
    """Count the pairs of a panel as a run does."""
    tally = FeatureTally.empty(N, pairs=True)
    tally._count(absent.T)


def main() -> None:
    """Print the times, on one thread."""
    rng = np.random.default_rng(0)
    real = rng.standard_normal((WIDTH, N))
    single = real.astype(np.float32)
    out32, out64 = np.empty((N, N), np.float32), np.empty((N, N))
    absent = rng.random((WIDTH, N)) < MISSING
    mask = csr_array(absent, dtype=np.int32)
    bits = np.packbits(np.ascontiguousarray(absent.T), axis=1).view(np.uint64)
    with threadpool_limits(1):
        told("Z Z' in single precision (syrk)", seconds(lambda: np.matmul(single.T, single, out=out32)))
        told("Z Z' in double precision (syrk)", seconds(lambda: np.matmul(real.T, real, out=out64), 2))
        told("pairs of missing calls, one by one (a run)", seconds(lambda: counted_pairs(absent)))
        told("pairs of missing calls, sparse product", seconds(lambda: (mask.T @ mask).toarray()))
        dense = absent.astype(np.float32)
        told("pairs of missing calls, dense in single precision", seconds(lambda: np.matmul(dense.T, dense, out=out32)))
        row = [0]

        def counted() -> None:
            row[0] = (row[0] + 1) % N
            np.bitwise_count(bits & bits[row[0]]).sum(axis=1)

        told("pairs of missing calls, bits counted (half of the matrix)", N / 2 * seconds(counted, 50))
        _eight_bits(rng)
    _bfloat16(rng)


def _eight_bits(rng: np.random.Generator) -> None:
    try:
        import onnx.helper as onnx
        import onnxruntime
    except ImportError:
        print("8-bit products: onnxruntime and onnx are not installed")
        return
    uint8, int8, int32 = 2, 3, 6
    node = onnx.make_node("MatMulInteger", ["A", "B"], ["C"])
    given = [onnx.make_tensor_value_info(name, kind, [None, None]) for name, kind in (("A", uint8), ("B", int8))]
    graph = onnx.make_graph([node], "product", given, [onnx.make_tensor_value_info("C", int32, [None, None])])
    model = onnx.make_model(graph, opset_imports=[onnx.make_opsetid("", 13)], ir_version=9)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    a = rng.integers(0, 3, (N, WIDTH)).astype(np.uint8)
    b = rng.integers(-63, 64, (WIDTH, N)).astype(np.int8)

    def product() -> None:
        for start in range(0, N, N // 8):  # blocks of rows, to the right of the diagonal
            session.run(None, {"A": a[start : start + N // 8], "B": np.ascontiguousarray(b[:, start:])})

    taken = seconds(product, 3)
    told("8-bit product of one digit, blocks of a triangle (onnxruntime)", taken)
    told("the same with two digits, 14 bits of each weight", 2 * taken)


def _bfloat16(rng: np.random.Generator) -> None:
    found = glob.glob(f"{sys.prefix}/lib/libmkl_rt.so*")
    if not found:
        print("bfloat16 products: MKL is not installed")
        return
    library, pointer = ctypes.CDLL(found[0]), ctypes.c_void_p
    library.MKL_Set_Num_Threads(1)
    a = (rng.integers(-1, 2, (N, WIDTH)).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    out = np.zeros((N, N), np.float32)

    def product() -> None:
        one, none = ctypes.c_float(1), ctypes.c_float(0)
        at, to = a.ctypes.data_as(pointer), out.ctypes.data_as(pointer)
        library.cblas_gemm_bf16bf16f32(101, 111, 112, N, N, WIDTH, one, at, WIDTH, at, WIDTH, none, to, N)

    taken = seconds(product)
    told("bfloat16 product of one term, the whole matrix (MKL)", taken)
    told("the same with three terms, 24 bits of each weight, half of it", 1.7 * taken)


if __name__ == "__main__":
    main()
