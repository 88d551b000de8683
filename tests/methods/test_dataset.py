"""Groups of features side by side: their Gram matrices, their shares, how they are scaled against each other."""

import weakref
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpca.config.model import Model
from dpca.execution.executors import Threads
from dpca.execution.progress import Progress
from dpca.execution.stage import Runner
from dpca.methods import second_pass
from dpca.methods.dataset import Dataset
from dpca.methods.decomposition import decompose
from dpca.methods.first_pass import FirstPass
from dpca.methods.stages import Stages
from dpca.numerics.accumulators.gram import GramAccumulator
from dpca.numerics.ladder import Rung
from dpca.numerics.panels import Rules
from dpca.numerics.weights import SampleWeights
from dpca.planning.cuts import plan_layout
from dpca.planning.job import Job
from dpca.planning.runplan import Attempt, Concurrency, Scratch, Workers
from dpca.sources import as_source
from dpca.sources.groups import FeatureGroup
from dpca.sources.weights import weights_of
from dpca.store.held import HeldOutputs
from dpca.store.ledger import Ledger
from dpca.system.machine import Budget
from tests.drawn import examples
from tests.methods.test_preprocessing import dense
from tests.runs import RecordingSource, decompose_array
from tests.stores import random_array

N = 12
SHAPES = {"pressure": (N, 40, 30), "wind": (N, 700), "sites": (N, 5)}
ATTEMPT = Attempt(Rung("gram_eigh", np.dtype(np.float64)), Concurrency(2, 4))


def dataset(names):
    """Groups of features, each cut as its shape needs; and all their values, (n_samples, n_features)."""
    groups, plans, values = [], [], []
    for number, name in enumerate(names):
        array = random_array(number, SHAPES[name], "f4") + np.float32(number)
        plans.append(plan_layout(as_source(array).layout, 0, 2, "samples", slab_bytes=4 * N * 100, n_spans=3))
        groups.append(FeatureGroup(as_source(array), 0, name))
        values.append(array.reshape(N, -1).astype(np.float64))
    return Dataset(tuple(groups), tuple(plans)), np.hstack(values)


@pytest.mark.parametrize("executor", [Threads(1), Threads(3)])
@pytest.mark.parametrize("names", [("pressure",), ("pressure", "wind"), tuple(SHAPES)], ids=len)
def test_a_gram_matrix_is_the_sum_over_all_groups(names, executor, tmp_path):
    (data, x), model = dataset(names), Model(2, Rules(True))
    ledger = Ledger(tmp_path / "ledger", "groups", data.n_bytes, lambda _: None)
    stages = Stages(Runner(executor, Progress(), ledger))
    summed = FirstPass(stages, data, model, HeldOutputs()).sum(ATTEMPT, None, written=True)
    centred = x - x.mean(0)
    gram = summed.gram
    np.testing.assert_allclose(gram.matrix, centred @ centred.T, atol=1e-11)
    np.testing.assert_allclose(gram.matrix + gram.mean_product[:, None] + gram.mean_product + gram.mean_norm2, x @ x.T)
    assert gram.features.groups == names
    assert gram.features.total == x.shape[1]
    assert stages.bytes_decoded == data.n_bytes == 4 * x.size
    assert ledger.checkpoint(ATTEMPT.rung.name).n_found(data.n_spans) == data.n_spans


def test_the_gram_matrix_is_released_before_the_second_pass(monkeypatch):
    """Else it takes memory that is not planned there: n x n beside the slabs of all tasks."""
    seen, finish, span = [], GramAccumulator.finish, second_pass.components_span

    def finishing(gram, *arguments):
        seen.append(weakref.ref(gram.matrix))
        return finish(gram, *arguments)

    def spanning(*arguments):
        seen.append(seen[0]() is None)
        return span(*arguments)

    monkeypatch.setattr(GramAccumulator, "finish", finishing)
    monkeypatch.setattr(second_pass, "components_span", spanning)
    decompose_array(random_array(0, (30, 4000), "f4"), 3)
    assert len(seen) > 1
    assert all(seen[1:])


def decomposed(arrays, model, weights=None, sources=as_source):
    """Arrays by name, decomposed side by side."""
    groups = []
    for name, array in arrays.items():
        of_features = (
            None if name not in (weights or {}) else weights_of(as_source(array), 0, as_source(weights[name]), None)
        )
        groups.append(FeatureGroup(sources(array), 0, name, of_features))
    workers, scratch = Workers(0, 2, Budget(2**30, "of this test")), Scratch("", 0)
    job = Job(tuple(groups), model, scratch=scratch).planned(workers)
    return decompose(job, HeldOutputs(), Runner(Threads(2), Progress()))


