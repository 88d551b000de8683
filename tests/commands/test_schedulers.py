"""Runs on a Dask scheduler that is there already: by its address, by its file, with TLS."""

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import zarr
from distributed import Security

from dpca.execution import clusters
from dpca.execution.executors import Distributed
from tests.clusters import local_cluster
from tests.commands.calls import X, dpca, run, sets
from tests.made import made
from tests.resume.disturbed import in_small_slabs
from tests.stores import random_array


def write():
    zarr.create_array("x.zarr", data=X, chunks=(5, 20, 7))
    Path("c.yaml").write_text("input: {uri: x.zarr}\nmodel: {n_components: 3}\noutput: {path: near}\n")


@pytest.fixture
def config():
    made(run, write)
    return "c.yaml"


def far(config, cluster, *arguments):
    return dpca("run", config, "--set", f"compute.cluster={cluster}", "--set", "output.path=far", *arguments)


def assert_same():
    for name in ("gram", "scores", "components", "mean"):
        near, far = (zarr.open_array(f"{path}/result.zarr/{name}", mode="r")[...] for path in ("near", "far"))
        np.testing.assert_array_equal(near, far)


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("dask")


@pytest.fixture(scope="module")
def cluster(directory):
    """One for the tests below; its scheduler's file is in `directory`."""
    with local_cluster(directory, memory_limit="1GiB") as cluster:
        with cluster.get_client() as client:
            client.write_scheduler_file(str(directory / "scheduler.json"))
        yield cluster


def test_a_scheduler_is_found_by_its_address_and_by_its_file(config, cluster, directory):
    assert far(config, f"{{scheduler: '{cluster.scheduler_address}'}}") == 0
    assert_same()
    assert json.loads(Path("far/status.json").read_text())["done_bytes"] == X.nbytes
    shutil.copy(directory / "scheduler.json", ".")
    assert far(config, "{scheduler_file: scheduler.json}", "--overwrite") == 0
    assert_same()
    assert dpca("transform", "near", "x.zarr", "--out", "s.zarr", "--scheduler-file", "scheduler.json") == 0


def test_who_computes_and_where_the_dashboard_is(cluster):
    with cluster.get_client() as client:
        alive = Distributed(client).alive()
        assert (alive.workers, alive.dashboard) == (2, cluster.dashboard_link)
        assert 0 < alive.fullest_bytes < 2**31


def test_a_result_is_applied_there_as_here(config, cluster):
    assert dpca("transform", "near", "x.zarr", "--out", "a.zarr") == 0
    assert dpca("reconstruct", "near", "--out", "b.zarr") == 0
    where = ("--scheduler", cluster.scheduler_address)
    assert dpca("transform", "near", "x.zarr", "--out", "c.zarr", *where) == 0
    assert dpca("reconstruct", "near", "--out", "d.zarr", *where) == 0
    for name, paths in (("scores", "ac"), ("reconstruction", "bd")):
        here, there = (zarr.open_group(f"{path}.zarr", mode="r")[name][...] for path in paths)
        np.testing.assert_array_equal(here, there)


def test_a_cluster_is_planned_process_by_process(config, capsys, cluster):
    where = f"compute.cluster={{scheduler: '{cluster.scheduler_address}'}}"
    keys = sets(where, "output.path=far")
    capsys.readouterr()
    assert dpca("plan", config, "--json", *keys) == 0
    document = json.loads(capsys.readouterr().out)
    processes = {process["name"]: process for process in document["memory"]["processes"]}
    assert processes["worker"]["count"] == 2
    assert set(processes) == {"client", "worker"}
    assert {stage["name"] for stage in processes["worker"]["stages"]} == {
        *("gram", "gram in double", "tsqr", "components", "orthogonalize")
    }
    assert dpca("run", config, *keys) == 0
    manifest = json.loads(Path("far/manifest.json").read_text())
    assert set(manifest["memory"]["planned_bytes"]) == {"client", "worker"}
    assert dpca("plan", config, *keys, *sets("compute.memory=100MiB")) == 3
    assert "of memory in each worker" in capsys.readouterr().err


