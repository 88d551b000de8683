import errno
import json
import os
import shutil
from dataclasses import replace

import numpy as np
import pytest
import zarr

from dpca import PCA
from dpca.commands.prepare import settled_of
from dpca.errors import DataError, InputError, LedgerError, OutputExistsError, StorageError, writing
from dpca.planning.runplan import Settled, SettledInput
from dpca.slabs import make_plan
from dpca.store import unfinished
from dpca.store.applied import applied_at
from dpca.store.directory import ResultDirectory, certificate_at, manifest_at, read_status
from dpca.store.names import names_along
from dpca.store.outputs import Outputs
from dpca.store.results import Result, open_result, save_result
from dpca.store.stored import Arrays
from dpca.store.unfinished import NUMERICS, Begun
from dpca.system import durable
from dpca.system.scratch import ScratchFolder
from tests.stores import random_array

SETTLED = Settled((SettledInput(make_plan((3, 4), 8, (3, 4)), "columns", None),), (), (), 1)


@pytest.fixture
def directory(tmp_path):
    return ResultDirectory(tmp_path / "r")


def commit(directory, verdict, manifest):
    directory.commit({"verdict": verdict}, manifest, Outputs(str(directory.staged_arrays(manifest["run"]))))


def write_group(path, content):
    outputs = Outputs(str(path))
    outputs.create({"content": content})
    outputs.finish()


def built(directory, content):
    """A run that has ended but for its publication; returns its word."""
    begun = Begun.now({"n": 1}, {"uri": "x"}, SETTLED.as_json())
    directory.begin(begun)
    write_group(directory.staged_arrays(begun.run), content)
    commit(directory, content, {"run": begun.run, "describes": content})
    return begun.run


def arrays(directory):
    metadata = json.loads((directory.path / "result.zarr" / "zarr.json").read_text())
    return metadata["attributes"]["content"]


def test_a_result_appears_with_its_manifest(directory):
    built(directory, "new")
    assert os.listdir(directory.path) == ["ledger"]
    directory.publish()
    assert sorted(os.listdir(directory.path)) == ["certificate.json", "manifest.json", "result.zarr"]
    assert json.loads((directory.path / "manifest.json").read_text())["format_version"] == 2


def test_a_ledger_is_kept_where_asked_and_is_no_unfinished_run(directory):
    run = built(directory, "new")
    assert directory.kept() is None
    directory.publish(keep_ledger=True)
    assert directory.kept().run == run
    assert directory.unfinished() is None


def test_a_result_is_not_replaced_unless_asked(directory):
    built(directory, "old")
    directory.publish()
    with pytest.raises(OutputExistsError, match="holds a result already") as caught:
        directory.check_free(False)
    assert "--overwrite" in caught.value.remedy
    directory.check_free(True)
    (directory.path / "report.html").write_text("of the old one")
    built(directory, "new")
    assert arrays(directory) == "old"  # until the new one is whole
    assert (directory.path / "manifest.json").exists()
    directory.publish()
    assert arrays(directory) == "new"
    assert not (directory.path / "report.html").exists()


def test_an_unfinished_run_is_not_replaced_unless_asked(directory):
    run = built(directory, "half")
    with pytest.raises(OutputExistsError, match="holds an unfinished run"):
        directory.check_free(False)
    directory.check_free(True)
    assert directory.unfinished().run == run
    assert settled_of(directory.unfinished(), directory) == SETTLED
    directory.begin(Begun.now({}, {}, SETTLED.as_json()))
    assert not directory.staged_arrays(run).exists()


def test_a_run_that_is_discarded_takes_its_copy_of_the_input_with_it(directory, tmp_path):
    scratch = ScratchFolder.of(tmp_path / "fast", "a" * 32, directory.path)
    scratch.make()
    directory.begin(replace(Begun.now({}, {}, SETTLED.as_json()), run="a" * 32, scratch=str(scratch.path)))
    directory.begin(Begun.now({}, {}, SETTLED.as_json()))
    assert not scratch.path.exists()


