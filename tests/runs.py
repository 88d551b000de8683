"""Decompositions in one call, with the plan in the caller's hand."""

import numpy as np

from dpca.config.model import Model
from dpca.execution.executors import Threads
from dpca.execution.progress import Progress
from dpca.execution.stage import Runner
from dpca.methods.decomposition import decompose
from dpca.numerics.panels import Rules
from dpca.planning.cuts import plan_layout
from dpca.planning.job import Job
from dpca.planning.runplan import Attempt, Concurrency, RunPlan
from dpca.sources import as_source
from dpca.sources.base import Source
from dpca.sources.groups import alone
from dpca.store.held import HeldOutputs
from dpca.store.outputs import Outputs
from dpca.system.machine import Budget

AMPLE = Budget(2**50, "of this test")


def decompose_array(
    x,
    n_components,
    *,
    samples_axis=0,
    rules=Rules(),
    executor=None,
    store=None,
    components=True,
    precision="auto",
    solver="auto",
    weights=None,
    sample_weights=None,
    design=None,
    rotation=None,
    window=None,
    ledger=None,
    progress=None,
    together=None,
    **plan,
):
    """A source or an array, decomposed; `plan` may set slab_bytes, n_spans and tile_width."""
    source = x if hasattr(x, "layout") else as_source(x)
    executor = executor or Threads(2)
    layout = source.layout
    n_samples = layout.shape[samples_axis]
    model = Model(
        n_components, rules, precision, solver, sample_weights=sample_weights, design=design, rotation=rotation
    )
    keeps = model.keeps(n_samples, layout.n_values // n_samples)
    cuts = plan_layout(layout, samples_axis, n_components, keeps, **plan)
    at_once = Concurrency(executor.n_workers, window or 2 * executor.n_workers)
    attempts = tuple(Attempt(rung, at_once) for rung in model.ladder(layout.dtype, keeps))
    made = RunPlan.of(cuts, "columns", concurrency=at_once, attempts=attempts, together=together)
    return decompose(
        Job(alone(source, samples_axis, weights), model, made, components=components),
        HeldOutputs() if store is None else Outputs(str(store)),
        Runner(executor, progress or Progress(), ledger),
    )


def arrays_of(found):
    """Everything that was computed, as bytes, by name."""
    names = [
        "r_factor" if found.rung.solver == "tsqr" else "gram",
        "gram_mean_product",
        "gram_mean_norm2",
        "eigenvalues",
        "scores",
        "alpha",
        "mean",
        "scale",
        "components",
    ]
    arrays = {name: np.asarray(found.outputs.array(name)[...]) for name in names}
    return {name: (array.dtype.str, array.shape, array.tobytes()) for name, array in arrays.items()}


class Unread(Source):
    """Base of sources that have a layout and no values: nothing may be read for a plan."""

    def held(self, shape):
        return {}

    def open(self):
        raise AssertionError

    def fingerprint(self):
        raise AssertionError


class RecordingSource(Source):
    """A source that keeps the regions it is asked for. In one process only."""

    def __init__(self, source):
        self.source, self.layout, self.regions = source, source.layout, []

    def restrict(self, region):
        return self

    def held(self, shape):
        return self.source.held(shape)

    def fingerprint(self):
        return self.source.fingerprint()

    def state(self, region):
        return self.source.state(region)

    def open(self):
        return _Recorded(self)


class _Recorded:
    def __init__(self, source):
        self._source = source

    def __enter__(self):
        self._context = self._source.source.open()
        reader = self._context.__enter__()
        read = reader.read

        def recorded(region):
            self._source.regions.append(region)
            return read(region)

        reader.read = recorded
        return reader

    def __exit__(self, *error):
        return self._context.__exit__(*error)
