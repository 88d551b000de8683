"""The configuration: all its keys, as frozen models.

`Config` is the reference of the keys; `dpca schema` prints it as JSON Schema. `dpca.config.loading` reads YAML into it.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from dpca.config.compute import Compute
from dpca.config.inputs import (
    ArrayFile,
    Covariates,
    InnerProductFile,
    Input,
    Inputs,
    Label,
    LabelsFile,
    Local,
    Mask,
    Names,
    Range,
    Section,
    Text,
    Weights,
)
from dpca.config.rotation import Rotation
from dpca.numerics.block_krylov import Iteration
from dpca.numerics.dimension import Rule
from dpca.numerics.panels import BlockScaling, Convention, Missing, Spread
from dpca.sources.regressors import Cycle

AUTO: Literal["auto"] = "auto"
DEFAULT_COMPONENTS = 20
N_FOLDS = 8
"""Groups of features for bi-cross-validation, where no number is asked for."""


class SampleWeightsFile(ArrayFile):
    """A weight for each sample."""

    kind: Annotated[
        Literal["frequency", "reliability"],
        Field(
            description="frequency: a sample of weight 2 counts as two equal samples; variances are divided by sum(w) - ddof. "
            "reliability: only ratios of weights matter; variances are divided by sum(w) - ddof sum(w^2) / sum(w)."
        ),
    ] = "frequency"


FOUNDERS = "founders"
"""The people of a .fam whose parents are both 0."""


class Binomial(Section):
    """The scale of dosages (0 to 2 copies of an allele), by the allele's frequency."""

    binomial: Annotated[
        Convention,
        Field(
            description="As which program: plink2 divides by sqrt(2p(1-p)), as GCTA does (with missing: pairwise, as both do); snprelate by "
            "sqrt(p(1-p)), smartpca by sqrt(q(1-q)) with q = (1 + copies) / (2 + 2 people), as it does with altnormstyle: NO (its default is "
            "snprelate's), both with missing: mean. p is half the mean of the present values. convention_eigenvalues of the result are scaled as "
            "the program prints them. Where chromosomes are known, those that the program leaves out are, unless filters.chromosomes says otherwise."
        ),
    ]
    reference: Annotated[
        Text | list[int | Label] | Range | None,
        Field(
            description="The samples whose means and frequencies are used, written as in input.samples. founders: people without "
            "parents in the .fam, as plink2 does. null: all. Scores of all people are then about the mean of these samples."
        ),
    ] = None


class Filters(Section):
    """Features that are left out. They are counted, and are NaN in the result."""

    min_variance: Annotated[float, Field(ge=0, description="Least variance of a feature, before scaling.")] = 0.0
    max_missing: Annotated[
        float,
        Field(
            ge=0, le=1, description="Largest share of missing values; a feature without any value is left out anyway."
        ),
    ] = 1.0
    mask: Annotated[
        Mask | None,
        Field(
            description="An array that broadcasts to the feature axes. A feature is used where it is true, or not 0 (with invert: true,"
            " where it is false). Values of other features are ignored, so they may be missing."
        ),
    ] = None
    min_minor_allele_frequency: Annotated[
        float,
        Field(
            ge=0,
            le=0.5,
            description="Least frequency of the rarer allele, with scale: {binomial: ...}. Variants of which all have the same genotype, 0 or 2, are "
            "left out anyway.",
        ),
    ] = 0.0
    chromosomes: Annotated[
        Literal["autosomes", "all"] | Annotated[list[int | Text], Field(min_length=1)] | None,
        Field(
            description="Of variants: a list of names of chromosomes, with or without chr; autosomes: those whose name is a number up to 22; all; "
            "null: all, but with scale: {binomial: ...} without X, Y and MT (of people 23, 24 and 26, too), as the programs; smartpca and snprelate also without XY, 25, "
            "PAR1, PAR2 and 0."
        ),
    ] = None
    variants: Annotated[
        Local | Annotated[list[Text], Field(min_length=1)] | None,
        Field(
            description="Ids of the variants that are used: a list, or a file with one a line, as .prune.in of plink; null: all."
        ),
    ] = None
    exclude: Annotated[
        Local | Annotated[list[Text], Field(min_length=1)] | None,
        Field(
            description="Variants that are left out: a list of ids, of regions, such as 6:25000000-35000000, both ends included, and of long_range_ld_grch37 or "
            "long_range_ld_grch38, the regions of long-range linkage disequilibrium in these coordinates; or a file with one a line, or with "
            "the columns chromosome, begin, end, as plink's --exclude range reads. null: none.",
            examples=[["long_range_ld_grch37"]],
        ),
    ] = None
    min_distance: Annotated[
        Annotated[int, Field(ge=1)] | None,
        Field(
            description="Smallest distance in base pairs from the previous variant that is used. Closer ones are left out, before "
            "filters by frequency and missing calls. null: no limit."
        ),
    ] = None