def test_a_result_is_not_declared_any_more_where_its_run_goes_on_with_another_config(directory):
    built(directory, "old")
    begun = directory.unfinished()
    assert directory.committed(begun) is not None
    directory.change(replace(begun, config={"n": 2}))
    assert directory.committed(directory.unfinished()) is None


def test_what_another_run_declared_is_not_published(directory):
    built(directory, "old")
    assert directory.committed(Begun.now({}, {}, SETTLED.as_json())) is None


@pytest.mark.parametrize("inside", ["", "word", "word/parts"])
def test_a_ledger_that_leads_elsewhere_is_refused(directory, tmp_path, inside):
    place = directory.ledger / inside
    place.parent.mkdir(parents=True)
    place.symlink_to(tmp_path)
    with pytest.raises(OutputExistsError, match="is a link, where dpca writes and removes files of its own"):
        directory.check_no_links()


def test_what_killed_workers_had_half_written_is_no_part_of_a_result(directory):
    begun = Begun.now({}, {}, SETTLED.as_json())
    directory.begin(begun)
    staged = directory.staged_arrays(begun.run)
    write_group(staged, "new")
    (staged / ".c.partial").touch()
    commit(directory, "new", {"run": begun.run})
    (directory.path / ".manifest.json.partial").touch()
    directory.publish()
    assert os.listdir(directory.path / "result.zarr") == ["zarr.json"]
    assert sorted(os.listdir(directory.path)) == ["certificate.json", "manifest.json", "result.zarr"]


def test_a_failed_run_leaves_the_old_result(directory):
    built(directory, "old")
    directory.publish()
    built(directory, "new")
    directory.discard()
    assert arrays(directory) == "old"
    assert (directory.path / "manifest.json").exists()


@pytest.mark.parametrize("overwrite", [False, True])
def test_other_files_are_never_touched(directory, overwrite):
    directory.path.mkdir()
    (directory.path / "thesis.tex").write_text("x")
    with pytest.raises(OutputExistsError, match=r"holds other files \(thesis\.tex\)"):
        directory.check_free(overwrite)
    assert os.listdir(directory.path) == ["thesis.tex"]


@pytest.mark.parametrize("name", ["ledger/accounts.txt", "result.zarr/thesis.txt", "status.json", "manifest.json"])
def test_files_of_others_are_not_taken_for_its_own_by_their_names(directory, name):
    path = directory.path / name
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    with pytest.raises(OutputExistsError, match="holds other files"):
        directory.check_free(True)


def test_a_file_in_the_place_of_the_directory(directory):
    directory.path.write_text("x")
    with pytest.raises(OutputExistsError, match="not a directory"):
        directory.check_free(True)


def test_a_place_that_can_not_be_looked_into(directory, monkeypatch):
    def refused(path):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(type(directory.path), "is_dir", refused)
    with pytest.raises(OutputExistsError, match="can't be looked into: Permission denied") as caught:
        directory.check_place()
    assert (caught.value.remedy, caught.value.key) == ("Choose another output.path.", "output.path")


@pytest.mark.parametrize(
    ("path", "reason", "remedy"),
    [
        ("nowhere/x", "its directory does not exist", "Make it, or write elsewhere."),
        (".", "it is a directory", "Name a file in it."),
        ("file/x", "what should be its directory is a file", "Write elsewhere."),
    ],
)
def test_why_a_file_can_not_be_written(tmp_path, path, reason, remedy):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError) as caught, writing(path):
        (tmp_path / path).write_text("x")
    assert str(caught.value) == f"{path}: could not be written: {reason}\n{remedy}"


@pytest.mark.parametrize(
    ("change", "said"),
    [({"format_version": 99}, "has format_version 99, but this dpca reads up to 2"), ({"run": None}, "is damaged")],
)
def test_a_manifest_of_a_later_version_or_without_its_run_is_not_read(directory, change, said):
    needed = {"config": {}, "input": {}, "asked": {}, "fingerprint": {}, "format_version": 2, "run": "a" * 32, **change}
    directory.path.mkdir()
    durable.write_json(directory.path / "manifest.json", {key: one for key, one in needed.items() if one is not None})
    with pytest.raises(InputError, match=said):
        manifest_at(directory.path)


