"""Coast lines of maps."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpca.report.coasts import coasts
from tests.drawn import examples


def _points(line):
    known = np.isfinite(line.x)
    return np.stack([line.x[known], line.y[known]], axis=1)


@pytest.mark.parametrize(
    ("place", "at"),
    [
        ("Cape of Good Hope", (18.4, -34.1)),
        ("Lisbon", (-9.4, 38.7)),
        ("North Cape", (25.8, 71.1)),
        ("Cape Horn", (-68.2, -55.6)),
        ("Cape York", (142.5, -10.7)),
    ],
)
@pytest.mark.parametrize("west", [-180, 0, 20])
def test_capes_are_where_they_are_for_any_first_longitude(place, at, west):
    points = _points(coasts(west, west + 360, -90, 90))
    apart = np.hypot((points[:, 0] - at[0] + 180) % 360 - 180, points[:, 1] - at[1])
    assert apart.min() < 0.7, place
    assert points[:, 0].min() >= west - 5
    assert points[:, 0].max() <= west + 365


@given(st.integers(-180, 300), st.integers(9, 180), st.integers(-90, 60), st.integers(9, 60))
@examples(30)
def test_a_part_of_the_earth_has_its_coasts_and_their_neighbours_alone(west, wide, south, high):
    whole = _points(coasts(-360, 720, -90, 90))
    inside = (
        (whole[:, 0] >= west) & (whole[:, 0] <= west + wide) & (whole[:, 1] >= south) & (whole[:, 1] <= south + high)
    )
    found = coasts(west, west + wide, south, south + high)
    assert (found is None) == (not inside.any())
    if found is not None:
        there = {tuple(point) for point in _points(found).round(3).tolist()}
        assert {tuple(point) for point in whole[inside].round(3).tolist()} <= there
        # No line goes across the map: steps are those of the coast.
        steps = np.hypot(np.diff(found.x), np.diff(found.y))
        assert np.nanmax(steps) < 20


def test_small_maps_have_none():
    assert coasts(5, 11, 45, 49) is None