class RegressOut(Section):
    """Regressors that are fitted to each feature by least squares, together with its mean, and subtracted."""

    seasonal_cycle: Annotated[
        Cycle | None,
        Field(
            description="The mean of each season (DJF, MAM, JJA, SON), month, day_of_year (29 February is a day of its own) or hour. "
            "Samples need dates: a coordinate with units of time, or names such as 1999-02-28."
        ),
    ] = None
    trend: Annotated[
        Annotated[int, Field(ge=1)] | None,
        Field(description="Degree of a polynomial in the samples' coordinate, dates or numbers: 1 for a line."),
    ] = None
    covariates: Annotated[
        Covariates | None,
        Field(
            description="Numbers and categories of the samples: a table {uri, columns, categorical, key}, or an array {uri, array}."
        ),
    ] = None
    by: Annotated[
        Text | LabelsFile | None,
        Field(
            description="Groups of samples, such as runs, sessions or sites, in each of which the mean and all of these are fitted alone; without "
            "any of these, the mean of each group is subtracted. The name of a coordinate along the samples that is no index, such as run, "
            "member or subject; or a label for each sample: {uri, array, column, key}.",
            examples=["run"],
        ),
    ] = None
    scale: Annotated[
        Literal["std"] | None,
        Field(
            description="What is left of each feature is then divided by its standard deviation in each group of `by`, or, without it, of "
            "seasonal_cycle: z-scores of each run, standardized anomalies of each month. Of n values it is the root of a sum of squares / (n - "
            "preprocess.scale_ddof). A feature that is constant in a group is 0 there, and not divided. null: no division."
        ),
    ] = None


