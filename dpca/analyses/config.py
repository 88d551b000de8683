"""The configuration of `dpca derive`: all its keys, as frozen models, and its loading."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from dpca.analyses.kinds import AnyKind
from dpca.config.compute import Compute
from dpca.config.inputs import ArrayFile, Covariates, Label, Local, Names, Part, Range, Section, Text
from dpca.config.loading import Positioned, read
from dpca.errors import ConfigError
from dpca.numerics.panels import BlockScaling
from dpca.sources.finding import Pairing
from dpca.units import NAME

_LIMITS = Field(min_length=2, max_length=2)
_NAMES = Annotated[list[Text], Field(min_length=1)]


def _listed(given: Any) -> Any:
    return [given] if isinstance(given, str | int) and not isinstance(given, bool) else given


Several = BeforeValidator(_listed)


class Select(Section):
    """Which samples: one of these keys, or the name of the samples' axis with the first and the last label."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False, populate_by_name=True)

    axis: Annotated[Text | None, Field(description="Name of the samples' axis, where `between` is given.")] = None
    between: Annotated[
        Annotated[list[Label | int | float | None], _LIMITS] | None,
        Field(
            description="The first and the last label, both included; null for no limit. Written as {NAME: [first, last]}, too."
        ),
    ] = None
    samples: Annotated[
        Text | list[int | Label] | Range | None,
        Field(
            description="Numbers from 0 or labels; a range {start, stop, step}; or a file of integers, of a mask, or of text, one a "
            "line."
        ),
    ] = None
    year: Annotated[list[int] | None, Several, Field(description="Years of the dates.")] = None
    season: Annotated[
        list[Literal["DJF", "MAM", "JJA", "SON"]] | None, Several, Field(description="Seasons of the dates.")
    ] = None
    month: Annotated[list[int] | None, Several, Field(description="Months of the dates, 1 to 12.")] = None
    day: Annotated[list[int] | None, Several, Field(description="Days of the month.")] = None
    hour: Annotated[list[int] | None, Several, Field(description="Hours of the day.")] = None

    @model_validator(mode="before")
    @classmethod
    def _by_the_name_of_the_axis(cls, values: Any) -> Any:
        """Read {time: [first, last]} as {axis: time, between: [first, last]}."""
        if isinstance(values, dict) and len(values) == 1:
            ((name, limits),) = values.items()
            if name not in cls.model_fields and isinstance(limits, list):
                if len(limits) != 2:
                    raise ConfigError(
                        f"{name} is {limits}, but two labels are allowed, the first and the last, both included",
                        f"Write {{{name}: [first, last]}}, with null for no limit.",
                    )
                return {"axis": name, "between": limits}
        return values

    @model_validator(mode="after")
    def _one(self) -> Select:
        given = [name for name, value in self if value is not None and name != "axis"]
        if len(given) != 1:
            keys = [name for name in Select.model_fields if name not in ("axis", "between")]
            raise ConfigError(
                f"one key is needed, not {' and '.join(given) or 'none'}",
                f"Write one of {', '.join(keys)}, or the name of the samples' axis with the first and the last label; an entry for each.",
            )
        return self


class Grouping(Section):
    """Groups of samples."""

    by: Annotated[
        Part | Names,
        Field(
            description="A part of the dates, such as month (or time.month); the name of a coordinate of the samples, such as subject; "
            "or a label for each sample of the result: {uri, array, column}. For day_of_year, 29 February is a day of its "
            "own."
        ),
    ]


class Trend(Section):
    """A polynomial in time."""

    degree: Annotated[int, Field(ge=0, description="Of the polynomial that is fitted to each feature.")] = 1


class Lag(Section):
    """A difference."""

    lag: Annotated[int, Field(ge=1, description="Rows between the two.")] = 1


