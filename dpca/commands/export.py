"""A result, or scores of new samples, in formats that other programs open: NetCDF, HDF5, .npz, tables, AnnData.

Arrays are streamed, except for AnnData, whose writer holds them. Each library is imported where it is used (extra `export`).
"""

from __future__ import annotations

import csv
import math
import uuid
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import h5py
import numpy as np
from numpy.typing import NDArray

from dpca.commands.export_genotypes import grm_files, plink_files
from dpca.commands.export_maps import nifti_files, picture_files
from dpca.errors import ConfigError, DpcaError, InputError, OutputExistsError, OverBudgetError, writing
from dpca.methods.recorded import input_of
from dpca.slabs import split
from dpca.sources.calendars import datetimes
from dpca.sources.chosen import Selection
from dpca.sources.coordinate import TEXT_BYTES, TEXT_OBJECT_BYTES
from dpca.store.applied import AppliedResult
from dpca.store.arrays import SPECTRAL
from dpca.store.directory import check_replaces_no_part
from dpca.store.meanings import ONE
from dpca.store.names import names_along, names_by_axis
from dpca.store.results import Result
from dpca.store.stored import Stored
from dpca.system import durable
from dpca.system.enduring import enduring
from dpca.system.machine import memory_budget
from dpca.units import describe_memory

if TYPE_CHECKING:
    import anndata

Format = Literal["netcdf", "hdf5", "csv", "npz", "anndata", "plink", "grm", "nifti", "png"]
SUFFIXES: dict[Format, str] = {"netcdf": ".nc", "hdf5": ".h5", "npz": ".npz", "anndata": ".h5ad"}
"""Endings of the names of formats of one file; those of others end as their contents do."""
FORMULAS = ("=", "+", "-", "@", "\t", "\r")
"""The first characters of texts that a spreadsheet would compute."""
NAME_BYTES = 200
"""The memory of the name of a feature: as text, in a list, in an index."""
BLOCK_BYTES = 64 * 2**20
Exported = Result | AppliedResult


def export(
    result: Exported,
    to: Format,
    out: Path | None = None,
    labels: NDArray[Any] | None = None,
    overwrite: bool = False,
    *,
    as_covariance: bool = False,
    as_correlation: bool = False,
) -> list[Path]:
    """Write a result, or what dpca transform or reconstruct made of one, in another format.

    Parameters
    ----------
    result : of scores of new samples, csv is the table of the scores, and anndata has obsm["X_pca"] and obs alone
    to : netcdf and hdf5 hold all arrays with their dimensions; npz all arrays, dates as datetime64, and beside numbers
        that have a unit NAME.units (and NAME.calendar); csv is two tables, of the scores with the samples' names and labels,
        and of the spectrum; anndata has scores as obsm["X_pca"], components as varm["PCs"], and the coordinates of samples
        and of features of one axis as obs_names and var_names, made unique as AnnData does where some are the same. As scanpy
        has it, features that input.features did not choose have components of zeros, by the table of the input. plink is .eigenvec
        and .eigenval, grm the genetic relationship matrix of GCTA (`dpca.commands.export_genotypes`); nifti is images of voxels in the
        space of the input, png pictures of maps of two axes (`dpca.commands.export_maps`)
    out : the file; for csv, plink, grm, nifti and png the beginning of all names, without .csv; beside the result if None
    labels : (n_samples,), for the table of csv and the observations of anndata; those in the result if None
    as_covariance, as_correlation : netcdf has maps in the unit of the data, or correlations, too (`dpca.store.labelled.with_maps`)

    Returns
    -------
    The files that were written.
    """
    labels = result.labels if labels is None else labels
    stem = result.place.name if isinstance(result, Result) else result.place.name.removesuffix(".zarr")
    place = result.place.with_name(stem + SUFFIXES.get(to, "")) if out is None else out
    maps = {"as_covariance": as_covariance, "as_correlation": as_correlation}
    _check_maps(result, to, [name for name, asked in maps.items() if asked])
    written = _files(result, to, place, labels, maps)
    files = [file for file, _ in written]
    for file in files:
        if file.is_dir():
            raise OutputExistsError(f"{file}: is a directory", "Name a file with --out.")
        check_replaces_no_part(file)
        if file.exists() and not overwrite:
            raise _exists(file)
    try:
        for file, write in written:
            _put(file, write, overwrite, result)
    except ImportError as cause:
        raise InputError(
            f"{to} needs {cause.name}, which is not installed",
            "pip install '.[{}]' in the clone, or pip install {}.".format(
                *PACKAGES.get(to, ("export", "xarray h5netcdf anndata"))
            ),
        ) from cause
    except ValueError as cause:
        if isinstance(cause, DpcaError):
            raise
        raise InputError(
            f"{result.name}: its names, or what its coordinates say of themselves, can't be written as {to}: {cause}",
            "Export it as npz and csv, which hold any text.",
        ) from cause
    return files


