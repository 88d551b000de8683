"""Resampling of the rows of a pca, in a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import ArrayLike

from dpca.analyses.kinds import Pca
from dpca.analyses.resampling import DRAWS, LEVEL, Resampling, held, with_resampling
from dpca.derived.resampling import Align
from dpca.errors import ConfigError

if TYPE_CHECKING:
    from dpca.analyses.answers import Answer
    from dpca.analyses.samples import Samples
    from dpca.estimators.opened import Opened


class Draws:
    """Methods of `Analysis` about other samples: each gives a new analysis, with more arrays. They read no data.

    Its arrays: `explained_variance_interval`, `explained_variance_ratio_interval` and `scores_interval`, with a lower and an upper limit; their
    `..._standard_error`; `..._of_draws` of the first two; `subspace_angle` in degrees and `congruence` of each draw.
    """

    if TYPE_CHECKING:
        _opened: Opened
        _rows: Samples
        _answer: Answer

        def _answered(self, answer: Answer) -> Self: ...

    def bootstrap(
        self,
        draws: int = DRAWS,
        *,
        block: int = 1,
        by: str | ArrayLike | None = None,
        seed: int = 0,
        level: float = LEVEL,
        align: Align = "order",
        standard_errors: bool = False,
        columns: int | None = None,
    ) -> Self:
        """Rows drawn with replacement.

        >>> gram.pca(5).bootstrap(1000, block=12).explained_variance_interval

        Parameters
        ----------
        draws : how many, at least 2 / (1 - level)
        block : rows that follow each other and are drawn together, where rows that are near in time are alike
        by : a part of the dates, or a label for each sample: groups that are drawn whole
        seed : the same seed draws the same, with any number of threads
        level : of the intervals; how often they cover is measured in `workflows/validation`
        align : "order", each component beside the one of a draw that is most like it, or "procrustes", all turned to be as near as can be
        standard_errors : also find what `standard_errors()` makes maps of
        columns : of these, for each component; None for all, which is exact

        Raises
        ------
        ConfigError
            Of other analyses than pca; when a setting is not allowed.
        OverBudgetError
            When draws do not fit the memory.
        """
        by = by if by is None or isinstance(by, str) else np.asarray(by)
        return self._resampled(
            Resampling.of(
                kind="bootstrap",
                draws=draws,
                block=block,
                by=by,
                seed=seed,
                level=level,
                align=align,
                standard_errors=standard_errors,
                columns=columns,
            )
        )

    def jackknife(
        self,
        *,
        level: float = LEVEL,
        align: Align = "order",
        standard_errors: bool = False,
        columns: int | None = None,
    ) -> Self:
        """All rows but one, each once; parameters as of `bootstrap`."""
        return self._resampled(
            Resampling.of(kind="jackknife", level=level, align=align, standard_errors=standard_errors, columns=columns)
        )

    def leave_out(
        self,
        by: str | ArrayLike,
        *,
        level: float = LEVEL,
        align: Align = "order",
        standard_errors: bool = False,
        columns: int | None = None,
    ) -> Self:
        """All rows but those of a group, each group once: gram.pca(5).leave_out("year"); parameters as of `bootstrap`."""
        by = by if by is None or isinstance(by, str) else np.asarray(by)
        return self._resampled(
            Resampling.of(
                kind="leave_out",
                by=by,
                level=level,
                align=align,
                standard_errors=standard_errors,
                columns=columns,
            )
        )

    def _resampled(self, asked: Resampling) -> Self:

        answer, rows = self._answer, self._rows
        if answer.kind != "pca":
            raise ConfigError(
                f"rows of {answer.kind} are resampled, but only those of a pca can be", "Call it on gram.pca(...)."
            )
        if "congruence" in answer.arrays:
            raise ConfigError("rows of this analysis were resampled before", "Call it on gram.pca(...) itself.")
        k = len(answer.arrays["eigenvalues"].values)
        with self._opened.connected() as executor:
            threads = self._opened.workers(executor).threads
        self._opened.check(rows.n, Pca.matrices, held(rows.n, k, asked, threads), "resampling")
        return self._answered(with_resampling(rows, answer, asked, threads))
