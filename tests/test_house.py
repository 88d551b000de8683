"""The house: rules of the code that no other tool checks. `make lint` has the rest: style, types, which file imports which."""

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

import dpca
from tests.parsed import parsed

VAGUE = re.compile(r"(What|Of|The same|As)\b")
"""The beginning of a docstring that says no noun of the field."""


@cache
def statements():
    return [node for tree in parsed().values() for node in ast.walk(tree) if isinstance(node, ast.stmt | ast.Module)]


def nodes(kind):
    return [node for node in statements() if isinstance(node, kind)]


def test_no_two_classes_have_one_name():
    assert [name for name, count in Counter(node.name for node in nodes(ast.ClassDef)).items() if count > 1] == []


def test_the_type_of_arrays_of_float64_is_defined_once():
    named = [node for node in nodes(ast.Assign) for target in node.targets if getattr(target, "id", "") == "F64"]
    assert len(named) == 1


def test_works_that_write_arrays_look_for_damage_in_them():
    """One that wraps another would say that nothing is damaged: a job array, which asks it, would never compute that again."""
    for node in nodes(ast.ClassDef):
        if "Work" in map(ast.unparse, node.bases):
            names = {one.name for one in node.body if isinstance(one, ast.FunctionDef)}
            fields = {ast.unparse(one.target) for one in node.body if isinstance(one, ast.AnnAssign)}
            assert "writes" not in names | fields or "damage" in names, node.name


def test_internal_functions_have_no_section_of_errors():
    """Their messages say it. Names that users see have one: estimators, the accessor of xarray, errors and open_result."""
    public = {path for path in parsed() if path.parent.name == "estimators" or path.name in ("errors.py", "xarray.py")}
    found = [
        (path.name, node.name)
        for path, tree in parsed().items()
        if path not in public
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
        and re.search(r"^\s*Raises\n\s*-+$", ast.get_docstring(node) or "", re.M)
    ]
    assert found == [("results.py", "open_result")]


def test_an_error_is_said_in_other_words_by_saying_so_that_no_field_is_lost():
    """`type(error)(message, ...)` drops what a kind of error has beside message, remedy and key, such as needed_bytes."""
    made = [
        node
        for tree in parsed().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Call)
        and getattr(node.func.func, "id", "") == "type"
        and getattr(node.func.args[0], "id", "") in ("error", "cause", "problem")
    ]
    assert made == []


def test_what_a_function_takes_is_in_its_signature():
    """`**how` hides from a reader, and from the checker of types, what may be passed."""
    hidden = [node.name for node in nodes(ast.FunctionDef) if getattr(node.args.kwarg, "arg", "") == "how"]
    made = [
        target.id for node in nodes(ast.AnnAssign) for target in [node.target] if getattr(target, "id", "") == "how"
    ]
    assert (hidden, made) == ([], [])


def test_docstrings_say_what_a_thing_is_by_its_noun():
    texts = [
        inner.value.value.strip()
        for node in nodes((ast.Module, ast.ClassDef, ast.FunctionDef))
        for inner in node.body
        if isinstance(inner, ast.Expr) and isinstance(inner.value, ast.Constant) and isinstance(inner.value.value, str)
    ]
    assert [text for text in texts if VAGUE.match(text)] == []


SUBJECTS = {
    "commands": "block_krylov failures inputs kernels kernels_refused leading limits others plan preprocess_keys regress_out samples schedulers",
    "derived": "components peers",
    "estimators": "peers sklearn_kernel_pca sklearn_pca",
    "genotypes": "peers",
    "methods": "claims claims_refuted missing preprocessing real_data",
}
"""Tests of what several modules of a room do together, by what a user meets. `resume`, `safety`, `slurm`, `network`, `looks` have nothing else."""


def test_tests_have_the_names_of_what_they_test():
    """A file is named by a module of the room that its folder mirrors, or is a subject that is listed here."""
    house, tests = Path(dpca.__file__).parent, Path(__file__).parent
    found = {}
    for room in (path for path in tests.iterdir() if (house / path.name).is_dir()):
        modules = {path.stem for path in (house / room.name).rglob("*") if path.suffix in ("", ".py")}
        names = {path.stem.removeprefix("test_") for path in room.glob("test_*.py")}
        found[room.name] = {
            name
            for name in names - {*SUBJECTS.get(room.name, "").split()}
            if name not in modules and not any(name.startswith(f"{module}_") for module in modules)
        }
    assert {room: names for room, names in found.items() if names} == {}
