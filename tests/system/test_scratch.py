"""The folder of a copy of the input is one run's, which alone removes it."""

import os
from pathlib import Path

import pytest

from dpca.errors import OutputExistsError, StorageError
from dpca.system import durable
from dpca.system.scratch import ScratchFolder


def test_a_folder_that_another_run_made_is_neither_used_nor_removed():
    others = ScratchFolder.of("fast", "a" * 32, "/out/r")
    others.make()
    Path(others.copy).mkdir()
    mine = ScratchFolder(others.path, "b" * 32, "/out/r")
    with pytest.raises(StorageError, match="is there already, and is not of this run"):
        mine.make()
    mine.remove()
    assert Path(others.copy).is_dir()
    others.make()  # as a run that goes on
    others.remove()
    assert os.listdir("fast") == []


@pytest.mark.parametrize("whose", ["a link", "no directory", "another user's"])
def test_a_place_that_others_can_write_is_no_place_of_ones_own(monkeypatch, whose):
    Path("theirs").mkdir()
    if whose == "a link":
        Path("mine").symlink_to("theirs")
    elif whose == "no directory":
        Path("mine").touch()
    else:
        Path("mine").mkdir()
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(OutputExistsError, match=f"mine: is {whose}, where a copy would be kept"):
        durable.make_own(Path("mine"), "a copy", "Remove it.")
    assert Path("theirs").stat().st_mode & 0o777 != durable.OWN_DIRECTORY
