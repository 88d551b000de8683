"""Each line of `dpca/estimators/peers.md`: what a call of another library becomes here, evaluated and compared (`make peers`)."""

import ast
import re
import shlex
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
import yaml
from pydantic import BaseModel

import dpca
from dpca.cli.app import commands
from dpca.config.schema import Config
from tests.peers import imported

pytestmark = pytest.mark.filterwarnings("ignore")
PAGE = Path(dpca.__file__).parent / "estimators" / "peers.md"
DIGITS = 10
K = 5
"""Components of all lines: the axis of an array that has as many is theirs, and no other is as long."""
SAME = {
    "mode": "component",
    "rotated_component": "component",
    "embedding": "lag",
    "n": "draw",
    "eigenvalue": "component",
}
"""Names of dimensions of others, and ours."""


@dataclass(frozen=True)
class Row:
    """A line of a table."""

    section: str
    theirs: str
    ours: str
    note: str

    @property
    def digits(self):
        found = re.search(r"To (\d+) digits\.", self.note)
        return int(found[1]) if found else DIGITS

    @property
    def up_to(self):
        """What a component may be multiplied by."""
        found = re.search(r"Up to (.*?)\.", self.note)
        return found[1] if found else None


def sections():
    """By name: the text of each section."""
    names, texts = zip(*re.findall(r"^## (.*)\n((?:(?!^## ).*\n)*)", PAGE.read_text(), re.MULTILINE), strict=True)
    return dict(zip(names, texts, strict=True))


def rows():
    """The lines of all tables, whose first two cells are code."""
    found = []
    for section, text in sections().items():
        lines = [line for line in text.splitlines() if line.startswith("|")]
        assert [line.count("|") for line in lines] == [4] * len(lines), section
        head, rule, *others = ([cell.strip() for cell in line.split("|")[1:-1]] for line in lines)
        assert (head[1:], rule) == (["dpca", "note"], ["---"] * 3), section
        assert others, section
        for theirs, ours, note in others:
            assert all(re.fullmatch("`[^`]+`", cell) for cell in (theirs, ours)), f"{theirs} | {ours}"
            found.append(Row(section, theirs[1:-1], ours[1:-1], note))
    return found


def code(section, language="python"):
    """The block of a section, which makes the objects of its lines."""
    (block,) = re.findall(rf"^```{language}\n(.*?)^```$", sections()[section], re.MULTILINE | re.DOTALL)
    return block


def walks(rng, n, d, mean):
    """Samples that follow each other, of a few directions of other strengths, and noise, far from zero, (n, d)."""
    strengths = np.array([8.0, 5.0, 3.0, 2.0, 1.2, 0.7, 0.4])
    return rng.standard_normal((n, 7)).cumsum(axis=0) * strengths @ rng.standard_normal((7, d)) + mean


def fields(seed):
    """Two fields of the same months, of other grids and units, one of them with land; and later months of the first."""
    rng = np.random.default_rng(seed)
    scores = walks(rng, 72, 20, 0.0)

    def field(name, mean, size, lat, lon):
        noise = rng.standard_normal((72, len(lat), len(lon)))
        values = mean + size * (np.tensordot(scores, rng.standard_normal((20, len(lat), len(lon))), axes=1) + noise)
        months = np.arange("2001-01", "2007-01", dtype="datetime64[M]").astype("datetime64[ns]")
        coordinates = {"time": months, "lat": ("lat", lat, {"units": "degrees_north"}), "lon": lon}
        return xr.DataArray(values, coordinates, ("time", "lat", "lon"), name)

    sst = field("sst", 280.0, 0.1, np.linspace(-75, 75, 9), np.arange(0, 360, 30.0))
    sst[:, 2:4, 6:9] = np.nan
    slp = field("slp", 1e5, 30.0, np.linspace(-60, 80, 8), np.arange(0, 330, 30.0))
    return {
        "data": sst[:60],
        "new": sst[60:],
        "pressure": slp[:60],
        "weights": np.sqrt(np.cos(np.deg2rad(sst.lat))).drop_vars("lat").expand_dims(lon=12).transpose("lat", "lon"),
    }


