"""The configuration: all its keys, as frozen models.

`Config` is their reference; `dpca schema` prints it as JSON Schema. `dpca.config_file` reads YAML into it.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ByteSize, ConfigDict, Field, model_validator

from dpca.dimension import RULES, Rule
from dpca.errors import ConfigError
from dpca.sources.base import READ_SECONDS

DEFAULT_COMPONENTS = 20


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class Input(_Section):
    """Where the data are."""

    uri: Annotated[str, Field(min_length=1, description="Zarr, HDF5 or .npy: a path, or any URL that zarr opens.")]
    array: Annotated[
        str | None, Field(description="Path of the array inside the container; may be left out when there is only one.")
    ] = None
    samples_axis: Annotated[
        int | str,
        Field(description="The axis of samples, a number or a dimension's name; every other axis is a feature axis."),
    ] = 0
    absent_chunks: Annotated[
        Literal["fill", "error"],
        Field(
            description="Chunks that the store never wrote: read as its fill value, counted and reported; or refused."
        ),
    ] = "fill"
    missing_values: Annotated[
        list[float],
        Field(description="Stored values that mark a missing one, besides NaN and what the file itself says."),
    ] = []
    read_seconds: Annotated[
        float,
        Field(gt=0, description="How long no slab may be read until storage counts as hanging, and the run ends."),
    ] = READ_SECONDS
    storage_options: Annotated[
        dict[str, Any], Field(description="Options of a URL's file system; never written to a result.")
    ] = {}


class Preprocess(_Section):
    """What is done to each feature."""

    center: Annotated[
        bool,
        Field(
            description="Subtract the feature's mean. false when left out with kind: kernel_pca, which centres in its own "
            "space; it matters to poly, sigmoid and cosine."
        ),
    ] = True
    scale: Annotated[
        Literal["none", "std"],
        Field(description="std divides by the standard deviation with divisor n - ddof; constant features stay 0."),
    ] = "none"
    missing: Annotated[
        Literal["error", "mean"], Field(description="At NaN: refuse it, or fill in the feature's mean.")
    ] = "error"


Kernel = Literal["linear", "poly", "rbf", "sigmoid", "cosine", "precomputed"]
Gamma = Annotated[float, Field(ge=0)] | Literal["median"] | None
Degree = Annotated[float, Field(ge=0)]
_SWEEP = Field(min_length=1)


class Labels(_Section):
    """A label for each sample."""

    uri: Annotated[str, Field(min_length=1, description="Zarr, HDF5, .npy, or a text file with a label a line.")]
    array: Annotated[str | None, Field(description="Path of the array inside the container.")] = None


class Model(_Section):
    """What is computed."""

    kind: Annotated[
        Literal["pca", "kernel_pca"], Field(description="Principal component analysis, or that of a kernel.")
    ] = "pca"
    n_components: Annotated[
        Annotated[int, Field(ge=1)] | Annotated[float, Field(gt=0, lt=1)] | Rule | None,
        Field(
            description=f"How many components: a number; a share of the variance such as 0.9; rank; or a rule from the "
            "spectrum (broken_stick, gavish_donoho, marchenko_pastur, mle). "
            f"{DEFAULT_COMPONENTS}, or min(n, d) if that is less, when left out."
        ),
    ] = None
    svd_solver: Annotated[
        Literal["auto", "gram_eigh", "covariance_eigh", "tsqr"],
        Field(
            description="gram_eigh: eigendecomposition of the n x n Gram matrix; covariance_eigh: of the d x d covariance; "
            "tsqr: QR of the data, 3 to 4 times the time, for singular values below 1.5e-8 of the largest; auto: the "
            "smaller of the two matrices, then what the components need."
        ),
    ] = "auto"
    precision: Annotated[
        Literal["auto", "single", "double"],
        Field(
            description="Of the products. auto is single for bool, float16, float32 and integers of up to 16 bits, "
            "else double. Accumulators are float64 always."
        ),
    ] = "auto"
    ddof: Annotated[int, Field(ge=0, description="Explained variance is sigma^2 / (n - ddof).")] = 1
    effective_samples: Annotated[
        float | None,
        Field(
            gt=0,
            description="How many independent samples correlated ones are as good as, for sampling errors (North's rule); "
            "null for as many as there are.",
        ),
    ] = None
    whiten: Annotated[bool, Field(description="Divide scores by the square root of their explained variance.")] = False
    kernel: Annotated[
        Kernel | Annotated[list[Kernel], _SWEEP],
        Field(
            description="Of kernel_pca: linear, poly, rbf, sigmoid, cosine; precomputed where the input is the kernel "
            "matrix. A list of any of kernel, gamma, degree and coef0 is a sweep: every combination, from one Gram matrix."
        ),
    ] = "linear"
    gamma: Annotated[
        Gamma | Annotated[list[Gamma], _SWEEP],
        Field(
            description="Of poly, rbf and sigmoid; null is 1 / n_features, median 1 / the median squared distance of samples."
        ),
    ] = None
    degree: Annotated[Degree | Annotated[list[Degree], _SWEEP], Field(description="Of poly.")] = 3.0
    coef0: Annotated[float | Annotated[list[float], _SWEEP], Field(description="Of poly and sigmoid.")] = 1.0
    fit_inverse_transform: Annotated[
        bool | Literal["fixed_point"],
        Field(
            description="Of kernel_pca, for dpca reconstruct: true finds samples by kernel ridge regression, as "
            "scikit-learn does; fixed_point, for rbf, the samples whose images are nearest. The linear kernel needs none."
        ),
    ] = False
    alpha: Annotated[float, Field(ge=0, description="Ridge of that regression.")] = 1.0
    labels: Annotated[
        Labels | None,
        Field(
            description="Of kernel_pca: a label for each sample; how often a sample's neighbour in the scores has its own."
        ),
    ] = None


class Tls(_Section):
    """Paths of PEM files, as Dask's own settings have them."""

    ca: Annotated[str, Field(min_length=1, description="Certificate of the authority that signed the others.")]
    cert: Annotated[str, Field(min_length=1, description="Certificate of this client.")]
    key: Annotated[str, Field(min_length=1, description="Its key.")]


