"""The requested model: plain values, checked against the data once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from dpca.derived.regressors import Design
from dpca.errors import ConfigError
from dpca.kernels.sweep import Kernels
from dpca.numerics.accumulators import krylov
from dpca.numerics.block_krylov import Iteration
from dpca.numerics.dimension import NComponents
from dpca.numerics.known import KnownGram
from dpca.numerics.ladder import BLOCK_KRYLOV, Precision, Rung, working_dtype
from dpca.numerics.panels import BlockScaling, Rules
from dpca.numerics.regression import Regression
from dpca.numerics.rotation import Rotating
from dpca.numerics.weights import SampleWeights
from dpca.settings import INPUT, MODEL, OUTPUT, PREPROCESS, Setting
from dpca.slabs import Side
from dpca.types import F64

LEAST_TOLERANCE = {"single": 2.0**-23, "double": 2.0**-46, "auto": 2.0**-46}
"""Relative errors of eigenvalues that a precision can support at best."""
MOST_ROTATED = 100
"""Components that can be rotated together: their moments, as a matrix of pairs, take 200 MB."""
Solver = Literal["auto", "gram_eigh", "covariance_eigh", "tsqr", "block_krylov"]
SpectrumKept = Literal["auto", "all", "leading"]


def _refuse(what: str, key: Setting, reasons: Mapping[str, str | bool], remedy: str) -> None:
    """Raise for the first of the things with a reason that `what` is not defined with."""
    for beside, reason in reasons.items():
        if reason:
            raise ConfigError(f"{what} is not defined with {beside}: {reason}", remedy, key)


@dataclass(frozen=True)
class Model:
    """The requested model."""

    n_components: NComponents = None
    """A number, a share of the variance between 0 and 1, a key of RULES, or None for min(n_samples, n_features)."""
    rules: Rules = field(default_factory=Rules)
    """Preprocessing of each feature."""
    precision: Precision = "auto"
    """Precision of the matrix products; accumulators are always float64."""
    solver: Solver = "auto"
    effective_samples: float | None = None
    """Number of independent samples that the samples are worth, for sampling errors; None for their own number."""
    whiten: bool = False
    """Divide scores by the square root of their explained variance."""
    kernels: Kernels | None = None
    """Kernels of kernel PCA; None for PCA."""
    sample_weights: SampleWeights | None = None
    """Weights of the samples; None for equal ones."""
    reference: F64 | None = None
    """Samples of dosages whose means and frequencies are taken: 1, else 0, (n_samples,); None for all."""
    design: Design | None = None
    """Regressors of the samples, whose fit is subtracted from each feature; None for none."""
    unit: int = 0
    """Number of neighbouring features that an inner product has a matrix of; 0 for the usual one."""
    block_scaling: BlockScaling = "none"
    """How inputs side by side are scaled against each other."""
    n_folds: int = 0
    """Groups of features that are added up for validation beside K; 0 for none."""
    rotation: Rotating | None = None
    """How leading components are rotated; None for not at all."""
    known: KnownGram | None = None
    """Products of the first samples that an earlier run has; None for none."""
    spectrum: SpectrumKept = "auto"
    """Whether all eigenvalues are computed, or the leading ones, with a proof that none of them was missed."""
    iteration: Iteration = field(default_factory=Iteration)
    """How block Krylov is done, where it is the solver."""

    def n_known(self, rung: Rung) -> int:
        """Number of the first samples whose products a solver need not make."""
        return 0 if self.known is None else self.known.of(rung)

    def leading(self, n_kept: int, n_streamed: int) -> int | None:
        """The number of components where leading eigenvalues are enough; None where all are computed.

        Parameters
        ----------
        n_kept, n_streamed : lengths of the kept and of the streamed side
        """
        k = self.n_components
        if self.spectrum == "all" or self._needs_all or not isinstance(k, int):
            return None
        return k if self.spectrum == "leading" or krylov.pays(n_kept, n_streamed, k) else None

    @property
    def _needs_all(self) -> str:
        """Setting that needs all eigenvalues; empty for none."""
        if self.kernels:
            return MODEL.kind.at("kernel_pca")
        if self.rules.missing == "pairwise":
            return PREPROCESS.missing.at("pairwise")
        return "" if isinstance(self.n_components, int) else MODEL.n_components.at(self.n_components)

    @property
    def regression(self) -> Regression | None:
        """The projector on what its regressors explain."""
        return None if self.design is None else self.design.regression

    def most_components(self, n_samples: int, n_features: int) -> int:
        """Largest possible number of components; exact if a number is requested."""
        asked = self.n_components
        return asked if isinstance(asked, int) else self._most(n_samples, n_features)

    def _most(self, n_samples: int, n_features: int) -> int:
        return n_samples if self.kernels else min(n_samples, n_features)

    def check(self, name: str, n_samples: int, n_features: int, n_groups: int = 1) -> None:
        """Refuse a model that the data do not support.

        Parameters
        ----------
        name : name of the data in error messages
        n_groups : number of inputs side by side
        """
        most = self._most(n_samples, n_features)
        if self.kernels:
            self._check_kernels()
        if self.n_components == "mle" and n_samples <= n_features:
            raise ConfigError(
                f"n_components='mle' is only supported if n_samples >= n_features: Minka's rule is for more samples than "
                f"features, but {name} has {n_samples} samples and {n_features} features",
                "Use broken_stick, gavish_donoho, marchenko_pastur, rank, a number, or a share of the variance.",
                key="model.n_components",
            )
        if isinstance(self.n_components, int) and not 1 <= self.n_components <= most:
            raise ConfigError(
                f"n_components is {self.n_components}, but {name} has {n_samples} samples and "
                f"{n_features} features: from 1 to {'n_samples' if self.kernels else 'min(n_samples, n_features)'} = {most} "
                "is allowed",
                f"Set {MODEL.n_components} to {f'a number from 1 to {most}' if most > 1 else 1}"
                + (
                    f", or {INPUT.samples_axis} if samples lie along another axis."
                    if self.n_components > n_samples
                    else "."
                ),
                key="model.n_components",
            )
        if n_groups == 1 and self.block_scaling != "none":
            raise ConfigError(
                f"{PREPROCESS.block_scaling} is {self.block_scaling}, which scales inputs against each other, but there is one input",
                "Give several, with a name each, or leave it out.",
                key="preprocess.block_scaling",
            )
        if (n_groups > 1 or self.n_folds) and self.solver == "covariance_eigh":
            raise ConfigError(
                f"svd_solver is 'covariance_eigh', but groups of features (inputs side by side, {OUTPUT.groups}, bi_cross_validation) each "
                "have a matrix over their samples",
                f"{MODEL.svd_solver.set_to('auto')}.",
                key="model.svd_solver",
            )
        if self.solver == BLOCK_KRYLOV:
            self.check_iteration(n_samples, n_features)
        if self.spectrum == "leading" and self._needs_all:
            raise ConfigError(
                f"{OUTPUT.spectrum} is leading, but {self._needs_all} needs all eigenvalues",
                f"Leave {OUTPUT.spectrum} out, or set it to all.",
                key="output.spectrum",
            )
        if self.rules.missing == "pairwise":
            self._check_pairwise()
        if self.rules.convention is not None:
            self._check_binomial(self.rules.convention)
        elif self.rules.min_minor_allele_frequency > 0:
            raise ConfigError(
                f"min_minor_allele_frequency is {self.rules.min_minor_allele_frequency:g}, but features are not scaled as dosages of alleles",
                f"{PREPROCESS.scale.set_to({'binomial': 'plink2'})}, or leave it out.",
                key="preprocess.filters.min_minor_allele_frequency",
            )
        if self.rotation is not None:
            self._check_rotation(self.rotation, name, self.most_components(n_samples, n_features))
        if self.sample_weights is not None:
            self._check_sample_weights(self.sample_weights, name, n_samples)
        if self.design is not None:
            self._check_design(self.design)
        if self.unit:
            self._check_inner_product(n_groups)
        for setting, ddof in ((MODEL.ddof, self.rules.ddof), (PREPROCESS.scale_ddof, self.rules.ddof_of_features)):
            if not 0 <= ddof < n_samples:
                raise ConfigError(
                    f"{setting} is {ddof}, but from 0 to n_samples - 1 = {n_samples - 1} is allowed",
                    "Set it to 1 or 0.",
                    key=setting.key,
                )
        if self.solver == "tsqr" and self.precision == "single":
            raise ConfigError(
                "svd_solver is 'tsqr' and precision 'single', but TSQR is for digits that single precision does not have",
                f"{MODEL.precision.set_to('double')}, or leave it out.",
                key="model.precision",
            )

    @property
    def needs_matrix(self) -> tuple[str, str] | None:
        """Setting that needs the n x n matrix, and its key; None where block Krylov will do."""
        reasons = (
            (self.kernels is not None, MODEL.kind, "kernel_pca"),
            (self.rules.missing == "pairwise", PREPROCESS.missing, "pairwise"),
            (self.block_scaling != "none", PREPROCESS.block_scaling, self.block_scaling),
            (self.n_folds > 0, OUTPUT.groups, None),
            (not isinstance(self.n_components, int), MODEL.n_components, self.n_components),
        )
        for needed, setting, value in reasons:
            if needed:
                return str(setting) if setting.key == OUTPUT.groups.key else setting.at(value), setting.key
        return None if self.known is None else ("dpca extend", MODEL.svd_solver.key)

    def check_iteration(self, n_samples: int, n_features: int) -> None:
        """Refuse what block Krylov can't give, and settings that it can't follow."""
        settings, k = self.iteration, self.n_components
        if (needed := self.needs_matrix) is not None:
            what, key = needed
            remedy = f"{MODEL.svd_solver.set_to('auto')}, where the matrix fits the memory"
            raise ConfigError(
                f"svd_solver is block_krylov, which makes no n x n matrix, but {what} needs it",
                f"{remedy}, or {MODEL.n_components} to a number." if key == MODEL.n_components.key else f"{remedy}.",
                key=key,
            )
        assert isinstance(k, int)
        most = min(n_samples - self.rules.centered, n_features)
        if settings.block is not None and not k <= settings.block:
            raise ConfigError(
                f"{MODEL.block_krylov.block} is {settings.block}, but {k} components are asked for",
                f"Set it to {k} or more (up to {most} count), or leave it out.",
                key="model.block_krylov.block",
            )
        if settings.windows and settings.max_passes < 3:
            raise ConfigError(
                f"{MODEL.block_krylov.windows} is true, and max_passes is {settings.max_passes}, but the pass with windows is followed by two more at least",
                "Set max_passes to 3 or more, or leave windows out.",
                key="model.block_krylov.max_passes",
            )
        least = LEAST_TOLERANCE[self.precision]
        if settings.tolerance < least:
            supports = f"products in {self.precision} precision" if self.precision == "single" else "double precision"
            raise ConfigError(
                f"{MODEL.block_krylov.tolerance} is {settings.tolerance:g}, below what {supports} can support: {least:g}",
                f"Set it to {least:g} or more"
                + (f", or {MODEL.precision.at('double')}." if self.precision == "single" else "."),
                key="model.block_krylov.tolerance",
            )

    def _check_binomial(self, convention: str) -> None:
        """Refuse what is not defined for dosages that are divided by what follows from allele frequencies."""
        key, rules = PREPROCESS.scale, self.rules
        reasons = {
            PREPROCESS.center.at(False): not rules.center and "frequencies are half the means that are subtracted",
            str(PREPROCESS.sample_weights): self.sample_weights is not None and "people count alike in frequencies",
            str(PREPROCESS.regress_out): self.design is not None and "what a regression leaves are no dosages",
            str(PREPROCESS.filters.min_variance): rules.min_variance > 0
            and "min_minor_allele_frequency says the same of dosages",
            MODEL.svd_solver.at(self.solver): self.solver == "covariance_eigh" and "samples stream by there",
            PREPROCESS.missing.at("pairwise"): rules.missing == "pairwise"
            and convention != "plink2"
            and f"{convention} fills missing calls with the mean, so use {PREPROCESS.missing.at('mean')}",
        }
        _refuse(key.at({"binomial": convention}), key, reasons, "Leave one of the two out.")

    def _check_pairwise(self) -> None:
        """Refuse what is not defined for a matrix that is changed entry by entry."""
        wrong = "kernels" if self.kernels else "weights of samples" if self.sample_weights else self.solver
        if self.kernels or self.sample_weights or self.solver in ("tsqr", "covariance_eigh"):
            raise ConfigError(
                f"missing is 'pairwise', which divides the Gram matrix entry by entry, and is not defined for {wrong}",
                f"{PREPROCESS.missing.set_to('mean')}.",
                key="preprocess.missing",
            )

    def _check_design(self, design: Design) -> None:
        """Refuse a regression that leaves nothing, and what is not defined with one."""
        key, rules = PREPROCESS.regress_out, self.rules
        reasons = {
            str(PREPROCESS.sample_weights): self.sample_weights is not None and "it fits samples with equal weights",
            PREPROCESS.missing.at("pairwise"): rules.missing == "pairwise"
            and "whose products are those of each pair of samples alone",
            PREPROCESS.center.at(False): not rules.center and "the mean is among what is fitted",
            MODEL.svd_solver.at(self.solver): self.solver == "covariance_eigh"
            and "samples stream by there, and it needs all at once",
            MODEL.n_components.at(self.n_components): self.n_components in ("mle", "gavish_donoho", "marchenko_pastur")
            and "a rule for noise in as many directions as there are samples, of which a regression takes some",
        }
        _refuse(str(key), key, reasons, f"Leave one of the two out ({PREPROCESS.missing.at('mean')} is allowed).")
        groups = design.regression.groups
        if not rules.by_group:
            return
        small = [(len(own), name) for own, name in zip(groups, design.groups, strict=True)]
        n, name = min(small, default=(0, ""))
        least = max(2, rules.ddof_of_features + 1)
        if n < least:
            raise ConfigError(
                f"{key.scale} is std, but {name} has {n} sample{'s' * (n != 1)}, and {sum(one < least for one, _ in small)} of "
                f"{len(small)} groups have fewer than {least}: a sum of squares is divided by their number less {rules.ddof_of_features}",
                f"Leave samples of these groups out with {INPUT.samples}, give larger groups, or set {PREPROCESS.scale_ddof} to less.",
                key=key.scale.key,
            )

    def _check_inner_product(self, n_groups: int) -> None:
        """Refuse what is not defined with an inner product, or is not made here."""
        key, scale = PREPROCESS.inner_product, self.rules.scale
        reasons = {
            MODEL.kind.at("kernel_pca"): self.kernels is not None and "kernels are of the usual inner product here",
            PREPROCESS.scale.at(scale): self.rules.convention is not None and "variants have none",
            PREPROCESS.missing.at("pairwise"): self.rules.missing == "pairwise"
            and "whose products leave out features one by one",
            str(MODEL.rotation): self.rotation is not None
            and "it turns components that are orthonormal in the usual one",
            "several inputs or groups of features": n_groups > 1 and "it is of all features of one input",
            MODEL.svd_solver.at(self.solver): self.solver == "covariance_eigh"
            and "samples stream by there, and features are kept one by one",
        }
        _refuse(str(key), key, reasons, "Leave one of the two out.")

    def _check_rotation(self, rotation: Rotating, name: str, most: int) -> None:
        """Refuse a rotation of components that there are not, of too many, or of what are no components of an X."""
        asked, key = rotation.n_components, "model.rotation.n_components"
        pairs = PREPROCESS.missing.at("pairwise") if self.rules.missing == "pairwise" else None
        wrong = "kernels" if self.kernels else pairs
        if wrong is not None:
            raise ConfigError(
                f"{MODEL.rotation} is {rotation.kind}, which is of orthonormal components, and {wrong} has none",
                f"Leave {MODEL.rotation} out.",
                key="model.rotation",
            )
        if asked is not None and asked > most:
            raise ConfigError(
                f"{MODEL.rotation.n_components} is {asked}, but {name} has at most {most} components",
                f"Give a number from 1 to {most}, or leave it out for all.",
                key=key,
            )
        if (asked or most) > MOST_ROTATED:
            raise ConfigError(
                f"{MODEL.rotation} is of up to {asked or most} components, whose k^4 / 24 fourth moments are too many: at most "
                f"{MOST_ROTATED} can be rotated",
                f"Set {MODEL.rotation.n_components} to {MOST_ROTATED} or less.",
                key=key,
            )

    def _check_sample_weights(self, weights: SampleWeights, name: str, n_samples: int) -> None:
        """Refuse weights that are not one positive number for each sample, and what is not defined with them."""
        key = "preprocess.sample_weights"
        if weights.values.shape != (n_samples,):
            raise ConfigError(
                f"{weights.name}: holds weights of shape {weights.values.shape}, but {name} has {n_samples} samples",
                "Give a weight for each sample, in their order.",
                key=key,
            )
        wrong = ~((weights.values > 0) & (weights.values < np.inf))
        if wrong.any():
            first = int(np.argmax(wrong))
            raise ConfigError(
                f"{weights.name}: the weight of sample {first} is {weights.values[first]:g}, and {int(wrong.sum())} in all are not "
                "positive and finite",
                f"Give positive weights; leave samples out with {INPUT.samples}.",
                key=key,
            )
        ddof = max(self.rules.ddof, self.rules.ddof_of_features)
        if not weights.divisor(ddof) > 0:
            raise ConfigError(
                f"{weights.name}: the weights sum to {weights.total:g}, which leaves no divisor for variances with ddof {ddof}",
                f"{PREPROCESS.sample_weights.kind.set_to('reliability')} if only their ratios matter, or {MODEL.ddof} to 0.",
                key=key,
            )
        of_noise = self.n_components in ("mle", "gavish_donoho", "marchenko_pastur")
        if self.kernels or self.solver == "covariance_eigh" or of_noise:
            what = (
                "kernels"
                if self.kernels
                else MODEL.n_components.at(self.n_components)
                if of_noise
                else "covariance_eigh"
            )
            raise ConfigError(
                f"weights of samples are not defined for {what} here",
                f"Leave {PREPROCESS.sample_weights} out, or use a PCA with {MODEL.svd_solver.at('auto')}.",
                key=key,
            )

    def _check_kernels(self) -> None:
        """Refuse settings that are not defined for kernels."""
        if self.solver not in ("auto", "gram_eigh"):
            raise ConfigError(
                f"svd_solver is {self.solver!r}, but kernels are of the Gram matrix: auto or gram_eigh is allowed",
                f"Leave {MODEL.svd_solver} out.",
                key="model.svd_solver",
            )
        if self.n_components in ("mle", "gavish_donoho", "marchenko_pastur"):
            raise ConfigError(
                f"n_components is {self.n_components}, a rule for noise in linear PCA, which says nothing of a kernel",
                "Use a number, a share of the variance such as 0.9, rank or broken_stick.",
                key="model.n_components",
            )

    def keeps(self, n_samples: int, n_features: int, n_groups: int = 1) -> Side:
        """The side whose m x m matrix is decomposed: the smaller one, unless what is asked for determines it.

        Several groups of features have a matrix each over the samples that they share.
        """
        of_samples = (
            self.sample_weights is not None or self.design is not None or self.rules.convention is not None or self.unit
        )
        of_groups = n_groups > 1 or self.n_folds
        if of_groups or self.kernels or of_samples or self.rules.missing == "pairwise" or self.known:
            return "samples"
        if self.solver in ("gram_eigh", "covariance_eigh"):
            return "samples" if self.solver == "gram_eigh" else "features"
        return "features" if n_features < n_samples else "samples"

    def ladder(self, dtype: np.dtype[Any], keeps: Side) -> tuple[Rung, ...]:
        """Solvers to try in turn, until one supports every requested component.

        "auto" begins with the Gram matrix (the covariance, if features are fewer) in the precision of the data,
        continues in double unless `precision` says otherwise, then with TSQR, which costs 3 to 4 times as much
        and does not square the condition number.

        Parameters
        ----------
        dtype : dtype of the data as stored
        keeps : result of `Model.keeps`
        """
        if self.solver == BLOCK_KRYLOV:
            return self.iterated(dtype)
        ladder = self._ladder(dtype, keeps)
        if self.known is None:
            return ladder
        # What the earlier run tried before has failed for fewer samples; what follows makes all products.
        rung = self.known.rung
        return (rung, *(ladder[ladder.index(rung) + 1 :] if rung in ladder else ladder))

    def iterated(self, dtype: np.dtype[Any]) -> tuple[Rung, ...]:
        """The precision of block Krylov's passes, and that of its last one, where errors of the others count."""
        working, double = working_dtype(dtype, self.precision), np.dtype(np.float64)
        later = [Rung(BLOCK_KRYLOV, double)] if working != double and self.precision == "auto" else []
        return (Rung(BLOCK_KRYLOV, working), *later)

    def _ladder(self, dtype: np.dtype[Any], keeps: Side) -> tuple[Rung, ...]:
        working = working_dtype(dtype, self.precision)
        double = np.dtype(np.float64)
        squaring = "gram_eigh" if keeps == "samples" else "covariance_eigh"
        if self.solver == "tsqr":
            return (Rung("tsqr", double),)
        if self.solver != "auto" or self.precision == "single":
            return (Rung(squaring, working),)
        return (
            *([Rung(squaring, working)] if working != double else []),
            Rung(squaring, double),
            # Kernels, and counts of pairs, need the matrix that TSQR avoids.
            *([] if self.kernels or self.rules.missing == "pairwise" else [Rung("tsqr", double)]),
        )

    def reason(
        self, dtype: np.dtype[Any], n_samples: int, n_features: int, n_groups: int = 1, *, iterates: Side | None = None
    ) -> str:
        """The reason for the choice of the first solver, in words; `iterates` is the side that block Krylov keeps, if it is that."""
        keeps = iterates or self.keeps(n_samples, n_features, n_groups)
        if iterates:
            m = n_samples if keeps == "samples" else n_features
            first = self.iterated(dtype)[0]
            columns = self.iteration.columns(int(self.n_components or 1), m)
            why = "as asked for" if self.solver == BLOCK_KRYLOV else "since that matrix does not fit the memory"
            precision = "single" if first.dtype == np.float32 else "double"
            return (
                f"{first.name}: products of the {m:,} x {m:,} matrix over {keeps} with blocks of {columns} vectors, {why}; "
                f"{precision} precision"
            )
        first = self.ladder(dtype, keeps)[0]
        m = n_samples if keeps == "samples" else n_features
        other = f"{n_features:,} features" if keeps == "samples" else f"{n_samples:,} samples"
        side = f"{m:,} x {m:,}, the smaller side of {n_samples:,} samples x {n_features:,} features"
        if self.solver != "auto":
            side = f"{m:,} x {m:,} summed over {other}, as asked for"
        if self.known is not None:
            n_new = n_samples - self.known.n_samples
            side = (
                f"{m:,} x {n_new:,} summed over {other}, beside the {self.known.n_samples:,} x {self.known.n_samples:,} that is "
                "known"
            )
        elif self.kernels:
            side = f"{m:,} x {m:,} summed over {other}, as kernels need it"
        elif self.rules.convention is not None:
            side = f"{m:,} x {m:,} summed over {other}, each scaled by its allele frequency"
        elif self.design is not None:
            side = f"{m:,} x {m:,} summed over {other}, as preprocess.regress_out needs it"
        elif self.unit:
            side = f"{m:,} x {m:,} summed over {other}, as preprocess.inner_product needs it"
        elif n_groups > 1:
            side = f"{m:,} x {m:,} summed over {other} in {n_groups} groups"
        elif self.n_folds:
            side = f"{m:,} x {m:,} summed over {other} in {self.n_folds} groups for validation"
        precision = "single" if first.dtype == np.float32 else "double"
        why = f"the rule for {dtype} data" if self.precision == "auto" else "as asked for"
        if self.known is not None:
            why = "that of the products that are known"
        if first.solver == "tsqr":
            why = "which it always takes"
        return f"{first.name}: {side}; {precision} precision, {why}"
