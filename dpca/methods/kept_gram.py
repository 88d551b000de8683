"""Reuse of a Gram matrix that an earlier run kept, for other kernels of the same data, which are not read again."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpca.config.schema import Config
from dpca.errors import ConfigError, DataError, InputError, StorageError
from dpca.methods.record import changes_of, fields_of
from dpca.numerics.panels import Rules
from dpca.settings import MODEL, PREPROCESS
from dpca.sources import expanded
from dpca.sources.base import Layout, Reader, Region, Source
from dpca.sources.coordinate import Auxiliary, Coordinate
from dpca.sources.credentials import without_credentials, without_secrets
from dpca.sources.groups import alone
from dpca.store.gram import check_keeps_matrix
from dpca.store.results import Result
from dpca.store.unfinished import differences


class _RecordedReader(Reader):
    """A reader of coordinates, which the result has; it has no values."""

    def __init__(self, layout: Layout, result: Result) -> None:
        super().__init__(layout)
        self._result = result

    def _read(self, region: Region) -> NDArray[Any]:
        raise AssertionError("a kept Gram matrix needs no data")

    def coordinate(self, axis: int) -> Coordinate | None:
        return self._result.coordinate(str(self.layout.dims[axis]))

    def auxiliaries(self) -> Sequence[Auxiliary]:
        dims = self.layout.dims
        return [
            Auxiliary(tuple(map(dims.index, along)), one)
            for along, one in self._result.auxiliaries()
            if {*along} <= {*dims}
        ]


class RecordedSource(Source):
    """The input of an earlier run, as its manifest describes it; it can't be read, and need not exist any more."""

    def __init__(self, result: Result) -> None:
        recorded = result.input
        names, self._result = result.dims.placed(result.samples_axis), result
        self._fingerprint = result.manifest["fingerprint"]
        self.layout = Layout(
            recorded["name"],
            tuple(recorded["shape"]),
            np.dtype(recorded["dtype"]),
            (1,) * len(names),
            dims=names,
            n_stored=recorded["n_stored"],
        )

    def held(self, shape: tuple[int, ...]) -> dict[str, int]:
        return {}

    @contextmanager
    def open(self) -> Iterator[Reader]:
        yield _RecordedReader(self.layout, self._result)

    def fingerprint(self) -> dict[str, Any]:
        return {name: value for name, value in self._fingerprint.items() if name != "samples_axis"}


def check_same(result: Result, config: Config) -> None:
    """Refuse a Gram matrix of other data or other preprocessing than a config asks for."""
    if config.model.kind != "kernel_pca" or config.model.kernel in ("precomputed", ["precomputed"]):
        raise ConfigError(
            "--from-gram is for kernels of a Gram matrix, but "
            + (f"{MODEL.kind} is pca" if config.model.kind == "pca" else f"{MODEL.kernel} is precomputed"),
            f"{MODEL.kind.set_to('kernel_pca')} and the kernels that are wanted.",
            key="model.kind",
        )
    before, kernel = result.manifest["config"], result.manifest["config"]["model"]["kind"] == "kernel_pca"
    check_keeps_matrix(result)
    if not (kernel or before["preprocess"]["center"]):
        raise InputError(
            f"{result.name}: its Gram matrix is not about the mean, in which distances lose digits",
            f"Run it again with {PREPROCESS.center.at(True)}, and --overwrite.",
        )
    if isinstance(config.input, list) or isinstance(before["input"], list):
        raise ConfigError(
            "--from-gram is for results of one input, but "
            + ("input is a list" if isinstance(config.input, list) else f"{result.name} is of several"),
            "Run without --from-gram: all kernels of a config share one read.",
            key="input",
        )
    asked = config.model_dump()
    for part, names in (
        (
            "input",
            (
                *("array", "samples", "sample_names", "features", "feature_names", "feature_shape"),
                *("absent_chunks", "missing_values"),
            ),
        ),
        (
            "preprocess",
            ("scale", "scale_ddof", "missing", "weights", "inner_product", "sample_weights", "regress_out", "filters"),
        ),
        ("model", ("ddof",) if Rules.of(asked["preprocess"], 0, center=True).by_variance else ()),
    ):
        changes = differences(
            {name: before[part][name] for name in names},
            {name: asked[part][name] for name in names},
            part,
        )
        if changes:
            raise _of_other_values(result, changes, changes[0].partition(":")[0])
    recorded, current = before["input"], config.input
    if [*map(place_of, expanded(recorded["uri"]))] != [*map(place_of, current.uris)]:
        change = differences(without_secrets(recorded["uri"]), without_secrets(current.uri), "input.uri")
        raise _of_other_values(result, change, "input.uri")
    axis, n_axes = current.samples_axis, len(result.manifest["input"]["shape"])
    if recorded["samples_axis"] != axis and not (isinstance(axis, int) and axis % n_axes == result.samples_axis):
        change = differences(recorded["samples_axis"], axis, "input.samples_axis")
        raise _of_other_values(result, change, "input.samples_axis")
    _check_unchanged(result, config)


def place_of(uri: str) -> str:
    """A path or URL, as it tells whether data are the same: without links, or without credentials."""
    return without_credentials(uri) if "://" in uri else os.path.realpath(uri)


def _of_other_values(result: Result, changes: list[str], key: str) -> ConfigError:
    return ConfigError(
        f"{result.name}: its Gram matrix is of other values: {'; '.join(changes)}",
        "Set it as it was there, or run without --from-gram.",
        key=key,
    )


def _check_unchanged(result: Result, config: Config) -> None:
    """Refuse the Gram matrix if its data still exist but have changed; their values are not read."""
    try:
        source = config.inputs[0].open()
        changes = changes_of(result.manifest["fingerprint"], alone(source, result.samples_axis))
        before = result.manifest["asked"].get("preprocess", {}).get("fields", {})
        changes += differences(before, fields_of(config), "preprocess")
    except (InputError, StorageError):
        return  # the Gram matrix can be used without its data
    if changes:
        raise DataError(
            f"{source.layout.name}: changed since {result.path} was made of it: {'; '.join(changes[:5])}",
            "Run without --from-gram.",
        )
