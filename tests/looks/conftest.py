"""A browser for pages: without a network, as a reader of a mailed file may have it."""

import os
import shutil

import pytest


@pytest.fixture(autouse=True)
def _drawn():
    for name in ("bokeh", "jinja2"):
        pytest.importorskip(name, reason="needs pip install '.[report]' (make looks)")


@pytest.fixture(scope="session")
def chromium():
    """The browser; skips where there is none."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        if os.environ.get("DPCA_NEEDS_BROWSER"):
            pytest.fail("chromium is not installed")
        pytest.skip("needs chromium")
    api = pytest.importorskip("playwright.sync_api", reason="needs pip install '.[looks]' (make looks)")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture
def opened(chromium):
    """Opens a page, which has nothing to say on the console and asks for nothing else; returns what drives it."""
    contexts = []

    def open_page(path, width=1280, dark=False, script=True, touch=False, policy=False):
        context = chromium.new_context(
            bypass_csp=not policy,  # what drives the page evaluates texts in it
            viewport={"width": width, "height": 900},
            color_scheme="dark" if dark else "light",
            java_script_enabled=script,
            has_touch=touch,
            offline=True,
            permissions=["clipboard-read", "clipboard-write"],
        )
        contexts.append(context)
        page = context.new_page()
        page.said, page.asked = [], []
        page.on("console", lambda message: page.said.append(message.text))
        page.on("pageerror", lambda error: page.said.append(str(error)))
        page.on("request", lambda request: page.asked.append(request.url))
        page.goto(path.absolute().as_uri())
        if policy:
            page.locator("canvas").first.wait_for()
        elif script:
            page.wait_for_function("window.dpca !== undefined")
        assert page.said == []
        assert page.asked == [path.absolute().as_uri()]
        return page

    yield open_page
    for context in contexts:
        said = [text for page in context.pages for text in page.said]
        context.close()
        assert said == []


@pytest.fixture
def overhang():
    """By how many pixels a page is wider than its window."""
    return lambda page: page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")


@pytest.fixture
def resized():
    """Gives a page another width, and waits until what it holds has followed: figures are laid out anew, each by itself."""

    def resize(page, width):
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_function("document.documentElement.scrollWidth <= document.documentElement.clientWidth")

    return resize


def scrolled(page):
    """Draw all figures of a page: they are when they come into sight, those that are folded away after they are unfolded."""
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    places = page.locator(".plot")
    for number in range(places.count()):
        place = places.nth(number)
        place.scroll_into_view_if_needed()
        page.wait_for_function(f"document.querySelectorAll('.plot')[{number}].dataset.drawn === 'yes'")
    page.wait_for_function(
        "[...dpca.plots.values()].every(({made}) => made.every(({plot}) => Bokeh.index.get(plot) !== null))"
    )
    return places.count()


def place_of(page, figure, panel, x, y):
    """Where a point of the data of a panel is in the window, once its figure is drawn and stays where it is."""
    page.locator(f"[id='plot.{figure}']").scroll_into_view_if_needed()
    code = """async ([figure, panel, x, y]) => {
        const place = document.getElementById(`plot.${figure}`);
        const found = () => {
            const view = place.dataset.drawn ? Bokeh.index.get(dpca.plots.get(place).made[panel].plot) : null;
            if (!view?.frame?.bbox.width) return null;
            view.el.scrollIntoView({block: "center"});
            const {left, top} = view.el.getBoundingClientRect();
            return [left + view.frame.x_scale.compute(x), top + view.frame.y_scale.compute(y)];
        };
        let last = "", same = 0, now = null;
        while (same < 5) {
            await new Promise(requestAnimationFrame);
            now = found();
            same = now !== null && String(now) === last ? same + 1 : 0;
            last = String(now);
        }
        return now;
    }"""
    return page.evaluate(code, [figure, panel, x, y])
