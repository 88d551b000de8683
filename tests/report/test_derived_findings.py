"""What the report of derived analyses states, against their arrays."""

import numpy as np
import pytest
import zarr

from dpca.analyses.kinds import KINDS
from dpca.analyses.kinds.modes import modes
from dpca.analyses.kinds.spod import density
from dpca.report import derived_findings as derived
from dpca.report import findings, maps
from dpca.store.derived import open_derived
from dpca.store.stored import Filed
from tests.commands.calls import dpca
from tests.report.derivations import PERIOD, make_run, write_derive
from tests.stores import counted, random_array


def shown(analysis, array, count):
    return KINDS[analysis.kind].shown(analysis, array, count)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = tmp_path_factory.mktemp("derived")
    make_run(place)
    assert dpca("derive", write_derive(place)) == 0
    return place


@pytest.fixture(scope="module")
def analyses(place):
    return open_derived(place / "derived").analyses


def test_the_shares_of_components_and_the_turns_of_complex_ones(analyses):
    for name in ("plain", "lagged", "moving", "seasons"):
        found, analysis = derived.spectrum(analyses[name]), analyses[name]
        np.testing.assert_array_equal(found.ratio, analysis["explained_variance_ratio"])
        np.testing.assert_array_equal(found.reliable, analysis.certificate["reliable"])
        assert list(found.residuals) == analysis.certificate["maps"]["residual_data"]
        assert (found.turns is not None) == (name == "moving")
    assert derived.spectrum(analyses["moving"]).turns[0] == pytest.approx(PERIOD, rel=0.05)


@pytest.mark.parametrize("name", ["modes", "fitted"])
def test_a_pair_of_conjugate_modes_is_one_with_a_period(analyses, name):
    found, counted_in = modes(analyses[name])
    assert counted_in == derived.Unit(1, "month")
    numbers = [number for mode in found for number in mode.numbers]
    assert numbers == list(range(len(analyses[name]["exponents"][...])))
    first = found[0]
    assert first.numbers == (0, 1)
    frequency, growth = (analyses[name][key][0] for key in ("frequencies", "growth_rates"))
    assert (first.frequency, first.growth) == (abs(frequency), growth)
    assert float(counted_in.period(first.frequency)) == pytest.approx(PERIOD, rel=0.01)


def test_peaks_of_a_spectrum_stand_out(analyses):
    found, unit = density(analyses["spectra"])
    assert [unit.counted(unit.period(found.frequencies[at])) for at in found.peaks[:2]] == ["12 months", "20 months"]
    assert len(found.peaks) < 5, "noise has no peaks"
    assert not found.few
    at = found.peaks[0]
    energies, total = (np.asarray(analyses["spectra"][name]) for name in ("energies", "total_energy"))
    assert at == np.argmax(energies[:, 0])
    assert found.share(at) == energies[at, 0] / total[at]


def test_of_a_few_frequencies_each_counts(analyses):
    found, _ = density(analyses["chosen"])
    assert found.few
    assert [found.frequencies[at] for at in found.peaks] == [0.05, 0.2]


def test_units_of_several_steps():
    values = zarr.create_array({}, data=np.array([0.5]))
    values.attrs["units"] = "1 / (5 days)"
    unit = derived.Unit.of(Filed(values, "r", True))
    assert unit == derived.Unit(5, "day")
    assert (unit.counted("1"), unit.counted("2.5")) == ("1 day", "2.5 days")


def test_crests_move_as_the_report_says(analyses):
    """East, where longitudes grow: to larger phases of complex EOFs, to smaller ones of modes."""
    for name, at, sign in (("moving", (0,), 1), ("modes", (0,), -1), ("fitted", (0,), -1), ("chosen", (0, 0), -1)):
        phases = np.angle(analyses[name]["components"][(*at, 0)])
        steps = np.angle(np.exp(1j * np.diff(phases)))
        np.testing.assert_allclose(steps, sign * 2 * np.radians(15), atol=0.3)