def _files(
    result: Exported, to: Format, place: Path, labels: NDArray[Any] | None, maps: Mapping[str, bool]
) -> list[tuple[Path, Callable[[Path], None]]]:
    """The files of a format, each with what writes it."""
    if isinstance(result, AppliedResult):
        _check_applied(result, to)
    elif to == "plink":
        return plink_files(result, place)
    elif to == "grm":
        return grm_files(result, place)
    if to in MAPS_AS:
        return MAPS_AS[to](result, place)
    if to == "csv":
        place = place.with_suffix("") if place.suffix == ".csv" else place
        tables = {"scores": _scores(result, labels)}
        if isinstance(result, Result):
            tables["spectrum"] = _spectrum(result)
        return [
            (place.with_name(f"{place.name}-{name}.csv"), partial(_write_table, rows)) for name, rows in tables.items()
        ]
    if to == "netcdf":
        return [(place, partial(_netcdf, result, maps=maps))]
    return [(place, lambda aside: WRITERS[to](result, aside, labels))]


def _check_maps(result: Exported, to: Format, asked: Sequence[str]) -> None:
    """Refuse maps in the unit of the data where a format, or what is exported, has no place for them."""
    if not asked:
        return
    named = " and ".join(asked)
    if to != "netcdf":
        raise ConfigError(
            f"maps {named} are for netcdf, but {to} was asked for", "Leave them out, or export as netcdf."
        )
    if (
        not isinstance(result, Result)
        or result.kind != "pca"
        or not all(one.named("components") in result.arrays for one in result.each)
    ):
        raise InputError(
            f"{result.name}: has no components, of which {named} are made", "Name a result of PCA with components."
        )


def _check_applied(result: AppliedResult, to: Format) -> None:
    """Refuse a format that can't hold scores of new samples, or samples that were reconstructed."""
    if to in ("plink", "grm"):
        raise InputError(
            f"{result.name}: holds no result, but {'eigenvectors are of the' if to == 'plink' else 'relationships are of all'} people of a "
            f"fit, which {to} is for",
            "Name the result; scores of new people go to csv, which has every digit and their names.",
        )
    if "scores" not in result.arrays and to in ("csv", "anndata"):
        raise InputError(
            f"{result.name}: holds {', '.join(result.arrays)}, and no scores, which {to} is for",
            "Export it as netcdf, hdf5 or npz.",
        )


def _put(file: Path, write: Callable[[Path], None], overwrite: bool, result: Exported) -> None:
    """Write a file under another name and rename it: of two commands that write it at a time, one is refused."""
    aside = file.with_name(f".{uuid.uuid4().hex}.partial")
    try:
        with writing(str(file)):
            write(aside)
            result.check_still()
            try:
                durable.put(aside, file, overwrite)
            except FileExistsError as cause:
                raise _exists(file) from cause
    finally:
        aside.unlink(missing_ok=True)


def _exists(file: Path) -> OutputExistsError:
    return OutputExistsError(f"{file}: exists", "Name another with --out, or replace a file with --overwrite.")


def _netcdf(result: Exported, path: Path, maps: Mapping[str, bool]) -> None:
    import h5netcdf  # noqa: F401  what xarray writes with

    from dpca.store.labelled import dataset_of, with_maps

    # With numbers, units and calendar as they are in the result: whoever opens the file decodes them.
    dataset = dataset_of(result, decode_times=False)
    if isinstance(result, Result):
        dataset = with_maps(dataset, result, **maps)
    with enduring(path) as file:
        dataset.to_netcdf(file, engine="h5netcdf")


