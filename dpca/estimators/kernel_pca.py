"""The estimator: scikit-learn's KernelPCA on the streamed Gram matrix."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from dpca.config.requested import kernels_of, model_of
from dpca.config.schema import Config
from dpca.errors import ConfigError
from dpca.estimators.base import NotPortable, Streaming, in_python, say_of_new_samples
from dpca.execution.clusters import on_client
from dpca.execution.stage import Executor, Runner
from dpca.kernels.kinds.function import check_function
from dpca.kernels.sweep import Kernels
from dpca.methods.against import PREIMAGE
from dpca.methods.features import check_coordinates, check_features
from dpca.methods.kernel_decomposition import KernelDecomposition, decompose_kernels
from dpca.methods.projectors import (
    Absent,
    ByKernel,
    ByMatrix,
    FromTraining,
    KernelFit,
    Projector,
    Training,
    training_of,
)
from dpca.methods.recorded import input_of
from dpca.methods.regressed import regressors_of
from dpca.methods.training import write_training
from dpca.numerics.panels import FeatureCounts
from dpca.numerics.spectrum import reciprocal
from dpca.planning.job import Job
from dpca.sources import Source
from dpca.sources.base import SamplesAxis
from dpca.sources.groups import alone
from dpca.sources.memory import MemorySource
from dpca.sources.sparse import SparseSource
from dpca.store.directory import TRAINING
from dpca.store.fitted import Fitted
from dpca.store.held import HeldOutputs
from dpca.store.results import Result, save_result
from dpca.store.stored import Arrays, Stored
from dpca.system.machine import watched_memory

RULES = ("rank", "broken_stick")


class KernelPCA(Streaming):
    """Exact kernel principal component analysis of data larger than memory, streamed.

    One read adds up the n x n Gram matrix over feature chunks. Any kernel of inner products or distances is computed
    from it, centred and decomposed (Scholkopf, Smola and Mueller, Neural Computation 10, 1998).

    Parameters
    ----------
    n_components : int, float, str or None, default None
        How many components: a number; the fewest that have more than this share of the variance, in (0, 1); "rank" or
        "broken_stick" (`dpca.numerics.dimension`). "auto" keeps 20 at most; None keeps those whose eigenvalue differs from 0.
    kernel : "linear", "poly", "rbf", "sigmoid", "cosine", "precomputed" or callable, default "linear"
        A callable gets the Gram matrix X X', and `squared_distances`, too, if it has a parameter of that name; for new
        samples it gets their inner products with the samples of the fit, (m, n). With "precomputed", X is the kernel
        matrix, (n, n), and in `transform` the kernel of new samples with the samples of the fit, (m, n).
    gamma : float, "median" or None, default None
        For poly, rbf and sigmoid: None means 1 / n_features; "median" means 1 / the median squared distance.
    degree, coef0 : float, default 3 and 1
        (gamma G + coef0)^degree for poly, tanh(gamma G + coef0) for sigmoid.
    kernel_params : mapping or None, default None
        Keyword arguments for a callable.
    alpha : float, default 1
        Ridge parameter of the regression that finds pre-images.
    fit_inverse_transform : bool or "fixed_point", default False
        Whether `inverse_transform` uses kernel ridge regression, as scikit-learn does. "fixed_point", for rbf, finds the
        samples whose images are nearest (`dpca.kernels.preimages`): at a gamma that suits wide data, the regression gives
        little more than the mean. With False, only the linear kernel has an inverse, that of PCA.
    remove_zero_eig : bool, default False
        Leave out components of eigenvalue 0 also where n_components is a number.
    center : bool, default False
        Subtract each feature's mean before the kernel; scikit-learn does not. It makes no difference to linear and rbf.
        The kernel itself is always centred, in feature space.
    scale, weights, missing, filters, ddof, scale_ddof, precision, samples_axis, memory, client, store, random_state, verbose : as in `dpca.PCA`
    copy_X : bool, default True
        Keep a copy of X if it is an array in memory. `transform` needs the training data: without a copy, changes to
        the array are not noticed. Other data are read again from where they are.

    Attributes
    ----------
    eigenvalues_ : (n_components,), float64
        Of the centred kernel matrix, descending.
    eigenvectors_ : (n_samples, n_components), float64
        Of unit norm, beyond the rank of the kernel matrix too; scores are `eigenvectors_` * sqrt(`eigenvalues_`), so that those of
        components beyond the rank are zeros.
    gamma_ : float or None, the value that was used
    explained_variance_ratio_ : (n_components,), shares of the kernel's total variance
    mean_, scale_ : (features...), float64; what preprocessing used. None for "precomputed"
    n_samples_, n_features_in_ : int
    certificate_ : dict, what was measured about the answer (`dpca.numerics.certificate`)

    Examples
    --------
    >>> import numpy as np
    >>> from dpca import KernelPCA
    >>> x = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [3.0, 3.0]])
    >>> pca = KernelPCA(n_components=2, kernel="rbf", gamma=1.0).fit(x)
    >>> pca.eigenvalues_.round(3)
    array([1.15 , 0.865])
    >>> abs(pca.transform(x[3:])).round(3)
    array([[0.925, 0.   ]])

    Notes
    -----
    Signs are u-based, as in scikit-learn's KernelPCA: the largest entry of each score vector is positive.
    """

    gamma: Any
    fit_inverse_transform: Any

    _kind = "kernel_pca"
    _with_features = ("mean", "scale", "weights")

    def __init__(
        self,
        n_components: int | float | str | None = None,
        *,
        kernel: str | Callable[..., Any] = "linear",
        gamma: float | str | None = None,
        degree: float = 3,
        coef0: float = 1,
        kernel_params: Mapping[str, Any] | None = None,
        alpha: float = 1.0,
        fit_inverse_transform: bool | str = False,
        remove_zero_eig: bool = False,
        center: bool = False,
        scale: str | Mapping[str, str] = "none",
        weights: Any = None,
        missing: str = "error",
        filters: Mapping[str, Any] | None = None,
        ddof: int = 1,
        scale_ddof: int | None = None,
        precision: str = "auto",
        samples_axis: SamplesAxis = 0,
        memory: int | str | None = None,
        client: Any = None,
        store: str | os.PathLike[str] | None = None,
        random_state: Any = None,
        copy_X: bool = True,
        verbose: bool | None = None,
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.alpha = alpha
        self.fit_inverse_transform = fit_inverse_transform
        self.remove_zero_eig = remove_zero_eig
        self.center = center
        self.scale = scale
        self.weights = weights
        self.missing = missing
        self.filters = filters
        self.ddof = ddof
        self.scale_ddof = scale_ddof
        self.precision = precision
        self.samples_axis = samples_axis
        self.memory = memory
        self.client = client
        self.store = store
        self.random_state = random_state
        self.copy_X = copy_X
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit to X: one read of it.

        Parameters
        ----------
        X : NumPy array, scipy.sparse matrix, Dask array, zarr.Array, h5py.Dataset or xarray.DataArray
            Of two axes or more, one of them the samples'; or the kernel matrix.
        y : ignored

        Raises
        ------
        InputError, ConfigError, DataError
            All of them ValueErrors: when X or a parameter is not allowed; when requested eigenvalues are negative.
        """
        with in_python(), on_client(self.client) as executor:
            self._fitted(X, executor)
        return self

    def fit_transform(self, X: Any, y: Any = None) -> Any:
        """Fit to X and return its scores, as `transform` does; no further read."""
        with in_python(), on_client(self.client) as executor:
            scores = self._fitted(X, executor).spectrum.scaled
            return self._labelled(X, self._precise(scores, ()), "scores")

    def transform(self, X: Any) -> Any:
        """Scores of new samples, (n_samples, n_components): one read of them and of the training data.

        Returns
        -------
        NumPy array, float32 where X and that of the fit are, else float64; for a DataArray a DataArray, of dimensions (the samples',
        component), with the coordinates of the samples.
        Missing values as by `PCA.transform`: a sample without any value is NaN

        Raises
        ------
        InputError
            When X has other features than the fit.
        DataError
            When the training data have changed since the fit.
        """
        check_is_fitted(self)
        source = self._source(self._validated(X, reset=False))
        with in_python():
            found = self._of_matrix(source) if self.kernel == "precomputed" else self._against_training(source)
            return self._labelled(X, self._precise(found, (source.layout.dtype,)), "scores")

    def inverse_transform(self, X: Any) -> Any:
        """Pre-images of scores, in the layout of the fit: one read of the training data.

        By kernel ridge regression X^ = k(Z_new, Z) (k(Z, Z) + alpha I)^-1 X with `fit_inverse_transform`, or by fixed-point
        iteration where that is "fixed_point"; for the linear kernel, without it, as in PCA: X^ = 1 m' + Z_new W'.

        Parameters
        ----------
        X : (n_samples, n_components) scores; or a DataArray of them, whose dimensions are the samples' and `component`

        Returns
        -------
        NumPy array if X of the fit was in memory, otherwise a lazy Dask array of files in `store`; for a DataArray one of
        these in a DataArray, as by `PCA.inverse_transform`

        Raises
        ------
        NotFittedError
            Without `fit_inverse_transform`, except for the linear kernel.
        """
        check_is_fitted(self)
        if self.kernel != "linear" and not self.fit_inverse_transform:
            raise NotFittedError(
                f"inverse_transform of kernel {self.kernel!r} needs fit_inverse_transform=True, which was not set"
            )
        scores, dtype = self._matrix(X, len(self.eigenvalues_)), getattr(X, "dtype", np.float64)
        with in_python():
            return self._restored(X, {"": self._precise(self._preimages(scores), (dtype,))})

    def to_xarray(self) -> Any:
        dataset = super().to_xarray()
        if self._case is None:
            return dataset
        return dataset.isel(kernel_case=self._case, component=slice(len(self.eigenvalues_)))

    @property
    def _n_features_out(self) -> int:
        return len(self.eigenvalues_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self.kernel == "precomputed"
        return tags

    # The fit.

    def _kernels(self, asked: Kernels) -> Kernels:
        """The kernel of a config, or a function, and how negative eigenvalues are taken."""
        settled = replace(asked, indefinite="error", remove_zero_eig=self.remove_zero_eig)
        if not callable(self.kernel):
            return settled
        # With brackets, so that it is not the name of a built-in kernel.
        name, params = f"{getattr(self.kernel, '__name__', 'callable')}()", self.kernel_params or {}
        check_function(name, self.kernel, params)
        return replace(settled, names=(name,), function=self.kernel, params=params)

    def _fitted(self, X: Any, executor: Executor) -> KernelDecomposition:
        config = self._config()
        kernels = self._kernels(cast(Kernels, kernels_of(config)))
        source = self._source(self._validated(X, reset=True))
        if self.copy_X and isinstance(source, MemorySource | SparseSource) and source.in_memory:
            source = source.copied()
        in_memory = source.in_memory
        began = time.perf_counter()
        groups = alone(source, self._samples) if self.kernel == "precomputed" else self._groups_of({"": source})
        model = replace(model_of(config, groups), kernels=kernels)
        shares_memory = in_memory and executor.shares_memory
        job = Job(groups, model, scratch=self._scratch(), components=False, keep_gram=self._needs_gram)
        job = job.planned(executor.workers(self._memory_bytes()))
        if not shares_memory:
            self._check_room(job)
        with self._outputs(shares_memory) as outputs:
            with watched_memory() as peak:
                found = decompose_kernels(job, outputs, Runner(executor, self._progress()))
            seconds = time.perf_counter() - began
            result = self._recorded(job, found, executor, seconds, peak, config)
        kernel = KernelFit.of(result, None)
        if callable(self.kernel):
            kernel = replace(kernel, kernel=found.cases[0].kernel)
        training = Training(source, result.samples_axis, result.name, result.manifest["fingerprint"])
        self._adopt(result, kernel, training, in_memory)
        self.eigenvectors_ = found.spectrum.vectors
        self._keep_labels(X)
        return found

    @property
    def _needs_gram(self) -> bool:
        """Whether the Gram matrix is needed after the fit."""
        return bool(self.fit_inverse_transform == "fixed_point")

    def _asked(self) -> dict[str, dict[str, Any]]:
        asked = super()._asked()
        names = ("kernel", "gamma", "degree", "coef0", "alpha", "fit_inverse_transform")
        asked["model"] |= {name: getattr(self, name) for name in names}
        if callable(self.kernel):
            asked["model"]["kernel"] = "linear"
        return {**asked, "output": {"gram": self._needs_gram}}

    def _asked_of(self, config: Config, job: Job) -> dict[str, Any]:
        recorded = super()._asked_of(config, job)
        if callable(self.kernel):
            recorded["model"]["kernel"] = cast(Kernels, job.model.kernels).names[0]
        return recorded

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, kernel_case: int | None = None, training: str | None = None) -> Self:
        """A fitted estimator from a result of `dpca run` or of `save`.

        Parameters
        ----------
        kernel_case : number of the kernel, if the result has several
        training : path or URL of the training data, if they were moved

        Raises
        ------
        InputError, ConfigError
            When there is no complete result of kernel PCA, or no such kernel.
        DataError
            When its training data are missing or have changed.
        """
        result = cls._loaded(path)
        kernel = KernelFit.of(result, kernel_case)
        used = {name: value for name, value in kernel.kernel.parameters.items() if value is not None}
        parameters = cls._parameters_of(result, ("alpha", "fit_inverse_transform"))
        estimator = cls(**{**parameters, "n_components": kernel.alpha.shape[1], "kernel": kernel.kernel.name, **used})
        training_data: Training | None = None
        if kernel.kernel.name != "precomputed":
            moved = None if training is None else input_of(result, [training])
            training_data = training_of(result, moved)
            if training_data.fingerprint is None and result.manifest["fingerprint"]["kind"] == "numpy":
                # In memory as in the fit, so that sums have the same bits.
                with training_data.source.open() as reader:
                    whole = tuple(slice(0, length) for length in training_data.source.layout.shape)
                    values = np.array(reader.read(whole))
                training_data = replace(training_data, source=MemorySource(values, training_data.source.layout.dims))
        estimator._adopt(result, kernel, training_data, in_memory=False, case=kernel_case)
        result.check_still()
        return estimator

    def __getstate__(self) -> dict[str, Any]:
        training: Training | None = self.__dict__.get("_training")
        if training is not None and training.source.blocks:
            raise NotPortable(
                "the training data are blocks on a cluster, which a pickle can't carry",
                "save(path) writes them beside the model; or fit to an array that is stored.",
            )
        return super().__getstate__()

    def _save(self, path: Path) -> Path:
        if callable(self.kernel):
            raise ConfigError(
                "a kernel that is a function can't be saved as a result, which holds numbers alone",
                "Pickle the estimator, where the function can be imported.",
            )
        training = self._training
        if training is None or (training.fingerprint is not None and training.source.place is not None):
            return super()._save(path)  # else they are in memory, or the copy beside a model that was loaded

        def beside(place: Path) -> dict[str, Any]:
            write_training(training.source, training.axis, place / TRAINING)
            return {"training": True}

        return save_result(self._result, path, self._changeable, beside)

    def _adopt(
        self, result: Result, kernel: KernelFit, training: Training | None, in_memory: bool, case: int | None = None
    ) -> None:
        """Set the fitted attributes."""
        self._result, self._in_memory = result, in_memory
        self._kernel, self._training, self._case = kernel, training, case
        self.mean_: Any
        self.scale_: Any
        self.weights_: Any
        self._set_arrays()

        def array(name: str) -> NDArray[np.float64]:
            stored = result.arrays[name]
            of_one = stored[case or 0] if "kernel_case" in stored.dims else stored[...]
            return np.asarray(of_one, np.float64)

        k = kernel.alpha.shape[1]
        self.eigenvalues_ = array("eigenvalues")[:k]
        self.eigenvectors_ = kernel.scores * reciprocal(np.sqrt(self.eigenvalues_))
        self.explained_variance_ratio_ = array("explained_variance_ratio")[:k]
        shape = result.manifest["input"]["shape"]
        self.n_samples_ = result.n_samples
        self.n_features_in_ = math.prod(shape) // self.n_samples_
        used: Any = kernel.kernel.parameters["gamma"]
        if used is None:  # a kernel without gamma: the value that scikit-learn would have
            present = self.n_features_in_ - FeatureCounts.of(result.manifest["counts"]).left_out
            used = 1 / present if self.gamma in (None, "median") else self.gamma
        self.gamma_ = used
        self.certificate_ = result.certificate

    # Methods that need the training data again.

    def _of_matrix(self, source: Source) -> NDArray[np.float64]:
        projector = ByMatrix(self._kernel, source, self._result.samples_axis)
        return self._gathered(projector, source.layout.shape[self._result.samples_axis])

    def _against_training(self, new: Source) -> NDArray[np.float64]:
        assert self._training is not None
        axis = self._axis_in(new)
        check_features(self._result, new, axis)
        check_coordinates(self._result, new, axis)
        self._training.check_unchanged()
        fit = self._result  # of dpca run, if a regression was subtracted: then dates of new samples are needed
        regressors = fit.regressors, regressors_of(fit, alone(new, axis), None)
        projector = ByKernel(self._features, fit.rules, self._kernel, self._training, new, axis, regressors)
        missing = Absent(new.layout.shape[axis])
        projector.receive_measured = missing.of("")
        scores = self._gathered(projector, new.layout.shape[axis])
        scores[missing.everywhere] = np.nan
        say_of_new_samples(missing, self.missing)
        return scores

    def _gathered(self, projector: Projector, n_samples: int) -> NDArray[np.float64]:
        """All scores that a projector gives."""
        scores = np.empty((n_samples, projector.n_components))

        def receive(group: slice, found: NDArray[np.float64]) -> None:
            scores[group] = found

        with on_client(self.client) as executor:
            projector.plan(executor.workers(self._memory_bytes()))
            projector.project(Runner(executor, self._progress()), receive)
        projector.check_unchanged()
        return scores

    @property
    def _features(self) -> Fitted:
        """Means and scales."""
        if not self._in_memory:
            return self._result.fitted
        mean, scale, weights = (self._unlabelled(name)[""] for name in ("mean", "scale", "weights"))
        return Fitted(mean, scale, weights, None)

    def _preimages(self, scores: NDArray[np.float64]) -> Any:
        training = self._training
        assert training is not None
        training.check_unchanged()
        in_memory = training.source.in_memory
        kernel = replace(self._kernel, inverse=self.fit_inverse_transform, ridge=self.alpha)
        restorer = FromTraining(self._result, self._features, kernel, scores, training)
        with on_client(self.client) as executor, self._outputs(in_memory and executor.shares_memory) as outputs:
            restorer.plan(executor.workers(self._memory_bytes()))
            outputs.create({})
            restorer.restore(outputs, self._result.dims.placed(training.axis), Runner(executor, self._progress()))
            training.check_unchanged()
        arrays: Mapping[str, Stored] = (
            outputs.result
            if isinstance(outputs, HeldOutputs)
            else Arrays(str(outputs.root), "this pre-image", outputs.inventory())
        )
        return arrays[PREIMAGE][...] if in_memory else arrays[PREIMAGE].lazy()
