"""Whatever xarray opens, by an engine that is named: GRIB (cfgrib), GeoTIFF (rasterio), kerchunk and VirtualiZarr references (kerchunk), and others; and
Icechunk repositories. Values are read through xarray's lazy indexing, a slab at a time. The only file that knows Icechunk.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dpca.errors import InputError
from dpca.settings import INPUT
from dpca.sources import cf
from dpca.sources.base import Region
from dpca.sources.credentials import without_credentials
from dpca.sources.dask_array import DaskSource
from dpca.sources.file import file_facts, file_state
from dpca.sources.view import View

if TYPE_CHECKING:
    import xarray as xr

ICECHUNK = "icechunk"
VERSIONS = ("branch", "tag", "snapshot")
UNLOCKED = (ICECHUNK, "zarr", "kerchunk")
"""Engines that read in several threads at a time; others hold a lock of the library behind them."""
SHOWN = 12


class XarraySource(View):
    """A variable of a dataset that xarray opens.

    Parameters
    ----------
    uri : path or URL
    array : name of the variable; may be left out if only one has two axes or more
    engine : of xarray, or icechunk
    options : of the engine, by name: xarray's backend_kwargs; of icechunk one of branch (main if there is none), tag and snapshot
    """

    def __init__(self, uri: str, array: str | None, engine: str, options: Mapping[str, Any]) -> None:
        self._uri, self._engine = uri, engine
        shown = without_credentials(uri)
        dataset, self._version = _opened(uri, shown, engine, options)
        self._array = _chosen(dataset, array, shown)
        data = dataset[self._array]
        from dpca.sources.xarray_labels import labels_of, values_of

        dims, coordinates, auxiliaries = labels_of(data)
        source = DaskSource(
            values_of(data.chunk() if data.variable._in_memory else data),
            dims,
            f"{shown}:{self._array}",
            coordinates=coordinates,
            auxiliaries=auxiliaries,
            units=str(data.attrs.get("units", "")),
            long_name=cf.long_name_of(data.attrs),
        )
        locked = f"xarray's engine {engine} reads one block at a time, by a lock: a copy in Zarr would be read by all threads"
        super().__init__(source, source.layout if engine in UNLOCKED else replace(source.layout, remarks=(locked,)))

    @property
    def place(self) -> tuple[str, str | None] | None:
        return self._uri if "://" in self._uri else os.path.abspath(self._uri), self._array

    def fingerprint(self) -> dict[str, Any]:
        facts = file_facts(self._uri) if os.path.isfile(self._uri) else {}
        return {
            "kind": f"xarray, {self._engine}",
            "uri": self.layout.name,
            "array": self._array,
            **facts,
            **self._version,
        }

    def state(self, region: Region) -> str | None:
        return file_state(self._uri) if os.path.isfile(self._uri) else None


def _opened(uri: str, shown: str, engine: str, options: Mapping[str, Any]) -> tuple[xr.Dataset, dict[str, Any]]:
    """The dataset, and what tells this version of it from others."""
    try:
        import xarray as xr
    except ImportError as cause:
        raise _without(shown, engine, "xarray") from cause
    if "://" not in uri and not os.path.exists(uri):
        raise InputError(f"{shown}: does not exist", f"Check {INPUT.uri}.", key="input.uri")
    if engine == ICECHUNK:
        return _of_icechunk(uri, shown, options)
    if engine not in (known := xr.backends.list_engines()):
        raise InputError(
            f"{shown}: {INPUT.engine} is {engine!r}, but xarray has the engines {', '.join(known)} here",
            "Install the package that has it: cfgrib for cfgrib, rioxarray for rasterio, kerchunk for kerchunk.",
            key="input.engine",
        )
    try:
        return xr.open_dataset(uri, engine=engine, chunks=None, backend_kwargs=dict(options) or None), {}
    except ImportError as cause:
        raise _without(shown, engine, cause.name or str(cause)) from cause
    except Exception as cause:  # of any type, by the engine
        raise InputError(
            f"{shown}: xarray's engine {engine} can't open it: {type(cause).__name__}: {_first(cause)}",
            f"Check the file, {INPUT.engine} and {INPUT.engine_options}.",
            key="input.engine",
        ) from cause


def _of_icechunk(uri: str, shown: str, options: Mapping[str, Any]) -> tuple[xr.Dataset, dict[str, Any]]:
    """The dataset of a version of a repository, and the snapshot that it is."""
    try:
        import icechunk
        import xarray as xr
    except ImportError as cause:
        raise _without(shown, ICECHUNK, cause.name or "icechunk") from cause
    if wrong := [name for name in options if name not in VERSIONS]:
        raise InputError(
            f"{shown}: {INPUT.engine_options} has {wrong[0]!r}, but {', '.join(VERSIONS)} are allowed of icechunk",
            "Name one of these.",
            key="input.engine_options",
        )
    asked = {"snapshot_id" if name == "snapshot" else name: value for name, value in options.items()} or {
        "branch": "main"
    }
    try:
        bucket, _, prefix = uri.removeprefix("s3://").partition("/")
        storage = (
            icechunk.s3_storage(bucket=bucket, prefix=prefix, from_env=True)
            if uri.startswith("s3://")
            else icechunk.local_filesystem_storage(uri)
        )
        session = icechunk.Repository.open(storage).readonly_session(**asked)
        found = xr.open_zarr(session.store, consolidated=False, chunks=None)
    except Exception as cause:  # of any type
        raise InputError(
            f"{shown}: can't be opened as an Icechunk repository: {_first(cause)}",
            "Check the path, and branch, tag or snapshot.",
            key="input.uri",
        ) from cause
    return found, {"snapshot": session.snapshot_id}


def _first(cause: Exception) -> str:
    """The first line of what an error says; libraries add where it was raised."""
    return next((line.strip() for line in str(cause).splitlines() if line.strip()), "")


def _without(shown: str, engine: str, package: str) -> InputError:
    return InputError(
        f"{shown}: is opened by the engine {engine}, which needs {package}, and that is not installed",
        f"pip install {package}.",
        key="input.engine",
    )


def _chosen(dataset: xr.Dataset, array: str | None, shown: str) -> str:
    """The variable that is meant."""
    wide = [str(name) for name, one in dataset.data_vars.items() if one.ndim > 1]
    if array is None and len(wide) == 1:
        return wide[0]
    if array is not None and array.strip("/") in dataset:
        return array.strip("/")
    held = ", ".join(f"{name} {dataset[name].shape}" for name in wide[:SHOWN]) or "no array of two axes or more"
    problem = "which array? It holds" if array is None else f"has no array {array!r}; it holds"
    raise InputError(f"{shown}: {problem} {held}", f"Set {INPUT.array} to one of them.", key="input.array")
