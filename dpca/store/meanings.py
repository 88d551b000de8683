"""Meaning of each array of a result, in words, and the unit of its values: the attributes `long_name` and `units` of CF."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

SAME, SQUARED, ONE, NONE = "same", "squared", "1", ""
"""The unit of an array: that of the data, its square, none since it is a ratio, or not said."""

MEANINGS: dict[str, tuple[str, str]] = {
    "mean": ("mean of each feature", NONE),
    "scale": ("divisor of each feature, after the mean was subtracted", NONE),
    "weights": ("factor of each feature, after the division by its scale", ONE),
    "regression": ("coefficients of the regressors that were subtracted from each feature", NONE),
    "regressors": ("values of the regressors for each sample", NONE),
    "weighted_components": ("components times the inner product: what scores are products of features with", NONE),
    "group_scale": ("divisor of each feature in each group of samples, after the fit was subtracted", NONE),
    "components": ("components: maps of length 1, of centred, scaled and weighted features", ONE),
    "scores": ("scores of the samples", SAME),
    "alpha": ("coefficients of the samples in the components", NONE),
    "coefficients": ("coefficients of the samples in the components", NONE),
    "singular_values": ("singular values", SAME),
    "eigenvalues": ("eigenvalues: squares of all singular values", SQUARED),
    "explained_variance": ("variance of the scores", SQUARED),
    "explained_variance_ratio": ("share of the total variance", ONE),
    "projection_error": ("variance outside the components up to this one", SQUARED),
    "variance_share": ("share of each group of features in the variance of each component", ONE),
    "block_factor": ("factor of each group of features against the others", NONE),
    "sample_weights": ("weight of each sample", ONE),
    "convention_eigenvalues": ("eigenvalues as the program prints them whose scale was chosen", ONE),
    "shrinkage": ("factor by which scores of people outside the fit are closer to 0", ONE),
    "rotated_scores": ("scores of the rotated components", SAME),
    "rotated_components": ("rotated components, of length 1", ONE),
    "rotated_explained_variance": ("variance of the rotated scores", SQUARED),
    "rotated_explained_variance_ratio": ("share of the rotated scores in the total variance", ONE),
    "rotation_matrix": ("rotation of the loadings", ONE),
    "factor_correlation": ("correlation of the rotated scores", ONE),
    "gram": ("Gram matrix: products of centred, scaled and weighted samples with each other", SQUARED),
    "gram_mean_product": ("products of the samples with their mean", SQUARED),
    "gram_mean_norm2": ("square of the length of the mean", SQUARED),
    "gram_norms2": ("squares of the lengths of the samples", SQUARED),
    "gram_sketch": ("Gram matrix times random columns, by which its error was measured", NONE),
    "n_shared_features": ("number of features that both samples have", ONE),
    "n_counted_features_by_group": ("number of features that count, of each group", ONE),
    "reconstruction": ("samples that were made of their scores", NONE),
    "kernel_mean": ("mean of each column of the kernel matrix", NONE),
    "neighbour_accuracy": ("share of the samples whose nearest neighbour has the same label", ONE),
    "n_components": ("number of components", ONE),
    "variance_captured": ("share of the components in the total variance", ONE),
    "components_95": ("number of components that have 95 % of the total variance", ONE),
    "effective_rank": ("number of equal components of the same entropy (Roy and Vetterli 2007)", ONE),
    "gamma": ("parameter gamma of the kernel", NONE),
    "degree": ("degree of the kernel", ONE),
    "coef0": ("parameter coef0 of the kernel", NONE),
    "kernel": ("name of the kernel", NONE),
    "labels": ("label of each sample", NONE),
    "sample_family": ("family of each person", NONE),
    "variant_chromosome": ("chromosome of each variant", NONE),
    "variant_position": ("position of each variant on its chromosome", NONE),
    "variant_counted_allele": ("allele whose copies were counted", NONE),
    "variant_other_allele": ("the other allele", NONE),
    "as_covariance": ("data for one standard deviation of the score", NONE),
    "as_correlation": ("correlation of data and score", ONE),
    "components_standard_error": ("standard error of each component, from draws of samples", ONE),
    "digits": ("correct decimal digits of each eigenvalue", ONE),
    "call_rate": ("share of the features of the fit of which the sample has a value", ONE),
    "projection_standard_error": ("standard error of the scores of the values that the sample has", SAME),
    "scores_left_out": ("scores of the samples that the selection left out", SAME),
    "scores_standard_error": ("standard error of the scores, from draws of samples", SAME),
    "scores_interval": ("interval of the scores, from draws of samples", SAME),
    "explained_variance_interval": ("interval of the variance of the scores, from draws of samples", SQUARED),
    "explained_variance_standard_error": (
        "standard error of the variance of the scores, from draws of samples",
        SQUARED,
    ),
    "explained_variance_of_draws": ("variance of the scores of each draw", SQUARED),
    "explained_variance_ratio_interval": ("interval of the share of the total variance, from draws of samples", ONE),
    "explained_variance_ratio_standard_error": ("standard error of the share of the total variance", ONE),
    "explained_variance_ratio_of_draws": ("share of the total variance in each draw", ONE),
    "subspace_angle": ("angle between the leading components of each draw and those of all rows", NONE),
    "congruence": ("product of each component of a draw with that of all rows", ONE),
    "exponents": ("growth rate and frequency of each mode, as one complex number", NONE),
    "frequencies": ("frequency of each mode", NONE),
    "growth_rates": ("growth rate of each mode", NONE),
    "amplitudes": ("amplitude of each mode in the first row", NONE),
    "step": ("step of the rows", NONE),
    "energies": ("density of variance per frequency", NONE),
    "total_energy": ("density of the total variance per frequency", NONE),
    "rank": ("number of components that can be told from rounding", ONE),
    "covariance": ("covariance of the scores of both groups of features", NONE),
    "squared_covariance_fraction": ("share of the sum of squares of all covariances", ONE),
    "correlations": ("correlation of the scores of both groups of features", ONE),
    "similarity": ("similarity of the groups of features, from 0 to 1", ONE),
    "p_value": ("p value", ONE),
    "distances": ("distances between rows", SAME),
    "pseudo_f": ("pseudo-F statistic", ONE),
    "permuted_f": ("pseudo-F statistic of each permutation", ONE),
    "r2": ("share of the sum of squares that is explained", ONE),
    "sum_of_squares": ("sum of squares", SQUARED),
    "degrees_of_freedom": ("degrees of freedom", ONE),
    "group_size": ("number of rows of each group", ONE),
    "statistic": ("test statistic", ONE),
    "f_value": ("F value that the statistic is compared with", ONE),
    "canonical_correlations": ("canonical correlation", ONE),
    "mean_squared_error": ("mean squared error of predictions of rows that were left out", NONE),
    "target": ("target", NONE),
    "fitted": ("prediction of each row by all rows", NONE),
    "leave_one_out": ("prediction of each row by all other rows", NONE),
    "leverage": ("weight of each row in its own prediction", ONE),
    "dual_coefficients": ("coefficients of the rows in the prediction", NONE),
    "predicted_left_out": ("prediction of the rows that the selection left out", NONE),
    "heritability": ("share of the variance of the target that goes with the rows", ONE),
    "standard_error": ("standard error of that share", ONE),
    "variance_of_rows": ("variance of the target that goes with the rows", NONE),
    "residual_variance": ("variance of the target that is left", NONE),
    "log_likelihood": ("logarithm of the likelihood", ONE),
    "group": ("name of each group of features", NONE),
    "regressor": ("name of each regressor", NONE),
    "sample_group": ("name of each group of samples", NONE),
    "component": ("number of the component, from 1 on", ONE),
    "rotated_component": ("number of the rotated component, from 1 on", ONE),
}
"""Meanings of arrays by name; those of one of several groups of features have its name behind it: mean_NAME."""

_NOT_DURATIONS = {
    "seconds": "s",
    "minutes": "min",
    "hours": "h",
    "days": "d",
    "milliseconds": "ms",
    "microseconds": "us",
}
"""Symbols of units that xarray would take for the unit of a time span, and make dates of the values."""


IN_INNER_PRODUCT = {
    "long_name": "components: maps of length 1 in the inner product, of centred, scaled and weighted features",
    "units": None,
}
"""Attributes of components where there is an inner product, whose unit is not known."""


def described(name: str, attributes: Mapping[str, Any], unit: str | None) -> dict[str, Any]:
    """The attributes of an array of a result, with its `long_name` and `units` where it has none of its own.

    Parameters
    ----------
    name : of the array, with that of its analysis before it or that of its group of features behind it, if any
    attributes : its own; None for one that it has not
    unit : of centred, scaled and weighted data; None where it is not known
    """
    plain = name.rpartition("/")[2]
    while plain not in MEANINGS and "_" in plain:
        plain = plain.rpartition("_")[0]
    if plain not in MEANINGS:
        return dict(attributes)
    said, kind = MEANINGS[plain]
    own = {"long_name": said}
    if kind == SQUARED and attributes.get("whitened") is None and unit is not None:
        own["units"] = squared(unit)
    elif kind == SAME and unit is not None:
        own["units"] = unit
    elif kind == ONE:
        own["units"] = ONE
    if attributes.get("whitened"):
        own |= {"long_name": f"{said}, divided by their standard deviations", "units": ONE}
    return {key: value for key, value in {**own, **attributes}.items() if value is not None}


def squared(unit: str) -> str:
    """The square of a unit, as UDUNITS reads it: K2, (m s-1)2."""
    if unit == ONE:
        return ONE
    return f"{unit}2" if re.fullmatch(r"[A-Za-zµ%°]+", unit) else f"({unit})2"


def of_values(unit: str) -> str:
    """A unit under the name that nobody takes for a time span since a date."""
    return _NOT_DURATIONS.get(unit, unit)


def common_unit(units: Iterable[str]) -> str | None:
    """The unit of all of them; None where they differ, or one is not known."""
    found = set(units)
    (only,) = found if len(found) == 1 else ("",)
    return of_values(only) or None
