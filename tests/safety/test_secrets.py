"""What must never be written down or shown: credentials in URLs, options and scripts; and who is answered on the network."""

import json
import os
import shlex
import stat
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import fsspec
import numpy as np
import pytest
import zarr
from cryptography.x509 import load_pem_x509_certificates

from dpca import PCA, open_gram
from dpca.config.loading import Loaded
from dpca.errors import DpcaError
from dpca.execution.jobqueue import make_keys, security_of
from tests.commands.calls import dpca
from tests.safety.common import X, config

LISTENING = """
import psutil, sys
import dpca.methods.spans
span, seen = dpca.methods.spans.first_span_of_features, []
def looking(*arguments):
    seen.append([found for found in psutil.Process().net_connections("inet") if found.status == psutil.CONN_LISTEN])
    return span(*arguments)
import dpca.methods.first_pass
dpca.methods.first_pass.first_span_of_features = looking
from dpca.cli.app import main
main(sys.argv[1:])
assert seen == [[]], seen
"""


def test_a_run_on_this_machine_listens_nowhere():
    np.save("x.npy", X)
    done = subprocess.run([sys.executable, "-c", LISTENING, "run", config("x.npy")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_key_of_a_run_is_its_users_and_clocks_of_nodes_may_differ(tmp_path):
    """On Slurm: tests/slurm has what listens there, and whom it answers."""
    keys = tmp_path / "the keys"
    keys.mkdir()
    make_keys(keys)
    assert [stat.S_IMODE(path.stat().st_mode) for path in keys.iterdir()] == [0o600, 0o600]
    (certificate,) = load_pem_x509_certificates((keys / "certificate.pem").read_bytes())
    assert certificate.not_valid_before_utc < datetime.now(UTC) - timedelta(hours=1)
    security = security_of(keys, in_scripts=True)
    assert security.get_listen_args("scheduler")["require_encryption"]
    words = " ".join(filter(None, security.get_tls_config_for_role("worker").values()))
    assert set(shlex.split(words)) == {str(path) for path in keys.iterdir()}


SECRETS = ("hunter2", "s3cr3t", "t0ken", "pr0logue")
PROLOGUE = "export AWS_SECRET_ACCESS_KEY=pr0logue"
URI = "memory://user:s3cr3t@bucket/x.zarr?sig=t0ken"


@pytest.fixture
def far():
    """An array at a URL with credentials, and labels beside it; zarr warns of the one, and of the other."""
    for uri, values in ((URI, X), (URI.replace("x.zarr", "y.zarr"), np.arange(6))):
        zarr.create_array(uri, data=values, chunks=(6, 4)[: values.ndim], overwrite=True)
        fsspec.filesystem("memory").pipe(f"{uri.partition('/')[2][1:]}/.zarray", b"of another version")
    Path("c.yaml").write_text(
        f"input:\n  uri: '{URI}'\n  storage_options: {{key: hunter2}}\n"
        f"model: {{n_components: 2, labels: {{uri: '{URI.replace('x.zarr', 'y.zarr')}'}}}}\noutput: {{path: r}}\n"
        "compute: {cluster: {slurm: {cores: 1, memory: 1 GiB, walltime: '4:00:00', maximum: 1, "
        f"job_script_prologue: [module load python, {PROLOGUE}]}}}}}}\n"
    )


def assert_kept(*texts):
    """No secret is in any of these texts, nor in a file but the config."""
    files = (path for path in Path().rglob("*") if path.is_file() and path.name != "c.yaml")
    found = [*texts, *(path.read_bytes().decode("latin-1") for path in files)]
    for secret in SECRETS:
        assert not any(secret in text for text in found), (secret, [text for text in found if secret in text][:1])


ABSENT = {uri: f"{uri}.uri={URI.replace('x.zarr', 'z.zarr')}" for uri in ("input", "model.labels")}


@pytest.mark.parametrize("fails", ["", "input", "model.labels", "read"])
@pytest.mark.filterwarnings("default::zarr.errors.ZarrUserWarning")
def test_secrets_are_in_no_file_and_no_message(far, sbatch, fails, capfd, monkeypatch, recwarn):
    """Of URLs user, password and query, all storage options and lines of shell; also where something fails, or a library warns."""
    if fails == "read":
        from zarr.storage import FsspecStore

        get = FsspecStore.get

        async def failing(self, key, *arguments, **how):
            if "x.zarr" in self.path and "/c/" in f"/{key}":
                raise OSError(f"403 for {self.path}/{key} with key hunter2")
            return await get(self, key, *arguments, **how)

        monkeypatch.setattr(FsspecStore, "get", failing)
    changed = ("--set", ABSENT[fails]) if fails in ABSENT else ()
    assert dpca("run", "c.yaml", "--keep-ledger", "--debug", *changed) == {"": 0, "read": 1}.get(fails, 2)
    if not fails:
        assert dpca("transform", "r", URI, "--out", "out.zarr") == 0
        assert dpca("transform", "r", URI, "--out", "out.zarr", "--training", URI) == 2
        assert dpca("run", "c.yaml", "--resume") == 0
        assert dpca("run", "c.yaml", "--overwrite") == 0
        assert dpca("status", "r") == 0
        assert dpca("plan", "c.yaml", "--json") == 0
        assert dpca("validate", "c.yaml") == 0
        assert dpca("inspect", URI, "--json") == 0
        for to in ("csv", "npz", "hdf5", "netcdf", "anndata"):
            assert dpca("export", "r", "--to", to, "--out", f"e.{to}") == 0
        Path("d.yaml").write_text("{from: r, analyses: [{name: a, model: {kind: pca}}], output: {path: d}}")
        assert dpca("derive", "d.yaml") == 2  # the storage options are not recorded, without which no map is made
        assert dpca("derive", "d.yaml", "--set", "components=false") == 0
        for wrong in (
            "input.storage_options=[hunter2]",
            "compute.cluster={slurm: {job_script_prologue: [pr0logue], cores: 0}}",
        ):
            assert dpca("run", "c.yaml", "--set", wrong) == 2
        assert dpca("batch", "init", "c.yaml", "--set", "output.path=b") == 0
        for _ in range(5):
            dpca("batch", "partition", "b", "--index", "0")
            dpca("batch", "finalize", "b")
        assert Path("b/manifest.json").exists()
        recorded = json.loads(Path("r/manifest.json").read_text())["config"]["compute"]["cluster"]["slurm"]
        assert recorded["job_script_prologue"] == ["(hidden)", "(hidden)"]
        assert dpca("submit", "c.yaml", "--as", "job", "--dry-run") == 0
    shown, warned = capfd.readouterr(), [str(warning.message) for warning in recwarn]
    assert fails == "input" or any("(hidden)" in text for text in warned)
    assert_kept(shown.out, shown.err, *warned)


GIVEN = [
    ABSENT["input"],
    ABSENT["model.labels"],
    f"model.labels={{uri: '{URI}'}}",
    f"input={{uri: '{URI}', storage_options: {{key: hunter2}}}}",
    "input.storage_options.key=hunter2",
    f"compute.cluster.slurm.job_script_prologue=['{PROLOGUE}']",
]


@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize("command", [("submit", "--as", "job", "--dry-run"), ("batch", "init")])
def test_secrets_of_the_command_line_are_refused_where_they_would_be_written(far, command, given, capsys):
    assert dpca(*command, "c.yaml", "--set", given) == 2
    shown = capsys.readouterr()
    assert "would be written into a script" in shown.err
    assert_kept(shown.out, shown.err)


@pytest.mark.parametrize(
    "given",
    [
        *GIVEN,
        f"input.uri=[{URI}",
        "input={storage_options: {key: hunter2",
        f"inputs={URI}",
        f"compute.cluster.slurm.job_script_prologue=[{PROLOGUE}",
        f"compute.cluster={{slurm: {{job_script_prologue: [{PROLOGUE}",
    ],
)
def test_secrets_of_the_command_line_are_not_shown(given):
    assert_kept(Loaded(None, overrides=(given,), words=("extend", "r", URI)).command)


TLS = f"scheduler: 'tls://user:s3cr3t@localhost:1', tls: {{ca: a, cert: b, key: '{URI}'}}"
LOCAL = {
    "output.path": f"output.path={URI}",
    "compute.scratch": f"compute.scratch={URI}",
    "a chain": f"compute.scratch=simplecache::{URI}",
    "input.variants": f"input.variants={URI}",
    "compute.cluster.scheduler_file": f"compute.cluster={{scheduler_file: '{URI}'}}",
    "compute.cluster.tls.key": f"compute.cluster={{{TLS}}}",
}
"""Keys that name a file or a folder of this machine."""
ANYWHERE = {
    "preprocess.filters.variants": f"preprocess.filters.variants={URI}",
    "input.samples": f"input.samples={URI}",
    "input.sample_names": f"input.sample_names={{uri: '{URI}'}}",
    "preprocess.weights": f"preprocess.weights={{uri: '{URI}'}}",
    "preprocess.sample_weights": f"preprocess.sample_weights={{uri: '{URI}'}}",
    "preprocess.filters.mask": f"preprocess.filters.mask={{uri: '{URI}'}}",
    "covariates": f"preprocess.regress_out.covariates={{uri: '{URI}', columns: [a]}}",
    "by": f"preprocess.regress_out.by={{uri: '{URI}'}}",
    "by, a name": f"preprocess.regress_out.by={URI}",
    "output.groups": f"output.groups={{labels: {{uri: '{URI}'}}}}",
    "compute.cluster.scheduler": "compute.cluster={scheduler: 'tcp://user:s3cr3t@localhost/?sig=t0ken'}",
    "no such key": f"compute.no={URI}",
    "no value": URI,
    "twice": "input={uri: x.npy, storage_options: {key: hunter2, key: s3cr3t}}",
    "an alias": "input={uri: x.npy, storage_options: {key: *hunter2}}",
}
"""Other keys that name a place, and what is wrong with a value."""


@pytest.mark.parametrize("key", [*LOCAL, *ANYWHERE])
@pytest.mark.parametrize("command", [("run",), ("plan", "--json"), ("validate",), ("submit", "--dry-run")])
def test_a_key_shows_no_secret_where_it_is_wrong(key, command, capfd):
    """Also with the traceback; and no folder is made by the name of a URL."""
    np.save("x.npy", X)
    config(os.path.abspath("x.npy"))
    before = set(Path().iterdir())
    code = dpca(command[0], "c.yaml", *command[1:], "--debug", "--set", {**LOCAL, **ANYWHERE}[key])
    assert code == 2 or command[0] == "validate"
    shown = capfd.readouterr()
    assert_kept(shown.out, shown.err)
    if key in LOCAL:
        assert "is a URL, where only a path on this machine can be" in shown.err
        assert set(Path().iterdir()) == before


ARGUMENTS = [
    ("run", URI),
    ("status", URI),
    ("derive", "d.yaml", "--set", f"from={URI}"),
    ("derive", "d.yaml", "--set", f"output.path={URI}"),
    ("transform", "r", "x.npy", "--out", URI),
    ("transform", "r", "x.npy", "--out", "o", "--scheduler-file", URI),
    ("reconstruct", "r", "--out", URI),
    ("extend", "r", "x.npy", "--output", URI),
    ("report", "r", "--out", URI),
    ("export", "r", "--to", "csv", "--out", URI),
    ("demo", "--directory", URI),
    ("batch", "finalize", URI),
]


@pytest.mark.parametrize("command", ARGUMENTS, ids=" ".join)
def test_a_url_is_no_place_on_this_machine(command, capsys):
    Path("d.yaml").write_text("{from: r, analyses: [{name: a, model: {kind: pca}}], output: {path: d}}")
    assert dpca(*command, "--debug") == 2
    shown = capsys.readouterr()
    assert "is a URL, where only a path on this machine can be" in shown.err
    assert_kept(shown.out, shown.err)
    assert {path.name for path in Path().iterdir()} == {"d.yaml"}


@pytest.mark.parametrize("path", [URI, Path(URI)])
def test_a_url_is_no_place_of_a_fit(path):
    with pytest.raises(DpcaError, match="store is a URL") as caught:
        PCA(n_components=2, store=path).fit(X)
    with pytest.raises(DpcaError, match="path is a URL") as other:
        PCA(n_components=2).fit(X).save(path)
    with pytest.raises(DpcaError, match="the result is a URL") as third:
        open_gram(path)
    with pytest.raises(DpcaError, match="the result is a URL") as fourth:
        PCA.load(path)
    assert_kept(*(str(one.value) for one in (caught, other, third, fourth)))
    assert not list(Path().iterdir())


def test_a_config_that_is_begun_has_the_url_that_it_needs_but_names_no_folder_by_it(capsys):
    """It is the one place that credentials may stand in."""
    uri = "memory://user:s3cr3t@bucket"
    zarr.create_array(uri, data=X, overwrite=True)
    assert dpca("init", uri) == 0
    assert [line for line in capsys.readouterr().out.splitlines() if "s3cr3t" in line] == [f'  uri: "{uri}"']
