"""Images of NIfTI, .nii and .nii.gz, volumes first: (volume, x, y, z). The only file that knows nibabel (extra `nifti`), which reads and writes headers.

Values of a .nii are read by offset, slices of all volumes at a time. A .nii.gz is one stream, which is decoded from its beginning. The standard:
"NIfTI-1 Data Format", Neuroimaging Informatics Technology Initiative, 2005.
"""

from __future__ import annotations

import base64
import gzip
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self, cast

import numpy as np
from numpy.typing import NDArray

from dpca.errors import InputError, StorageError
from dpca.slabs import extent
from dpca.sources.base import Layout, Reader, Region, Source, check_dtype, size_of
from dpca.sources.coordinate import Coordinate, Parts
from dpca.sources.facts import A, Facts, Kinds
from dpca.sources.file import FileSource
from dpca.sources.memory import MemorySource
from dpca.sources.runs import read_block
from dpca.system import regular

DIMS = ("volume", "x", "y", "z")
MILLIMETRES = 1e-4
"""Affines that differ by less are of one space: headers hold single precision."""


@dataclass(frozen=True, eq=False)
class VoxelSpace(Facts):
    """Where the voxels of an image lie."""

    affine: NDArray[np.float64]
    """From indices of a voxel to places in the space of the header, mostly in mm, (4, 4)."""
    header: bytes
    """The header of the image, of which units, codes of the space and sizes of voxels are used."""

    of_samples: ClassVar = False

    def of(self, chosen: NDArray[np.int64]) -> Self:
        return self

    @classmethod
    def joined(cls, names: Sequence[str], each: Sequence[Self | None]) -> Self | None:
        """That of all images; refuses those in other spaces than the first."""
        first = each[0]
        for name, one in zip(names, each, strict=True):
            if first is not None and one is not None:
                first.check(names[0], name, one)
        return first

    def check(self, name: str, other_name: str, other: VoxelSpace) -> None:
        """Refuse an image whose voxels lie elsewhere than those of this one."""
        if not np.allclose(self.affine, other.affine, rtol=0, atol=MILLIMETRES):
            raise InputError(
                f"{other_name}: its voxels lie elsewhere than those of {name}: the affines are {_rows(other.affine)} and {_rows(self.affine)}",
                "Resample all images to one space first, such as with nilearn.image.resample_to_img.",
                key="input.uri",
            )

    @property
    def facts(self) -> dict[str, Any]:
        """Affine and header, for JSON."""
        return {"affine": self.affine.tolist(), "header": base64.b64encode(self.header).decode()}

    @classmethod
    def in_facts(cls, facts: Mapping[str, Any]) -> Self | None:
        """That of a fingerprint, which may be of several files; None for one of no image."""
        each: Mapping[str, Mapping[str, Any]] = facts.get("files") or {"": facts}
        found = next(iter(each.values()), {}).get("space")
        return found and cls(np.array(found["affine"], np.float64), base64.b64decode(found["header"]))


def _rows(affine: NDArray[np.float64]) -> str:
    return "; ".join(" ".join(f"{value:.5g}" for value in row) for row in affine[:3])


def read_image(path: str) -> Any:
    """The image of a file, whose values are not read yet."""
    try:
        import nibabel
    except ImportError as cause:
        raise InputError(
            f"{path}: is an image of NIfTI, which nibabel reads, and that is not installed",
            "pip install nibabel, or pip install '.[nifti]' in the clone.",
            key="input.uri",
        ) from cause
    try:
        image = nibabel.load(path)
    except Exception as cause:  # of any type, by what is damaged
        raise InputError(
            f"{path}: its header can't be read as one of NIfTI: {cause}", "Restore it from its source.", key="input.uri"
        ) from cause
    if not isinstance(image, nibabel.Nifti1Pair):
        raise InputError(
            f"{path}: is {type(image).__name__}, but images of NIfTI-1 and NIfTI-2 are allowed",
            "Convert it to one of voxels.",
            key="input.uri",
        )
    return image


