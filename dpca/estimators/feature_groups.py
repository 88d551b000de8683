"""Groups of features of a kept Gram matrix, in a notebook."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from dpca.analyses.kinds import Cca, Mca, Similarity
from dpca.analyses.kinds.pca import shares_of
from dpca.errors import ConfigError
from dpca.numerics.panels import BlockScaling

if TYPE_CHECKING:
    from dpca.analyses.kind import Kind
    from dpca.analyses.samples import Samples
from dpca.estimators.analysis import Analysis


class GroupsOfFeatures:
    """Methods of `Gram` about groups of features."""

    if TYPE_CHECKING:
        _rows: Samples

        def _with(self, rows: Samples) -> Self: ...
        def _run(self, kind: type[Kind], **arguments: Any) -> Analysis: ...

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
        """These rows in some groups of features, weighted against each other; reads their Gram matrices, and no data.

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
        groups = [first, second]
        return self._run(Mca, groups=groups, n_components=n_components, permutations=permutations, seed=seed)

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
        return self._run(
            Cca,
            groups=[first, second],
            n_leading=n_leading,
            n_components=n_components,
            permutations=permutations,
            seed=seed,
        )

    def similarity(self, *, permutations: int = 999, seed: int = 0) -> Analysis:
        """RV coefficients (linear CKA) of all pairs of groups of features, with p values by permutations."""
        return self._run(Similarity, permutations=permutations, seed=seed)

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
        found = shares_of(analysis._rows, analysis._answer)
        return Analysis(analysis._opened, analysis._rows, found).variance_share
