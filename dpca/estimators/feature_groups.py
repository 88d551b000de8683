"""Groups of features of a kept Gram matrix, in a notebook."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from dpca.analyses import feature_groups
from dpca.errors import ConfigError
from dpca.numerics.panels import BlockScaling

if TYPE_CHECKING:
    from dpca.analyses.answers import Answer
    from dpca.analyses.samples import Samples
from dpca.estimators.analysis import Analysis


class GroupsOfFeatures:
    """What `Gram` says of groups of features."""

    if TYPE_CHECKING:
        _rows: Samples

        def _with(self, rows: Samples) -> Self: ...
        def _within_memory(self, itemsize: int = 8) -> Samples: ...
        def _analysed(self, answer: Answer, rows: Samples | None = None) -> Analysis: ...

    @property
    def groups(self) -> tuple[str, ...]:
        """Names of the groups of features that there is a Gram matrix of each: inputs, labels (`output.groups`), or results."""
        features = self._rows.features
        return () if features is None else features.names

    def features(
        self,
        only: Sequence[str] | None = None,
        *,
        leave_out: Sequence[str] = (),
        weights: Mapping[str, float] | None = None,
        scaling: BlockScaling = "none",
    ) -> Self:
        """The same rows in some groups of features, weighted against each other; reads their Gram matrices, and no data.

        >>> gram.features(leave_out=["chr6"]).pca(10)
        >>> gram.features(scaling="first_eigenvalue").pca(5)      # multiple factor analysis

        Parameters
        ----------
        only, leave_out : names of groups, of `groups`
        weights : by name, what the products of a group are multiplied by
        scaling : "first_eigenvalue" or "total_variance", as `block_scaling` of `dpca.PCA`, decided after the run

        Raises
        ------
        ConfigError
            When there is one group, no such group, or none is left.
        """
        return self._with(self._rows.of_features(only, leave_out, weights, scaling))

    def mca(
        self, first: str, second: str, n_components: int | None = None, *, permutations: int = 999, seed: int = 0
    ) -> Analysis:
        """Maximum covariance analysis (singular value decomposition of the cross-covariance) of two groups of features.

        `p_value` is that of the sum of squared covariances, by permutations of the rows of the second group. `components()` are the singular
        vectors of both groups, orthonormal; `rest` and `transform` have scores of both, (side, samples, component).
        """
        found = feature_groups.mca(self._within_memory(), (first, second), n_components, permutations, seed)
        return self._analysed(found, self._rows.centred)

    def cca(
        self,
        first: str,
        second: str,
        n_leading: int = 10,
        n_components: int | None = None,
        *,
        permutations: int = 999,
        seed: int = 0,
    ) -> Analysis:
        """Canonical correlations of the `n_leading` principal components of two groups of features; p values as of `mca`.

        `p_value_of_first` is that of the first correlation. `components()` are the weights of features (`x_rotations_` and `y_rotations_` of
        scikit-learn's CCA, of scores of length 1): centred samples times these are the scores. They are not orthogonal.
        """
        found = feature_groups.cca(self._within_memory(), (first, second), n_leading, n_components, permutations, seed)
        return self._analysed(found, self._rows.centred)

    def similarity(self, *, permutations: int = 999, seed: int = 0) -> Analysis:
        """RV coefficients (linear CKA) of all pairs of groups of features, with p values by permutations."""
        return self._analysed(feature_groups.similarities(self._within_memory(), permutations, seed))

    def variance_share(self, analysis: Any) -> Any:
        """The share of each group of features in the variance of each component of a pca of this Gram matrix, (group, component).

        Returns
        -------
        xarray.DataArray, whose columns sum to 1

        Raises
        ------
        ConfigError
            Of other analyses.
        """
        from dpca.estimators.analysis import Analysis

        if not isinstance(analysis, Analysis):
            raise ConfigError(f"analysis is {analysis!r}, but a pca is allowed", "Pass gram.pca(...).")
        found = feature_groups.shares_of(analysis._rows, analysis._answer)
        return Analysis(analysis._opened, analysis._rows, found).variance_share
