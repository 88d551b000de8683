"""dpca: exact PCA and kernel PCA of data with far more features than samples, larger than memory.

>>> from dpca import PCA
>>> scores = PCA(n_components=3).fit_transform(x)   # NumPy, Dask, zarr.Array or h5py.Dataset

>>> gram = dpca.open_gram("results/sst")   # a result of `dpca run` that keeps its Gram matrix
>>> gram.sel(time=slice("1980", "2010")).anomalies("month").detrend().pca(10)   # reads no data

PCA, KernelPCA : estimators, as scikit-learn's
open_gram : the samples of a result or a fit, as a `Gram`, whose methods are operators (`sel`, `anomalies`, `detrend`, `filter`, ...) and
    analyses (`pca`, `hilbert`, `dmd`, `mca`, ...), each of which gives an `Analysis`

`dpca run CONFIG` does the same from a YAML file; see README.md.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dpca.version import __version__

if TYPE_CHECKING:
    from dpca.estimators.analysis import Analysis
    from dpca.estimators.gram import Gram, open_gram
    from dpca.estimators.kernel_pca import KernelPCA
    from dpca.estimators.pca import PCA

__all__ = ["PCA", "Analysis", "Gram", "KernelPCA", "__version__", "open_gram"]

_PLACES = {
    "PCA": "dpca.estimators.pca",
    "KernelPCA": "dpca.estimators.kernel_pca",
    "open_gram": "dpca.estimators.gram",
    "Gram": "dpca.estimators.gram",
    "Analysis": "dpca.estimators.analysis",
}


def __getattr__(name: str) -> Any:
    # Imported when asked for: the command line should not wait for scikit-learn.
    if name in _PLACES:
        return getattr(import_module(_PLACES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_PLACES})
