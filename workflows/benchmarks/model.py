"""What a run should take: the work of each part by the rate at which this machine, or a cluster, does it.

    python -m workflows.benchmarks.model --samples 3000 --terabytes 100 --workers 1000

Rates are of `roofline.py`: each part alone, all cores of this machine busy, data in the page cache.
"""

import argparse
import json
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from dpca.planning.runplan import MANY, TOGETHER
from dpca.slabs import make_plan


@dataclass(frozen=True)
class Machine:
    """Rates of one machine, or of a number of them that work together."""

    decode: float
    """Bytes a second."""
    syrk: float
    """Flops a second, n^2 for each feature."""
    project: float
    """Flops a second of products with n x k matrices."""
    write: float
    """Bytes a second."""
    eigensolve: float
    """Seconds for each n^3."""
    span: float
    """Seconds for each span, beside its work."""
    add: float = 1e9
    """Bytes of partials that the client reads, checks and adds up a second."""
    read: float = math.inf
    """Bytes a second that storage gives to all workers together."""
    adders: int = 1
    """Workers that add up neighbouring spans."""

    @classmethod
    def of(cls, point: dict[str, Any], largest: dict[str, Any], span: float) -> Self:
        """From one point of a curve, and the eigensolve of the largest."""
        bottom = point["floor"]
        return cls(
            bottom["decode_bytes_per_second"],
            bottom["syrk_flops_per_second"],
            bottom["projection_flops_per_second"],
            bottom["write_bytes_per_second"],
            largest["stages"]["eigensolve"] / largest["samples"] ** 3,
            span,
        )

    def times(self, factor: float, read: float, adders: int) -> Self:
        """So many machines like this one, on storage of a given rate, with so many workers."""
        return replace(
            self,
            decode=factor * self.decode,
            syrk=factor * self.syrk,
            project=factor * self.project,
            write=factor * self.write,
            read=read,
            adders=adders,
        )


def predicted(samples: int, features: int, components: int, machine: Machine) -> dict[str, float]:
    """Seconds of the parts of a run on float32 data: two passes, the eigensolve between, what is written."""
    n_bytes, n, d, k = 4 * samples * features, samples, features, components
    n_spans = make_plan((n, d), 4, (n, max(256, 2**23 // (4 * n))), n_components=k).n_spans
    # Of many spans, workers add up neighbours, and the client their sums.
    added = n_spans if n_spans < MANY * TOGETHER else n_spans / TOGETHER + n_spans / machine.adders
    reading = 2 * max(n_bytes / machine.decode, n_bytes / machine.read)
    return {
        "read and decode, twice": reading,
        "X X'": n * n * d / machine.syrk,
        "components, and how they fit": 2 * 2 * n * d * k / machine.project,
        "write components": 4 * k * d / machine.write,
        "partials, written and added up": 8 * n * n * added / machine.add + 2 * n_spans * machine.span,
        "eigensolve": machine.eigensolve * n**3,
    }


def main() -> None:
    """Print what a larger run would take, from the rates that `curves.py` measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--curves", type=Path, default=Path("dpca-bench/curves.json"))
    parser.add_argument("--samples", type=int, default=3000)
    parser.add_argument("--terabytes", type=float, default=100.0)
    parser.add_argument("--workers", type=int, default=1000, help="of one core each")
    parser.add_argument("--storage", type=float, default=100.0, help="GB/s that storage gives to all together")
    given = parser.parse_args()
    report = json.loads(given.curves.read_text(encoding="utf-8"))
    points = sorted(report["samples"], key=lambda point: abs(point["samples"] - given.samples))
    one = Machine.of(points[0], max(points, key=lambda point: point["samples"]), report["overheads"]["cluster"])
    features = int(given.terabytes * 1e12 / 4 / given.samples)
    many = one.times(given.workers / report["cores"], 1e9 * given.storage, given.workers)
    found = predicted(given.samples, features, 20, many)
    print(f"{given.samples:,} x {features:,} float32, {given.terabytes:g} TB, {given.workers:,} workers")
    for name, seconds in found.items():
        print(f"  {name}: {seconds:.0f} s")
    print(f"  in all {sum(found.values()):.0f} s")


if __name__ == "__main__":
    main()