class Preprocess(Section):
    """Preprocessing of each feature."""

    center: Annotated[
        bool,
        Field(
            description="Subtract the mean of each feature. The default is false for kernel_pca without regress_out, which centres the "
            "kernel matrix. Only the kernels poly, sigmoid and cosine depend on it."
        ),
    ] = True
    regress_out: Annotated[
        RegressOut | None,
        Field(
            description="What is fitted to each feature and subtracted before scaling: any of {seasonal_cycle, trend, covariates}, in each group of samples of `by`. "
            "scale: std then divides by the standard deviation of the anomalies. A missing value is replaced by the fit to "
            "the others. Variances are still divided by n - ddof; a note of the result gives the number of parameters of "
            "the fit, for model.ddof."
        ),
    ] = None
    scale: Annotated[
        Spread | Binomial,
        Field(
            description="What each feature is divided by. std: its standard deviation (of the values that are present). pareto: the "
            "square root of that. range: the largest value minus the smallest. none: 1. {binomial: plink2, smartpca or "
            "snprelate}: for genotypes. A constant feature is not divided."
        ),
    ] = "none"
    scale_ddof: Annotated[
        Annotated[int, Field(ge=0)] | None,
        Field(
            description="The variance of a feature, which scale and filters.min_variance go by, is a sum of squares / (n - scale_ddof): 0 as "
            "StandardScaler of scikit-learn and xeofs' standardize, 1 as scanpy's scale. null: model.ddof."
        ),
    ] = None
    weights: Annotated[
        Weights,
        Field(
            description="What each feature is multiplied by, after scaling. sqrt_cos_lat: the square root of the cosine of the "
            "latitude, so that cells count by their area. Or an array {uri, array} that broadcasts to the feature axes."
        ),
    ] = None
    inner_product: Annotated[
        InnerProductFile | None,
        Field(
            description="The inner product of features, x' M x, after scaling and weights: symmetric positive definite matrices {uri, array} of k neighbours along"
            " the last axis of features each, such as the mass matrices of elements of a mesh. Components are orthonormal in it."
        ),
    ] = None
    sample_weights: Annotated[
        SampleWeightsFile | None,
        Field(description="A positive weight for each sample in storage: {uri, array, kind}."),
    ] = None
    missing: Annotated[
        Missing,
        Field(
            description="What to do with missing values. error: refuse them. mean: replace them by the mean of the feature. drop: leave"
            " out features that have one. land: leave out features without any value, and refuse other missing values, as eofs and xeofs do. "
            "pairwise: use only features that both samples have. Features without any value are left out, except with error."
        ),
    ] = "error"
    filters: Annotated[Filters, Field(description="Features that are left out.")] = Filters()
    block_scaling: Annotated[
        BlockScaling,
        Field(
            description="How the inputs of a list are scaled against each other, without another read. first_eigenvalue: each is "
            "divided by the standard deviation of its own first component (multiple factor analysis). total_variance: by "
            "the square root of its total variance. none: not at all."
        ),
    ] = "none"


Kernel = Literal["linear", "poly", "rbf", "sigmoid", "cosine", "precomputed"]
Gamma = Annotated[float, Field(ge=0)] | Literal["median"] | None
Degree = Annotated[float, Field(ge=0)]
_SWEEP = Field(min_length=1)


class BlockKrylov(Section):
    """Settings of `svd_solver: block_krylov`."""

    block: Annotated[
        int | None,
        Field(
            ge=1,
            description="Number of vectors that each read multiplies with. null: n_components and twice as many more, at least 20 and "
            "at most 40 more. With more vectors fewer reads are needed.",
        ),
    ] = None
    max_passes: Annotated[
        int,
        Field(
            ge=2,
            description="Largest number of reads of the data, with the read for components. With fewer features than samples, means and"
            " scales may take one more. A result that has not converged by then is kept, with exit code 1; --resume with a "
            "larger number continues.",
        ),
    ] = 12
    tolerance: Annotated[
        float,
        Field(
            gt=0,
            lt=1,
            description="A component has converged if the relative error of its eigenvalue is certainly at most this.",
        ),
    ] = 1e-6
    windows: Annotated[
        bool,
        Field(
            description="The first read goes over parts of the data in a random order, and improves its vectors after 1, 2, 4, ... "
            "parts. This saves a read where neighbouring features are alike, as in a field.",
        ),
    ] = False
    restart: Annotated[
        bool,
        Field(
            description="Two more reads with an independent random block. They measure whether a component was missed."
        ),
    ] = False

    @property
    def asked(self) -> Iteration:
        """The settings as the solver takes them."""
        return Iteration(**self.model_dump())


