"""HDF5 files, and the other files that a virtual dataset is made of."""

from __future__ import annotations

import math
import os
from contextlib import suppress
from typing import Any

import h5py
import hdf5plugin  # noqa: F401  registers its filters with HDF5

from dpca.errors import InputError
from dpca.slabs import extent
from dpca.sources.base import Region, within
from dpca.sources.cf import text_of
from dpca.sources.hdf5_chunks import StoredChunks
from dpca.system import regular

MOST_VIRTUAL = 16
"""Deepest allowed nesting of virtual datasets: HDF5 follows them by recursion, on the stack."""
_COPY = "Copy the values into one file (h5repack)."


def opened(path: str) -> h5py.File:
    """A file, opened for reading, without a cache: no chunk is read twice, and HDF5 reads a part of an
    uncompressed chunk only if the whole chunk does not fit into the cache."""
    try:
        regular.opened(path).close()  # HDF5 would wait for a pipe
        return h5py.File(path, "r", rdcc_nbytes=0)
    except OSError as cause:
        raise InputError(
            f"{path}: not readable as HDF5: {cause}", "Check that the file is whole and that no one writes it."
        ) from cause


def elsewhere(dataset: h5py.Dataset) -> bool:
    """Whether values lie in other files, which could be any file."""
    return bool(dataset.is_virtual or dataset.external)


def filters_of(dataset: h5py.Dataset) -> str:
    """Names of a dataset's filters, in HDF5's own order."""
    properties = dataset.id.get_create_plist()
    filters = [properties.get_filter(number) for number in range(properties.get_nfilters())]
    return ", ".join(text_of(name).split(";")[0] or f"filter {code}" for code, _, _, name in filters) or "none"


def files_behind(dataset: h5py.Dataset) -> list[str]:
    """The other files with values of a dataset: those of the parts of a virtual dataset, recursively."""
    files: dict[str, None] = {}
    visited: set[tuple[str, str]] = set()

    def visit(dataset: h5py.Dataset, above: tuple[tuple[str, int], ...]) -> None:
        name = f"{dataset.file.filename}:{dataset.name}"
        this = os.path.realpath(dataset.file.filename), h5py.h5o.get_info(dataset.id).addr
        if this in above or len(above) == MOST_VIRTUAL:
            what = "of itself" if this in above else f"of more than {MOST_VIRTUAL} others, each of the next"
            raise InputError(f"{name}: is a virtual dataset that is a part {what}", _COPY)
        if dataset.external:
            # HDF5 looks for a relative name in the directory in which it runs, which workers do not share.
            raise InputError(f"{name}: has its values in external storage, {dataset.external[0][0]}", _COPY)
        for part in dataset.virtual_sources() if dataset.is_virtual else ():
            path = _source_path(dataset, part)
            if part.file_name != ".":
                files[path] = None
            if (path, part.dset_name) not in visited:
                file, source = _open_part(dataset, part)
                with file:
                    visit(source, (*above, this))
                visited.add((path, part.dset_name))

    visit(dataset, ())
    return list(files)


def _open_part(dataset: h5py.Dataset, part: Any) -> tuple[h5py.File, h5py.Dataset]:
    """A part of a virtual dataset, with its file, which the caller closes."""
    whole, path = f"{dataset.file.filename}:{dataset.name}", _source_path(dataset, part)
    # HDF5 knows the variable as it was when it started as well.
    prefix = os.environ.get("HDF5_VDS_PREFIX") or dataset.id.get_access_plist().get_virtual_prefix().decode()
    if prefix:
        raise InputError(
            f"{whole}: is a virtual dataset, and HDF5 would look for its parts in {prefix}, by HDF5_VDS_PREFIX",
            "Unset HDF5_VDS_PREFIX, and put the files side by side.",
        )
    if not os.path.exists(path):
        raise InputError(
            f"{whole}: is a virtual dataset, and its source file {part.file_name} is absent",
            f"Put the file back: {path}.",
        )
    file = opened(path)
    source = None
    with suppress(OSError):  # a link to a missing file
        source = file.get(part.dset_name)
    if not isinstance(source, h5py.Dataset):
        raise InputError(
            f"{whole}: is a virtual dataset, and its source {path}:{part.dset_name} is absent", "Put it back."
        )
    if h5py.h5o.get_info(source.id).fileno != h5py.h5o.get_info(file.id).fileno:
        raise InputError(
            f"{whole}: is a virtual dataset, and its source {path}:{part.dset_name} is a link to another file, "
            f"{source.file.filename}",
            "Name that file in the virtual dataset, or copy the values into one file (h5repack).",
        )
    return file, source


