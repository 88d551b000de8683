"""The configuration: all its keys, as frozen models.

`Config` is the reference of the keys; `dpca schema` prints it as JSON Schema. `dpca.config.loading` reads YAML into it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ByteSize,
    ConfigDict,
    Field,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)

from dpca.errors import ConfigError, InputError
from dpca.kernels.kernel import USES
from dpca.numerics.dimension import RULES, Rule
from dpca.numerics.panels import BlockScaling, Missing, Scale
from dpca.sources import Source, expanded, open_joined
from dpca.sources.base import READ_SECONDS
from dpca.sources.credentials import HIDDEN, without_credentials
from dpca.sources.groups import NAME
from dpca.sources.joined_coordinates import Gaps
from dpca.units import PLAIN, WALLTIME, walltime_seconds

if TYPE_CHECKING:
    from dpca.sources.labels import Place

DEFAULT_COMPONENTS = 20
LEAST_MEMORY = 2**20


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


def _in_full(given: Any, read: ValidatorFunctionWrapHandler) -> Any:
    """Refuse text of which pydantic would read only the beginning, and amounts so small that a unit must be missing."""
    if isinstance(given, str) and not re.fullmatch(r"\s*(\d+\.)?\d+\s*[a-zA-Z]*\s*", given):
        raise ValueError(given)
    amount = read(given)
    if amount < LEAST_MEMORY:
        raise ValueError(given)
    return amount


Amount = Annotated[ByteSize, WrapValidator(_in_full)]
Text = Annotated[str, Field(min_length=1, pattern=PLAIN)]
"""Paths, URLs and other text that may be written into a script."""


def _found(given: str | list[str]) -> str | list[str]:
    """The paths that match, in place of patterns: these are the input that a result records."""
    uris = expanded(given)
    return uris if len(uris) > 1 else uris[0]


Label = Annotated[Text, BeforeValidator(lambda given: given.isoformat() if isinstance(given, date) else given)]
"""A value of a coordinate as text; YAML reads a day without quotes as a date."""


class Range(_Section):
    """A range of numbers, counted from 0."""

    start: Annotated[int | None, Field(ge=0, description="The first; null for 0.")] = None
    stop: Annotated[int | None, Field(ge=0, description="The first that is left out; null to go to the end.")] = None
    step: Annotated[int | None, Field(ge=1, description="How far apart; null for 1.")] = None


class Names(_Section):
    """A name for each, in the order of the array."""

    uri: Annotated[
        Text,
        Field(description="Zarr, HDF5, .npy, a text file with one a line, or a table: .csv or .tsv with a header."),
    ]
    array: Annotated[str | None, Field(description="Path of the array inside the container.")] = None
    column: Annotated[Text | None, Field(description="Name of the column of a table.")] = None

    def at(self, key: str) -> Place:
        """Their place, for what reads them; `key` is that of this section."""
        from dpca.sources.labels import Place

        return Place(self.uri, self.array, self.column, key)


class Features(_Section):
    """The features that are read."""

    column: Annotated[
        Text,
        Field(
            description="A boolean column of AnnData's table of features, such as highly_variable: those are read for which it is true."
        ),
    ]


class ArrayFile(_Section):
    """An array beside the data."""

    uri: Annotated[Text, Field(description="Zarr, HDF5 or .npy.")]
    array: Annotated[str | None, Field(description="Path of the array inside the container.")] = None

    def open(self) -> Source:
        """The source of the array."""
        from dpca.sources import list_arrays, open_source

        held = [] if self.array else list_arrays(self.uri)
        if len(held) > 1 and all(len(one["shape"]) == 1 for one in held):
            raise InputError(
                f"{self.uri}: holds {', '.join(one['path'] for one in held)}, and which of them is not said",
                "Name it: {uri: ..., array: ...}.",
            )
        array = held[0]["path"] if len(held) == 1 else self.array
        return open_source(self.uri, array)


Weights = Literal["sqrt_cos_lat"] | ArrayFile | None


class Input(_Section):
    """Where the data are: one mapping of these keys, or a list of them.

    The inputs of a list have the same samples, and their features side by side, such as the variables of a model: one input
    is a group of features.
    """

    name: Annotated[
        Annotated[str, Field(pattern=f"^{NAME.pattern}$")] | None,
        Field(
            description="The name of this input in a list, with which the names of its arrays end, components_NAME, and those of its "
            "feature axes begin; letters, digits, - and _."
        ),
    ] = None
    uri: Annotated[
        Text | Annotated[list[Text], Field(min_length=1)],
        AfterValidator(_found),
        Field(
            description="Zarr, HDF5 or .npy: a path, or any URL that zarr opens. Files that follow each other along the samples, "
            "such as one a year, are joined: a list of them, or a pattern, data/sst_*.nc, whose files are sorted by name, as text "
            "(sst_10 is before sst_9)."
        ),
    ]
    array: Annotated[
        str | None, Field(description="Path of the array inside the container; may be left out when there is only one.")
    ] = None
    samples_axis: Annotated[
        int | str,
        Field(description="The axis of samples: a number or a dimension's name; all other axes are feature axes."),
    ] = 0
    gaps: Annotated[
        Gaps,
        Field(
            description="Of files that are joined, times have to increase from file to file. error: none may be missing, either: "
            "a step between two files is at most 1.5 times the largest step within files; allow: it may be larger."
        ),
    ] = "error"
    samples: Annotated[
        Text | list[int | Label] | Range | None,
        Field(
            description="Which samples, in this order: a list of numbers from 0 or of labels (values of their coordinate as text; of "
            "a time as much as no other shares), a range such as {start: 0, stop: 100, step: 2}, or a file of integers, of a mask, or "
            "of text with one a line. null: all."
        ),
    ] = None
    sample_names: Annotated[
        Names | None,
        Field(
            description="Names of all samples in storage, from a file of their own, in place of those that the input has."
        ),
    ] = None
    feature_names: Annotated[
        Names | None, Field(description="Names of the features, where they have one axis, from a file of their own.")
    ] = None
    feature_shape: Annotated[
        Annotated[list[Annotated[int, Field(ge=1)]], Field(min_length=2)] | None,
        Field(
            description="Shape of the features of a sample, such as [112, 92] of images that are stored flattened, in C order."
        ),
    ] = None
    features: Annotated[
        Features | None,
        Field(
            description="The features that are read, of a matrix of AnnData: {column: NAME}, a boolean column of its table of them, such as "
            "highly_variable. null: all."
        ),
    ] = None
    absent_chunks: Annotated[
        Literal["fill", "error"],
        Field(
            description="Chunks that were never written. fill: read them as the fill value, count and report them; error: refuse them."
        ),
    ] = "fill"
    missing_values: Annotated[
        list[float],
        Field(
            description="Stored values that mark a missing value, besides NaN and those that the file itself declares: its _FillValue, "
            "missing_value, and values outside its valid_range, valid_min and valid_max."
        ),
    ] = []
    read_seconds: Annotated[
        float,
        Field(gt=0, description="Seconds without a slab read after which storage counts as hanging, and the run ends."),
    ] = READ_SECONDS
    weights: Annotated[
        Weights, Field(description="In a list: weights of these features, instead of preprocess.weights.")
    ] = None
    mask: Annotated[
        ArrayFile | None,
        Field(description="In a list: the mask of these features, instead of preprocess.filters.mask."),
    ] = None
    library: Annotated[
        Literal["fsspec", "obstore"],
        Field(description="Library that opens a URL: fsspec for many protocols, obstore for fewer, but faster."),
    ] = "fsspec"
    storage_options: Annotated[
        dict[str, Any],
        Field(
            description="Options for a URL: those of fsspec's file system, or of obstore's from_url; never written to a result."
        ),
    ] = {}

    @model_validator(mode="before")
    @classmethod
    def _axis_beside_folded_ones(cls, values: Any) -> Any:
        """Count the samples axis of two from the end that is not folded, where the other one becomes several."""
        if isinstance(values, dict) and values.get("feature_shape") is not None:
            axis = values.get("samples_axis", 0)
            return {**values, "samples_axis": {1: -1, -2: 0}.get(axis, axis)}
        return values

    def open(self) -> Source:
        """The source of the array, with the samples, names and features as they are asked for.

        Raises
        ------
        InputError
            As `dpca.sources.open_joined` and `dpca.sources.views.viewed` do; or when the axis of samples is that of which
            features are chosen.
        """
        from dpca.sources.views import viewed

        source = open_joined(
            self.uris,
            self.samples_axis,
            self.gaps,
            array=self.array,
            absent_chunks=self.absent_chunks,
            storage_options=self.storage_options,
            missing_values=self.missing_values,
            read_seconds=self.read_seconds,
            library=self.library,
            column=None if self.features is None else self.features.column,
        )
        if self.features is not None and source.layout.axis_of(self.samples_axis) == 1:
            raise InputError(
                f"{source.layout.name}: samples lie along axis 1, of which input.features chooses some",
                "Leave input.features out, or set input.samples_axis: 0.",
                key="input.features",
            )
        names = {key: getattr(self, key) for key in ("sample_names", "feature_names")}
        return viewed(
            source,
            self.samples_axis,
            feature_shape=self.feature_shape,
            samples=slice(*self.samples.model_dump().values()) if isinstance(self.samples, Range) else self.samples,
            **{key: place and place.at(f"input.{key}") for key, place in names.items()},
        )

    @property
    def uris(self) -> list[str]:
        """The paths and URLs, one or more."""
        return [self.uri] if isinstance(self.uri, str) else self.uri

    @property
    def paths(self) -> list[Path]:
        """Those that are on this machine."""
        return [Path(uri) for uri in self.uris if "://" not in uri]


Inputs = Input | Annotated[list[Input], Field(min_length=2)]


class InputSection(_Section):
    """The section `input` alone."""

    input: Inputs


class SampleWeightsFile(ArrayFile):
    """A weight for each sample."""

    kind: Annotated[
        Literal["frequency", "reliability"],
        Field(
            description="frequency: a sample of weight 2 stands for two equal ones, and the divisor of variances is sum(w) - "
            "ddof; reliability: only ratios of weights matter, and it is sum(w) - ddof sum(w^2) / sum(w)."
        ),
    ] = "frequency"


class Filters(_Section):
    """Which features are left out: they are counted, and NaN in the result."""

    min_variance: Annotated[float, Field(ge=0, description="Least variance of a feature, before scaling.")] = 0.0
    max_missing: Annotated[
        float,
        Field(
            ge=0, le=1, description="Largest share of missing values; a feature without any value is left out anyway."
        ),
    ] = 1.0
    mask: Annotated[
        ArrayFile | None,
        Field(
            description="An array that broadcasts to the feature axes: a feature is used where it is true, or not 0. Values "
            "elsewhere are not looked at, so they may be missing."
        ),
    ] = None


class Preprocess(_Section):
    """What is done to each feature."""

    center: Annotated[
        bool,
        Field(
            description="Subtract the feature's mean. The default is false for kind: kernel_pca, which centres in its own "
            "space; of the kernels, it changes only poly, sigmoid and cosine."
        ),
    ] = True
    scale: Annotated[
        Scale,
        Field(
            description="std divides by the standard deviation of the values that are present, with divisor (their number - "
            "ddof); pareto by its square root; range by the largest value less the smallest. A feature whose standard "
            "deviation is at most 4 eps of its mean counts as constant, and is not divided."
        ),
    ] = "none"
    weights: Annotated[
        Weights,
        Field(
            description="Weights that multiply the features, after scaling: an array {uri, array} that broadcasts to the feature "
            "axes; or sqrt_cos_lat, the square root of the cosine of the input's latitudes, with which products of "
            "features are weighted by area."
        ),
    ] = None
    sample_weights: Annotated[
        SampleWeightsFile | None,
        Field(
            description="A positive weight for each sample, or for each in storage where some are chosen: {uri, array, kind}."
        ),
    ] = None
    missing: Annotated[
        Missing,
        Field(
            description="Missing values. error: refuse them; mean: replace them by the feature's mean; drop: leave out features "
            "that have one; pairwise: divide each entry of the Gram matrix by the number of features that both samples have, and "
            "multiply it by the number of features. Features without any value (land) are left out, except under error."
        ),
    ] = "error"
    filters: Annotated[Filters, Field(description="Features that are left out.")] = Filters()
    block_scaling: Annotated[
        BlockScaling,
        Field(
            description="Of a list of inputs: how they are scaled against each other. first_eigenvalue divides each by the standard "
            "deviation of its own first component (multiple factor analysis); total_variance by the square root of its total "
            "variance; both are found after the pass, without another read. none: as they are."
        ),
    ] = "none"


Kernel = Literal["linear", "poly", "rbf", "sigmoid", "cosine", "precomputed"]
Gamma = Annotated[float, Field(ge=0)] | Literal["median"] | None
Degree = Annotated[float, Field(ge=0)]
_SWEEP = Field(min_length=1)


class Labels(Names):
    """A label for each sample: where samples are chosen, for each in storage."""

    key: Annotated[
        Text | None,
        Field(
            description="Name of the column of a table with the samples' names, by which each finds its row; null where rows "
            "are in the order of the samples."
        ),
    ] = None


class Model(_Section):
    """What is computed."""

    kind: Annotated[
        Literal["pca", "kernel_pca"], Field(description="pca: principal component analysis; kernel_pca: kernel PCA.")
    ] = "pca"
    n_components: Annotated[
        Annotated[int, Field(ge=1)] | Annotated[float, Field(gt=0, lt=1)] | Rule | None,
        Field(
            description=f"Number of components: an integer; a share of the variance such as 0.9; rank; or a rule from the "
            "spectrum (broken_stick, gavish_donoho, marchenko_pastur, mle). "
            f"{DEFAULT_COMPONENTS}, or min(n, d) if that is less, if left out."
        ),
    ] = None
    svd_solver: Annotated[
        Literal["auto", "gram_eigh", "covariance_eigh", "tsqr"],
        Field(
            description="gram_eigh: eigendecomposition of the n x n Gram matrix; covariance_eigh: of the d x d covariance; "
            "tsqr: QR of the data, 3 to 4 times the time, for singular values below 1.5e-8 of the largest; auto: the "
            "smaller of the two matrices, then double precision and tsqr if the components need them."
        ),
    ] = "auto"
    precision: Annotated[
        Literal["auto", "single", "double"],
        Field(
            description="Precision of the matrix products. auto is single for bool, float16, float32 and integers of up to "
            "16 bits, else double. Accumulators are always float64."
        ),
    ] = "auto"
    ddof: Annotated[int, Field(ge=0, description="Explained variance is sigma^2 / (n - ddof).")] = 1
    effective_samples: Annotated[
        float | None,
        Field(
            gt=0,
            description="Number of independent samples that correlated samples are worth, for sampling errors (North's rule); "
            "null for their own number.",
        ),
    ] = None
    whiten: Annotated[bool, Field(description="Divide scores by the square root of their explained variance.")] = False
    kernel: Annotated[
        Kernel | Annotated[list[Kernel], _SWEEP],
        Field(
            description="For kernel_pca: linear, poly, rbf, sigmoid, cosine; precomputed if the input is the kernel "
            "matrix. Lists for kernel, gamma, degree or coef0 make a sweep: every combination, from one Gram matrix."
        ),
    ] = "linear"
    gamma: Annotated[
        Gamma | Annotated[list[Gamma], _SWEEP],
        Field(
            description="For poly, rbf and sigmoid. null: 1 / n_features; median: 1 / the median squared distance between samples."
        ),
    ] = None
    degree: Annotated[Degree | Annotated[list[Degree], _SWEEP], Field(description="For poly.")] = 3.0
    coef0: Annotated[float | Annotated[list[float], _SWEEP], Field(description="For poly and sigmoid.")] = 1.0
    fit_inverse_transform: Annotated[
        bool | Literal["fixed_point"],
        Field(
            description="For dpca reconstruct after kernel_pca. true: find samples by kernel ridge regression, as scikit-learn "
            "does; fixed_point, for rbf: find the samples whose images are nearest. The linear kernel needs neither."
        ),
    ] = False
    alpha: Annotated[float, Field(ge=0, description="Ridge parameter of that regression.")] = 1.0
    labels: Annotated[
        Labels | None,
        Field(
            description="A label for each sample, which goes into the result. It colours the report; for kernel_pca, the result "
            "tells how often a sample's nearest neighbour in the scores has the same label."
        ),
    ] = None


class Tls(_Section):
    """Paths of PEM files, as in Dask's own settings."""

    ca: Annotated[Text, Field(description="Certificate of the authority that signed the others.")]
    cert: Annotated[Text, Field(description="Certificate of this client.")]
    key: Annotated[Text, Field(description="Key of that certificate.")]


