"""The arrays of a result, open for reading: a chunk that was written, but is missing or damaged, is an error.

zarr reads a missing chunk as its fill value. In a result no chunk may be missing: its manifest says what was written.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.abc.store import Store
from zarr.storage import MemoryStore

from dpca.errors import InputError
from dpca.sources.coordinate import Coordinate
from dpca.sources.zarr_container import parts_of
from dpca.sources.zarr_store import BAD_METADATA, Directory, watched

LABELS = "labels"
COORDINATES = "coordinates"
SAMPLES_AXES = "samples_axes"
"""The attribute of a group with the axes that its samples lie along, where these are several: names, which are coordinates of samples, and
lengths, 0 where the samples are no box of the axes."""
"""The attribute of a result that names coordinates that are no index, separated by spaces."""
RESERVED_DIMS = frozenset(
    {"sample", "sample_b", "component", "eigenvalue", "kernel_case", "group"}
    | {"scores", "components", "mean", "scale", "weights", "alpha", "gram", "eigenvalues", "singular_values"}
    | {"explained_variance", "explained_variance_ratio", "projection_error", "gram_mean_product", "gram_mean_norm2"}
    | {"gram_sketch", "gram_norms2", "random_column", "sample_weights", "regressor", "regressors", "regression"}
    | {"sample_group", "group_scale"}
    | {"kernel", "gamma", "degree", "coef0", "kernel_mean", "n_components", "variance_captured", "components_95"}
    | {"effective_rank", "neighbour_accuracy", LABELS}
    | {"weighted_components", "block_factor", "variance_share", "shrinkage", "reconstruction", "fold", "pair"}
    | {"rotated_component", "rotated_component_b", "rotated_components", "rotated_scores", "rotation_matrix"}
    | {
        "convention_eigenvalues",
        "n_shared_features",
        "n_counted_features_by_group",
        "variant_chromosome",
        "variant_position",
    }
    | {"variant_counted_allele", "variant_other_allele", "sample_family"}
    | {"rotated_explained_variance", "rotated_explained_variance_ratio", "factor_correlation"}
)
RESTORE = "Restore it, or make the result again (dpca run --overwrite, or fit)."
LARGE_BYTES = 2**26
"""Size from which it is looked whether the chunks of an array are there before they are read."""
MAY_BE_UNWRITTEN = frozenset({"mean", "scale", "weights"})
"""Not written without centering, scaling or weights: then they read as their fill values 0, 1 and 1."""


@runtime_checkable
class Stored(Protocol):
    """An array of a result: in files (`Filed`), or in the memory of this process (`dpca.store.held.Held`)."""

    @property
    def name(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def ndim(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...
    @property
    def nbytes(self) -> int:
        """Bytes of its values in memory."""
        ...

    @property
    def chunks(self) -> tuple[int, ...]: ...
    @property
    def dims(self) -> tuple[str, ...]:
        """Names of its axes."""
        ...

    @property
    def attributes(self) -> dict[str, Any]: ...
    @property
    def fill(self) -> Any:
        """The value of what is not written."""
        ...

    @property
    def whole(self) -> bool:
        """Whether it was written."""
        ...

    @property
    def text(self) -> bool:
        """Whether values are strings."""
        ...

    @property
    def as_coordinate(self) -> Coordinate:
        """This array as a coordinate that is copied and compared piece by piece."""
        ...

    def __getitem__(self, region: Any) -> Any: ...
    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]: ...
    def rows(self, numbers: NDArray[np.int64]) -> NDArray[Any]:
        """Some rows, in any order."""
        ...

    def lazy(self) -> Any:
        """This array as a Dask array."""
        ...


def _nothing() -> None:
    """The check of arrays of no run."""


class Filed:
    """An array of a result in files. It is pickled as its location, for tasks and other processes.

    Parameters
    ----------
    array : open for reading
    where : the name of the result in errors
    whole : whether every chunk of it was written; otherwise none was, and it reads as its fill value
    check : as of `Arrays`
    """

    def __init__(self, array: zarr.Array[Any], where: str, whole: bool, check: Callable[[], None] = _nothing) -> None:
        self._array, self._where, self._whole, self._check = array, where, whole, check
        self._watched, self._store = watched(array)

    def __reduce__(self) -> tuple[Any, ...]:
        return Filed, (self._array, self._where, self._whole, self._check)

    @property
    def name(self) -> str:
        return self._array.basename

    @property
    def shape(self) -> tuple[int, ...]:
        return self._array.shape

    @property
    def ndim(self) -> int:
        return self._array.ndim

    @property
    def size(self) -> int:
        return self._array.size

    @property
    def dtype(self) -> np.dtype[Any]:
        dtype: np.dtype[Any] = self._array.dtype
        return dtype

    @property
    def nbytes(self) -> int:
        """Bytes of its values in memory."""
        return self._array.nbytes

    @property
    def chunks(self) -> tuple[int, ...]:
        return self._array.chunks

    @property
    def dims(self) -> tuple[str, ...]:
        """Names of its axes."""
        return tuple(str(dim) for dim in getattr(self._array.metadata, "dimension_names", None) or ())

    @property
    def attributes(self) -> dict[str, Any]:
        return dict(self._array.attrs)

    @property
    def fill(self) -> Any:
        """The value of what is not written."""
        return self._array.fill_value

    @property
    def whole(self) -> bool:
        """Whether its chunks were written."""
        return self._whole

    @property
    def text(self) -> bool:
        """Whether values are strings."""
        return self.dtype.kind not in "biufc"

    @property
    def as_coordinate(self) -> Coordinate:
        """This array as a coordinate that is copied and compared piece by piece."""
        return Coordinate(self.name, self, parts_of(self._array, self._store), self.attributes)

    def __getitem__(self, region: Any) -> Any:
        """Values of a region, indexed as in NumPy."""
        return self._read(lambda array: array[region])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """All values, where NumPy needs an array."""
        return np.asarray(self[...], dtype)

    def rows(self, numbers: NDArray[np.int64]) -> NDArray[Any]:
        """Some rows, in any order."""
        rows: NDArray[Any] = self._read(lambda array: array.oindex[numbers])
        return rows

    def lazy(self) -> Any:
        """This array as a Dask array, in chunks as they are stored."""
        import dask.array as da

        chunks = tuple(min(chunk, length) or 1 for chunk, length in zip(self.chunks, self.shape, strict=True))
        return da.from_array(self, chunks, name=False)  # type: ignore[no-untyped-call]

    def _read(self, read: Callable[[Any], Any]) -> Any:
        try:
            values = read(self._watched)
        except (OSError, ValueError, RuntimeError, KeyError) as cause:
            raise InputError(f"{self._where}: its {self.name} can't be read: {cause}", RESTORE) from cause
        if self._whole and self._store.absent:
            raise InputError(f"{self._where}: {min(self._store.absent)} is gone", RESTORE)
        self._check()
        return values


class Arrays(Mapping[str, Stored]):
    """The arrays of a result by name, and the attributes of their group. They are opened on first use.

    Parameters
    ----------
    store : a directory; or, for a result in memory, its files by name
    where : the name of the result in errors
    inventory : `dpca.store.outputs.Outputs.inventory` at the time of writing; None for results of version 1
    check : called before anything is opened, and after each read; raises if this is another result by now
    """

    def __init__(
        self,
        store: str | dict[str, Any],
        where: str,
        inventory: Mapping[str, Any] | None,
        check: Callable[[], None] = _nothing,
    ) -> None:
        self._store, self._where, self._inventory, self._check = store, where, inventory, check
        self._group: zarr.Group | None = None
        self._listed: dict[str, Any] = {}
        """Arrays and groups whose metadata came with those of the group, consolidated."""

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_group": None, "_listed": {}}

    @property
    def group(self) -> zarr.Group:
        """The Zarr group itself."""
        if self._group is None:
            self._check()
            try:
                self._group = zarr.open_group(self._opened(), mode="r")
                if self._group.metadata.consolidated_metadata is not None:
                    self._listed = dict(self._group.members(max_depth=None))
            except (OSError, *BAD_METADATA) as cause:
                problem = "is gone" if isinstance(cause, FileNotFoundError) else f"can't be read: {cause}"
                raise InputError(f"{self._where}: its result.zarr {problem}", RESTORE) from cause
        return self._group

    def _opened(self) -> Store:
        if isinstance(self._store, dict):
            return MemoryStore(self._store, read_only=True)
        return Directory(self._store, read_only=True)

    @property
    def attributes(self) -> dict[str, Any]:
        return dict(self.group.attrs)

    def __getitem__(self, name: str) -> Stored:
        if name not in self:
            raise KeyError(name)
        try:
            group = self.group
            array = self._listed[name] if name in self._listed else group[name]
        except (OSError, *BAD_METADATA) as cause:
            raise InputError(f"{self._where}: its {name} is gone or damaged ({cause})", RESTORE) from cause
        if not isinstance(array, zarr.Array):
            raise InputError(f"{self._where}: its {name} is no array", RESTORE)
        if self._inventory is None:
            return Filed(array, self._where, name in RESERVED_DIMS and not _unwritten(name, array), self._check)
        expected = self._inventory[name]
        found = described(array)
        if found != expected["array"]:
            raise InputError(
                f"{self._where}: its {name} is not the one that was written: {found}, not {expected['array']}", RESTORE
            )
        self._check_there(name, array, expected["chunks_written"])
        return Filed(array, self._where, bool(expected["chunks_written"]), self._check)

    def _check_there(self, name: str, array: zarr.Array[Any], written: int) -> None:
        """Refuse a large array whose chunks are not all there, before memory is taken for its values."""
        if not written or array.nbytes <= LARGE_BYTES or isinstance(self._store, dict):
            return
        grid = math.prod(
            -(-length // chunk) for length, chunk in zip(array.shape, array.shards or array.chunks, strict=True)
        )
        there = chunks_in(Path(self._store, name))
        if there < grid:
            raise InputError(
                f"{self._where}: its {name} has {there:,} chunks, but an array of shape {array.shape} has {grid:,}",
                RESTORE,
            )

    def let_go(self, name: str) -> None:
        """Release the values of an array that is in memory: it can't be read any more."""
        if isinstance(self._store, dict):
            for key in [key for key in self._store if key.startswith(f"{name}/c")]:
                del self._store[key]

    def __contains__(self, name: object) -> bool:
        return name in (self.group if self._inventory is None else self._inventory)

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self.group.array_keys() if self._inventory is None else self._inventory))

    def __len__(self) -> int:
        return len(list(iter(self)))


def chunks_in(array: Path) -> int:
    """How many chunks the directory of an array has."""
    chunks = array / "c"
    return int(chunks.is_file()) or sum(path.is_file() for path in chunks.rglob("*"))


def _unwritten(name: str, array: zarr.Array[Any]) -> bool:
    return name in MAY_BE_UNWRITTEN and array.nchunks_initialized == 0


def described(array: zarr.Array[Any]) -> dict[str, Any]:
    """The description of an array, in plain values that are the same for every version of zarr."""
    number = getattr(array.dtype, "kind", "T") in "biufc"
    return {
        "shape": list(array.shape),
        "dtype": np.dtype(array.dtype).str if number else "text",
        "chunks": list(array.chunks),
        "dims": list(getattr(array.metadata, "dimension_names", None) or ()),
        "attributes": dict(array.attrs),
    }
