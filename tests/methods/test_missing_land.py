"""missing: land leaves out what is missing in all samples, and refuses a gap beside it, whichever side streams."""

import numpy as np
import pytest

from dpca import PCA, KernelPCA
from dpca.errors import DataError

X = np.random.default_rng(0).normal(size=(12, 5, 6)) + 3
LAND = np.zeros((5, 6), bool)
LAND[1:3, 2] = LAND[4, 0] = True


@pytest.mark.parametrize("few", [False, True], ids=["features stream", "samples stream"])
@pytest.mark.parametrize("of", [PCA, KernelPCA])
@pytest.mark.parametrize("scale", ["none", "std"])
def test_land_is_left_out_and_a_gap_is_refused(few, of, scale):
    x = np.repeat(X, 8, axis=0) + np.random.default_rng(1).normal(size=(96, 1, 1)) if few else X.copy()
    x[:, LAND] = np.nan
    model = of(3, missing="land", scale=scale, precision="double")
    found = model.fit(x)
    flat = x[:, ~LAND]
    centred = (flat - flat.mean(axis=0)) / (flat.std(axis=0, ddof=1) if scale == "std" else 1)
    s = np.linalg.svd(centred, compute_uv=False)[:3]
    np.testing.assert_allclose(np.asarray(found._result.arrays["singular_values"][...]), s, rtol=1e-9)
    x[7, 3, 3] = np.nan
    with pytest.raises(
        DataError, match=r"(1 missing values.*index \[7, 3, 3\]|1 of 30 features miss some)(.|\n)*missing='mean'"
    ):
        model.fit(x)
