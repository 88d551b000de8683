"""What a report says of rotated components."""

from pathlib import Path

import numpy as np
import pytest

from dpca.store.results import open_result
from tests.commands.calls import dpca
from tests.methods.test_rotating import mixture


def made(kind):
    np.save("x.npy", mixture((40, 12, 15)))
    Path("c.yaml").write_text(
        f"input: {{uri: x.npy}}\nmodel: {{n_components: 4, rotation: {{kind: {kind}}}}}\noutput: {{path: r, report: false}}\n"
    )
    assert dpca("run", "c.yaml") == 0
    return open_result("r")


@pytest.mark.parametrize("kind", ["varimax", "promax"])
def test_rotated_components_are_drawn_with_their_shares(kind):
    pytest.importorskip("jinja2")
    pytest.importorskip("bokeh")
    result = made(kind)
    assert dpca("report", "r") == 0
    page = Path("r/report.html").read_text()
    ratio = result.arrays["rotated_explained_variance_ratio"][...]
    assert f"Rotated by {kind}" in page
    assert page.count("Rotated component ") == 4
    assert all(f"{100 * share:.2f} % of the variance" in page for share in ratio)
    assert ("do not add up" in page) == (kind == "promax")
