"""Data, or a fit, that are replaced while a command reads them: nothing is published of both, and the command can be given again.

One table: every command that reads, and everything that may change after it has read, or only while it did.
"""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import zarr

from dpca import KernelPCA, open_gram
from dpca.analyses.kept import SourceResults
from dpca.commands import apply, run
from dpca.errors import DataError
from dpca.execution.stage import Runner
from dpca.methods.projectors import FromTraining
from dpca.sources.base import Reader
from tests import crossings
from tests.commands.calls import dpca
from tests.made import made
from tests.stores import random_array


def fits():
    """Data, and fits of them."""
    for name, n in (("x", 12), ("new", 4)):
        zarr.create_array(f"{name}.zarr", data=random_array(n, (n, 40), "f8"), chunks=(n, 10), compressors=None)
    model = {
        "c": "{n_components: 3}",
        "k": "{kind: kernel_pca, kernel: rbf, gamma: 0.01, n_components: 3, fit_inverse_transform: true}",
    }
    for name, dosages in (("x", crossings.dosages()[:6]), ("new", crossings.dosages()[6:])):
        crossings.bed(dosages, name)
    for config, made_there in (("c", "fit"), ("k", "kernels"), ("b", "people")):
        uri = "x.bed" if config == "b" else "x.zarr"
        Path(f"{config}.yaml").write_text(
            f"input: {{uri: {uri}}}\nmodel: {model.get(config, model['c'])}\noutput: {{path: r, report: false}}\n"
        )
        assert dpca("run", f"{config}.yaml", "--set", f"output.path={made_there}") == 0
    Path("d.yaml").write_text(
        "from: fit\nanalyses: [{name: a, model: {kind: pca, n_components: 2}}]\ncomponents: true\n"
        "output: {path: d, report: false}\n"
    )


COMMANDS = {
    "run": (run, "_decompose", "run c.yaml", "x.zarr", "r"),
    "extend": (run, "_decompose", "extend fit new.zarr --output r", "new.zarr", "r"),
    "transform": (apply, "_project", "transform fit new.zarr --out t.zarr", "new.zarr", "t.zarr"),
    "transform by a kernel": (apply, "_project", "transform kernels new.zarr --out t.zarr", "x.zarr", "t.zarr"),
    "reconstruct by a kernel": (FromTraining, "restore", "reconstruct kernels --out t.zarr", "x.zarr", "t.zarr"),
    "derive": (SourceResults, "make_maps", "derive d.yaml", "x.zarr", "d"),
    "run of a .bed": (run, "_decompose", "run b.yaml", "x.bed", "r"),
    "transform of a .bed": (apply, "_project", "transform people new.bed --out t.zarr", "new.bed", "t.zarr"),
}
"""What reads, in which room; the command; the data that it reads; what it makes."""


def a_chunk(data, read):
    done = read()
    array = zarr.open_array(data, mode="r+")
    array[:, 10:20] = array[:, 10:20] + 1
    return done


def before_it_is_read(data, read):
    """After the command has looked whether the data are those of the fit."""
    a_chunk(data, lambda: None)
    return read()


def for_a_while(data, read):
    """A chunk is another one during the read, and as before, its time included, before and after."""
    chunk = Path(data) / "c" / "0" / "1"
    before, content = os.stat(chunk), chunk.read_bytes()
    chunk.write_bytes(content[8:16] + content[:8] + content[16:])
    done = read()
    chunk.write_bytes(content)
    os.utime(chunk, ns=(before.st_atime_ns, before.st_mtime_ns))
    return done


def the_fit(_, read):
    """Another one is in its place, of equal shapes."""
    done = read()
    for fit in ("fit", "kernels"):
        manifest = Path(fit, "manifest.json")
        manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "run": "b" * 32}))
    return done


def the_table(data, read):
    """Names of variants beside the genotypes, which no part of these tells of."""
    done, table = read(), Path(data).with_suffix(".bim")
    table.write_text(table.read_text().replace("rs1\t", "rs01\t"))
    return done


