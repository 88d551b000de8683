"""The contents of an unknown file."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from dpca.config.inputs import Input
from dpca.config.model import Model as Asked
from dpca.errors import DpcaError, InputError
from dpca.genotypes.variants import Variants
from dpca.numerics.ladder import BLOCK_KRYLOV, working_dtype
from dpca.planning.cuts import better_chunks, check_axis
from dpca.planning.runplan import RunPlan, Scratch, Workers
from dpca.planning.search import READINGS, SMALL_CHUNK_BYTES, plan_run, reading_of
from dpca.slabs import extent, split
from dpca.sources import expanded, list_arrays, open_source
from dpca.sources.base import Layout, Reader, SamplesAxis, Source, size_of
from dpca.sources.calendars import conversion, is_time
from dpca.sources.credentials import without_secrets
from dpca.sources.dated import SAMPLE_NAMES, told_by
from dpca.sources.groups import alone
from dpca.sources.latitudes import latitudes_of
from dpca.sources.regressors import Cycle
from dpca.system.machine import memory_budget
from dpca.units import by, describe_bytes, describe_memory, of_stored

FORMAT_VERSION = 1
MARKS_OF_MISSING = frozenset(
    {-1, -9, -99, -999, -9999, -99999, -32768, -32767, -2147483648, 1e20, 9.969209968386869e36}
)
"""Customary marks of missing values: in genetics, in station data, in CF and netCDF."""
SAMPLED_BYTES = 2**22
SAMPLED_VALUES = 2**18
OPENED_BYTES = 2**26
SAMPLE_SHARE = 4
"""How many times `opened_bytes` may be decoded to look at a sample whole."""
MOST_FEATURES = 2**28
"""Number of features up to which those without a value are counted."""
CYCLES: dict[Cycle, str] = {"season": "Seasonal data", "month": "Monthly data", "day_of_year": "Daily data"}
MANY_SAMPLES = 20_000
DAYS = 365.25


def inspect(
    given: str | Sequence[str] | Input,
    array: str | None = None,
    samples_axis: SamplesAxis | None = None,
    storage_options: Mapping[str, Any] | None = None,
    opened_bytes: int = OPENED_BYTES,
    told: str = "as told",
) -> dict[str, Any]:
    """Describe an array; reads its metadata, one chunk, and the first and the last sample.

    Parameters
    ----------
    given, array, storage_options : where it is: paths, patterns or URLs of files that are joined along the samples; without
        `array`, the one of the first file that a run would take, or else the largest of those that could be meant. Or the section
        `input` of a config, which says more of it
    samples_axis : instead of the guess, or of what the section says
    opened_bytes : largest size of a chunk that is read for a look at its values
    told : the reason for `samples_axis`, where it is given

    Returns
    -------
    dict with keys
        format_version : 1
        uri, array : where, as given; array is null where the file is one
        files : all of them
        arrays : path, shape and dtype of every array of the first, and whether it describes another one, as bounds do,
            or what AnnData keeps beside X
        units : of the values; empty where not known
        shape, dims, dtype, chunks, shards, codec, bytes, stored_bytes : stored_bytes is null where not known cheaply
        samples_axis, samples_axis_reason, n_samples, n_features
        n_stored : number of samples in storage, if some of them were chosen; else null
        values : of what was looked at, one chunk and the first and the last sample whole: minimum, maximum, mean, missing (share),
            zero (share, as stored), stored_minimum, stored_maximum, land (share of features without any value); null where chunks are too large
        latitudes : name of the latitudes of the features, null if there are none, or more than one array of them
        cycle : season, month or day_of_year, what `preprocess.regress_out.seasonal_cycle` would be for samples along time, over two years or more,
            several a year; else null
        genotypes : whether features are variants, of which it is known where they lie
        reading, peak_bytes : how dpca would read it on this machine, and the memory that takes; null if it can't
        watch_out : warnings, as sentences
    """
    uri = given.uri if isinstance(given, Input) else given
    uris, section = expanded(uri), dict[str, Any]()
    if isinstance(given, Input):
        section = given.model_dump()
        samples_axis = given.samples_axis if samples_axis is None else samples_axis
        array, storage_options = array or given.array, given.storage_options
    arrays = list_arrays(uris[0], storage_options)
    guess = None
    if array is None and len(arrays) > 1:
        array, guess = _taken(arrays, uris[0], storage_options)
    reason = told
    if samples_axis is None:
        samples_axis, reason = guess_samples_axis(open_source(uris[0], array, storage_options=storage_options))
    section |= {"uri": uris, "array": array, "samples_axis": samples_axis, "storage_options": storage_options or {}}
    problems = []
    try:
        source = Input.model_validate(section).open()
    except InputError as error:
        ways: dict[str, dict[str, Any]] = {"input.gaps": {"gaps": "allow"}, "input.members": {"members": True}}
        allowed = ways.get(error.key or "")
        if allowed is None or section.get("members"):
            raise
        problems.append(f"{error.message}. {error.remedy}")
        section |= allowed
        source = Input.model_validate(section).open()
    layout = source.layout
    axis = layout.axis_of(samples_axis)
    if len(layout.shape) < 2 or not layout.n_values:
        check_axis(layout, axis)  # raises: there is nothing to describe
    n_samples = layout.shape[axis]
    n_features = layout.n_values // max(1, n_samples)
    values = _values(source, axis, opened_bytes)
    facts: dict[str, Any] = {
        "format_version": FORMAT_VERSION,
        "uri": without_secrets(uri if isinstance(uri, str) else list(uri)),
        "files": without_secrets(uris),
        "array": array,
        "arrays": arrays,
        "shape": list(layout.shape),
        "dims": list(layout.dims),
        "dtype": str(layout.dtype),
        "units": layout.units,
        "chunks": list(layout.chunk_shape) if layout.chunked else None,
        "shards": list(layout.shards) if layout.shards else None,
        "codec": layout.codec,
        "bytes": layout.bytes,
        "stored_bytes": source.stored_bytes(),
        "samples_axis": axis,
        "samples_axis_reason": reason,
        "members": bool(section.get("members")),
        "n_samples": n_samples,
        "n_stored": layout.n_stored,
        "n_features": n_features,
        "values": values,
        "latitudes": _latitudes(source, axis),
        "cycle": cycle_of_samples(source, axis),
        "genotypes": source.about(Variants) is not None,
    }
    run_plan: RunPlan | None = None
    try:
        asked = Asked(max(1, min(20, n_samples, n_features)))
        here = Workers(0, 1, memory_budget())
        run_plan = plan_run(alone(source, axis), asked, workers=here, scratch=Scratch("scratch", 2**63))
    except DpcaError as error:
        problems.append(f"{error.message}. {error.remedy}")
    facts["reading"] = reading_of(run_plan, layout) if run_plan else None
    facts["peak_bytes"] = run_plan.tightest.peak_bytes if run_plan else None
    facts["watch_out"] = problems + [guess] * (guess is not None) + _watch_out(layout, axis, reason, values, run_plan)
    if facts["cycle"]:
        facts["watch_out"].append(
            f"{CYCLES[facts['cycle']]}: the first components will be the seasonal cycle. To remove it: preprocess.regress_out: "
            f"{{seasonal_cycle: {facts['cycle']}}}"
        )
    if facts["latitudes"]:
        facts["watch_out"].append(
            f"{facts['latitudes']!r} holds latitudes: with preprocess.weights: sqrt_cos_lat cells count by their area, without "
            "it those near the poles as much as those at the equator"
        )
    return facts


def _taken(
    arrays: Sequence[Mapping[str, Any]], uri: str, storage_options: Mapping[str, Any] | None
) -> tuple[str, str | None]:
    """The path of the array that a run would take, or else of the largest that could be meant; and a warning if so.

    Parameters
    ----------
    arrays : those of the place, as `list_arrays` gives them
    """
    wide = [item for item in arrays if len(item["shape"]) > 1]
    meant = [item for item in wide if not item["describes"]]
    if not meant:
        open_source(uri, storage_options=storage_options)  # raises: it names what is there
    array = str(max(meant, key=lambda item: math.prod(item["shape"]))["path"])
    if len(meant) > 1:
        others = ", ".join(item["path"] for item in meant if item["path"] != array)
        return (
            array,
            f"which array is meant is a guess, the largest: set input.array, to {array} or another one ({others})",
        )
    return array, None


def cycle_of_samples(source: Source, axis: int) -> Cycle | None:
    """Part of the year that samples can be told apart by, where they lie along time, over two years or more; None for others."""
    with source.open() as reader:
        times = reader.coordinate(axis)
        if times is None or not is_time(times.attributes) or times.text:
            return None
        ends = np.concatenate([times.values[0:1], times.values[-1:]]).astype(np.float64)
    days = conversion(times.attributes, {**times.attributes, "units": "days since 2000-01-01"})
    years = 0.0 if days is None else float(np.diff(days(ends))[0]) / DAYS
    a_year = (source.layout.shape[axis] - 1) / years if 2 <= years < np.inf else 0.0
    return "day_of_year" if a_year > 24 else "month" if a_year > 6 else "season" if a_year > 2 else None


def _latitudes(source: Source, axis: int) -> str | None:
    """The name of the latitudes of the features; None if there are none, or more than one array of them."""
    found = latitudes_of(source, axis)
    return found[0].name if len(found) == 1 else None


def guess_samples_axis(source: Source) -> tuple[int, str]:
    """The axis that probably holds the samples, and the reason for the guess: dates decide, then names, then lengths."""
    layout = source.layout
    with source.open() as reader:
        dated = [
            axis for axis in range(len(layout.shape)) if (told := told_by(reader, axis)) and is_time(told.attributes)
        ]
    if len(dated) == 1:
        return dated[0], f"it has dates, along {layout.dims[dated[0]]!r}"
    named = [axis for axis, dim in enumerate(layout.dims) if dim and dim.lower() in SAMPLE_NAMES]
    if len(named) == 1:
        return named[0], f"its dimension is called {layout.dims[named[0]]!r}"
    if len(layout.shape) == 2:
        if layout.shape[1] < layout.shape[0]:
            return 1, "the shorter of two axes, since samples are fewer than features in general, so check this"
        return 0, "the shorter of two axes: there are fewer samples than features"
    return 0, "the first axis, by convention: nothing says which it is, so check this"


def _values(source: Source, axis: int, opened_bytes: int) -> dict[str, float] | None:
    """A summary of one chunk, or of a part of it, and of the first and the last sample; None if all of these are too large to read."""
    layout, seen = source.layout, _Seen(source.layout, axis)
    region = [slice(0, min(chunk, length)) for chunk, length in zip(layout.chunk_shape, layout.shape, strict=True)]
    if not layout.chunked or (layout.divisible and layout.chunk_bytes > opened_bytes):
        region = [slice(0, length) for length in better_chunks(layout, axis, n_bytes=SAMPLED_BYTES)]
    with source.open() as reader:
        if not layout.chunked or layout.divisible or layout.chunk_bytes <= opened_bytes:
            seen.add(reader, tuple(region))
        for number in dict.fromkeys((0, layout.shape[axis] - 1)):
            sample = _of_sample([slice(0, length) for length in layout.shape], axis, number)
            there = all(a.start >= b.start and a.stop <= b.stop for a, b in zip(sample, region, strict=True))
            if not (seen.any and there) and _decoded_bytes(layout, sample) <= SAMPLE_SHARE * opened_bytes:
                for box in _boxes(layout, sample):
                    seen.add(reader, box)
    return seen.summary


def _of_sample(region: list[slice], axis: int, number: int) -> tuple[slice, ...]:
    return (*region[:axis], slice(number, number + 1), *region[axis + 1 :])


def _decoded_bytes(layout: Layout, region: tuple[slice, ...]) -> int:
    """Bytes that are decoded to read a region: those of whole chunks, where these can't be read in part."""
    if not layout.chunked or layout.divisible:
        return size_of(extent(region), layout.dtype)
    whole = [
        min(length, -(-piece.stop // chunk) * chunk) - piece.start // chunk * chunk
        for piece, chunk, length in zip(region, layout.chunk_shape, layout.shape, strict=True)
    ]
    return size_of(whole, layout.dtype)


def _boxes(layout: Layout, region: tuple[slice, ...]) -> Iterator[tuple[slice, ...]]:
    """A region in boxes of some MiB, of whole chunks where storage has any."""
    chunks = [chunk if layout.chunked and not layout.divisible else 1 for chunk in layout.chunk_shape]
    shape = extent(region)
    steps, left = [1] * len(shape), max(1, SAMPLED_BYTES // layout.dtype.itemsize)
    for number in reversed(range(len(shape))):
        steps[number] = max(1, min(shape[number], left))
        if steps[number] < shape[number]:
            steps[number] = max(chunks[number], steps[number] // chunks[number] * chunks[number])
        left = max(1, left // steps[number])
    starts = [range(piece.start, piece.stop, step) for piece, step in zip(region, steps, strict=True)]
    for corner in product(*starts):
        yield tuple(
            slice(start, min(start + step, piece.stop))
            for start, step, piece in zip(corner, steps, region, strict=True)
        )


class _Seen:
    """Values of an array that were seen."""

    def __init__(self, layout: Layout, axis: int) -> None:
        self._layout, self._axis = layout, axis
        self._n = self._present = self._zeros = 0
        self._lowest, self._highest, self._total, self._finite = math.inf, -math.inf, 0.0, True
        self._features = [1 if number == axis else length for number, length in enumerate(layout.shape)]
        # A bit for each feature: whether it was looked at, and whether it had a value.
        n_features = math.prod(self._features)
        self._looked, self._valued = (
            np.zeros(self._features if n_features <= MOST_FEATURES else (), bool) for _ in "ab"
        )

    def add(self, reader: Reader, region: tuple[slice, ...]) -> None:
        """Read a region, and add what is there."""
        stored, axis = reader.read(region), self._axis
        for box, _, _ in split(stored.shape, SAMPLED_VALUES):
            values = stored[box].astype(np.float64)
            missing = np.isnan(values) | self._layout.marked(values)
            if self._looked.ndim:
                here = [slice(r.start + b.start, r.start + b.stop) for r, b in zip(region, box, strict=True)]
                here[axis] = slice(0, 1)
                self._looked[tuple(here)] = True
                self._valued[tuple(here)] |= ~missing.all(axis=axis, keepdims=True)
            values, self._n = values[~missing], self._n + values.size
            if not values.size:
                continue
            self._present, self._zeros = self._present + values.size, self._zeros + int((values == 0).sum())
            self._lowest, self._highest = (
                min(self._lowest, float(values.min())),
                max(self._highest, float(values.max())),
            )
            self._finite = self._finite and bool(np.isfinite(values).all())
            self._total += float(values.sum()) if self._finite else 0.0

    @property
    def any(self) -> bool:
        """Whether anything was read."""
        return self._n > 0

    @property
    def summary(self) -> dict[str, float] | None:
        """The keys of `values` of `inspect`; None where nothing was read."""
        if not self.any:
            return None
        n_looked = int(self._looked.sum()) if self._looked.ndim else 0
        land = float((self._looked & ~self._valued).sum() / n_looked) if n_looked else 0.0
        summary = {"missing": 1 - self._present / self._n, "zero": self._zeros / max(1, self._present), "land": land}
        if self._present and self._finite:
            factor, offset = self._layout.packing
            ends = sorted((self._lowest * factor + offset, self._highest * factor + offset))
            summary |= {"minimum": ends[0], "maximum": ends[1], "mean": self._total / self._present * factor + offset}
            summary |= {"stored_minimum": self._lowest, "stored_maximum": self._highest}
        return summary


def _watch_out(
    layout: Layout, axis: int, reason: str, values: dict[str, float] | None, run_plan: RunPlan | None
) -> list[str]:
    """Warnings for the user before a run."""
    n_samples = layout.shape[axis]
    n_features = layout.n_values // max(1, n_samples)
    better = by(better_chunks(layout, axis, "features" if n_features < n_samples else "samples"))
    notes = list(layout.remarks)
    if "check this" in reason:
        notes.append("which axis holds the samples is a guess: set input.samples_axis")
    if n_features < n_samples:
        notes.append(
            f"there are fewer features ({n_features:,}) than samples ({n_samples:,}): if that is not so, the axes are swapped"
        )
    kept = min(n_samples, n_features)
    if kept > MANY_SAMPLES and run_plan is not None:
        side = "samples" if n_samples == kept else "features"
        if run_plan.attempts[0].rung.solver == BLOCK_KRYLOV:
            notes.append(
                f"the {kept:,} x {kept:,} matrix over {side} takes {describe_memory(8 * kept**2)}, and more for its eigensolve, "
                "which does not fit the memory: a run does without it, and reads the data several times instead "
                "(model.svd_solver: block_krylov). dpca plan tells how often"
            )
        else:
            needed = max(
                stage.bytes for process in run_plan.processes for stage in process.stages if stage.name == "eigensolve"
            )
            notes.append(f"the eigensolve of {kept:,} {side} takes {describe_memory(needed)} of memory")
    if run_plan is not None and run_plan.only.reading == "copy":
        notes.append(
            f"its chunks, {by(layout.chunk_shape)}, do not fit memory in columns: a run copies it to scratch once "
            f"({describe_bytes(run_plan.scratch_bytes)}). Chunks of {better} would need no copy"
        )
    if layout.chunked and layout.chunk_bytes < min(SMALL_CHUNK_BYTES, layout.bytes):
        notes.append(
            f"chunks are small ({describe_memory(layout.chunk_bytes)}): chunks of {better} would be read faster"
        )
    if values and values["missing"]:
        notes.append(
            f"{100 * values['missing']:.3g} % of the values that were looked at are missing"
            + (f"; {100 * values['land']:.3g} % of the features have none there (land)" if values["land"] else "")
            + ". A run refuses missing values unless preprocess.missing is mean (features without any value are left out), drop or pairwise"
        )
    notes += [
        f"the {end} is {values[f'stored_{end}']:.6g} as stored. If that marks missing values, say so in input.missing_values; else "
        "it counts as a number"
        for end in ("minimum", "maximum")
        if values and _is_mark(values.get(f"stored_{end}", 0.0), layout)
    ]
    if values is None:
        notes.append(
            f"chunks are too large to look into one ({describe_memory(layout.chunk_bytes)} each): no value was seen"
        )
    if values and "mean" not in values and values["missing"] < 1:
        notes.append("there are infinities: a run refuses them")
    if layout.packing != (1.0, 0.0):
        notes.append(f"values are packed: stored * {layout.packing[0]:g} + {layout.packing[1]:g} is what is analysed")
    if working_dtype(layout.dtype, "auto") == np.float64 and layout.dtype.kind in "iu":
        notes.append(
            f"{layout.dtype} is multiplied in double precision, at half the speed: store 16 bits if they hold it"
        )
    return notes


def _is_mark(extreme: float, layout: Layout) -> bool:
    """Whether a chunk's extreme looks like a mark of missing values; -1 does only among signed integers."""
    return any(
        math.isclose(extreme, mark, rel_tol=1e-6) and (mark != -1 or layout.dtype.kind == "i")
        for mark in MARKS_OF_MISSING
    )


def as_text(facts: Mapping[str, Any]) -> str:
    """The text of an inspection, for people."""
    shape = by(tuple(facts["shape"]))
    if any(facts["dims"]):
        shape += f" ({', '.join(dim or '?' for dim in facts['dims'])})"
    stored = "" if facts["stored_bytes"] is None else f", {describe_bytes(facts['stored_bytes'])} stored"
    chunks = "none: any part can be read" if facts["chunks"] is None else by(tuple(facts["chunks"]))
    files = facts["files"]
    lines = [f"uri      {facts['uri'] if isinstance(facts['uri'], str) else ' '.join(facts['uri'])}"]
    if len(files) > 1:
        lines.append(f"files    {len(files)}, joined along the samples, from {files[0]} to {files[-1]}")
    if facts["array"] is not None:
        others = [item for item in facts["arrays"] if item["path"] != facts["array"]]
        lines.append(f"array    {facts['array']}")
        lines += [
            f"         (also there: {item['path']}, {by(tuple(item['shape']))} {item['dtype']})" for item in others[:12]
        ]
    lines += [
        f"values   {shape} {facts['dtype']}, {describe_bytes(facts['bytes'])}{stored}",
        f"chunks   {chunks}" + (f", in shards of {by(tuple(facts['shards']))}" if facts["shards"] else ""),
        f"codec    {facts['codec']}",
        f"samples  axis {facts['samples_axis']}: {facts['n_samples']:,}{of_stored(facts['n_stored'])} samples of {facts['n_features']:,} features "
        f"({facts['samples_axis_reason']})",
    ]
    values = facts["values"]
    if values and "mean" in values:
        lines.append(
            f"seen     from {values['minimum']:.6g} to {values['maximum']:.6g}, mean {values['mean']:.6g}, "
            f"{100 * values['missing']:.3g} % missing, {100 * values['zero']:.3g} % zero"
        )
    if facts["reading"] is not None:
        lines.append(
            f"reading  {READINGS[facts['reading']]}; {describe_memory(facts['peak_bytes'])} of memory for one task"
        )
    lines += [f"watch    {sentence}" for sentence in facts["watch_out"]]
    return "\n".join(lines)