class _OfVoxels(Source):
    """An image whose voxels lie somewhere, in a file or in memory: a mixin before the class that reads its values."""

    space: VoxelSpace

    @property
    def knows(self) -> Kinds:
        return (VoxelSpace,)

    def about(self, kind: type[A]) -> A | None:
        return cast(A, self.space) if kind is VoxelSpace else None

    def fingerprint(self) -> dict[str, Any]:
        return {**super().fingerprint(), "space": self.space.facts}  # type: ignore[safe-super]  # that of the next class


class NiftiSource(_OfVoxels, FileSource):
    """An image. Of one volume, which is one sample, or of several, such as those of a time series.

    Parameters
    ----------
    path : the file
    alone : whether the only volume is shown without an axis of its own, as masks are
    """

    kind = "nifti"

    def __init__(self, path: str | Path, alone: bool = False) -> None:
        super().__init__(path)
        image = read_image(self.path)
        values = image.dataobj
        shape = tuple(map(int, values.shape))
        while len(shape) > 4 and shape[-1] == 1:
            shape = shape[:-1]
        shape = (*shape, *(1,) * (3 - len(shape)))
        if len(shape) > 4 or 0 in shape:
            raise InputError(
                f"{self.path}: has shape {shape}, but images of x, y and z, and of several volumes of these, are allowed",
                "Write it as one volume a sample.",
                key="input.uri",
            )
        self.shape = (shape[3] if len(shape) == 4 else 1, *shape[:3])
        """Volumes, x, y and z."""
        self._series, self._alone = len(shape) == 4, alone
        self.offset, self.packed = int(values.offset), self.path.lower().endswith(".gz")
        self.space = VoxelSpace(np.asarray(image.affine, np.float64), bytes(image.header.binaryblock))
        self._check_whole(np.dtype(values.dtype))
        self.layout = Layout(
            self.path,
            self.shape[1:] if alone else self.shape,
            check_dtype(self.path, np.dtype(values.dtype)),
            (self.shape if self.packed else (1,) * 4)[alone:],
            codec="gzip" if self.packed else "none",
            order="F",
            dims=DIMS[alone:],
            packing=(float(values.slope), float(values.inter)),
            remarks=("a .nii.gz is decoded by one thread, from its beginning: gunzip it for faster reads",)
            if self.packed and self._series
            else (),
        )

    def _check_whole(self, dtype: np.dtype[Any]) -> None:
        size, expected = os.path.getsize(self.path), self.offset + size_of(self.shape, dtype)
        if not self.packed and size < expected:
            raise InputError(
                f"{self.path}: has {size:,} bytes, but by its header values of shape {self.shape} end at byte {expected:,}",
                "It was truncated: copy it again from its source.",
                key="input.uri",
            )

    @property
    def only(self) -> Source:
        return self if self.shape[0] > 1 else NiftiSource(self.path, alone=True)

    def held(self, shape: tuple[int, ...]) -> dict[str, int]:
        held = {"slab, and its axes in their order": 2 * size_of(shape, self.layout.dtype)}
        if self.packed:
            held["volume as it is decoded, and its bytes"] = 2 * size_of(self.shape[1:], self.layout.dtype)
        return held

    @contextmanager
    def open(self) -> Iterator[Reader]:
        with regular.opened(self.path) as file:
            yield _NiftiReader(self, file, self._alone)

    def coordinate(self, axis: int) -> Coordinate | None:
        """The name of the file of a single volume, and places of voxels where the axes of the space are those of the image."""
        if axis == 0:
            if self._series:
                return None
            name = os.path.basename(self.path).removesuffix(".gz").removesuffix(".nii")
            names = np.array([name], np.dtypes.StringDType())
            return Coordinate(DIMS[0], names, Parts.of(names.dtype))
        turn = self.space.affine[:3, :3]
        if np.count_nonzero(turn) > 3 or not turn.diagonal().all():
            return None
        places = self.space.affine[axis - 1, 3] + turn[axis - 1, axis - 1] * np.arange(self.shape[axis])
        return Coordinate(DIMS[axis], places, Parts.of(places.dtype), {"units": "mm"})


