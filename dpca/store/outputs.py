"""The arrays of a result: a Zarr v3 group with named dimensions, written tile by tile or whole."""

from __future__ import annotations

import asyncio
import math
import operator
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import copy
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Self

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.api.asynchronous import create_array
from zarr.codecs import ZstdCodec
from zarr.core.array_spec import ArrayConfigParams
from zarr.core.buffer import Buffer, default_buffer_prototype
from zarr.core.group import GroupMetadata
from zarr.core.sync import sync
from zarr.storage import LocalStore

from dpca.errors import StorageError, writing
from dpca.slabs import CHUNK_BYTES, MIN_SPANS, TILE_BYTES, Box, Cuts, Plan, grow
from dpca.sources.base import describe
from dpca.sources.coordinate import Coordinate, Parts
from dpca.sources.zarr_array import CHUNKS_AT_ONCE
from dpca.sources.zarr_store import watched
from dpca.store import meanings
from dpca.store.stored import COORDINATES, LABELS, SAMPLES_AXES, Stored, chunks_in, described
from dpca.store.synced import SyncedStore
from dpca.system import durable

FORMAT_VERSION = 2
"""The version of the format of results. Version 1 always named the samples' axis `sample`, and kept no inventory."""


def held_to_write(n_bytes: int) -> int:
    """Memory that zarr takes to write `n_bytes`: the chunks in progress, as they are and encoded."""
    return 2 * min(n_bytes, CHUNKS_AT_ONCE * TILE_BYTES)


TILED = frozenset(
    {"mean", "scale", "weights", "regression", "group_scale", "components", "scores", "alpha"}
    | {"weighted_components", "rotated_components", "rotated_scores"}
)
"""Arrays whose chunks may be tiles, also those of several groups of features, `mean_NAME`."""
_OF_TILES = re.compile(rf"({'|'.join(sorted(TILED))})(_.*)?")

COMPONENT, ROTATED_COMPONENT, REGRESSOR, SAMPLE_GROUP = "component", "rotated_component", "regressor", "sample_group"
"""Dimensions of arrays of tiles beside those of features or samples."""

AGAIN = "Check the disk. What is damaged is computed again."
"""The remedy of damage; how to go on is said by the command that met it."""

Kind = tuple[tuple[int, ...], tuple[int, ...], np.dtype[Any], Any]
"""Shape, chunks, type and fill value of an array."""

ON_THE_WAY = "_~"
"""Mark in the names of arrays that are none of the result, and in no others: those of groups of features, which end names, have no ~."""
ASIDE = f"{ON_THE_WAY}in_other_chunks"
"""The suffix of the name of a copy that is about to replace the array."""


def pending_name(name: str, stage: str) -> str:
    """Name of an array while a stage writes it: a task that comes late, after the stage, writes where nobody reads."""
    return name + ON_THE_WAY + re.sub(r"\W+", "_", f"in hand of {stage}")


CHECKED = ZstdCodec(level=0, checksum=True)
"""zarr's default compression, with a checksum, so that no reader takes damaged chunks for numbers."""

WRITTEN_WHEN_EMPTY: ArrayConfigParams = {"write_empty_chunks": True}
"""A chunk that holds only the fill value is written too, so that a lost chunk is not taken for one of zeros."""

TOGETHER_BYTES = 2**20
"""Most bytes of arrays that wait for each other in `Outputs.together`: they are held in memory, as they are and encoded."""


@dataclass(frozen=True)
class Whole:
    """An array that is written whole."""

    values: NDArray[Any]
    chunks: tuple[int, ...]
    dtype: Any
    dims: tuple[str, ...]
    attributes: dict[str, Any]