class ModelSection(Section):
    """The model that is computed."""

    kind: Annotated[
        Literal["pca", "kernel_pca"], Field(description="pca: principal component analysis; kernel_pca: kernel PCA.")
    ] = "pca"
    n_components: Annotated[
        Annotated[int, Field(ge=1)] | Annotated[float, Field(gt=0, lt=1)] | Rule | Literal["auto"] | None,
        Field(
            description="Number of components. An integer; a share of the variance such as 0.9; a rule from the spectrum (rank, broken_stick, "
            "gavish_donoho, marchenko_pastur, mle); or bi_cross_validation, which compares groups of features and does not assume white noise. "
            f"auto: {DEFAULT_COMPONENTS}, or min(n, d) if that is less. null: min(n, d), all of them."
        ),
    ] = AUTO
    svd_solver: Annotated[
        Literal["auto", "gram_eigh", "covariance_eigh", "tsqr", "block_krylov"],
        Field(
            description="gram_eigh: eigendecomposition of the n x n Gram matrix; covariance_eigh: of the d x d covariance; "
            "tsqr: QR of the data, 3 to 4 times the time, for singular values below 1.5e-8 of the largest; block_krylov: no matrix, but "
            "several reads, for more than some 20,000 samples and features; auto: the smaller of the two matrices, then double precision and "
            "tsqr if the components need them; block_krylov where no matrix fits the memory and n_components is a number."
        ),
    ] = "auto"
    block_krylov: Annotated[
        BlockKrylov, Field(description="Settings of block_krylov. The defaults suit most data.")
    ] = BlockKrylov()
    precision: Annotated[
        Literal["auto", "single", "double"],
        Field(
            description="Precision of the matrix products. auto is single for bool, float16, float32 and integers of up to "
            "16 bits, else double. Accumulators are always float64."
        ),
    ] = "auto"
    ddof: Annotated[int, Field(ge=0, description="Explained variance is sigma^2 / (n - ddof).")] = 1
    effective_samples: Annotated[
        float | None,
        Field(
            gt=0,
            description="Number of independent samples, for sampling errors (North's rule), if samples are correlated. null: the number"
            " of samples.",
        ),
    ] = None
    whiten: Annotated[bool, Field(description="Divide scores by the square root of their explained variance.")] = False
    rotation: Annotated[
        Rotation | None,
        Field(
            description="Rotated components beside the components: {kind: varimax, promax, fastica or jade}. No data are read for them."
        ),
    ] = None
    kernel: Annotated[
        Kernel | Annotated[list[Kernel], _SWEEP],
        Field(
            description="For kernel_pca: linear, poly, rbf, sigmoid, cosine; precomputed if the input is the kernel "
            "matrix. Lists for kernel, gamma, degree or coef0 make a sweep: every combination, from one Gram matrix."
        ),
    ] = "linear"
    gamma: Annotated[
        Gamma | Annotated[list[Gamma], _SWEEP],
        Field(
            description="For poly, rbf and sigmoid. null: 1 / n_features; median: 1 / the median squared distance between samples."
        ),
    ] = None
    degree: Annotated[Degree | Annotated[list[Degree], _SWEEP], Field(description="For poly.")] = 3.0
    coef0: Annotated[float | Annotated[list[float], _SWEEP], Field(description="For poly and sigmoid.")] = 1.0
    fit_inverse_transform: Annotated[
        bool | Literal["fixed_point"],
        Field(
            description="For dpca reconstruct after kernel_pca. true: find samples by kernel ridge regression, as scikit-learn "
            "does; fixed_point, for rbf: find the samples whose images are nearest. The linear kernel needs neither."
        ),
    ] = False
    alpha: Annotated[float, Field(ge=0, description="Ridge parameter of that regression.")] = 1.0
    labels: Annotated[
        LabelsFile | None,
        Field(
            description="A label for each sample. It is kept in the result and colours the report. For kernel_pca the result says how "
            "often the nearest neighbour of a sample has the same label."
        ),
    ] = None


_LIMITS = Field(min_length=2, max_length=2)