CHANGES = {
    "a chunk": a_chunk,
    "a chunk, before it is read": before_it_is_read,
    "a chunk, for a while": for_a_while,
    "the fit": the_fit,
    "the table beside": the_table,
}


def changes_of(command):
    if command.endswith(".bed"):
        return ["the table beside"]
    of_data = [change for change in CHANGES if change.startswith("a chunk")]
    if command == "transform":  # what it reads is what it tells of: there is nothing that it has to be the same as
        of_data.remove("a chunk, before it is read")
    # A run reads no fit, and an extension has read what it needs of it.
    return [*of_data, *(["the fit"] if command not in ("run", "extend") else [])]


@pytest.mark.parametrize(
    ("command", "change"), [(command, change) for command in COMMANDS for change in changes_of(command)]
)
def test_nothing_is_made_of_what_changed_meanwhile(command, change, monkeypatch, capsys):
    room, name, words, data, out = COMMANDS[command]
    made(fits)
    read = getattr(room, name)
    with monkeypatch.context() as patch:
        patch.setattr(room, name, lambda *given, **more: CHANGES[change](data, lambda: read(*given, **more)))
        assert dpca(*words.split()) in (1, 2)
    said = capsys.readouterr().err
    assert "defect" not in said
    assert ("was replaced while it was read" if change == "the fit" else "changed") in said
    assert not (Path(out) / ("manifest.json" if out in ("r", "d") else "zarr.json")).exists()
    assert not Path(f".{out}.partial").exists()
    if change == "a chunk, for a while":
        assert dpca(*words.split(), *(["--overwrite"] if out == "r" else [])) == 0


@pytest.mark.parametrize("command", ["extend", "transform by a kernel", "reconstruct by a kernel", "derive"])
def test_training_data_that_changed_are_refused_before_they_are_read(command, monkeypatch, capsys):
    """A pass may take hours."""
    words = COMMANDS[command][2]
    made(fits)
    a_chunk("x.zarr", lambda: None)
    monkeypatch.setattr(Reader, "read", None)
    assert dpca(*words.split()) in (1, 2)
    said = capsys.readouterr().err
    assert "changed" in said
    assert "defect" not in said


IN_PYTHON = {
    "KernelPCA.transform": ("kernels", lambda fit: fit.transform(random_array(4, (4, 40), "f8"))),
    "KernelPCA.inverse_transform": ("kernels", lambda fit: np.asarray(fit.inverse_transform(np.ones((2, 3))))),
    "Analysis.components": ("fit", lambda fit: fit.pca(2).components()),
    "Analysis.transform": ("fit", lambda fit: fit.pca(2).transform(random_array(4, (4, 40), "f8"))),
}
"""What reads the training data again, by a kernel or by a kept Gram matrix."""


@pytest.mark.parametrize("when", ["before", "meanwhile"])
@pytest.mark.parametrize("call", IN_PYTHON)
def test_nothing_is_made_in_python_of_training_data_that_changed(call, when, monkeypatch):
    made(fits)
    name, use = IN_PYTHON[call]
    fit = (KernelPCA.load if name == "kernels" else open_gram)(name)
    use(fit)
    fit = (KernelPCA.load if name == "kernels" else open_gram)(name)
    if when == "before":
        a_chunk("x.zarr", lambda: None)
        monkeypatch.setattr(Reader, "read", None)  # a pass that may take hours is not begun
    else:
        run_stage, seen = Runner.run, []

        def reading(runner, stage):
            found = run_stage(runner, stage)
            if not seen:
                seen.append(a_chunk("x.zarr", lambda: None))
            return found

        monkeypatch.setattr(Runner, "run", reading)
    with pytest.raises(DataError, match="changed"):
        use(fit)


def test_a_kernel_fit_that_is_replaced_while_it_is_loaded_is_refused(monkeypatch):
    made(fits)
    adopt = KernelPCA._adopt

    def replacing(fit, *given, **more):
        adopt(fit, *given, **more)
        the_fit("", lambda: None)

    monkeypatch.setattr(KernelPCA, "_adopt", replacing)
    with pytest.raises(DataError, match="kernels: was replaced while it was read"):
        KernelPCA.load("kernels")