class Filter(Section):
    """A filter in time; times have to be regular."""

    kind: Annotated[
        Literal["butterworth", "lanczos", "running_mean"],
        Field(
            description="butterworth: forwards and backwards, without a shift; lanczos: a finite window, whose ends are lost; running_mean."
        ),
    ]
    band: Annotated[
        Annotated[list[float | None], _LIMITS] | None,
        Field(description="Lowest and highest frequency that pass, in cycles per step of time; null for no limit."),
    ] = None
    order: Annotated[int | None, Field(ge=1, description="Of butterworth; 4 if left out.")] = None
    window: Annotated[int | None, Field(ge=2, description="Rows of lanczos (odd) and running_mean.")] = None


class WeightsOfSamples(ArrayFile):
    """A weight for each sample."""

    kind: Annotated[Literal["frequency", "reliability"], Field(description="As of preprocess.sample_weights.")] = (
        "frequency"
    )


PER_FEATURE = ("standardize", "scale", "median", "rank", "impute", "missing", "allele_frequency", "binomial", "mask")
"""Steps that one may ask for, and no Gram matrix can give."""


class Step(Section):
    """An operator along the samples: one of these keys."""

    select: Annotated[Select | None, Field(description="Some of the samples.")] = None
    anomalies: Annotated[
        Grouping | None,
        Field(description="Subtract the mean of each group: anomalies from a climatology."),
    ] = None
    between: Annotated[
        Grouping | None,
        Field(description="Replace each sample by the mean of its group, minus the mean of all."),
    ] = None
    means: Annotated[
        Grouping | None, Field(description="One row for each group, its mean: annual means, means of an ensemble.")
    ] = None
    detrend: Annotated[Trend | None, Field(description="Subtract a polynomial in time.")] = None
    difference: Annotated[Lag | None, Field(description="Subtract an earlier row.")] = None
    filter: Annotated[Filter | None, Field(description="Keep some frequencies.")] = None
    regress_out: Annotated[
        Covariates | None, Field(description="Subtract the least-squares fit of covariates and a constant.")
    ] = None
    center: Annotated[
        Literal[True] | None, Field(description="Subtract the mean. pca, extended, hilbert and spod always do.")
    ] = None
    weights: Annotated[
        WeightsOfSamples | None, Field(description="Weights of the samples; the last operator, for pca.")
    ] = None

    @model_validator(mode="before")
    @classmethod
    def _along_the_samples(cls, values: Any) -> Any:
        """Refuse steps that depend on the values of single features, with the reason."""
        if isinstance(values, dict) and (asked := next((key for key in values if key in PER_FEATURE), None)):
            raise ConfigError(
                f"{asked} depends on the values of each feature, which a Gram matrix does not have: only what acts along the samples, and "
                "on all features alike, follows from it",
                "Run again with it under preprocess, which is one read.",
            )
        return values

    @model_validator(mode="after")
    def _one(self) -> Step:
        given = [name for name, value in self if value is not None]
        if len(given) != 1:
            raise ConfigError(
                f"one operator is needed, not {' and '.join(given) or 'none'}",
                "Make an entry of the list for each, in their order."
                if given
                else f"Write one of {', '.join(Step.model_fields)}.",
            )
        return self

    @property
    def operator(self) -> tuple[str, Any]:
        """The key that is set, and its value."""
        return next((name, value) for name, value in self if value is not None)


class FeatureChoice(Section):
    """Which groups of features count, and how much: those of the result's gram_by_group, or of several results."""

    only: Annotated[_NAMES | None, Field(description="Names of groups; null: all.")] = None
    leave_out: Annotated[tuple[Text, ...], Field(strict=False, description="Names of groups.")] = ()
    weights: Annotated[
        dict[str, Annotated[float, Field(ge=0)]] | None,
        Field(
            description="Factors by name. The products of a group are multiplied by its factor, and its features by the square root."
        ),
    ] = None
    scaling: Annotated[
        BlockScaling,
        Field(description="As preprocess.block_scaling, for the samples of the run. Weights are applied after it."),
    ] = "none"