class Checks:
    """Checks of stored chunks before HDF5 decodes them; for a virtual dataset, of the chunks of its parts."""

    def __init__(self, dataset: h5py.Dataset) -> None:
        self._dataset, self._chunks = dataset, StoredChunks.of(dataset)
        parts = dataset.virtual_sources() if dataset.is_virtual else []
        self._parts = {number: (part, _box(part.vspace, dataset.shape)[0]) for number, part in enumerate(parts)}
        self._met: dict[int, tuple[h5py.File, h5py.Dataset, Checks]] = {}
        """Parts met so far, with their open files: HDF5 keeps them open as well."""

    def __bool__(self) -> bool:
        return self._chunks is not None or bool(self._parts)

    def check(self, region: Region) -> None:
        """Refuse a region if one of its chunks does not hold as many bytes as belong there."""
        if self._chunks is not None:
            self._chunks.check(region)
        for number, (part, place) in list(self._parts.items()):
            if any(
                piece.start >= box.stop or piece.stop <= box.start for piece, box in zip(region, place, strict=True)
            ):
                continue
            if number not in self._met:
                file, source = _open_part(self._dataset, part)
                self._met[number] = file, source, Checks(source)
            _, source, inside = self._met[number]
            if inside:
                inside.check(_of_part(region, part, self._dataset.shape, source.shape))
            else:  # no chunk of this part is compressed
                del self._parts[number], self._met[number]


def _box(space: Any, shape: tuple[int, ...]) -> tuple[Region, bool]:
    """The bounding box of a selection, and whether the selection fills it."""
    everything = tuple(slice(0, length) for length in shape)
    if space.get_select_type() == h5py.h5s.SEL_ALL:
        return everything, True
    try:
        corners, n_values = zip(*space.get_select_bounds(), shape, strict=True), space.get_select_npoints()
    except RuntimeError:  # an unlimited selection, where the dataset may grow
        return everything, False
    box = tuple(slice(first, min(last + 1, length)) for first, last, length in corners)
    return box, math.prod(extent(box)) == n_values


def _of_part(region: Region, part: Any, whole: tuple[int, ...], shape: tuple[int, ...]) -> Region:
    """The region of a part that a region of the virtual dataset reads; all that is used of the part where that is unclear."""
    (place, full), (source, full_source) = _box(part.vspace, whole), _box(part.src_space, shape)
    lead = len(place) - len(source)
    lengths, of_source = (extent(box) for box in (place, source))
    if not (full and full_source and lead >= 0 and lengths == (1,) * lead + of_source):
        return source
    inside = within(tuple(map(_common, region, place)), place)[lead:]
    return tuple(slice(p.start + s.start, p.stop + s.start) for p, s in zip(inside, source, strict=True))


def _common(one: slice, other: slice) -> slice:
    return slice(max(one.start, other.start), min(one.stop, other.stop))


def _source_path(dataset: h5py.Dataset, part: Any) -> str:
    """The file of a part of a virtual dataset, whose name is relative to the folder of that dataset."""
    whole: str = dataset.file.filename
    for name in (part.file_name, part.dset_name):
        if "%" in name:
            raise InputError(
                f"{whole}:{dataset.name}: is a virtual dataset with the pattern {name} in place of a source, and only names "
                "without % are allowed",
                _COPY,
            )
    return whole if part.file_name == "." else str(os.path.join(os.path.dirname(whole), part.file_name))


def chunks_behind(dataset: h5py.Dataset) -> tuple[tuple[int, ...] | None, str]:
    """Chunk shape (None without chunks) and filters of a virtual dataset, taken from its first source.

    Sources with fewer axes have the trailing axes of the whole, as when files of one sample each are stacked.
    If the chunks of the sources do not form a regular grid, the whole counts as one chunk.
    """
    parts = dataset.virtual_sources()
    if not parts:
        return None, "none"
    first, ndim = parts[0], dataset.ndim
    file, source = _open_part(dataset, first)
    with file:
        if source.chunks is None:
            return None, "none"
        chunks = (1,) * (ndim - source.ndim) + source.chunks[-ndim:]
        boxes = [_box(part.vspace, dataset.shape)[0] for part in parts]
        aligned = all(piece.start % chunk == 0 for box in boxes for piece, chunk in zip(box, chunks, strict=True))
        return chunks if aligned else dataset.shape, filters_of(source)