def _hdf5(result: Exported, path: Path, _: Any) -> None:
    with enduring(path) as whole, h5py.File(whole, "w") as file:
        file.attrs.update(_plain(result.arrays.attributes))
        for name, array in result.arrays.items():
            dtype: Any = h5py.string_dtype() if array.text else array.dtype
            chunks = array.chunks if array.ndim and array.size else None
            dataset = file.create_dataset(name, array.shape, dtype, chunks=chunks)
            dataset.attrs.update(_plain(array.attributes))
            for region, block in _blocks(array):
                dataset[region] = block.astype(object) if array.text else block
            for axis, dim in enumerate(array.dims):
                dataset.dims[axis].label = dim


def _npz(result: Exported, path: Path, _: Any) -> None:
    with zipfile.ZipFile(path, "w", allowZip64=True) as archive:

        def put(name: str, values: Any) -> None:
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asarray(values), allow_pickle=False)

        for name, array in result.arrays.items():
            if array.text:
                put(name, np.array(np.asarray(array[...]).tolist(), str))
                continue
            dates = datetimes(array[...], array.attributes) if array.dims == (name,) else None
            if dates is not None:
                put(name, dates)
                continue
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                header = {"descr": array.dtype.str, "fortran_order": False, "shape": array.shape}
                np.lib.format.write_array_header_2_0(member, header)
                for _region, block in _blocks(array):
                    member.write(np.ascontiguousarray(block).tobytes())
            for said in ("units", "calendar"):
                if isinstance(text := array.attributes.get(said), str) and text != ONE:
                    put(f"{name}.{said}", text)


def _anndata(result: Exported, path: Path, labels: NDArray[Any] | None) -> None:
    import anndata
    import pandas as pd

    samples = names_by_axis(result, result.sample_dims, range(result.n_samples))
    table = pd.DataFrame(index=anndata.utils.make_index_unique(pd.Index([" ".join(one) for one in samples])))
    if labels is not None:
        table["label"] = labels
    if isinstance(result, AppliedResult):
        cells = anndata.AnnData(obs=table, obsm={"X_pca": np.asarray(result.arrays["scores"][...])})
        _write_h5ad(cells, path)
        return
    if len(result.groups) > 1:
        raise InputError(
            f"{result.name}: is of the inputs {', '.join(result.groups)}, side by side, but AnnData has one table of features",
            "Export it as netcdf.",
        )
    if "components" not in result.arrays or result.arrays["scores"].ndim != 2:
        raise InputError(
            f"{result.name}: has no components, or several kernels, which AnnData has no place for",
            "Export it as netcdf.",
        )
    components = result.arrays["components"]
    n_features = math.prod(components.shape[1:])
    needed, budget = 3 * components.nbytes + NAME_BYTES * n_features, memory_budget()
    if needed > budget.bytes:
        raise OverBudgetError(
            f"{result.name}: AnnData would take {describe_memory(needed)}, but there are {describe_memory(budget.bytes)}, "
            f"{budget.origin}",
            "Export it as netcdf, which streams.",
        )
    one_axis = len(result.dims.features) == 1
    names = names_along(result, result.dims.features[0], range(n_features)) if one_axis else map(str, range(n_features))
    features, loadings = pd.DataFrame(index=names), np.asarray(components[...]).reshape(components.shape[0], -1).T
    column = None
    if (whole := _all_features(result)) is not None:
        selection, names = whole
        column, chosen = selection.column, selection.positions
        every = np.zeros((selection.length, loadings.shape[1]), loadings.dtype)
        every[chosen] = loadings
        features, loadings = pd.DataFrame(index=names), every
        features[column] = np.isin(np.arange(selection.length), chosen)
    params = {"zero_center": bool(result.manifest["config"]["preprocess"]["center"])}
    chosen_by = {"use_highly_variable": column == "highly_variable", "mask_var": column}
    annotated = anndata.AnnData(
        obs=table,
        var=features,
        obsm={"X_pca": np.asarray(result.arrays["scores"][...])},
        varm={"PCs": loadings},
        uns={
            "pca": {
                "params": {key: value for key, value in {**params, **chosen_by}.items() if value is not None},
                "variance": np.asarray(result.arrays["explained_variance"][...]),
                "variance_ratio": np.asarray(result.arrays["explained_variance_ratio"][...]),
            }
        },
    )
    annotated.var_names_make_unique()
    _write_h5ad(annotated, path)


