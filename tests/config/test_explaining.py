"""What a config that is refused is told: the line, what was found, what is allowed there and what to write; for all kinds of all unions, and all faults."""

import re
from pathlib import Path
from typing import get_args

import pytest

from dpca.analyses.config import AnalysisSection, Filter, Step, load_derive
from dpca.analyses.resampling import Resampling
from dpca.config.allowed import REMEDIES
from dpca.config.compute import Cluster
from dpca.config.loading import load
from dpca.config.rotation import Rotation
from dpca.config.schema import Kernel
from dpca.errors import ConfigError

DERIVE = "from: r\noutput: {path: o}\nanalyses:\n- name: a\n"
RUN = "input: {uri: x.zarr}\noutput: {path: o}\n"
OF_PYDANTIC = re.compile(r"Input|tag|discriminator|dictionary|List should|valid|extract|instance|Literal|pydantic")


def told(text, load=load_derive):
    """Message and remedy, without the file in front, of the fault on the last line."""
    Path("d.yaml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        load("d.yaml")
    message = caught.value.message
    assert re.match(rf"d\.yaml:{text.count(chr(10)) + 1}:\d+: ", message), message
    assert not OF_PYDANTIC.search(message + caught.value.remedy), message
    assert "\n" not in message
    assert caught.value.remedy.endswith((".", "?"))
    return message, caught.value.remedy


MODELS = {
    model.model_fields["kind"].annotation.__args__[0]: model
    for model in get_args(AnalysisSection.model_fields["model"].annotation)
}
KINDS = ", ".join(MODELS)
GIVEN = {
    "text": "x",
    "lags": 3,
    "block": 8,
    "rank": 2,
    "groups": "[a, b]",
    "by": "month",
    "target": "{uri: y.csv}",
    "n_components": 2,
}


def needed(model):
    """The keys that a kind needs, on a line of YAML."""
    names = (name for name, field in model.model_fields.items() if field.is_required() and name != "kind")
    return "".join(f", {name}: {GIVEN[name]}" for name in names)


@pytest.mark.parametrize("kind", MODELS)
def test_every_kind_of_model_has_its_own_keys(kind):
    model, key = MODELS[kind], "analyses.0.model"
    head, keys = f"{DERIVE}  model: {{kind: {kind}{needed(model)}", ", ".join(model.model_fields)
    message, remedy = told(f"{head}, zzz: 3}}")
    assert f"unknown key {key}.zzz (allowed: {keys})" in message
    assert remedy == "Leave it out, or write one that is allowed."
    for name in model.model_fields:
        message, remedy = told(f"{head}, {name + name[-1]}: 3}}")
        assert f"unknown key {key}.{name + name[-1]} (allowed: {keys})" in message
        assert remedy == f"Did you mean {key}.{name}?"
    others = {name for other in MODELS.values() for name in other.model_fields} - {*model.model_fields}
    for name in others:
        assert f"unknown key {key}.{name} (allowed: {keys})" in told(f"{head}, {name}: 3}}")[0]


@pytest.mark.parametrize("kind", MODELS)
def test_a_kind_that_is_none_or_not_where_it_belongs(kind):
    key, wrong = "analyses.0.model", kind + kind[-1]
    message, remedy = told(f"{DERIVE}  model: {{kind: {wrong}}}")
    assert f"{key}.kind is '{wrong}', but one of {KINDS} is allowed" in message
    assert remedy == f"Did you mean {kind}?"
    message, remedy = told(f"{DERIVE}  model: {kind}")
    assert f"{key} is '{kind}', but a mapping of keys, of which kind is one of {KINDS}, is allowed" in message
    assert remedy.startswith(f"Write model: {{kind: {kind}")
    assert remedy.count("...") == needed(MODELS[kind]).count(": ") - needed(MODELS[kind]).count("{uri")
    message, remedy = told(f"{DERIVE}  model: {{knd: {kind}}}")
    assert f"unknown key {key}.knd" in message
    assert remedy == f"Did you mean {key}.kind?"


@pytest.mark.parametrize(
    ("model", "message", "remedy"),
    [
        ("{n_components: 3}", f".kind is missing (allowed: {KINDS})", "Set analyses.0.model.kind to one of them."),
        ("{}", f".kind is missing (allowed: {KINDS})", "Set analyses.0.model.kind to one of them."),
        ("{kind: 3}", f".kind is 3, but one of {KINDS} is allowed", "Write one of them."),
        ("{kind: }", ".kind is empty, but one of pca", "Write one of them."),
        ("", " is empty, but a mapping of keys, of which kind", "Write model: {kind: pca}, or another kind, with its keys."),
        ("[pca]", " is ['pca'], but a mapping of keys", "Write model: {kind: pca}, or another kind"),
        ("pcaa", " is 'pcaa', but a mapping of keys", "Write model: {kind: pca}."),
        ("{kind: optimized_dmd}", ".rank is missing", "Set analyses.0.model.rank: an integer >= 1."),
        ("{kind: permanova, by: {url: x}}", "unknown key analyses.0.model.by.url (allowed: uri, array, column)", "Did you mean analyses.0.model.by.uri?"),
        ("{kind: mca, groups: [a]}", ".groups is ['a'], but a list of at least 2 entries is allowed", ""),
        ("{kind: ridge, target: y.csv}", ".target is 'y.csv', but a mapping of keys (uri, array, column, key) is allowed", "Write target: {uri: y.csv}."),
        ("{kind: dmd, rankk: 3, rank: x}", None, None),
    ],
)  # fmt: skip
def test_faults_of_a_model(model, message, remedy):
    if message is None:  # both are wrong, and both are told
        Path("d.yaml").write_text(f"{DERIVE}  model: {model}")
        with pytest.raises(
            ConfigError, match=r"rank is 'x', but an integer or 'auto' is allowed\n.*unknown key .*rankk"
        ):
            load_derive("d.yaml")
        return
    said = told(f"{DERIVE}  model: {model}")
    assert f"analyses.0.model{message}" in said[0] or message in said[0]
    assert remedy in said[1]


OPERATORS = ", ".join(Step.model_fields)
SAMPLES = f"{DERIVE}  model: {{kind: pca}}\n  samples: "


@pytest.mark.parametrize("operator", Step.model_fields)
def test_every_operator_along_the_samples(operator):
    key, wrong = "analyses.0.samples.0", operator + operator[-1]
    message, remedy = told(f"{SAMPLES}[{{{wrong}: {{}}}}]")
    assert f"unknown key {key}.{wrong} (allowed: {OPERATORS})" in message
    assert remedy == f"Did you mean {key}.{operator}?"
    message, remedy = told(f"{SAMPLES}[{operator}]")
    assert f"{key} is '{operator}', but a mapping of keys ({OPERATORS}) is allowed" in message
    assert remedy.startswith(f"Write {{{operator}: ")
    if operator != "center":
        message, _ = told(f"{SAMPLES}[{{{operator}: [{operator}]}}]")
        model = next(one for one in get_args(Step.model_fields[operator].annotation) if hasattr(one, "model_fields"))
        assert f"{key}.{operator} is ['{operator}'], but a mapping of keys ({', '.join(model.model_fields)})" in message


@pytest.mark.parametrize(
    ("samples", "message", "remedy"),
    [
        ("detrend", "analyses.0.samples is 'detrend', but a list is allowed", "Write samples: [{detrend: {}}]."),
        ("{center: true}", "samples is {'center': True}, but a list", "Make a list of it"),
        ("[{}]", "one operator is needed, not none", f"Write one of {OPERATORS}."),
        ("[{center: true, detrend: {}}]", "one operator is needed, not detrend and center", "an entry of the list for each"),
        ("[{select: {}}]", "one key is needed, not none", "Write one of samples, year, season, month, day, hour, or"),
        ("[{select: {time: ['1990']}}]", "time is ['1990'], but two labels are allowed, the first and the last, both included", "Write {time: [first, last]}"),
        ("[{select: {season: winter}}]", "season is 'winter', but 'DJF', 'MAM', 'JJA' or 'SON' is allowed", ""),
        ("[{select: {year: 1990, mont: 3}}]", "unknown key analyses.0.samples.0.select.mont", "Did you mean analyses.0.samples.0.select.month?"),
        ("[{anomalies: month}]", "anomalies is 'month', but a mapping of keys (by) is allowed", "Write anomalies: {by: month}."),
        ("[{detrend: 1}]", "detrend is 1, but a mapping of keys (degree) is allowed", "Write detrend: {degree: 1}."),
        ("[{filter: {window: 3}}]", "filter.kind is missing", "Set analyses.0.samples.0.filter.kind: butterworth, lanczos, running_mean."),
        ("[{center: false}]", "center is False, but true is allowed", ""),
        ("[{standardize: true}]", "standardize depends on the values of each feature", "Run again with it under preprocess"),
    ],
)  # fmt: skip
def test_faults_of_operators(samples, message, remedy):
    said = told(SAMPLES + samples)
    assert message in said[0]
    assert not said[0].endswith("is allowed is allowed")
    assert remedy in said[1]


IN_DERIVE, IN_RUN = f"{DERIVE}  model: {{kind: pca, ", f"{RUN}model: {{"
SECTIONS = {  # what stands before the section, its model, and what stands behind
    "filter": (f"{SAMPLES}[{{", Filter, "}]", load_derive),
    "resampling": (IN_DERIVE, Resampling, "}", load_derive),
    "rotation": (IN_DERIVE, Rotation, "}", load_derive),
    "rotation of a run": (IN_RUN, Rotation, "}", load),
}


@pytest.mark.parametrize("section", SECTIONS)
def test_sections_with_a_kind(section):
    before, model, behind, loads = SECTIONS[section]
    key, keys = section.partition(" ")[0], ", ".join(model.model_fields)
    for kind in get_args(model.model_fields["kind"].annotation):
        message, remedy = told(f"{before}{key}: {{kind: {kind + kind[-1]}}}{behind}", loads)
        assert f"{key}.kind is '{kind + kind[-1]}', but '" in message
        assert remedy == f"Did you mean {kind}?"
        message, remedy = told(f"{before}{key}: {kind}{behind}", loads)
        assert f"{key} is '{kind}', but a mapping of keys ({keys}) is allowed" in message
        assert remedy.startswith(f"Write {key}: {{kind: ")
        message, remedy = told(f"{before}{key}: {{kind: {kind}, kindd: 3}}{behind}", loads)
        assert f"{key}.kindd (allowed: {keys})" in message
        assert remedy.endswith(f"{key}.kind?")
        assert f"{key}.zzz (allowed: {keys})" in told(f"{before}{key}: {{kind: {kind}, zzz: 3}}{behind}", loads)[0]


def test_unions_of_a_run():
    for kernel in get_args(Kernel):
        assert told(f"{RUN}model: {{kernel: {kernel}x}}", load)[1] == f"Did you mean {kernel}?"
        assert told(f"{RUN}model: {{kernel: [{kernel}, {kernel}x]}}", load)[1] == f"Did you mean {kernel}?"
    for key in Cluster.model_fields:
        message, remedy = told(f"{RUN}compute: {{cluster: {{{key}x: 3}}}}", load)
        assert f"unknown key compute.cluster.{key}x (allowed: {', '.join(Cluster.model_fields)})" in message
        assert remedy == f"Did you mean compute.cluster.{key}?"
    assert told(f"{RUN}compute: {{cluster: lokal}}", load)[1] == "Did you mean local?"
    assert told(f"{RUN}preprocess: {{scale: stdd}}", load)[1] == "Did you mean std?"
    assert told(f"{RUN}model: pca", load)[1] == "Write model: {kind: pca}."
    assert told(f"{RUN}model: {{kind: kernelpca}}", load)[1] == "Did you mean kernel_pca?"
    assert (
        told(f"{RUN}preprocess: {{scale: {{binomal: plink2}}}}", load)[1] == "Did you mean preprocess.scale.binomial?"
    )


@pytest.mark.parametrize("name", ["DJF winter", "50 %", "winter/DJF", "été", ""])
def test_names_of_analyses_are_those_of_groups(name):
    message, remedy = told(f"{DERIVE.removesuffix(chr(10)).replace('name: a', 'model: {kind: pca}')}\n  name: '{name}'")
    assert f"analyses.0.name is {name!r}, but a letter, and then letters, digits, - and _ is allowed" in message
    assert remedy == (
        "Did you mean DJF_winter?"
        if name == "DJF winter"
        else "Did you mean winter_DJF?"
        if "/" in name
        else "Correct the value."
    )


def test_a_config_of_the_other_command_says_which():
    derive, run = f"{DERIVE}  model: {{kind: pca}}\n", RUN
    for text, load_other, message, remedy in (
        (derive, load, "d x.yaml:1:1: this is a config of dpca derive: it has from and analyses, where one of dpca run has input", "Type dpca derive 'd x.yaml'"),
        (run, load_derive, "d x.yaml:1:1: this is a config of dpca run: it has input, where one of dpca derive has from and analyses", "Type dpca run 'd x.yaml'."),
    ):  # fmt: skip
        Path("d x.yaml").write_text(text)
        with pytest.raises(ConfigError) as caught:
            load_other("d x.yaml")
        assert caught.value.message == message
        assert remedy in caught.value.remedy
    for text, load_other in ((derive + "input: {uri: x}", load_derive), (run + "analyses: []", load)):
        Path("d x.yaml").write_text(text)
        with pytest.raises(ConfigError, match="unknown key"):  # keys of both are no config of the other
            load_other("d x.yaml")


@pytest.mark.parametrize("by", ["month", "time.month", "valid_time.day_of_year"])
def test_parts_of_dates_may_follow_the_name_of_their_axis(by):
    Path("d.yaml").write_text(f"{SAMPLES}[{{anomalies: {{by: {by}}}}}]")
    assert load_derive("d.yaml").config.analyses[0].samples[0].anomalies.by == by


@pytest.mark.parametrize(
    "key", ["input.sample_names", "input.features", "preprocess.regress_out.covariates", "output.groups.labels"]
)
def test_a_remedy_does_not_say_a_secret_either(key):
    Path("c.yaml").write_text(RUN)
    for value, shown in (("y.csv", True), ("s3://somebody:TOPSECRET@bucket/y.csv", False)):
        with pytest.raises(ConfigError) as caught:
            load("c.yaml", [f"{key}={value}"])
        assert "TOPSECRET" not in str(caught.value)
        assert ("y.csv}." in caught.value.remedy) == (shown and key not in REMEDIES)