@pytest.fixture
def certificates(tmp_path):
    """An authority of this test's own, and what it signed for both sides."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")

    def openssl(*arguments):
        subprocess.run(["openssl", *arguments], check=True, capture_output=True, cwd=tmp_path)

    new = ("-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj")
    openssl("req", "-x509", *new, "/CN=ca", "-keyout", "ca.key", "-out", "ca.pem")
    openssl("req", "-new", *new[:3], "-subj", "/CN=localhost", "-keyout", "key.pem", "-out", "request.pem")
    openssl(
        "x509", "-req", "-in", "request.pem", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-out", "cert.pem"
    )
    return {name: str(tmp_path / f"{name}.pem") for name in ("ca", "cert", "key")}


@pytest.mark.long
def test_a_scheduler_that_speaks_tls(config, certificates, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(clusters, "CONNECT_SECONDS", 5)
    ca, cert, key = certificates["ca"], certificates["cert"], certificates["key"]
    security = Security(
        tls_ca_file=ca,
        require_encryption=True,
        **{
            f"tls_{who}_{what}": path
            for who in ("client", "scheduler", "worker")
            for what, path in (("cert", cert), ("key", key))
        },
    )
    with local_cluster(tmp_path, security=security, protocol="tls") as cluster:
        address = cluster.scheduler_address
        assert address.startswith("tls://")
        assert far(config, f"{{scheduler: '{address}', tls: {{ca: {ca}, cert: {cert}, key: {key}}}}}") == 0
        assert_same()
        assert (
            dpca("run", config, "--set", f"compute.cluster={{scheduler: '{address}'}}", "--set", "output.path=r") == 2
        )
        assert (
            f"compute.cluster.scheduler is '{address}', a tls:// address, which needs compute.cluster.tls"
            in capsys.readouterr().err
        )


@pytest.mark.parametrize(
    ("cluster", "code", "sentence"),
    [
        (
            "{scheduler: 'tcp://127.0.0.1:1', scheduler_file: s.json}",
            2,
            "compute.cluster has scheduler and scheduler_file",
        ),
        (
            "{scheduler: 'tcp://localhost:8786x'}",
            2,
            "compute.cluster.scheduler is 'tcp://localhost:8786x', but an address with a port is allowed",
        ),
        ("{scheduler_file: s.json}", 2, "s.json: is not a file"),
        ("{scheduler: 'tls://127.0.0.1:1', tls: {ca: a.pem, cert: b.pem, key: c.pem}}", 2, "a.pem: is not a file"),
        ("{scheduler: 'tls://127.0.0.1:1', tls: {ca: a.pem}}", 2, "compute.cluster.tls.cert is missing"),
        ("{scheduler_file: broken.json}", 2, "broken.json: is not what a Dask scheduler writes (KeyError: 'address')"),
        ("{scheduler_file: old.json}", 1, "no Dask scheduler answers at the address in old.json"),
    ],
)
def test_what_is_not_there(config, cluster, code, sentence, capsys, monkeypatch):
    monkeypatch.setattr(clusters, "CONNECT_SECONDS", 1)
    Path("broken.json").write_text("{}")
    Path("old.json").write_text('{"address": "tcp://127.0.0.1:1"}')
    assert far(config, cluster) == code
    assert sentence in capsys.readouterr().err
    assert not Path("far").exists()


@pytest.mark.long
def test_what_travels_is_in_the_manifest_and_does_not_grow_with_the_data(tmp_path, monkeypatch):
    in_small_slabs(monkeypatch)
    found = {}
    with local_cluster(tmp_path) as cluster:
        for width in (600, 6000):  # ten spans each
            zarr.create_array(f"{width}.zarr", data=random_array(0, (12, 10 * width), "f8"), chunks=(12, width))
            Path("c.yaml").write_text(
                f"input: {{uri: {width}.zarr}}\nmodel: {{n_components: 3}}\noutput: {{path: far}}\n"
            )
            on = f"compute.cluster={{scheduler: '{cluster.scheduler_address}'}}"
            assert dpca("run", "c.yaml", "--overwrite", "--set", on) == 0
            manifest = json.loads(Path("far/manifest.json").read_text())
            assert manifest["plan"]["n_spans"] == 10
            found[width] = manifest["network"]
    for network in found.values():
        assert network.keys() == {"gram in double", "components"}
        # Receipts of ten spans, and alpha for the other worker.
        assert 0 < network["gram in double"]["from_workers"] < 10_000
        assert 0 < network["components"]["from_workers"] < 10_000
        assert sum(stage["between_workers"] for stage in network.values()) <= 12 * 3 * 8 + 1000
    assert dpca("run", "c.yaml", "--set", "output.path=near") == 0
    assert json.loads(Path("near/manifest.json").read_text())["network"] == {}
