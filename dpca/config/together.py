"""Keys of a configuration that contradict each other."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dpca.config.compute import Cluster
from dpca.config.inputs import Section
from dpca.config.schema import (
    N_FOLDS,
    OF_KERNELS,
    OF_LISTS,
    Config,
    FeatureGroups,
    ModelSection,
    Preprocess,
    RegressOut,
)
from dpca.errors import ConfigError
from dpca.kernels.kinds import USES
from dpca.numerics.dimension import BI_CROSS_VALIDATION
from dpca.settings import COMPUTE, MODEL, OUTPUT, PREPROCESS
from dpca.units import walltime_seconds


def check_together(config: Config) -> None:
    """Refuse keys that contradict each other."""
    _check_place(config)
    _check_inputs(config)
    check_analysis(config)


def check_analysis(config: Config) -> None:
    """Refuse keys of preprocessing, model and output that contradict each other."""
    _check_groups(config)
    if config.preprocess.regress_out is not None:
        _check_regress_out(config.preprocess.regress_out)
    if config.model.rotation is not None:
        _check_rotation(config)
    if config.model.kind == "pca":
        _check_no_kernels(config.model)
        return
    _check_kernels(config)
    if "precomputed" in _kernels_of(config.model):
        _check_precomputed(config)


def _check_rotation(config: Config) -> None:
    """Rotation requires written components."""
    if config.model.kind != "pca" or not config.output.components:
        why = "output.components is false" if config.model.kind == "pca" else f"model.kind is {config.model.kind}"
        raise ConfigError(
            f"{MODEL.rotation} is set, but {why}: there are no components to rotate",
            f"Leave {MODEL.rotation} out, or let a PCA write components.",
            key="model.rotation",
        )


def _check_regress_out(asked: RegressOut) -> None:
    """Regression requires a regressor, and a division in groups requires groups."""
    if asked.scale is not None and asked.by is None and asked.seasonal_cycle is None:
        raise ConfigError(
            f"{PREPROCESS.regress_out.scale} is {asked.scale}, but nothing says in which groups of samples: neither by nor seasonal_cycle is set",
            f"{PREPROCESS.regress_out.set_to({'by': 'run', 'scale': 'std'})}, with a coordinate or labels of the samples, or "
            f"{PREPROCESS.scale.at('std')} for one standard deviation of all samples.",
            key="preprocess.regress_out.scale",
        )
    if asked == RegressOut():
        raise ConfigError(
            f"{PREPROCESS.regress_out} is empty, but one of seasonal_cycle, trend, covariates and by is needed",
            f"{PREPROCESS.regress_out.set_to({'seasonal_cycle': 'month'})}, or leave it out.",
            key="preprocess.regress_out",
        )


def _check_groups(config: Config) -> None:
    """Groups of features exclude some settings."""
    asked, rule = config.output.groups, config.model.n_components
    if isinstance(asked, FeatureGroups):
        if sum(one is not None for one in (asked.labels, asked.ranges, asked.by)) > 1:
            raise ConfigError(
                f"{OUTPUT.groups} has two of labels, ranges and by, but one of them says what group a feature is in",
                "Leave one of them out.",
                key="output.groups",
            )
        if asked == FeatureGroups():
            raise ConfigError(
                f"{OUTPUT.groups} is empty", "Give labels, ranges, by or validation.", key="output.groups"
            )
        if asked.named and isinstance(config.input, list):
            raise ConfigError(
                f"{OUTPUT.groups} has labels or ranges, but input is a list, whose inputs are the groups",
                "Leave one of them out.",
                key="output.groups",
            )
    if asked is not None and config.model.kind == "kernel_pca":
        raise ConfigError(
            f"{OUTPUT.groups} is set, but {MODEL.kind} is kernel_pca: groups of features are for pca",
            f"Leave {OUTPUT.groups} out; dpca derive has kernels of groups.",
            key="output.groups",
        )
    preprocess, of_folds = config.preprocess, folds_of(config)
    what = MODEL.n_components.at(rule) if rule == BI_CROSS_VALIDATION else str(OUTPUT.groups.validation)
    reasons = (
        (
            PREPROCESS.block_scaling,
            preprocess.block_scaling != "none",
            "it scales inputs after the pass, which groups of all of them mix",
        ),
        (PREPROCESS.missing, preprocess.missing == "pairwise", "its matrices are of no samples that could be left out"),
    )
    for setting, is_set, reason in reasons:
        if of_folds and is_set:
            with_what = setting.at(getattr(preprocess, setting.key.rpartition(".")[2]))
            raise ConfigError(
                f"{what} is not defined with {with_what}: {reason}", f"Leave {setting} out, or the other.", setting
            )


def folds_of(config: Config) -> int:
    """How many groups of features are added up for validation."""
    asked = config.output.groups
    number = asked.validation if isinstance(asked, FeatureGroups) else asked
    return number or (N_FOLDS if config.model.n_components == BI_CROSS_VALIDATION else 0)


def _check_inputs(config: Config) -> None:
    """Inputs of a list have names of their own; the only input has nothing to be told from."""
    for number, one in enumerate(config.inputs):
        for name in ("covariates", "by"):
            if getattr(one, name) is not None:
                key = f"input.{number}.{name}" if isinstance(config.input, list) else f"input.{name}"
                raise ConfigError(
                    f"{key} is for new samples alone, in the file that is given to dpca transform",
                    f"Set {getattr(PREPROCESS.regress_out, name)} instead.",
                    key=key,
                )
    if not isinstance(config.input, list):
        for key in OF_LISTS:
            if getattr(config.input, key) is not None:
                where = {"weights": "preprocess.weights", "mask": "preprocess.filters.mask"}.get(key)
                raise ConfigError(
                    f"input.{key} is for an input of a list, but there is one input",
                    f"Set {where} instead." if where else "Leave it out.",
                    key=f"input.{key}",
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
            f"{PREPROCESS.filters.mask} is set, but each input has a mask of its own",
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
                f"{COMPUTE.workers} is {config.compute.workers}, but {COMPUTE.cluster} is not local: workers there have threads of "
                "their own",
                "Leave it out.",
                key="compute.workers",
            )
    path = config.output.path
    for uri in (path for one in config.inputs for path in one.paths):
        if Path(os.path.realpath(path)).is_relative_to(os.path.realpath(uri)):
            raise ConfigError(
                f"{OUTPUT.path} is {path}, which lies in {uri}, the input",
                f"Choose another {OUTPUT.path}.",
                key="output.path",
            )


def _kernels_of(model: ModelSection) -> Sequence[str]:
    return model.kernel if isinstance(model.kernel, list) else [model.kernel]


def _check_no_kernels(model: ModelSection) -> None:
    """PCA has no keys of kernels."""
    for key in set(OF_KERNELS) - {"labels"}:
        if getattr(model, key) != ModelSection.model_fields[key].default:
            raise ConfigError(
                f"{getattr(MODEL, key)} is {getattr(model, key)!r}, but {MODEL.kind} is pca, which has no {key}",
                f"{MODEL.kind.set_to('kernel_pca')}, or leave {getattr(MODEL, key)} out.",
                key=f"model.{key}",
            )


def _check_kernels(config: Config) -> None:
    """Parameters that no kernel has, and what is not defined of kernels."""
    model, names = config.model, _kernels_of(config.model)
    for key in ("gamma", "degree", "coef0"):
        value = getattr(model, key)
        if value != ModelSection.model_fields[key].default and not any(key in USES.get(name, ()) for name in names):
            having = [name for name, uses in USES.items() if key in uses]
            raise ConfigError(
                f"{getattr(MODEL, key)} is {value!r}, but {MODEL.kernel} is {model.kernel}, which has no {key}",
                f"Leave {getattr(MODEL, key)} out, or set {MODEL.kernel} to {' or '.join(having)}.",
                key=f"model.{key}",
            )
    if model.fit_inverse_transform == "fixed_point" and names != ["rbf"]:
        raise ConfigError(
            f"{MODEL.fit_inverse_transform} is fixed_point, which is for rbf, but {MODEL.kernel} is {model.kernel}",
            f"{MODEL.fit_inverse_transform.set_to(True)}, or {MODEL.kernel.at('rbf')}.",
            key="model.fit_inverse_transform",
        )
    if model.fit_inverse_transform == "fixed_point" and not config.output.gram:
        raise ConfigError(
            f"{MODEL.fit_inverse_transform} is fixed_point, which needs the Gram matrix, but {OUTPUT.gram} is false",
            f"Leave {OUTPUT.gram} out.",
            key="output.gram",
        )


def _shown(value: Any) -> str:
    return "set" if isinstance(value, Section) else repr(value)


def _check_precomputed(config: Config) -> None:
    """Options that a precomputed kernel excludes: it has no samples and no features."""
    model, preprocess, names = config.model, config.preprocess, _kernels_of(config.model)
    if len(names) > 1:
        raise ConfigError(
            f"{MODEL.kernel} is {names}, but precomputed says that the input is a kernel matrix, of which no other can be made",
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
                f"{getattr(PREPROCESS, key)} is {_shown(getattr(preprocess, key))}, but the input is a kernel matrix, which has no features",
                f"Leave {getattr(PREPROCESS, key)} out: the matrix is centred in any case.",
                key=f"preprocess.{key}",
            )
    if model.fit_inverse_transform:
        raise ConfigError(
            # The beginning is scikit-learn's.
            "Cannot fit_inverse_transform with a precomputed kernel: of a kernel matrix there are no samples to combine",
            "Leave it out, or give the samples and a kernel of theirs.",
            key="model.fit_inverse_transform",
        )


def _check_cluster(cluster: Cluster) -> None:
    """Refuse keys of a cluster that contradict each other, or not exactly one way to find or start workers."""
    ways = ("scheduler", "scheduler_file", "slurm", "slurm_runner")
    chosen = [way for way in ways if getattr(cluster, way) is not None]
    if len(chosen) != 1:
        raise ConfigError(
            f"{COMPUTE.cluster} has {' and '.join(chosen) or 'none of its keys'}, but one of {', '.join(ways)} is allowed",
            "Give the address of a scheduler, the file with its address, or how to start workers.",
            key="compute.cluster",
        )
    if cluster.tls and chosen[0].startswith("slurm"):
        raise ConfigError(
            f"{COMPUTE.cluster} has tls and {chosen[0]}, but certificates are for a scheduler that runs already",
            "Leave tls out.",
            key="compute.cluster.tls",
        )
    if cluster.slurm and not walltime_seconds(cluster.slurm.walltime):
        raise ConfigError(
            f"{COMPUTE.cluster.slurm.walltime} is {cluster.slurm.walltime}, which is no time",
            "Give hours, minutes and seconds, such as '04:00:00'.",
            key="compute.cluster.slurm.walltime",
        )
    if cluster.slurm and cluster.slurm.minimum > cluster.slurm.maximum:
        raise ConfigError(
            f"{COMPUTE.cluster.slurm.minimum} is {cluster.slurm.minimum}, which is more than its maximum, {cluster.slurm.maximum}",
            "Correct one of them.",
            key="compute.cluster.slurm.minimum",
        )
