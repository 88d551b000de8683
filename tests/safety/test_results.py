"""What a result of someone else must not decide: which URLs are asked, and where and how it is computed."""

import http.server
import json
import os
import subprocess
import threading
from pathlib import Path

import numpy as np
import pytest

from dpca.store.results import open_result
from tests.commands.calls import dpca
from tests.made import made
from tests.safety.common import X, config


class Asked(http.server.BaseHTTPRequestHandler):
    """Answers every request with 404, and notes it."""

    def do_GET(self):
        self.server.seen.append(self.path)
        self.send_error(404)

    do_HEAD = do_GET

    def log_message(self, *_):
        pass


@pytest.fixture
def network():
    """The address of a server on this machine, which nobody may ask."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Asked) as server:
        server.seen = []
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()
        assert not server.seen


def a_pca():
    np.save("x.npy", X)
    assert dpca("run", config("x.npy")) == 0


def a_kernel_pca():
    np.save("x.npy", X)
    assert (
        dpca(
            "run",
            config("x.npy"),
            "--set",
            "model={n_components: 2, kind: kernel_pca, kernel: rbf, fit_inverse_transform: true}",
        )
        == 0
    )


def rewritten(change):
    """Change the config that a manifest records."""
    manifest = json.loads(Path("r/manifest.json").read_text())
    change(manifest["config"])
    Path("r/manifest.json").write_text(json.dumps(manifest))


DERIVE = "from: r\nanalyses: [{name: a, model: {kind: pca, n_components: 1}}]\noutput: {path: d}\n"
READ_AGAIN = {
    "transform of a kernel": (a_kernel_pca, ("transform", "r", "new.npy", "--out", "t.zarr")),
    "reconstruct of a kernel": (a_kernel_pca, ("reconstruct", "r", "--out", "t.zarr")),
    "derive with maps": (a_pca, ("derive", "d.yaml")),
    "plan of derive": (a_pca, ("derive", "d.yaml", "--plan")),
    "extend": (a_pca, ("extend", "r", "new.npy", "--output", "e")),
    "plan of extend": (a_pca, ("extend", "r", "new.npy", "--output", "e", "--plan")),
}
"""Commands that read the data of a result again."""
PLACES_OF_OTHERS = ("http://{}/x.zarr", "reference::http://{}/x.json", "simplecache::http://{}/x.zarr")


@pytest.mark.parametrize("place", PLACES_OF_OTHERS)
@pytest.mark.parametrize("command", READ_AGAIN)
def test_a_url_is_not_asked_because_a_result_names_it(network, command, place, capsys):
    make, call = READ_AGAIN[command]
    made(make)
    np.save("new.npy", X + 1)
    Path("d.yaml").write_text(DERIVE)
    rewritten(lambda found: found["input"].update(uri=place.format(network)))
    assert dpca(*call) in (1, 2)
    assert "only a path is read because a result names it" in capsys.readouterr().err


@pytest.mark.parametrize("command", READ_AGAIN)
def test_a_place_that_the_caller_names_is_read(command):
    make, call = READ_AGAIN[command]
    made(make)
    np.save("new.npy", X + 1)
    Path("d.yaml").write_text(f"{DERIVE}data: {os.path.abspath('x.npy')}\n")
    rewritten(lambda found: found["input"].update(uri="http://127.0.0.1:1/x.zarr"))
    named = {
        "transform": ("--training", "x.npy"),
        "reconstruct": ("--training", "x.npy"),
        "extend": ("--data", "x.npy"),
    }
    assert dpca(*call, *named.get(call[0], ())) == 0


COMPUTE_OF_OTHERS = {
    "prologue": {
        "slurm": {"cores": 1, "memory": 2**30, "walltime": "10:00", "maximum": 1, "job_script_prologue": ["touch run"]}
    },
    "scheduler": {"scheduler": "tcp://{}"},
}


@pytest.mark.parametrize("what", COMPUTE_OF_OTHERS)
@pytest.mark.parametrize("plan", [(), ("--plan",)])
def test_how_to_compute_is_not_taken_from_a_result(network, what, plan):
    """A prologue is run by a shell, and Dask unpickles what a scheduler sends."""
    made(a_pca)
    np.save("new.npy", X + 1)
    cluster = json.loads(json.dumps(COMPUTE_OF_OTHERS[what]).replace("{}", network))
    rewritten(lambda found: found["compute"].update(cluster=cluster))
    assert dpca("extend", "r", "new.npy", "--output", "e", *plan) == 0
    if not plan:
        assert open_result("e").manifest["config"]["compute"]["cluster"] == "local"


def test_a_job_imports_nothing_from_the_folder_that_it_is_started_in(capsys):
    np.save("x.npy", X)
    assert dpca("submit", config("x.npy"), "--as", "job", "--dry-run") == 0
    script = capsys.readouterr().out.partition("\n")[2]
    for module in ("numpy", "dask", "zarr", "json"):
        Path(f"{module}.py").write_text("open('imported', 'w')")
    subprocess.run(["bash", "-c", script], check=True, capture_output=True)
    assert not Path("imported").exists()
    assert open_result("r").n_components == 2
