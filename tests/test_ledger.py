"""The ledger: parts that are whole, or known not to be."""

import numpy as np
import pytest

from dpca.ledger import Damaged, Ledger


def test_every_flipped_byte_of_a_part_is_found_or_harmless(tmp_path):
    said = []
    stage = Ledger(tmp_path / "parts", "run", 10**9, said.append).stage("gram")
    value = np.arange(6.0).reshape(2, 3)
    stage.keep(0, value)
    path = tmp_path / "parts" / "gram" / "0.npz"
    content = path.read_bytes()
    found = 0
    for position in range(len(content)):
        path.write_bytes(content[:position] + bytes([content[position] ^ 0x10]) + content[position + 1 :])
        try:
            np.testing.assert_array_equal(stage.load(0, np.zeros((0, 0))), value)
        except Damaged:
            found += 1
    assert found > 200


def test_an_object_array_is_never_unpickled(tmp_path):
    stage = Ledger(tmp_path, "run", 1, print).stage("gram")
    stage.keep(0, np.zeros(2))
    np.savez(tmp_path / "gram" / "0.npz", value=np.array([{"evil": 1}], object), key=np.zeros(1, np.uint8))
    with pytest.raises(Damaged, match=r"is damaged .*allow_pickle"):
        stage.load(0, np.zeros(0))
