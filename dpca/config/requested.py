"""The model that a config asks for, with the defaults that depend on the data filled in."""

from __future__ import annotations

from dpca.config.model import Model
from dpca.config.schema import AUTO, DEFAULT_COMPONENTS, Config
from dpca.config.together import folds_of
from dpca.derived.regressors import Design
from dpca.kernels.sweep import Kernels
from dpca.numerics.panels import Rules
from dpca.numerics.weights import SampleWeights
from dpca.sources.groups import Groups
from dpca.types import F64


def kernels_of(config: Config) -> Kernels | None:
    """The kernels that a configuration asks for; None for PCA."""
    asked = config.model
    if asked.kind == "pca":
        return None
    settings = {name: getattr(asked, name) for name in ("kernel", "gamma", "degree", "coef0")}
    names, gammas, degrees, coef0s = (tuple(v) if isinstance(v, list) else (v,) for v in settings.values())
    return Kernels(
        names,
        gammas,
        degrees,
        coef0s,
        sweep=any(isinstance(value, list) for value in settings.values()),
        about_mean=config.preprocess.center,
        alpha=asked.alpha,
        fit_inverse_transform=asked.fit_inverse_transform,
    )


def rules_of(config: Config) -> Rules:
    """Preprocessing of each feature."""
    # Kernels that need the mean get it back; data are streamed about it, which keeps the digits of distances.
    center = config.preprocess.center or config.model.kind == "kernel_pca"
    return Rules.of(config.preprocess.model_dump(), config.model.ddof, center=center)


def model_of(
    config: Config,
    groups: Groups,
    *,
    sample_weights: SampleWeights | None = None,
    reference: F64 | None = None,
    design: Design | None = None,
) -> Model:
    """The model of a configuration.

    Parameters
    ----------
    sample_weights, reference, design : those that the config asks for, read
    """
    n_samples, n_features = groups[0].n_samples, sum(group.n_features for group in groups)
    preprocess, asked, kernels = config.preprocess, config.model, kernels_of(config)
    n_components = asked.n_components
    if n_components == AUTO:
        n_components = min(DEFAULT_COMPONENTS, n_samples, n_samples if kernels else n_features)
    return Model(
        n_components,
        rules_of(config),
        precision=asked.precision,
        solver=asked.svd_solver,
        effective_samples=asked.effective_samples,
        whiten=asked.whiten,
        kernels=kernels,
        sample_weights=sample_weights,
        reference=reference,
        design=design,
        unit=max(group.unit for group in groups),
        block_scaling=preprocess.block_scaling,
        n_folds=folds_of(config),
        rotation=None if asked.rotation is None else asked.rotation.asked,
        spectrum=config.output.spectrum,
        iteration=asked.block_krylov.asked,
    )