_CORES = Field(ge=1, description="Threads of each worker: the number of spans that it computes at the same time.")
_INTERFACE = Field(
    description="Network interface to listen on, such as ib0; null: the one that leads to the other machines."
)


class SlurmCluster(_Section):
    """Workers in Slurm jobs that the run submits and replaces, by dask-jobqueue, whose option names these are.

    Options that are left out come from the site's jobqueue.yaml of Dask.
    """

    cores: Annotated[int, _CORES]
    memory: Annotated[Amount, Field(description="Memory of each worker, such as 16 GiB: what its job requests.")]
    walltime: Annotated[
        str,
        Field(
            pattern=WALLTIME,
            description="Walltime of each job, as for sbatch: 04:00:00. Workers retire after 85 % of it and are replaced; a span "
            "has to end within a tenth.",
        ),
    ]
    maximum: Annotated[int, Field(ge=1, description="Most workers at the same time.")]
    minimum: Annotated[int, Field(ge=0, description="Fewest workers at the same time.")] = 1
    queue: Annotated[Text | None, Field(description="Slurm partition.")] = None
    account: Annotated[Text | None, Field(description="Slurm account to charge.")] = None
    interface: Annotated[Text | None, _INTERFACE] = None
    job_extra_directives: Annotated[
        list[Text], Field(description="Further options for sbatch, such as --constraint=skylake.")
    ] = []
    job_script_prologue: Annotated[
        list[str], Field(description="Commands to run before a worker starts: module load ...")
    ] = []