def test_a_record_that_is_gone_with_half_of_its_ledger_is_no_unfinished_run(directory, monkeypatch):
    """The record goes first: what is left of a removal that was interrupted is not gone on with, and is tidied up."""
    built(directory, "old")
    directory.publish()
    built(directory, "new")
    remove = durable.remove
    monkeypatch.setattr(durable, "remove", lambda path: remove(path) if path != directory.ledger else 1 / 0)
    with pytest.raises(ZeroDivisionError):
        directory.discard()
    monkeypatch.undo()
    assert directory.unfinished() is None
    assert directory.ledger.exists()
    (directory.path / ".manifest.json.0123.partial").write_text("half")
    (directory.path / "result.zarr" / ".c.0123.partial").write_text("of somebody")
    directory.tidy()
    assert sorted(os.listdir(directory.path)) == ["certificate.json", "manifest.json", "result.zarr"]
    assert arrays(directory) == "old"
    assert ".c.0123.partial" in os.listdir(directory.path / "result.zarr")  # nothing says that it is dpca's


def test_a_ledger_that_can_still_be_gone_on_with_is_not_tidied_up(directory):
    directory.begin(begun := Begun.now({}, {}, SETTLED.as_json()))
    directory.tidy()
    assert directory.unfinished().run == begun.run


def test_a_ledger_that_is_kept_says_no_more_that_there_is_something_to_publish(directory):
    built(directory, "new")
    (directory.ledger / "batch.json").touch()
    directory.publish(keep_ledger=True)
    assert [name for name in os.listdir(directory.ledger) if name.endswith(".json")] == ["run.json"]


def test_a_run_that_goes_on_after_its_end_begins_with_the_arrays_of_its_result(directory):
    """Not with those of its last pass, nor with what a process left that was killed while it copied them."""
    run = built(directory, "old")
    for name in ("scores", "components", "weighted_components", "rotated_scores", "left_vectors"):
        (directory.staged_arrays(run) / name).mkdir()
        (directory.staged_arrays(run) / name / "c").write_text(name)
    commit(directory, "old", {"run": run})
    directory.publish(keep_ledger=True)
    staged = directory.staged_arrays(run)
    for left in (staged, staged.with_name(".result.zarr.partial")):
        (left / "stale").mkdir(parents=True)
        (left / "stale" / "c").write_text("of an earlier attempt")
    directory.reopen(replace(directory.kept(), config={"n": 2}))
    assert sorted(str(path.relative_to(staged)) for path in staged.rglob("*") if path.is_file()) == [
        "scores/c",
        "zarr.json",
    ]
    assert os.listdir(staged.parent) == ["result.zarr"]
    assert directory.unfinished().config == {"n": 2}
    assert arrays(directory) == "old"
    assert (directory.path / "result.zarr" / "components" / "c").exists()


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("r.nc", "such as r; dpca export r --to netcdf writes"),
        ("r.H5AD", "such as r; dpca export r --to anndata writes"),
        ("r.html", "such as r."),
    ],
)
def test_a_directory_is_not_called_as_files_of_other_formats_are(name, advice):
    with pytest.raises(OutputExistsError, match="is the name of a file, but a directory is made") as caught:
        ResultDirectory(name).check_place()
    assert advice in caught.value.remedy
    ResultDirectory("r.zarr").check_place()


DOCUMENTS = {
    "format_version": 2,
    "run": "a" * 32,
    "arrays": {},
    "from": {"a": "fit"},
    "config": {},
    "input": {},
    "asked": {},
    "fingerprint": {},
}
STATE = {"state": "done", "message": "", "stage": "", "host": "h", "pid": 1, "started": 0, "updated": 0}


