import math
import pickle
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpca.config.model import Model
from dpca.errors import ConfigError, InputError, OverBudgetError
from dpca.planning.cuts import better_chunks
from dpca.planning.runplan import Scratch, Workers
from dpca.planning.search import plan_run
from dpca.slabs import MAX_SPANS
from dpca.sources.base import Layout, size_of
from dpca.sources.groups import alone
from dpca.system.machine import Budget
from tests.drawn import examples
from tests.runs import Unread

MIB = 2**20
PLENTY = Scratch("/scratch", 2**60)


class Imagined(Unread):
    """A source that has a layout and no values: planning reads none."""

    def __init__(self, shape, chunks, *, dtype="f4", divisible=False, codec="zstd", shards=None):
        self.layout = Layout(
            "imagined", shape, np.dtype(dtype), chunks, shards=shards, divisible=divisible, codec=codec
        )

    def held(self, shape):
        return {"slab": size_of(shape, self.layout.dtype), "chunk": 2 * self.layout.chunk_bytes}


def made(source, memory_mib, *, axis=0, model=Model(5), threads=2, processes=0, scratch=PLENTY, **how):
    budget = Budget(int(memory_mib * MIB), "of this test")
    return plan_run(alone(source, axis), model, workers=Workers(processes, threads, budget), scratch=scratch, **how)


def test_columns_of_chunks_come_first():
    plan = made(Imagined((100, 10**7), (100, 10_000)), 2000)
    assert (plan.only.reading, plan.only.copy, plan.concurrency.n_tasks) == ("columns", None, 2)


def test_memory_lowers_the_tasks_before_it_narrows_a_slab():
    source = Imagined((100, 10**7), (100, 1000))
    ample = made(source, 2000, threads=8)
    tight = made(source, 450, threads=8)
    tightest = made(source, 200, threads=8)
    assert ample.concurrency.n_tasks == 8
    assert 1 <= tight.concurrency.n_tasks < 8
    assert tight.plan == ample.plan
    assert tight.wanted_tasks == 8
    assert tight.wanted_bytes > 450 * MIB
    assert tightest.concurrency.n_tasks == 1
    assert tightest.plan.slab_width < ample.plan.slab_width


def test_a_column_that_is_too_large_is_read_in_parts_where_storage_allows():
    plan = made(Imagined((1000, 10**6), (1, 10**6), divisible=True, codec="none"), 500)
    assert (plan.only.reading, plan.only.copy) == ("parts", None)
    assert plan.plan.slab_width < 10**6


def test_else_it_is_copied_to_scratch_once():
    source = Imagined((1000, 10**6), (1, 10**6))
    plan = made(source, 700)
    assert plan.only.reading == "copy"
    assert source.layout.bytes <= plan.scratch_bytes < 1.1 * source.layout.bytes
    # The same input with room for a whole column: no copy.
    assert made(source, 20_000).only.reading == "columns"


def test_scratch_that_is_too_small_says_what_would_do():
    source = Imagined((1000, 10**6), (1, 10**6))
    with pytest.raises(OverBudgetError, match=r"copied to scratch, which takes 4 GB, but /s has 1 GB free") as caught:
        made(source, 700, scratch=Scratch("/s", 10**9))
    budget = float(re.search(r"compute.memory to (\d+) MiB", caught.value.remedy)[1])
    assert made(source, budget, scratch=Scratch("/s", 10**9)).only.reading == "columns"
    assert caught.value.exit_code == 3


def test_chunks_larger_than_the_budget_are_named():
    with pytest.raises(
        OverBudgetError, match=r"the smallest plan takes .* GiB of memory .* but the budget is 1 GiB"
    ) as caught:
        made(Imagined((50, 10**9), (1, 10**9)), 1024)
    assert "chunks of 1 x 1,000,000,000 (3.73 GiB each)" in caught.value.remedy
    assert "chunks of 50 x 41,943 would do" in caught.value.remedy


def test_samples_that_cannot_be_solved_say_how_many_could():
    of_matrix = Model(5, solver="gram_eigh")
    with pytest.raises(OverBudgetError, match="for Gram matrix") as caught:
        made(Imagined((20_000, 10**7), (20_000, 100)), 8000, model=of_matrix)
    n = int(re.search(r"With 7.81 GiB up to (\d+) samples fit", caught.value.remedy)[1])
    assert 13_000 < n < 20_000
    assert made(Imagined((n, 10**7), (n, 100)), 8000).concurrency.n_tasks == 1
    with pytest.raises(OverBudgetError):
        made(Imagined((n + 50, 10**7), (n + 50, 100)), 8000, model=of_matrix)


layouts = st.builds(
    Imagined,
    st.tuples(st.integers(2, 3000), st.integers(1, 10**7)),
    st.tuples(st.integers(1, 3000), st.integers(1, 10**6)),
    dtype=st.sampled_from(["u1", "f4", "f8"]),
    divisible=st.booleans(),
)