class SlurmRunner(_Section):
    """Tasks of one Slurm job, started by srun: a scheduler, the run and workers. `dpca submit` writes such a job."""

    workers: Annotated[int, Field(ge=1, description="Number of workers; the job step has two tasks more.")]
    cores: Annotated[int, _CORES] = 1
    memory: Annotated[Amount, Field(description="Memory of each worker, such as 16 GiB.")]
    interface: Annotated[Text | None, _INTERFACE] = None


class Cluster(_Section):
    """A Dask cluster: one of scheduler, scheduler_file, slurm and slurm_runner."""

    scheduler: Annotated[
        Text | None,
        Field(description="Address of a running scheduler, such as tcp://host:8786, or tls://host:8786."),
    ] = None
    scheduler_file: Annotated[
        Text | None, Field(description="File to which a running scheduler wrote its address.")
    ] = None
    tls: Annotated[Tls | None, Field(description="Certificates, if that scheduler uses TLS.")] = None
    slurm: Annotated[SlurmCluster | None, Field(description="Workers in jobs that the run submits.")] = None
    slurm_runner: Annotated[SlurmRunner | None, Field(description="Workers in the job that the run is in.")] = None


class Compute(_Section):
    """Where it is computed."""

    cluster: Annotated[
        Literal["local"] | Cluster,
        Field(
            description="local: the cores of this machine; or {scheduler: ADDRESS}, {scheduler_file: PATH}, {slurm: ...} or "
            "{slurm_runner: ...}."
        ),
    ] = "local"
    workers: Annotated[
        Literal["auto"] | Annotated[int, Field(ge=1)],
        Field(description="Parallel spans on this machine; auto: one per core. The result is bitwise the same."),
    ] = "auto"

    memory: Annotated[
        Literal["auto"] | Amount,
        Field(
            description="Private memory of all processes on this machine, or of each worker of a cluster, such as "
            "8 GiB; auto: half of the free memory. Limits of control groups and of Slurm are respected."
        ),
    ] = "auto"
    scratch: Annotated[
        Text | None,
        Field(description="Directory for a copy of the input, if its chunks need one; null: beside the result."),
    ] = None


