"""The sources of X: one adapter per file, one small protocol (`dpca.sources.base`).

To add a source, write a subclass of `dpca.sources.base.Source`, and name it in `open_source` (by the content
of the file) or in `as_source` (by type).
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from glob import has_magic, iglob
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dpca.errors import InputError
from dpca.settings import INPUT
from dpca.sources import cf, foreign, formats, netcdf3
from dpca.sources.anndata_layout import Sparse
from dpca.sources.base import READ_SECONDS, Layout, Reader, Region, SamplesAxis, Source
from dpca.sources.coordinate import Auxiliary, Coordinate
from dpca.sources.credentials import without_credentials
from dpca.sources.formats import FileFormat
from dpca.sources.joined_coordinates import Gaps
from dpca.sources.missing import as_stored
from dpca.system import regular

if TYPE_CHECKING:
    from dpca.sources.zarr_store import Library

__all__ = [
    "Layout",
    "Reader",
    "Region",
    "Source",
    "are_files",
    "as_source",
    "expanded",
    "is_data_array",
    "list_arrays",
    "open_joined",
    "open_source",
]

_HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"
_NPY_MAGIC = b"\x93NUMPY"
_PICTURE_MAGICS = (b"\x89PNG", b"\xff\xd8\xff", b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
"""How files of PNG, JPEG and TIFF begin; the last two are of TIFF with places of 64 bits."""
_ZARR_METADATA = ("zarr.json", ".zgroup", ".zarray", ".zmetadata")

MOST_FILES = 100_000
"""That match a pattern."""


def expanded(uris: str | Sequence[str]) -> list[str]:
    """Paths and URLs, with the paths that match in place of a pattern, such as data/sst_*.nc, and the pictures or images of NIfTI in place of a
    folder of these; both sorted by name as text.

    A pattern that nothing matches stays: `open_source` refuses it. A path that exists is no pattern.
    """
    found = []
    for uri in [uris] if isinstance(uris, str) else uris:
        matching = _matching(uri) if _is_pattern(uri) else _samples_in(uri)
        found += matching or [uri]
    return found


def _samples_in(folder: str) -> list[str]:
    """The files of a folder of pictures or of images of NIfTI; empty for anything else, such as a Zarr store."""
    if (
        "://" in folder
        or not os.path.isdir(folder)
        or any(os.path.exists(f"{folder}/{name}") for name in _ZARR_METADATA)
    ):
        return []
    kinds = {
        entry.path: one.name
        for entry in islice(os.scandir(folder), MOST_FILES + 1)
        for one in (_NIFTI, _PICTURES)
        if entry.name.lower().endswith(_OF_SAMPLES[one.name]) and not entry.name.startswith(".")
    }
    if len(set(kinds.values())) > 1:
        raise InputError(
            f"{folder}: has pictures and images of NIfTI",
            "Name one kind of them, such as folder/*.png.",
            key="input.uri",
        )
    return sorted(kinds)


def _matching(pattern: str) -> list[str]:
    problem = "has ** more than once" if pattern.split("/").count("**") > 1 else ""
    found = [] if problem else list(islice(iglob(pattern, recursive=True), MOST_FILES + 1))
    if problem or len(found) > MOST_FILES:
        raise InputError(
            f"{pattern}: {problem or f'more than {MOST_FILES:,} files match'}",
            "Name the folder, such as data/**/*.nc.",
            key="input.uri",
        )
    return sorted(found)


def _is_pattern(uri: str) -> bool:
    return "://" not in uri and has_magic(uri) and not os.path.exists(uri)


def open_joined(
    uris: Sequence[str],
    samples_axis: SamplesAxis = 0,
    gaps: Gaps = "error",
    members: bool = False,
    opened: Callable[[str], Source] | None = None,
) -> Source:
    """Open the arrays at paths or URLs as one, joined along the samples in this order; a single one is opened as it is.

    Parameters
    ----------
    uris : as `expanded` gives them
    samples_axis, gaps, members : as for `dpca.sources.joining.join`
    opened : opens each of them; `open_source` if None
    """
    opened = opened or open_source
    if len(uris) == 1:
        return opened(uris[0])
    before: dict[str, str] = {}
    for uri in uris:
        place = uri if "://" in uri else os.path.realpath(uri)
        if place in before:
            raise InputError(
                f"{without_credentials(uri)}: is there twice"
                + (f", also as {before[place]}" if before[place] != uri else ""),
                f"Name each file once in {INPUT.uri}.",
                key="input.uri",
            )
        before[place] = uri
    from dpca.sources.joining import join

    return join([opened(uri) for uri in uris], samples_axis, gaps, members)


def open_source(
    uri: str | os.PathLike[str],
    array: str | None = None,
    absent_chunks: str = "fill",
    storage_options: Mapping[str, Any] | None = None,
    missing_values: Sequence[float] = (),
    read_seconds: float = READ_SECONDS,
    library: Library = "fsspec",
    column: str | None = None,
    of_format: Mapping[str, Any] = {},
    engine: str | None = None,
    engine_options: Mapping[str, Any] = {},
) -> Source:
    """Open the array at a path or URL. Its content tells the format, not its suffix.

    Parameters
    ----------
    uri, array, storage_options : path or URL, path of the array inside, options of the store
    absent_chunks : "fill" or "error"
    missing_values : stored values that mark a missing value, besides NaN and those that the file itself declares
    read_seconds : seconds without a slab read after which storage counts as hanging
    library : the library that opens a URL, with storage_options
    column : boolean column of AnnData's table of features that chooses some; None for all
    of_format : settings of the format, by name
    engine, engine_options : of xarray, which opens the file then, or icechunk; None for the formats that are known here
    """
    uri = os.fspath(uri)
    if engine is not None:
        from dpca.sources.xarray_files import XarraySource

        return _marked(XarraySource(uri, array, engine, engine_options), missing_values, read_seconds)
    kind = _kind(uri)
    if kind == "zarr":
        from dpca.sources.zarr_array import open_zarr

        source: Source = open_zarr(uri, array, absent_chunks, storage_options, library, column, of_format)
        return _marked(source, missing_values, read_seconds)
    alone = next((one for one in (*_FILES, *formats.FILES) if one.name == kind), None)
    if alone is not None and array is not None:
        raise InputError(
            f"{uri}: is itself an array, so it has no array {array!r}", f"Leave {INPUT.array} out.", key="input.array"
        )
    if kind != "hdf5" and column is not None:
        raise InputError(
            f"{uri}: is no AnnData container, so no table has column {column!r}",
            f"Leave {INPUT.features} out.",
            key="input.features",
        )
    if alone is not None:
        return _marked(alone.open(uri), missing_values, read_seconds)
    if kind == "netcdf3":
        return _marked(netcdf3.Netcdf3Source(uri, array), missing_values, read_seconds)
    from dpca.sources.hdf5 import open_hdf5

    return _marked(open_hdf5(uri, array, absent_chunks, column), missing_values, read_seconds)


def _npy(uri: str) -> Source:
    from dpca.sources.npy import NpySource

    return NpySource(uri)


def _nifti(uri: str) -> Source:
    from dpca.sources.nifti import NiftiSource

    return NiftiSource(uri)


def _pictures(uri: str) -> Source:
    from dpca.sources.pictures import PictureSource

    return PictureSource(uri)


def _table(uri: str) -> Source:
    from dpca.sources.tables import TableSource

    return TableSource(uri)


def _parquet(uri: str) -> Source:
    from dpca.sources.parquet import ParquetSource

    return ParquetSource(uri)


def _ends(*suffixes: str) -> Callable[[str, bytes], bool]:
    """Whether the name of a file ends so, perhaps before .gz."""
    return lambda path, _: path.lower().removesuffix(".gz").endswith(suffixes)


_NPY = FileFormat("npy", lambda _, head: head.startswith(_NPY_MAGIC), _npy)
_NIFTI = FileFormat("nifti", _ends(".nii"), _nifti)
_PICTURES = FileFormat("pictures", lambda _, head: head.startswith(_PICTURE_MAGICS), _pictures)
_FILES = (
    _NPY,
    _NIFTI,
    _PICTURES,
    FileFormat("parquet", lambda _, head: head.startswith(b"PAR1"), _parquet),
    FileFormat("table", _ends(".csv", ".tsv", ".tab"), _table),
)
"""Formats of files that are an array each."""
_OF_SAMPLES = {"nifti": (".nii", ".nii.gz"), "pictures": (".png", ".jpg", ".jpeg", ".tif", ".tiff")}
"""Endings of files of which each is a sample, or some, so that a folder of them is an input."""


def _marked(source: Source, markers: Sequence[float], read_seconds: float) -> Source:
    """The source with further markers of missing values, and a time limit on reads."""
    layout = source.layout
    markers = as_stored([*layout.missing_values, *markers], layout.dtype)
    source.layout = replace(layout, missing_values=markers, read_seconds=read_seconds)
    return source


def _kind(uri: str) -> str:
    """The format at a path or URL: zarr, npy, netcdf3, hdf5, or one of `dpca.sources.formats`."""
    remote = "://" in uri
    if not remote and not os.path.exists(uri):
        for parent in Path(uri).parents:
            if parent.is_file():
                raise InputError(
                    f"{uri}: does not exist: {parent} is a file",
                    f"{INPUT.uri.set_to(str(parent))} and {INPUT.array.at(str(Path(uri).relative_to(parent)))}.",
                    key="input.uri",
                )
        if _is_pattern(uri):
            before = re.match(r"[^*?[]*/", uri)
            folder = os.path.abspath(before[0] if before else ".")
            there = "" if os.path.isdir(folder) else ", which does not exist"
            raise InputError(
                f"{uri}: no file matches this pattern, looked for in {folder}{there}",
                f"Check {INPUT.uri}; patterns have *, ? and [...], as in a shell.",
                key="input.uri",
            )
        if uri.startswith("~"):
            raise InputError(f"{uri}: does not exist", "~ is not expanded: write the whole path.", key="input.uri")
        raise InputError(
            f"{uri}: does not exist",
            f"Check {INPUT.uri}; relative paths start at {os.getcwd()} (the current directory).",
            key="input.uri",
        )
    if remote or os.path.isdir(uri) or uri.endswith(".zip"):
        return "zarr"
    try:
        with regular.opened(uri) as file:
            head = file.read(8)
    except OSError as cause:
        raise InputError(f"{uri}: can't be read: {cause.strerror}", "Check its permissions.") from cause
    if not head:
        raise InputError(f"{uri}: is empty (0 bytes)", "Write it again, or name another file.", key="input.uri")
    if (known := next((one.name for one in _FILES if one.recognizes(uri, head)), None)) is not None:
        return known
    if (other := foreign.known_by(head)) is not None:
        raise foreign.refusal(uri, other)
    if (known := next((one.name for one in formats.FILES if one.recognizes(uri, head)), None)) is not None:
        return known
    if head.startswith(netcdf3.MAGICS):
        return "netcdf3"
    if is_hdf5(uri, head) or uri.endswith((".h5", ".hdf5", ".nc")):
        return "hdf5"
    raise foreign.refusal(uri)


def is_hdf5(path: str, head: bytes) -> bool:
    """Whether a regular file that begins with `head` is HDF5, whose signature may also follow a block of another program's
    own, as in .mat files of MATLAB 7.3 (HDF5 File Format Specification, "Superblock")."""
    if head.startswith(_HDF5_MAGIC):
        return True
    import h5py

    return bool(h5py.is_hdf5(path))


def list_arrays(uri: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    """Path, shape and dtype of every array at a path or URL, and whether it stands beside another one (`describes`, as
    `dpca.sources.anndata_layout.beside_others` says). Empty if an array itself is there.
    """
    uri = os.fspath(uri)
    kind = _kind(uri)
    if kind == "zarr":
        from dpca.sources.zarr_container import list_zarr

        arrays = list_zarr(uri, storage_options)
    elif kind == "hdf5":
        from dpca.sources.hdf5_container import list_datasets

        arrays = list_datasets(uri)
    elif kind == "netcdf3":
        arrays = netcdf3.list_variables(uri)
    else:
        arrays = []
    return [
        {"path": path, "shape": list(shape), "dtype": dtype, "describes": beside}
        for path, shape, dtype, beside in arrays
    ]


def is_data_array(data: Any) -> bool:
    """Whether an object is an xarray.DataArray, which none can be where xarray is not imported."""
    return "xarray" in sys.modules and isinstance(data, sys.modules["xarray"].DataArray)


def are_files(data: Any) -> bool:
    """Whether data are a path, an image of nibabel, or a list of such, which are joined along their samples."""
    each = data if isinstance(data, list | tuple) else [data]
    return bool(each) and all(isinstance(one, str | os.PathLike) or _is_image(one) for one in each)


def _is_image(data: Any) -> bool:
    return "nibabel" in sys.modules and isinstance(data, sys.modules["nibabel"].spatialimages.SpatialImage)


def _of_files(data: Any, samples_axis: SamplesAxis) -> Source:
    """The source of a path, of an image of nibabel, or of a list of such."""
    each = data if isinstance(data, list | tuple) else [data]
    if any(map(_is_image, each)):
        from dpca.sources.joining import join
        from dpca.sources.nifti import of_image

        sources = [of_image(one) if _is_image(one) else open_source(one) for one in each]
        return sources[0] if len(sources) == 1 else join(sources, samples_axis)
    return open_joined(expanded(list(map(os.fspath, each))), samples_axis)


def _check_array(data: Any) -> None:
    """Refuse an object that is not an array: a group, a file or a dictionary of arrays."""
    if "anndata" in sys.modules and isinstance(data, sys.modules["anndata"].AnnData):
        raise InputError(
            "X is an AnnData object, but a matrix is allowed",
            "Give its matrix: fit(adata.X), or fit(adata.layers['NAME']).",
        )
    if "xarray" in sys.modules and isinstance(data, sys.modules["xarray"].Dataset):
        variables = ", ".join(repr(name) for name in islice(data.data_vars, 12)) or "none"
        raise InputError(
            f"X is an xarray.Dataset with variables {variables}, but one array is allowed here",
            "Give one of them, X['NAME']; or, where all have the same dimensions, X.to_dataarray() holds them side by side, "
            "for which scale='std' makes their units comparable.",
        )
    if isinstance(data, Mapping) or ("zarr" in sys.modules and isinstance(data, sys.modules["zarr"].Group)):
        held = ", ".join(str(name) for name in islice(data.keys(), 12))
        raise InputError(
            f"X is a {type(data).__name__}, which holds {held or 'nothing'}", "Give one of its arrays: X['NAME']."
        )


def as_source(data: Any, samples_axis: SamplesAxis = 0) -> Source:
    """The source of an array in Python: NumPy, scipy.sparse, Dask, zarr.Array, h5py.Dataset or xarray.DataArray; or of a path, an image of
    nibabel, or a list of such, which are joined along `samples_axis`.

    Sparse matrices of AnnData on disk are taken as well: a group of zarr or h5py, or what a backed AnnData has in its place.

    Anything else is passed to numpy.asarray, as scikit-learn does. Packages that are not imported yet
    are not imported here: no object can come from them.
    """
    if type(data).__module__.startswith("anndata."):  # a sparse matrix of a backed AnnData
        data = getattr(data, "group", data)
    if "zarr" in sys.modules and isinstance(data, sys.modules["zarr"].Group) and (matrix := Sparse.of(data)):
        from dpca.sources import zarr_array

        return zarr_array.of_group(data, matrix)
    if "h5py" in sys.modules and isinstance(data, sys.modules["h5py"].Group) and (matrix := Sparse.of(data)):
        from dpca.sources import hdf5

        return hdf5.of_group(data, matrix)
    if "scipy.sparse" in sys.modules and sys.modules["scipy.sparse"].issparse(data):
        from dpca.sources.sparse import SparseSource

        return SparseSource.of(data)
    if are_files(data):
        return _of_files(data, samples_axis)
    _check_array(data)
    dims: tuple[str | None, ...] = ()
    coordinates: dict[int, Coordinate] = {}
    auxiliaries: tuple[Auxiliary, ...] = ()
    units, long_name, name = "", "", "the NumPy array"
    if is_data_array(data):
        from dpca.sources.xarray_labels import labels_of, values_of

        units, long_name = str(data.attrs.get("units", "")), cf.long_name_of(data.attrs)
        name = "the DataArray" if data.name is None else f"the DataArray {data.name}"
        (dims, coordinates, auxiliaries), data = labels_of(data), values_of(data)
    if "dask.array" in sys.modules and isinstance(data, sys.modules["dask.array"].Array):
        from dpca.sources.dask_array import DaskSource

        return DaskSource(
            data, dims, coordinates=coordinates, auxiliaries=auxiliaries, units=units, long_name=long_name
        )
    if "zarr" in sys.modules and isinstance(data, sys.modules["zarr"].Array):
        from dpca.sources.zarr_array import ZarrSource

        return ZarrSource(data)
    if "h5py" in sys.modules and isinstance(data, sys.modules["h5py"].Dataset):
        from dpca.sources.hdf5 import Hdf5Source

        return Hdf5Source.of(data)
    from dpca.sources.memory import MemorySource

    values = data if isinstance(data, np.ma.MaskedArray) else np.asarray(data)
    return MemorySource(values, dims, name, coordinates, auxiliaries, units, long_name)
