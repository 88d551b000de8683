"""The workflow of kernels, on fewer features: what its README says of it."""

from pathlib import Path

import numpy as np
import xarray as xr

from tests.commands.calls import dpca
from workflows.kernels.make import make

CONFIG = Path(__file__).parent.parent / "configs" / "shells.yaml"


def test_a_kernel_separates_shells_that_the_linear_one_mixes():
    Path("dpca-shells").mkdir()
    make(Path("dpca-shells"), samples=450, features=6000)
    assert dpca("run", CONFIG, "--set", "output.path=shells") == 0
    result = xr.open_zarr("shells/result.zarr").load()
    accuracy = result.neighbour_accuracy
    assert float(accuracy[list(result.kernel.values).index("linear")]) < 0.75
    assert float(accuracy[result.gamma.values == 0.3][0]) > 0.97
    assert result.scores.shape == (7, 450, 2)
    assert np.isfinite(result.scores).all()