class Output(_Section):
    """Where the result goes."""

    path: Annotated[Text, Field(description="Directory of the result; must not hold one already, unless --overwrite.")]
    components: Annotated[bool, Field(description="false: only scores and spectrum, in one read of the data.")] = True
    gram: Annotated[bool, Field(description="Keep the n x n Gram matrix in the result.")] = True
    report: Annotated[bool, Field(description="Write report.html, if jinja2 and matplotlib are installed.")] = True


class Config(_Section):
    """A run of dpca."""

    input: Inputs
    preprocess: Preprocess = Preprocess()
    model: Model = Model()
    compute: Compute = Compute()
    output: Output

    @property
    def inputs(self) -> list[Input]:
        """The inputs, one or more."""
        return self.input if isinstance(self.input, list) else [self.input]

    @model_validator(mode="before")
    @classmethod
    def _kernels_centre_for_themselves(cls, values: Any) -> Any:
        """Set center to false for kernel PCA, unless it is given: scikit-learn's kernels take samples uncentred."""
        model = values.get("model") if isinstance(values, dict) else None
        preprocess = values.get("preprocess", {}) if isinstance(values, dict) else None
        if isinstance(model, dict) and model.get("kind") == "kernel_pca" and isinstance(preprocess, dict):
            return {**values, "preprocess": {"center": False, **preprocess}}
        return values


