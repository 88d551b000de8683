"""A configuration ready to run: its opened input, its model and its plan; nothing is read or written yet."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpca.config.inputs import LabelsFile, Range
from dpca.config.loading import Loaded
from dpca.config.requested import model_of
from dpca.config.schema import FOUNDERS, Binomial, Config, FeatureGroups, SampleWeightsFile
from dpca.errors import ConfigError, DpcaError, InputError
from dpca.execution.clusters import Place, SchedulerPlace, connect
from dpca.execution.jobqueue import SlurmJobs, SlurmStep
from dpca.execution.stage import Executor
from dpca.genotypes.choice import chosen_variants, excluded_in_words, n_listed, not_autosomal
from dpca.genotypes.plink import People
from dpca.genotypes.variants import Variants, numbered
from dpca.methods.extension import Extension
from dpca.methods.kept_gram import RecordedSource, check_same
from dpca.methods.regressed import design_of
from dpca.numerics.weights import SampleWeights
from dpca.planning.cuts import check_axis
from dpca.planning.disk import check_room_for_result
from dpca.planning.job import Job
from dpca.planning.runplan import Scratch, Settled
from dpca.settings import INPUT, OUTPUT, PREPROCESS
from dpca.sources import Source
from dpca.sources.choice import chosen_samples
from dpca.sources.feature_labels import FeatureLabels, of_labels, of_ranges
from dpca.sources.groups import FeatureGroup, Groups, alone, check_same_samples
from dpca.sources.labels import LABELS, labels_of, open_values
from dpca.sources.weights import FeatureWeights, masked_by, weights_of
from dpca.store.directory import LEDGER, ResultDirectory
from dpca.store.results import Result, open_result
from dpca.store.unfinished import Begun, useless
from dpca.system.machine import free_disk
from dpca.units import is_plain

if TYPE_CHECKING:
    from dpca.analyses.config import Derive


@contextmanager
def prepared(
    loaded: Loaded,
    before: Begun | None = None,
    from_gram: str | Path | None = None,
    executor: Executor | None = None,
    extends: Extension | None = None,
) -> Iterator[tuple[Job, Executor]]:
    """Open the input, connect to where it will run, and plan; reads no values and writes nothing.

    Parameters
    ----------
    before : the run that is resumed, whose plan is kept
    from_gram : an earlier result of the same data, whose Gram matrix is used
    executor : where it runs, instead of the place in the config
    extends : the result that samples are added to
    """
    config, directory = loaded.config, ResultDirectory(loaded.config.output.path)
    with loaded.located():
        directory.check_place()
        if before is not None:
            before.check_version(directory.path)
        gram = None if from_gram is None else open_result(from_gram)
        if gram is not None:
            check_same(gram, config)
        groups = groups_of(config) if gram is None else alone(RecordedSource(gram), gram.samples_axis)
    compute = config.compute
    connecting = connect(place_of(config), None if compute.workers == "auto" else compute.workers)
    with nullcontext(executor) if executor else connecting as executor:
        with loaded.located():
            # A Gram matrix that is kept is of what a regression has left.
            design = None if gram is not None else design_of(config.preprocess.regress_out, groups)
            preprocess, scratch = config.preprocess, scratch_of(config)
            model = model_of(
                config,
                groups,
                sample_weights=_sample_weights_of(preprocess.sample_weights, groups[0].source),
                reference=_reference_of(preprocess.scale, groups[0]),
                design=design,
            )
            if extends is not None:
                model = replace(model, known=extends.known)
            job = Job(
                groups,
                model,
                scratch=scratch,
                components=config.output.components and model.kernels is None,
                keep_gram=config.output.gram,
                labels=None
                if config.model.labels is None
                else _labels_of(config, config.model.labels, groups[0], gram),
                gram=gram,
            )
            workers = executor.workers(None if compute.memory == "auto" else int(compute.memory))
            job = job.planned(workers, None if before is None else settled_of(before, directory))
            if before is None:  # else some of it is there
                check_room_for_result(job, config.output.path)
        yield job, executor


def _labels_of(config: Config, asked: LabelsFile, of: FeatureGroup, gram: Result | None) -> NDArray[Any]:
    """The labels of the samples, read."""
    source = of.source
    if gram is not None and config.inputs[0].samples is not None:
        source = config.inputs[0].open()  # of an earlier result it is not known which samples were chosen
    return labels_of(source, of.samples_axis, asked.at(LABELS), asked.key)


def inputs_of(config: Config) -> Groups:
    """The inputs of a configuration, opened alone: without weights, and not compared with each other."""
    groups = []
    for number, asked in enumerate(config.inputs):
        with _of_list(config, number):
            source = asked.open()
            groups.append(FeatureGroup(source, check_axis(source.layout, asked.samples_axis), asked.name or ""))
    return tuple(groups)


def groups_of(config: Config) -> Groups:
    """The inputs of a configuration, opened, with the weights of their features."""
    groups = []
    for number, (asked, group) in enumerate(zip(config.inputs, inputs_of(config), strict=True)):
        with _of_list(config, number):
            weights = asked.weights or config.preprocess.weights
            mask = asked.mask or config.preprocess.filters.mask
            opened = weights if weights is None or isinstance(weights, str) else weights.open()
            of_features = weights_of(
                group.source,
                group.samples_axis,
                opened,
                None if mask is None else mask.open(),
                mask is not None and mask.invert,
                None if config.preprocess.inner_product is None else config.preprocess.inner_product.read(),
            )
            of_features, notes = _of_variants(config, group, of_features)
            group.source.notes = (*group.source.notes, *notes)
            groups.append(replace(group, weights=of_features, labels=_labels_of_features(config, group)))
    check_same_samples(groups)
    return tuple(groups)


def _of_variants(
    config: Config, group: FeatureGroup, weights: FeatureWeights | None
) -> tuple[FeatureWeights | None, list[str]]:
    """The weights of the features of an input, with the variants left out that filters by their place or id leave out.

    Also what has to be known of them. With a scale of dosages, those that its program leaves out are, unless chromosomes are named.
    """
    filters, scale, notes = config.preprocess.filters, config.preprocess.scale, list[str]()
    asked = {name: getattr(filters, name) for name in ("chromosomes", "variants", "exclude", "min_distance")}
    first = next((name for name, value in asked.items() if value is not None), None)
    if (
        isinstance(scale, Binomial)
        and asked["chromosomes"] is None
        and (known := group.source.about(Variants)) is not None
    ):
        others = not_autosomal(known.chromosomes, diploid=scale.binomial == "plink2")
        if others:
            asked["chromosomes"], first = (
                [name for name in numbered(known.chromosomes)[0] if name not in others],
                "chromosomes",
            )
            notes.append(
                f"{group.layout.name}: variants of chromosomes {', '.join(others)} were left out, as {scale.binomial} does: "
                "preprocess.filters.chromosomes: all uses them"
            )
    if first is None:
        return weights, notes
    variants = _variants_of(group, f"preprocess.filters.{first}")
    used = None
    if weights is not None and weights.masks:
        of_all = replace(weights, weights=None).of_all((len(variants),))
        assert of_all is not None
        used = ~np.isnan(of_all)
    chosen = chosen_variants(
        group.layout.name,
        variants,
        asked["chromosomes"],
        asked["variants"],
        filters.exclude,
        filters.min_distance,
        used,
    )
    if filters.exclude is not None:
        notes.append(f"{group.layout.name}: {excluded_in_words(variants, filters.exclude)}")
    if filters.variants is not None:
        notes.append(
            f"{group.layout.name}: {n_listed(variants, filters.variants)} of preprocess.filters.variants are there"
        )
    if filters.min_distance is not None and (filters.min_minor_allele_frequency > 0 or filters.max_missing < 1):
        notes.append(
            "preprocess.filters.min_distance was applied before the filters by frequency and missing calls (plink applies it after these): name "
            "the variants that are left by these in preprocess.filters.variants to have it so"
        )
    return masked_by(weights, chosen, "preprocess.filters"), notes


def _variants_of(group: FeatureGroup, key: str) -> Variants:
    """Variants of an input."""
    if (variants := group.source.about(Variants)) is None:
        raise ConfigError(
            f"{key} is set, but of the features of {group.layout.name} no chromosome, position and id are known",
            f"Name a .bim or a table of them in {INPUT.variants}; a .bed and a VCF Zarr have them.",
            key=key,
        )
    return variants


def _labels_of_features(config: Config, group: FeatureGroup) -> FeatureLabels | None:
    """The named groups that the features of an input are in; None where all are one."""
    asked, layout = config.output.groups, group.layout
    if not isinstance(asked, FeatureGroups) or not asked.named:
        return None
    shape = (*layout.shape[: group.samples_axis], *layout.shape[group.samples_axis + 1 :])
    axis = 0 if len(shape) == 1 else None
    if asked.axis is not None:
        try:
            number = layout.axis_of(asked.axis)
        except InputError as error:
            raise error.about(OUTPUT.groups.axis, INPUT.samples_axis) from None
        if number == group.samples_axis:
            raise ConfigError(
                f"{OUTPUT.groups.axis} is {asked.axis}, along which the samples of {layout.name} lie",
                "Name an axis of features.",
                key="output.groups.axis",
            )
        axis = number - (number > group.samples_axis)
    if asked.ranges is not None:
        if axis is None:
            raise ConfigError(
                f"{OUTPUT.groups.ranges} are along one axis, but {layout.name} has {len(shape)} feature axes",
                f"Set {OUTPUT.groups.axis}.",
                key="output.groups.axis",
            )
        return of_ranges(asked.ranges, shape, axis, layout.name)
    if asked.by is not None:
        key = "output.groups.by"
        called, numbers = numbered(_variants_of(group, key).chromosomes)
        chromosomes = np.array(called)[numbers]
        return of_labels(chromosomes, shape, axis, layout.name, f"{layout.name}, its chromosomes", key)
    assert asked.labels is not None
    key = "output.groups.labels"
    place = asked.labels.at(key)
    labels = np.asarray(open_values(place, "features")[...])
    return of_labels(labels, shape, axis, layout.name, place.shown, key)


@contextmanager
def _of_list(config: Config, number: int) -> Iterator[None]:
    """Name the input of a list that an error of this block is about."""
    try:
        yield
    except DpcaError as error:
        if not isinstance(config.input, list):
            raise
        key = error.key.replace("input.", f"input.{number}.", 1) if error.key.startswith("input.") else error.key
        name = config.input[number].name
        raise error.saying(f"input {name}: {error.marked_message}", key=key) from error.__cause__


def settled_of(before: Begun, directory: ResultDirectory) -> Settled:
    """The part of a resumed run's plan that decides the bits of its result."""
    try:
        return Settled.of_json(before.plan)
    except (KeyError, TypeError, ValueError) as cause:
        raise useless(directory.begun, f"its plan is none: {type(cause).__name__}: {cause}") from cause


