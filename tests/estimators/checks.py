"""scikit-learn's checks of an estimator: all of them on one instance, and some on instances with other parameters."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

WHAT_PARAMETERS_CHANGE = {
    "check_dont_overwrite_parameters",
    "check_estimator_sparse_tag",
    "check_estimators_dtypes",
    "check_estimators_overwrite_params",
    "check_estimators_pickle",
    "check_fit2d_1feature",
    "check_fit2d_1sample",
    "check_fit_idempotent",
    "check_methods_sample_order_invariance",
    "check_methods_subset_invariance",
    "check_sample_weight_equivalence_on_dense_data",
    "check_sample_weight_equivalence_on_sparse_data",
    "check_transformer_general",
    "check_transformer_preserve_dtypes",
}
"""Whose answer depends on the number of components, whitening or a kernel; the others are of the class, its names and its input."""


def all_checks_of(estimator, *others, **how):
    """As `parametrize_with_checks`, where the others are seen to what parameters change alone."""
    mark = parametrize_with_checks([estimator, *others], **how)
    cases = [case for case in mark.args[1] if _matters(estimator, case)]
    return pytest.mark.parametrize(*mark.args[:1], cases, **mark.kwargs)


def _matters(first, case):
    estimator, check = getattr(case, "values", case)
    return estimator is first or (check.func.__name__ in WHAT_PARAMETERS_CHANGE and not check.keywords)
