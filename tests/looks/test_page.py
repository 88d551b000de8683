"""The report's page, in a real browser. In `make looks`, which installs what draws it."""

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import zarr

from tests.commands.calls import dpca, dpca_process
from tests.looks.conftest import scrolled
from tests.made import made
from tests.planning.test_memory import measured_run, npy_of
from tests.stores import random_array

pytestmark = pytest.mark.looks

VOID = {"meta", "br", "img", "link"}


class Balanced(HTMLParser):
    """Every element is closed where it should be."""

    def __init__(self):
        super().__init__()
        self.open, self.seen = [], []

    def handle_starttag(self, tag, attributes):
        self.seen.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.seen.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def parsed(text):
    page = Balanced()
    page.feed(text)
    assert not page.open
    return page.seen


CASES = {
    "pictures": ((30, 20, 30), (30, 10, 30), ("sample", "row", "column"), ""),
    "a line": ((30, 5000), (30, 1000), ("sample", "gene"), ""),
    "three axes": ((30, 6, 8, 10), (30, 6, 8, 10), None, ""),
    "samples stream by": ((500, 12), (100, 12), None, ""),
    "no components": ((30, 500), (30, 100), None, ", components: false"),
    "one component": ((30, 500), (30, 100), None, ""),
    "a kernel": ((30, 500), (30, 100), ("day", "gene"), ""),
    "kernels": ((30, 500), (30, 100), None, ""),
    "a kernel matrix": ((30, 30), (30, 30), None, ""),
}
KERNELS = {
    "a kernel": "kind: kernel_pca, kernel: rbf, ",
    "kernels": "kind: kernel_pca, kernel: [rbf, sigmoid, cosine], gamma: [median, 1.0e-3], ",
    "a kernel matrix": "kind: kernel_pca, kernel: precomputed, ",
}


def reported(case):
    """The data, config, result and report of a case, to be made."""
    shape, chunks, dims, output = CASES[case]
    x = random_array(0, shape, "f4")
    if case == "a kernel matrix":
        x = x @ x.T
    zarr.create_array("<b>x.zarr", data=x, chunks=chunks, dimension_names=dims)
    k = 1 if case == "one component" else 5
    model = f"{KERNELS.get(case, '')}n_components: {k}"
    Path("c.yaml").write_text(f"input: {{uri: <b>x.zarr}}\nmodel: {{{model}}}\noutput: {{path: r{output}}}\n")
    Path("labels.txt").write_text("\n".join("ab"[i % 2] for i in range(shape[0])))
    done = dpca_process("run", "c.yaml", "--set", "model.labels={uri: labels.txt}")
    assert done.returncode == 0, done.stderr
    assert "report: r/report.html" in done.stdout


@pytest.fixture(params=CASES)
def page(request):
    made(reported, request.param)
    return Path("r/report.html")


def test_it_is_one_small_file_that_needs_no_network(page):
    text = page.read_text()
    assert len(text) < 3_000_000
    seen = parsed(text)
    for tag, attributes in seen:
        assert tag not in ("link", "iframe")
        assert tag != "script" or set(attributes) <= {"type", "id"}
        for name in ("src", "href", "xlink:href"):
            assert attributes.get(name, "#").startswith(("#", "data:image/png"))
    assert "url(http" not in text
    assert "<b>x.zarr" not in text
    assert "&lt;b&gt;x.zarr" in text
    ids = [attributes["id"] for _, attributes in seen if "id" in attributes]
    assert len(ids) == len(set(ids))


WINDOWS = [(1280, False), (390, True)]
"""Widths, and whether they are dark."""


def test_a_browser_draws_all_of_it(page, opened, resized, overhang, request):
    """In one window, and when it becomes the other: every second case the narrow and dark one first."""
    number = list(CASES).index(request.node.callspec.params["page"])
    first, then = WINDOWS[:: -1 if number % 2 else 1]
    shown = opened(page, *first)
    for width, dark in (first, then):
        resized(shown, width)
        shown.emulate_media(color_scheme="dark" if dark else "light")
        assert scrolled(shown) >= 4
        assert shown.locator(".plot canvas").count() >= shown.locator(".plot").count()
        assert shown.locator("h2").count() in (6, 7)  # one more of a sweep
        assert overhang(shown) <= 0


