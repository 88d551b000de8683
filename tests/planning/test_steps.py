"""The steps of a job: what the forecast lists, and what the progress counts, are the stages that a run then has."""

import numpy as np
import pytest

from dpca.config.model import Model
from dpca.execution.executors import Threads
from dpca.execution.progress import Progress
from dpca.execution.stage import Runner
from dpca.methods.decomposition import decompose
from dpca.numerics.block_krylov import Iteration
from dpca.numerics.panels import Rules
from dpca.planning.job import Job
from dpca.planning.runplan import Workers
from dpca.planning.steps import EXPECTED_PASSES
from dpca.sources import as_source
from dpca.sources.groups import FeatureGroup, alone
from dpca.store.held import HeldOutputs
from tests.runs import AMPLE
from tests.stores import random_array

WIDE, TALL = (20, 300), (300, 20)


def job_of(shape, *, gaps=False, components=True, **model):
    x = random_array(0, shape, "f8")
    if gaps:
        x[3, 5] = np.nan
    rules = Rules(missing="mean") if gaps else Rules()
    job = Job(alone(as_source(x)), Model(**{"n_components": 3, "rules": rules, **model}), components=components)
    return job.planned(Workers(0, 2, AMPLE))


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        ({"shape": WIDE}, ["gram in double", "eigensolve", "components"]),
        ({"shape": WIDE, "components": False}, ["gram in double", "eigensolve"]),
        ({"shape": WIDE, "solver": "tsqr"}, ["tsqr", "eigensolve", "components"]),
        ({"shape": TALL}, ["covariance in double", "eigensolve", "scores", "signs"]),
        ({"shape": TALL, "gaps": True}, ["means", "covariance in double", "eigensolve", "scores", "signs"]),
    ],
)
def test_the_stages_of_a_run_are_its_steps(asked, names):
    job = job_of(**asked)
    (steps,) = job.steps
    assert [step.name for step in steps] == names
    assert job.n_stages == len(names)
    found = decompose(job, HeldOutputs(), Runner(Threads(2), Progress()))
    assert list(found.seconds) == names


def test_reads_are_the_steps_that_have_some_and_later_solvers_may_follow():
    (steps,) = (job := job_of(TALL, gaps=True)).steps
    assert [step.name for step in steps if step.reads] == ["means", "covariance in double", "scores"]
    worst = job.worst_of(job.run_plan)
    assert [step.name for step in worst] == ["tsqr", "scores of tsqr"]
    assert all(step.flops > 0 for step in worst)


@pytest.mark.parametrize("most", [2, 4, 12])
def test_passes_of_an_iteration_are_those_that_are_expected_then_those_up_to_the_limit(most):
    job = job_of((60, 600), solver="block_krylov", iteration=Iteration(max_passes=most))
    (steps,) = job.steps
    expected = [step for step in steps if step.kind in ("product", "again", "second")]
    assert len(expected) == min(EXPECTED_PASSES, most)
    assert len(expected) + len(job.worst_of(job.run_plan)) == most
    assert job.n_stages == 2  # further passes and eigensolves are added as they follow


def test_an_input_alone_has_its_own_part_of_the_plan():
    x, y = random_array(0, WIDE, "f8"), random_array(1, (20, 90), "f8")
    groups = tuple(FeatureGroup(as_source(array), 0, name) for name, array in (("x", x), ("y", y)))
    job = Job(groups, Model(3, Rules())).planned(Workers(0, 2, AMPLE))
    assert [job.of_input(number).run_plan.n_features for number in range(2)] == [300, 90]
    assert job.n_bytes == x.nbytes + y.nbytes
