"""Arguments of methods, checked by their annotations: of another type than these they are refused in a sentence."""

from __future__ import annotations

import inspect
import numbers
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import wraps
from typing import Any, TypeVar

from dpca.errors import ConfigError

_EXACT = "is of an approximate solver, but components here are exact to the digits that certificate_ names"
_IN_PARTS = (
    "says how much of X is read at a time, which follows from the memory here",
    "Leave it out, or pass memory='4 GiB'.",
)
OF_PEERS = {
    "tol": (_EXACT, "Leave it out; block_krylov={'tolerance': 1e-6} says how exact svd_solver='block_krylov' is."),
    **dict.fromkeys(
        ("iterated_power", "n_oversamples", "power_iteration_normalizer", "solver_kwargs", "max_iter", "eigen_solver"),
        (_EXACT, "Leave it out."),
    ),
    **dict.fromkeys(("copy", "copy_X"), ("asks for a copy of X, which is never changed here", "Leave it out.")),
    **dict.fromkeys(("batch_size", "chunked", "chunk_size"), _IN_PARTS),
    "n_jobs": (
        "says how many cores are used: all of this machine, or those of client",
        "Leave it out, or pass client.",
    ),
    "compute": ("asks whether to compute, which a fit always does", "Leave it out."),
    "check_nans": ("is xeofs' name", "Pass missing='land', which does as xeofs, or missing='mean'."),
    "n_modes": ("is xeofs' name", "Pass n_components."),
    "n_comps": ("is scanpy's name", "Pass n_components."),
    "standardize": ("is xeofs' name", "Pass scale='std', with scale_ddof=0 for the same divisor."),
    "use_coslat": ("is xeofs' name", "Pass weights='sqrt_cos_lat'."),
    "solver": ("is xeofs' and eofs' name", "Leave it out, or pass svd_solver."),
    "zero_center": ("is scanpy's name", "Pass center."),
    **dict.fromkeys(
        ("use_highly_variable", "mask_var"), ("is scanpy's name", "Pass mask='highly_variable' to fit(adata).")
    ),
}
"""Arguments of scikit-learn, scanpy, xeofs and eofs: what each is, and what to do instead."""

Class = TypeVar("Class", bound=type)
KINDS: dict[str, tuple[type, str]] = {
    "int": (numbers.Integral, "an integer"),
    "float": (numbers.Real, "a number"),
    "str": (str, "text"),
    "bool": (bool, "True or False"),
}
"""Types by the annotation that stands for them, with their words."""


def checked(of: Class, within: Callable[[], AbstractContextManager[None]] = nullcontext) -> Class:
    """A class whose public methods, also inherited ones, check the types of their arguments, and run within a context."""
    for name, method in inspect.getmembers(of, inspect.isfunction):
        if not name.startswith("_"):
            setattr(of, name, _checked(method, within))
    return of


def _checked(method: Callable[..., Any], within: Callable[[], AbstractContextManager[None]]) -> Callable[..., Any]:
    signature = inspect.signature(method)
    rules = {name: one.annotation for name, one in signature.parameters.items() if _kinds(one.annotation)}

    @wraps(method)
    def call(*args: Any, **named: Any) -> Any:
        with suppress(TypeError):  # of too many arguments, or too few: the method itself says so
            given = signature.bind(*args, **named).arguments
            for name in rules.keys() & given.keys():
                check(name, given[name], rules[name])
        with within():
            return method(*args, **named)

    return call if rules or within is not nullcontext else method


def _kinds(annotation: Any) -> list[str]:
    """The names of the types of an annotation, such as int and None; none where there is another one among them."""
    names = [name.strip() for name in annotation.split("|")] if isinstance(annotation, str) else []
    names = ["str" if name.startswith("Literal[") else name for name in names]
    return names if names and all(name in (*KINDS, "None") for name in names) and names != ["None"] else []


def check(name: str, value: Any, annotation: str) -> None:
    """Refuse a value of another type."""
    kinds = _kinds(annotation)
    for kind in kinds:
        if kind == "None" and value is None:
            return
        if kind in KINDS and isinstance(value, KINDS[kind][0]) and (kind == "bool" or not isinstance(value, bool)):
            return
    words = " or ".join("None" if kind == "None" else KINDS[kind][1] for kind in kinds)
    raise ConfigError(f"{name} is {value!r}, but {words} is allowed", "Pass one.")


def refuse_those_of_peers(of: type, names: Iterable[str]) -> None:
    """Refuse arguments that a class does not have, but that of another library has, with the reason."""
    own = inspect.signature(of).parameters
    takes_any = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in own.values())
    for name in () if takes_any else names:
        if name not in own and name in OF_PEERS:
            what, remedy = OF_PEERS[name]
            raise ConfigError(f"{of.__name__} has no argument {name}, which {what}", remedy)
