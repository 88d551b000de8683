"""The cuts of a stored array for a pass, and chunks that would suit it."""

from __future__ import annotations

from dpca.errors import InputError
from dpca.settings import INPUT
from dpca.slabs import SLAB_BYTES, Plan, Side, extent, make_plan
from dpca.sources.base import Layout, SamplesAxis

GOOD_CHUNK_BYTES = 8 * 2**20
"""A chunk size that is fast to read in any storage, for advice."""
SMALLEST_SLAB_BYTES = 2**20


def plan_layout(
    layout: Layout,
    samples_axis: int,
    n_components: int,
    keeps: Side = "samples",
    *,
    divide: bool = False,
    slab_bytes: int = SLAB_BYTES,
    n_spans: int | None = None,
    tile_width: int | None = None,
    columns: int | None = None,
    unit: int = 1,
) -> Plan:
    """The cuts of a stored array; parameters as of `dpca.slabs.make_plan`.

    Parameters
    ----------
    divide : whether chunks may be cut
    """
    chunks = (1,) * len(layout.shape) if divide else layout.chunks
    return make_plan(
        layout.shape,
        layout.dtype.itemsize,
        chunks,
        samples_axis=samples_axis,
        keeps=keeps,
        shards=layout.shards,
        order=layout.order,
        n_components=n_components,
        slab_bytes=slab_bytes,
        n_spans=n_spans,
        tile_width=tile_width,
        columns=columns,
        unit=unit,
    )


def better_chunks(
    layout: Layout, samples_axis: int, keeps: Side = "samples", n_bytes: int = GOOD_CHUNK_BYTES
) -> tuple[int, ...]:
    """Suitable chunks for an array: all samples of as many features as fit into `n_bytes`, or the reverse."""
    plan = plan_layout(layout, samples_axis, 1, keeps, divide=True, slab_bytes=n_bytes)
    return extent(plan.region(tuple(cut[0] for cut in plan.slabs)))


def check_axis(layout: Layout, samples_axis: SamplesAxis) -> int:
    """The samples axis as a number; checks that the array has features and at least two samples."""
    axis = layout.axis_of(samples_axis)
    features = [length for other, length in enumerate(layout.shape) if other != axis]
    if not features or 0 in features:
        raise InputError(
            f"{layout.name}: an array of shape {layout.shape} with samples along axis {axis} has no features",
            "PCA needs at least one value per sample besides the samples axis.",
            key="input.uri",
        )
    if layout.shape[axis] < 2 and layout.n_stored is not None:
        raise InputError(
            f"{layout.name}: {INPUT.samples} chooses {layout.shape[axis]} of {layout.n_stored:,} samples, but PCA needs at least 2",
            "Choose more, or leave it out for all.",
            key="input.samples",
        )
    if layout.shape[axis] < 2:
        raise InputError(
            f"{layout.name}: has {layout.shape[axis]} sample(s) along axis {axis} of shape {layout.shape}, "
            "but PCA needs at least 2",
            f"If samples lie along another axis, set {INPUT.samples_axis}.",
            key="input.samples_axis",
        )
    return axis
