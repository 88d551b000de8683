"""Samples that took no part: they lose what the operators take from those that did."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dpca.analyses.answers import ProductAccuracy
from dpca.analyses.axis import Axis
from dpca.analyses.projection import Others, projected
from dpca.analyses.samples import Samples
from tests.analyses.asked import pca
from tests.derived.drawn import assert_close, samples
from tests.drawn import examples

N = 60
KNOWN = ProductAccuracy("results/sst", "gram_eigh", "double", 8 * 60 * 300)
AXIS = Axis("time", np.arange(N) * 30.5, {"units": "days since 2000-01-15", "calendar": "standard"})
RNG = np.random.default_rng(0)
COVARIATES, LABELS, WEIGHTS = RNG.standard_normal((N, 2)), RNG.integers(0, 3, N), RNG.random(N) + 0.1

STEPS = {
    "years": lambda rows: rows.where("year", [2001, 2002, 2003]),
    "every other": lambda rows: rows.rows(np.arange(0, rows.n, 2)),
    "a draw": lambda rows: rows.rows(np.random.default_rng(1).integers(0, rows.n, rows.n)),
    "center": lambda rows: rows.center(),
    "season": lambda rows: rows.anomalies("season"),
    "groups": lambda rows: rows.anomalies(LABELS),
    "trend": lambda rows: rows.detrend(2),
    "regressed": lambda rows: rows.regress_out(COVARIATES),
    "alone": lambda rows: rows.regress_out(COVARIATES[:, 0], intercept=False),
}


@given(
    names=st.lists(st.sampled_from(sorted(STEPS)), max_size=4, unique=True),
    weighted=st.booleans(),
    factor=st.booleans(),
)
@examples(25)
def test_a_sample_that_took_part_gets_its_own_score(names, weighted, factor):
    if "alone" in names:  # it keeps a part of the mean, unless that was removed before
        names = ["center", *(name for name in names if name != "center")]
    data = samples()
    rows = Samples.of(data.both[factor], AXIS, KNOWN)
    for name in names:
        rows = STEPS[name](rows)
    rows = rows.weighted(WEIGHTS) if weighted else rows
    answer, origin = pca(rows, 2), rows.centred.origin
    others = Others(AXIS.of(AXIS.values[origin]), origin)
    found = projected(rows.centred, answer.maps.coefficients, None, others)
    roots = np.sqrt(WEIGHTS[origin])[:, None] if weighted else 1.0
    assert_close(found * roots, answer.arrays["scores"].values, 1e-8)
    # The same samples as new ones, where the operators go by dates alone.
    if not {"groups", "regressed", "alone"} & {*names}:
        new = data.centred[origin] @ (data.centred.T @ answer.maps.coefficients)
        later = Axis("time", 24 * others.axis.values, {**AXIS.attributes, "units": "hours since 2000-01-15"})
        assert_close(projected(rows.centred, answer.maps.coefficients, new, Others(later)), found, 1e-9)