def place_of(config: Config | Derive) -> Place | None:
    """Where a configuration runs; None for this machine."""
    cluster = config.compute.cluster
    if cluster == "local":
        return None
    logs = str(beside(config.output.path))
    if cluster.slurm:
        return SlurmJobs(**cluster.slurm.model_dump(), logs=logs)
    if cluster.slurm_runner:
        return SlurmStep(**cluster.slurm_runner.model_dump(), logs=logs)
    tls = None if cluster.tls is None else (cluster.tls.ca, cluster.tls.cert, cluster.tls.key)
    return SchedulerPlace(cluster.scheduler, cluster.scheduler_file, tls)


def beside(output: str) -> Path:
    """The directory for scripts and logs of a run on Slurm."""
    place = Path(output).absolute()
    if not is_plain(str(place)):
        raise ConfigError(
            f"{str(place)!r}: has control characters (such as line breaks), which a script can't have in a path",
            "Run it from another directory.",
            key="output.path",
        )
    return place.with_name(f"{place.name}.slurm")


def _reference_of(scale: str | Binomial, of: FeatureGroup) -> NDArray[np.float64] | None:
    """1 for the samples whose means and frequencies are taken, else 0, (n_samples,); None for all."""
    if isinstance(scale, str):
        return None
    people = of.source.about(People)
    founders = None if people is None else people.founders
    if scale.reference is None:
        if scale.binomial == "plink2" and founders is not None and not founders.all():
            note = (
                f"{int((~founders).sum()):,} people have parents in the .fam; frequencies are those of all people, where plink2 takes those "
                f"of founders: preprocess.scale.reference: {FOUNDERS}"
            )
            of.source.notes = (*of.source.notes, note)
        return None
    if scale.reference == FOUNDERS:
        if founders is None or not founders.any():
            raise ConfigError(
                f"{PREPROCESS.scale.reference} is {FOUNDERS}, but of the samples of {of.layout.name} "
                + ("no parents are known" if founders is None else "none is one"),
                "Name samples.",
                key="preprocess.scale.reference",
            )
        return founders.astype(np.float64)
    given = scale.reference
    samples = slice(*given.model_dump().values()) if isinstance(given, Range) else given
    reference = np.zeros(of.n_samples)
    try:
        reference[chosen_samples(of.source, of.samples_axis, samples)] = 1.0
    except InputError as error:
        raise error.about(PREPROCESS.scale.reference, INPUT.samples) from error.__cause__
    return reference


def _sample_weights_of(asked: SampleWeightsFile | None, of: Source) -> SampleWeights | None:
    """The weights that a configuration names, read: of the samples of a source, or of all in storage where some are chosen."""
    if asked is None:
        return None
    source = asked.open()
    with source.open() as reader:
        values = reader.read(tuple(slice(0, length) for length in source.layout.shape)).astype(np.float64)
    if of.chosen is not None and values.shape == (of.layout.n_stored,):
        values = values[of.chosen]
    return SampleWeights(values, asked.kind, source.layout.name)


def scratch_of(config: Config | Derive, beside: Path | None = None) -> Scratch:
    """The directory for a copy of the input: one that is named, or `beside`, or with the ledger of the result."""
    path = Path(config.compute.scratch or beside or Path(config.output.path) / LEDGER / "scratch")
    if config.compute.scratch is not None and not path.is_dir():
        raise ConfigError(f"{path}: is not a directory", "Make it, or name another.", key="compute.scratch")
    return Scratch(str(path.absolute()), free_disk(path))