class FeatureGroups(Section):
    """Groups of features, each with a Gram matrix of its own, from the same read: named groups, by labels or ranges, and groups for validation."""

    labels: Annotated[
        Names | None,
        Field(
            description="A label for each feature, or for each along one feature axis, in the order of the array: chromosomes, regions, "
            "layers."
        ),
    ] = None
    ranges: Annotated[
        Annotated[dict[str, Annotated[list[Annotated[int, Field(ge=0)]], _LIMITS]], Field(min_length=2)] | None,
        Field(
            description="Instead of labels {NAME: [first, one behind the last]}, numbers along a feature axis; together they cover it."
        ),
    ] = None
    by: Annotated[
        Literal["chromosome"] | None,
        Field(description="Instead of labels, of genotypes: a group for each chromosome."),
    ] = None
    axis: Annotated[
        int | Text | None,
        Field(
            description="The feature axis that labels or ranges are along: its number or name. null: the only feature axis, or the one "
            "that has as many entries as there are labels."
        ),
    ] = None
    validation: Annotated[
        Annotated[int, Field(ge=2, le=64)] | None,
        Field(
            description="Number of groups of features for n_components: bi_cross_validation, "
            f"whose default is {N_FOLDS}. 8 to 16 are enough.",
        ),
    ] = None

    @property
    def named(self) -> bool:
        """Whether there are named groups."""
        return any(one is not None for one in (self.labels, self.ranges, self.by))


class Output(Section):
    """Where the result goes."""

    path: Annotated[Local, Field(description="Directory of the result; must not hold one already, unless --overwrite.")]
    components: Annotated[bool, Field(description="false: only scores and spectrum, in one read of the data.")] = True
    gram: Annotated[bool, Field(description="Keep the n x n Gram matrix in the result, for dpca derive.")] = True
    groups: Annotated[
        FeatureGroups | Annotated[int, Field(ge=2, le=64)] | None,
        Field(
            description="Gram matrices of groups of features, without another read: {labels: {uri, array, column}}, {ranges: {NAME: "
            "[start, stop]}}, {validation: 8}, or labels and validation. A number is the number of groups for validation. "
            "Inputs of a list are always groups. Each group takes memory for one more n x n matrix."
        ),
    ] = None
    spectrum: Annotated[
        Literal["auto", "all", "leading"],
        Field(
            description="all: every eigenvalue. leading: only the largest ones, with a proof that none was missed; rules for the number"
            " of components need all. auto: leading if n_components is a number and all eigenvalues would take long (from "
            "3000 samples on, with fewer than 200 features for each sample)."
        ),
    ] = "auto"
    report: Annotated[bool, Field(description="Write report.html, if jinja2 and bokeh are installed.")] = True


class Config(Section):
    """A run of dpca."""

    command = "run"

    input: Inputs
    preprocess: Preprocess = Preprocess()
    model: ModelSection = ModelSection()
    compute: Compute = Compute()
    output: Output

    @property
    def inputs(self) -> list[Input]:
        """The inputs, one or more."""
        return self.input if isinstance(self.input, list) else [self.input]

    @model_validator(mode="before")
    @classmethod
    def _kernels_centre_for_themselves(cls, values: Any) -> Any:
        """Set center to false for kernel PCA, unless it is given: scikit-learn's kernels take samples uncentred."""
        model = values.get("model") if isinstance(values, dict) else None
        preprocess = values.get("preprocess", {}) if isinstance(values, dict) else None
        if isinstance(preprocess, dict) and preprocess.get("regress_out") is not None:
            return values  # what is left is about its mean
        if isinstance(model, dict) and model.get("kind") == "kernel_pca" and isinstance(preprocess, dict):
            return {**values, "preprocess": {"center": False, **preprocess}}
        return values


def schema() -> dict[str, Any]:
    """JSON Schema of the configuration, for editors."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Config.model_json_schema()}


OF_LISTS = ("name", "weights", "mask")
"""Keys of an input that are for the inputs of a list: what one input has of these stands under preprocess."""

OF_PLACE = ("uri", "array", "samples_axis", "samples", "gaps", "library", "storage_options", "read_seconds")
"""Keys of an input that say where data are and how they are read; its fingerprint tells which they are, and which samples were chosen."""

OF_PASSES = ("block_krylov.max_passes", "block_krylov.tolerance", "block_krylov.restart")
"""Keys of the model that say when an iteration ends: a run may go on with others."""
OF_KERNELS = ("kernel", "gamma", "degree", "coef0", "fit_inverse_transform", "alpha", "labels")
"""Keys of the model that only matter after the Gram matrix: a resumed run may change them."""
