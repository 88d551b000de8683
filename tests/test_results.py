import json
import os

import pytest

from dpca.errors import OutputExistsError
from dpca.results import ResultDirectory


@pytest.fixture
def directory(tmp_path):
    return ResultDirectory(tmp_path / "r")


def built(directory, content, overwrite=False):
    directory.begin(overwrite)
    directory.staged_arrays.mkdir()
    (directory.staged_arrays / "zarr.json").write_text(content)
    return directory


def arrays(directory):
    return (directory.path / "result.zarr" / "zarr.json").read_text()


def test_a_result_appears_with_its_manifest(directory):
    built(directory, "new")
    assert os.listdir(directory.path) == ["ledger"]
    directory.publish({"verdict": "good"}, {"config": {}})
    assert sorted(os.listdir(directory.path)) == ["certificate.json", "manifest.json", "result.zarr"]
    assert json.loads((directory.path / "manifest.json").read_text())["format_version"] == 1


def test_a_result_is_not_replaced_unless_asked(directory):
    built(directory, "old").publish({}, {})
    with pytest.raises(OutputExistsError, match="holds a result already") as caught:
        directory.begin(False)
    assert "--overwrite" in caught.value.remedy
    built(directory, "new", overwrite=True)
    assert arrays(directory) == "old"  # until the new one is whole
    assert (directory.path / "manifest.json").exists()
    directory.publish({}, {})
    assert arrays(directory) == "new"


def test_an_unfinished_run_is_not_replaced_unless_asked(directory):
    built(directory, "half")
    with pytest.raises(OutputExistsError, match="holds an unfinished run"):
        directory.begin(False)
    directory.begin(True)
    assert not directory.staged_arrays.exists()


def test_a_failed_run_leaves_the_old_result(directory):
    built(directory, "old").publish({}, {})
    built(directory, "new", overwrite=True)
    directory.discard()
    assert arrays(directory) == "old"
    assert (directory.path / "manifest.json").exists()


@pytest.mark.parametrize("overwrite", [False, True])
def test_other_files_are_never_touched(directory, overwrite):
    directory.path.mkdir()
    (directory.path / "thesis.tex").write_text("x")
    with pytest.raises(OutputExistsError, match=r"holds other files \(thesis\.tex\)"):
        directory.begin(overwrite)
    assert os.listdir(directory.path) == ["thesis.tex"]


def test_a_file_in_the_place_of_the_directory(directory):
    directory.path.write_text("x")
    with pytest.raises(OutputExistsError, match="not a directory"):
        directory.begin(True)


@pytest.mark.parametrize("step", range(6))
def test_a_manifest_never_stands_beside_arrays_that_it_does_not_describe(directory, step, monkeypatch):
    """Publishing stops at each of its steps in turn."""
    built(directory, "old").publish({}, {"describes": "old"})
    built(directory, "new", overwrite=True)
    steps = iter(range(100))

    class Stop(Exception):
        pass

    def stopping(function):
        def wrapped(*arguments, **options):
            if next(steps) == step:
                raise Stop
            return function(*arguments, **options)

        return wrapped

    monkeypatch.setattr("pathlib.Path.unlink", stopping(type(directory.path).unlink))
    monkeypatch.setattr("shutil.rmtree", stopping(__import__("shutil").rmtree))
    monkeypatch.setattr("os.replace", stopping(os.replace))
    with pytest.raises(Stop):
        directory.publish({}, {"describes": "new"})
    manifest = directory.path / "manifest.json"
    if manifest.exists():
        assert json.loads(manifest.read_text())["describes"] == arrays(directory)
