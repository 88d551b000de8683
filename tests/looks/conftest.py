"""A browser for pages."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _drawn():
    for name in ("matplotlib", "jinja2"):
        pytest.importorskip(name, reason="needs pip install '.[report]' (make looks)")


@pytest.fixture
def browser():
    """Opens a page at a width; returns its document and what it said on the console."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        if os.environ.get("DPCA_NEEDS_BROWSER"):
            pytest.fail("chromium is not installed")
        pytest.skip("needs chromium")

    def open_page(path, width):
        command = [program, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--dump-dom"]
        command.append("--allow-file-access-from-files")
        done = subprocess.run(
            [*command, f"--window-size={width},2000", path.absolute().as_uri()],
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]

    return open_page


@pytest.fixture
def overhang(browser):
    """By how many pixels a page is wider than its window, which may be narrower than the narrowest that the browser opens."""

    def measure(path, width):
        script = "document.title = this.contentDocument.documentElement.scrollWidth"
        frame = f'<iframe src="{path.absolute().as_uri()}" width="{width}" height="900" onload="{script}"></iframe>'
        Path("frame.html").write_text(f"<title></title>{frame}")
        document, _ = browser(Path("frame.html"), 1280)
        return int(re.search(r"<title>(\d+)</title>", document)[1]) - width

    return measure
