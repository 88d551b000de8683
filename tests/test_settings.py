"""A setting in a text is what the reader calls it: in a config, in Python, as an option of a command."""

import ast
import pickle
import re
from pathlib import Path

import pytest

import dpca
from dpca import settings
from dpca.config.explaining import options_at
from dpca.config.schema import Config
from dpca.errors import ConfigError, OverBudgetError
from dpca.settings import COMPUTE, INPUT, MODEL, OUTPUT, PREPROCESS, PYTHON, RESUME, YAML, Setting, Surface, either
from tests.parsed import parsed

OPTIONS = Surface(names={"input.samples_axis": "--samples-axis", "input.gaps": "--set input.gaps"})
SECTIONS = {name: value for name, value in vars(settings).items() if isinstance(value, Setting)}


@pytest.mark.parametrize(
    ("text", "in_yaml", "in_python"),
    [
        (f"{MODEL.precision} is", "model.precision is", "precision is"),
        (MODEL.precision.at("double"), "model.precision: double", "precision='double'"),
        (MODEL.n_components.set_to(None), "Set model.n_components: null", "Pass n_components=None"),
        (PREPROCESS.scale.at({"binomial": "plink2"}), "preprocess.scale: {binomial: plink2}", "scale={'binomial': 'plink2'}"),
        (f"{PREPROCESS.filters.min_variance}", "preprocess.filters.min_variance", "filters.min_variance"),
        (f"{OUTPUT.gram} and {OUTPUT.path}", "output.gram and output.path", "keep_gram and output.path"),
        (f"{COMPUTE.scratch}", "compute.scratch", "store"),
        (f"{PREPROCESS.sample_weights.kind}", "preprocess.sample_weights.kind", "sample_weight_kind"),
        (f"{RESUME} goes on", "dpca run --resume goes on", "dpca run --resume goes on"),
        (either("true", "True"), "true", "True"),
        ("{model.precision} is no setting", "{model.precision} is no setting", "{model.precision} is no setting"),
    ],
)  # fmt: skip
def test_a_text_has_settings_in_the_words_of_the_reader(text, in_yaml, in_python):
    assert (YAML.words(text), PYTHON.words(text)) == (in_yaml, in_python)


def test_a_command_calls_settings_by_its_options():
    text = f"{INPUT.samples_axis} is 3; {INPUT.gaps.set_to('missing')}, or {MODEL.kind.at('pca')}"
    said = "--samples-axis is 3; Set --set input.gaps=missing, or model.kind: pca"
    assert OPTIONS.words(text) == said


def test_an_error_keeps_its_settings_on_its_way_to_the_reader():
    error = OverBudgetError(f"{MODEL.kind} is 3", f"Set {MODEL.ddof}.", MODEL.kind, 7)
    for there in (error, pickle.loads(pickle.dumps(error)), error.saying(error.marked_message)):
        assert (there.message, there.remedy, there.key, there.needed_bytes) == (
            "model.kind is 3", "Set model.ddof.", "model.kind", 7,
        )  # fmt: skip
        assert str(there.for_readers_of(PYTHON)) == "kind is 3\nSet ddof."
    other = ConfigError(f"{INPUT.samples} is odd", f"Leave {INPUT.samples} out.", INPUT.samples).about(
        PREPROCESS.scale.reference, INPUT.samples
    )
    assert str(other) == "preprocess.scale.reference is odd\nLeave preprocess.scale.reference out."
    assert other.key == "preprocess.scale.reference"


KEY = re.compile(r"\b(input|preprocess|model|compute|output)\.[a-z_]+\b(?!\()")
VALUE = re.compile(r"\b(svd_solver|missing|precision|n_components|center|scale|gamma|ddof): [a-z{]+\b")
OF_COMMANDS_ALONE = ("cli", "config", "commands", "report", "analyses")
"""Rooms that Python does not reach, and the config itself."""


def test_every_setting_is_a_key_of_a_config():
    named = {
        ast.unparse(node)
        for tree in parsed().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and re.fullmatch(f"({'|'.join(SECTIONS)})(\\.[a-z_]+)+", ast.unparse(node))
    }
    keys = {re.sub(r"\.(at|set_to|key|upper|at|format)$", "", name) for name in named} - set(SECTIONS)
    assert len(keys) > 40
    paths = {name: (SECTIONS[name.partition(".")[0]].key, *name.split(".")[1:]) for name in keys}
    assert [name for name, path in sorted(paths.items()) if not options_at_any(path)] == []


def options_at_any(path):
    """What may stand at a path, of one input as in a list of them."""
    return options_at(path, Config) or options_at((path[0], 0, *path[1:]), Config)


def test_messages_of_rooms_that_python_shares_name_no_key_of_a_config_in_plain_text():
    """There is one way to name a setting, which each reader sees in words of his own."""
    found = []
    for path, tree in parsed().items():
        if path.relative_to(Path(dpca.__file__).parent).parts[0] in OF_COMMANDS_ALONE:
            continue
        for node in ast.walk(tree):
            if not isinstance(node, ast.Raise):
                continue
            for text in ast.walk(node):
                words = text.value if isinstance(text, ast.Constant) and isinstance(text.value, str) else ""
                if VALUE.search(words) or (" " in words and KEY.search(words)):  # a key alone is the place of the error
                    found.append((path.name, text.lineno, words))
    assert found == []
