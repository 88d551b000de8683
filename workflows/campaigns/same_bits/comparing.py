"""What a case made by one code beside what it made by the other."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import zarr


@dataclass(frozen=True)
class Comparison:
    """What one case made by one code beside what it made by the other."""

    n_compared: int
    """Arrays and texts in either."""
    differences: tuple[str, ...]


WAY_THERE = ("manifest.json", "status.json")
"""Files that tell of it: when, where, how long, in what memory."""
TEXTS = (".txt", ".html", ".yaml")
"""Files of what commands say, and of reports."""
OF_ZARR = ("zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata")


def compare(base: Path, here: Path) -> Comparison:
    """Everything in two folders."""
    stored = arrays_in(base) | arrays_in(here)
    n_compared, found = len(stored), []
    for name in sorted(stored):
        files = files_in(base / name) | files_in(here / name)
        if problem := one_sided(base / name, here / name):
            found.append(f"{name} {problem}")
        elif any(not same_file(base / name / file, here / name / file) for file in files):
            found.append(f"{name}: {difference(read(base / name), read(here / name))}")
    for name in sorted(files_in(base) | files_in(here)):
        pair = base / name, here / name
        if Path(name).name in WAY_THERE or stored & set(map(str, Path(name).parents)):
            continue
        inside = ARCHIVES.get(pair[0].suffix)
        if problem := one_sided(*pair):
            found.append(f"{name} {problem}")
        elif inside is not None:
            one, other = map(inside, pair)
            n_compared += len(one | other)
            found += [f"{name}, {text}" for text in differences(one, other)]
        else:
            n_compared += pair[0].suffix in TEXTS
            if not same_file(*pair):
                found.append(f"{name}: {difference_of_texts(*pair)}")
    return Comparison(n_compared, tuple(found))


def arrays_in(place: Path) -> set[str]:
    """The Zarr arrays below a folder."""
    return {
        str(file.parent.relative_to(place))
        for pattern in ("**/zarr.json", "**/.zarray")
        for file in place.glob(pattern)
        if file.name == ".zarray" or json.loads(file.read_text())["node_type"] == "array"
    }


def files_in(place: Path) -> set[str]:
    return {str(file.relative_to(place)) for file in place.rglob("*") if file.is_file()}


def one_sided(base: Path, here: Path) -> str:
    if base.exists() and here.exists():
        return ""
    return "is not there any more" if base.exists() else "was not there before"


def same_file(base: Path, here: Path) -> bool:
    """By bytes; of what Zarr says of an array or a group, by its content."""
    if not (base.exists() and here.exists()):
        return False
    one, other = base.read_bytes(), here.read_bytes()
    return one == other or (base.name in OF_ZARR and content(one) == content(other))


def content(document: bytes) -> str:
    """A JSON as it is always written, whatever the order of its keys; as text, in which true is not 1."""
    return json.dumps(json.loads(document), sort_keys=True)


def read(path: Path) -> np.ndarray:
    return np.asarray(zarr.open_array(path, mode="r")[...])


def differences(base: Mapping[str, Any], here: Mapping[str, Any]) -> Iterator[str]:
    """Of arrays by name."""
    for name in sorted({*base, *here}):
        if name not in base or name not in here:
            yield f"{name} {'is not there any more' if name in base else 'was not there before'}"
        elif not same_values(base[name], here[name]):
            yield f"{name}: {difference(base[name], here[name])}"


def same_values(base: np.ndarray, here: np.ndarray) -> bool:
    """To the bit."""
    if (base.dtype, base.shape) != (here.dtype, here.shape):
        return False
    return bool(base.tolist() == here.tolist() if base.dtype.hasobject else base.tobytes() == here.tobytes())


def difference(base: np.ndarray, here: np.ndarray) -> str:
    """How two arrays differ, in words."""
    if (base.dtype, base.shape) != (here.dtype, here.shape):
        return f"{here.dtype} {here.shape}, was {base.dtype} {base.shape}"
    if same_values(base, here):
        return "the same values in other bytes, or what is said of them"
    if not (n_other := np.sum(base != here) - np.sum((base != base) & (here != here))):
        return "the same values in other bits"
    try:
        one, other = base.astype("f8"), here.astype("f8")
    except (TypeError, ValueError):  # no numbers
        return f"{n_other} of {base.size} values differ"
    if (np.isnan(one) != np.isnan(other)).any():
        return f"{int((np.isnan(one) != np.isnan(other)).sum())} of {base.size} values are NaN in one alone"
    with np.errstate(invalid="ignore"):
        off = np.nan_to_num(np.abs(one - other))
    return (
        f"{n_other} of {base.size} values differ, by {off.max():.3g} at most, "
        f"where the largest is {np.nanmax(np.abs(one)):.3g}"
    )


def difference_of_texts(base: Path, here: Path) -> str:
    """Where two files differ: a JSON by its keys."""
    if base.suffix != ".json":
        pairs = zip_longest(
            *(path.read_text(errors="replace").splitlines() for path in (base, here)), fillvalue="nothing"
        )
        return next(f"line {at}: {other}, was {one}" for at, (one, other) in enumerate(pairs, 1) if one != other)
    one, other = (dict(leaves(json.loads(path.read_text()))) for path in (base, here))
    keys = [key for key in {**one, **other} if key not in one or key not in other or repr(one[key]) != repr(other[key])]
    if not keys:
        return "the same values in other bytes"
    first = ", ".join(f"{key} {other.get(key, 'nothing')}, was {one.get(key, 'nothing')}" for key in keys[:2])
    return f"{len(keys)} of {len(one)} values differ: {first}"


def leaves(document: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Every value of a JSON document, and where it is."""
    if isinstance(document, dict):
        for name, value in document.items():
            yield from leaves(value, f"{key}.{name}".lstrip("."))
    elif isinstance(document, list):
        for index, value in enumerate(document):
            yield from leaves(value, f"{key}[{index}]")
    else:
        yield key, document


def of_npz(path: Path) -> dict[str, np.ndarray]:
    with np.load(path) as archive:
        return dict(archive)


def of_csv(path: Path) -> dict[str, np.ndarray]:
    """Columns by their names, as text."""
    with path.open(newline="", encoding="utf-8") as file:
        names, *rows = csv.reader(file)
    return {name: np.array(column, object) for name, column in zip(names, zip(*rows, strict=True), strict=True)}


def of_hdf5(path: Path) -> dict[str, np.ndarray]:
    """Datasets, and what is said of them."""
    found = {}
    with h5py.File(path) as file:

        def visit(name: str, item: h5py.Dataset | h5py.Group) -> None:
            if isinstance(item, h5py.Dataset):
                found[name] = np.asarray(item[...])
            if said := sorted((key, repr(item.attrs[key])) for key in item.attrs):
                found[f"attributes of {name}"] = np.array(said)

        visit("/", file)
        file.visititems(visit)
    return found


ARCHIVES: dict[str, Callable[[Path], dict[str, np.ndarray]]] = {
    ".npz": of_npz,
    ".csv": of_csv,
    ".nc": of_hdf5,
    ".h5": of_hdf5,
    ".h5ad": of_hdf5,
}
"""Files that hold arrays, and times of writing beside them, or the like."""
