"""Every command and snippet of the documents runs."""

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from ruamel.yaml import YAML

from dpca import __version__
from dpca.analyses.config import load_derive
from dpca.config.loading import load

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


INSTALL = re.search(r"^```sh\n(.*pip install.*)\n```$", (ROOT / "README.md").read_text(), re.MULTILINE)[1]
"""The line of the README that installs dpca."""


OF_TESTS = ("PYTHONPATH", "PYTHONWARNINGS", "VIRTUAL_ENV")
"""Variables that a reader does not have; pip ends where its own warnings are errors."""


def environment(place):
    """What commands find that are run in a clone after the README's line, and nothing of the tests' own installation."""
    own = {name: value for name, value in os.environ.items() if name not in OF_TESTS}
    return {**own, "PATH": f"{place / '.venv' / 'bin'}:{own['PATH']}"}


@pytest.fixture(scope="module")
def fresh(tmp_path_factory):
    """A clone after the README's line and `make demo`, with less data: what the extras of that line lack is missing here."""
    place = tmp_path_factory.mktemp("fresh")
    for name in ("configs", "workflows", "dpca"):
        shutil.copytree(ROOT / name, place / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, place)
    for line in (INSTALL, ".venv/bin/dpca demo --samples 60 --features 150000"):
        done = subprocess.run(["bash", "-c", line], cwd=place, env=environment(place), capture_output=True, text=True)
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
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
    # Those that draw need matplotlib: they are targets of make, and have tests of their own.
    rest = [path for path in DOCUMENTS if path.parent != ROOT and not (path.parent / "draw.py").exists()]
    for block in blocks("", [ROOT / "README.md", *rest]):
        for line in commands(block.values[0]):
            done = subprocess.run(
                ["bash", "-c", line], cwd=fresh, env=environment(fresh), capture_output=True, text=True
            )
            assert done.returncode == 0, f"{block.id}: {line}\n{done.stdout}{done.stderr}"
    for block in blocks("python"):
        data = "import numpy\nx = numpy.random.default_rng(0).standard_normal((30, 200))\nnew = x[:3]\n"
        code = data + SST * ("results/sst" in block.values[0]) + block.values[0]
        python = [fresh / ".venv" / "bin" / "python", "-c", code]
        done = subprocess.run(python, cwd=fresh, env=environment(fresh), capture_output=True, text=True)
        assert done.returncode == 0, f"{block.id}: {done.stderr}"


def requirements(extras):
    """The distributions that dpca with these extras brings, by the names that the index has, as pyproject.toml now asks for them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"], *(line for extra in extras for line in project["optional-dependencies"][extra])]
    found, left = set(), [Requirement(line) for line in asked]
    while left:
        asked = left.pop()
        if (name := canonicalize_name(asked.name)) in found:
            continue
        found.add(name)
        with suppress(PackageNotFoundError):  # of another extra of the tests
            for line in requires(name) or []:
                further = Requirement(line)
                markers = [{"extra": extra} for extra in asked.extras or {""}]
                if further.marker is None or any(map(further.marker.evaluate, markers)):
                    left.append(further)
    return found


def imported(code):
    """The packages that a text of Python imports, those of modules of `workflows` included."""
    names = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names.add(node.module)
    packages = {name.partition(".")[0] for name in names} - {"dpca", "workflows"} - sys.stdlib_module_names
    return packages.union(*(imported_by(name) for name in names if name.startswith("workflows.")))


def imported_by(module):
    return imported(ROOT.joinpath(*module.split(".")).with_suffix(".py").read_text())


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_snippets_import_is_what_the_line_installs(document):
    """With the extras that the README's line has, and those that the document itself says are needed."""
    text, brought = document.read_text(), packages_distributions()
    needed = {}
    for kind, block in BLOCK.findall(text):
        if kind == "python":
            needed |= dict.fromkeys(imported(block), "a snippet")
        for module in re.findall(r"-m (workflows\.[\w.]+)", block):
            needed |= dict.fromkeys(imported_by(module), module)
    said = {
        extra
        for line in re.findall(r"pip install [^\n]*?'\.\[([\w,]+)\]'", f"{INSTALL}\n{text}")
        for extra in line.split(",")
    }
    there = requirements(said)
    missing = {
        package: where
        for package, where in needed.items()
        if not there & {canonicalize_name(name) for name in brought.get(package, [package])}
    }
    assert not missing, f"not in the extras {', '.join(sorted(said))}"


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
