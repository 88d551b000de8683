"""Dask clusters on this machine, whose servers listen on loopback alone, at any port that is free."""

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile

import pytest
from distributed import Client, LocalCluster


def local_cluster(directory, n_workers=2, *, processes=True, **how):
    """Workers of one thread each, in processes of their own, which are started again when they die."""
    return LocalCluster(
        n_workers=n_workers,
        threads_per_worker=1,
        processes=processes,
        host="127.0.0.1" if processes or "protocol" in how else None,
        dashboard_address="127.0.0.1:0",
        local_directory=str(directory),
        **how,
    )


class ByHand:
    """A scheduler and workers in processes of their own, started as a user starts them, and ended with the stack.

    Parameters
    ----------
    directory : where they run, but for workers that are started elsewhere
    settings : of Dask, as environment variables
    """

    def __init__(self, stack, directory, **settings):
        self._stack, self.directory, self._settings = stack, directory, settings
        file = directory / "scheduler.json"
        self.scheduler = self._start(
            *("scheduler", "--host", "127.0.0.1", "--port", "0"),
            *("--dashboard-address", "127.0.0.1:0", "--scheduler-file", str(file)),
        )
        while not file.exists() or not file.read_text().strip():
            assert self.scheduler.poll() is None
        self.address = json.loads(file.read_text())["address"]
        self.client = stack.enter_context(Client(self.address))

    def _start(self, *arguments, cwd=None, hides=None, **settings):
        command = [sys.executable, "-m", "dask", *arguments]
        if hides is not None:
            # Another host, which has another directory there.
            mounted = f"mount -t tmpfs none {shlex.quote(str(hides))} && exec {shlex.join(command)}"
            command = ["unshare", "--map-root-user", "--mount", "sh", "-c", mounted]
        process = subprocess.Popen(
            command,
            cwd=cwd or self.directory,
            env={**os.environ, **self._settings, **settings},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)  # asked to end, a worker would wait for its tasks
        return process

    def worker(self, *options, awaited=True, nthreads=1, **how):
        """A worker without a nanny; `hides` is a directory that it does not see."""
        before = len(self.client.nthreads())
        scratch = tempfile.mkdtemp(dir="/tmp", prefix="dpca-worker-")
        self._stack.callback(shutil.rmtree, scratch, ignore_errors=True)
        listens = ("--no-nanny", "--host", "127.0.0.1", "--no-dashboard", "--local-directory", scratch)
        process = self._start("worker", self.address, *listens, "--nthreads", str(nthreads), *options, **how)
        if awaited:
            self.client.wait_for_workers(before + 1, timeout=30)
        return process


def hides_directories():
    """Skip a test where no process can have mounts of its own."""
    done = subprocess.run(["unshare", "--map-root-user", "--mount", "true"], capture_output=True, check=False)
    if done.returncode:
        pytest.skip("no process can have mounts of its own here: unshare --map-root-user --mount")
