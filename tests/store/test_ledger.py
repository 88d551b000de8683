"""The ledger: parts that are whole, or known not to be."""

import shutil
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpca.execution.executors import Threads
from dpca.numerics.accumulators import FeatureTally, GramAccumulator
from dpca.numerics.sketch import COLUMNS
from dpca.store.ledger import Damaged, Ledger, Read
from dpca.system import durable
from tests.drawn import examples
from tests.runs import decompose_array
from tests.stores import random_array


def test_every_flipped_byte_of_a_part_is_found_or_harmless(tmp_path):
    said = []
    stage = Ledger(tmp_path / "parts", "run", 10**9, said.append).checkpoint("gram")
    value = np.arange(6.0).reshape(2, 3)
    stage.keep(0, value)
    path = tmp_path / "parts" / "1-gram" / "0.npz"
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
    stage = Ledger(tmp_path, "run", 1, print).checkpoint("gram")
    stage.keep(0, np.zeros(2))
    np.savez(
        tmp_path / "1-gram" / "0.npz",
        value=np.array([{"evil": 1}], object),
        key=np.frombuffer(b"run gram 0.npz", np.uint8),
    )
    with pytest.raises(Damaged, match=r"is damaged .*allow_pickle"):
        stage.load(0, np.zeros(0))


def test_a_part_of_another_run_or_of_another_number_is_not_taken_for_this_one(tmp_path):
    ours, theirs = (Ledger(tmp_path, run, 1, print).checkpoint("gram") for run in ("ours", "theirs"))
    ours.keep(0, np.zeros(2))
    assert ours.whole(0, np.zeros(0))
    assert not theirs.whole(0, np.zeros(0))
    shutil.copy(tmp_path / "1-gram" / "0.npz", tmp_path / "1-gram" / "1.npz")
    assert not ours.whole(1, np.zeros(0))


@pytest.mark.parametrize("like", [np.zeros((0, 0)), np.zeros(0, "f4"), np.zeros(0, "i8")])
def test_a_part_of_another_type_or_number_of_axes_is_damage(tmp_path, like):
    stage = Ledger(tmp_path, "run", 1, print).checkpoint("gram")
    stage.keep(0, np.zeros(2))
    with pytest.raises(Damaged, match="is 1-dimensional float64"):
        stage.load(0, like)


def test_parts_that_are_forgotten_are_gone(tmp_path):
    stage = Ledger(tmp_path, "run", 1, print).checkpoint("gram")
    for number in range(3):
        stage.keep(number, np.zeros(2))
    stage.forget(1)
    assert [stage.has(number) for number in range(3)] == [True, False, True]
    stage.clear()
    assert stage.n_found(3) == 0


def test_a_sum_that_is_damaged_is_removed_with_a_sentence_and_the_one_before_is_used(tmp_path):
    said = []
    stage = Ledger(tmp_path, "run", 10**9, said.append).checkpoint("gram")
    folder = tmp_path / "1-gram"
    for number in range(4):
        stage.keep(number, np.full(2, float(number)))
        stage.load(number, np.zeros(2))
        stage.added(number, np.full(2, float(number)), settled=True, last=number % 2 == 1, window=1)
        if number == 1:
            shutil.copy(folder / "sum-2.npz", tmp_path / "kept")
    assert [path.name for path in folder.iterdir()] == ["sum-4.npz"]  # in it are all others
    shutil.copy(tmp_path / "kept", folder / "sum-2.npz")
    (folder / "sum-4.npz").write_bytes(b"damage")
    count, total = stage.begin(np.zeros(2))
    assert (count, total.tolist()) == (2, [1.0, 1.0])
    assert "its 4 parts are computed again" in said[0]
    assert [path.name for path in folder.iterdir()] == ["sum-2.npz"]
    stage.keep(2, np.ones(2))
    stage.load(2, np.zeros(2))
    stage.keep_sum_of(range(2, 3), np.ones(2))
    (folder / "sum-of-2-to-2.npz").write_bytes(b"damage")
    with pytest.raises(Damaged):
        stage.load_sum_of(range(2, 3), np.zeros(2))
    assert not stage.has_sum_of(range(2, 3))


def source(name, state):
    """A source whose data are in a state."""
    return SimpleNamespace(layout=SimpleNamespace(name=name), state=lambda region: state)


def test_a_part_of_data_that_changed_is_forgotten_whatever_state_another_input_has(tmp_path):
    ledger = Ledger(tmp_path, "run", 1, print)
    ledger.checkpoint("gram").keep(0, np.zeros(2), [Read.of(source("a", "1"), (slice(0, 2),))])
    part = tmp_path / "1-gram" / "0.npz"
    assert ledger.stale([source("a", "1")]) == []
    assert ledger.stale([source("moved", "1")]) == []
    assert ledger.stale([source("b", "0"), source("a", "1")]) == []
    assert ledger.stale([source("a", "2")]) == [part]
    assert ledger.stale([source("a", "2"), source("b", "1")]) == [part]
    assert ledger.forget_stale([source("a", "1")])
    assert part.exists()
    assert ledger.forget_stale([source("a", "2")])
    assert not part.exists()


@pytest.mark.parametrize("n", [1, 40, 256, 257, 700])
def test_half_of_a_gram_matrix_is_kept_and_all_of_it_found(tmp_path, n):
    """Bit for bit: a run that goes on must not differ from one that was never stopped."""
    gram = GramAccumulator.empty(n, FeatureTally.empty(n))
    for dtype in ("f4", "f8"):
        gram.add(random_array(0, (n, 100), dtype))
    stage = Ledger(tmp_path, "run", 1, print).checkpoint("gram")
    stage.keep(0, gram)
    found = stage.load(0, GramAccumulator.empty(n, FeatureTally.empty(n)))
    np.testing.assert_array_equal(found.matrix, gram.matrix)
    if n == 700:
        assert (tmp_path / "1-gram" / "0.npz").stat().st_size < 0.7 * gram.matrix.nbytes


@examples(8)
@given(
    n=st.integers(2, 40), d=st.integers(40, 4000), dtype=st.sampled_from(["f4", "f8", "i1"]), n_spans=st.integers(1, 16)
)
def test_the_ledger_stays_within_its_share(tmp_path_factory, n, d, dtype, n_spans):
    """For each stage an eighth of the data, or what is in the window, two more parts and two sums; one file when it is over.

    Counted after each file that is written.
    """
    place = tmp_path_factory.mktemp("ledger")
    x = random_array(0, (n, d), dtype)
    most = Counter()
    window = 4

    def counted(path, save):
        write(path, save)
        for stage in place.iterdir():
            most[stage.name] = max(most[stage.name], sum(map(size, stage.glob("*.npz"))))

    def size(file):
        try:
            return file.stat().st_size
        except FileNotFoundError:  # another thread has just put a sum in its place
            return 0

    with pytest.MonkeyPatch.context() as patch:
        write = durable.write
        patch.setattr(durable, "write", counted)
        ledger = Ledger(place, "run", x.nbytes, print)
        decompose_array(
            x, 1, n_spans=n_spans, slab_bytes=8 * n * (d // 40), ledger=ledger, executor=Threads(1), window=window
        )
    part = 8 * n * n + 8 * n * (COLUMNS + 2) + 3000  # the sketch and two values a sample; and names of arrays
    assert max(most.values()) <= max(x.nbytes // 8, (window + 2) * part) + 2 * part
    left = {stage.name: [file.name for file in stage.glob("*.npz")] for stage in place.iterdir()}
    assert max(map(len, left.values())) == 1, left
