"""What a regression leaves of each feature, decomposed: against least squares of each feature by itself."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpca.config.model import Model
from dpca.derived.regressors import Column, Design, Levels, Polynomial, matrix_of, terms_of
from dpca.errors import ConfigError, DataError, InputError
from dpca.numerics.panels import Rules
from dpca.numerics.weights import SampleWeights
from dpca.sources import as_source
from dpca.sources.weights import weights_of
from tests.drawn import examples
from tests.runs import decompose_array

N = 48
MONTH = np.char.zfill((np.arange(N) % 12 + 1).astype(str), 2)


def design_of(rng, months=True, trend=0, covariates=0):
    columns = [Column("month", MONTH)] if months else []
    if trend:
        columns.append(Column("time", np.arange(N) * 30.4 + 7e4, trend))
    for number in range(covariates):
        columns.append(Column(f"age {number}", rng.normal(1e6, 3, N)))
    columns.append(Column("site", rng.choice(["north", "south"], N)))
    columns += columns[-1:]  # a covariate that repeats another changes nothing
    return Design.of(columns)


def residuals(x, parts):
    """What least squares leaves of the values that are present, 0 elsewhere; and the fit to all samples.

    Parts are samples that are fitted alone, with their regressors.
    """
    left, fit = np.zeros(x.shape), np.full(x.shape, np.nan)
    for own, regressors in parts:
        z = np.column_stack([np.ones(len(own)), regressors])
        z /= np.maximum(np.abs(z).max(axis=0), 1e-300)
        for j, values in enumerate(x[own].T):
            here = ~np.isnan(values)
            if here.any():
                fit[own, j] = z @ np.linalg.lstsq(z[here], values[here], rcond=1e-12)[0]
                left[own[here], j] = (values - fit[own, j])[here]
    return left, fit


def dense(x, design, rules, weights=1.0, mask=True, parts=None):
    """X_c, the fit and the divisors, NaN for features that are left out."""
    x = np.where(np.broadcast_to(mask, x.shape[1:]), x, np.nan)
    left, fit = residuals(x, parts or [(np.arange(len(x)), design.matrix)])
    here = ~np.isnan(x)
    variance = (left**2).sum(axis=0) / np.maximum(here.sum(axis=0) - rules.ddof, 1)
    with np.errstate(all="ignore"):
        spread = np.where(here, left, -np.inf).max(axis=0) - np.where(here, left, np.inf).min(axis=0)
    out = ~here.any(axis=0) | ((rules.missing == "drop") & ~here.all(axis=0)) | (variance < rules.min_variance)
    constant = variance <= 1e-20
    divisor = {"none": np.ones_like(variance), "std": np.sqrt(variance), "pareto": variance**0.25, "range": spread}
    divisor = np.where(constant, 1.0, divisor[rules.scale])
    standard = np.where(out | (constant & (rules.scale != "none")), 0.0, left / divisor * weights)
    return standard, np.where(out, np.nan, fit), np.where(out, np.nan, divisor)


def check(found, x, design, rules, k, **how):
    standard, fit, divisor = dense(x, design, rules, **how)
    arrays = {
        name: np.asarray(found.outputs.array(name)[...]) for name in ("mean", "scale", "regression", "components")
    }
    fitted = arrays["mean"] + np.asarray(found.outputs.array("regressors")[...]) @ arrays["regression"]
    fitted = np.where(np.isnan(x), fit, fitted)  # where a group has no value, nothing is known of it
    np.testing.assert_allclose(fitted, fit, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(arrays["scale"], divisor, rtol=1e-8)
    _, s, vt = np.linalg.svd(standard, full_matrices=False)
    np.testing.assert_allclose(
        found.spectrum.explained_variance, s[:k] ** 2 / (len(x) - rules.ddof), rtol=1e-8, atol=1e-20 + 1e-12 * s[0] ** 2
    )
    assert (np.isnan(arrays["components"]) == np.isnan(divisor)).all()
    assert (np.isnan(arrays["regression"]) == np.isnan(divisor)).all()
    for j in range(k):
        if s[0] > 1e-9 and s[j] - s[j + 1] > 1e-2 * s[0] and (j == 0 or s[j - 1] - s[j] > 1e-2 * s[0]):
            component = np.nan_to_num(arrays["components"][j])
            np.testing.assert_allclose(np.abs(component @ vt[j]), 1.0, atol=1e-8)
            np.testing.assert_allclose(found.scores[:, j], standard @ component, atol=1e-7 * s[0])


@st.composite
def drawn_rules(draw):
    return Rules(
        True,
        draw(st.sampled_from(["none", "std", "pareto", "range"])),
        draw(st.sampled_from(["error", "mean", "drop"])),
        draw(st.sampled_from([0, 1, 14])),
        min_variance=draw(st.sampled_from([0.0, 0.5])),
    )


@given(st.integers(6, 70), drawn_rules(), st.integers(0, 999), st.data())
@examples(12)
def test_what_is_left_of_each_feature_is_that_of_least_squares(d, rules, seed, data):
    rng = np.random.default_rng(seed)
    design = design_of(rng, data.draw(st.booleans(), "months"), data.draw(st.integers(0, 3), "trend"), covariates=1)
    x = rng.normal(3, 1, (N, d)) * rng.gamma(2, size=d) + 20 * rng.normal(size=(12, d))[np.arange(N) % 12]
    if rules.missing != "error":
        x[rng.random(x.shape) < 0.1 * rng.random(d)] = np.nan
        x[::12, 2] = np.nan  # never a January
        x[:, 1] = np.nan  # land
    x[:, 3] = 7.0
    weights = rng.gamma(2, size=d) if data.draw(st.booleans(), "weights") else None
    mask = np.arange(d) % 7 != 6 if data.draw(st.booleans(), "mask") else None
    if mask is not None:
        x[rng.integers(N), ~mask] = np.nan
    dtype = data.draw(
        st.sampled_from(["f8", "f8", "i2"]) if rules.missing == "error" and mask is None else st.just("f8")
    )
    x = np.rint(x).astype(dtype) if dtype == "i2" else x
    fields = weights_of(as_source(x), 0, *(None if array is None else as_source(array) for array in (weights, mask)))
    oracle = {"weights": 1.0 if weights is None else weights, "mask": True if mask is None else mask}
    _, fit, _ = dense(x, design, rules, **oracle)
    if np.isnan(fit).all():
        with pytest.raises(DataError, match="left out|all .* missing"):
            decompose_array(x, 3, rules=rules, weights=fields, design=design)
        return
    how = {"slab_bytes": data.draw(st.integers(400, 9000), "slab"), "n_spans": data.draw(st.integers(1, 5), "spans")}
    along = data.draw(st.integers(0, 1), "samples axis")
    given_x = np.ascontiguousarray(np.moveaxis(x, 0, along))
    found = decompose_array(
        given_x, 3, samples_axis=along, rules=rules, weights=fields, design=design, precision="double", **how
    )
    check(found, x, design, rules, 3, **oracle)


@given(st.lists(st.integers(8, 14), min_size=1, max_size=5), drawn_rules(), st.integers(0, 999), st.data())
@examples(12)
def test_what_is_left_in_each_group_is_that_of_least_squares_in_it_alone(sizes, rules, seed, data):
    rng, n, d = np.random.default_rng(seed), sum(sizes), 30
    rules = replace(rules, ddof=min(rules.ddof, 3))
    runs = np.repeat([f"run {number}" for number in range(len(sizes))], sizes)
    if data.draw(st.booleans(), "interleaved"):
        runs = rng.permutation(runs)
    groups = [np.flatnonzero(runs == run) for run in np.unique(runs)]
    times = np.empty(n)
    for own in groups:  # they begin anew in each group, far from 0
        times[own] = 1e6 + np.arange(len(own)) * rng.choice([1, 24])
    months, age, site = rng.choice(["01", "02"], n), rng.normal(1e3, 3, n), rng.choice(["north", "south"], n)
    degree = data.draw(st.integers(0, 3), "trend")
    has_months, has_covariates = data.draw(st.booleans(), "months"), data.draw(st.booleans(), "covariates")
    columns = [Column("month", months)] * has_months + [Column("time", times, degree)] * (degree > 0)
    columns += [Column("age", age), Column("site", site)] * has_covariates
    design = Design.of([Column("run", runs, inside=tuple(columns))])

    def regressors(own):
        t = (times[own] - times[own].mean()) / np.ptp(times[own])
        each = [t[:, None] ** np.arange(1, degree + 1)]
        each += [months[own][:, None] == np.unique(months)] * has_months
        each += [(age[own] - 1e3)[:, None], site[own][:, None] == np.unique(site)] * has_covariates
        return np.hstack(each).astype(float)

    x = (
        rng.normal(3, 1, (n, d)) * rng.gamma(2, size=d)
        + 20 * rng.normal(size=(len(sizes), d))[np.unique(runs, return_inverse=True)[1]]
    )
    if rules.missing != "error":
        x[rng.random(x.shape) < 0.1 * rng.random(d)] = np.nan
        x[groups[0], 2] = np.nan  # never in that group
        x[:, 1] = np.nan
    x = x.astype(data.draw(st.sampled_from(["f8", "f4"] + ["i2"] * (rules.missing == "error")), "dtype"))
    exact, parts = x.astype("f8"), [(own, regressors(own)) for own in groups]
    if np.isnan(dense(exact, design, rules, parts=parts)[1]).all():
        return
    how = {"slab_bytes": data.draw(st.integers(400, 9000), "slab"), "n_spans": data.draw(st.integers(1, 5), "spans")}
    found = decompose_array(x, 3, rules=rules, design=design, precision="double", **how)
    check(found, exact, design, rules, 3, parts=parts)


def z_scores(x, parts, groups, rules):
    """What is left of each feature over its standard deviation in each group, group by group; and these. Constant where 4 eps of the mean vary."""
    left, scales = np.zeros(x.shape), np.ones((len(groups), x.shape[1]))
    here = ~np.isnan(x)
    for own in groups:  # whose means are among what is fitted
        left[own] = np.where(here[own], x[own] - np.nanmean(np.where(here[own].any(axis=0), x[own], 0.0), axis=0), 0.0)
    for _ in range(2):
        for own, regressors in parts:
            z = np.column_stack([np.ones(len(own)), regressors])
            for j in range(x.shape[1]):
                there = here[own, j]
                left[own[there], j] -= z[there] @ np.linalg.lstsq(z[there], left[own[there], j], rcond=1e-12)[0]
    for number, own in enumerate(groups):
        n = np.maximum(here[own].sum(axis=0) - rules.ddof_of_features, 0)
        scale = np.sqrt((left[own] ** 2).sum(axis=0) / np.maximum(n, 1))
        level = np.abs(np.where(here[own], x[own], 0.0)).max(axis=0)
        constant = (n == 0) | (scale <= 4 * np.finfo(float).eps * level)
        scales[number] = np.where(constant, 1.0, scale)
        left[own] *= ~constant / scales[number]
    if rules.scale == "std":
        deviation = np.sqrt((left**2).sum(axis=0) / np.maximum(here.sum(axis=0) - rules.ddof_of_features, 1))
        left /= np.where(deviation > 0, deviation, 1.0)
    return left, scales


@given(st.lists(st.integers(8, 16), min_size=1, max_size=4), st.integers(0, 999), st.data())
@examples(8)
def test_what_is_left_is_of_unit_variance_in_each_group(sizes, seed, data):
    rng, n, d = np.random.default_rng(seed), sum(sizes), 16
    rules = Rules(
        True,
        data.draw(st.sampled_from(["none", "std"]), "scale"),
        data.draw(st.sampled_from(["error", "mean", "drop"]), "missing"),
        by_group=True,
        scale_ddof=data.draw(st.sampled_from([None, 0, 2]), "ddof"),
    )
    runs = rng.permutation(np.repeat([f"run {number}" for number in range(len(sizes))], sizes))
    groups = [np.flatnonzero(runs == run) for run in np.unique(runs)]
    times, apart = rng.permutation(n) - n / 2, data.draw(st.booleans(), "apart")
    line = (Column("time", times),) * data.draw(st.booleans(), "trend")
    of_time = times[:, None] / n if line else np.zeros((n, 0))
    if apart:
        design = Design.of([Column("run", runs, inside=line)])
        parts = [(own, of_time[own] - of_time[own].mean(axis=0)) for own in groups]
    else:  # the groups are those of a cycle, and the line is one of all samples
        design = Design.of([Column("month", runs), *line])
        parts = (
            [(np.arange(n), np.column_stack([runs[:, None] == np.unique(runs), of_time]))]
            if line
            else [(own, of_time[own]) for own in groups]
        )
    spread, far = data.draw(st.sampled_from([0, 3, 6]), "spread"), data.draw(st.sampled_from([0.0, 1e3, 1e9]), "far")
    x = rng.normal(size=(n, d))
    for own in groups:
        x[own] = (x[own] + far * rng.normal(size=d)) * 10.0 ** rng.uniform(-spread, spread, d)
    eps = np.finfo(float).eps
    x[groups[0], 3] = 1e9 * (1 + eps * rng.integers(-1, 2, len(groups[0])))  # constant in one group, but for rounding
    x[:, 4] = 300.0
    if rules.missing != "error":
        x[:, 5:][rng.random((n, d - 5)) < 0.1 * rng.random(d - 5)] = np.nan
        x[groups[-1], 6] = np.nan  # never in that group
    dtype = data.draw(st.sampled_from(["f8", "f4"]), "dtype")
    x = x.astype(dtype)
    exact = np.where((rules.missing == "drop") & np.isnan(x).any(axis=0), np.nan, x.astype("f8"))
    standard, scales = z_scores(exact, parts, groups, rules)
    how = {"slab_bytes": data.draw(st.integers(400, 9000), "slab"), "n_spans": data.draw(st.integers(1, 5), "spans")}
    solver = data.draw(st.sampled_from(["gram_eigh", "tsqr", "block_krylov"]), "solver")
    precision = "double" if solver == "tsqr" else data.draw(st.sampled_from(["double", "single"]), "precision")
    found = decompose_array(x, 3, rules=rules, design=design, precision=precision, solver=solver, **how)
    ours = np.asarray(found.outputs.array("group_scale")[...])
    out = np.isnan(exact).all(axis=0)
    assert (np.isnan(ours) == out).all()
    assert list(found.outputs.array("sample_group")[...]) == [
        f"{'run' if apart else 'month'} {run}" for run in np.unique(runs)
    ]
    s = np.linalg.svd(standard, compute_uv=False)[:3]
    errors = 10.0 ** -np.array([one["digits"] for one in found.certificate["components"]])
    ours_s = found.spectrum.singular_values
    assert (np.abs(ours_s - s) <= 2 * errors * np.maximum(ours_s, s) + 1e-12 * s[0]).all()
    if apart:  # each group by itself has all digits
        np.testing.assert_allclose(ours[:, ~out], scales[:, ~out], rtol=1e-9)
        assert precision == "single" or solver == "block_krylov" or errors[s > 1e-9].max(initial=0) < 1e-10
    if apart or not line:  # else the line of the other groups is subtracted from it, too
        assert (ours[0, 3] == 1) | out[3]
    assert (ours[:, 4] == 1).all() | out[4]


@pytest.mark.parametrize("apart", [True, False])
def test_what_goes_by_variances_beside_the_division_in_groups(apart):
    """Features of little variance are those before it; what is left out for bi-cross-validation is predicted of rows that are still independent."""
    rng, runs, times = np.random.default_rng(4), np.repeat(["a", "b"], N // 2), np.arange(N) % 7
    x = rng.normal(size=(N, 60)) + rng.normal(size=(N, 2)) @ (3 * rng.normal(size=(2, 60)))
    x[:, ::5] *= 0.01
    line = Column("time", times)
    design = Design.of([Column("run", runs, inside=(line,))] if apart else [Column("month", runs), line])
    rules = Rules(by_group=True, min_variance=0.1)
    found = decompose_array(x, 2, design=design, rules=rules)
    assert (np.isnan(found.outputs.array("group_scale")[0]) == (np.arange(60) % 5 == 0)).all()
    assert found.counts["steady_features"] == 12
    complement = design.regression.complement(scaled=True)
    left = np.random.default_rng(5).normal(size=(N, 9))
    design.regression.subtract(left, np.zeros(9), None, 1)
    np.testing.assert_allclose(complement.T @ left, 0, atol=1e-13)
    np.testing.assert_allclose(complement.T @ complement, np.eye(complement.shape[1]), atol=1e-14)
    assert complement.shape[1] == (4 if apart else 2)  # with one line for both groups, only their means are gone


def test_coefficients_in_groups_are_what_the_means_differ_by_and_what_is_about_them():
    rng = np.random.default_rng(1)
    x, runs, times = rng.normal(size=(N, 5)), np.where(np.arange(N) < 20, "a", "b"), np.arange(N) % 20 + 5.0
    inside = (Column("time", times), Column("site", rng.choice(["north", "south"], N)))
    design = Design.of([Column("run", runs, inside=inside)])
    found = decompose_array(x, 2, design=design)
    of_regressors = np.asarray(found.outputs.array("regression")[...])
    one = ["run a", "run a: time", "run a: site north", "run a: site south"]
    assert list(found.outputs.array("regressor")[...]) == [*one, *(name.replace("run a", "run b") for name in one)]
    for number, own in enumerate((runs == "a", runs == "b")):
        alone = decompose_array(
            x[own], 2, design=Design.of([replace(part, values=part.values[own]) for part in inside])
        )
        ours = of_regressors[4 * number : 4 * number + 4]
        np.testing.assert_allclose(ours[0], x[own].mean(axis=0) - x.mean(axis=0), atol=1e-12)
        np.testing.assert_allclose(ours[1:], alone.outputs.array("regression")[...], atol=1e-12)
    basis = design.regression.complement(scaled=False)
    np.testing.assert_allclose(basis.T @ basis, np.eye(6), atol=1e-14)
    np.testing.assert_allclose(basis @ basis.T @ design.matrix, design.matrix, atol=1e-13)
    np.testing.assert_allclose(basis @ basis.sum(axis=0), 1, atol=1e-14)


def test_terms_are_read_back_also_those_of_earlier_versions():
    months, times = Column("month", MONTH), Column("time", np.arange(N) * 1.0, 2, {"units": "days since 2000-01-01"})
    for columns in ([months, times], [Column("run", np.where(np.arange(N) < 24, "a", "b"), inside=(months, times))]):
        design = Design.of(columns)
        terms = terms_of(json.loads(json.dumps(design.stored)))
        assert terms == design.terms
        np.testing.assert_array_equal(matrix_of(terms, columns), design.matrix)
    earlier = [
        {"name": "month", "levels": ["01", "02"]},
        {"name": "time", "middle": 3.0, "half": 3.0, "means": [0.0], "attributes": {}},
    ]
    assert terms_of(earlier) == (Levels("month", ("01", "02")), Polynomial("time", 3.0, 3.0, (0.0,), {}))


RUNS = np.array(["a"] * 8 + ["b"] * 3 + ["c"])


@pytest.mark.parametrize(
    ("inside", "n", "match"),
    [
        ((), 12, "the mean fit the only sample of run c exactly, with 1 parameter, and nothing is left"),
        ((Column("time", np.array([*range(8), 0, 1, 1])),), 11, None),
        ((Column("time", np.arange(10)),), 10, "time, the mean fit all 2 samples of run b exactly, with 2 parameters"),
        ((Column("time", np.arange(11), 2),), 11, "degree 2 in time fits all 3 distinct values of 3 samples of run b"),
        (
            (Column("site", np.array(list("nnssnnssnsw"))),),
            11,
            "site, the mean fit all 3 samples of run b exactly, with 3",
        ),
        ((Column("age", np.array([*range(9), np.nan, 1])),), 11, "age: the value of sample 9 is nan"),
    ],
)
def test_groups_of_which_nothing_would_be_left(inside, n, match):
    columns = [Column("run", RUNS[:n], inside=inside)]
    if match is None:
        assert Design.of(columns).regression.n_parameters == 4
        return
    with pytest.raises((ConfigError, DataError), match=match):
        _ = Design.of(columns).regression


def test_new_samples_of_groups_of_which_nothing_is_known():
    site = Column("site", np.array(list("nnssnnssnnnw")))
    design = Design.of([Column("run", np.where(RUNS == "c", "b", RUNS), inside=(site,))])
    new = Column("site", np.array(["w", "n", "w"]))
    match = "site is w of sample 2 of run a, and 1 samples in all are of none of the fit's: n, s"
    with pytest.raises(InputError, match=match):
        matrix_of(design.terms, [Column("run", np.array(["b", "a", "a"]), inside=(new,))])
    with pytest.raises(InputError, match="run is c of sample 1, .* none of the fit's: a, b"):
        matrix_of(design.terms, [Column("run", np.array(["a", "c", "a"]), inside=(new,))])
    few = matrix_of(design.terms, [Column("run", np.array(["b"]), inside=(Column("site", np.array(["w"])),))])
    np.testing.assert_array_equal(few, design.matrix[-1:])


def test_single_precision_keeps_the_digits_of_anomalies_beside_a_cycle_of_98_percent():
    rng = np.random.default_rng(3)
    n, d, years = 240, 3000, 20
    months = np.arange(n) % 12
    cycle = rng.normal(size=(12, 2)) @ rng.normal(size=(2, d))
    anomalies = (rng.normal(size=(n, 20)) * np.logspace(0, -3, 20)) @ rng.normal(size=(20, d)) / np.sqrt(20)
    cycle *= 7 * np.sqrt((anomalies**2).sum() / (cycle[months] ** 2).sum())
    x = (280 + cycle[months] + anomalies).astype("f4")
    exact = x.astype("f8")
    for month in range(12):
        exact[months == month] -= exact[months == month].mean(axis=0)
    total = ((x - x.mean(axis=0, dtype="f8")) ** 2).sum()
    assert 0.975 < 1 - (exact**2).sum() / total < 0.985
    expected = np.linalg.svd(exact, compute_uv=False)[:20] ** 2

    how = {"precision": "single", "solver": "gram_eigh", "components": False}
    found = decompose_array(x, 20, design=Design.of([Column("month", months.astype(str))]), **how)
    kept = decompose_array(x, 20, **how).outputs.array("gram")[...]
    without_cycle = np.eye(n) - (months[:, None] == months) / years
    afterwards = np.linalg.eigvalsh(without_cycle @ kept @ without_cycle)[::-1][:20]
    error, error_afterwards = (
        np.abs(values - expected) / expected for values in (found.spectrum.eigenvalues[:20], afterwards)
    )
    assert np.median(error_afterwards) > 10 * np.median(error)
    assert error.max() < 1e-3
    assert error_afterwards.max() > 0.1
    digits = [one["digits"] for one in found.certificate["components"]]
    assert min(digits) >= 2
    assert (error / 2 <= 10.0 ** -np.array(digits)).all()


def test_all_that_is_fitted_exactly_counts_as_constant():
    rng = np.random.default_rng(0)
    x = (300 + 1e3 * rng.normal(size=(12, 50)))[np.arange(N) % 12]
    found = decompose_array(x, 2, design=Design.of([Column("month", MONTH)]), rules=Rules(scale="std"))
    assert found.counts["constant_features"] == 50
    assert not found.spectrum.singular_values.any()
    assert not decompose_array(x, 2, design=Design.of([Column("month", MONTH)])).spectrum.singular_values.any()


def test_coefficients_of_groups_are_what_they_differ_by():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(N, 5)) + 1e4 * rng.normal(size=5)
    months = Column("month", np.where(np.arange(N) < 40, "early", "late"))  # of different sizes
    found = decompose_array(x, 2, design=Design.of([months]))
    expected = np.array([x[:40].mean(0), x[40:].mean(0)]) - x.mean(0)
    np.testing.assert_allclose(found.outputs.array("regression")[...], expected, atol=1e-11)
    assert list(found.outputs.array("regressor")[...]) == ["month early", "month late"]


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"rules": Rules(False)}, "center: false"),
        ({"rules": Rules(missing="pairwise")}, "pairwise"),
        ({"sample_weights": SampleWeights(np.ones(N))}, "sample_weights"),
        ({"solver": "covariance_eigh"}, "covariance_eigh"),
    ],
)
def test_what_is_not_defined_with_a_regression(wrong, match):
    model = Model(2, design=design_of(np.random.default_rng(0)), **wrong)
    with pytest.raises(ConfigError, match=match):
        model.check("x", N, 100)


def test_nothing_left():
    with pytest.raises(ConfigError, match=r"time, site fit all 6 samples exactly.*nothing is left") as caught:
        _ = Design.of([Column("time", np.arange(6.0), 4), Column("site", np.array(list("aabbab")))]).regression
    assert caught.value.key == "preprocess.regress_out"
    with pytest.raises(DataError, match="age: the value of sample 2 is nan"):
        Design.of([Column("age", np.array([1.0, 2.0, np.nan]))])