class _NiftiReader(Reader):
    def __init__(self, source: NiftiSource, file: Any, alone: bool) -> None:
        super().__init__(source.layout)
        self._file, self._source, self._alone = file, source, alone

    def _read(self, region: Region) -> NDArray[Any]:
        volumes, *place = (slice(0, 1), *region) if self._alone else region
        # A file has the last axis first.
        stored = (volumes, *place[::-1])
        out = self._buffer.view(extent(stored), self.layout.dtype)
        if self._source.packed:
            self._decode(volumes, place, out)
        else:
            shape = (self._source.shape[0], *self._source.shape[:0:-1])
            read_block(self._file, self._source.offset, shape, stored, out, self.layout.name)
        values = out.transpose(0, 3, 2, 1)
        return values[0] if self._alone else values

    def _decode(self, volumes: slice, place: Sequence[slice], out: NDArray[Any]) -> None:
        shape = self._source.shape[1:]
        size = size_of(shape, self.layout.dtype)
        self._file.seek(0)
        with gzip.GzipFile(fileobj=self._file) as file:
            _skip(file, self._source.offset)
            for number in range(volumes.stop):
                content = file.read(size)
                if len(content) < size:
                    raise StorageError(
                        f"{self.layout.name}: ends within volume {number}", "Restore it from its source."
                    )
                if number >= volumes.start:
                    values = np.frombuffer(content, self.layout.dtype).reshape(shape[::-1])
                    out[number - volumes.start] = values[tuple(place[::-1])]

    def coordinate(self, axis: int) -> Coordinate | None:
        return self._source.coordinate(axis + self._alone)


def _skip(file: gzip.GzipFile, n_bytes: int) -> None:
    while n_bytes:
        n_bytes -= len(file.read(min(n_bytes, 2**20))) or n_bytes


def image_bytes(values: NDArray[np.float32], space: VoxelSpace) -> bytes:
    """The content of a .nii of volumes, (n, x, y, z), as an image (x, y, z, n); NaN becomes 0."""
    import nibabel

    kind, like = (nibabel.Nifti1Image, nibabel.Nifti1Header(space.header, check=False)) if len(space.header) < 500 else (
        nibabel.Nifti2Image, nibabel.Nifti2Header(space.header, check=False)
    )  # fmt: skip
    image = kind(np.moveaxis(np.nan_to_num(np.asarray(values, np.float32)), 0, -1), space.affine)
    image.header.set_xyzt_units(like.get_xyzt_units()[0])
    for name, put in (("sform_code", image.set_sform), ("qform_code", image.set_qform)):
        if code := int(like[name]):
            put(space.affine, code)
    content: bytes = image.to_bytes()
    return content


def of_image(image: Any) -> Source:
    """The source of an image of nibabel: of its file, where its values and its affine are those of the file, else of its values in memory."""
    import nibabel

    path, values = image.get_filename(), image.dataobj
    if (
        isinstance(image, nibabel.Nifti1Pair)
        and path is not None
        and nibabel.is_proxy(values)
        and not image.in_memory  # values that were read may have been changed
        and getattr(values, "file_like", None) == path
        and path.lower().removesuffix(".gz").endswith(".nii")
        and os.path.isfile(path)
    ):
        source = NiftiSource(os.path.abspath(path))
        if np.array_equal(source.space.affine, image.affine):
            return source
    return MemoryImage(image)


class MemoryImage(_OfVoxels, MemorySource):
    """An image in memory."""

    def __init__(self, image: Any, alone: bool = False) -> None:
        import nibabel

        values = (
            image.get_fdata() if nibabel.is_proxy(image.dataobj) and image.in_memory else np.asanyarray(image.dataobj)
        )
        values = np.moveaxis(values, -1, 0) if values.ndim == 4 else values[None]
        super().__init__(values[0] if alone else values, DIMS[alone:], "the image")
        affine = np.asarray(image.affine, np.float64)
        like = (
            image
            if isinstance(image, nibabel.Nifti1Pair)
            else nibabel.Nifti1Image(np.zeros((1, 1, 1), np.uint8), affine)
        )
        self._image, self.space = image, VoxelSpace(affine, bytes(like.header.binaryblock))

    def restrict(self, region: Region) -> Self:
        part = super().restrict(region)
        part.space = self.space
        return part

    @property
    def only(self) -> Source:
        return self if self.layout.shape[0] > 1 else MemoryImage(self._image, alone=True)
