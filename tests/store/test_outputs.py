"""Arrays of a result: what shows that they are whole, and processes that end while they are written again in larger chunks."""

from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import zarr

from dpca.errors import StorageError
from dpca.store.meanings import IN_INNER_PRODUCT
from dpca.store.outputs import Outputs, pending_name
from dpca.store.stored import Arrays
from dpca.store.synced import SyncedStore
from dpca.system import durable
from tests.stores import random_array

VALUES = random_array(0, (3, 40), "f8")


def written(place):
    """Components in the chunks of a plan, as a run makes them, or finds them when it goes on."""
    outputs = Outputs(SyncedStore(place / "r"))
    outputs.create({})
    outputs.create_array("components", (3, 40), (3, 10), "f8", ("component", "x"))
    return outputs


@pytest.mark.parametrize("ends_before", ["array", "rename", "move"])
def test_a_process_that_ends_while_chunks_are_merged_is_gone_on_with(ends_before, tmp_path, monkeypatch):
    outputs = written(tmp_path)
    for start in range(0, 40, 10):
        outputs.write_part("components", (slice(start, start + 10),), VALUES[:, start : start + 10])
    array = outputs.array

    def end(*given):
        if ends_before != "array" or "components_~in_other_chunks" in given:
            raise KeyboardInterrupt
        return array(*given)

    with monkeypatch.context() as patch:
        patch.setattr(durable if ends_before == "move" else outputs, ends_before, end)
        with pytest.raises(KeyboardInterrupt):
            outputs.gather()
    again = written(tmp_path)
    again.gather()
    again.finish()
    inventory = again.inventory(finished=True)
    assert [name for name in inventory if name.startswith("components")] == ["components"]
    assert again.array("components").chunks == (3, 40)
    np.testing.assert_array_equal(again.array("components")[...], VALUES)


@pytest.mark.parametrize("unit", [None, "K"])
@pytest.mark.parametrize("attributes", [{}, IN_INNER_PRODUCT, {"units": "m", "long_name": "maps"}])
def test_arrays_that_are_merged_and_copied_keep_their_attributes(tmp_path, unit, attributes):
    """Also that their unit is not known: it would be said anew, and a resumed run would take the metadata for damaged."""
    outputs = Outputs(SyncedStore(tmp_path / "r"))
    outputs.create({})
    outputs.unit = unit
    outputs.create_array("components", (3, 40), (3, 10), "f8", ("component", "x"), attributes=attributes)
    outputs.write_part("components", (slice(0, 40),), VALUES)
    before, digest = dict(outputs.array("components").attrs), outputs.metadata_of(["components"])
    left = tmp_path / "r" / pending_name("components", "components after pass 2") / "c" / "0" / "0"
    left.parent.mkdir(parents=True)
    left.touch()  # by a process that was killed while it removed the array, and its metadata first
    outputs.gather()
    assert not left.parents[2].exists()
    assert outputs.array("components").chunks == (3, 40)
    np.testing.assert_array_equal(outputs.metadata_of(["components"]), digest)
    copied = Outputs(SyncedStore(tmp_path / "copied"))
    copied.create({})
    copied.copy("components", Arrays(str(tmp_path / "r"), "r", None)["components"])
    assert dict(copied.array("components").attrs) == before


def intact(place):
    """Components as they are after `gather`; returns the folder of the group."""
    outputs = written(place)
    for start in range(0, 40, 10):
        outputs.write_part("components", (slice(start, start + 10),), VALUES[:, start : start + 10])
    outputs.gather()
    outputs.finish()
    return place / "r"


def test_every_flipped_byte_of_a_chunk_is_found_or_harmless(tmp_path):
    chunk = intact(tmp_path) / "components" / "c" / "0" / "0"
    content, found = chunk.read_bytes(), 0
    for at in range(len(content)):
        chunk.write_bytes(content[:at] + bytes([content[at] ^ 0x10]) + content[at + 1 :])
        outputs = Outputs(SyncedStore(tmp_path / "r"))
        if outputs.damage("components") is None:
            np.testing.assert_array_equal(outputs.array("components")[...], VALUES)
        else:
            found += 1
    assert found > len(content) / 2
    assert "components" in outputs.damage_of_any()


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_a_chunk_that_is_gone_is_found_whatever_was_in_it(tmp_path, value):
    outputs = written(tmp_path)
    for start in range(0, 40, 10):
        outputs.write_part("components", (slice(start, start + 10),), np.full((3, 10), value))
    outputs.write("scores", np.full((3, 2), value), ("sample", "component"))
    outputs.finish()
    assert outputs.damage_of_any() is None
    assert outputs.inventory(finished=True)["components"]["chunks_written"] == 4
    (tmp_path / "r" / "components" / "c" / "0" / "2").unlink()
    assert "components/c/0/2 is gone" in outputs.damage_of_any()
    with pytest.raises(StorageError, match="r/components: 1 of its 4 chunks are gone"):
        outputs.inventory(finished=True)


