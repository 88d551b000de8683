from pathlib import Path

import pytest
import zarr

from tests.commands.calls import X


@pytest.fixture
def config(tmp_path):
    zarr.create_array("x.zarr", data=X, chunks=(5, 20, 7), dimension_names=("time", "lat", "lon"))
    Path("c.yaml").write_text("input:\n  uri: x.zarr\nmodel:\n  n_components: 4\noutput:\n  path: out/r\n")
    return "c.yaml"
