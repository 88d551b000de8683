"""What somebody else on the network, or on the machine, would find of a run: ports, and whether they answer."""

import os
import socket
import ssl
import stat
import sys
import tempfile
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from distributed import Client

from dpca.execution.jobqueue import CERTIFICATE, KEY, make_keys, security_of

PAGES = ("", "status", "info/main/workers.html", "info/logs.html", "json/counts.json", "individual-profile")
"""Some of what Dask's servers show over HTTP."""


def processes(**environment):
    """Pythons that were started with this in their environment."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            theirs = process.environ()
            if process.cmdline()[:1] == [sys.executable] and environment.items() <= theirs.items():
                found.append(process)
    return found


def ports_of(running):
    """Where processes listen, as address and port."""
    listening = (found.laddr for process in running for found in process.net_connections("inet") if not found.raddr)
    return {(place.ip, place.port) for place in listening}


def assert_closed(started, address, keys, workers):
    """Servers listen at addresses of their own, and answer who has the run's key, which nobody else may read.

    `started` finds the processes: it is asked when so many workers have come, as one that comes later listens, too.
    """
    own = Path(keys)
    with Client(address, security=security_of(own), set_as_default=False) as client:
        client.wait_for_workers(workers, timeout=60)
        known = client.scheduler_info()
    running = started()
    ports = ports_of(running)
    assert len(ports) >= len(running) - 1  # the run of a job step listens nowhere
    assert not {host for host, _ in ports} & {"0.0.0.0", "::"}
    of_pages = {place for place in ports if heard(place).startswith(b"HTTP")}
    assert {host for host, _ in of_pages} <= {"127.0.0.1"}
    found = [(place, page) for place in of_pages for page in PAGES if shows(place, page)]
    assert found == [], found
    with tempfile.TemporaryDirectory() as other:
        make_keys(Path(other))
        for place in ports - of_pages:  # a scheduler, a nanny or a worker
            assert heard(place)[:1] in (b"", ALERT)
            assert heard(place, tls_of(None)) == b""
            assert heard(place, tls_of(Path(other))) == b""
            assert heard(place, tls_of(own)) != b""
        for where, security in ((address.replace("tls:", "tcp:"), None), (address, security_of(Path(other)))):
            with pytest.raises(OSError, match="closed|Timed out|TLS"):
                Client(where, security=security, timeout=2, set_as_default=False)
    assert known["address"] == address
    servers = {address, *known["workers"], *(worker["nanny"] for worker in known["workers"].values())} - {None}
    assert servers <= {f"tls://{host}:{port}" for host, port in ports - of_pages}
    assert [stat.S_IMODE(os.stat(path).st_mode) for path in (own, *own.iterdir())] == [0o700, 0o600, 0o600]
    return {host for host, _ in ports}


ALERT = b"\x15"
"""How a refusal by TLS begins (RFC 8446, 5.1)."""


def tls_of(keys):
    """TLS with the key and certificate of a run, or of a client that has none."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if keys is not None:
        context.load_cert_chain(keys / CERTIFICATE, keys / KEY)
    return context


def heard(place, tls=None):
    """The first bytes of an answer: Dask's servers greet at once, and without TLS a page is asked for."""
    with suppress(OSError), socket.create_connection(place, timeout=10) as plain:
        if tls is None:
            plain.sendall(b"GET / HTTP/1.0\r\n\r\n")
            return plain.recv(4)
        with tls.wrap_socket(plain) as private:
            return private.recv(4)
    return b""


def shows(place, page):
    """Whether there is a page."""
    with suppress(urllib.error.HTTPError):
        urllib.request.urlopen(f"http://{place[0]}:{place[1]}/{page}", timeout=10).close()
        return True
    return False
