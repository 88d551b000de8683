"""Analyses of a configuration, applied to samples: operators one after another, then what is computed of the rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpca.analyses.answers import Answer
from dpca.analyses.config import AnalysisSection, Filter, Select, Step
from dpca.analyses.kind import Context
from dpca.analyses.samples import Samples
from dpca.config.inputs import Covariates, Range
from dpca.errors import ConfigError, DpcaError
from dpca.sources.labels import Place, open_values


def analysed(analysis: AnalysisSection, context: Context) -> Answer:
    """The answer of one analysis.

    Parameters
    ----------
    context : with the key of the analysis in the configuration, for errors: analyses.0
    """
    rows, key = context.samples, context.key
    if (chosen := analysis.features) is not None:
        with in_analysis(f"{key}.features", analysis.name):
            rows = rows.of_features(chosen.only, chosen.leave_out, chosen.weights, chosen.scaling)
    for number, step in enumerate(analysis.samples):
        name, _ = step.operator
        where = f"{key}.samples.{number}.{name}"
        with in_analysis(where, analysis.name):
            rows = applied(rows, replace(context, key=where), step)
    with in_analysis(f"{key}.model", analysis.name):
        return analysis.model.run(rows, replace(context, key=f"{key}.model"))


@contextmanager
def in_analysis(key: str, name: str) -> Iterator[None]:
    """Name the analysis, and complete the key, of an error of this block."""
    try:
        yield
    except DpcaError as error:
        last = "" if not error.key or error.key.startswith("analyses.") else f".{error.key}"
        where = error.key if error.key == "time" or error.key.startswith("analyses.") else key + last
        raise error.saying(f"analysis {name}: {error.marked_message}", key=where) from error.__cause__


def applied(rows: Samples, context: Context, step: Step) -> Samples:
    """The rows after one more operator; labels and covariates are for all samples of the result."""
    match step.operator:
        case "select", Select() as select:
            return _selected(rows, select, context.key)
        case "anomalies", grouping:
            return rows.anomalies(context.labels(grouping.by))
        case "between", grouping:
            return rows.between_groups(context.labels(grouping.by))
        case "means", grouping:
            return rows.means(context.labels(grouping.by))
        case "detrend", trend:
            return rows.detrend(trend.degree)
        case "difference", lag:
            return rows.difference(lag.lag)
        case "filter", Filter() as asked:
            band = None if asked.band is None else (asked.band[0], asked.band[1])
            return rows.filter(asked.kind, band, asked.order, asked.window)
        case "regress_out", Covariates() as asked:
            covariates, names = context.covariates(asked, "")
            return rows.regress_out(covariates, names=names)
        case "weights", asked:
            with asked.open().open() as reader:
                values = np.asarray(reader.read(tuple(slice(0, length) for length in reader.layout.shape)), np.float64)
            return rows.weighted(values, asked.kind)
        case _:
            return rows.center()


def _selected(rows: Samples, select: Select, key: str) -> Samples:
    if select.between is not None:
        if select.axis not in (None, rows.axis.name):
            raise ConfigError(
                f"samples are selected along {select.axis!r}, but their axis is {rows.axis.name!r}",
                f"Write {{{rows.axis.name}: [first, last]}}.",
            )
        return rows.between(*select.between)
    if select.samples is not None:
        return _chosen(rows, select.samples, key)
    part, values = next((name, value) for name, value in select if value is not None)
    return rows.where(part, values)


def _chosen(rows: Samples, samples: str | list[Any] | Range, key: str) -> Samples:
    if isinstance(samples, Range):
        return rows.rows(np.arange(rows.n)[slice(samples.start, samples.stop, samples.step)])
    if isinstance(samples, str):
        values: NDArray[Any] = np.asarray(open_values(Place(samples, key=key))[...])
        if values.dtype.kind in "biu":
            return rows.rows(values)
        samples = [str(value) for value in values.tolist()]
    if not any(isinstance(one, int) for one in samples):
        return rows.labelled(samples)
    return rows.rows(np.array([one if isinstance(one, int) else rows.place(one) for one in samples], np.intp))