class AnalysisSection(Section):
    """One analysis of the samples."""

    name: Annotated[
        str,
        Field(pattern=f"^{NAME.pattern}$", description="Of its group in the result; letters, digits, - and _."),
    ]
    samples: Annotated[list[Step], Field(description="Operators along the samples, applied in this order.")] = []
    model: Annotated[
        AnyKind,
        Field(discriminator="kind", description="What is computed of the rows."),
    ]
    features: Annotated[
        FeatureChoice | None,
        Field(description="Which groups of features count, and how much; null: all as they are."),
    ] = None


class DerivedOutput(Section):
    """Where the result goes."""

    path: Annotated[Local, Field(description="Directory of the result; must not hold one already, unless --overwrite.")]
    report: Annotated[bool, Field(description="Write report.html, if jinja2 and bokeh are installed.")] = True


_Places = Text | Annotated[list[Text], Field(min_length=1)]


class Derive(Section):
    """Analyses derived from finished results."""

    command = "derive"

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False, populate_by_name=True)

    results: Annotated[
        Local | Annotated[list[Local], Field(min_length=1)] | Annotated[dict[str, Local], Field(min_length=1)],
        Field(
            alias="from",
            description="A result that keeps its Gram matrix. Or several results of the same samples, whose features are put side by "
            "side: a list, or {NAME: PATH}. Maps are then called components_NAME.",
        ),
    ]
    pair_by: Annotated[
        Pairing,
        Field(
            description="How samples of several results are matched by their dates. moment: equal dates, in any units and calendars. "
            "day or month: the same day or month, such as daily means at 00:00 and 12:00. The dates of the first result are"
            " kept."
        ),
    ] = "moment"
    time: Annotated[
        Literal["auto", "index"],
        Field(
            description="Times of the samples. auto: their coordinate. index: their numbers, if samples are at regular times."
        ),
    ] = "auto"
    analyses: Annotated[list[AnalysisSection], Field(min_length=1)]
    components: Annotated[
        bool, Field(description="Make the maps of all analyses in one read of the data; false: none is read.")
    ] = True
    data: Annotated[
        _Places | dict[str, _Places] | None,
        Field(
            description="Where the data of the results are now, for the maps: a path or URL, or a list of them; for several inputs "
            "{NAME: PLACE}. null: the path that the results recorded. A URL has to be named here."
        ),
    ] = None
    compute: Compute = Compute()
    output: DerivedOutput

    @property
    def places(self) -> dict[str, list[str]]:
        """Where data of inputs are now, by name; empty for the only one."""
        given = self.data if isinstance(self.data, dict) else {} if self.data is None else {"": self.data}
        return {name: [places] if isinstance(places, str) else places for name, places in given.items()}

    @property
    def paths(self) -> list[tuple[str, str]]:
        """Names of the features of each result, by default those of their directories, and where they are."""
        given = self.results
        if isinstance(given, dict):
            return list(given.items())
        each = [given] if isinstance(given, str) else given
        return [(re.sub(r"[^A-Za-z0-9_-]", "_", Path(path).name), path) for path in each]


def schema() -> dict[str, Any]:
    """JSON Schema of the configuration, for editors."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Derive.model_json_schema()}


def load_derive(path: str | Path, overrides: Sequence[str] = ()) -> Positioned[Derive]:
    """Read a configuration of derived analyses; parameters and errors as of `dpca.config.loading.load`."""
    begin = "Begin with\nfrom: results/mine\nanalyses:\n  - name: trend\n    model: {kind: pca}\noutput:\n  path: results/mine-derived"
    loaded = Positioned(*read(path, overrides, Derive, begin), str(path), tuple(overrides))
    names = [analysis.name for analysis in loaded.config.analyses]
    for number, name in enumerate(names):
        if name in names[:number]:
            error = ConfigError(
                f"analyses {names.index(name)} and {number} are both called {name!r}",
                "Give each a name.",
                f"analyses.{number}.name",
            )
            raise loaded.locate(error)
    return loaded
