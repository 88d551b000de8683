"""A first pass over several groups of features."""

import weakref

import numpy as np
import pytest

from dpca.config.model import Model
from dpca.execution.executors import Threads
from dpca.execution.progress import Progress
from dpca.execution.stage import Runner
from dpca.methods import second_pass
from dpca.methods.dataset import Dataset, FeatureGroup
from dpca.methods.first_pass import FirstPass
from dpca.methods.stages import Stages
from dpca.numerics.accumulators.gram import Gram
from dpca.numerics.ladder import Rung
from dpca.numerics.panels import Rules
from dpca.planning.cuts import plan_layout
from dpca.planning.runplan import Attempt, Concurrency
from dpca.sources import as_source
from dpca.store.ledger import Ledger
from dpca.store.outputs import Outputs
from tests.runs import decompose_array
from tests.stores import random_array

N = 12
SHAPES = {"pressure": (N, 40, 30), "wind": (N, 700), "sites": (N, 5)}
ATTEMPT = Attempt(Rung("gram_eigh", np.dtype(np.float64)), Concurrency(2, 4))


def dataset(names):
    """Groups of features, each cut as its shape needs; and all their values, (n_samples, n_features)."""
    groups, values = [], []
    for number, name in enumerate(names):
        array = random_array(number, SHAPES[name], "f4") + np.float32(number)
        plan = plan_layout(as_source(array).layout, 0, 2, slab_bytes=4 * N * 100, n_spans=3)
        groups.append(FeatureGroup(as_source(array), plan, name))
        values.append(array.reshape(N, -1).astype(np.float64))
    return Dataset(tuple(groups)), np.hstack(values)


@pytest.mark.parametrize("executor", [Threads(1), Threads(3)])
@pytest.mark.parametrize("names", [("pressure",), ("pressure", "wind"), tuple(SHAPES)], ids=len)
def test_a_gram_matrix_is_the_sum_over_all_groups(names, executor, tmp_path):
    (data, x), model = dataset(names), Model(2, Rules(True))
    ledger = Ledger(tmp_path / "ledger", "groups", data.n_bytes, lambda _: None)
    stages = Stages(Runner(executor, Progress(), ledger))
    summed = FirstPass(stages, data, model, Outputs({})).sum(ATTEMPT, None, written=True)
    centred = x - x.mean(0)
    gram = summed.gram
    np.testing.assert_allclose(gram.matrix, centred @ centred.T, atol=1e-11)
    np.testing.assert_allclose(gram.matrix + gram.mean_product[:, None] + gram.mean_product + gram.mean_norm2, x @ x.T)
    assert gram.features.groups == names
    assert gram.features.total == x.shape[1]
    assert stages.bytes_decoded == data.n_bytes == 4 * x.size
    n_spans = sum(group.plan.n_spans for group in data.groups)
    assert ledger.checkpoint(ATTEMPT.rung.name).n_found(n_spans) == n_spans


def test_the_gram_matrix_is_released_before_the_second_pass(monkeypatch):
    """Else it takes memory that is not planned there: n x n beside the slabs of all tasks."""
    seen, finish, span = [], Gram.finish, second_pass.components_span

    def finishing(gram, choose):
        seen.append(weakref.ref(gram.matrix))
        return finish(gram, choose)

    def spanning(*arguments):
        seen.append(seen[0]() is None)
        return span(*arguments)

    monkeypatch.setattr(Gram, "finish", finishing)
    monkeypatch.setattr(second_pass, "components_span", spanning)
    decompose_array(random_array(0, (30, 4000), "f4"), 3)
    assert len(seen) > 1
    assert all(seen[1:])
