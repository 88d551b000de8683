"""Statistics of the rows of a kept Gram matrix: groups compared, a target predicted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from numpy.typing import NDArray

from dpca.analyses.kind import Kind
from dpca.analyses.kinds import Heritability, Manova, Pcoa, Permanova, Ridge
from dpca.analyses.samples import Samples
from dpca.estimators.analysis import Analysis


class Statistics:
    """Methods of `dpca.Gram`: statistics of its rows about their mean, without data; none has components among the features.

    Labels (`by`, `strata`) are as of `Gram.anomalies`: a part of the dates, or an array or DataArray of a label for each sample of the result,
    or each row. Targets and covariates are as `covariates` of `Gram.regress_out`. Rows that have weights are refused.
    """

    _rows: Samples

    def _run(self, kind: type[Kind], **arguments: Any) -> Analysis:
        raise NotImplementedError

    def pcoa(self, n_components: int | None = None) -> Analysis:
        """Principal coordinates of the Euclidean distances (Gower 1966): the scores of `pca`, with its spectrum.

        Parameters
        ----------
        n_components : None for all that can be told from rounding

        Raises
        ------
        ConfigError
            When there are fewer.
        """
        return self._run(Pcoa, n_components=n_components)

    def permanova(
        self,
        by: str | NDArray[Any],
        *,
        permutations: int = 999,
        seed: int = 0,
        strata: str | NDArray[Any] | None = None,
    ) -> Analysis:
        """Whether groups differ: PERMANOVA of the Euclidean distances (Anderson 2001), pseudo-F, R2 and a p value by permutations.

        >>> gram.anomalies("month").permanova(phase).p_value      # phase: a label for each sample

        Groups that differ in their spread, not in their centres, can have a small p value as well.

        Parameters
        ----------
        permutations : of labels, 0 for none
        seed : of the generator that draws them
        strata : blocks within which labels are permuted

        Raises
        ------
        ConfigError, DataError
            When there is one group, a group has one row, or a label is missing.
        """
        return self._run(Permanova, by=by, permutations=permutations, seed=seed, strata=strata)

    def manova(self, by: str | NDArray[Any], n_components: int) -> Analysis:
        """Whether groups differ in the leading scores of `pca`: the four statistics of MANOVA, with approximations by F.

        The F of Roy's root is an upper bound where there are several canonical correlations, and its p value a lower one.

        Parameters
        ----------
        n_components : how many scores; at most the rows less the groups

        Raises
        ------
        ConfigError, DataError
            As of `permanova`; when there are too many scores.
        """
        return self._run(Manova, by=by, n_components=n_components)

    def ridge(
        self, target: Any, alpha: float | Sequence[float] | Literal["auto"] = "auto", *, left_out: bool = False
    ) -> Analysis:
        """Ridge regression of a target on the rows, with leave-one-out predictions; GBLUP where the run was of genotypes.

        >>> found = gram.ridge(height)
        >>> found.leave_one_out, found.certificate["r2"]

        Predictions left out are those of the regression on all other rows, mean included, in closed form. What operators other than selections
        take from a row was fitted to all rows, though, and so was what the run did before (`preprocess`).

        Parameters
        ----------
        target : (n,)
        alpha : what is added to the eigenvalues of the products, as scikit-learn's; of several the best is chosen by leave-one-out
            predictions; "auto" for a grid from 10^-4 to 10^4 times the mean eigenvalue
        left_out : also predict the samples that a selection left out

        Raises
        ------
        ConfigError, DataError
            When an alpha is not positive, or the target is of other samples, not finite, or constant.
        """
        return self._run(Ridge, target=target, alpha=alpha, left_out=left_out)

    def heritability(self, target: Any, covariates: Any = None) -> Analysis:
        """The share h2 of a target's variance that lies in the rows, by REML, with a standard error and a likelihood-ratio test of 0.

        The Gram matrix is scaled to a mean diagonal of 1, about the mean of the rows; of standardized genotypes it is then the genetic
        relationship matrix. The standard error is that of large samples; at h2 = 0 or 1 there is none.

        Parameters
        ----------
        target : (n,)
        covariates : fixed effects beside the constant, (n,) or (n, q)

        Raises
        ------
        ConfigError, DataError
            When the target is of other samples, not finite, or fitted by the covariates.
        """
        return self._run(Heritability, target=target, covariates=covariates)