_AMOUNT = "an amount such as 8 GiB or 1.5 GiB"

ALLOWED = {
    "input": "a mapping of the keys of an input, or a list of two or more of these mappings",
    "preprocess.weights": "sqrt_cos_lat, or an array {uri: PATH}",
    "preprocess.filters.mask": "an array {uri: PATH}",
    "input.uri": "text without control characters (such as line breaks), or a list of such text,",
    "input.samples_axis": "an integer such as 0, or a dimension's name",
    "input.samples": "a list of numbers and labels, {start: 0, stop: 100, step: 2}, or the path of a file",
    "input.feature_shape": "a list of two integers or more, each of 1 or more, such as [112, 92]",
    "input.missing_values": "a list of numbers such as [-999] (NaN counts as missing anyway)",
    "compute.cluster": "local, {scheduler: ADDRESS}, {scheduler_file: PATH}, {slurm: ...} or {slurm_runner: ...}",
    "compute.workers": "auto or an integer of 1 or more",
    "compute.memory": f"auto or {_AMOUNT}",
    "compute.cluster.slurm.memory": _AMOUNT,
    "compute.cluster.slurm_runner.memory": _AMOUNT,
    "model.n_components": "an integer of 1 or more, a share of the variance between 0 and 1, or one of "
    + ", ".join(RULES),
    "compute.cluster.slurm.walltime": "a time such as '04:00:00' (hours:minutes:seconds)",
    "model.kernel": "linear, poly, rbf, sigmoid, cosine, precomputed or a list of them",
    "model.gamma": "a number from 0, median, null or a list of them",
    "model.degree": "a number from 0 or a list of them",
    "model.coef0": "a number or a list of them",
    "model.fit_inverse_transform": "true, false or fixed_point",
}
"""Allowed values in words, where the messages for the members of a union would be unclear."""

