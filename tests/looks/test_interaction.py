"""What a reader does with a report: looks closer, chooses axes, selects samples, hides groups. In a real browser, in `make looks`."""

from pathlib import Path

import numpy as np
import pytest
import zarr

from tests.commands.calls import dpca
from tests.looks.conftest import place_of, scrolled

pytestmark = pytest.mark.looks

N, GRID = 40, (12, 18)
NAMES = ['<b>bold</b> "q"', "x" * 300, "", *(f"s{number}" for number in range(3, N))]
LABELS = ["a & b", "<i>c</i>", "", "d" * 80]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A run on maps of samples with names and labels that are hard to show."""
    place, rng = tmp_path_factory.mktemp("interaction"), np.random.default_rng(0)
    group = zarr.create_group(place / "x.zarr")
    factors = rng.standard_normal((N, 4)) * (8, 5, 3, 2)
    x = np.einsum("nk,kij->nij", factors, rng.standard_normal((4, *GRID))) + 0.1 * rng.standard_normal((N, *GRID))
    group.create_array("x", data=x, dimension_names=("sample", "lat", "lon"))
    axes = (
        ("lat", np.linspace(-60, 60, GRID[0])),
        ("lon", np.arange(0.0, 360, 20)),
        ("sample", np.array(NAMES, object)),
    )
    for name, values in axes:
        dtype = str if values.dtype == object else values.dtype
        array = group.create_array(name, shape=values.shape, dtype=dtype, dimension_names=(name,))
        array[...] = values
    (place / "c.yaml").write_text(
        f"input: {{uri: {place}/x.zarr, array: x}}\nmodel: {{n_components: 5}}\noutput: {{path: {place}/r}}\n"
    )
    np.save(place / "labels.npy", np.array([LABELS[number % 4] for number in range(N)]))
    assert dpca("run", str(place / "c.yaml")) == 0
    assert dpca("report", str(place / "r"), "--labels", str(place / "labels.npy")) == 0
    return place


@pytest.fixture
def shown(place, opened):
    return opened(place / "r" / "report.html")


@pytest.fixture
def scores(place):
    return np.asarray(zarr.open_group(place / "r" / "result.zarr")["scores"][...])


def selected(page):
    return page.evaluate("dpca.tables.get('samples').source.selected.indices.slice().sort((a, b) => a - b)")


def drag(page, first, last):
    page.mouse.move(*first)
    page.mouse.down()
    page.mouse.move((first[0] + last[0]) / 2, (first[1] + last[1]) / 2)
    page.mouse.move(*last)
    page.mouse.up()


def test_hovering_names_a_sample_with_its_label_and_scores(shown, scores):
    number = int(np.argmax(scores[3:, 0])) + 3
    page = shown
    page.mouse.move(*place_of(page, "scores", 0, *scores[number, :2]))
    tip = page.locator(".bk-Tooltip:visible")
    tip.get_by_text(NAMES[number], exact=True).wait_for()
    words = tip.evaluate("one => one.shadowRoot.textContent")
    assert LABELS[number % 4] in words
    assert f"{scores[number, 0]:.2f}"[:4] in words


def test_names_are_text_and_no_markup(shown, scores):
    page = shown
    page.mouse.move(*place_of(page, "scores", 0, *scores[0, :2]))
    page.locator(".bk-Tooltip:visible").get_by_text(NAMES[0], exact=True).wait_for()
    assert page.locator(".legend button").all_inner_texts() == [name[:60] for name in sorted(set(LABELS))]
    assert page.locator("b, i").count() == 0


def test_what_is_selected_in_one_figure_is_selected_in_all_and_its_names_can_be_copied(shown, scores):
    page = shown
    low, high = np.quantile(scores[:, 0], [0.7, 1.0])
    bottom, top = scores[:, 1].min() - 1, scores[:, 1].max() + 1
    first, last = (place_of(page, "scores", 0, *at) for at in ((low, bottom), (high + 0.5, top)))
    drag(page, first, last)
    expected = np.flatnonzero(scores[:, 0] > low).tolist()
    assert selected(page) == expected
    bar = page.locator(".selection")
    assert f"{len(expected)} samples selected" in bar.inner_text()
    page.get_by_role("button", name="Copy names").click()
    page.get_by_role("button", name="Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == "\n".join(NAMES[number] for number in expected)
    scrolled(page)
    sources = page.evaluate(
        """[...dpca.plots.values()].flatMap(({made}) => made).flatMap(({rows}) => rows)
           .map(({made}) => made.data_source.id)"""
    )
    assert len(sources) >= 2 + 3 + 1 + 1  # scores, time series, leverage, similarity
    assert len(set(sources)) == 1
    page.get_by_role("button", name="Select none").click()
    assert selected(page) == []
    assert not bar.is_visible()


def test_samples_are_selected_in_the_matrix_of_similarities(shown, scores):
    page = shown
    first, last = place_of(page, "similarity", 0, -0.4, 5), place_of(page, "similarity", 0, 4.5, 20)
    drag(page, first, last)
    assert selected(page) == sorted(np.argsort(scores[:, 0])[:5].tolist())


def test_other_components_are_chosen_for_the_axes(shown, scores):
    page = shown
    place_of(page, "scores", 0, 0, 0)
    page.get_by_label("Across").first.select_option("score 3")
    page.get_by_label("Up", exact=True).first.select_option("score 5")
    number = int(np.argmax(np.abs(scores[3:, 2]))) + 3
    page.mouse.move(*place_of(page, "scores", 0, scores[number, 2], scores[number, 4]))
    tip = page.locator(".bk-Tooltip:visible")
    tip.get_by_text(NAMES[number], exact=True).wait_for()
    assert "score 5" in tip.evaluate("one => one.shadowRoot.textContent")


def test_a_group_is_hidden_in_all_figures(shown):
    page = shown
    scrolled(page)
    button = page.locator(".legend button").nth(1)
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    hidden = page.evaluate("Array.from(dpca.tables.get('samples').filter.booleans, (one) => !one)")
    codes = page.evaluate("Array.from(dpca.tables.get('samples').labels.codes)")
    assert hidden == [code == 1 for code in codes]
    button.press("Enter")  # and with the keyboard it is back
    assert button.get_attribute("aria-pressed") == "true"
    assert page.evaluate("dpca.tables.get('samples').filter.booleans") is None


def test_maps_zoom_together_and_have_the_colours_that_one_sets(shown):
    page = shown
    drag(page, place_of(page, "component-1", 0, 60, -20), place_of(page, "component-1", 0, 200, 30))
    place_of(page, "component-2", 0, 100, 0)
    range_of = (
        "(name) => (({start, end}) => [start, end])(dpca.plots.get(document.getElementById(name)).made[0].x_range)"
    )
    ranges = [page.evaluate(range_of, f"plot.component-{number}") for number in (1, 2)]
    assert ranges[0] == ranges[1]
    np.testing.assert_allclose(ranges[0], [60, 200], atol=3)
    limit = """() => { const found = []; for (const {made} of dpca.plots.values()) for (const {plot} of made) for (const one of plot.renderers)
        if (one.glyph.type === "Image" && one.glyph.color_mapper.high !== 1) found.push(one.glyph.color_mapper.high); return found; }"""
    before = page.evaluate(limit)
    page.get_by_label("Colours up to").first.fill("50")
    np.testing.assert_allclose(page.evaluate(limit), np.array(before) / 2)
    page.get_by_label("of all maps together").check()
    assert len(set(page.evaluate(limit))) == 1


def test_a_new_colour_scheme_recolours_what_is_drawn(shown):
    page = shown
    scrolled(page)
    ink = "[...dpca.plots.values()][0].made[0].plot.xaxes[0].axis_label_text_color"
    before = page.evaluate(ink)
    page.emulate_media(color_scheme="dark")
    page.wait_for_function(f"{ink} !== '{before}'")


def test_labels_that_are_20000_groups(opened):
    n = 20_000
    x = np.random.default_rng(0).standard_normal((n, 6))
    np.save("x.npy", x)
    np.save("labels.npy", np.array([f"group {number}" for number in range(n)]))
    Path("c.yaml").write_text("input: {uri: x.npy}\nmodel: {n_components: 2}\noutput: {path: r}\n")
    assert dpca("run", "c.yaml") == 0
    assert dpca("report", "r", "--labels", "labels.npy") == 0
    page = opened(Path("r/report.html"))
    scrolled(page)
    assert page.locator(".legend button").count() == 40
    assert "and 9,960 more" in page.locator(".legend").inner_text()
    assert Path("r/report.html").stat().st_size < 3_000_000


@pytest.mark.parametrize(
    ("x", "model"),
    [
        (np.ones((1, 30)), "n_components: 1"),
        (np.ones((5, 30)), "n_components: 2"),
        (np.array([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0], [2.0, 2.0, 2.5]]), "n_components: 1"),
    ],
)
def test_one_sample_constant_data_and_one_component(x, model, opened):
    np.save("x.npy", x)
    Path("c.yaml").write_text(f"input: {{uri: x.npy}}\nmodel: {{{model}}}\noutput: {{path: r}}\n")
    if dpca("run", "c.yaml") == 0:
        assert dpca("report", "r") == 0
        scrolled(opened(Path("r/report.html")))


@pytest.fixture(scope="module")
def volume(tmp_path_factory):
    """A run on volumes, of which one axis has a coordinate that falls."""
    place, rng = tmp_path_factory.mktemp("volume"), np.random.default_rng(1)
    shape = (14, 9, 10)
    group = zarr.create_group(place / "x.zarr")
    x = rng.standard_normal((20, 1, 1, 1)) * 9 * rng.standard_normal(shape) + rng.standard_normal((20, *shape))
    group.create_array("t", data=x, dimension_names=("sample", "z", "y", "x"))
    for name, values in (("z", np.arange(14) * 2.0), ("y", 40 - 3.0 * np.arange(9)), ("x", np.arange(10) - 4.0)):
        group.create_array(name, data=values, dimension_names=(name,)).attrs["units"] = "mm"
    (place / "c.yaml").write_text(
        f"input: {{uri: {place}/x.zarr, array: t}}\nmodel: {{n_components: 2}}\noutput: {{path: {place}/r}}\n"
    )
    assert dpca("run", str(place / "c.yaml")) == 0
    assert dpca("report", str(place / "r")) == 0
    return place / "r"


SLICE = """([axis]) => {
    const {plot, images: [one], rules} = dpca.plots.get(document.getElementById("plot.component-1")).made[axis];
    const {image: [image], x, y, dw, dh} = one.data_source.data, at = (rule) => rule.data_source.data.at[0];
    return {values: Array.from(image), shape: image.shape, title: plot.title.text, edges: [x[0], y[0], dw[0], dh[0]], lines: [at(rules.y), at(rules.x)]};
}"""


def test_a_reader_moves_through_the_slices_of_a_volume(volume, opened):
    stored = zarr.open_group(volume / "result.zarr")
    component = stored["components"][0] * np.sqrt(stored["explained_variance"][0])
    where = {"z": 2.0 * np.arange(14), "y": 40 - 3.0 * np.arange(9), "x": np.arange(10) - 4.0}
    page = opened(volume / "report.html")
    scrolled(page)
    sliders = page.locator("[id='plot.component-1'] .slice input")
    first = [page.evaluate(SLICE, [axis]) for axis in range(3)]
    peak = np.unravel_index(np.abs(component).argmax(), component.shape)
    moved = [2, 5, 7]
    for axis, at in enumerate(moved):
        sliders.nth(axis).fill(str(at))
    for axis, at in enumerate(moved):
        shown, others = page.evaluate(SLICE, [axis]), [one for one in range(3) if one != axis]
        rising = component[:, ::-1].take(
            8 - at if axis == 1 else at, axis
        )  # y falls in the data, and rises in pictures
        np.testing.assert_allclose(
            np.reshape(shown["values"], shown["shape"]), rising, atol=np.abs(component).max() / 200
        )
        name = "zyx"[axis]
        assert shown["title"] == f"{name} {where[name][at]:g}"
        assert shown["edges"] == first[axis]["edges"]
        assert shown["lines"] == [where["zyx"[other]][moved[other]] for other in others]
        assert sliders.nth(axis).get_attribute("aria-valuetext") == shown["title"]
    for axis, at in enumerate(peak):
        sliders.nth(axis).fill(str(at))
    assert [page.evaluate(SLICE, [axis]) for axis in range(3)] == first


def test_slices_are_moved_through_with_the_keyboard_under_the_policy_of_the_page(volume, opened):
    page = opened(volume / "report.html", policy=True)
    page.locator("[id='plot.component-1']").scroll_into_view_if_needed()
    slider = page.locator("[id='plot.component-1'] .slice").first
    slider.locator("input").press("Home")
    slider.get_by_text("1 of 14", exact=True).wait_for()
    slider.locator("input").press("ArrowRight")
    slider.get_by_text("2 of 14", exact=True).wait_for()