def test_only_its_own_scripts_run(page, opened, chromium):
    """By its policy: it is drawn, answers, and a script that someone adds is refused."""
    figure = opened(page, policy=True).locator(".bk-events").first
    figure.hover()
    figure.click()
    forged, said = page.with_name("forged.html"), []
    forged.write_text(page.read_text().replace("</body>", "<script>document.title = 'forged'</script></body>"))
    context = chromium.new_context(offline=True)
    other = context.new_page()
    other.on("console", lambda message: said.append(message.text))
    other.goto(forged.absolute().as_uri())
    other.locator("canvas").first.wait_for()
    assert other.title() != "forged"
    context.close()
    assert "Content Security Policy" in "".join(said)


def test_without_javascript_there_is_one_picture_of_each_kind(page, opened):
    shown = opened(page, script=False)
    pictures = shown.locator(".plot .static > svg")
    assert pictures.count() >= 4
    for number in range(pictures.count()):
        assert pictures.nth(number).is_visible()
        box = pictures.nth(number).bounding_box()
        assert box["width"] > 200
        assert box["height"] > 80
    assert shown.locator("noscript p").is_visible()
    assert "one picture of each kind" in shown.locator("noscript p").inner_text()


def test_the_same_result_has_the_same_report(page):
    before = page.read_bytes()
    assert dpca("report", "r", "--labels", "labels.txt") == 0
    assert page.read_bytes() == before


def test_the_config_in_it_repeats_the_run(page):
    text = re.search(r"<pre>(.*?)</pre>", page.read_text(), re.DOTALL)[1].replace("&lt;", "<").replace("&gt;", ">")
    Path("again.yaml").write_text(text.replace("&#39;", "'").replace("&#34;", '"'))
    scores = zarr.open_array("r/result.zarr/scores", mode="r")[...]
    assert dpca("run", "again.yaml", "--overwrite") == 0
    np.testing.assert_array_equal(zarr.open_array("r/result.zarr/scores", mode="r")[...], scores)


def test_a_new_result_has_no_old_report(page):
    assert dpca("run", "c.yaml", "--overwrite") == 0  # reports are off in tests
    assert not page.exists()


def test_a_result_of_a_version_that_computed_all_eigenvalues_says_nothing_of_a_proof():
    np.save("x.npy", np.random.default_rng(0).standard_normal((30, 400)))
    Path("c.yaml").write_text("input: {uri: x.npy}\nmodel: {n_components: 4}\noutput: {path: r}\n")
    assert dpca("run", "c.yaml") == 0
    path = Path("r/certificate.json")
    certificate = json.loads(path.read_text())
    del certificate["none_missed"]
    path.write_text(json.dumps(certificate))
    assert dpca("report", "r") == 0
    text = Path("r/report.html").read_text()
    assert "rank 29" in text
    assert "is proved" not in text