_WRITE_AMOUNT = "Write a number with a point, and a unit; 1 MiB is the least."

REMEDIES = {
    "input": "Write input: {uri: PATH}.",
    "output": "Write output: {path: DIRECTORY}.",
    "input.sample_names": "Write sample_names: {uri: PATH}.",
    "input.feature_names": "Write feature_names: {uri: PATH}.",
    "model.labels": "Write labels: {uri: PATH}.",
    "preprocess.weights": "Write weights: {uri: PATH}.",
    "preprocess.sample_weights": "Write sample_weights: {uri: PATH}.",
    "compute.cluster": "Write slurm: {cores: 8, memory: 32 GiB, walltime: '04:00:00', maximum: 40} under cluster, or the like.",
    "compute.memory": _WRITE_AMOUNT,
    "compute.cluster.slurm.memory": _WRITE_AMOUNT,
    "compute.cluster.slurm_runner.memory": _WRITE_AMOUNT,
}
"""Remedies for errors that need more than a corrected value."""


def without_secrets(values: Any, key: str = "") -> Any:
    """A configuration, or its values at a key, safe to write down and show: storage options and credentials are redacted.

    Parameters
    ----------
    values : plain values
    key : their key in the configuration, such as model.labels
    """
    if isinstance(values, Mapping):
        return {name: without_secrets(value, f"{key}.{name}".lstrip(".")) for name, value in values.items()}
    if key.startswith("input.storage_options"):
        return HIDDEN
    if isinstance(values, list):  # the keys of each input of a list are those of one input
        return [without_secrets(value, key) for value in values]
    return without_credentials(values) if isinstance(values, str) else values