class Scheduler(_Section):
    """A Dask scheduler that runs already."""

    scheduler: Annotated[
        str | None, Field(min_length=1, description="Its address, such as tcp://host:8786, or tls://host:8786.")
    ] = None
    scheduler_file: Annotated[
        str | None, Field(min_length=1, description="Instead of its address: the file that it wrote it to.")
    ] = None
    tls: Annotated[Tls | None, Field(description="Certificates, where it speaks TLS.")] = None


class Compute(_Section):
    """Where it is computed."""

    cluster: Annotated[
        Literal["local"] | Scheduler,
        Field(description="local: the cores of this machine; or {scheduler: ADDRESS} or {scheduler_file: PATH}."),
    ] = "local"
    workers: Annotated[
        Literal["auto"] | Annotated[int, Field(ge=1)],
        Field(description="Spans that run at the same time on this machine; auto: one a core. The bits do not change."),
    ] = "auto"

    memory: Annotated[
        Literal["auto"] | ByteSize,
        Field(
            description="Private memory of all processes on this machine, or of each worker of a cluster, such as "
            "8 GiB; auto: half of what is free. Limits of control groups and of Slurm are respected."
        ),
    ] = "auto"
    scratch: Annotated[
        str | None,
        Field(description="Directory for a copy of the input, where its chunks need one; beside the result if null."),
    ] = None


class Output(_Section):
    """Where the result goes."""

    path: Annotated[str, Field(min_length=1, description="A directory; must not hold a result, unless --overwrite.")]
    components: Annotated[bool, Field(description="false: scores and spectrum only, in one read of the data.")] = True
    gram: Annotated[bool, Field(description="Keep the n x n Gram matrix in the result.")] = True


class Config(_Section):
    """A run of dpca."""

    input: Input
    preprocess: Preprocess = Preprocess()
    model: Model = Model()
    compute: Compute = Compute()
    output: Output

    @model_validator(mode="before")
    @classmethod
    def _kernels_centre_for_themselves(cls, values: Any) -> Any:
        """scikit-learn's kernels see samples as they are, so that is what is computed unless center is set."""
        model = values.get("model") if isinstance(values, dict) else None
        preprocess = values.get("preprocess", {}) if isinstance(values, dict) else None
        if isinstance(model, dict) and model.get("kind") == "kernel_pca" and isinstance(preprocess, dict):
            return {**values, "preprocess": {"center": False, **preprocess}}
        return values


ALLOWED = {
    "model.n_components": "an integer of 1 or more, a share of the variance between 0 and 1, or one of "
    + ", ".join(RULES),
    "model.kernel": "linear, poly, rbf, sigmoid, cosine, precomputed or a list of them",
    "model.gamma": "a number from 0, median, null or a list of them",
    "model.degree": "a number from 0 or a list of them",
    "model.coef0": "a number or a list of them",
    "model.fit_inverse_transform": "true, false or fixed_point",
}
"""What is allowed, where the members of a union would not say it well."""


def schema() -> dict[str, Any]:
    """JSON Schema of the configuration, for editors."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Config.model_json_schema()}


OF_KERNELS = ("kernel", "gamma", "degree", "coef0", "fit_inverse_transform", "alpha", "labels")
"""Keys of the model that come after the Gram matrix: a run that is gone on with may have others."""


def check_together(config: Config) -> None:
    """Refuse keys that contradict each other."""
    model, preprocess, cluster = config.model, config.preprocess, config.compute.cluster
    if isinstance(cluster, Scheduler) and (cluster.scheduler is None) == (cluster.scheduler_file is None):
        how = "neither" if cluster.scheduler is None else "both"
        raise ConfigError(
            f"compute.cluster has {how} of scheduler and scheduler_file, but one of them is allowed",
            "Give the address of the scheduler, or the file that it wrote it to.",
            key="compute.cluster",
        )
    names = model.kernel if isinstance(model.kernel, list) else [model.kernel]
    if model.kind == "pca":
        for key in OF_KERNELS:
            if getattr(model, key) != Model.model_fields[key].default:
                raise ConfigError(
                    f"model.{key} is {getattr(model, key)!r}, but model.kind is pca, which has no {key}",
                    f"Set model.kind: kernel_pca, or leave model.{key} out.",
                    key=f"model.{key}",
                )
        return
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
    if "precomputed" not in names:
        return
    if len(names) > 1:
        raise ConfigError(
            f"model.kernel is {names}, but precomputed says that the input is a kernel matrix, of which no other can be made",
            "Leave out precomputed, or the others.",
            key="model.kernel",
        )
    for key, plain in (("center", False), ("scale", "none"), ("missing", "error")):
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
