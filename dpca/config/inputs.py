"""The section `input` of a configuration: where data are, and which of them."""

from __future__ import annotations

from datetime import date
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from dpca.errors import InputError
from dpca.genotypes.dosages import Multiallelic
from dpca.genotypes.tables import with_variants
from dpca.settings import INPUT
from dpca.sources import Source, expanded, open_joined, open_source
from dpca.sources.base import READ_SECONDS
from dpca.sources.joined_coordinates import Gaps
from dpca.units import NAME, PLAIN, is_url

if TYPE_CHECKING:
    from dpca.sources.labels import Place


class Section(BaseModel):
    """Keys of a configuration."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)
    command: ClassVar[str] = ""
    """The command that a whole configuration is of."""


Text = Annotated[str, Field(min_length=1, pattern=PLAIN)]
"""Paths, URLs and other text that may be written into a script."""


def _local(given: str) -> str:
    """Refuse a URL, and do not show it: it may hold a password."""
    if is_url(given):
        raise ValueError("is a URL, where only a path on this machine can be")
    return given


Local = Annotated[Text, AfterValidator(_local)]
"""The path of a file or a folder that no URL can be."""


def _found(given: str | list[str]) -> str | list[str]:
    """The paths that match, in place of patterns: these are the input that a result records."""
    uris = expanded(given)
    return uris if len(uris) > 1 else uris[0]


Label = Annotated[Text, BeforeValidator(lambda given: given.isoformat() if isinstance(given, date) else given)]
"""A value of a coordinate as text; YAML reads a day without quotes as a date."""


Part = (
    Literal["year", "season", "month", "year_month", "day_of_year", "day", "hour"]
    | Annotated[Text, Field(examples=["time.month"])]
)
"""Part of the dates of samples, alone or after the name of their axis; or the name of a coordinate of samples."""


class Range(Section):
    """A range of numbers, counted from 0."""

    start: Annotated[int | None, Field(ge=0, description="The first; null for 0.")] = None
    stop: Annotated[int | None, Field(ge=0, description="The first that is left out; null to go to the end.")] = None
    step: Annotated[int | None, Field(ge=1, description="How far apart; null for 1.")] = None


class Names(Section):
    """A name for each, in the order of the array."""

    uri: Annotated[
        Text,
        Field(description="Zarr, HDF5, .npy, a text file with one a line, or a table: .csv or .tsv with a header."),
    ]
    array: Annotated[str | None, Field(description="Path of the array inside the container.")] = None
    column: Annotated[Text | None, Field(description="Name of the column of a table.")] = None

    def at(self, key: str) -> Place:
        """Their place, for what reads them; `key` is that of this section."""
        from dpca.sources.labels import Place

        return Place(self.uri, self.array, self.column, key)


class SampleNames(Names):
    """A name or a date for each sample, in the order of the array; of several files, in their order."""

    uri: Annotated[  # type: ignore[assignment]
        Text | Annotated[list[Text], Field(min_length=1)],
        Field(
            description="Zarr, HDF5, netCDF, .npy, a text file with one a line, or a table: .csv or .tsv with a header; or a list of them. "
            "Numbers with units of time are dates."
        ),
    ]

    def each(self, key: str) -> list[Place]:
        """The place in each file, as `at` of one."""
        uris = [self.uri] if isinstance(self.uri, str) else self.uri
        return [Names(uri=uri, array=self.array, column=self.column).at(key) for uri in uris]


class Features(Section):
    """The features that are read."""

    column: Annotated[
        Text,
        Field(
            description="A boolean column of AnnData's table of features, such as highly_variable: those are read for which it is true."
        ),
    ]


class ArrayFile(Section):
    """An array beside the data."""

    uri: Annotated[Text, Field(description="Zarr, HDF5, .npy, or an image of NIfTI.")]
    array: Annotated[str | None, Field(description="Path of the array inside the container.")] = None

    def open(self) -> Source:
        """The source of the array."""
        from dpca.sources import list_arrays, open_source

        held = [] if self.array else list_arrays(self.uri)
        if len(held) > 1 and all(len(one["shape"]) == 1 for one in held):
            raise InputError(
                f"{self.uri}: holds {', '.join(one['path'] for one in held)}, and which of them is not said",
                "Name it: {uri: ..., array: ...}.",
            )
        array = held[0]["path"] if len(held) == 1 else self.array
        return open_source(self.uri, array).only


class Mask(ArrayFile):
    """Which features are used, or which are not."""

    invert: Annotated[
        bool,
        Field(description="Leave out the features where the mask is true, as for variant_mask of a VCF Zarr."),
    ] = False


Weights = Literal["sqrt_cos_lat"] | ArrayFile | None


class InnerProductFile(ArrayFile):
    """Matrices of neighbouring features."""

    uri: Annotated[
        Text, Field(description="Zarr, HDF5 or .npy, (..., k, k); or .npz of scipy.sparse, (d, d), of equal blocks.")
    ]

    def read(self) -> Any:
        """The source of the array, or the sparse matrix."""
        if not self.uri.endswith(".npz"):
            return self.open()
        from dpca.sources.inner_products import sparse_of

        return sparse_of(self.uri)

    def fingerprint(self) -> dict[str, Any]:
        """Fingerprint of its values."""
        if not self.uri.endswith(".npz"):
            return self.open().fingerprint()
        from dpca.sources.file import fingerprint_of_bytes

        return fingerprint_of_bytes(self.uri, "preprocess.inner_product")


RowKey = Annotated[
    Text | None,
    Field(
        description="Name of the column with the samples' names, by which each sample finds its row. null: rows are in the order of"
        " the samples."
    ),
]


class Covariates(ArrayFile):
    """Numbers and categories of the samples, with one row for each sample in storage."""

    uri: Annotated[
        Text, Field(description="A table, .csv or .tsv with a header; or Zarr, HDF5 or .npy, (n,) or (n, q).")
    ]
    columns: Annotated[
        Annotated[list[Text], Field(min_length=1)] | None,
        Field(
            description="Names of the columns of a table. A column is numeric if all its values are numbers; else it has categories. "
            "null for an array."
        ),
    ] = None
    categorical: Annotated[
        list[Text] | None,
        Field(
            description="Columns that are categories although their values are numbers, such as batches. New samples must have "
            "categories of the fit."
        ),
    ] = None
    key: RowKey = None


class LabelsFile(Names):
    """A label for each sample in storage."""

    key: RowKey = None


class Input(Section):
    """Where the data are: one mapping of these keys, or a list of them.

    The inputs of a list have the same samples, and their features side by side, such as the variables of a model: one input
    is a group of features.
    """

    name: Annotated[
        Annotated[str, Field(pattern=f"^{NAME.pattern}$")] | None,
        Field(
            description="The name of this input in a list: letters, digits, - and _. Its arrays are called components_NAME and so on. "
            "Its feature axes are called NAME_axis, unless all inputs with that axis share it."
        ),
    ] = None
    uri: Annotated[
        Text | Annotated[list[Text], Field(min_length=1)],
        AfterValidator(_found),
        Field(
            description="Zarr, HDF5, netCDF, .npy, AnnData, .h5 of 10x, a VCF Zarr, .bed or .pgen of PLINK, NIfTI, pictures (PNG, JPEG, TIFF), .csv, .tsv or Parquet: a path, or "
            "any URL that zarr opens. Files that follow each other along the samples, "
            "such as one a year, are joined: a list of them, a folder of pictures or of images, or a pattern, data/sst_*.nc, whose files are sorted by name, as text "
            "(sst_10 is before sst_9)."
        ),
    ]
    array: Annotated[
        str | None,
        Field(
            description="Path of the array inside the file. It may be left out if only one array has two axes or more; bounds and "
            "coordinates do not count. Of AnnData the default is X."
        ),
    ] = None
    engine: Annotated[
        Text | None,
        Field(
            description="The engine of xarray that opens the file, such as cfgrib (GRIB), rasterio (GeoTIFF) or kerchunk (references); or icechunk, "
            "for a repository at a path or s3://. null: the formats that dpca reads itself.",
            examples=["cfgrib"],
        ),
    ] = None
    engine_options: Annotated[
        dict[str, Any],
        Field(
            description="Options of the engine: xarray's backend_kwargs, such as {filter_by_keys: {shortName: t}} of cfgrib. Of icechunk one of "
            "branch, tag and snapshot; the branch main if none is named. Part of the record, so no place for passwords."
        ),
    ] = {}
    samples_axis: Annotated[
        int | str | Annotated[list[int | Text], Field(min_length=1)],
        AfterValidator(lambda given: given[0] if isinstance(given, list) and len(given) == 1 else given),
        Field(
            description="The axis of samples: a number or a dimension's name; or a list of these, where samples lie along several, as in "
            "[time, member]; the last of them changes fastest from sample to sample, and files of a list are joined along the first. All other "
            "axes are feature axes.",
            examples=[["time", "member"]],
        ),
    ] = 0
    gaps: Annotated[
        Gaps,
        Field(
            description="Times have to increase from file to file. error: the step between two files is at most 1.5 times the largest "
            "step within files, so that no time is missing. allow: it may be larger."
        ),
    ] = "error"
    members: Annotated[
        bool,
        Field(
            description="Whether the files of `uri` are members of an ensemble, with the same times. The samples of one file follow "
            "those of the file before. The coordinate `member` names the file of each sample, and dpca derive can group by "
            "it."
        ),
    ] = False
    samples: Annotated[
        Text | list[int | Label] | Range | None,
        Field(
            description="Which samples, in this order. A list of numbers from 0 or of labels; a range such as {start: 0, stop: 100, "
            "step: 2}; or a file of integers, of a mask, or of text, one a line. Labels are values of the coordinate as "
            "text; a date may be shortened, such as 2001-01. null: all."
        ),
    ] = None
    sample_names: Annotated[
        SampleNames | None,
        Field(
            description="Names of all samples in storage, from a separate file. They replace the names that the input has."
        ),
    ] = None
    feature_names: Annotated[
        Names | None, Field(description="Names of the features, if these have one axis, from a separate file.")
    ] = None
    feature_shape: Annotated[
        Annotated[list[Annotated[int, Field(ge=1)]], Field(min_length=2)] | None,
        Field(
            description="Shape of the features of a sample that are stored flattened, in C order. Example: [112, 92] for images."
        ),
    ] = None
    features: Annotated[
        Features | None,
        Field(
            description="The features that are read, of a matrix of AnnData: {column: NAME}, a boolean column of its table of them, such as "
            "highly_variable. null: all."
        ),
    ] = None
    variants: Annotated[
        Local | None,
        Field(
            description="Of dosages in an array of their own: a .bim, or a table (.csv or .tsv) with the columns id, chromosome, position, "
            "counted and other (alleles), a row for each feature. A .bed and a VCF Zarr have their own."
        ),
    ] = None
    multiallelic: Annotated[
        Multiallelic,
        Field(
            description="Of a VCF Zarr, variants of more than two alleles. error: refuse calls of a third one where a variant is used; leave_out: "
            "without dosages; count: dosages of all alleles but the first together."
        ),
    ] = "error"
    absent_chunks: Annotated[
        Literal["fill", "error"],
        Field(
            description="Chunks that were never written. fill: read them as the fill value, count and report them; error: refuse them."
        ),
    ] = "fill"
    missing_values: Annotated[
        list[float],
        Field(
            description="Stored values that mark a missing value, besides NaN and those that the file itself declares: its _FillValue, "
            "missing_value, and values outside its valid_range, valid_min and valid_max."
        ),
    ] = []
    read_seconds: Annotated[
        float,
        Field(gt=0, description="The run ends if nothing was read for so many seconds."),
    ] = READ_SECONDS
    weights: Annotated[
        Weights, Field(description="In a list: weights of these features, instead of preprocess.weights.")
    ] = None
    mask: Annotated[
        Mask | None,
        Field(description="In a list: the mask of these features, instead of preprocess.filters.mask."),
    ] = None
    covariates: Annotated[
        Covariates | None,
        Field(
            description="Only for new samples, in the YAML file for dpca transform: their covariates, in the columns of "
            "preprocess.regress_out.covariates of the fit."
        ),
    ] = None
    by: Annotated[
        LabelsFile | None,
        Field(
            description="Only for new samples, in the YAML file for dpca transform: labels of the groups that preprocess.regress_out.by of the fit "
            "is of, instead of a coordinate."
        ),
    ] = None
    library: Annotated[
        Literal["fsspec", "obstore"],
        Field(description="Library that opens a URL: fsspec for many protocols, obstore for fewer, but faster."),
    ] = "fsspec"
    storage_options: Annotated[
        dict[str, Any],
        Field(
            description="Options for a URL: those of fsspec's file system, or of obstore's from_url; never written to a result."
        ),
    ] = {}

    @model_validator(mode="before")
    @classmethod
    def _axis_beside_folded_ones(cls, values: Any) -> Any:
        """Count the samples axis of two from the end that is not folded, where the other one becomes several."""
        if isinstance(values, dict) and values.get("feature_shape") is not None:
            axis = values.get("samples_axis", 0)
            counted = {1: -1, -2: 0}.get(axis, axis) if isinstance(axis, int) else axis
            return {**values, "samples_axis": counted}
        return values

    def open(self) -> Source:
        """The source of the array, with the samples, names and features as they are asked for."""
        from dpca.sources.views import viewed

        opened = partial(
            open_source,
            array=self.array,
            absent_chunks=self.absent_chunks,
            storage_options=self.storage_options,
            missing_values=self.missing_values,
            read_seconds=self.read_seconds,
            library=self.library,
            column=None if self.features is None else self.features.column,
            of_format={"multiallelic": self.multiallelic},
            engine=self.engine,
            engine_options=self.engine_options,
        )
        source = open_joined(self.uris, self.samples_axis, self.gaps, self.members, opened)
        if self.features is not None and self.samples_axis in (1, -1, source.layout.dims[1]):
            raise InputError(
                f"{source.layout.name}: samples lie along axis 1, of which {INPUT.features} chooses some",
                f"Leave {INPUT.features} out, or set {INPUT.samples_axis.at(0)}.",
                key="input.features",
            )
        return viewed(
            source,
            self.samples_axis,
            feature_shape=self.feature_shape,
            described=None
            if self.variants is None
            else partial(with_variants, samples_axis=self.samples_axis, path=self.variants),
            samples=slice(*self.samples.model_dump().values()) if isinstance(self.samples, Range) else self.samples,
            feature_names=None if self.feature_names is None else self.feature_names.at("input.feature_names"),
            sample_names=None if self.sample_names is None else self.sample_names.each("input.sample_names"),
        )

    @property
    def uris(self) -> list[str]:
        """The paths and URLs, one or more."""
        return [self.uri] if isinstance(self.uri, str) else self.uri

    @property
    def paths(self) -> list[Path]:
        """Those that are on this machine."""
        return [Path(uri) for uri in self.uris if "://" not in uri]


Inputs = Input | Annotated[list[Input], Field(min_length=2)]


class InputSection(Section):
    """The section `input` alone."""

    input: Inputs
