"""Every command and snippet of the documents runs."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from dpca import __version__
from dpca.config.loading import load, load_derive

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted(
    path
    for path in [*ROOT.glob("**/README.md"), ROOT / "configs" / "derive.md"]
    if not any(part[0] == "." for part in path.relative_to(ROOT).parts)
)
SST = """
import subprocess, sys
import xarray
dates = numpy.arange("1979-01", "2015-01", dtype="datetime64[M]").astype("datetime64[ns]")
months = numpy.random.default_rng(1).standard_normal((len(dates), 20, 40)).cumsum(axis=0)
sst = xarray.DataArray(months, dims=("time", "lat", "lon"), coords={"time": dates}, name="sst")
sst.to_dataset().to_zarr("sst.zarr", zarr_format=3, consolidated=False)
open("sst.yaml", "w").write("input: {uri: sst.zarr, array: sst, samples_axis: time}\\noutput: {path: results/sst, report: false}")
subprocess.run([sys.executable, "-m", "dpca", "run", "sst.yaml"], check=True)
new = sst.isel(time=[-1, -11, -12]).assign_coords(time=dates[[-1, -11, -12]] + numpy.timedelta64(365, "D"))
"""
"""What makes the result that an example opens, and new samples for it."""
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(kind, documents=DOCUMENTS):
    return [
        pytest.param(text, id=f"{path.relative_to(ROOT)}-{number}")
        for path in documents
        for number, (name, text) in enumerate(BLOCK.findall(path.read_text()))
        if name == kind
    ]


@pytest.fixture(scope="module")
def fresh(tmp_path_factory):
    """A clone after `make demo`, with less data."""
    place = tmp_path_factory.mktemp("fresh")
    (place / ".venv").symlink_to(Path(sys.executable).parents[1])
    for name in ("configs", "workflows"):
        shutil.copytree(ROOT / name, place / name, ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "-m", "dpca", "demo", "--samples", "60", "--features", "150000"]
    subprocess.run(command, cwd=place, check=True, capture_output=True)
    return place


def commands(text):
    """The lines that run here: what make does has its own tests, what is submitted needs a Slurm."""
    for line in text.splitlines():
        if line.startswith("make ") or ("submit" in line and "--dry-run" not in line):
            continue
        if "--index 0" in line:  # "and 1, 2, 3"
            for index in range(4):
                yield line.partition(" #")[0].replace("--index 0", f"--index {index}")
        else:
            yield line


@pytest.mark.long
def test_commands_run_one_after_the_other(fresh):
    path = f"{fresh / '.venv' / 'bin'}:{os.environ['PATH']}"
    # Those that draw need matplotlib: they are targets of make, and have tests of their own.
    rest = [path for path in DOCUMENTS if path.parent != ROOT and not (path.parent / "draw.py").exists()]
    for block in blocks("", [ROOT / "README.md", *rest]):
        for line in commands(block.values[0]):
            done = subprocess.run(
                ["bash", "-c", line], cwd=fresh, env={**os.environ, "PATH": path}, capture_output=True, text=True
            )
            assert done.returncode == 0, f"{block.id}: {line}\n{done.stdout}{done.stderr}"
    for block in blocks("python"):
        data = "import numpy\nx = numpy.random.default_rng(0).standard_normal((30, 200))\nnew = x[:3]\n"
        code = data + SST * ("results/sst" in block.values[0]) + block.values[0]
        done = subprocess.run([sys.executable, "-c", code], cwd=fresh, capture_output=True, text=True)
        assert done.returncode == 0, f"{block.id}: {done.stderr}"


def test_the_snippet_prints_what_the_readme_shows():
    text = (ROOT / "README.md").read_text()
    snippet, _, shown = BLOCK.search(text[text.index("```python") :])[2].partition("# prints ")
    done = subprocess.run([sys.executable, "-c", snippet], capture_output=True, text=True)
    assert done.stdout == shown, done.stderr


def test_what_is_cited_is_this_version():
    assert f"version = {{{__version__}}}" in (ROOT / "README.md").read_text()


@pytest.mark.parametrize("text", blocks("yaml"))
def test_configs_are_valid(text):
    values = YAML(typ="safe").load(text)
    derived = "from" in values
    values = {**({} if derived else {"input": {"uri": "x.zarr"}}), "output": {"path": "r"}, **values}
    with open("c.yaml", "w") as file:
        YAML(typ="safe").dump(values, file)
    (load_derive if derived else load)("c.yaml")
