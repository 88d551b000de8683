"""Dates of time axes, in the calendars of the world and of models: cftime and NumPy are the oracles."""

import sys
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpca.errors import InputError
from dpca.sources.calendars import dates, datetimes, needs_cftime, number_of

CALENDARS = (
    *("standard", "gregorian", "proleptic_gregorian"),
    *("noleap", "365_day", "all_leap", "366_day", "360_day", "julian"),
)


def told(values, units, calendar="standard", dtype=None):
    return dates(np.array(values, dtype), {"units": units, "calendar": calendar})


@pytest.mark.parametrize(
    ("units", "calendar", "values", "expected"),
    [
        ("days since 1980-01-15", "standard", [0.0, 30.0, 366.0], ["1980-01-15", "1980-02-14", "1981-01-15"]),
        ("hours since 1900-01-01 00:00:00", "gregorian", [6, 24], ["1900-01-01T06:00:00", "1900-01-02T00:00:00"]),
        ("minutes since 2000-1-1T12:30", "proleptic_gregorian", [90], ["2000-01-01T14:00:00"]),
    ],
)
def test_dates_of_the_world_need_no_cftime(monkeypatch, units, calendar, values, expected):
    monkeypatch.setitem(sys.modules, "cftime", None)
    assert told(values, units, calendar) == expected
    assert not needs_cftime({"units": units, "calendar": calendar})


@pytest.mark.parametrize(
    ("units", "calendar", "values", "expected"),
    [
        ("days since 1999-01-01", "360_day", [59], ["1999-02-30"]),
        ("days since 2000-02-28", "noleap", [1, 2], ["2000-03-01", "2000-03-02"]),
        ("days since 2001-02-28", "all_leap", [1.5], ["2001-02-29T12:00:00"]),
        ("days since 1900-02-28", "julian", [1], ["1900-02-29"]),
        ("months since 1980-01-15", "360_day", [3, 3.5], ["1980-04-15T00:00:00", "1980-04-30T00:00:00"]),
        ("days since 1582-10-04", "standard", [1], ["1582-10-15"]),  # Julian before
        ("days since 1582-10-04", "proleptic_gregorian", [1], ["1582-10-05"]),
        ("days since 1850-01-01", "standard", [-97577, -97777], ["1582-11-05", "1582-04-09"]),
        ("hours since 1-1-1 00:00:0.0", "standard", [24 * 700000], ["1917-07-14"]),
        ("days since 0000-01-01", "noleap", [-1], ["-0001-12-31"]),
        ("days since -5-1-1", "360_day", [0], ["-0005-01-01"]),
        ("seconds since 2001-02-03 12:00:30", "noleap", [0.25], ["2001-02-03T12:00:30.250"]),
        ("days since 2000-01-01", "noleap", [4_000_000], ["12958-11-27"]),
    ],
)
def test_dates_of_models_and_of_long_ago(units, calendar, values, expected):
    pytest.importorskip("cftime")
    found = told(values, units, calendar)
    assert [date.partition("T00:00:00")[0] for date in found] == [date.partition("T00:00:00")[0] for date in expected]
    attributes = {"units": units, "calendar": calendar}
    np.testing.assert_allclose([number_of(date, attributes, "t") for date in found], values, rtol=1e-12)


@given(
    calendar=st.sampled_from(CALENDARS),
    units=st.sampled_from(["days", "hours", "minutes", "seconds"]),
    begin=st.sampled_from(["1850-01-01", "0001-01-01 00:00:0.0", "2000-02-28 06:30:00", "1582-10-04"]),
    numbers=st.lists(st.integers(-200_000, 900_000), min_size=1, max_size=5),
    dtype=st.sampled_from(["i4", "i8", "f8"]),
)
def test_every_calendar_as_cftime_counts(calendar, units, begin, numbers, dtype):
    cftime = pytest.importorskip("cftime")
    units = f"{units} since {begin}"
    with warnings.catch_warnings(action="ignore"):  # years before 1
        oracle = cftime.num2date(numbers, units, calendar, only_use_cftime_datetimes=True)
    values, attributes = np.array(numbers, dtype), {"units": units, "calendar": calendar}
    found = dates(values, attributes)
    assert [date if "T" in date else f"{date}T00:00:00" for date in found] == [date.isoformat() for date in oracle]
    np.testing.assert_allclose([number_of(date, attributes, "t") for date in found], values, rtol=1e-12)
    moments = datetimes(values, attributes)
    if moments is not None:
        np.testing.assert_array_equal(moments, np.array(found, moments.dtype))
    world = calendar == "proleptic_gregorian" or (calendar in CALENDARS[:2] and min(found) >= "1582-10-15")
    assert (moments is not None) == world


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_fractions_of_a_day_are_as_precise_as_they_are_stored(dtype):
    pytest.importorskip("cftime")
    hours = np.array([0, 1, 23]) / 24
    assert told(hours, "days since 2000-01-01", "noleap", dtype)[1:] == ["2000-01-01T01:00:00", "2000-01-01T23:00:00"]
    (found,) = told([55_000 + 1 / 3], "days since 1850-01-01", "noleap", dtype)
    assert found.startswith("2000-09-08T0" if dtype == "f4" else "2000-09-08T08:00:00")


NO_DATES = [
    ("days since 1850-01-01", [np.nan, 1.0]),
    ("days since 1850-01-01", [np.inf]),
    ("days since 1850-01-01", [1e300]),
    ("days since 1850-01-01", [2**63 - 1]),
    ("days since 1850-01-01", ["a"]),
    ("seconds since 1850-01-01", [1 / 2048]),
    ("days since 1850-02-31", [1.0]),
    ("years since 1850-01-01", [1.0]),
    ("days since the flood", [1.0]),
    ("degrees_north", [1.0]),
]


@pytest.mark.parametrize(
    ("calendar", "units", "values"),
    [
        (calendar, *what)
        for number, what in enumerate(NO_DATES)
        # One that NumPy counts in, one that cftime does, and each of the others in turn.
        for calendar in dict.fromkeys(("standard", "noleap", CALENDARS[1:][number % 8]))
    ],
)
def test_what_is_no_date_stays_a_number(calendar, units, values):
    assert told(values, units, calendar) is None
    assert told(np.empty(0), units, calendar) in (None, [])


@pytest.mark.parametrize("date", ["1999-02-29", "1999-2-3", "1999-02-28T25:00", "yesterday", "", "1999-02-28T12:61"])
@pytest.mark.parametrize("calendar", ["standard", "noleap"])
def test_what_no_calendar_has_is_refused(date, calendar):
    if calendar == "noleap":
        pytest.importorskip("cftime")
    with pytest.raises(InputError, match=f"time: '{date}' is no date of calendar {calendar}"):
        number_of(date, {"units": "days since 2000-01-01", "calendar": calendar}, "time")


def test_a_date_needs_units_of_time():
    with pytest.raises(InputError, match="the units are 'K'"):
        number_of("1999-02-28", {"units": "K"}, "time")


def test_without_cftime_numbers_stay_and_a_date_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "cftime", None)
    attributes = {"units": "days since 2000-01-01", "calendar": "noleap"}
    assert dates(np.arange(3), attributes) is None
    assert needs_cftime(attributes)
    assert needs_cftime({"units": "months since 2000-01-01", "calendar": "360_day"})
    assert not needs_cftime({"units": "months since 2000-01-01"})  # it could not tell these either
    with pytest.raises(
        InputError, match="dates of calendar noleap, .* need cftime, which is not installed\npip install"
    ):
        number_of("1999-02-28", attributes, "time")
