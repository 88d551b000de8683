import json

import numpy as np
import pytest

from dpca.errors import DataError, PrecisionError
from dpca.numerics.backproject import BackprojectionPartial, MeasuredFit
from dpca.numerics.certificate import caveats, certify, check_products, confirmed
from dpca.numerics.ladder import Rung
from dpca.numerics.sketch import random_columns
from tests.numerics.test_gram import panel
from tests.numerics.test_spectrum import normal, spectrum_of


def measured(x, spectrum):
    return as_measured(projected(x, spectrum), spectrum)


def projected(x, spectrum):
    partial = BackprojectionPartial.empty(*spectrum.vectors.shape, random_columns(len(x), True))
    partial.add(panel(x - x.mean(0)).matrix, spectrum.alpha)
    return partial


def as_measured(partial, spectrum):
    return MeasuredFit(
        partial.overlap,
        spectrum.vectors.T @ spectrum.vectors,
        None,
        np.linalg.norm(partial.projection - spectrum.scaled, axis=0),
    )


def certified(x, spectrum, found, dtype=np.float64, **how):
    spectrum = confirmed(spectrum, found) if found else spectrum
    rung = Rung("gram_eigh", np.dtype(dtype))
    return certify(spectrum, rung, exact=False, trace_difference=0.0, measured=found, **how)


def test_a_right_answer_is_certified():
    x = normal(8, 60)
    spectrum = spectrum_of(x, 5)
    certificate = certified(x, spectrum, measured(x, spectrum))
    assert certificate["orthogonality"] < 1e-13
    assert all(c["residual_data"] < 1e-13 and c["residual_small"] < 1e-13 for c in certificate["components"])
    assert certificate["reliable_components"] == 5
    assert "5 of 5 components reliable" in certificate["verdict"]
    assert caveats(certificate) == []
    json.dumps(certificate, allow_nan=False)


def test_a_wrong_component_shows_in_the_measurements():
    x = normal(8, 60)
    spectrum = spectrum_of(x, 5)
    partial = projected(x, spectrum)
    partial.projection[:, 2] *= 1.01
    partial.overlap[0, 1] += 0.03
    certificate = certified(x, spectrum, as_measured(partial, spectrum))
    np.testing.assert_allclose(certificate["orthogonality"], 0.03, rtol=1e-6)
    np.testing.assert_allclose(certificate["components"][2]["residual_data"], 0.01, rtol=1e-6)
    partial.projection[:, 2] *= 1.1
    certificate = certified(x, spectrum, as_measured(partial, spectrum))
    assert [c["reliable"] for c in certificate["components"]] == [True, True, False, True, True]
    assert "component 3 is not what the data give in a second pass" in caveats(certificate)[0]


def test_without_components_it_holds_what_the_n_side_tells():
    certificate = certified(normal(8, 60), spectrum_of(normal(8, 60), 5), None)
    assert certificate["orthogonality"] is None
    assert {c["residual_data"] for c in certificate["components"]} == {None}
    assert certificate["components"][0]["residual_small"] < 1e-13


def test_zero_and_weak_components_are_told_apart():
    x = np.linalg.qr(normal(3, 3, seed=1))[0] * [1.0, 1e-3, 0.0] @ np.linalg.qr(normal(40, 3))[0].T
    spectrum = spectrum_of(x, 3, center=False, dtype=np.float32)
    weak, zero = caveats(certified(x, spectrum, None, np.float32))
    assert "component 2 has a singular value that gram_eigh in single precision knows to less than two digits" in weak
    assert "precision: double" in weak
    assert "component 3 can't be told from rounding (numerical rank 2)" in zero
    assert "to see whether they really are, set model.precision: double" in zero


def test_zeros_that_centring_makes_need_no_second_look():
    x = normal(4, 60)
    spectrum = spectrum_of(x, 4, dtype=np.float32)
    (zero,) = caveats(certified(x, spectrum, measured(x, spectrum)))
    assert zero.endswith("singular values and components are zero")


def test_the_trace_check_catches_products_that_lost_the_data():
    one = np.ones(1)
    assert check_products(one * (1.0 + 1e-7), one, np.float32) == pytest.approx(1e-7, rel=1e-2)
    with pytest.raises(PrecisionError, match="lost the data"):
        check_products(0 * one, 1e-50 * one, np.float32)
    with pytest.raises(PrecisionError, match="in feature 2"):
        check_products(np.array([1.0, 1.0, 0.0]), np.array([1.0, 1.0, 1e-50]), np.float32)
    for squares, extreme in ((np.inf, "large"), (1e-300, "small")):
        with pytest.raises(DataError, match=f"values so {extreme} that the sum of their squares") as caught:
            check_products(one, squares * one, np.float64)
        assert (caught.value.exit_code, caught.value.key) == (2, "input.uri")