def test_a_run_imports_nothing_for_its_report_that_takes_long():
    """Half a second each: what derived analyses need, and packages of whose files the page holds some."""
    np.save("x.npy", random_array(0, (20, 500), "f4"))
    Path("c.yaml").write_text("input: {uri: x.npy}\noutput: {path: r}\n")
    code = (
        "import sys; from dpca.cli.app import commands; commands.main(['run', 'c.yaml'], standalone_mode=False); "
        "print([name for name in ('bokeh', 'matplotlib', 'pandas', 'scipy.signal', 'scipy.stats', 'xarray') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert Path("r/report.html").exists()
    assert done.stdout.splitlines()[-1] == "[]"


def test_features_are_divided_by_groups(opened, capsys):
    zarr.create_array("x.zarr", data=random_array(0, (30, 500), "f4"), chunks=(30, 100))
    Path("c.yaml").write_text("input: {uri: x.zarr}\nmodel: {n_components: 2}\noutput: {path: r}\n")
    assert dpca("run", "c.yaml") == 0
    np.save("groups.npy", np.repeat([1, 2, 23], [200, 250, 50]))
    assert dpca("report", "r", "--groups", "groups.npy", "--out", "g.html") == 0
    text = Path("g.html").read_text()
    for name in ("1", "2", "23"):
        assert re.search(rf">{name}</text>", text)
    assert "from group to group" in text
    scrolled(opened(Path("g.html")))
    np.save("groups.npy", np.zeros(40, int))
    assert dpca("report", "r", "--groups", "groups.npy") == 2
    assert "groups.npy: holds labels of shape (40,), but there are 500 features" in capsys.readouterr().err


def test_a_report_takes_no_more_memory_than_its_run_was_planned_with():
    uri = npy_of((400_000, 100), "u1")
    peak, planned, _ = measured_run(uri, "1 GiB", "--set", "output.report=true")
    assert "of which one of 40 is drawn" in Path("r/report.html").read_text()
    assert peak <= planned, f"{peak / 2**20:.0f} MiB measured, {planned / 2**20:.0f} planned"


def words_in(page):
    """What static pictures say."""
    return set(re.findall(r"<(?:text|tspan)[^>]*>([^<]+)<", page.read_text()))


NAMED = r"$\frac{a$"


@pytest.mark.parametrize("features", [(40,), (8, 7)])
def test_names_are_text_and_no_mathematics(features):
    group = zarr.create_group("x.zarr")
    dims = ("time", *(NAMED + str(axis) for axis in range(len(features))))
    group.create_array("x", data=random_array(0, (6, *features), "f8"), dimension_names=dims)
    Path("labels.txt").write_text(f"{NAMED}\n_b\n" * 3)
    Path("groups.txt").write_text(f"{NAMED}\n" * 20 + "_b\n" * 20)
    Path("c.yaml").write_text("input: {uri: x.zarr, array: x}\nmodel: {n_components: 2}\noutput: {path: r}\n")
    assert dpca("run", "c.yaml") == 0
    assert dpca("report", "r", "--labels", "labels.txt") == 0
    words = words_in(Path("r/report.html"))
    assert {NAMED, "_b", *dims[1:]} <= words
    if len(features) == 1:
        assert dpca("report", "r", "--groups", "groups.txt") == 0
        words = words_in(Path("r/report.html"))
        assert {NAMED, "_b", f"{dims[1]}, by group"} <= words


def test_inputs_side_by_side(opened):
    """A figure of each input for each component, with axes of its own, and the shares of the inputs."""
    shape = (12, 5, 8)
    group = zarr.open_group("wind.zarr", mode="w")
    group.create_array("wind", data=random_array(0, shape, "f4"), dimension_names=("time", "lat", "lon"))
    for name, values in (("lat", np.linspace(-60, 60, 5)), ("lon", np.arange(0, 360, 45.0))):
        group.create_array(name, data=values, dimension_names=(name,))
    np.save("sites.npy", random_array(1, (12, 30), "f8"))
    Path("c.yaml").write_text(
        "input: [{name: wind, uri: wind.zarr, array: wind}, {name: sites, uri: sites.npy}]\n"
        "preprocess: {block_scaling: total_variance}\nmodel: {n_components: 2}\noutput: {path: r}\n"
    )
    assert dpca("run", "c.yaml") == 0
    assert dpca("report", "r") == 0
    text = Path("r/report.html").read_text()
    shares = zarr.open_group("r/result.zarr")["variance_share"][:]
    for number in range(2):
        for name, share in zip(("wind", "sites"), shares[:, number], strict=True):
            assert f"Component {number + 1}, {name}, " in text
            assert f"{100 * share:.1f} %" in text
    assert "12 samples of 70 features in 2 inputs" in text
    assert "(total_variance)" in text
    shown = opened(Path("r/report.html"))
    scrolled(shown)
    Path("again.yaml").write_text(shown.locator("pre").inner_text())
    assert dpca("run", "again.yaml", "--set", "output.path=again") == 0
    np.testing.assert_array_equal(zarr.open_group("again/result.zarr")["variance_share"][:], shares)
