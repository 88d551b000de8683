"""Every kind of analysis: YAML and a notebook make the same object of the same settings, and each kind has a method, a title and a page."""

import inspect
import json

import numpy as np
import pytest

from dpca import Gram
from dpca.analyses.config import load_derive
from dpca.analyses.kinds import KINDS
from dpca.errors import ConfigError

SETTINGS = {
    "pca": {"n_components": 3, "left_out": True, "as_covariance": True},
    "extended": {"lags": 4, "step": 2},
    "hilbert": {"padding": "exp", "decay": 0.1, "n_components": None},
    "dmd": {"rank": 5, "modes": "projected", "delays": 3},
    "optimized_dmd": {"rank": 2},
    "spod": {"block": 8, "overlap": 3, "frequencies": [0.1, 0.25], "n_components": 2},
    "kernel_pca": {"kernel": "poly", "gamma": "median", "degree": 2.0},
    "mca": {"groups": ["a", "b"], "permutations": 9},
    "cca": {"groups": ["a", "b"], "n_leading": 4, "seed": 1},
    "similarity": {"seed": 3},
    "distances": {},
    "pcoa": {"n_components": 2},
    "permanova": {"by": "month", "strata": "year", "seed": 2},
    "manova": {"by": "season", "n_components": 2},
    "discriminant": {"by": "season", "n_components": 2},
    "ridge": {"target": {"uri": "y.csv", "column": "y"}, "alpha": [0.1, 1.0], "left_out": True},
    "heritability": {"target": {"uri": "y.npy"}, "covariates": {"uri": "z.npy"}},
}


def test_the_table_has_every_kind():
    assert list(SETTINGS) == list(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_yaml_and_a_notebook_make_the_same_of_the_same_settings(kind, tmp_path):
    path = tmp_path / "d.yaml"
    model = json.dumps({"kind": kind, **SETTINGS[kind]})
    path.write_text(f"from: r\noutput: {{path: o}}\nanalyses: [{{name: a, model: {model}}}]\n")
    (analysis,) = load_derive(path).config.analyses
    assert analysis.model == KINDS[kind].of(**SETTINGS[kind])


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_has_a_method_with_its_settings_and_says_what_it_is(kind):
    method = getattr(Gram, kind)
    assert method.__doc__
    assert KINDS[kind].title
    asked = {name for name, field in KINDS[kind].model_fields.items() if field.is_required()} - {"kind", "groups"}
    assert asked <= set(inspect.signature(method).parameters)


@pytest.mark.parametrize(
    ("kind", "settings", "said"),
    [
        ("pca", {"n_components": 0}, "n_components is 0"),
        ("pca", {"n_components": 2.5}, "n_components is 2.5"),
        ("spod", {"block": np.int64(1)}, "block is 1"),
        ("permanova", {"by": np.arange(3), "permutations": "many"}, "permutations is 'many'"),
        ("kernel_pca", {"kernel": "gauss"}, "kernel is 'gauss', but 'linear'"),
        ("ridge", {"target": {"uri": "y"}, "alpha": -1}, "alpha is -1, but auto, a number above 0 or a list of them"),
    ],
)
def test_a_notebook_is_told_of_a_setting_by_its_name(kind, settings, said):
    with pytest.raises(ConfigError, match=said) as caught:
        KINDS[kind].of(**settings)
    assert "model" not in caught.value.message
