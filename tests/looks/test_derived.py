"""The page of derived analyses, in a real browser. In `make looks`, which installs what draws it."""

import re
from pathlib import Path

import numpy as np
import pytest

from dpca.store.derived import open_derived
from tests.commands.calls import dpca, dpca_process
from tests.looks.conftest import scrolled
from tests.looks.test_page import parsed
from tests.report.derivations import make_run, write_derive

pytestmark = pytest.mark.looks


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = tmp_path_factory.mktemp("derived")
    make_run(place)
    done = dpca_process("derive", write_derive(place))
    assert done.returncode == 0, done.stderr
    return place


@pytest.fixture
def page(place):
    return place / "derived" / "report.html"


@pytest.fixture
def words(page):
    """The text of the page, without its figures."""
    hidden = r"<svg.*?</svg>|<style>.*?</style>|<script.*?</script>|<[^>]+>"
    text = re.sub(hidden, " ", page.read_text(), flags=re.DOTALL)
    return re.sub(r"\s+", " ", text)


def test_it_states_what_the_arrays_and_certificates_hold(place, words):
    for name, analysis in open_derived(place / "derived").analyses.items():
        document = analysis.certificate
        assert f"{document['rows']} {document['reliable_components']} of {document['components']}" in words
        assert document["verdict"] in words
        assert all(operator in words for operator in document["samples"])
        if "explained_variance_ratio" in analysis:
            assert f"Component 1, {100 * analysis['explained_variance_ratio'][0]:.2f} % of the variance" in words
        if name in ("spectra", "chosen"):
            assert "Frequency 0.05 per month, period 20 months: mode 1" in words
        if name == "modes":
            assert re.search(r"1, 2 yes \d+\.\d 0\.0\d+ (19\.9\d|20(\.0\d)?) ", words)
            assert re.search(r"Modes 1 and 2, period (19\.9\d|20(\.0\d)?) months", words)


def test_intervals_and_standard_errors_are_beside_their_components(place, words):
    """Of draws of rows, the table has the limits that are stored, and each map the map of its standard errors below it."""
    analysis = open_derived(place / "derived").analyses["drawn"]
    low, high = 100 * np.asarray(analysis["explained_variance_ratio_interval"][:, 0])
    assert f"1 {low:.2f} to {high:.2f} %" in words
    assert "60 draws (bootstrap of 12 blocks of 20 rows, seed 0), medians" in words
    text = (place / "derived" / "report.html").read_text()
    drawn = re.findall(
        r"Component (\d), [\d.]+ % of the variance(: standard error of each loading)?", text.split('id="drawn"')[1]
    )
    assert [(number, bool(error)) for number, error in drawn[:4]] == [
        ("1", False),
        ("1", True),
        ("2", False),
        ("2", True),
    ]
    largest = float(np.nanmax(analysis["standard_errors"][0]))
    assert "standard error of each loading. Largest: " in words
    assert f"{largest:.3g}" in words


def test_rotated_components_have_a_table_and_maps(place, words):
    analysis = open_derived(place / "derived").analyses["drawn"]
    share = 100 * np.asarray(analysis["rotated_explained_variance_ratio"][...])
    for number, one in enumerate(share):
        assert f"Rotated component {number + 1}, {one:.2f} % of the variance. Largest loadings: " in words
    assert "Of 3 components, the first 3 rotated by varimax; no data were read for it." in words


def test_it_is_one_small_file_that_needs_no_network(page):
    text = page.read_text()
    assert 200_000 < len(text) < 3_000_000
    for tag, attributes in parsed(text):
        assert tag not in ("link", "iframe")
        assert tag != "script" or set(attributes) <= {"type", "id"}
        for name in ("src", "href", "xlink:href"):
            assert attributes.get(name, "#").startswith(("#", "data:image/png"))
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    assert {name[1:] for name in re.findall(r'<a href="(#[^"]+)"', text)} <= set(ids)


def test_a_browser_draws_all_of_it_and_each_kind_has_its_figures(page, opened, resized, overhang):
    shown = opened(page)
    assert scrolled(shown) > 20
    assert shown.locator("h2").count() == 9 + 2
    assert overhang(shown) <= 0
    of_axes = "({plot}) => [plot.title.text, ...plot.axes.flatMap((axis) => [axis.axis_label, ...axis.major_label_overrides.values()])]"
    words = shown.evaluate(f"[...dpca.plots.values()].flatMap(({{made}}) => made.flatMap({of_axes}))")
    bars = shown.evaluate(
        "[...dpca.plots.values()].flatMap(({made}) => made.flatMap(({plot}) => plot.right.map(({title}) => title)))"
    )
    for label in ("lag 18", "real part of the eigenvalue", "period (month)", "DJF", "lat (degrees_north)"):
        assert label in words
    assert {"amplitude", "phase (°)"} <= set(bars)
    assert bars.count("amplitude") >= 4
    resized(shown, 390)
    assert overhang(shown) <= 0


def test_its_config_repeats_it_and_without_maps_it_says_how_to_make_them(place, page):
    again = re.search(r"<pre>(.*?)</pre>", page.read_text(), re.DOTALL)[1].replace("&#39;", "'")
    again = again.replace(f"path: {place}/derived", "path: again").replace("components: true", "components: false")
    Path("again.yaml").write_text(again)
    assert dpca("derive", "again.yaml") == 0
    ours, theirs = (open_derived(path).analyses for path in ("again", place / "derived"))
    for name in theirs:
        np.testing.assert_array_equal(ours[name]["scores"][...], theirs[name]["scores"][...])
    assert dpca("report", "again") == 0
    text = Path("again/report.html").read_text()
    assert text.count("dpca derive --components makes them") == len(theirs)
    assert "Largest" not in text
