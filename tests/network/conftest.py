"""Hosts of the tests' own: network namespaces on one bridge, with addresses that nobody else sees."""

import os
import shutil
import subprocess
import sys
from contextlib import ExitStack

import pytest

from tests.customized import customized, twenty_spans
from tests.made import made

__all__ = ["customized"]

HOSTS = ("scheduler", "one", "two")
SOON = {"DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP": "12s"}
"""After how long Dask takes a host that is silent for gone, instead of 30 s."""


class Hosts:
    """Namespaces by name; the first has the bridge, and 10.77.0.1."""

    def __init__(self, stack):
        self._stack, self._prefix = stack, f"dpca{os.getpid()}"
        for number, host in enumerate(HOSTS):
            self._ip("netns", "add", self.name(host))
            stack.callback(self._ip, "netns", "del", self.name(host))
            self.ip(host, "link", "set", "lo", "up")
            if number == 0:
                self.ip(host, "link", "add", "bridge", "type", "bridge")
                self.ip(host, "addr", "add", "10.77.0.1/24", "dev", "bridge")
                self.ip(host, "link", "set", "bridge", "up")
                continue
            there = ("link", "add", host, "type", "veth", "peer", "name", "eth0", "netns", self.name(host))
            self.ip(HOSTS[0], *there)
            self.ip(HOSTS[0], "link", "set", host, "master", "bridge", "up")
            self.ip(host, "addr", "add", f"10.77.0.{number + 1}/24", "dev", "eth0")
            self.ip(host, "link", "set", "eth0", "up")

    def name(self, host):
        return f"{self._prefix}{host}"

    def _ip(self, *arguments):
        subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)

    def ip(self, host, *arguments):
        """A command of ip, on a host."""
        self._ip("-n", self.name(host), *arguments)

    def cut(self, host):
        """Nothing gets through to a host any more."""
        self.ip(HOSTS[0], "link", "set", host, "down")

    def start(self, host, *arguments, **how):
        """A Python on a host, which ends with the test."""
        command = ["ip", "netns", "exec", self.name(host), sys.executable, *arguments]
        process = subprocess.Popen(command, env={**os.environ, **SOON, "HOST": host}, **how)
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)
        return process


@pytest.fixture
def hosts():
    absent = "ip (iproute2)" if shutil.which("ip") is None else "root" if os.geteuid() != 0 else ""
    if absent:
        if os.environ.get("DPCA_NEEDS_CLUSTERS"):
            pytest.fail(f"not there: {absent}")
        pytest.skip(f"needs network namespaces (not there: {absent})")
    with ExitStack() as stack:
        yield Hosts(stack)


@pytest.fixture
def config(hosts, customized):
    made(twenty_spans)
    return "c.yaml"