class Outputs:
    """A group of arrays under construction, also one that a resumed run has partly written.

    Parameters
    ----------
    store : the store of a directory, or its path
    guard : a lock, held while a tile is written into chunks that other tasks may write too, which happens only
        where slabs have no regular grid; picklable if tasks run in other processes
    """

    def __init__(self, store: LocalStore | str, guard: AbstractContextManager[Any] | None = None) -> None:
        self.store = store
        self._guard = guard
        self._arrays: dict[str, zarr.Array[Any]] = {}
        self._waiting: dict[str, Whole] | None = None
        """Arrays that are written at the end of `together`; None outside of it."""
        self.unit: str | None = None
        """The unit of centred, scaled and weighted data; None where it is not known."""
        self._unnumbered: dict[str, int] = {}
        self._numbered: dict[str, int] = {}
        """The lengths of axes of components, by the name of their coordinate, before and after their numbers are written."""
        self._may_be_unwritten: set[str] = set()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_arrays": {}, "_waiting": None}

    def guarded_by(self, guard: AbstractContextManager[Any]) -> Self:
        """This group with a lock for chunks that several tasks write."""
        guarded = copy(self)
        guarded._guard = guard
        return guarded

    @property
    def root(self) -> str:
        """The path of the group."""
        return str(getattr(self.store, "root", self.store))

    @property
    def directory(self) -> str | None:
        """The directory that the group lies in; None where it is in memory."""
        return str(self._root.absolute().parent)

    @contextmanager
    def together(self) -> Iterator[None]:
        """In this block small arrays wait for each other, and are written by one round trip to zarr's event loop, which takes longer than writing one.

        All are there when the block ends. If it raises, those that wait are not written.
        """
        if self._waiting is not None:  # within another such block
            yield
            return
        self._waiting = {}
        try:
            yield
            self._put(self._waiting)
        finally:
            self._waiting = None

    def _put(self, arrays: Mapping[str, Whole]) -> None:
        """Write whole arrays; those of these names are replaced."""

        async def put(name: str, whole: Whole) -> None:
            with writing(self._called(name)):
                array = await create_array(
                    self.store,
                    name=name,
                    overwrite=True,
                    shape=whole.values.shape,
                    chunks=whole.chunks or "auto",
                    dtype=whole.dtype,
                    compressors=CHECKED,
                    dimension_names=whole.dims,
                    attributes=meanings.described(name, whole.attributes, self.unit),
                )
                await array.with_config(WRITTEN_WHEN_EMPTY).setitem(..., whole.values)

        async def put_all() -> list[BaseException | None]:
            return await asyncio.gather(*(put(name, whole) for name, whole in arrays.items()), return_exceptions=True)

        for name, whole in arrays.items():
            self._count(name, whole.values.shape, whole.dims)
        arrays = {**arrays, **self._numbers()}
        for name in arrays:
            self._arrays.pop(name, None)
        failures = [failure for failure in sync(put_all()) if failure is not None] if arrays else []
        if failures:
            raise failures[0]

    def create(self, attributes: Mapping[str, Any]) -> None:
        """Create the group, unless it exists."""
        self._create_group("", {"format_version": FORMAT_VERSION, **attributes})

    def create_group(self, name: str, attributes: Mapping[str, Any]) -> None:
        """Create a group inside, for arrays whose names begin with its own: NAME/scores."""
        self._create_group(name, dict(attributes))

    def _create_group(self, name: str, attributes: dict[str, Any]) -> None:
        with writing(self._called(name)):
            (metadata,) = GroupMetadata(attributes).to_buffer_dict(default_buffer_prototype()).values()
            self._say(name, metadata)
            zarr.open_group(self.store, path=name, mode="r+")  # or several writers at once would open the store

    def create_tiled(
        self,
        name: str,
        plan: Plan,
        dims: Sequence[str],
        dtype: Any,
        n_components: int | None = None,
        component_axis: int = 0,
        fill: float = 0.0,
        attributes: Mapping[str, Any] = {},
        component_dim: str = COMPONENT,
        unwritten: bool = False,
    ) -> None:
        """Create an array over the streamed axes, with an axis of components (or of `component_dim`) if `n_components` is given.

        A chunk is a tile, so no two tasks write one chunk.

        Parameters
        ----------
        fill, unwritten : as of `create_array`
        """
        itemsize = np.dtype(dtype).itemsize
        shape, chunks, dims = list(plan.streamed_shape), [cut.step for cut in plan.tiles], list(dims)
        if n_components is not None:
            together = max(1, min(n_components, TILE_BYTES // (math.prod(chunks) * itemsize)))
            for values, value in ((shape, n_components), (chunks, together)):
                values.insert(component_axis, value)
            dims.insert(component_axis, component_dim)
        self.create_array(name, shape, chunks, dtype, dims, fill, attributes, unwritten)

    def create_array(
        self,
        name: str,
        shape: Sequence[int],
        chunks: Sequence[int],
        dtype: Any,
        dims: Sequence[str],
        fill: float = 0.0,
        attributes: Mapping[str, Any] = {},
        unwritten: bool = False,
    ) -> None:
        """Create an array that is written in parts.

        If it exists, its chunks stay, since they have checksums. Its metadata have none, and are written again.

        Parameters
        ----------
        fill, unwritten : what chunks that are never written read as, and whether all of them may stay so
        """
        kind = (tuple(shape), tuple(chunks), np.dtype(dtype), fill)
        self._create_known(name, kind, dims, meanings.described(name, attributes, self.unit), unwritten)

    def _create_known(
        self, name: str, kind: Kind, dims: Sequence[str], attributes: Mapping[str, Any], unwritten: bool
    ) -> None:
        """Create an array of the result, with all of its attributes."""
        if unwritten:
            self._may_be_unwritten.add(name)
        self._count(name, kind[0], dims)
        self._create(name, kind, tuple(dims), attributes)

    def _create(self, name: str, kind: Kind, dims: tuple[str, ...], attributes: Mapping[str, Any]) -> None:
        """Create an array of a kind, with all of its attributes."""
        shape, chunks, dtype, fill = kind
        with writing(self._called(name)):
            present = self._kind(name)
            if present != kind and self._gathered(name, kind):
                self._rechunk(name, chunks, attributes)
                return
            self._arrays.pop(name, None)
            make = partial(
                zarr.create_array,
                name=name,
                shape=shape,
                chunks=chunks,
                dtype=dtype,
                fill_value=fill,
                compressors=CHECKED,
                dimension_names=dims,
                attributes=dict(attributes),
            )
            if present != kind:  # there is none, or one with damaged metadata, or of another kind
                self._arrays[name] = make(self.store, overwrite=True).with_config(WRITTEN_WHEN_EMPTY)
                return
            aside: dict[str, Any] = {}
            make(aside)
            self._say(name, aside[f"{name}/zarr.json"])

    def _say(self, name: str, metadata: Buffer) -> None:
        """Have these metadata of an array or a group, replaced in one step if they differ; its chunks stay."""
        key = f"{name}/zarr.json".lstrip("/")
        path = self._root / key
        if not path.is_file() or path.read_bytes() != metadata.to_bytes():
            durable.make_directories(path.parent)
            store = self.store if isinstance(self.store, SyncedStore) else SyncedStore(self._root)
            store.set_sync(key, metadata)

    def write_part(self, name: str, region: Box, values: NDArray[Any]) -> None:
        """Write whole chunks of an array: a tile, if `create_tiled` made it, with all components at once."""
        array = self.array(name)
        with self._guard or nullcontext(), writing(self._called(name)):
            array[whole_region(array, region)] = values

    def read_part(self, name: str, region: Box, unwritten: bool = False) -> NDArray[Any]:
        """A part of an array, with all components of a tile, as a copy.

        Parameters
        ----------
        unwritten : whether chunks may never have been written, and read as the fill value; else an absent one is lost
        """
        array, store = watched(self.array(name))
        try:
            values = np.ascontiguousarray(array[whole_region(array, region)])
        except (OSError, ValueError, RuntimeError) as cause:
            raise StorageError(
                f"{self._called(name)}: region {describe(region)} can't be read back: {cause}", AGAIN
            ) from cause
        if store.absent and not unwritten:
            raise StorageError(f"{self._called(name)}: {min(store.absent)} is gone", AGAIN)
        return values

    def damage(self, name: str, region: Box | None = None) -> str | None:
        """Fault of a part that was written earlier, or of the whole array; None if it is intact.

        Damage to a chunk is detected by the checksum that zstd stores in it.
        """
        try:
            array, store = watched(self.array(name))
            for box in [whole_region(array, region)] if region else _chunks_of(array):
                array[box]
        except (StorageError, OSError, ValueError, RuntimeError, KeyError) as cause:
            return f"{self._called(name)} is damaged ({cause})"
        return f"{self._called(name)}: {min(store.absent)} is gone" if store.absent else None

    def inventory(self, finished: bool = False) -> dict[str, Any]:
        """A description of each array, also of groups inside, and how many of its chunks were written; empty if the group can't be opened.

        Parameters
        ----------
        finished : whether all is written, and nothing was created since `finish`, whose consolidated metadata take one read; else they
            may be out of date, since a resumed run may have created some arrays again. Of what is finished, chunks that are gone are
            an error
        """
        try:
            members = zarr.open_group(self.store, mode="r", use_consolidated=finished).members(max_depth=None)
            arrays = {
                name: array
                for name, array in sorted(members, key=operator.itemgetter(0))
                if isinstance(array, zarr.Array)
            }
            written = {name: self._written(name) for name in arrays}
        except (OSError, ValueError, KeyError, TypeError) as cause:
            if finished:
                raise StorageError(f"{self._called('')}: can't be listed: {cause}", AGAIN) from cause
            return {}
        if finished:
            for name, array in arrays.items():
                self._check_whole(name, written[name], array.nchunks)
        return {name: {"array": described(array), "chunks_written": written[name]} for name, array in arrays.items()}

    def _check_whole(self, name: str, written: int, n_chunks: int) -> None:
        """Refuse an array of which chunks were lost before it was finished: whoever reads the result would not know of them."""
        unwritten = written == 0 and name in self._may_be_unwritten
        if written < n_chunks and not unwritten:
            raise StorageError(f"{self._called(name)}: {n_chunks - written} of its {n_chunks} chunks are gone", AGAIN)

    def _written(self, name: str) -> int:
        """How many chunks of an array are stored; zarr's own count takes the keys of `x_b` for those of `x`."""
        return chunks_in(self._root / name)

    def metadata_of(self, names: Sequence[str]) -> NDArray[np.uint8]:
        """Digest of the metadata of arrays in a directory, but for their chunks, which `gather` changes, (32,)."""
        found = []
        for name in names:
            try:
                metadata = durable.read_json(self._root / name / "zarr.json")
                found.append({key: value for key, value in metadata.items() if key != "chunk_grid"})
            except (OSError, ValueError, AttributeError):  # gone, or damaged
                found.append({})
        return np.frombuffer(bytes.fromhex(durable.digest(found)), np.uint8)

    def damage_of_any(self) -> str | None:
        """Fault of the first damaged array among those with written chunks; None if all are intact."""
        names = [name for name, entry in self.inventory().items() if entry["chunks_written"]]
        damages = (self.damage(name) for name in names)
        return next((damage for damage in damages if damage), None)

    def __contains__(self, name: str) -> bool:
        """Whether an array exists and can be opened."""
        return self._kind(name) is not None

    def _kind(self, name: str) -> Kind | None:
        """Shape, chunks, type and fill value of an array; None if it does not exist or can't be opened."""
        if not (self._root / name / "zarr.json").is_file():  # zarr looks for other formats, too, before it says so
            return None
        try:
            array = zarr.open_array(self.store, path=name, mode="r")
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None
        return kind_of(array)

    def remove(self, name: str) -> None:
        """Remove an array, if it exists."""
        self._arrays.pop(name, None)
        with writing(self._called(name)):
            durable.remove(self._root / name)

    def rename(self, name: str, new: str) -> None:
        """Rename an array; one that has the new name is replaced."""
        self.remove(new)
        self._arrays.pop(name, None)
        with writing(self._called(name)):
            durable.move(self._root / name, self._root / new)

    @property
    def _root(self) -> Path:
        return Path(self.root)

    def write(self, name: str, values: Any, dims: Sequence[str], attributes: Mapping[str, Any] | None = None) -> None:
        """Write a whole array without feature axes, in chunks of whole rows; an array of that name is replaced."""
        values = np.asarray(values)
        row = max(1, values[:1].nbytes) if values.ndim else 1
        chunks = (max(1, min(len(values), TILE_BYTES // row)), *values.shape[1:]) if values.size and values.ndim else ()
        self._write_whole(name, Whole(values, chunks, values.dtype, tuple(dims), dict(attributes or {})))

    def _write_whole(self, name: str, whole: Whole) -> None:
        if self._waiting is None or whole.values.nbytes > TOGETHER_BYTES:
            self._put({name: whole})
            return
        if sum(other.values.nbytes for other in self._waiting.values()) + whole.values.nbytes > TOGETHER_BYTES:
            self._put(self._waiting)
            self._waiting.clear()
        self._waiting[name] = whole

    def write_stack(self, name: str, count: int, matrix: Callable[[int], NDArray[Any]], dims: Sequence[str]) -> None:
        """Write matrices of one shape and type as an array with an axis more, the first: only one is needed at a time.

        Parameters
        ----------
        count, matrix : how many, and a function that gives each by its number
        """
        first = matrix(0)
        rows = max(1, min(len(first), TILE_BYTES // max(1, first[:1].nbytes)))
        self.create_array(name, (count, *first.shape), (1, rows, *first.shape[1:]), first.dtype, dims)
        del first
        with writing(self._called(name)):
            for number in range(count):
                self.array(name)[number] = matrix(number)

    def copy(self, name: str, stored: Stored, values: NDArray[Any] | None = None) -> None:
        """Copy an array of another result, chunk by chunk; an array of that name is replaced.

        Parameters
        ----------
        values : written instead of the stored values
        """
        if stored.text:
            self.write_coordinate(name, stored.as_coordinate, *stored.dims)
            return
        self.remove(name)
        written = stored.whole or values is not None
        kind = (stored.shape, stored.chunks, stored.dtype, stored.fill)
        self._create_known(name, kind, stored.dims, stored.attributes, unwritten=not written)
        array = self.array(name)
        if written:
            with writing(self._called(name)):
                for box in _chunks_of(array):
                    array[box] = stored[box] if values is None else values[box]

    def write_text(self, name: str, values: Sequence[str], dim: str) -> None:
        """Write strings along a dimension; an array of that name is replaced."""
        self._write_whole(name, Whole(np.array(values, object), (), str, (dim,), {}))

    def write_labels(self, labels: NDArray[Any], dim: str) -> None:
        """Write a label for each sample, (n_samples,), along their dimension."""
        self.write_coordinate(LABELS, Coordinate(LABELS, labels, Parts.of(labels.dtype)), dim)

    def write_coordinate(self, name: str, coordinate: Coordinate, *dims: str) -> None:
        """Copy a coordinate under the name of its dimension, or another array along these dimensions."""
        shape = coordinate.values.shape
        target = zarr.create_array(
            self.store,
            name=name,
            overwrite=True,
            shape=shape,
            chunks=tuple(max(1, min(coordinate.piece, n) if axis == 0 else n) for axis, n in enumerate(shape)),
            dtype=str if coordinate.text else coordinate.values.dtype.newbyteorder("="),
            compressors=CHECKED,
            dimension_names=dims or ((name,) if shape else ()),
            attributes=meanings.described(name, coordinate.attributes, None),
        )
        target = target.with_config(WRITTEN_WHEN_EMPTY)
        for piece, values in coordinate.pieces() if shape else [(..., np.asarray(coordinate.values[...]))]:
            target[piece] = values.astype(np.dtypes.StringDType()) if coordinate.text else values

    def name_coordinates(self, names: Sequence[str], samples_axes: Mapping[str, int] = {}) -> None:
        """Say which arrays are coordinates that are no index, as xarray says it, beside those that are said already.

        Parameters
        ----------
        samples_axes : those of the axes that samples lie along, where these are several, with their lengths
        """
        if names:
            group = zarr.open_group(self.store, mode="a")
            said = str(group.attrs.get(COORDINATES, "")).split()
            axes = {SAMPLES_AXES: dict(samples_axes)} if samples_axes else {}
            group.attrs.put({**group.attrs, COORDINATES: " ".join(dict.fromkeys([*said, *names])), **axes})

    def array(self, name: str) -> zarr.Array[Any]:
        """An array of the group, opened."""
        if name not in self._arrays:
            try:
                opened = zarr.open_array(self.store, path=name, mode="r+")
            except (OSError, ValueError, KeyError, TypeError) as cause:
                raise StorageError(f"{self._called(name)} is gone, or damaged: {cause}", AGAIN) from cause
            self._arrays[name] = opened.with_config(WRITTEN_WHEN_EMPTY)
        return self._arrays[name]

    def _called(self, name: str) -> str:
        return f"{self.root}/{name}"

    def gather(self) -> None:
        """Merge chunks of less than 1 MiB: those of arrays of which each of a few tasks wrote a small part.

        What a process that was killed has left, and is no array of the result, is removed. If the run is resumed after that,
        `create_array` restores the planned chunks.
        """
        for path in self._root.glob(f"*{ON_THE_WAY}*"):
            # A copy, an array of a stage that the run does not come to any more (its last pass may be another now), or half of one.
            self.remove(path.name)
        names = sorted(path.parent.name for path in self._root.glob("*/zarr.json"))
        for name in filter(_OF_TILES.fullmatch, names):
            array = self.array(name)
            shape, chunks, itemsize = list(array.shape), list(array.chunks), array.dtype.itemsize
            small = math.prod(chunks) * itemsize < CHUNK_BYTES and chunks != shape
            if array.size and small and math.prod(shape) * itemsize <= MIN_SPANS * CHUNK_BYTES:
                cuts = [Cuts.of(length, chunk) for length, chunk in zip(shape, chunks, strict=True)]
                grown = grow(cuts, range(len(shape) - 1, -1, -1), 2 * CHUNK_BYTES // itemsize)
                self._rechunk(name, tuple(cut.step for cut in grown))

    def _gathered(self, name: str, kind: Kind) -> bool:
        """Whether the array exists, intact, in other chunks; a copy that was about to replace it does so."""
        for other in (name, name + ASIDE):
            stored = self._kind(other)
            if stored is not None and (stored[0], *stored[2:]) == (kind[0], *kind[2:]) and self.damage(other) is None:
                if other != name:
                    self.rename(other, name)
                return True
        return False

    def _rechunk(self, name: str, chunks: tuple[int, ...], attributes: Mapping[str, Any] | None = None) -> None:
        """Write an array again in other chunks; one without written chunks stays so, and of others all were written."""
        array, aside = self.array(name), name + ASIDE
        attributes = dict(array.attrs) if attributes is None else attributes
        dims = tuple(str(dim) for dim in array.metadata.dimension_names or ())  # type: ignore[union-attr]
        values = self.read_part(name, (slice(None),) * array.ndim) if self._written(name) else None
        self._create(aside, (array.shape, chunks, array.dtype, array.fill_value), dims, attributes)
        if values is not None:
            self.array(aside)[...] = values
        self.rename(aside, name)

    def _count(self, name: str, shape: Sequence[int], dims: Sequence[str]) -> None:
        """Keep the lengths of the axes of components of an array."""
        before = name.rpartition("/")
        for length, dim in zip(shape, dims, strict=False):
            if dim in (COMPONENT, ROTATED_COMPONENT):
                self._unnumbered["".join(before[:2]) + dim] = length

    def _numbers(self) -> dict[str, Whole]:
        """The numbers of components, from 1 on, that are to be written: the coordinates of their axes."""
        lacking = {name: n for name, n in self._unnumbered.items() if self._numbered.get(name) != n}
        self._numbered |= lacking
        self._unnumbered.clear()
        return {
            name: Whole(np.arange(1, n + 1), (max(1, n),), np.int64, (name.rpartition("/")[2],), {})
            for name, n in lacking.items()
        }

    def finish(self) -> None:
        """Number the components from 1 on, and consolidate the metadata, so that xarray opens the group with one read."""
        if self._unnumbered:
            self._put({})
        with warnings.catch_warnings():
            # The v3 specification does not define consolidated metadata yet, but xarray warns if they are missing.
            warnings.filterwarnings("ignore", message="Consolidated metadata")
            zarr.consolidate_metadata(self.store)


def whole_region(array: Any, region: Box) -> Box:
    """The region, extended to all components, rotated ones, regressors or groups, if it names none, and to all of the axes just before them that it does not name."""
    more = array.ndim - len(region)
    if not more:
        return region
    dims = list(array.metadata.dimension_names or ())
    named = (COMPONENT, ROTATED_COMPONENT, REGRESSOR, SAMPLE_GROUP)
    found = next((axis for axis, dim in enumerate(dims) if dim in named), None)
    if found is None:
        raise ValueError(f"its dimensions are {dims}, and none of them is of components")
    axis = found - (more - 1)
    return (*region[:axis], *(slice(None),) * more, *region[axis:])


def kind_of(array: zarr.Array[Any]) -> Kind:
    """Shape, chunks, type and fill value of an array."""
    return array.shape, array.chunks, array.dtype, array.fill_value


def _chunks_of(array: zarr.Array[Any]) -> Iterator[Box]:
    """The regions of an array's chunks."""
    cuts = [Cuts.of(length, chunk) for length, chunk in zip(array.shape, array.chunks, strict=True)]
    yield from product(*(cut.within(slice(0, cut.length)) for cut in cuts))