@pytest.mark.parametrize(
    ("files", "kind", "said"),
    [
        ({"ledger": None}, "run", "its run has not ended well"),
        ({"status.json": STATE}, "run", "its run has not ended well"),
        ({"x": None}, "run", "is no result of dpca run"),
        ({"manifest.json": {**DOCUMENTS, "kind": "derived"}}, "run", "holds analyses derived from fit"),
        ({"manifest.json": {**DOCUMENTS, "kind": "derived"} | {"from": None}}, "derived", "is damaged"),
        ({"manifest.json": {"format_version": 2}}, "run", "is damaged"),
        ({"manifest.json": []}, "run", "is damaged"),
    ],
)
def test_what_is_no_result_is_said_to_be_what_it_is(directory, files, kind, said):
    directory.path.mkdir()
    for name, content in files.items():
        if content is None:
            (directory.path / name).mkdir()
        else:
            kept = (
                content if isinstance(content, list) else {key: one for key, one in content.items() if one is not None}
            )
            durable.write_json(directory.path / name, kept)
    with pytest.raises(InputError, match=said):
        manifest_at(directory.path, kind)


@pytest.mark.parametrize("read", [manifest_at, read_status])
def test_a_path_that_is_no_directory_is_said_to_be_none(tmp_path, read):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="file: is a file, and no result of dpca run"):
        read(tmp_path / "file")
    with pytest.raises(InputError, match="nothing: does not exist"):
        read(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("certificate", "said"),
    [
        ({"format_version": 99, "verdict": ""}, "has format_version 99, but this dpca reads up to 3"),
        ({"format_version": 3}, "is gone or damaged"),
        ({"verdict": ""}, "is gone or damaged"),
        (None, "is gone or damaged"),
    ],
)
def test_a_certificate_of_a_later_version_or_without_its_verdict_is_not_read(directory, certificate, said):
    directory.path.mkdir()
    if certificate is not None:
        durable.write_json(directory.path / "certificate.json", certificate)
    with pytest.raises(InputError, match=said):
        certificate_at(directory.path, "r")


@pytest.mark.parametrize(
    ("manifest", "said"),
    [
        ({**DOCUMENTS, "kind": "derived"}, "holds analyses that dpca derive has finished: no run"),
        (DOCUMENTS, "is a fit that was saved in Python: it has no run"),
        (None, "has no readable status.json"),
    ],
)
def test_the_status_of_what_has_none_is_said_to_be_so(directory, manifest, said):
    directory.path.mkdir()
    if manifest is not None:
        durable.write_json(directory.path / "manifest.json", manifest)
    with pytest.raises(InputError, match=said):
        read_status(directory.path)
    durable.write_json(directory.path / "status.json", {"state": "running"})
    with pytest.raises(InputError, match="derive has finished" if "derive" in said else "has no readable"):
        read_status(directory.path)


class Stop(Exception):
    pass


class Stopping(durable.Disk):
    """Stops at a step."""

    def __init__(self, step):
        self.left = step

    def __getattribute__(self, name):
        if not name.startswith("_") and name != "left":
            self.left -= 1
            if self.left < 0:
                raise Stop
        return super().__getattribute__(name)


def test_publication_can_be_ended_from_every_step_and_never_mixes_two_results(directory, monkeypatch):
    """Stopped at each of its steps in turn, and gone on with."""
    steps, done = 0, False
    while not done:
        built(directory, "old")
        directory.publish()
        run = built(directory, "new")
        monkeypatch.setattr(durable, "DISK", Stopping(steps))
        try:
            directory.publish()
            done = True
        except Stop:
            pass
        monkeypatch.undo()
        manifest = directory.path / "manifest.json"
        if manifest.exists():
            assert json.loads(manifest.read_text())["describes"] == arrays(directory)
        else:
            assert directory.unfinished().run == run
        if directory.unfinished() is not None:
            assert directory.committed(directory.unfinished())
            directory.publish()
        assert json.loads(manifest.read_text())["describes"] == arrays(directory) == "new"
        steps += 1
    assert steps > 15