def cut(chunk):
    chunk.write_bytes(chunk.read_bytes()[:-1])


@pytest.mark.parametrize(("spoil", "said"), [(Path.unlink, "components/c/0/2 is gone"), (cut, "can't be read back")])
def test_chunks_that_are_lost_before_they_are_merged_are_not_taken_for_zeros(tmp_path, spoil, said):
    outputs = written(tmp_path)
    for start in range(0, 40, 10):
        outputs.write_part("components", (slice(start, start + 10),), VALUES[:, start : start + 10])
    spoil(tmp_path / "r" / "components" / "c" / "0" / "2")
    with pytest.raises(StorageError, match=f"{said}.*\n.*computed again"):
        outputs.gather()
    assert outputs.array("components").chunks == (3, 10)


@pytest.mark.parametrize(
    "spoil", [cut, lambda path: path.write_text(""), lambda path: path.write_text("{}"), Path.unlink]
)
def test_a_finished_group_that_is_damaged_before_it_is_published_is_an_error(tmp_path, spoil):
    """It would be published without its arrays, as none of them could be listed."""
    spoil(intact(tmp_path) / "zarr.json")
    with pytest.raises(StorageError, match=r"can't be listed.*\n.*computed again"):
        Outputs(SyncedStore(tmp_path / "r")).inventory(finished=True)


def test_a_copy_with_damage_does_not_take_the_place_of_an_array_that_is_gone(tmp_path):
    group = intact(tmp_path)
    (group / "components").rename(group / "components_~in_other_chunks")
    (group / "components_~in_other_chunks" / "c" / "0" / "0").write_bytes(b"damage")
    outputs = written(tmp_path)
    assert outputs.inventory()["components"]["chunks_written"] == 0


@pytest.mark.parametrize("name", ["", "inside"])
def test_a_group_whose_metadata_are_damaged_is_made_again_around_its_arrays(tmp_path, name):
    group, about = intact(tmp_path), {"format_version": 2, "a": 1}

    def made():
        again = Outputs(SyncedStore(group))
        again.create({"a": 1})
        again.create_group("inside", about)
        return again

    made()
    whole = (group / name / "zarr.json").read_text()
    assert dict(zarr.open_group(group / name, mode="r").attrs) == about
    node = '{"zarr_format": 3, "node_type": "group", "attributes": 7}'
    for content in ("", "{", "[]", node, whole.replace("zarr_", "zqrr_"), whole.replace('"a"', '"b"')):
        (group / name / "zarr.json").write_text(content)
        np.testing.assert_array_equal(made().array("components")[...], VALUES)
        assert (group / name / "zarr.json").read_text() == whole
    (group / name / "zarr.json").unlink()
    made()
    assert (group / name / "zarr.json").read_text() == whole


def test_a_part_that_is_gone_is_not_read_as_zeros_unless_it_may_never_have_been_written(tmp_path):
    outputs, region = written(tmp_path), (slice(0, 10),)
    np.testing.assert_array_equal(outputs.read_part("components", region, unwritten=True), np.zeros((3, 10)))
    outputs.write_part("components", region, VALUES[:, :10])
    np.testing.assert_array_equal(outputs.read_part("components", region), VALUES[:, :10])
    (tmp_path / "r" / "components" / "c" / "0" / "0").unlink()
    with pytest.raises(StorageError, match="components/c/0/0 is gone"):
        outputs.read_part("components", region)


def test_a_copied_array_has_nothing_of_the_one_that_it_replaces(tmp_path):
    outputs, one = written(tmp_path), Outputs(SyncedStore(tmp_path / "one"))
    outputs.write_part("components", (slice(30, 40),), VALUES[:, 30:])
    one.create({})
    one.write("components", VALUES[:, :10], ("component", "x"))
    one.finish()
    outputs.copy("components", Arrays(one.root, "one", None)["components"])
    assert outputs.inventory()["components"]["chunks_written"] == 1
    np.testing.assert_array_equal(outputs.array("components")[...], VALUES[:, :10])


def test_an_array_that_nobody_wrote_is_copied_as_such(tmp_path):
    """Such as the means of data that are not centred: all of it is the fill value, in no chunk."""
    outputs, other = written(tmp_path), written(tmp_path / "other")
    outputs.write_part("components", (slice(30, 40),), VALUES[:, 30:])
    outputs.copy("components", Arrays(str(tmp_path / "other" / "r"), "other", other.inventory())["components"])
    assert outputs.inventory()["components"] == other.inventory()["components"]


def test_parts_of_chunks_that_tasks_share_are_written_under_the_guard(tmp_path, monkeypatch):
    held, write = [], zarr.Array.__setitem__

    @contextmanager
    def guard():
        held.append(True)
        yield
        held.pop()

    def writing(array, region, values):
        assert held
        write(array, region, values)

    outputs = written(tmp_path).guarded_by(guard())
    monkeypatch.setattr(zarr.Array, "__setitem__", writing)
    outputs.write_part("components", (slice(0, 10),), VALUES[:, :10])
    assert held == []