def matrices(seed):
    """Samples by features of other means and sizes, others of these, one with gaps, one sparse, and one of named columns."""
    sparse, rng = import_module("scipy.sparse"), np.random.default_rng(seed)
    sizes = 10.0 ** rng.uniform(-0.3, 0.7, 90)
    both = (walks(rng, 72, 90, 0.0) + rng.standard_normal((72, 90))) * sizes + 100 * sizes
    x, x_new = both[:60], both[60:]
    counts = rng.poisson(0.4, (60, 90)) * sizes
    pandas = imported("pandas")
    return {
        "x": x,
        "x_new": x_new,
        "y": x @ rng.standard_normal(90) + 50 * rng.standard_normal(60),
        "labels": np.arange(60) % 6,
        "gaps": np.where(rng.random(x.shape) < 0.05, np.nan, x),
        "sparse": sparse.csr_array(counts),
        "table": pandas.DataFrame(x, columns=[f"f{number}" for number in range(90)]),
    }


def cells(seed):
    """AnnData of 80 cells by 130 genes, of which some are highly variable, and a layer of other numbers."""
    anndata, rng = imported("anndata"), np.random.default_rng(seed)
    of_types = rng.gamma(1.0, 3.0, (8, 130))
    values = np.log1p(rng.poisson(of_types[rng.integers(0, 8, 80)] * rng.gamma(3.0, 1.0, (80, 1)))).astype("f4")
    adata = anndata.AnnData(values + np.float32(2), layers={"scaled": 10 * values**2})
    adata.var["highly_variable"] = values.var(axis=0) > np.median(values.var(axis=0))
    adata.var["few"] = np.arange(130) % 3 == 0
    return {"adata": adata}


def oscillating(seed):
    """Samples of two waves that grow and decay, and noise, beside others."""
    rng = np.random.default_rng(seed)
    maps = rng.standard_normal((2, 100)) + 1j * rng.standard_normal((2, 100))
    waves = (np.exp(np.outer(np.arange(60), [-0.01 + 1j, 0.005 + 0.35j])) @ maps).real
    return matrices(seed) | {"waves": waves + 0.1 * rng.standard_normal(waves.shape)}


SECTIONS = {
    "eofs": (fields, "eofs.xarray"),
    "xeofs": (fields, "xeofs"),
    "scikit-learn": (matrices, "pandas"),
    "scanpy": (cells, "scanpy"),
    "PySPOD": (matrices, "pyspod.spod.standard"),
    "PyDMD": (oscillating, "pydmd"),
}
"""What makes the data of a section whose lines are evaluated, and the package that it needs."""
COMMANDS = "plink2 and smartpca (commands)"
"""The section of commands and keys, whose lines are not."""
CHANGING = {"eofs", "scikit-learn", "scanpy"}
"""Sections in which a line changes objects, which are made anew for each."""


def namespace(section):
    """The objects of a section: small data, and what its code makes of them."""
    make, needed = SECTIONS[section]
    imported(needed)
    names = make(11)
    exec(code(section), names)
    return names


kept = cache(namespace)


def aligned(theirs, ours):
    """Both as arrays, with axes in the same order, and the axis of components; names and coordinates agree where both have them."""
    if not isinstance(theirs, xr.DataArray) or not isinstance(ours, xr.DataArray):
        theirs, ours = np.asarray(theirs), np.asarray(ours)
        axes = [axis for axis, length in enumerate(theirs.shape) if length == K]
        return theirs, ours, axes[0] if len(axes) == 1 else None
    theirs, ours = (one.rename({dim: SAME[dim] for dim in one.dims if dim in SAME}) for one in (theirs, ours))
    ours = ours.transpose(*theirs.dims)
    for dim in set(theirs.dims) & set(theirs.coords) & set(ours.coords) - {"component", "draw"}:
        np.testing.assert_array_equal(ours[dim], theirs[dim])
    axis = theirs.dims.index("component") if "component" in theirs.dims else None
    return theirs.values, ours.values, axis


def compare(row, theirs, ours):
    """Differences are small beside the largest value, of a vector of each component by itself."""
    theirs, ours, axis = aligned(theirs, ours)
    assert ours.shape == theirs.shape
    if theirs.dtype.kind not in "fc":
        assert ours.tolist() == theirs.tolist()
        return
    assert np.isfinite(theirs).any()
    assert row.up_to in (None, "sign", "a phase")
    if row.up_to is not None:
        assert axis is not None
        assert theirs.ndim > 1
        theirs, ours = (np.moveaxis(one, axis, 0).reshape(theirs.shape[axis], -1) for one in (theirs, ours))
        inner = np.nansum(ours.conj() * theirs, axis=1)
        if row.up_to == "sign":
            assert np.isrealobj(inner)
        ours = ours * (inner / np.abs(inner))[:, None]
        largest = np.nanmax(np.abs(theirs), axis=1, keepdims=True)
        theirs, ours = theirs / largest, ours / largest
    scale = np.nanmax(np.abs(theirs))
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=10.0**-row.digits * scale)


