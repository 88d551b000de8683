"""The estimator: scikit-learn's KernelPCA on the streamed Gram matrix."""

from __future__ import annotations

import numbers
import os
from collections.abc import Callable, Mapping
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from dpca.against import PREIMAGE, Combinations
from dpca.applying import Fitted
from dpca.clusters import of_client
from dpca.errors import ConfigError, DataError, InputError
from dpca.estimator import Streaming, in_python
from dpca.executors import Executor
from dpca.kernel_decomposition import KernelDecomposition, check_columns, decompose_kernels, kernel_rows
from dpca.kernels import USES, Inner, Kernels
from dpca.model import Model, Precision, Rung
from dpca.outputs import Outputs
from dpca.planning import plan_in_memory, plan_run
from dpca.preimages import held_to_find, weights_of
from dpca.preprocess import Rules
from dpca.progress import Progress
from dpca.runplan import RunPlan, Scratch
from dpca.sources import Source, as_source
from dpca.sources.memory import MemorySource
from dpca.training import cross, plan_cross, plan_preimages, preimages
from dpca.unfinished import differences

RULES = ("rank", "broken_stick")


class KernelPCA(Streaming):
    """Exact kernel principal component analysis of data larger than memory, streamed.

    One read sums up the n x n Gram matrix over feature chunks; every kernel of inner products or distances follows from
    it, is centred and decomposed (Scholkopf, Smola and Mueller, Neural Computation 10, 1998).

    Parameters
    ----------
    n_components : int, float, str or None
        How many components: a number; the fewest that have more than this share of the variance, in (0, 1); "rank" or
        "broken_stick" (`dpca.dimension`). None keeps those whose eigenvalue differs from 0.
    kernel : "linear", "poly", "rbf", "sigmoid", "cosine", "precomputed" or callable
        A callable is called with the Gram matrix X X', and with `squared_distances` besides if it has a parameter of
        that name; of new samples, with their inner products with those of the fit, (m, n). With "precomputed", X is the
        kernel matrix, (n, n), and for `transform` that of new samples with those of the fit, (m, n).
    gamma : float, "median" or None
        Of poly, rbf and sigmoid: None is 1 / n_features; "median" is 1 / the median squared distance.
    degree, coef0 : float
        (gamma G + coef0)^degree for poly, tanh(gamma G + coef0) for sigmoid.
    kernel_params : mapping or None
        Keyword arguments of a callable.
    alpha : float
        Ridge of the regression that finds pre-images.
    fit_inverse_transform : bool or "fixed_point"
        Whether `inverse_transform` is by kernel ridge regression, as scikit-learn's. "fixed_point", for rbf, finds the
        samples whose images are nearest (`dpca.preimages`): at a gamma that suits wide data, the regression gives little
        but the mean. Without it, the linear kernel's is PCA's.
    remove_zero_eig : bool
        Leave out components of eigenvalue 0 where n_components is a number, too.
    center : bool
        Take each feature's mean away before the kernel. It makes no difference to linear and rbf, and scikit-learn does
        not; the kernel itself is always centred, in feature space.
    scale, missing, ddof, precision, samples_axis, memory, client, store, random_state : as of `dpca.PCA`
    copy_X : bool
        Keep a copy of an array in memory, which `transform` needs: without it, what is changed there goes unnoticed. Other
        data are read again, where they are.

    Attributes
    ----------
    eigenvalues_ : (n_components,), float64
        Of the centred kernel matrix, descending.
    eigenvectors_ : (n_samples, n_components), float64
        Of unit norm; scores are eigenvectors_ * sqrt(eigenvalues_).
    gamma_ : float or None, as it was used
    explained_variance_ratio_ : (n_components,), shares of the kernel's total variance
    mean_, scale_ : (features...), float64; what preprocessing used. None for "precomputed"
    n_samples_, n_features_in_ : int
    certificate_ : dict, what was measured about the answer (`dpca.certificate`)

    Notes
    -----
    Signs are u-based, as scikit-learn's are here: the largest entry of each score vector is positive.
    """

    def __init__(
        self,
        n_components: int | float | str | None = None,
        *,
        kernel: str | Callable[..., Any] = "linear",
        gamma: float | Literal["median"] | None = None,
        degree: float = 3,
        coef0: float = 1,
        kernel_params: Mapping[str, Any] | None = None,
        alpha: float = 1.0,
        fit_inverse_transform: bool | Literal["fixed_point"] = False,
        remove_zero_eig: bool = False,
        center: bool = False,
        scale: Literal["none", "std"] = "none",
        missing: Literal["error", "mean"] = "error",
        ddof: int = 1,
        precision: Precision = "auto",
        samples_axis: int | str = 0,
        memory: int | str | None = None,
        client: Any = None,
        store: str | os.PathLike[str] | None = None,
        random_state: Any = None,
        copy_X: bool = True,
    ) -> None:
        self.n_components = n_components  # type: ignore[assignment]
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
        self.missing = missing
        self.ddof = ddof
        self.precision = precision
        self.samples_axis = samples_axis
        self.memory = memory
        self.client = client
        self.store = store
        self.random_state = random_state
        self.copy_X = copy_X

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit to X: one read of it.

        Parameters
        ----------
        X : NumPy array, Dask array, zarr.Array, h5py.Dataset or xarray.DataArray
            Of two axes or more, one of them the samples'; or the kernel matrix.
        y : ignored

        Raises
        ------
        InputError, ConfigError, DataError
            All of them ValueErrors, when X or a parameter is not what is allowed; when eigenvalues that are asked for
            are negative.
        """
        with in_python():
            self._fitted(X)
        return self

    def fit_transform(self, X: Any, y: Any = None) -> NDArray[np.float64]:
        """Fit to X and return its scores, (n_samples, n_components); no further read."""
        with in_python():
            return self._fitted(X).spectrum.scaled

    def transform(self, X: Any) -> NDArray[np.float64]:
        """Scores of new samples, (n_samples, n_components) float64: one read of them and of the training data.

        Raises
        ------
        InputError
            When X has other features than the fit.
        DataError
            When the training data have changed since the fit.
        """
        check_is_fitted(self)
        source = as_source(self._validated(X, reset=False))
        with in_python():
            return self._of_matrix(source) if self.kernel == "precomputed" else self._against_training(source)

    def inverse_transform(self, X: Any) -> Any:
        """Pre-images of scores, in the layout of the fit: one read of the training data.

        By kernel ridge regression X^ = k(Z_new, Z) (k(Z, Z) + alpha I)^-1 X with `fit_inverse_transform`, or by fixed-point
        iteration where that is "fixed_point"; of the linear kernel, without it, as PCA does: X^ = 1 m' + Z_new W'.

        Parameters
        ----------
        X : (n_samples, n_components) scores

        Returns
        -------
        NumPy array where X of the fit was one, else a lazy Dask array over `store`

        Raises
        ------
        NotFittedError
            Without `fit_inverse_transform`, but for the linear kernel.
        """
        check_is_fitted(self)
        if self.kernel != "linear" and not self.fit_inverse_transform:
            raise NotFittedError(
                f"inverse_transform of kernel {self.kernel!r} needs fit_inverse_transform=True, which was not set"
            )
        scores = np.asarray(X, np.float64)
        if scores.ndim != 2 or scores.shape[1] != len(self.eigenvalues_):
            raise InputError(
                f"scores have shape {scores.shape}, but the fit has {len(self.eigenvalues_)} components",
                f"Give an array of shape (n_samples, {len(self.eigenvalues_)}).",
            )
        with in_python():
            return self._preimages(scores)

    @property
    def _n_features_out(self) -> int:
        return len(self.eigenvalues_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self.kernel == "precomputed"
        return tags

    # The fit.

    def _kernels(self) -> Kernels:
        called = callable(self.kernel)
        return Kernels(
            # With brackets, so that it is none of the kernels that have formulas.
            names=(f"{getattr(self.kernel, '__name__', 'callable')}()" if called else str(self.kernel),),
            gammas=(self.gamma,),
            degrees=(self.degree,),
            coef0s=(self.coef0,),
            about_mean=self.center,
            function=self.kernel if callable(self.kernel) else None,
            params=self.kernel_params or {},
            alpha=self.alpha,
            fit_inverse_transform=self.fit_inverse_transform,
            indefinite="error",
            remove_zero_eig=self.remove_zero_eig,
        )

    def _check_parameters(self) -> None:
        choices = {
            "scale": ("none", "std"),
            "missing": ("error", "mean"),
            "precision": ("auto", "single", "double"),
            "center": (True, False),
        }
        self._check_choices(choices if callable(self.kernel) else {**choices, "kernel": tuple(USES)})
        self._check_kinds()
        self._check_n_components(RULES)
        if self.fit_inverse_transform and self.kernel == "precomputed":
            raise ConfigError(
                "Cannot fit_inverse_transform with a precomputed kernel: there are no samples to combine",
                "Give the samples and a kernel of theirs.",
            )
        if self.fit_inverse_transform not in (True, False, "fixed_point") or (
            self.fit_inverse_transform == "fixed_point" and self.kernel != "rbf"
        ):
            raise ConfigError(
                f"fit_inverse_transform is {self.fit_inverse_transform!r} with kernel {self.kernel!r}, but True, False or, for "
                "rbf, 'fixed_point' is allowed",
                "Pass one of these.",
            )
        if not (self.gamma is None or self.gamma == "median" or _number(self.gamma, 0)):
            raise ConfigError(f"gamma is {self.gamma!r}, but a number from 0, 'median' or None is allowed", "Pass one.")
        for name, least in (("degree", 0), ("coef0", -np.inf), ("alpha", 0)):
            if not _number(getattr(self, name), least):
                raise ConfigError(
                    f"{name} is {getattr(self, name)!r}, but a number"
                    + (" from 0" if least == 0 else "")
                    + " is allowed",
                    "Pass one.",
                )

    def _fitted(self, X: Any) -> KernelDecomposition:
        self._check_parameters()
        X = self._validated(X, reset=True)
        source = as_source(X)
        if isinstance(source, MemorySource) and self.copy_X:
            source = source.copied()
        executor, kernels = of_client(self.client), self._kernels()
        in_memory = isinstance(source, MemorySource)
        model = Model(n_components=self._n_components(), rules=self._rules(), precision=self.precision, kernels=kernels)
        made, scratch = self._plan(source, model, executor)
        outputs = Outputs({} if in_memory and executor.shares_memory else self._directory())
        keep_gram = self._needs_gram
        found = decompose_kernels(
            source, model, made, outputs, executor, Progress(), scratch=scratch.path, keep_gram=keep_gram
        )
        self._gram = np.asarray(found.outputs.array("gram")[...], np.float64) if keep_gram else None
        self._keep(source, found)
        return found

    def _plan(self, source: Source, model: Model, executor: Executor) -> tuple[RunPlan, Scratch]:
        workers, scratch = executor.workers(self._memory_bytes()), self._scratch()
        if self.kernel == "precomputed":
            rung = Rung("gram_eigh", np.dtype(np.float64))
            return plan_in_memory(source.layout, self.samples_axis, model, rung, workers), scratch
        how = {"workers": workers, "scratch": scratch, "components": False, "keep_gram": self._needs_gram}
        return plan_run(source, self.samples_axis, model, **how), scratch  # type: ignore[arg-type]

    @property
    def _needs_gram(self) -> bool:
        """Whether the Gram matrix is needed after the fit."""
        return self.fit_inverse_transform == "fixed_point"

    def _rules(self) -> Rules:
        # Streamed about the mean, which keeps the digits of distances; the kernel has it back where it sees it.
        return Rules(True, self.scale, self.missing, self.ddof)

    def _keep(self, source: Source, found: KernelDecomposition) -> None:
        """Set the fitted attributes."""
        case, (spectrum, plan) = found.cases[0], (found.spectrum, found.plan)
        # After the fit: to open an HDF5 file that is being written flushes it.
        self._source, self._fingerprint = source, source.fingerprint()
        self._case, self._rung, self._axis = case, found.rung, plan.samples_axis
        self.eigenvalues_ = spectrum.eigenvalues[: spectrum.n_components]
        self.eigenvectors_ = spectrum.vectors
        self.explained_variance_ratio_ = spectrum.explained_variance_ratio
        used = case.kernel.parameters["gamma"]
        # Where the kernel has none, as scikit-learn has it.
        self.gamma_ = (
            1 / (plan.n_features - found.counts["empty_features"]) if self.gamma in (None, "median") else self.gamma
        )
        if used is not None:
            self.gamma_ = used
        self.n_samples_, self.n_features_in_ = plan.n_samples, plan.n_features
        self.certificate_ = found.certificate
        self._alpha, self._feature_shape, self._dims = spectrum.alpha, plan.feature_shape, found.feature_dims
        self.mean_: Any = None
        self.scale_: Any = None
        self._features: Fitted | None = None
        if self.kernel == "precomputed":
            return
        stored = [found.outputs.array(name) for name in ("mean", "scale")]
        if isinstance(source, MemorySource):
            self.mean_, self.scale_ = (array[...] for array in stored)
            self._features = Fitted(self.mean_, self.scale_, None)
        else:
            import dask.array as da

            self.mean_, self.scale_ = (da.from_zarr(array) for array in stored)
            self._features = Fitted(stored[0], stored[1], None)

    # What needs the training data again.

    def _project(self, kernel: NDArray[np.float64]) -> NDArray[np.float64]:
        """Scores of new samples by their kernel with those of the fit, (m, n), which is centred in place."""
        return np.asarray(self._case.centering.apply(kernel) @ self._alpha, np.float64)

    def _of_matrix(self, source: Source) -> NDArray[np.float64]:
        check_columns(source, self._axis, self.n_samples_)
        scores = [self._project(rows) for _, rows in kernel_rows(source, self._axis)]
        return np.concatenate(scores) if scores else np.empty((0, self._alpha.shape[1]))

    def _against_training(self, new: Source) -> NDArray[np.float64]:
        shape, axis = new.layout.shape, self._axis
        features = shape[:axis] + shape[axis + 1 :]
        if len(shape) != len(self._feature_shape) + 1 or features != self._feature_shape:
            raise InputError(
                f"{new.layout.name}: has shape {shape}, but the fit had features {self._feature_shape} "
                f"beside samples on axis {axis}",
                "Give new samples in the same layout as those of the fit.",
            )
        self._check_unchanged()
        assert self._features is not None
        executor = of_client(self.client)
        beside = plan_cross(self._source, axis, new, axis, self._rung.dtype, executor.workers(self._memory_bytes()))
        scores = np.empty((shape[axis], self._alpha.shape[1]))

        def receive(group: slice, inner: Inner) -> None:
            scores[group] = self._project(self._case.kernel.of_new(inner, float(np.finfo(self._rung.dtype).eps)))

        cross(
            self._source,
            new,
            self._features,
            self._rules(),
            self._rung.dtype,
            beside,
            executor,
            Progress(),
            receive,
        )
        self._check_unchanged()
        return scores

    def _preimages(self, scores: NDArray[np.float64]) -> Any:
        self._check_unchanged()
        assert self._features is not None
        in_memory = isinstance(self._source, MemorySource)
        executor, dtype = of_client(self.client), self._rung.dtype
        workers = executor.workers(self._memory_bytes())
        found = held_to_find(self.fit_inverse_transform, len(scores), *self._alpha.shape)
        made = plan_preimages(self._source, self._axis, len(scores), dtype, workers, found)
        guard = None if made.plan.regular else executor.guard()
        outputs = Outputs({} if in_memory and executor.shares_memory else self._directory(), guard)
        outputs.create({})
        dims = list(self._dims)
        dims.insert(self._axis, "sample")
        preimages(
            self._source,
            self._features,
            self._rules(),
            self._weights(scores),
            made,
            tuple(dims),
            outputs,
            executor,
            Progress(),
            dtype,
        )
        self._check_unchanged()
        if in_memory:
            return outputs.array(PREIMAGE)[...]
        import dask.array as da

        return da.from_zarr(outputs.array(PREIMAGE))

    def _weights(self, scores: NDArray[np.float64]) -> Combinations:
        """Which combinations of the training samples pre-images are."""
        fitted = self.eigenvectors_ * np.sqrt(self.eigenvalues_)
        how = self.fit_inverse_transform
        return Combinations(*weights_of(self._case.kernel, how, scores, fitted, self._alpha, self.alpha, self._gram))

    def _check_unchanged(self) -> None:
        found = differences(self._fingerprint, self._source.fingerprint())
        if found:
            raise DataError(
                f"{self._source.layout.name}: the training data changed since the fit: {'; '.join(found)}",
                "Restore them, or fit again.",
            )


def _number(value: Any, least: float) -> bool:
    return not isinstance(value, bool) and isinstance(value, numbers.Real) and least <= float(value) < np.inf