def factor_of(standard, scaling, divisor):
    """What multiple factor analysis, or equal total variances, multiply the features of a group by."""
    sigma = np.linalg.svd(standard, compute_uv=False)
    size = {"none": divisor, "first_eigenvalue": sigma[0] ** 2, "total_variance": (sigma**2).sum()}[scaling]
    return np.sqrt(divisor / size) if size > 0 else 1.0


@st.composite
def cases(draw):
    n = draw(st.integers(4, 9))
    shapes = draw(st.lists(st.sampled_from([(1,), (3,), (40,), (4, 7), (2, 3, 5)]), min_size=2, max_size=4))
    dtypes = [draw(st.sampled_from(["f4", "f8", "i2", "u1"])) for _ in shapes]
    seed = draw(st.integers(0, 2**20))
    arrays = {
        f"group-{number}": random_array(seed + number, (n, *shape), dtype) * draw(st.sampled_from([1, 1, 30]))
        for number, (shape, dtype) in enumerate(zip(shapes, dtypes, strict=True))
    }
    missing = draw(st.sampled_from(["error", "mean", "drop"]))
    rng = np.random.default_rng(seed)
    if missing != "error":
        for name in draw(st.sets(st.sampled_from(list(arrays)))):
            values = arrays[name].astype("f8")
            values[rng.random(values.shape) < 0.1] = np.nan
            arrays[name] = values
    rules = Rules(scale=draw(st.sampled_from(["none", "std", "range"])), missing=missing, ddof=draw(st.integers(0, 1)))
    weights = {name: rng.uniform(0.1, 3, array.shape[1:]) for name, array in arrays.items() if draw(st.booleans())}
    kind = draw(st.sampled_from([None, "frequency", "reliability"]))
    of_samples = None if kind is None else SampleWeights(rng.uniform(0.5, 3, n), kind, "w")
    return arrays, rules, weights, of_samples, draw(st.sampled_from(["none", "first_eigenvalue", "total_variance"]))


@examples(12)
@given(cases())
def test_groups_are_one_array_of_scaled_columns(case):
    arrays, rules, weights, of_samples, scaling = case
    n, k = len(next(iter(arrays.values()))), 2
    model = Model(k, rules, "double", sample_weights=of_samples, block_scaling=scaling)
    roots = np.ones(n) if of_samples is None else np.sqrt(of_samples.values)
    parts, out = [], []
    for name, array in arrays.items():
        standard, mean, *_, whole = dense(
            array.astype("f8").reshape(n, -1), rules, weights.get(name, np.ones(())).reshape(-1), True, of_samples
        )
        parts.append(roots[:, None] * standard)
        out.append(np.isnan(mean))
    if np.concatenate(out).all():
        return
    factors = np.array([factor_of(part, scaling, whole) for part in parts])
    parts = [part * factor for part, factor in zip(parts, factors, strict=True)]
    u, s, vt = np.linalg.svd(np.hstack(parts), full_matrices=False)
    if not s[0] > 0:
        return
    found = decomposed(arrays, model, weights)
    arrays_of = found.outputs.array
    np.testing.assert_allclose(arrays_of("block_factor")[...], factors, rtol=1e-9)
    values = found.spectrum.explained_variance
    np.testing.assert_allclose(values, s[: len(values)] ** 2 / whole, rtol=1e-8, atol=1e-12 * s[0] ** 2)
    matrices, shares = arrays_of("gram_by_group")[...], arrays_of("variance_share")[...]
    np.testing.assert_array_equal(sum(matrices[1:], matrices[0]), arrays_of("gram")[...])
    for matrix, part in zip(matrices, parts, strict=True):
        np.testing.assert_allclose(matrix, part @ part.T, atol=1e-10 * s[0] ** 2)
    for j in range(len(values)):
        if s[j] < 1e-4 * s[0]:
            break
        np.testing.assert_allclose(shares[:, j].sum(), 1, rtol=1e-9)
    gap = s[0] - np.append(s, 0.0)[1]
    if gap > 1e-3 * s[0]:
        np.testing.assert_allclose(
            shares[:, 0], [((part.T @ u[:, 0]) ** 2).sum() / s[0] ** 2 for part in parts], atol=1e-8
        )
        components = [np.asarray(arrays_of(f"components_{name}")[0]).reshape(-1) for name in arrays]
        for component, dropped in zip(components, out, strict=True):
            assert (np.isnan(component) == dropped).all()
        assert abs(np.nan_to_num(np.concatenate(components)) @ vt[0]) > 1 - 1e-8


