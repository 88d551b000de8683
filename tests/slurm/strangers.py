"""What somebody else on the network would find of a run: ports, and whether they answer."""

import os
import stat
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from distributed import Client, Security

from dpca.execution.jobqueue import security_of


def processes(**environment):
    """Pythons that were started with this in their environment."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            theirs = process.environ()
            if process.cmdline()[:1] == [sys.executable] and environment.items() <= theirs.items():
                found.append(process)
    return found


def assert_closed(running, address, keys):
    """Servers listen at addresses of their own, and answer who has the run's key, which nobody else may read."""
    ports = [found for process in running for found in process.net_connections("inet") if found.status == "LISTEN"]
    listening = {port.laddr.ip for port in ports}
    assert len(ports) >= len(running) - 1  # the run of a job step listens nowhere
    assert not listening & {"0.0.0.0", "::"}
    for where, security in ((address.replace("tls:", "tcp:"), None), (address, Security.temporary())):
        with pytest.raises(OSError, match="closed|Timed out|TLS"):
            Client(where, security=security, timeout=2, set_as_default=False)
    with Client(address, security=security_of(Path(keys)), set_as_default=False) as client:
        assert client.scheduler_info()["address"] == address
    assert [stat.S_IMODE(os.stat(path).st_mode) for path in (keys, *Path(keys).iterdir())] == [0o700, 0o600, 0o600]
    return listening
