"""Pictures of PNG, JPEG and TIFF, one file a sample, (picture, y, x) or (picture, y, x, colour); a TIFF of several pages is as many samples.

The only file that knows Pillow and tifffile (extra `pictures`). A picture is decoded whole.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpca.errors import DataError, InputError
from dpca.sources.base import Layout, Reader, Region, Source, check_dtype, size_of
from dpca.sources.coordinate import Coordinate, Parts
from dpca.sources.file import FileSource
from dpca.system import regular

DIMS = ("picture", "y", "x", "colour")
PLAIN = (1, 8, 32773, 32946)
"""Compressions of TIFF that need no further package: none, deflate, packbits."""
COLOURS = ("red", "green", "blue", "alpha")
MODES = {
    "1": (),
    "L": (),
    "I": (),
    "F": (),
    "I;16": (),
    "I;16B": (),
    "LA": COLOURS[:2],
    "RGB": COLOURS[:3],
    "RGBA": COLOURS,
}
"""Modes of Pillow whose values are as they are stored, and their colours; others, such as of palettes, are shown as red, green and blue."""


class PictureSource(FileSource):
    """A picture, or the pages of a TIFF.

    Parameters
    ----------
    path : the file
    alone : whether the only picture is shown without an axis of its own, as masks are
    """

    kind = "pictures"

    def __init__(self, path: str | Path, alone: bool = False) -> None:
        super().__init__(path)
        self.tiff = _is_tiff(self.path)
        self.shape, dtype, self.n_colours = _described(self.path, self.tiff)
        self._alone = alone
        layout_shape = self.shape[1:] if alone else self.shape
        self.layout = Layout(
            self.path,
            layout_shape,
            check_dtype(self.path, dtype),
            (1, *self.shape[1:])[alone:],
            codec=os.path.splitext(self.path)[1].lstrip(".").lower() or "picture",
            dims=DIMS[: len(self.shape)][alone:],
        )

    @property
    def only(self) -> Source:
        return self if self.shape[0] > 1 else PictureSource(self.path, alone=True)

    def held(self, shape: tuple[int, ...]) -> dict[str, int]:
        whole = size_of(self.shape[1:], self.layout.dtype)
        return {"slab": size_of(shape, self.layout.dtype), "picture as it is decoded, and its file": 3 * whole}

    @contextmanager
    def open(self) -> Iterator[Reader]:
        yield _PictureReader(self, self._alone)

    def page(self, number: int) -> NDArray[Any]:
        """One of the pictures, (y, x) or (y, x, colour)."""
        if self.tiff:
            import tifffile

            values = tifffile.imread(self.path, key=number)
        else:
            from PIL import Image

            with Image.open(self.path) as picture:
                values = np.asarray(picture if picture.mode in MODES else picture.convert("RGB"))
        if values.shape != self.shape[1:] or values.dtype != self.layout.dtype:
            raise DataError(
                f"{self.path}: picture {number} has shape {values.shape} and dtype {values.dtype}, but the first has {self.shape[1:]} and "
                f"{self.layout.dtype}",
                "Write it as a file of its own, and choose which are read.",
            )
        return values

    def coordinate(self, axis: int) -> Coordinate | None:
        """Names of pictures, by those of their files, and of colours."""
        if axis == 0:
            stem = os.path.splitext(os.path.basename(self.path))[0]
            names = [stem] if self.shape[0] == 1 else [f"{stem}:{number}" for number in range(self.shape[0])]
        elif axis == len(DIMS) - 1 and self.n_colours != 2:
            names = list(COLOURS[: self.n_colours])
        else:
            return None
        values = np.array(names, np.dtypes.StringDType())
        return Coordinate(DIMS[axis], values, Parts.of(values.dtype))


class _PictureReader(Reader):
    def __init__(self, source: PictureSource, alone: bool) -> None:
        super().__init__(source.layout)
        self._source, self._alone = source, alone

    def _read(self, region: Region) -> NDArray[Any]:
        pages, *place = (slice(0, 1), *region) if self._alone else region
        shape = (pages.stop - pages.start, *(piece.stop - piece.start for piece in place))
        out = self._buffer.view(shape, self.layout.dtype)
        for number in range(pages.start, pages.stop):
            out[number - pages.start] = self._source.page(number)[tuple(place)]
        return out[0] if self._alone else out

    def coordinate(self, axis: int) -> Coordinate | None:
        return self._source.coordinate(axis + self._alone)


def _described(path: str, tiff: bool) -> tuple[tuple[int, ...], np.dtype[Any], int]:
    """Shape with the number of pictures first, type of values, and number of colours, 0 for grey."""
    try:
        if tiff:
            import tifffile

            with tifffile.TiffFile(path) as file:
                pages, first = len(file.pages), file.pages[0]
                shape, dtype = tuple(map(int, first.shape)), np.dtype(first.dtype)
                file.filehandle.seek(file.pages.next_page_offset or 0)
                if any(file.filehandle.read(file.tiff.offsetsize)):  # the place of a page that is not there
                    raise ValueError(f"it ends after {pages} pages, and further ones follow")
                if getattr(first, "photometric", None) == tifffile.PHOTOMETRIC.PALETTE:
                    raise ValueError("its values are places in a palette")
                if first.compression not in PLAIN:
                    first.asarray()  # says which package is needed
        else:
            from PIL import Image

            with Image.open(path) as picture:
                if (n_frames := getattr(picture, "n_frames", 1)) > 1:
                    raise ValueError(f"it has {n_frames} frames")
                if picture.format == "PNG" and _png_bits(path) == 16 and picture.mode not in ("I", "I;16"):
                    raise ValueError("Pillow reads 8 of its 16 bits of a colour: write it as TIFF")
                mode = picture.mode if picture.mode in MODES else "RGB"
                colours = (len(MODES[mode]),) if MODES[mode] else ()
                pages, shape = 1, (picture.height, picture.width, *colours)
                dtype = np.asarray(Image.new(mode, (1, 1))).dtype
    except ImportError as cause:
        raise InputError(
            f"{path}: is a picture, which {cause.name} reads, and that is not installed",
            "pip install pillow tifffile, or pip install '.[pictures]' in the clone.",
            key="input.uri",
        ) from cause
    except Exception as cause:  # of any type, by what is damaged
        raise InputError(
            f"{path}: can't be read as a picture: {cause}", "Restore it from its source.", key="input.uri"
        ) from cause
    if len(shape) not in (2, 3) or (len(shape) == 3 and shape[2] > len(COLOURS)) or not math.prod(shape):
        raise InputError(
            f"{path}: has pictures of shape {shape}, but grey ones (y, x) and those of up to {len(COLOURS)} colours (y, x, colour) are allowed",
            "Write it as a Zarr array, or as a stack of grey pages.",
            key="input.uri",
        )
    return (pages, *shape), dtype, shape[2] if len(shape) == 3 else 0


def _png_bits(path: str) -> int:
    """Bits of a value of a PNG (PNG specification, IHDR)."""
    with regular.opened(path) as file:
        return file.read(25)[24]


def _is_tiff(path: str) -> bool:
    with regular.opened(path) as file:
        return file.read(2) in (b"II", b"MM")


def write_picture(values: NDArray[np.float64], path: Path) -> None:
    """Write a map, (y, x) or (y, x, colour), as a PNG: 0 is the middle of grey, and the largest size black or white; NaN is the middle."""
    from PIL import Image

    found = np.nan_to_num(np.asarray(values, np.float64))
    largest = np.abs(found).max(initial=0) or 1.0
    shown = np.round(127.5 + 127.5 * found / largest).astype(np.uint8)
    Image.fromarray(shown[..., :3] if shown.ndim == 3 else shown).save(path, format="PNG")