@pytest.mark.parametrize("scaling", ["none", "first_eigenvalue"])
@pytest.mark.parametrize("solver", ["auto", "tsqr"])
def test_scaling_groups_reads_nothing_more(scaling, solver):
    arrays = {name: random_array(number, shape, "f4") for number, (name, shape) in enumerate(SHAPES.items())}
    seen = []

    def recorded(array):
        seen.append(RecordingSource(as_source(array)))
        return seen[-1]

    found = decomposed(arrays, Model(2, solver=solver, block_scaling=scaling), sources=recorded)
    assert found.counts["passes"] == 2
    for source in seen:
        assert max(Counter(map(repr, source.regions)).values()) <= 2
    name = "r_factor_by_group" if solver == "tsqr" else "gram_by_group"
    assert found.outputs.array(name).shape == (3, N, N)
    np.testing.assert_allclose(found.outputs.array("variance_share")[...].sum(axis=0), 1, rtol=1e-6)


def test_pairs_of_missing_values_are_counted_over_all_groups():
    rng = np.random.default_rng(0)
    parts = {
        name: np.where(rng.random((N, d)) < 0.1, np.nan, rng.standard_normal((N, d)))
        for name, d in (("a", 60), ("b", 25))
    }
    rules = Rules(missing="pairwise")
    found, whole = decomposed(parts, Model(3, rules)), decompose_array(np.hstack(list(parts.values())), 3, rules=rules)
    np.testing.assert_allclose(found.outputs.array("gram")[...], whole.outputs.array("gram")[...], atol=1e-10)
    np.testing.assert_allclose(found.spectrum.singular_values, whole.spectrum.singular_values, rtol=1e-10)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_shares_have_the_digits_of_their_components(dtype):
    """A component of 1e-6 of the first, by a Gram matrix: its share is known where its singular value is."""
    rng = np.random.default_rng(3)
    left = np.linalg.qr(np.column_stack([np.ones(N), rng.standard_normal((N, 4))]))[0][:, 1:]
    right = np.linalg.qr(rng.standard_normal((300, 4)))[0]
    x = ((left * [1, 1e-1, 1e-2, 1e-6 if dtype == "f8" else 3e-3]) @ right.T).astype(dtype)
    found = decomposed({"a": x[:, :200], "b": x[:, 200:]}, Model(4, solver="gram_eigh"))
    shares = found.outputs.array("variance_share")[...]
    _, _, vt = np.linalg.svd(x.astype("f8") - x.astype("f8").mean(0), full_matrices=False)
    np.testing.assert_allclose(shares.sum(axis=0), 1, rtol=1e-6)
    np.testing.assert_allclose(shares[0], (vt[:4, :200] ** 2).sum(axis=1), atol=1e-4)


def test_a_group_without_variance_has_no_share():
    x = random_array(0, (N, 30), "f8")
    found = decomposed({"x": x, "constant": np.full((N, 5), 7.25)}, Model(2, block_scaling="first_eigenvalue"))
    np.testing.assert_array_equal(found.outputs.array("variance_share")[1], 0)
    assert found.outputs.array("block_factor")[1] == 1


@pytest.mark.parametrize("repeated", [False, True])
def test_a_group_that_is_large_against_the_others_takes_none_of_their_digits(repeated):
    """Scaled after the sums, a group with values of 1e-5 beside one of 1e5 counts as much: its products have their own scale."""
    rng = np.random.default_rng(0)
    small = 1e-5 * rng.standard_normal((20, 200)).astype("f4")
    large = 1e5 * (
        np.repeat(rng.standard_normal((20, 1)), 300, 1) if repeated else rng.standard_normal((20, 300))
    ).astype("f4")
    found = decomposed({"small": small, "large": large}, Model(5, block_scaling="total_variance"))
    parts = [part.astype("f8") - part.astype("f8").mean(0) for part in (small, large)]
    s = np.linalg.svd(np.hstack([part / np.linalg.norm(part) for part in parts]) * np.sqrt(19), compute_uv=False)
    errors = np.abs(found.spectrum.singular_values / s[:5] - 1)
    claimed = 10.0 ** -np.array([component["digits"] for component in found.certificate["components"]])
    assert (errors <= 2 * claimed).all(), (errors, claimed)
    assert found.certificate["reliable_components"] == 5
