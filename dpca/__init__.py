"""dpca: exact PCA and kernel PCA of data with far more features than samples, larger than memory.

>>> from dpca import PCA
>>> scores = PCA(n_components=3).fit_transform(x)   # NumPy, Dask, zarr.Array or h5py.Dataset

>>> gram = dpca.open_gram("results/sst")   # a result of `dpca run` that keeps its Gram matrix
>>> gram.sel(time=slice("1980", "2010")).anomalies("month").detrend().pca(10)   # reads no data

`dpca run CONFIG` does the same from a YAML file; see README.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpca.estimators.gram import open_gram
    from dpca.estimators.kernel_pca import KernelPCA
    from dpca.estimators.pca import PCA

__version__ = "0.1.0"
__all__ = ["PCA", "KernelPCA", "__version__", "open_gram"]


def __getattr__(name: str) -> Any:
    # Imported when asked for: the command line should not wait for scikit-learn.
    if name == "PCA":
        from dpca.estimators.pca import PCA

        return PCA
    if name == "KernelPCA":
        from dpca.estimators.kernel_pca import KernelPCA

        return KernelPCA
    if name == "open_gram":
        from dpca.estimators.gram import open_gram

        return open_gram
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
