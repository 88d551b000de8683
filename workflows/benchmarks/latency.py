"""What the latency of an object store costs: a run on data in S3, with so many milliseconds added to every request.

    python -m workflows.benchmarks.latency

Starts servers of S3's protocol on loopback (moto), each with the same data, and runs dpca on them in turn, as `dpca run`
with start-up. Prints the times and their ratio to those without.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import s3fs
import zarr

from dpca.store.results import open_result

CREDENTIALS = {"key": "bench", "secret": "benchbench"}
CONFIG = """
input:
  uri: s3://bench/x.zarr
  library: {library}
  storage_options: {options}
model: {{n_components: 20}}
output: {{path: {out}}}
"""


def serve(seconds: float) -> None:
    """A server that waits before it answers; prints its address."""
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Quiet(WSGIRequestHandler):
        protocol_version = "HTTP/1.1"  # connections are used again, as those of object stores are

        def log_request(self, *arguments: Any) -> None:
            pass

    inner = DomainDispatcherApplication(create_backend_app)

    def application(environ: dict[str, Any], start_response: Any) -> Any:
        if environ["REQUEST_METHOD"] != "PUT":
            time.sleep(seconds)
        return inner(environ, start_response)

    server = make_server("127.0.0.1", 0, application, threaded=True, request_handler=Quiet)
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()


@contextmanager
def serving(milliseconds: int) -> Iterator[str]:
    """The address of such a server, in a process of its own."""
    command = [sys.executable, "-m", "workflows.benchmarks.latency", "--serve", str(milliseconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


def fill(endpoint: str, n_samples: int, n_features: int, width: int) -> None:
    """float32 noise, compressed as archives are."""
    system = s3fs.S3FileSystem(**CREDENTIALS, endpoint_url=endpoint, asynchronous=False)
    system.mkdir("bench")
    store = zarr.storage.FsspecStore.from_url(
        "s3://bench/x.zarr", storage_options={**CREDENTIALS, "endpoint_url": endpoint}
    )
    array = zarr.create_array(store, shape=(n_samples, n_features), chunks=(n_samples, width), dtype="f4")
    rng = np.random.default_rng(0)
    for start in range(0, n_features, width):
        array[:, start : start + width] = rng.standard_normal((n_samples, width), np.float32)


def run(endpoint: str, library: str, place: Path) -> float:
    """Seconds of a run."""
    if library == "fsspec":
        options: dict[str, Any] = {**CREDENTIALS, "endpoint_url": endpoint}
    else:
        options = {
            "endpoint": endpoint,
            "access_key_id": CREDENTIALS["key"],
            "secret_access_key": CREDENTIALS["secret"],
            "region": "us-east-1",
            "virtual_hosted_style_request": False,
            "client_options": {"allow_http": True},
        }
    place.mkdir(parents=True, exist_ok=True)
    config, out = place / "c.yaml", place / "result"
    shutil.rmtree(out, ignore_errors=True)
    config.write_text(CONFIG.format(library=library, options=options, out=out))
    began = time.perf_counter()
    subprocess.run([sys.executable, "-m", "dpca", "run", str(config)], check=True, capture_output=True)
    seconds = time.perf_counter() - began
    assert open_result(out).manifest["counts"]["retried_reads"] == 0
    return seconds


def main() -> None:
    """Interleaved, so that what else the machine does meets all alike."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--milliseconds", type=int, default=50)
    parser.add_argument("--samples", type=int, default=1000)
    parser.add_argument("--features", type=int, default=250_000)
    parser.add_argument("--width", type=int, default=1000, help="features of a chunk")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--directory", type=Path, default=Path("dpca-bench/latency"))
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve is not None:
        serve(given.serve / 1000)
        return
    size = given.samples * given.features * 4
    print(f"{given.samples} x {given.features} float32, {size / 1e9:.2g} GB, in {given.features // given.width} chunks")
    print(f"{os.cpu_count()} cores, which serve the data too")
    with ExitStack() as stack:
        endpoints = {ms: stack.enter_context(serving(ms)) for ms in (0, given.milliseconds)}
        for endpoint in endpoints.values():
            fill(endpoint, given.samples, given.features, given.width)
        for library in ("fsspec", "obstore"):
            found: dict[int, list[float]] = {ms: [] for ms in endpoints}
            for _ in range(given.rounds):
                for ms, endpoint in endpoints.items():
                    found[ms].append(run(endpoint, library, given.directory))
            near, far = (statistics.median(seconds) for seconds in found.values())
            print(
                f"{library:8}  {near:6.1f} s, with {given.milliseconds} ms added {far:6.1f} s: {far / near:.2f} times"
            )


if __name__ == "__main__":
    main()
