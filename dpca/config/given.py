"""Arguments of a Python program as the config that they are: the same models check them, and the same words say what is wrong."""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from pydantic import ValidationError

from dpca.config.explaining import explain
from dpca.config.inputs import Section
from dpca.config.schema import Config, ModelSection
from dpca.config.together import check_analysis
from dpca.errors import ConfigError
from dpca.kernels.kinds import USES

ARRAY = {"uri": "array"}
"""The place of an array in memory, in a config."""
Settings = TypeVar("Settings", bound=Section)


def made_of(model: type[Settings], arguments: Mapping[str, Any], under: tuple[str, ...] = ()) -> Settings:
    """The settings that arguments are.

    Parameters
    ----------
    under : the section of a config that they are, where they are not a whole one
    """
    values = {name: _plain(value) for name, value in arguments.items()}
    try:
        return model.model_validate(values)
    except ValidationError as errors:
        message, remedy = explain(errors, values, {}, "", model, under)
        raise ConfigError(message, remedy, ".".join(map(str, errors.errors()[0]["loc"][: 1 if under else 2]))) from None


def config_of(asked: Mapping[str, Mapping[str, Any]]) -> Config:
    """The config of a run that would do what parameters of an estimator ask for.

    Parameters
    ----------
    asked : parameters by section and key; for an array, which no file can hold, ARRAY
    """
    model = asked["model"]
    for key in ("kernel", "gamma", "degree", "coef0"):
        if isinstance(model.get(key), Sequence) and not isinstance(model[key], str):
            raise ConfigError(
                f"{key} is {model[key]!r}, but one value is allowed", "Make a sweep by dpca run, or fit one by one."
            )
    plain = {"input": {"uri": "X"}, "output": {"path": "result"}}
    config = made_of(Config, {name: {**plain.get(name, {}), **asked.get(name, {})} for name in {**asked, **plain}})
    # A search over kernels gives each all parameters: those that one has not do no harm.
    unused = [key for key in ("gamma", "degree", "coef0") if key not in USES.get(str(config.model.kernel), ())]
    defaults = {key: ModelSection.model_fields[key].default for key in unused}
    check_analysis(config.model_copy(update={"model": config.model.model_copy(update=defaults)}))
    return config


def _plain(value: Any) -> Any:
    """A number of NumPy as one of Python, a dtype by its name, and sequences as lists."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    if isinstance(value, np.dtype) or (isinstance(value, type) and issubclass(value, np.generic)):
        return np.dtype(value).name
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_plain(one) for one in value]
    return value