ROWS = rows()


@pytest.mark.parametrize(
    "row",
    [row for row in ROWS if row.section != COMMANDS],
    ids=lambda row: f"{row.section}: {row.theirs} | {row.ours}",
)
def test_a_line_gives_what_the_call_of_the_other_library_gives(row):
    names = (namespace if row.section in CHANGING else kept)(row.section)
    compare(row, *(eval(compile(ast.parse(cell, mode="eval"), cell, "eval"), names) for cell in (row.theirs, row.ours)))


def test_every_section_is_evaluated_but_the_one_of_commands():
    text, lines = PAGE.read_text(), [line for line in PAGE.read_text().splitlines() if line.startswith("|")]
    assert list(sections()) == [*SECTIONS, COMMANDS]
    assert len(lines) == len(ROWS) + 2 * len(sections())
    assert text.count("No counterpart:\n\n- ") == len(sections())
    assert {row.section for row in ROWS} == set(sections())
    ids = [(row.section, row.theirs, row.ours) for row in ROWS]
    assert len(set(ids)) == len(ids)


def test_every_public_name_is_on_the_page():
    """Attributes and methods of classes that lines replace one by one."""
    eofs, sk = imported("eofs.xarray"), import_module("sklearn.decomposition")
    x = np.random.default_rng(0).standard_normal((9, 5))
    fits = [sk.PCA().fit(x), sk.KernelPCA().fit(x), sk.IncrementalPCA().fit(x)]
    names = {"eofs": {*vars(eofs.Eof)}, "scikit-learn": {name for fit in fits for name in dir(fit)}}
    for section, some in names.items():
        said = {*re.findall(r"\w+", sections()[section])}
        assert sorted(name for name in some - said if not name.startswith("_")) == []


def known(value, keys):
    """Whether keys of a configuration, without those that it needs besides, are among those that there are."""
    for name, inner in value.items():
        assert name in keys.model_fields, name
        annotation = keys.model_fields[name].annotation
        inside = [one for one in (annotation, *getattr(annotation, "__args__", ())) if isinstance(one, type)]
        inside = [one for one in inside if issubclass(one, BaseModel)]
        if isinstance(inner, dict) and inside:
            known(inner, inside[0])


@pytest.mark.parametrize("row", [row for row in ROWS if row.section == COMMANDS], ids=lambda row: row.theirs)
def test_commands_and_keys_are_there_and_are_compared_by_a_test_that_is(row):
    tests = (Path(__file__).parents[1] / "genotypes" / "test_peers.py").read_text()
    for name in re.findall(r"\btest_\w+", row.note):
        assert f"def {name}(" in tests
    if row.ours.startswith("dpca "):
        _, command, *arguments = shlex.split(row.ours)
        options = {option for one in commands.commands[command].params for option in one.opts}
        assert {argument for argument in arguments if argument.startswith("--")} <= options
    elif ":" in row.ours:
        known(yaml.safe_load(row.ours), Config)
    else:
        assert row.ours in ("convention_eigenvalues", "scores", "components")


def test_the_configuration_of_the_section_of_commands_is_one():
    config = Config.model_validate(yaml.safe_load(code(COMMANDS, "yaml")))
    assert config.preprocess.scale.binomial == "plink2"


@pytest.mark.parametrize(
    "line",
    [
        "| `solver.eofs()` | components | as there |",
        "| solver.eofs() | `fit.components` | as there |",
        "| `solver.eofs()` | `fit.components` and `fit.scores` | |",
        "| `solver.eofs()` | `fit.components` |",
    ],
)
def test_a_line_that_is_not_evaluated_is_refused(line, monkeypatch, tmp_path):
    page = tmp_path / "peers.md"
    page.write_text(f"# A\n\n## eofs\n\n| eofs | dpca | note |\n| --- | --- | --- |\n{line}\n")
    monkeypatch.setattr("tests.estimators.test_peers.PAGE", page)
    with pytest.raises(AssertionError):
        rows()