def _write_h5ad(annotated: anndata.AnnData, path: Path) -> None:
    """Write a file as `AnnData.write_h5ad` does, which takes no open file."""
    from anndata.io import write_elem

    annotated.strings_to_categoricals()
    with enduring(path) as whole, h5py.File(whole, "w") as file:
        write_elem(file, "/", annotated)
        if annotated.raw is None:
            file.pop("raw", None)  # a mark that earlier versions can't read


def _all_features(result: Result) -> tuple[Selection, list[str]] | None:
    """The choice of features of a result, and the names of all features that its input has; None where all were read."""
    if result.asked_input.get("features") is None:
        return None
    asked = input_of(result, remedy="Export the result as netcdf or hdf5, which need no data.")
    assert asked.features is not None
    source, whole = asked.open(), asked.model_copy(update={"features": None}).open()
    selection = source.selection
    if selection is None or selection.fingerprint != result.manifest["fingerprint"]["features"]:
        raise InputError(
            f"{source.layout.name}: column {asked.features.column!r} chooses other features than when {result.name} was made",
            "Put the input back, or export the result as netcdf or hdf5.",
        )
    with whole.open() as reader:
        names = reader.coordinate(selection.axis)
        found = range(selection.length) if names is None else names.values[...].tolist()
    return selection, list(map(str, found))


MAPS_AS = {"nifti": nifti_files, "png": picture_files}
PACKAGES = {"nifti": ("nifti", "nibabel"), "png": ("pictures", "pillow")}
"""The extra that a format needs, and the packages in it."""
WRITERS: dict[str, Callable[[Exported, Path, NDArray[Any] | None], None]] = {
    "hdf5": _hdf5,
    "npz": _npz,
    "anndata": _anndata,
}


def _scores(result: Exported, labels: NDArray[Any] | None) -> Iterator[list[Any]]:
    array = result.arrays["scores"]
    if array.ndim != 2:
        raise InputError(f"{result.name}: has scores of several kernels, which are no table", "Export it as netcdf.")
    scores = np.asarray(array[...], np.float64)
    yield [
        *result.sample_dims,
        *(["label"] if labels is not None else []),
        *(f"score_{i}" for i in range(1, scores.shape[1] + 1)),
    ]
    names = names_by_axis(result, result.sample_dims, range(result.n_samples))
    for number, (name, row) in enumerate(zip(names, scores.tolist(), strict=True)):
        yield [*map(_cell, name), *([_cell(str(labels[number]))] if labels is not None else []), *map(repr, row)]


def _spectrum(result: Result) -> Iterator[list[Any]]:
    columns = {name: np.asarray(result.arrays[name][...], np.float64) for name in SPECTRAL if name in result.arrays}
    columns = {name: values for name, values in columns.items() if values.ndim == 1}
    yield ["component", *columns]
    for number, row in enumerate(zip(*(values.tolist() for values in columns.values()), strict=True), 1):
        yield [number, *map(repr, row)]


def _cell(text: str) -> str:
    """A text that a spreadsheet keeps as text: an apostrophe precedes what looks like a formula and is no number."""
    if not text.startswith(FORMULAS):
        return text
    try:
        float(text)
    except ValueError:
        return f"'{text}"
    return text


def _write_table(rows: Iterator[list[Any]], path: Path) -> None:
    """Write a table in UTF-8, with every digit of its numbers."""
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(rows)


def _blocks(array: Stored) -> Iterator[tuple[tuple[slice, ...], NDArray[Any]]]:
    """Parts of an array that follow each other in C order, of at most 64 MiB where possible."""
    if not array.ndim:
        yield (), np.asarray(array[...])
        return
    limit = BLOCK_BYTES // (TEXT_BYTES + TEXT_OBJECT_BYTES if array.text else array.dtype.itemsize)
    for region, _start, _stop in split(array.shape, max(1, limit)):
        yield region, np.asarray(array[region])


def _plain(attributes: Any) -> dict[str, Any]:
    """The attributes that HDF5 can hold."""
    return {key: value for key, value in dict(attributes).items() if isinstance(value, str | int | float | bool)}
