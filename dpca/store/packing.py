"""Numbers and arrays of a dataclass as named arrays of a file, and back: the codec of the ledger. No pickle is loaded."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray


def packed(value: Any, name: str = "value") -> dict[str, NDArray[Any]]:
    """A number, an array, or a dataclass or tuple of them, as arrays by name. Fields that begin with an underscore are left out.

    The numbers of a dataclass become one array of integers and one of floats: each array in a file costs 300 bytes.
    Fields with `symmetric` in their metadata become row bands of their upper triangle: half the bytes, and no copy. Tuples of
    fields with `any_number` are as long as what was stored.
    """
    if isinstance(value, tuple):
        return {
            key: array for number, one in enumerate(value) for key, array in packed(one, f"{name}.{number}").items()
        }
    if not dataclasses.is_dataclass(value):
        return {name: np.asarray(value)}
    arrays: dict[str, NDArray[Any]] = {
        f"{name}.{kind}": np.array([getattr(value, field) for field in fields], dtype)
        for (kind, dtype), fields in _numbers(value).items()
    }
    for field in _fields(value):
        part, key = getattr(value, field.name), f"{name}.{field.name}"
        if _is_number(part):
            continue
        if "symmetric" in field.metadata:
            arrays |= {f"{key}.{band.start}": part[band, band.start :] for band in _bands(len(part))}
        else:
            arrays |= packed(part, key)
    return arrays


def unpacked(like: Any, arrays: Mapping[str, NDArray[Any]], name: str = "value") -> Any:
    """The value that `packed` turned into arrays; `like` has its types, and the sizes of its symmetric fields."""
    if isinstance(like, tuple):
        return tuple(unpacked(one, arrays, f"{name}.{number}") for number, one in enumerate(like))
    if not dataclasses.is_dataclass(like) or isinstance(like, type):
        return _of_type(like, arrays[name], name)
    parts: dict[str, Any] = {}
    for (kind, dtype), fields in _numbers(like).items():
        stored = _of_type(np.empty(0, dtype), arrays[f"{name}.{kind}"], f"{name}.{kind}")
        for field_name, number in zip(fields, stored, strict=True):
            parts[field_name] = _of_type(getattr(like, field_name), number, name)
    for field in _fields(like):
        part, key = getattr(like, field.name), f"{name}.{field.name}"
        if _is_number(part):
            continue
        if "any_number" in field.metadata:
            count = len(
                {name.removeprefix(f"{key}.").partition(".")[0] for name in arrays if name.startswith(f"{key}.")}
            )
            part = part[:1] * count
        parts[field.name] = (
            _symmetric(part, arrays, key) if "symmetric" in field.metadata else unpacked(part, arrays, key)
        )
    return dataclasses.replace(like, **parts)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.generic)


def _numbers(value: Any) -> dict[tuple[str, str], list[str]]:
    """The fields of a dataclass that are numbers, by the type they are stored as."""
    names: dict[tuple[str, str], list[str]] = {}
    for field in _fields(value):
        part = getattr(value, field.name)
        if _is_number(part):
            kind = ("floats", "f8") if isinstance(part, float | np.floating) else ("integers", "i8")
            names.setdefault(kind, []).append(field.name)
    return names


def _fields(value: Any) -> list[dataclasses.Field[Any]]:
    return [field for field in dataclasses.fields(value) if not field.name.startswith("_")]


def _bands(m: int) -> list[slice]:
    step = max(256, -(-m // 16))
    return [slice(start, min(start + step, m)) for start in range(0, m, step)]


def _symmetric(like: NDArray[Any], arrays: Mapping[str, NDArray[Any]], name: str) -> NDArray[Any]:
    matrix = np.empty_like(like)
    for band in _bands(len(like)):
        rows = _of_type(like, arrays[f"{name}.{band.start}"], f"{name}.{band.start}")
        matrix[band, band.start :] = rows
        matrix[band.start :, band] = rows.T
    return matrix


def _of_type(like: Any, array: NDArray[Any], name: str) -> Any:
    if not isinstance(like, np.ndarray):
        return type(like)(array.item())
    if array.dtype != like.dtype or array.ndim != like.ndim:
        raise ValueError(f"{name} is {array.ndim}-dimensional {array.dtype}, not {like.ndim}-dimensional {like.dtype}")
    return array
