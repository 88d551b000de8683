"""Errors travel between processes with all that they say."""

import importlib
import pickle
import pkgutil
from contextlib import suppress

import pytest

import dpca
from dpca.errors import DpcaError, OverBudgetError
from dpca.execution.partitions import Incomplete


def kinds(of):
    return {of, *(kind for direct in of.__subclasses__() for kind in kinds(direct))}


def all_kinds():
    for module in pkgutil.walk_packages(dpca.__path__, "dpca."):
        with suppress(ModuleNotFoundError):  # of an extra that is not installed
            if module.name.endswith("__main__"):
                continue
            importlib.import_module(module.name)
    return sorted(kinds(DpcaError), key=lambda kind: kind.__name__)


@pytest.mark.parametrize("protocol", [2, pickle.HIGHEST_PROTOCOL])
def test_every_error_survives_pickling_with_its_fields(protocol):
    assert len(all_kinds()) > 15
    for kind in all_kinds():
        error = kind("gram", 9, [(3, "missing")]) if kind is Incomplete else kind("what", "what to do", "input.uri")
        there = pickle.loads(pickle.dumps(error, protocol))
        assert (type(there), vars(there), str(there)) == (kind, vars(error), str(error))


def test_the_same_error_in_other_words_keeps_its_fields():
    said = OverBudgetError("much", "less", "compute.memory", 7).saying("worker one: much")
    assert (said.message, said.remedy, said.key, said.needed_bytes) == ("worker one: much", "less", "compute.memory", 7)
    assert str(said) == "worker one: much\nless"
    of_a_key = said.saying(said.message, key="compute")
    assert (of_a_key.key, of_a_key.remedy, of_a_key.needed_bytes) == ("compute", "less", 7)
