"""Gram matrices of groups of features within an input, and of groups for validation: in the same pass, and K is their sum."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpca.config.model import Model
from dpca.errors import ConfigError, InputError
from dpca.execution.executors import Threads
from dpca.execution.progress import Progress
from dpca.execution.stage import Runner
from dpca.methods.decomposition import decompose
from dpca.numerics.division import Division
from dpca.numerics.panels import Rules
from dpca.numerics.weights import SampleWeights
from dpca.planning.cuts import plan_layout
from dpca.planning.job import Job
from dpca.planning.runplan import Attempt, Concurrency, RunPlan
from dpca.sources import as_source
from dpca.sources.feature_labels import of_labels, of_ranges
from dpca.sources.groups import alone
from dpca.store.held import HeldOutputs
from dpca.store.ledger import Ledger
from tests.drawn import examples
from tests.runs import RecordingSource

N = 9


def grouped(
    source,
    labels=None,
    n_folds=0,
    samples_axis=0,
    rules=Rules(),
    solver="auto",
    executor=None,
    ledger=None,
    sample_weights=None,
    **plan,
):
    """A decomposition with groups of features; `plan` may set slab_bytes, n_spans and tile_width."""
    executor = executor or Threads(2)
    layout = source.layout
    model = Model(2, rules, "double", solver, n_folds=n_folds, sample_weights=sample_weights)
    cuts = plan_layout(layout, samples_axis, 2, "samples", **plan)
    at_once = Concurrency(executor.n_workers, 2 * executor.n_workers)
    attempts = tuple(Attempt(rung, at_once) for rung in model.ladder(layout.dtype, "samples"))
    made = RunPlan.of(cuts, "columns", concurrency=at_once, attempts=attempts)
    (group,) = alone(source, samples_axis)
    groups = (replace(group, labels=labels),)
    return decompose(Job(groups, model, made), HeldOutputs(), Runner(executor, Progress(), ledger))


def folds_in(found, name="gram_by_fold"):
    """The matrices for validation, whole."""
    halves = found.outputs.array(name)[...]
    matrices = []
    for half in halves:
        matrix = np.zeros((N, N))
        matrix[np.tril_indices(N)] = half
        matrices.append(matrix @ matrix.T if name.startswith("r_factor") else matrix + np.tril(matrix, -1).T)
    return np.array(matrices)


@st.composite
def cases(draw):
    """An array, the axis of samples, a label for each feature, and how it is cut."""
    shape = draw(st.lists(st.integers(2, 24), min_size=1, max_size=2))
    axis, seed = draw(st.integers(0, len(shape))), draw(st.integers(0, 99))
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((*shape[:axis], N, *shape[axis:])).astype(draw(st.sampled_from(["f4", "f8"]))) + 3
    if draw(st.booleans()):
        x = np.asfortranarray(x)
    kind = draw(st.sampled_from(["one axis", "all", "runs"]))
    along = draw(st.integers(0, len(shape) - 1))
    if kind == "all":
        labels = rng.integers(0, 3, shape)
    else:
        labels = rng.integers(0, 3, shape[along])
        labels = np.sort(labels) if kind == "runs" else labels
    labels.ravel()[:2] = 0, 1  # two groups at least
    cuts = {"slab_bytes": draw(st.sampled_from([1, 500, 5000])), "n_spans": draw(st.integers(1, 5))}
    return x, axis, labels, None if kind == "all" else along, cuts


@given(cases(), st.sampled_from([0, 2, 3]), st.booleans())
@examples(10)
def test_each_group_has_the_products_of_its_features(case, n_folds, scaled):
    x, axis, labels, along, cuts = case
    rules = Rules(scale="std" if scaled else "none")
    of = of_labels(labels, x.shape[:axis] + x.shape[axis + 1 :], along, "x", "labels")
    found = grouped(as_source(x), of, n_folds, axis, rules, **cuts)
    flat = np.moveaxis(x.astype(np.float64), axis, 0).reshape(N, -1)
    flat = flat - flat.mean(axis=0)
    flat = flat / flat.std(axis=0, ddof=1) if scaled else flat
    shape = x.shape[:axis] + x.shape[axis + 1 :]
    if along is not None:
        labels = np.broadcast_to(labels.reshape([-1 if n == along else 1 for n in range(len(shape))]), shape)
    by_name = {str(label): flat[:, labels.ravel() == label] for label in np.unique(labels)}
    names = [str(name) for name in found.outputs.array("group")[...]]
    kept = found.outputs.array("gram_by_group")[...]
    total = np.trace(flat @ flat.T)
    assert sorted(names) == sorted(by_name)
    for name, matrix in zip(names, kept, strict=True):
        np.testing.assert_allclose(matrix, by_name[name] @ by_name[name].T, atol=1e-12 * total)
    added = np.zeros((N, N))
    for matrix in kept:
        added += matrix
    np.testing.assert_array_equal(found.outputs.array("gram")[...], added)  # to the bit
    shares = found.outputs.array("variance_share")[...]
    np.testing.assert_allclose(shares.sum(axis=0), 1, rtol=1e-9)
    norms = found.outputs.array("gram_norms2_by_group")[...]
    np.testing.assert_allclose(norms, [np.square(by_name[name]).sum(axis=1) for name in names], atol=1e-12 * total)
    means = {
        name: np.moveaxis(x.astype(np.float64), axis, 0).reshape(N, -1)[:, labels.ravel() == int(name)]
        for name in names
    }
    if not scaled:
        expected = [by_name[name] @ means[name].mean(axis=0) for name in names]
        np.testing.assert_allclose(found.outputs.array("gram_mean_product_by_group")[...], expected, atol=1e-10 * total)
    if n_folds:
        np.testing.assert_allclose(folds_in(found).sum(axis=0), flat @ flat.T, atol=1e-12 * total)
    components = np.moveaxis(found.outputs.array("components")[...].reshape(2, -1), 0, 0)
    scores = found.outputs.array("scores")[...]
    np.testing.assert_allclose(flat @ components.T, scores, atol=1e-5 * np.sqrt(total))


@given(cases(), st.integers(2, 4))
@examples(10)
def test_groups_for_validation_add_up_to_the_gram_matrix_and_each_has_some_features(case, n_folds):
    x, axis, _, _, cuts = case
    if x.size // N < 4 * n_folds:
        return
    found = grouped(as_source(x), None, n_folds, axis, **cuts)
    folds, gram = folds_in(found), found.outputs.array("gram")[...]
    added = np.zeros((N, N))
    for matrix in folds:
        added += matrix
    np.testing.assert_array_equal(gram, added)  # to the bit
    assert all(np.trace(matrix) > 0 for matrix in folds)
    flat = np.moveaxis(x.astype(np.float64), axis, 0).reshape(N, -1)
    flat = flat - flat.mean(axis=0)
    np.testing.assert_allclose(gram, flat @ flat.T, atol=1e-12 * np.trace(flat @ flat.T))


def test_spans_are_folds_where_there_are_enough_of_them_and_features_are_divided_where_there_are_not():
    x = np.random.default_rng(0).standard_normal((N, 640))
    many = plan_layout(as_source(x).layout, 0, 2, "samples", slab_bytes=8 * N * 40, n_spans=16, tile_width=40)
    few = plan_layout(as_source(x).layout, 0, 2, "samples", n_spans=1)
    assert Division.of(many, 0, None, 4).unit == 0
    assert Division.of(many, 0, None, 4).most_cells(many) == 1  # a task holds no more than without
    assert Division.of(few, 0, None, 4).unit == 40
    assert Division.of(few, 0, None, 4).most_cells(few) == 4
    found = grouped(as_source(x), None, 4, slab_bytes=8 * N * 40, n_spans=16, tile_width=40)
    flat = x - x.mean(axis=0)
    for fold, matrix in enumerate(folds_in(found)):
        own = flat.reshape(N, 16, 40)[:, fold::4].reshape(N, -1)
        np.testing.assert_allclose(matrix, own @ own.T, atol=1e-10)


def test_the_bits_do_not_depend_on_workers_and_each_value_is_read_once_a_pass(tmp_path):
    x = np.random.default_rng(1).standard_normal((N, 30, 40)).astype("f4")
    of = of_labels(np.arange(1200).reshape(30, 40) % 3, (30, 40), None, "x", "labels")
    found = []
    for workers in (1, 3):
        source = RecordingSource(as_source(x))
        result = grouped(source, of, 2, executor=Threads(workers), slab_bytes=2000, n_spans=7, tile_width=100)
        found.append(
            {
                name: result.outputs.array(name)[...].tobytes()
                for name in ("gram", "gram_by_group", "gram_by_fold", "scores")
            }
        )
        assert result.counts["bytes_decoded"] == result.counts["passes"] * x.nbytes
    assert found[0] == found[1]


def test_a_ledger_has_the_sums_of_all_groups(tmp_path):
    x = np.random.default_rng(2).standard_normal((N, 600))
    of = of_ranges({"a": [0, 250], "b": [250, 600]}, (600,), 0, "x")
    how = {"labels": of, "n_folds": 3, "slab_bytes": 8 * N * 50, "n_spans": 6, "tile_width": 50}
    ledger = Ledger(tmp_path / "ledger", "run", x.nbytes * 100, lambda _: None)
    whole = grouped(as_source(x), **how)
    kept = grouped(as_source(x), **how, ledger=ledger)
    again = grouped(as_source(x), **how, ledger=ledger, executor=Threads(1))  # all parts are there
    for name in ("gram", "gram_by_group", "gram_by_fold", "gram_sketch_by_group"):
        expected = whole.outputs.array(name)[...]
        np.testing.assert_array_equal(kept.outputs.array(name)[...], expected)
        np.testing.assert_array_equal(again.outputs.array(name)[...], expected)


@pytest.mark.parametrize(
    "how",
    [
        {"solver": "tsqr"},
        {"rules": Rules(missing="pairwise")},
        {"rules": Rules(missing="mean")},
        {"sample_weights": SampleWeights(np.arange(1.0, N + 1))},
    ],
    ids=["tsqr", "pairwise", "mean", "weights"],
)
def test_groups_with_other_solvers_and_rules(how):
    x = np.random.default_rng(3).standard_normal((N, 60)) + 2
    if "rules" in how:
        x[np.random.default_rng(4).random(x.shape) < 0.05] = np.nan
    of = of_ranges({"a": [0, 20], "b": [20, 60]}, (60,), 0, "x")
    found, whole = grouped(as_source(x), of, **how), grouped(as_source(x), None, **how)
    tsqr = how.get("solver") == "tsqr"
    name = "r_factor" if tsqr else "gram"
    parts, total = found.outputs.array(f"{name}_by_group")[...], whole.outputs.array(name)[...]
    if tsqr:
        parts, total = np.swapaxes(parts, 1, 2) @ parts, total.T @ total
    np.testing.assert_allclose(parts.sum(axis=0), total, atol=1e-10)
    np.testing.assert_allclose(found.outputs.array("variance_share")[...].sum(axis=0), 1, rtol=1e-9)
    if not tsqr:
        added = grouped(as_source(x), None, 3, **how) if "pairwise" not in str(how) else whole
        np.testing.assert_allclose(added.outputs.array("gram")[...], total, atol=1e-10)


@pytest.mark.parametrize(
    ("ranges", "problem"),
    [
        ({"a": [0, 5], "b": [6, 10]}, "feature 5 of x is in no group"),
        ({"a": [0, 6], "b": [5, 10]}, "feature 5 of x is in a and in b"),
        ({"a": [0, 5], "b": [5, 11]}, "b is \\[5, 11\\], but 0 to 10"),
        ({"a b": [0, 5], "b": [5, 10]}, "called 'a b'"),
        ({"a": [0, 10]}, "into one group, a"),
    ],
)
def test_ranges_cover_the_features_and_do_not_overlap(ranges, problem):
    with pytest.raises(ConfigError, match=problem):
        of_ranges(ranges, (10,), 0, "x")


def test_labels_that_do_not_fit_are_refused():
    with pytest.raises(InputError, match="shape \\(7,\\), which does not fit x"):
        of_labels(np.arange(7), (10,), 0, "x", "labels.npy")
    with pytest.raises(InputError, match="several are that long"):
        of_labels(np.arange(6) // 3, (6, 6), None, "x", "labels.npy")
    with pytest.raises(InputError, match="label of feature 2 is NaN"):
        of_labels(np.array([1, 2, np.nan]), (3,), 0, "x", "labels.npy")
    with pytest.raises(InputError, match="1,200 different labels"):
        of_labels(np.arange(1200), (1200,), 0, "x", "labels.npy")
    with pytest.raises(ConfigError, match="into one group, 4"):
        of_labels(np.full(5, 4), (5,), 0, "x", "labels.npy")