def test_names_of_rows_that_are_groups(analyses):
    axis = findings.axis_of(analyses["seasons"], "season", "row")
    assert axis.names == ("DJF", "MAM", "JJA", "SON")
    assert axis.named(20) == {0: "DJF", 1: "MAM", 2: "JJA", 3: "SON"}
    assert axis.named(19) == {}


def test_the_leading_maps_are_drawn_and_no_more_read_than_takes_a_minute(analyses):
    assert shown(analyses["plain"], analyses["plain"]["components"], 3) == [[(0,)], [(1,)], [(2,)]]
    assert shown(analyses["modes"], analyses["modes"]["components"], 3)[0] == [(0,)]
    assert shown(analyses["lagged"], analyses["lagged"]["components"], 4) == [
        [(lag, k) for lag in (0, 2, 4, 5, 7, 9)] for k in range(2)
    ]
    peaks = density(analyses["spectra"])[0].peaks
    assert shown(analyses["spectra"], analyses["spectra"]["components"], 2) == [[(at, 0)] for at in peaks[:2]]
    array, maps = analyses["plain"]["components"], [[(0,)], [(1,)]]
    each = array.chunks[0] * 12 * 24 * 8
    assert derived.affordable(array, maps, each) == maps
    assert derived.affordable(array, maps, each - 1) == []
    assert [derived.n_maps(count, 1) for count in (1, 10, 100)] == [4, 3, 1]


@pytest.mark.parametrize("dtype", ["f8", "c16"])
def test_maps_are_drawn_as_they_are_and_each_chunk_is_read_once(dtype):
    shape = (5, 3, 20, 30)
    values = random_array(0, shape, "f8") + (1j * random_array(1, shape, "f8") if dtype == "c16" else 0)
    store = zarr.storage.MemoryStore()
    zarr.create_array(
        store, data=values.astype(dtype), chunks=(2, 3, 8, 11), dimension_names=("lag", "component", "y", "x")
    )
    array, reads = counted(zarr.open_array(store, mode="r"))
    leads = [(4, 0), (0, 2), (1, 0), (0, 0)]
    found = maps.drawn(NoCoordinates(), Filed(array, "r", False), leads)
    for lead, component in zip(leads, found, strict=True):
        np.testing.assert_array_equal(component.views[0], values[lead])
        order = np.argsort(-np.abs(values[lead]).reshape(-1))[: findings.TOP]
        expected = values[lead].reshape(-1)[order]
        shown = np.abs(expected) if dtype == "c16" else expected
        np.testing.assert_array_equal([extreme.value for extreme in component.top], shown)
    assert set(reads.values()) == {1}
    assert len(reads) == 2 * 3 * 3


class NoCoordinates:
    def coordinate(self, name):
        return None


@pytest.mark.parametrize(("imaginary", "kind"), [(0.02, "c"), (0.005, "f")])
def test_a_map_without_a_phase_is_drawn_as_a_real_one(imaginary, kind):
    view = np.array([[1.0, -0.5, np.nan]], complex)
    view[0, 1] += 1j * imaginary
    found = derived.as_real(maps.Component((view,), (), ()))
    assert found.views[0].dtype.kind == kind
    np.testing.assert_array_equal(found.views[0].real, view.real)


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (("report", "{}", "--labels", "l.txt"), "--labels: is of the samples of a run"),
        (("report", "{}", "--groups", "g.txt"), "--groups: is of the features of a run"),
        (("export", "{}", "--to", "csv"), "dpca report shows what was derived"),
        (("transform", "{}", "x.zarr", "--out", "t.zarr"), "dpca report shows what was derived"),
        (("reconstruct", "{}", "--out", "t.zarr"), "dpca report shows what was derived"),
        (("status", "{}"), "dpca report shows them"),
    ],
)
def test_commands_for_runs_say_what_to_do(place, capsys, command, told):
    assert dpca(*(word.format(place / "derived") for word in command)) == 2
    assert told in capsys.readouterr().err