RECORD = {"format_version": 3, "run": 32 * "a", "plan": SETTLED.as_json(), "config": {}, "input": {}, "scratch": ""}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"format_version": 99}, "its format_version is 99, not 3"),
        ({"numerics": None, "plan": None}, "KeyError"),
        ({"run": "../../../elsewhere"}, "run is '../../../elsewhere'"),
        ({"input": "x.npy"}, "its input is no mapping"),
        ({"config": [1]}, "its config is no mapping"),
        ({"config": {"model": 7}}, r"its config\.model is no mapping"),
    ],
)
def test_a_record_that_cannot_be_used_is_said_to_be_so(directory, change, said):
    directory.begin(Begun.now({}, {}, SETTLED.as_json()))
    record = {name: value for name, value in {**RECORD, "numerics": {}, **change}.items() if value is not None}
    durable.write_checked(directory.begun, record)
    with pytest.raises(LedgerError, match=said) as caught:
        directory.unfinished()
    assert "--overwrite" in caught.value.remedy


@pytest.mark.parametrize(
    "plan", [{}, {**SETTLED.as_json(), "attempts": [["gram_eigh", "nonsense"]]}, {**SETTLED.as_json(), "inputs": []}]
)
def test_a_plan_that_cannot_be_used_is_said_to_be_so(directory, plan):
    with pytest.raises(LedgerError, match="run.json: can't be used: its plan is none") as caught:
        settled_of(Begun.now({}, {}, plan), directory)
    assert "--overwrite" in caught.value.remedy


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"format_version": 3}'])
def test_a_record_that_is_damaged_is_said_to_be_so(directory, text):
    directory.begin(Begun.now({}, {}, SETTLED.as_json()))
    directory.begun.write_text(text)
    with pytest.raises(LedgerError, match="can't be used"):
        directory.unfinished()


def test_a_record_that_was_changed_is_found_at_every_byte(directory):
    directory.begin(Begun.now({"n": 1}, {"uri": "x"}, SETTLED.as_json()))
    content = directory.begun.read_bytes()
    for position, byte in enumerate(content):
        directory.begun.write_bytes(content[:position] + bytes([byte ^ 1]) + content[position + 1 :])
        try:
            found = directory.unfinished()
        except LedgerError:
            continue
        assert found.as_json() == json.loads(content)["document"]  # white space


def test_what_changed_is_named(directory):
    before = Begun.now({"model": {"ddof": 1}}, {"bytes": 5}, SETTLED.as_json())
    same = Begun.now({"model": {"ddof": 1}}, {"bytes": 5}, SETTLED.as_json())
    assert before.check(directory.path, same) == []
    with pytest.raises(LedgerError, match=r"the config changed since the run began: model.ddof: 1, now 0"):
        before.check(directory.path, Begun.now({"model": {"ddof": 0}}, {"bytes": 5}, SETTLED.as_json()))
    with pytest.raises(LedgerError, match=r"the input x changed since the run began: bytes: 5, now 6"):
        before.check(directory.path, Begun.now({"model": {"ddof": 1}}, {"bytes": 6, "uri": "x"}, SETTLED.as_json()))
    of_no_time = Begun.now({"model": {"ddof": 1}}, {"bytes": 5, "modified_ns": "noon"}, SETTLED.as_json())
    with pytest.raises(LedgerError, match="the file was written at some time, now at some time"):
        of_no_time.check(directory.path, same)
    before.numerics["version"] = 0
    with pytest.raises(LedgerError, match=f"the arithmetic changed since the run began: version: 0, now {NUMERICS}"):
        before.check(directory.path, same)
    with pytest.raises(LedgerError, match=f"begun by a version of dpca with other arithmetic \\(0, now {NUMERICS}\\)"):
        before.check_version(directory.path)
    before.numerics["version"], before.numerics["cpu"] = same.numerics["version"], {"architecture": ["Z80"]}
    (note,) = before.check(directory.path, same)
    assert "another kind of CPU" in note