@examples(200)
@given(layouts, st.integers(100, 4000), st.integers(1, 8))
def test_a_plan_keeps_to_its_budget_and_the_budget_that_an_error_names_does(source, memory, threads):
    model = Model(min(5, *source.layout.shape))
    try:
        plan = made(source, memory, model=model, threads=threads)
    except OverBudgetError as error:
        named = int(re.search(r"compute.memory to (\d+) (MiB|GiB)", error.remedy)[1])
        named *= 1 if "MiB or more" in error.remedy else 1024
        assert named > memory
        plan = made(source, named, model=model, threads=threads)
        memory = named
    assert plan.tightest.peak_bytes <= memory * MIB
    slabs = plan.plan
    assert math.prod(len(cut) for cut in slabs.slabs) == slabs.n_slabs
    assert plan.concurrency.window >= plan.concurrency.n_tasks >= 1


def test_neither_workers_nor_ample_memory_change_the_cuts():
    source = Imagined((300, 10**7), (300, 1000))
    cuts = {made(source, memory, threads=threads).plan for memory in (1000, 10_000) for threads in (1, 3, 16)}
    assert len(cuts) == 1


def test_nothing_in_a_plan_grows_with_the_features():
    """A billion features take no more to plan, nor to say, than a million."""
    small = made(Imagined((100, 10**6), (100, 1000)), 4000)
    large = made(Imagined((100, 10**9), (100, 1000)), 4000)
    assert len(pickle.dumps(large)) < len(pickle.dumps(small)) + 200
    assert large.tightest.peak_bytes <= small.tightest.peak_bytes * 1.2
    assert large.plan.n_spans <= MAX_SPANS


def test_a_cluster_is_planned_process_by_process():
    source = Imagined((2000, 10**7), (2000, 1000))
    budget = Budget(1000 * MIB, "60 % of the workers' limit")
    workers = Workers(4, 2, budget, client_budget=Budget(3000 * MIB, "of this machine"))
    plan = plan_run(alone(source), Model(5), workers=workers, scratch=PLENTY)
    assert [(process.name, process.count) for process in plan.processes] == [("client", 1), ("worker", 4)]
    assert plan.concurrency.n_tasks == 8
    small = Workers(4, 2, budget, client_budget=Budget(200 * MIB, "of this machine"))
    with pytest.raises(OverBudgetError, match="in each client") as caught:
        plan_run(alone(source), Model(5, solver="gram_eigh"), workers=small, scratch=PLENTY)
    assert "Run the client where" in caught.value.remedy


def test_what_the_data_cannot_give_is_refused_before_memory_is():
    with pytest.raises(ConfigError, match="n_components is 7"):
        made(Imagined((5, 100), (5, 100)), 1, model=Model(7))
    with pytest.raises(InputError, match=r"1 sample\(s\)"):
        made(Imagined((1, 100), (1, 100)), 1)


def test_chunks_that_are_advised_need_no_advice():
    layout = Imagined((1000, 721, 1440), (1, 721, 1440)).layout
    chunks = better_chunks(layout, 0)
    assert size_of(chunks, layout.dtype) <= 8 * MIB
    plan = made(Imagined((1000, 721, 1440), chunks), 2000)
    assert plan.only.reading == "columns"
    assert plan.concurrency.n_tasks == 2


def test_memory_that_would_do_without_scratch_and_with_it_are_told_apart():
    source = Imagined((500, 400_000), (1, 400_000))
    with pytest.raises(OverBudgetError) as caught:
        made(source, 150, scratch=Scratch("/s", 10**7))
    in_place, with_scratch = map(int, re.findall(r"(\d+) MiB", caught.value.remedy)[:2])
    assert with_scratch < in_place
    assert "and compute.scratch to a directory with 800 MB free" in caught.value.remedy
    assert made(source, in_place, scratch=Scratch("/s", 10**7)).only.reading == "columns"
    assert made(source, with_scratch, scratch=PLENTY).only.reading == "copy"


def test_chunks_that_hurt_are_named_whether_or_not_the_eigensolve_would_fit():
    with pytest.raises(OverBudgetError, match="(?s)What hurts are chunks of 3,000 x 50,000") as caught:
        made(Imagined((3000, 10**6), (3000, 50_000)), 240)
    assert "eigensolve of up to" not in caught.value.remedy
    with pytest.raises(OverBudgetError) as caught:
        made(Imagined((20, 10**6), (20, 100)), 50)
    assert "eigensolve" not in caught.value.remedy


def test_more_threads_than_spans_cost_nothing():
    assert made(Imagined((20, 10**6), (20, 100)), 4000, threads=100_000).concurrency.n_tasks < 1000
