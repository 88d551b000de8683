"""The configuration: YAML to frozen models, with every error at its line and column.

`Config` is the reference of all keys; `dpca schema` prints it as JSON Schema. YAML 1.2, safe loading.
"""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ByteSize, ConfigDict, Field, ValidationError, model_validator
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, SequenceNode

from dpca.dimension import RULES, Rule
from dpca.errors import ConfigError, DpcaError
from dpca.sources.base import READ_SECONDS

DEFAULT_COMPONENTS = 20


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


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


class Scheduler(_Section):
    """A Dask scheduler that runs already."""

    scheduler: Annotated[str, Field(min_length=1, description="Its address, such as tcp://host:8786.")]


class Compute(_Section):
    """Where it is computed."""

    cluster: Annotated[
        Literal["local"] | Scheduler, Field(description="local: the cores of this machine; or {scheduler: ADDRESS}.")
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


Path_ = tuple[str | int, ...]

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


@dataclass(frozen=True)
class Loaded:
    """A configuration and where its keys stand."""

    config: Config
    marks: Mapping[Path_, str] = field(default_factory=dict)
    """file:line:column of each value, by path."""
    path: str = "CONFIG"
    """The file."""
    overrides: tuple[str, ...] = ()

    @property
    def command(self) -> str:
        """The command that runs it, as one would type it."""
        return shlex.join(["dpca", "run", self.path, *(word for key in self.overrides for word in ("--set", key))])

    def locate(self, error: DpcaError) -> DpcaError:
        """The error with the line of its key in front, where the file sets that key."""
        mark = self.marks.get(tuple(error.key.split(".")))
        if mark is None:
            return error
        return type(error)(f"{mark}: {error.message}", error.remedy, error.key)


def schema() -> dict[str, Any]:
    """JSON Schema of the configuration, for editors."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Config.model_json_schema()}


def load(path: str | Path, overrides: Sequence[str] = ()) -> Loaded:
    """Read a configuration.

    Parameters
    ----------
    path : a YAML file
    overrides : KEY=VALUE, such as model.n_components=30; VALUE is YAML

    Raises
    ------
    ConfigError
        All that is wrong, a line each: file:line:column, the value, what is allowed, the nearest key.
    """
    name = str(path)
    values, marks = _parse(_text(path), name)
    if not isinstance(values, dict):
        raise ConfigError(
            f"{name}:1:1: is not a mapping of input, preprocess, model, compute and output",
            "Begin with\ninput:\n  uri: data.zarr\noutput:\n  path: results/mine",
        )
    for override in overrides:
        _override(values, marks, override)
    try:
        loaded = Loaded(Config.model_validate(values), marks, name, tuple(overrides))
    except ValidationError as errors:
        raise ConfigError(*_explain(errors, values, marks, name)) from None
    try:
        _check_together(loaded.config)
    except ConfigError as error:
        raise loaded.locate(error) from None
    return loaded


OF_KERNELS = ("kernel", "gamma", "degree", "coef0", "fit_inverse_transform", "alpha", "labels")
"""Keys of the model that come after the Gram matrix: a run that is gone on with may have others."""


def _check_together(config: Config) -> None:
    """Refuse keys that contradict each other."""
    model, preprocess = config.model, config.preprocess
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


def load_input(path: str | Path) -> Input:
    """Read where data are from a YAML file: the `input` of a config, or its keys alone.

    Raises
    ------
    ConfigError
        As `load` does.
    """
    name = str(path)
    values, marks = _parse(_text(path), name)
    inside: Path_ = ("input",) if isinstance(values, dict) and "input" in values else ()
    given = values["input"] if inside else values
    if not isinstance(given, dict):
        raise ConfigError(
            f"{marks.get(inside, name + ':1:1')}: is not a mapping of the keys of input", "Begin with\nuri: data.zarr"
        )
    try:
        return Input.model_validate(given)
    except ValidationError as errors:
        at = {path[len(inside) :]: mark for path, mark in marks.items() if path[: len(inside)] == inside}
        raise ConfigError(*_explain(errors, given, at, name, Input)) from None


def _text(path: str | Path) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as cause:
        reason = cause.strerror if isinstance(cause, OSError) else "not UTF-8 text"
        raise ConfigError(
            f"{path}: can't be read: {reason}", "Name a YAML file, such as configs/quickstart.yaml."
        ) from cause


def _parse(text: str, name: str) -> tuple[Any, dict[Path_, str]]:
    """Plain values, and file:line:column of each."""
    yaml = YAML(typ="safe", pure=True)
    marks: dict[Path_, str] = {}

    def mark(node: Node, path: Path_, at: Node) -> None:
        marks[path] = f"{name}:{at.start_mark.line + 1}:{at.start_mark.column + 1}"
        if isinstance(node, MappingNode):
            for key, value in node.value:
                # Marked at the value, or at the key where the value is on lines of its own.
                mark(value, (*path, str(key.value)), key if isinstance(value, MappingNode) else value)
                marks[(*path, str(key.value), "<key>")] = (
                    f"{name}:{key.start_mark.line + 1}:{key.start_mark.column + 1}"
                )
        elif isinstance(node, SequenceNode):
            for index, value in enumerate(node.value):
                mark(value, (*path, index), value)

    try:
        node = yaml.compose(text)
        if node is not None:
            mark(node, (), node)
        return yaml.load(text), marks
    except MarkedYAMLError as error:
        at = error.problem_mark or error.context_mark
        where = f"{name}:{at.line + 1}:{at.column + 1}" if at else name
        problem = (error.problem or "").splitlines()
        raise ConfigError(
            f"{where}: not valid YAML: {problem[0] if problem else error.context}", "Correct the line."
        ) from None
    except YAMLError as error:
        raise ConfigError(f"{name}: not valid YAML: {error}", "Correct the file.") from None


def _override(values: dict[str, Any], marks: dict[Path_, str], override: str) -> None:
    key, equals, text = override.partition("=")
    path = tuple(key.strip().split("."))
    if not equals or not all(path):
        raise ConfigError(f"--set {override}: is not KEY=VALUE", "Write it like --set model.n_components=30.")
    value, _ = _parse(text, f"--set {override}")
    inner = values
    for part in path[:-1]:
        child = inner.setdefault(part, {})
        if child is None:
            child = inner[part] = {}
        if not isinstance(child, dict):
            raise ConfigError(f"--set {override}: {part} is {child!r}, which has no keys", "Set the whole of it.")
        inner = child
    inner[path[-1]] = value
    for length in range(1, len(path) + 1):
        marks[path[:length]] = marks[(*path[:length], "<key>")] = f"--set {override}"


def _explain(
    errors: ValidationError,
    values: dict[str, Any],
    marks: Mapping[Path_, str],
    name: str,
    model: type[BaseModel] = Config,
) -> tuple[str, str]:
    """One line for each key that is wrong, and the remedies."""
    lines: dict[Path_, str] = {}
    remedies: list[str] = []
    for error in errors.errors():
        path, value = _existing(error["loc"], values)
        key = ".".join(map(str, path)) or "the file"
        if error["type"] == "extra_forbidden":
            parent = _section(path[:-1], model)
            near = difflib.get_close_matches(str(path[-1]), parent, n=1) if parent else []
            where = marks.get((*path, "<key>"), name)
            lines[path] = f"{where}: unknown key {key}"
            remedies.append(
                f"Did you mean {'.'.join(map(str, (*path[:-1], near[0])))}?"
                if near
                else f"Allowed here are {', '.join(parent)}."
            )
        elif error["type"] == "missing":
            absent = ".".join(map(str, (*path, error["loc"][-1])))
            lines[(*path, error["loc"][-1])] = f"{marks.get(path, name)}: {absent} is missing"
            remedies.append(f"Set {absent}.")
        else:
            allowed = error["msg"].removeprefix("Input should be ").replace("greater than or equal to", "at least")
            allowed = allowed.replace("a valid dictionary or instance of Scheduler", "{scheduler: ADDRESS}")
            allowed = re.sub("a valid dictionary or instance of .*", "a mapping of keys", allowed)
            if error["type"].startswith("byte_size"):
                allowed = "an amount such as 8 GiB"
            if key in ALLOWED:
                lines.pop(path, None)
                allowed = ALLOWED[key]
            text = f"{marks.get(path, name)}: {key} is {value!r}, but "
            # The members of a union are wrong each for itself: one line says them all.
            lines[path] = f"{lines[path]} or {allowed}" if path in lines else text + allowed
    for path in list(lines):
        if any(other != path and other[: len(path)] == path for other in lines):
            del lines[path]  # what is wrong inside says more
        elif " but " in lines[path]:
            lines[path] += " is allowed"
    return "\n".join(lines.values()), " ".join(dict.fromkeys(remedies)) or "Correct the value."


def _existing(location: Sequence[str | int], values: Any) -> tuple[Path_, Any]:
    """The parts of a location that are keys of the file: pydantic puts members of a union between them."""
    path: list[str | int] = []
    for part in location:
        if isinstance(values, dict) and part in values:
            values = values[part]
            path.append(part)
    return tuple(path), values


def _section(path: Path_, model: Any) -> list[str]:
    """The keys that are allowed at a path of a model."""
    for part in path:
        field_ = model.model_fields.get(str(part))
        annotation = None if field_ is None else field_.annotation
        model = next(
            (
                option
                for option in (annotation, *getattr(annotation, "__args__", ()))
                if isinstance(option, type) and issubclass(option, BaseModel)
            ),
            None,
        )
        if model is None:
            return []
    return list(model.model_fields)
