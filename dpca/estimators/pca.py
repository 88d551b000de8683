"""The estimator: scikit-learn's PCA on the streamed Gram matrix."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from dpca.config.given import ARRAY
from dpca.config.model import Model
from dpca.config.requested import model_of
from dpca.config.schema import BlockKrylov, Config
from dpca.derived.regressors import Design, Within, columns_behind, levels_behind, terms_of
from dpca.errors import ConfigError, InputError, OverBudgetError, PrecisionError
from dpca.estimators.annotated import Annotated, check_plain, is_annotated
from dpca.estimators.base import Streaming, in_python, say_of_new_samples
from dpca.estimators.warned import warn
from dpca.execution.clusters import on_client
from dpca.execution.stage import Executor, Runner
from dpca.methods.applying import ScoredSamples
from dpca.methods.decomposition import Decomposition, decompose
from dpca.methods.features import check_coordinates, check_features
from dpca.methods.projectors import Absent, ByComponents
from dpca.methods.record import unscaled, without_values
from dpca.methods.regressed import asked_of, columns_in, design_of, labels_in, regressors_in
from dpca.numerics.certificate import caveats_of_rotation, not_converged
from dpca.numerics.panels import FeatureCounts
from dpca.numerics.sketch import RELIABLE, SMALLEST
from dpca.numerics.uncertain import log_likelihood
from dpca.numerics.weights import SampleWeights
from dpca.planning.job import Job
from dpca.sources import Source, as_source
from dpca.sources.base import SamplesAxis
from dpca.sources.groups import FeatureGroup, Groups, check_same_samples, names_in
from dpca.sources.selected import SelectedSource
from dpca.store.fitted import Fitted
from dpca.store.results import Result
from dpca.system.machine import memory_budget, watched_memory
from dpca.units import describe_memory

OVERLAPPING = 1 << 17
"""Features whose components are multiplied together."""
NOT_KEPT = "not kept with the fit"
"""The parameter `inner_product` of a fit that was loaded."""
SMALL_GRAM_BYTES = 2**20
"""A Gram matrix up to this size is kept in a fit unless it is said not to be."""


class PCA(Streaming):
    """Exact principal component analysis of data larger than memory, streamed.

    Eigendecomposition of the n x n Gram matrix of the centred data, summed over feature chunks in one
    read (the method of snapshots, Sirovich 1987); a second read back-projects the components. With fewer
    features than samples, the d x d covariance is decomposed, and the second read gives the scores.

    Parameters
    ----------
    n_components : int, float, str or None, default None
        How many components: a number; the fewest that have more than this share of the variance, in (0, 1); or a
        rule from the spectrum: "rank", "broken_stick", "gavish_donoho", "marchenko_pastur" or, for n > d, "mle"
        (`dpca.numerics.dimension` has their formulas).
        "auto" keeps 20 at most; None keeps min(n_samples, n_features).
    svd_solver : "auto", "gram_eigh", "covariance_eigh", "tsqr" or "block_krylov", default "auto"
        "auto" starts with the smaller one of Gram matrix and covariance, and continues with double precision and then
        TSQR if a component is too small for the digits of the solver (each is one more read); "gram_eigh" and
        "covariance_eigh" mark such components as not reliable. "block_krylov" makes no matrix, and reads X several times: for more
        than some 20,000 samples and features. "auto" takes it where no matrix fits `memory` and n_components is a number.
    block_krylov : mapping or None, default None
        How "block_krylov" goes about it: {"block", "max_passes", "tolerance", "windows", "restart"}, any of them, as `model.block_krylov` in
        a configuration. A fit in which not every component has met the tolerance warns with ConvergenceWarning of scikit-learn.
    whiten : bool, default False
        Divide scores by the square root of their explained variance.
    center : bool, default True
        Subtract each feature's mean.
    regress_out : mapping or None, default None
        What is fitted to each feature by least squares, together and beside its mean, and subtracted before scaling:
        {"seasonal_cycle": "season", "month", "day_of_year" or "hour", by the dates of X, a DataArray; "trend": degree of a
        polynomial in its coordinate along the samples; "covariates": an array (n_samples,) or (n_samples, q), or numbers and
        text by name, such as a DataFrame}, any of them. Text and pandas.Categorical are categories, also if each value is a
        number. "by": the name of a coordinate along the samples of X, such as "run" or "member", or a label for each sample, (n_samples,):
        the mean and each of these are then fitted in each group alone, and "by" alone subtracts the mean of each group.
        "scale": "std": what is left is divided by the standard deviation of each feature in each group of "by", or, without it, of
        "seasonal_cycle" (z-scores of each run, standardized anomalies of each month), of the present values, with divisor (their number -
        scale_ddof); a feature that is constant in a group is 0 there. `transform` subtracts and divides by the same. A missing value is replaced by the fit to the others. It keeps samples (see
        svd_solver), also where they are more than the features.
    scale : "none", "std", "pareto" or "range", or for dosages of alleles {"binomial": "plink2"}, "smartpca" or "snprelate", default "none"
        "std" divides each feature by the standard deviation of the values that are present, with divisor (their number -
        ddof), "pareto" by its square root, "range" by the largest value less the smallest; a constant feature (its standard
        deviation is at most 4 eps of its mean) is not divided.
    weights : array, "sqrt_cos_lat" or None, default None
        What features are multiplied by after scaling: an array of anything that X may be, which broadcasts to the feature
        axes; or the square root of the cosine of the latitudes of an xarray.DataArray: a coordinate of an axis, or of several.
    inner_product : array (..., k, k), scipy.sparse matrix (d, d), or None, default None
        The inner product x' M x of features, after scaling and weights: a symmetric positive definite matrix for each k neighbours along the last
        axis of features, such as the mass matrix of an element, or one for all of these; or a sparse matrix of such equal blocks. `components_`
        are orthonormal in it, and scores are products of X_c with `weighted_components_`. It keeps samples (see svd_solver).
    missing : "error", "mean", "drop", "land" or "pairwise", default "error"
        What to do with NaN and masked values. "error": refuse them. "mean": fill in the feature's mean. "drop": leave out features
        that have one. "land": leave out features without any value, and refuse others that miss one. "pairwise": use only features that both samples have; transform(X) then differs from fit_transform(X).
        Except with "error", features without any value are left out, too.
    filters : mapping or None, default None
        Features that are left out, which are NaN in the fit: {"min_variance": least variance before scaling, "max_missing":
        largest share of missing values, "mask": an array that broadcasts to the feature axes, 0 or False where one is left out}.
    block_scaling : "none", "first_eigenvalue" or "total_variance", default "none"
        Where X has several arrays: how these are scaled against each other, once the pass has shown their sums. "first_eigenvalue"
        divides each by the standard deviation of its own first component (multiple factor analysis), "total_variance"
        by the square root of its total variance.
    sample_weight_kind : "frequency" or "reliability", default "frequency"
        What `sample_weight` of `fit` means. "frequency": a sample of weight 2 stands for two equal ones, and the divisor of
        variances is sum(w) - ddof; "reliability": only ratios of weights matter, and it is sum(w) - ddof sum(w^2) / sum(w).
    ddof : int, default 1
        `explained_variance_` is sigma^2 / (n_samples - ddof).
    scale_ddof : int or None, default None
        The variance of a feature, for `scale` and min_variance, is a sum of squares / (n_samples - scale_ddof): 0 as StandardScaler of
        scikit-learn. None: `ddof`.
    precision : "auto", "single" or "double", default "auto"
        Precision of the products; "auto" means single for bool, float16, float32 and integers of up to 16 bits.
        Sums are always added up in float64.
    samples_axis : int, str or several, default 0
        Which axis of X holds the samples. All others are feature axes; their number and order are kept. Several, such as ("time", "member"),
        of which the last changes fastest from sample to sample: rows of arrays are these samples, and DataArrays have both dimensions again.
    memory : int, str or None, default None
        Memory that a fit may use, such as "8 GiB": of this process, interpreter included, or of each worker of
        a cluster. None means half of the free memory. If the chunks require a copy of X, it is made beside `store`.
    client : distributed.Client, a cluster of Dask, or None, default None
        Where to run; None means the active client if there is one, otherwise the cores of this machine. A clone has
        the same client; a pickled estimator has none.
    store : str or None, default None
        Directory in which each fit creates a directory for its result, if X is not a NumPy array; None means a
        temporary one that is removed when the process ends. On a cluster all workers must have access to it.
    keep_gram : bool or None, default None
        Keep the Gram matrix of the samples in the fit, for `dpca.open_gram`. None keeps it up to 1 MiB, or to a tenth of the components.
    random_state : ignored, default None
        scikit-learn's solvers need it. Here the first block of "block_krylov" is random, with a fixed seed.
    rotation : "varimax", "promax", "fastica", "jade", a mapping or None, default None
        Rotate leading components (`dpca.numerics.rotation` has the formulas): a mapping has the kind, n_components, normalize,
        power and algorithm, as `model.rotation` in a configuration. Scores that `transform` returns, and
        `inverse_transform` takes, are then the rotated ones; `components_` and what is beside it stay those of PCA.

    verbose : bool or None, default None
        Show progress on stderr: True at once, False never; None, on a terminal, of what takes longer than 5 seconds.

    Attributes
    ----------
    components_ : (n_components, features...)
        Of length 1 and orthogonal, of centred, scaled and weighted features: `to_xarray(as_covariance=True)` has maps in the unit
        of X. Components beyond the rank of the data, which have no variance, are zeros. float32 where products ran in single precision. NumPy for
        NumPy input, else Dask; these in a DataArray for a DataArray.
    mean_ : (features...), float64
    rotated_components_ : (rotated components, features...), of length 1; None without rotation,
        or where all components are zero, and the others are not there
    rotated_explained_variance_, rotated_explained_variance_ratio_ : (rotated components,); of an oblique rotation, whose
        scores are correlated, they do not add up
    rotation_matrix_ : (n_components, rotated components), R of the loadings; rows of components that are not rotated are 0
    factor_correlation_ : (rotated components, the same), of an oblique rotation (promax, fastica, jade)
    scale_, weights_ : (features...), float64, what features were divided and then multiplied by
    explained_variance_, explained_variance_ratio_, singular_values_ : (n_components,), float64
    noise_variance_ : float
        Mean of the eigenvalues that were left out, as in scikit-learn; 0 when none were, NaN where it has less than two digits.
    variance_share_ : (arrays of X, n_components), where X has several arrays: the share of each in each component
    n_components_, n_samples_, n_features_in_ : int
    certificate_ : dict, what was measured about the answer (`dpca.numerics.certificate`)

    Examples
    --------
    >>> import numpy as np
    >>> from dpca import PCA
    >>> x = np.outer([1.0, 2.0, 3.0, 6.0], [3.0, 0.0, 4.0])  # 4 samples of 3 features
    >>> pca = PCA(n_components=1).fit(x)
    >>> pca.explained_variance_ratio_.round(3)
    array([1.])
    >>> pca.transform(x).round(3).ravel()
    array([-10.,  -5.,   0.,  15.])
    >>> abs(pca.components_).round(3)
    array([[0.6, 0. , 0.8]])

    Of data that are larger than memory, give a Dask array, a zarr.Array, an h5py.Dataset or a DataArray of a file:

    >>> import dask.array as da
    >>> PCA(n_components=1, memory="1 GiB").fit(da.from_array(x, chunks=(4, 1))).singular_values_.round(3)
    array([18.708])

    Notes
    -----
    Signs are u-based: the largest entry of each score vector is positive. scikit-learn's are v-based, so
    compare up to sign.

    A pickled estimator contains its fit, up to 256 MiB, or the path of a larger one in `store`. `save` writes a result
    as `dpca run` does, and `load` reads both, also those of earlier versions; a pickle is for one version.
    """

    svd_solver: Any
    block_scaling: Any
    sample_weight_kind: Any

    _kind = "pca"
    _with_features = ("mean", "scale", "weights", "components", "weighted_components", "rotated_components")
    _weighted = False
    """Whether samples of the fit had weights."""

    def __init__(
        self,
        n_components: int | float | str | None = None,
        *,
        svd_solver: str = "auto",
        whiten: bool = False,
        center: bool = True,
        regress_out: Mapping[str, Any] | None = None,
        scale: str | Mapping[str, str] = "none",
        weights: Any = None,
        inner_product: Any = None,
        missing: str = "error",
        filters: Mapping[str, Any] | None = None,
        block_scaling: str = "none",
        sample_weight_kind: str = "frequency",
        ddof: int = 1,
        scale_ddof: int | None = None,
        precision: str = "auto",
        samples_axis: SamplesAxis = 0,
        memory: int | str | None = None,
        client: Any = None,
        store: str | os.PathLike[str] | None = None,
        keep_gram: bool | None = None,
        random_state: Any = None,
        rotation: str | Mapping[str, Any] | None = None,
        block_krylov: Mapping[str, Any] | None = None,
        verbose: bool | None = None,
    ) -> None:
        self.n_components = n_components
        self.svd_solver = svd_solver
        self.whiten = whiten
        self.center = center
        self.regress_out = regress_out
        self.scale = scale
        self.weights = weights
        self.inner_product = inner_product
        self.missing = missing
        self.filters = filters
        self.block_scaling = block_scaling
        self.sample_weight_kind = sample_weight_kind
        self.ddof = ddof
        self.scale_ddof = scale_ddof
        self.precision = precision
        self.samples_axis = samples_axis
        self.memory = memory
        self.client = client
        self.store = store
        self.keep_gram = keep_gram
        self.random_state = random_state
        self.rotation = rotation
        self.block_krylov = block_krylov
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, layer: Any = None, mask: Any = None) -> Self:
        """Fit to X: two reads of it.

        Parameters
        ----------
        X : NumPy array, scipy.sparse matrix, Dask array, zarr.Array, h5py.Dataset or xarray.DataArray
            Of two axes or more, one of them the samples'. Masked arrays of NumPy and Dask have missing values. Or several
            of them, an xarray.Dataset or a dict by name, whose features lie side by side: of the same samples, in the
            same order. Attributes with feature axes are then dicts by name, and so may be `weights` and the mask.
        y : ignored
        sample_weight : (n_samples,), or None for equal weights
            Of the kind that `sample_weight_kind` says; a sample of weight 0 is left out of the fit. A DataArray has to have
            the samples' coordinate, if X is one that has it.
        layer, mask : of an AnnData object as X
            Name of a layer, None for X; a boolean column of `var`, or a mask (n_vars,), of the features that are used, None for all. The fit is
            then left where scanpy has it: obsm["X_pca"], varm["PCs"] and uns["pca"].

        Raises
        ------
        InputError, ConfigError, DataError
            All of them ValueErrors, when X or a parameter is not allowed.
        """
        self._annotated = None
        if is_annotated(X):
            annotated = Annotated.of(X, layer, mask)
            scores = self.fit_transform(annotated.matrix(X), sample_weight=sample_weight)
            self._annotated = annotated
            ratio = self.explained_variance_ratio_
            annotated.leave(X, scores, np.asarray(self.components_), self.explained_variance_, ratio, self.center)
            return self
        check_plain(layer, mask)
        self._fit(X, sample_weight)
        return self

    def fit_transform(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        """Fit to X and return its scores, as `transform` does; no further read, unless a sample has weight 0."""
        if is_annotated(X):
            return self.fit(X, y, sample_weight).transform(X)
        self._annotated = None
        found = self._fit(X, sample_weight)
        scores = found.scores if self._to_rotated is None else found.rotated_scores
        if len(scores) < (self._result.input["n_stored"] or 0):
            return self.transform(X)
        return self._labelled(X, self._precise(scores, ()), "scores")

    def transform(self, X: Any, covariates: Any = None, by: Any = None) -> Any:
        """Scores of new samples, (n_samples, n_components): one read of them. With `rotation`, rotated scores.

        Parameters
        ----------
        covariates : those of the new samples, if `regress_out` has any, in the same columns
        by : label of the group of each new sample, (n_samples,), where "by" of `regress_out` is labels; where it is the name of a
            coordinate, X has it

        Returns
        -------
        NumPy array, float32 where X and that of the fit are, as scikit-learn's, else float64; for a DataArray or Dataset a DataArray, of
        dimensions (the samples', component), with the coordinates of the samples. A missing value counts as the feature's mean in the fit, unless it is refused (missing="error"); a sample
        without any value is NaN, with a warning, as is said where missing="drop" would leave a value out

        Raises
        ------
        InputError
            When X has other features than the fit, or a date, covariates or groups that `regress_out` needs are not there.
        """
        check_is_fitted(self)
        sources = self._sources_of(X, reset=False)
        scores, _, missing = self._projected(sources, covariates, by)
        scores[missing.everywhere] = np.nan
        scores = scores / self._whitening if self.whiten else scores
        scores = scores if self._to_rotated is None else scores @ self._to_rotated
        return self._labelled(X, self._precise(scores, (one.layout.dtype for one in sources.values())), "scores")

    def score_samples(self, X: Any, covariates: Any = None, by: Any = None) -> Any:
        """Log-likelihood of each sample under probabilistic PCA, (n_samples,); one read of them. Labelled as by `transform`.

        NaN for a sample so far away that rounding of its square leaves less than two digits, and for one without any value.

        With P = `noise_variance_` and lambda_j = `explained_variance_`, the covariance is W diag(lambda - P) W' + P I
        (`dpca.numerics.uncertain` has the formula and its sources).

        Raises
        ------
        PrecisionError
            When the noise is not known (`certificate_["noise_variance"]`), or there is none, and no density.
        """
        check_is_fitted(self)
        self._check_usual("score_samples")
        noise, d = self._known_noise(), self._n_features_present
        kept = self.explained_variance_ > noise
        if noise <= 0 and (k := int(kept.sum())) < d:
            raise PrecisionError(
                f"the likelihood of {d} features is not defined with {k} components and no variance beside them",
                "Keep fewer components, so that the others' variance is the noise.",
            )
        scores, squares, missing = self._projected(self._sources_of(X, reset=False), covariates, by)
        # Stored components are orthonormal to the digits of their dtype, and what is outside may be much less than the rest.
        inside = np.einsum("nk,nk->n", scores, np.linalg.lstsq(self._overlap(), scores.T, rcond=None)[0].T)
        squared = scores**2
        outside = np.maximum(squares - inside, 0.0) + squared[:, ~kept].sum(axis=1)
        likelihood = log_likelihood(self.explained_variance_[kept], noise, d, squared[:, kept], outside)
        if noise > 0:  # what rounding of |x|^2 leaves of the distance
            likelihood[SMALLEST * squares / noise > 2 * RELIABLE * np.abs(likelihood)] = np.nan
        likelihood[missing.everywhere] = np.nan
        return self._labelled(X, likelihood, "log_likelihood")

    def score(self, X: Any, y: Any = None, covariates: Any = None, by: Any = None) -> float:
        """Mean log-likelihood of the samples under probabilistic PCA (`score_samples`)."""
        return float(self.score_samples(X, covariates, by).mean())

    def get_covariance(self) -> NDArray[np.float64]:
        """Covariance of the model, W diag(lambda - P) W' + P I, (d, d); for few features.

        Raises
        ------
        OverBudgetError
            When d x d does not fit the memory: `score_samples` does not need that matrix.
        """
        self._check_usual("get_covariance")
        noise = self._known_noise()
        return self._model_covariance(np.maximum(self.explained_variance_ - noise, 0), noise)

    def get_precision(self) -> NDArray[np.float64]:
        """Inverse of the covariance of the model, (d, d); for few features.

        Raises
        ------
        OverBudgetError
            As in `get_covariance`.
        PrecisionError
            As in `score_samples`: a covariance without noise has no inverse.
        """
        check_is_fitted(self)
        self._check_usual("get_precision")
        noise, d = self._known_noise(), self.n_features_in_
        if noise <= 0 and np.count_nonzero(self.explained_variance_ > 0) < d:
            raise PrecisionError(
                f"the covariance of {d} features is singular with {self.n_components_} components and no variance beside them",
                "Keep fewer components, so that the others' variance is the noise.",
            )
        if noise <= 0:
            return np.asarray(np.linalg.inv(self.get_covariance()), np.float64)
        signal = np.maximum(self.explained_variance_, noise)
        return self._model_covariance(1 / signal - 1 / noise, 1 / noise)

    def _check_usual(self, method: str) -> None:
        """Refuse probabilistic PCA of a fit with an inner product of its own."""
        if self._result.has_inner_product:
            raise ConfigError(
                f"{method} is of probabilistic PCA, whose noise is alike in all features, but the fit has an inner_product",
                "Leave inner_product out, or use the scores and eigenvalues.",
            )

    def _known_noise(self) -> float:
        """`noise_variance_`, where it is known."""
        check_is_fitted(self)
        if np.isnan(self.noise_variance_):
            error = self.certificate_["noise_variance"]["error"]
            most = "not measured" if error is None else f"up to {error:.2g}"
            more = "precision='double'" if self.certificate_["precision"] == "single" else "svd_solver='tsqr'"
            if self.svd_solver == "block_krylov":
                more = "a smaller tolerance of block_krylov"
            raise PrecisionError(
                f"the variance beside {self.n_components_} components is too small to be known with two digits: its error is {most} for each "
                f"of the others, where the first component has {self.explained_variance_[0]:.2g}",
                f"Fit with {more}, or keep fewer components.",
            )
        return self.noise_variance_

    def _overlap(self) -> NDArray[np.float64]:
        """W'W of the stored components, (n_components, n_components): the identity but for their rounding."""
        k = self.n_components_
        overlap = np.zeros((k, k))
        for one in self._unlabelled("components").values():
            flat = one.reshape(k, -1)
            for start in range(0, flat.shape[1], OVERLAPPING):
                part = np.nan_to_num(np.asarray(flat[:, start : start + OVERLAPPING], np.float64))
                overlap += part @ part.T
        return overlap

    def _model_covariance(self, weights: NDArray[np.float64], diagonal: float) -> NDArray[np.float64]:
        check_is_fitted(self)
        d = self.n_features_in_
        budget = memory_budget(self._memory_bytes())
        if 3 * 8 * d * d > budget.bytes:
            raise OverBudgetError(
                f"a covariance of {d} x {d} takes {describe_memory(3 * 8 * d * d)} to build, but the budget is "
                f"{describe_memory(budget.bytes)}, {budget.origin}",
                "Use score_samples, or explained_variance_ and components_: they say the same.",
            )
        parts = [
            np.asarray(one, np.float64).reshape(self.n_components_, -1)
            for one in self._unlabelled("components").values()
        ]
        components = np.nan_to_num(np.hstack(parts))
        covariance: NDArray[np.float64] = (components.T * weights) @ components
        covariance[np.diag_indices(d)] += diagonal
        return covariance

    def _projected(
        self, sources: Mapping[str, Source], covariates: Any = None, by: Any = None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], Absent]:
        """Scores, not whitened, squared distances from the mean, and what is missing, of new samples."""
        with in_python(), on_client(self.client) as executor:
            groups = tuple(
                FeatureGroup(sources[one.group], self._axis_in(sources[one.group], one), one.group)
                for one in self._result.each
            )
            for one, group in zip(self._result.each, groups, strict=True):
                check_features(one, group.source, group.samples_axis)
                check_coordinates(one, group.source, group.samples_axis)
            check_same_samples(groups)
            n = groups[0].n_samples
            regressors = regressors_in(self._result, groups, covariates, by)
            scores, squares, missing = np.zeros((n, self.n_components_)), np.zeros(n), Absent(n)
            for one, group in zip(self._result.each, groups, strict=True):
                part, distances = self._part_of(one, group, executor, regressors, missing)
                scores += part
                squares += distances
        say_of_new_samples(missing, self.missing)
        return scores, squares, missing

    def _part_of(
        self,
        one: Result,
        group: FeatureGroup,
        executor: Executor,
        regressors: NDArray[np.float64] | None,
        missing: Absent,
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The part of a group of features in the scores and squared distances of new samples."""
        scores, squares = np.empty((group.n_samples, self.n_components_)), np.empty(group.n_samples)

        def receive_scores(samples: slice, found: NDArray[np.float64]) -> None:
            scores[samples] = found

        take_note = missing.of(one.group)

        def receive_measured(samples: slice, measured: ScoredSamples) -> None:
            squares[samples] = measured.squares
            take_note(samples, measured)

        projector = ByComponents(
            self._fitted_of(one),
            self._result.rules,
            group.source,
            group.samples_axis,
            regressors=regressors,
            receive_measured=receive_measured,
        )
        projector.plan(executor.workers(self._memory_bytes()))
        projector.project(Runner(executor, self._progress()), receive_scores)
        return scores, squares

    def _fitted_of(self, one: Result) -> Fitted:
        """The arrays that new samples are projected with, of one group of features."""
        if not self._in_memory:
            return one.fitted.projecting
        mean, scale, weights, components = self._arrays_of(one)
        if one.has_inner_product:
            components = self._unlabelled("weighted_components")[one.group]
        return Fitted(mean, scale, weights, components, one.factor, one.regression)

    def _arrays_of(self, one: Result) -> tuple[Any, Any, Any, Any]:
        """Mean, scale, weights and components of a group of features, which the user may have changed."""
        mean, scale, weights, components = (
            self._unlabelled(name)[one.group] for name in ("mean", "scale", "weights", "components")
        )
        return mean, scale, weights, components

    @property
    def _n_features_out(self) -> int:
        return self.n_components_ if self._to_rotated is None else self._to_rotated.shape[1]

    def inverse_transform(self, X: Any) -> Any:
        """Samples from their scores, X^ = 1 m' + (Z W') diag(scale / weight), in the layout of the fit.

        Parameters
        ----------
        X : (n_samples, n_components) scores, whitened if `whiten`, and rotated with `rotation`; or a DataArray of them, whose dimensions are the
            samples' and `component`: its coordinate says which components there are, such as of scores.sel(component=[1, 2, 5])

        Returns
        -------
        NumPy array, or a lazy Dask array if `components_` is one, with samples along the samples axis of the fit; for a
        DataArray one of these in a DataArray, with the coordinates of its samples, and the name, attributes and
        coordinates of features of X of the fit; of several arrays a dict by name, or a Dataset
        """
        check_is_fitted(self)
        if self._result.regressors is not None:
            raise ConfigError(
                "inverse_transform would give samples without what regress_out has subtracted, since scores do not tell of which date, "
                "or of which covariates, their samples are",
                "Add it: the fit is mean + regressors @ regression, which to_xarray() has"
                + " (after a product with group_scale of each sample's group)" * self._result.rules.by_group
                + "; or save it, and use dpca reconstruct.",
            )
        scores, dtype = self._matrix(X, self._n_features_out), getattr(X, "dtype", np.float64)
        if self._to_rotated is not None:
            scores = scores @ np.linalg.pinv(self._to_rotated)
        if self.whiten:
            scores = scores * self._whitening
        samples = {one.group: self._precise(self._samples_of(scores, one), (dtype,)) for one in self._result.each}
        return self._restored(X, samples)

    def _samples_of(self, scores: NDArray[np.float64], one: Result) -> Any:
        """Samples from their scores, with the features of one group."""
        mean, scale, weights, components = self._arrays_of(one)
        none = weights == 0  # such a feature is its mean
        back = np.where(none, 0.0, scale / (np.where(none, 1.0, weights) * one.factor))
        if isinstance(components, np.ndarray):
            centred = np.tensordot(scores, components, axes=1)
        else:
            import dask.array as da

            centred = da.tensordot(da.from_array(scores, chunks=scores.shape), components.rechunk({0: -1}), axes=1)
        samples = centred * back + mean
        axes = [*range(1, samples.ndim)]
        axes.insert(one.samples_axis, 0)
        return samples.transpose(axes)

    def to_xarray(self, *, as_covariance: bool = False, as_correlation: bool = False) -> Any:
        """The fit as an xarray.Dataset (extra `export`): the arrays of a result, along the dimensions of X.

        `components` are of length 1, and multiplied by `weights`, as eofs' `eofs(eofscaling=0)` are. For a map to look at:

        Parameters
        ----------
        as_covariance : add `as_covariance`, components sqrt(explained_variance) scale / weights: in the unit of X, for one standard deviation of
            each score. NaN where a feature has no weight
        as_correlation : add `as_correlation`, the correlation of each feature with each score; of a fit with scale="std" and without missing
            values, which has the standard deviations of the features

        Returns
        -------
        Dataset of scores (whitened if `whiten`), components, mean, scale, singular_values, explained_variance, explained_variance_ratio,
        eigenvalues and others, each with long_name, and with units where these are known. `component` counts from 1. Of a DataArray it has all
        coordinates along samples alone or features alone, and mean has the attributes of X. A result that was loaded has the coordinates that
        it kept, and its dates are decoded. NumPy arrays; of a result on disk, arrays of more than 1 MiB are Dask arrays

        Raises
        ------
        NotFittedError, InputError
            When there is no fit, or xarray is not installed.
        ConfigError
            When the fit does not have the standard deviation of each feature, for `as_correlation`.
        """
        dataset = super().to_xarray()
        from dpca.store.labelled import with_maps

        return with_maps(dataset, self._result, as_covariance, as_correlation)

    def _fit(self, X: Any, sample_weight: Any) -> Decomposition:
        with in_python(), on_client(self.client) as executor:
            return self._fitted(X, sample_weight, executor)

    def _fitted(self, X: Any, sample_weight: Any, executor: Executor) -> Decomposition:
        config = self._config()
        sources, weights = self._weighed(self._sources_of(X, reset=True), sample_weight)
        in_memory = all(source.in_memory for source in sources.values())
        shares_memory = in_memory and executor.shares_memory
        began = time.perf_counter()
        groups = self._groups_of(sources, names_in(X))
        model = model_of(config, groups, sample_weights=weights, design=self._design_of(config, groups))
        job = Job(groups, model, scratch=self._scratch(), keep_gram=self._keeps_gram(groups, model))
        job = job.planned(executor.workers(self._memory_bytes()))
        if not shares_memory:
            self._check_room(job)
        with self._outputs(shares_memory) as outputs:
            with watched_memory() as peak:
                found = decompose(job, outputs, Runner(executor, self._progress()))
            seconds = time.perf_counter() - began
            self._adopt(self._recorded(job, found, executor, seconds, peak, config), in_memory)
        caveats = (*caveats_of_rotation(found.certificate.get("rotation")), *unscaled(job), *without_values(job, found))
        for sentence in caveats:
            warn(sentence)
        if (unmet := not_converged(found.certificate)) is not None:
            warn(unmet, ConvergenceWarning)
        self._keep_labels(X)
        return found

    def _keeps_gram(self, groups: Groups, model: Model) -> bool:
        """Whether the fit keeps its Gram matrix: if not asked, where it is small beside the components."""
        if self.keep_gram is not None:
            return bool(self.keep_gram)
        asked, n = model.n_components, groups[0].n_samples
        k = asked if isinstance(asked, int) else 1
        n_matrices = 1 if len(groups) == 1 else 1 + len(groups)
        return 8 * n_matrices * n**2 <= max(SMALL_GRAM_BYTES, 4 * k * sum(group.n_features for group in groups) // 10)

    def _design_of(self, config: Config, groups: Groups) -> Design | None:
        """The regressors of the samples of the fit."""
        asked = config.preprocess.regress_out
        if asked is None or self.regress_out is None:
            return None
        given, by, n = self.regress_out.get("covariates"), self.regress_out.get("by"), groups[0].n_samples
        columns = [] if given is None else columns_in(given, n)
        self._covariates = {"uri": "covariates", "columns": [one.name for one in columns]} if columns else None
        labels = None if by is None or isinstance(by, str) else labels_in(by, n)
        return design_of(asked.model_copy(update={"covariates": None}), groups, columns, labels)

    def _weighed(
        self, sources: dict[str, Source], sample_weight: Any
    ) -> tuple[dict[str, Source], SampleWeights | None]:
        """The samples of positive weight, and their weights."""
        if sample_weight is None:
            return sources, None
        given = as_source(sample_weight)
        axes = {name: source.layout.axis_of(self._samples) for name, source in sources.items()}
        n_samples = {source.layout.shape[axes[name]] for name, source in sources.items()}
        if {given.layout.shape} != {(n,) for n in n_samples}:
            raise InputError(
                f"sample_weight has shape {given.layout.shape}, but X has {' and '.join(map(str, n_samples))} samples",
                "Pass a weight for each sample, (n_samples,).",
            )
        for name, source in sources.items():
            check_same_samples((FeatureGroup(source, axes[name], name or "X"), FeatureGroup(given, 0, "sample_weight")))
        with given.open() as reader:
            values = reader.read((slice(0, given.layout.shape[0]),)).astype(np.float64)
        positive = np.flatnonzero(values != 0)
        if not len(positive):
            raise InputError(
                "sample_weight: all weights are zero", "Pass some positive weights, or None for equal ones."
            )
        if len(positive) < len(values):
            sources = {name: SelectedSource(source, axes[name], positive) for name, source in sources.items()}
        return sources, SampleWeights(values[positive], self.sample_weight_kind, "sample_weight")

    def _asked(self) -> dict[str, dict[str, Any]]:
        asked = super()._asked()
        regressed: Any = self.regress_out
        if isinstance(regressed, Mapping):  # None, and text that names a coordinate, stay as they are
            held = [key for key in ("covariates", "by") if not isinstance(regressed.get(key), str | None)]
            regressed = {**regressed, **dict.fromkeys(held, ARRAY)}
        asked["preprocess"] |= {
            "regress_out": regressed,
            "block_scaling": self.block_scaling,
            "sample_weights": {"uri": "sample_weight", "kind": self.sample_weight_kind},
        }
        asked["model"] |= {
            "svd_solver": self.svd_solver,
            "whiten": self.whiten,
            "rotation": {"kind": self.rotation} if isinstance(self.rotation, str) else self.rotation,
            "block_krylov": {} if self.block_krylov is None else self.block_krylov,
        }
        return asked if self.keep_gram is None else {**asked, "output": {"gram": self.keep_gram}}

    def _asked_of(self, config: Config, job: Job) -> dict[str, Any]:
        recorded = super()._asked_of(config, job)
        recorded["output"]["gram"] = job.keep_gram
        if job.model.sample_weights is None:
            recorded["preprocess"]["sample_weights"] = None
        if job.model.design is not None:
            recorded["preprocess"]["regress_out"]["covariates"] = self._covariates
        return recorded

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """A fitted estimator from a result of `dpca run` or of `save`; arrays with feature axes stay on disk.

        Raises
        ------
        InputError, ConfigError
            When there is no complete result of PCA with components.
        """
        result = cls._loaded(path)
        estimator = cls(**cls._parameters_of(result, ("svd_solver", "whiten", "block_scaling")))
        if (weights := result.manifest["config"]["preprocess"]["sample_weights"]) is not None:
            estimator.sample_weight_kind = weights["kind"]
        model = result.manifest["config"]["model"]
        estimator.block_krylov = None if model["block_krylov"] == BlockKrylov().model_dump() else model["block_krylov"]
        estimator.rotation = model["rotation"]
        if any(one.has_inner_product for one in result.each):
            estimator.inner_product = NOT_KEPT  # so that another fit of it is no fit without one
        if (regressed := asked_of(result)) is not None:
            estimator.regress_out = regressed.model_dump(exclude_none=True)
            terms, matrix = terms_of(result.manifest["regressors"]), result.regressors
            assert matrix is not None
            if regressed.covariates is not None:  # the regressors that they made give the same fit
                n_of_time = sum(one is not None for one in (regressed.seasonal_cycle, regressed.trend))
                estimator.regress_out["covariates"] = columns_behind(terms, matrix, n_of_time)
            if isinstance(terms[0], Within) and not isinstance(regressed.by, str):
                estimator.regress_out["by"] = levels_behind(terms[0], matrix)
        estimator._adopt(result, in_memory=False)
        for one in result.each:
            _ = one.fitted  # an error if the result has no components
        result.check_still()
        return estimator

    def _noise_of(self, result: Result) -> float:
        """The noise, NaN where it is not known; of a result of an earlier version, what that wrote."""
        if "noise_variance" in result.certificate:
            value = result.certificate["noise_variance"]["value"]
            return np.nan if value is None else float(value)
        n_left = min(self.n_samples_, self._n_features_present) - self.n_components_
        outside = float(np.asarray(result.arrays["projection_error"][...], np.float64)[-1])
        return outside / n_left if n_left > 0 else 0.0

    def _adopt(self, result: Result, in_memory: bool) -> None:
        """Set the fitted attributes."""
        self._result, self._in_memory = result, in_memory
        self.mean_: Any
        self.scale_: Any
        self.weights_: Any
        self.components_: Any
        self.weighted_components_: Any
        self.rotated_components_: Any
        self._set_arrays()
        arrays, counts = result.arrays, result.manifest["counts"]
        self.explained_variance_, self.explained_variance_ratio_, self.singular_values_ = (
            np.asarray(arrays[name][...], np.float64)
            for name in ("explained_variance", "explained_variance_ratio", "singular_values")
        )
        self.n_components_ = result.n_components
        self.n_samples_, self.n_features_in_ = result.n_samples, result.n_features
        self._n_features_present = self.n_features_in_ - FeatureCounts.of(counts).left_out
        self.certificate_ = result.certificate
        self.noise_variance_ = self._noise_of(result)
        self._whitening = result.deviations()
        self._to_rotated = result.to_rotated
        for name in (
            "rotated_explained_variance",
            "rotated_explained_variance_ratio",
            "rotation_matrix",
            "factor_correlation",
        ):
            if name in arrays:
                setattr(self, f"{name}_", np.asarray(arrays[name][...], np.float64))
            else:
                self.__dict__.pop(f"{name}_", None)
        if len(result.groups) > 1:
            self.variance_share_ = np.asarray(arrays["variance_share"][...], np.float64)
        if in_memory:
            for one in result.each:
                for name in ("components", "weighted_components", "rotated_components"):
                    arrays.let_go(one.named(name))  # the attribute holds them
