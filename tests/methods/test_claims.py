"""What is claimed of an answer holds, on data that nobody made to suit it. `make claims` is the campaign."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpca import PCA, KernelPCA
from dpca.execution.executors import Threads
from dpca.methods import second_pass
from dpca.methods.spans import components_span
from dpca.numerics.sketch import COLUMNS, Sketch, random_columns
from dpca.store.ledger import Ledger
from tests.runs import arrays_of, decompose_array
from workflows.claims import kernels
from workflows.claims.kinds import KINDS
from workflows.claims.measure import FACTOR, SHARE, claims_of
from workflows.claims.truth import centred, singular_values


def background():
    """Pictures on a constant background: columns that repeat, whose sums of products round in one direction."""
    g = np.random.default_rng(3)
    x = np.empty((12, 256, 256))
    x[:] = g.standard_normal((12, 1, 1))
    x[:, 96:160, 96:160] += 0.02 * g.standard_normal((12, 1, 1)) * g.standard_normal((64, 64))
    return x


@pytest.mark.parametrize(
    ("estimator", "dtype"), [(PCA, "f4"), (PCA, "f8"), (KernelPCA, "f4"), (KernelPCA, "f2"), (KernelPCA, "f8")]
)
def test_auto_sees_sums_that_round_in_one_direction(estimator, dtype):
    x = background().astype(dtype)
    fitted = estimator(2).fit(x)
    true = singular_values(centred(x))[:2].astype(float)
    assert fitted.certificate_["precision"] == "double"
    values = [component["singular_value"] for component in fitted.certificate_["components"]]
    np.testing.assert_allclose(values, true, rtol=1e-7)
    assert fitted.certificate_["reliable_components"] == 2


def test_single_precision_that_is_asked_for_is_not_called_reliable_where_it_is_not():
    x = background().astype("f4")
    for fitted in (KernelPCA(4, precision="single").fit(x), PCA(4, precision="single").fit(x)):
        assert [component["reliable"] for component in fitted.certificate_["components"]] == [True, False, False, False]
    found = decompose_array(x, 2, components=False, precision="single")
    assert found.certificate["reliable_components"] == 1
    assert found.certificate["components"][1]["digits"] < 2


@pytest.mark.parametrize(
    ("kind", "runs"),
    [
        ("clusters 1e-9 wide", ["laplacian()", "energy()"]),
        ("an outlier, float32", ["laplacian()", "rational()", "of_single()", "rbf"]),
        ("a row of zeros", ["own_cosine()", "cosine"]),
        ("steep values, float64", ["poly, degree 20"]),
    ],
)
def test_claims_hold_of_any_kernel(kind, runs):
    """A part of the campaign of kernels, where claims were violated."""
    found = kernels.found_of(kind, 24, 0, runs)
    claims = [one for one in found if isinstance(one, kernels.Claim) and one.digits > 0]
    assert len(claims) > 10
    assert not [one for one in claims if one.beyond > kernels.FACTOR or (one.reliable and one.error > 1e-2)]
    assert sum(one.beyond > 1 for one in claims) <= 1
    assert not [one for one in found if isinstance(one, kernels.Lost)]


def test_a_function_with_some_digits_in_single_precision_has_more_in_double():
    x = (np.repeat(np.eye(3, 50), 4, axis=0) + 1e-4 * np.random.default_rng(0).standard_normal((12, 50))).astype("f4")
    found = KernelPCA(kernel=kernels.energy, kernel_params={"width": 1.0}).fit(x)
    assert found.certificate_["precision"] == "double"
    assert found.certificate_["reliable_components"] == 11


@pytest.mark.long
@pytest.mark.parametrize(("n_samples", "part"), [(3, 0), (8, 1)])
def test_claims_hold_over_many_kinds_of_data(n_samples, part):
    """A part of the campaign, whose limits these are."""
    kinds = list(KINDS)[part::3]
    claims = [claim for kind in kinds for claim in claims_of(kind, n_samples, seed=1) if claim.digits > 0]
    violated = [claim for claim in claims if claim.beyond > 1]
    assert len(claims) > 200
    assert len(violated) <= max(1, 2 * SHARE * len(claims)), violated
    assert max((claim.beyond for claim in violated), default=0) <= FACTOR, violated
    assert not [claim for claim in claims if claim.reliable and claim.error > 1e-2]


@given(st.integers(2, 30), st.booleans(), st.integers(0, 99))
def test_a_sketch_estimates_residuals_and_knows_them_where_it_is_as_wide_as_the_matrix(n, center, seed):
    g = np.random.default_rng(seed)
    x = g.normal(size=(n, 40))
    x = x - x.mean(0) if center else x
    gram, columns = x @ x.T, random_columns(n, center)
    sketch = Sketch(columns, gram @ columns)
    error = g.normal(size=(n, n))
    error += error.T
    values, vectors = np.linalg.eigh(
        gram + error - (error.mean(0) + error.mean(1)[:, None] - error.mean() if center else 0)
    )
    values, vectors = values[-1:], vectors[:, -1:]
    residual = np.linalg.norm(gram @ vectors - vectors * values)
    found = sketch.residuals(vectors, values)[0]
    assert found <= 10 * residual
    if n - center <= COLUMNS:
        np.testing.assert_allclose(found, 2.5 * residual, rtol=1e-6)


def test_a_second_pass_gives_digits_that_the_first_one_does_not_have():
    """Of the same Gram matrix in single precision: with components, and without."""
    x = KINDS["graded values"](np.random.default_rng(0), 30)
    true = singular_values(centred(x)).astype(float)
    first = decompose_array(x, 9, components=False, precision="single")
    both = PCA(9).fit(x)
    assert (both.certificate_["precision"], both.certificate_["refined"]) == ("single", True)
    errors = np.abs(both.singular_values_ - true[:9]) / true[:9]
    assert errors[-1] < 1e-3 * np.abs(first.spectrum.singular_values[-1] - true[8]) / true[8]
    assert (errors <= 2 * 10.0 ** -np.array([c["digits"] for c in both.certificate_["components"]])).all()
    # Scores and components are turned alike, and alpha gives the components.
    x = x.astype(float) - x.astype(float).mean(0)
    components = np.asarray(both.components_, float)
    np.testing.assert_allclose(components @ components.T, np.eye(9), atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(x @ components.T, axis=0), both.singular_values_, rtol=1e-6)


def test_what_the_second_pass_refutes_sends_auto_on(monkeypatch):
    """A first pass that promises too much: its sketch is made to agree with whatever it found."""
    monkeypatch.setattr(Sketch, "residuals", lambda self, vectors, values: 1e-12 * values)
    x = background().astype("f4").reshape(12, -1)
    fitted = decompose_array(x, 2)
    assert any("the second pass refuted it" in choice for choice in fitted.choices)
    np.testing.assert_allclose(
        fitted.spectrum.singular_values, singular_values(centred(x))[:2].astype(float), rtol=1e-9
    )
    assert fitted.certificate["reliable_components"] == 2


def test_a_run_that_is_gone_on_with_does_not_do_what_was_refuted_again(monkeypatch, tmp_path):
    """Nor does it take the parts of the solver that was refuted for those of the one that follows."""
    monkeypatch.setattr(Sketch, "residuals", lambda self, vectors, values: 1e-12 * values)
    x = background().astype("f4").reshape(12, -1)
    spans = {"n_spans": 4, "slab_bytes": 12 * 4 * 8192, "tile_width": 1}
    expected = decompose_array(x, 2, **spans)
    ledger = Ledger(tmp_path / "ledger", "run", x.nbytes, print)
    calls = []

    def counted(work, alpha, span, report):
        calls.append(work.working_dtype)
        if len(calls) > interrupted_at:
            raise KeyboardInterrupt
        return components_span(work, alpha, span, report)

    monkeypatch.setattr(second_pass, "components_span", counted)
    interrupted_at = 6  # 4 spans are of the solver that is refuted
    with pytest.raises(KeyboardInterrupt):
        decompose_array(x, 2, **spans, ledger=ledger, store=tmp_path / "r.zarr", executor=Threads(1))
    interrupted_at = 100
    found = decompose_array(x, 2, **spans, ledger=ledger, store=tmp_path / "r.zarr", executor=Threads(1))
    assert calls.count(np.float32) == 4  # none of the solver that was refuted is done again
    assert arrays_of(found) == arrays_of(expected)
    for count in ("passes", "bytes_decoded"):  # with what was read before, and not again
        assert found.counts[count] == expected.counts[count]
    assert found.counts["passes"] == 4
    assert found.counts["bytes_decoded"] == 4 * x.nbytes