def schema() -> dict[str, Any]:
    """JSON Schema of the configuration, for editors."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Config.model_json_schema()}


OF_KERNELS = ("kernel", "gamma", "degree", "coef0", "fit_inverse_transform", "alpha", "labels")
"""Keys of the model that only matter after the Gram matrix: a resumed run may change them."""


def check_together(config: Config) -> None:
    """Refuse keys that contradict each other."""
    _check_place(config)
    _check_inputs(config)
    if config.model.kind == "pca":
        _check_no_kernels(config.model)
        return
    _check_kernels(config)
    if "precomputed" in _kernels_of(config.model):
        _check_precomputed(config)


def _check_inputs(config: Config) -> None:
    """Inputs of a list have names of their own; the only input has nothing to be told from."""
    if not isinstance(config.input, list):
        for key in ("name", "weights", "mask"):
            if getattr(config.input, key) is not None:
                where = {"weights": "preprocess.weights", "mask": "preprocess.filters.mask"}.get(key)
                raise ConfigError(
                    f"input.{key} is for an input of a list, but there is one input",
                    f"Set {where} instead." if where else "Leave it out.",
                    key=f"input.{key}",
                )
        if config.preprocess.block_scaling != "none":
            raise ConfigError(
                f"preprocess.block_scaling is {config.preprocess.block_scaling}, which scales inputs against each other, but "
                "there is one input",
                "Give a list of inputs with a name each, or leave it out.",
                key="preprocess.block_scaling",
            )
        return
    names: list[str] = []
    for number, one in enumerate(config.input):
        if one.name is None or one.name in names:
            problem = "has no name" if one.name is None else f"is named {one.name}, as input.{names.index(one.name)} is"
            raise ConfigError(
                f"input.{number} {problem}: names tell the inputs of a list apart",
                "Give each a name of its own, such as name: temperature.",
                key=f"input.{number}.name" if one.name else f"input.{number}.uri",
            )
        names.append(one.name)
    if config.preprocess.filters.mask is not None and all(one.mask is not None for one in config.input):
        raise ConfigError(
            "preprocess.filters.mask is set, but each input has a mask of its own",
            "Leave it out.",
            "preprocess.filters.mask",
        )


def _check_place(config: Config) -> None:
    """Where it runs, and where the result goes."""
    cluster = config.compute.cluster
    if isinstance(cluster, Cluster):
        _check_cluster(cluster)
        if config.compute.workers != "auto":
            raise ConfigError(
                f"compute.workers is {config.compute.workers}, but compute.cluster is not local: workers there have threads of "
                "their own",
                "Leave it out.",
                key="compute.workers",
            )
    path = config.output.path
    for uri in (path for one in config.inputs for path in one.paths):
        if Path(os.path.realpath(path)).is_relative_to(os.path.realpath(uri)):
            raise ConfigError(
                f"output.path is {path}, which lies in {uri}, the input",
                "Choose another output.path.",
                key="output.path",
            )


def _kernels_of(model: Model) -> Sequence[str]:
    return model.kernel if isinstance(model.kernel, list) else [model.kernel]


def _check_no_kernels(model: Model) -> None:
    """PCA has no keys of kernels."""
    for key in set(OF_KERNELS) - {"labels"}:
        if getattr(model, key) != Model.model_fields[key].default:
            raise ConfigError(
                f"model.{key} is {getattr(model, key)!r}, but model.kind is pca, which has no {key}",
                f"Set model.kind: kernel_pca, or leave model.{key} out.",
                key=f"model.{key}",
            )


def _check_kernels(config: Config) -> None:
    """Parameters that no kernel has, and what is not defined of kernels."""
    model, names = config.model, _kernels_of(config.model)
    for key in ("gamma", "degree", "coef0"):
        value = getattr(model, key)
        if value != Model.model_fields[key].default and not any(key in USES.get(name, ()) for name in names):
            having = [name for name, uses in USES.items() if key in uses]
            raise ConfigError(
                f"model.{key} is {value!r}, but model.kernel is {model.kernel}, which has no {key}",
                f"Leave model.{key} out, or set model.kernel to {' or '.join(having)}.",
                key=f"model.{key}",
            )
    if model.svd_solver not in ("auto", "gram_eigh"):
        raise ConfigError(
            f"model.svd_solver is {model.svd_solver}, but kernels are of the Gram matrix: auto or gram_eigh is allowed",
            "Leave model.svd_solver out.",
            key="model.svd_solver",
        )
    if model.fit_inverse_transform == "fixed_point" and names != ["rbf"]:
        raise ConfigError(
            f"model.fit_inverse_transform is fixed_point, which is for rbf, but model.kernel is {model.kernel}",
            "Set it to true, or model.kernel: rbf.",
            key="model.fit_inverse_transform",
        )
    if model.fit_inverse_transform == "fixed_point" and not config.output.gram:
        raise ConfigError(
            "model.fit_inverse_transform is fixed_point, which needs the Gram matrix, but output.gram is false",
            "Leave output.gram out.",
            key="output.gram",
        )


def _check_precomputed(config: Config) -> None:
    """Of a kernel matrix there are no samples and no features."""
    model, preprocess, names = config.model, config.preprocess, _kernels_of(config.model)
    if len(names) > 1:
        raise ConfigError(
            f"model.kernel is {names}, but precomputed says that the input is a kernel matrix, of which no other can be made",
            "Leave out precomputed, or the others.",
            key="model.kernel",
        )
    if isinstance(config.input, list):
        raise ConfigError("input is a list, but a kernel matrix is one input", "Give one, without a name.", key="input")
    for key in ("samples", "feature_shape"):
        if getattr(config.input, key) is not None:
            raise ConfigError(
                f"input.{key} is set, but the input is a kernel matrix, whose rows and columns are the samples",
                "Leave it out, and give the matrix of the samples that are wanted.",
                key=f"input.{key}",
            )
    plain_of = {name: field.default for name, field in Preprocess.model_fields.items()} | {"center": False}
    for key, plain in plain_of.items():
        if getattr(preprocess, key) != plain:
            raise ConfigError(
                f"preprocess.{key} is {getattr(preprocess, key)!r}, but the input is a kernel matrix, which has no features",
                f"Leave preprocess.{key} out: the matrix is centred in any case.",
                key=f"preprocess.{key}",
            )
    if model.fit_inverse_transform:
        raise ConfigError(
            f"model.fit_inverse_transform is {model.fit_inverse_transform}, but of a kernel matrix there are no samples to combine",
            "Leave it out.",
            key="model.fit_inverse_transform",
        )


def _check_cluster(cluster: Cluster) -> None:
    """Refuse keys of a cluster that contradict each other, or not exactly one way to find or start workers."""
    ways = ("scheduler", "scheduler_file", "slurm", "slurm_runner")
    chosen = [way for way in ways if getattr(cluster, way) is not None]
    if len(chosen) != 1:
        raise ConfigError(
            f"compute.cluster has {' and '.join(chosen) or 'none of its keys'}, but one of {', '.join(ways)} is allowed",
            "Give the address of a scheduler, the file with its address, or how to start workers.",
            key="compute.cluster",
        )
    if cluster.tls and chosen[0].startswith("slurm"):
        raise ConfigError(
            f"compute.cluster has tls and {chosen[0]}, but certificates are for a scheduler that runs already",
            "Leave tls out.",
            key="compute.cluster.tls",
        )
    if cluster.slurm and not walltime_seconds(cluster.slurm.walltime):
        raise ConfigError(
            f"compute.cluster.slurm.walltime is {cluster.slurm.walltime}, which is no time",
            "Give hours, minutes and seconds, such as '04:00:00'.",
            key="compute.cluster.slurm.walltime",
        )
    if cluster.slurm and cluster.slurm.minimum > cluster.slurm.maximum:
        raise ConfigError(
            f"compute.cluster.slurm.minimum is {cluster.slurm.minimum}, which is more than its maximum, {cluster.slurm.maximum}",
            "Correct one of them.",
            key="compute.cluster.slurm.minimum",
        )
