"""Arrays of a result that are written again in larger chunks, and processes that end before they are."""

import numpy as np
import pytest

from dpca.store.outputs import Outputs
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
        if ends_before != "array" or "components_in_other_chunks" in given:
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