@pytest.mark.parametrize("what", ["numpy", "blas"])
def test_another_library_of_arithmetic_is_named(directory, monkeypatch, what):
    before = Begun.now({}, {}, SETTLED.as_json())
    if what == "numpy":
        monkeypatch.setattr(np, "__version__", "0.1")
    else:
        monkeypatch.setattr(unfinished, "blas_libraries", lambda: [{"internal_api": "abacus", "version": "1"}])
    with pytest.raises(LedgerError, match=f"the arithmetic changed since the run began: {what}"):
        before.check(directory.path, Begun.now({}, {}, SETTLED.as_json()))


@pytest.fixture
def saved(tmp_path):
    """A fit that was saved."""
    return PCA(2).fit(random_array(0, (6, 8), "f8")).save(tmp_path / "fit")


def test_a_result_whose_arrays_are_gone_is_not_opened(saved):
    shutil.rmtree(saved / "result.zarr")
    with pytest.raises(InputError, match="fit: its result.zarr is gone"):
        open_result(saved)


def test_a_fit_is_not_saved_over_anything(saved, tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("nowhere")
    for place in (saved, tmp_path / "file", tmp_path / "link"):
        with pytest.raises(OutputExistsError, match=f"{place.name}: exists already"):
            PCA.load(saved).save(place)
    assert sorted(os.listdir(tmp_path)) == ["file", "fit", "link"]


def test_a_fit_that_is_replaced_while_it_is_copied_is_not_saved(saved, tmp_path, monkeypatch):
    finish = Outputs.finish

    def replacing(outputs):
        finish(outputs)
        manifest = json.loads((saved / "manifest.json").read_text())
        (saved / "manifest.json").write_text(json.dumps({**manifest, "run": "b" * 32}))

    with monkeypatch.context() as patch:
        patch.setattr(Outputs, "finish", replacing)
        with pytest.raises(DataError, match="fit: was replaced while it was read"):
            save_result(open_result(saved), tmp_path / "copy", {})
    assert os.listdir(tmp_path) == ["fit"]


def test_scores_that_are_replaced_while_they_are_read_are_refused(tmp_path):
    place = tmp_path / "t.zarr"
    for number in range(2):
        zarr.create_group(place, overwrite=True, attributes={"result": "fit"}).create_array(
            "scores", data=np.full((3, 2), float(number)), dimension_names=("sample", "component")
        )
        if number == 0:
            opened = applied_at(place)
            opened.check_still()
            place.rename(tmp_path / "aside.zarr")
    with pytest.raises(DataError, match="was replaced while it was read"):
        opened.check_still()
    shutil.rmtree(place)
    with pytest.raises(DataError, match="was replaced while it was read"):
        opened.check_still()


@pytest.mark.parametrize(
    ("units", "calendar", "values", "names"),
    [
        ("days since 1980-01-15", None, [0.0, 30.0, 366.0], ["1980-01-15", "1980-02-14", "1981-01-15"]),
        ("hours since 1900-01-01 00:00:00", "gregorian", [6, 24], ["1900-01-01T06:00:00", "1900-01-02T00:00:00"]),
        ("minutes since 2000-1-1T12:30", "proleptic_gregorian", [90], ["2000-01-01T14:00:00"]),
        ("days since 2000-01-01", "of the moon", [60, 61.5], ["60", "61.5"]),
        ("months since 1980-01-15", None, [3], ["3"]),
        ("degrees_north", None, [3.5], ["3.5"]),
    ],
)
def test_names_along_time_are_dates(units, calendar, values, names):
    store = {}
    group = zarr.create_group(store)
    array = group.create_array("time", data=np.array(values), dimension_names=("time",))
    array.attrs["units"] = units
    if calendar:
        array.attrs["calendar"] = calendar
    result, numbers = Result(None, {}, Arrays(store, "r", None), "r"), range(len(values))
    assert names_along(result, "time", numbers) == names
    assert names_along(result, "time", numbers[::-1]) == names[::-1]
