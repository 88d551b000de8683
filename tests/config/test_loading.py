import json
import re
from pathlib import Path

import pytest

from dpca.analyses import config as derive
from dpca.analyses.config import load_derive
from dpca.config.inputs import Input
from dpca.config.loading import load
from dpca.config.reference import reference
from dpca.config.schema import Config, schema
from dpca.errors import ConfigError

MINIMAL = """\
input:
  uri: data/faces.zarr
output:
  path: results/faces
"""


def written(text, name="c.yaml"):
    Path(name).write_text(text)
    return name


def refusal(text, *overrides):
    with pytest.raises(ConfigError) as caught:
        load(written(text), overrides)
    assert caught.value.exit_code == 2
    return caught.value


def test_every_key_has_a_default_but_two():
    config = load(written(MINIMAL)).config
    assert config.input.samples_axis == 0
    assert config.model.n_components == "auto"
    assert (config.compute.cluster, config.compute.workers) == ("local", "auto")
    for key in ("input.uri", "output.path"):
        _section, name = key.split(".")
        text = MINIMAL.replace(f"  {name}:", "  # ")
        error = refusal(text)
        assert f"{key} is missing" in error.message


@pytest.mark.parametrize(
    ("text", "message", "remedy"),
    [
        ("modle:\n  kind: pca\n", "c.yaml:5:1: unknown key modle", "Did you mean model?"),
        ("model:\n  n_component: 3\n", "c.yaml:6:3: unknown key model.n_component", "Did you mean model.n_components?"),
        ("model:\n  zzz: 3\n", "c.yaml:6:3: unknown key model.zzz (allowed: kind, n_components,", "Leave it out, or write one that is allowed."),
        ("n_components: 3\n", "c.yaml:5:1: unknown key n_components", "Did you mean model.n_components?"),
        ("model:\n  n_components: many\n", "c.yaml:6:17: model.n_components is 'many', but an integer of 1 or more, a share", ""),
        ("model:\n  n_components: '3'\n", "c.yaml:6:17: model.n_components is '3', but an integer of 1 or more, a share", ""),
        ("model:\n  n_components: 0\n", "c.yaml:6:17: model.n_components is 0, but an integer of 1 or more, a share", ""),
        ("model:\n  n_components: true\n", "c.yaml:6:17: model.n_components is True, but an integer of 1 or more, a share", ""),
        ("model: {whiten: 1}\n", "c.yaml:5:17: model.whiten is 1, but true or false (yes and no are text in YAML 1.2) is allowed", ""),
        ("preprocess:\n  scale: auto\n", "c.yaml:6:10: preprocess.scale is 'auto', but none, std, pareto, range, or {binomial: plink2}, {binomial: smartpca}, {binomial: snprelate} is allowed", ""),
        ("compute:\n  cluster: slurm\n", "c.yaml:6:12: compute.cluster is 'slurm', but local, {scheduler: ADDRESS}, {scheduler_file: PATH}, {slurm: ...} or {slurm_runner: ...} is allowed", "Write slurm: {cores: 8, "),
        ("compute:\n  cluster: {scheduler: 3}\n", "compute.cluster.scheduler is 3, but text is allowed", ""),
        ("compute:\n  cluster: {schedular: x}\n", "c.yaml:6:13: unknown key compute.cluster.schedular", "Did you mean compute.cluster.scheduler?"),
        ("compute:\n  cluster: {}\n", "c.yaml:6:3: compute.cluster has none of its keys, but one of scheduler, ", "Give the address"),
        ("compute:\n  cluster: {slurm: {cores: 4}}\n", "c.yaml:6:13: compute.cluster.slurm.memory is missing", "Set compute.cluster.slurm.memory"),
        ("compute: {cluster: {slurm: {cores: 1, memory: 1 GiB, walltime: soon, maximum: 2}}}\n", "compute.cluster.slurm.walltime is 'soon', but a time such as '04:00:00' (hours:minutes:seconds) is allowed", ""),
        ("compute: {cluster: {slurm: {cores: 1, memory: 1 GiB, walltime: '60', maximum: 2, minimum: 3}}}\n", "compute.cluster.slurm.minimum is 3, which is more than its maximum, 2", ""),
        ("compute: {cluster: {slurm_runner: {workers: 2, memory: 1 GiB}, tls: {ca: a, cert: b, key: c}}}\n", "compute.cluster has tls and slurm_runner", "Leave tls out."),
        ("compute:\n  workers: 0\n", "c.yaml:6:12: compute.workers is 0, but auto or an integer of 1 or more is allowed", ""),
        ("compute:\n  memory: 8 GiB per worker\n", "c.yaml:6:11: compute.memory is '8 GiB per worker', but auto or an amount such as 8 GiB or 1.5 GiB is allowed", "Write a number with a point, and a unit"),
        ("model: {kind: kernel_pca, gamma: 0.1}\n", "model.gamma is 0.1, but model.kernel is linear, which has no gamma", "Leave model.gamma out, or set model.kernel to poly or rbf or sigmoid."),
        ("model: {kind: kernel_pca, kernel: rbf, degree: 5}\n", "model.degree is 5.0, but model.kernel is rbf, which has no degree", "set model.kernel to poly"),
        ("compute: {workers: 4, cluster: {scheduler: 'tcp://host:8786'}}\n", "compute.workers is 4, but compute.cluster is not local", "Leave it out."),
        ("compute: {memory: '1,5 GiB'}\n", "compute.memory is '1,5 GiB', but auto or an amount", "Write a number with a point"),
        ("compute: {memory: 50%}\n", "compute.memory is '50%', but auto or an amount", "Write a number"),
        ("compute: {memory: 16.GiB}\n", "compute.memory is '16.GiB', but auto or an amount", "Write a number"),
        ("compute: {memory: 0}\n", "compute.memory is 0, but auto or an amount", "1 MiB is the least"),
        ("compute: {cluster: {slurm: {cores: 1, memory: 16, walltime: '60', maximum: 2}}}\n", "compute.cluster.slurm.memory is 16, but an amount such as 8 GiB", "1 MiB is the least"),
        ("model: {labels: x.npy}\n", "c.yaml:5:17: model.labels is 'x.npy', but a mapping of keys (uri, array, column, key) is allowed", "Write labels: {uri: PATH}."),
        ("model: {labels: {uri: ''}}\n", "model.labels.uri is '', but text that is not empty is allowed", ""),
        ("model: {alpha: .inf}\n", "model.alpha is inf, but a finite number is allowed", ""),
        ("model:\n  labels:\n    uri:\n", "c.yaml:7:5: model.labels.uri is empty, but text is allowed", ""),
        ("model: 3\n", "c.yaml:5:8: model is 3, but a mapping of keys (kind, n_components, svd_solver, ", ""),
    ],
)  # fmt: skip
def test_errors_name_the_line_the_value_and_what_is_allowed(text, message, remedy):
    error = refusal(MINIMAL + text)
    assert message in error.message
    assert remedy in error.remedy
    assert error.remedy


def test_all_errors_are_told_at_once():
    error = refusal(MINIMAL + "model:\n  n_components: x\n  ddof: y\npreproces: {}\n")
    assert len(error.message.splitlines()) == 3


@pytest.mark.parametrize(
    ("text", "message", "remedy"),
    [
        ("input: x.npy\noutput: {path: y}\n", "c.yaml:1:8: input is 'x.npy', but a mapping of the keys of an input, or a list of two or more of these mappings is allowed", "Write input: {uri: PATH}."),
        ("input: {uri: x}\n", "c.yaml:1:1: output.path is missing", "Set output.path."),
        ("input:\noutput: {path: y}\n", "c.yaml:1:1: input.uri is missing", "Set input.uri."),
        ("input: {uri: [x, 5]}\noutput: {path: y}\n", "c.yaml:1:14: input.uri is ['x', 5], but text without control characters (such as line breaks), or a list of such text, is allowed", ""),
        ("input: {uri: []}\noutput: {path: y}\n", "c.yaml:1:9: input.uri is [], but text without", ""),
        ("input: {uri: x, 1: x}\noutput: {path: y}\n", "c.yaml:1:17: unknown key input.1 (allowed: name, uri, array, ", ""),
        ("input: {uri: x, missing_values: -999}\noutput: {path: y}\n", "input.missing_values is -999, but a list of numbers such as [-999] (NaN counts as missing anyway) is allowed", ""),
        ("input: {uri: x, missing_values: [.nan]}\noutput: {path: y}\n", "input.missing_values is [nan], but a list of numbers such as [-999]", ""),
        ("input: {uri: x, samples_axis: 1.0}\noutput: {path: y}\n", "input.samples_axis is 1.0, but an integer such as 0, a dimension's name, or a list of these where samples lie along several axes is allowed", ""),
        ("input: {uri: x, samples_axis: true}\noutput: {path: y}\n", "input.samples_axis is True, but an integer such as 0, a dimension's name, or a list of these where samples lie along several axes is allowed", ""),
    ],
)  # fmt: skip
def test_errors_of_the_sections_that_must_be_there(text, message, remedy):
    error = refusal(text)
    assert message in error.message
    assert remedy in error.remedy


def test_a_section_without_keys_is_as_if_left_out():
    """`dpca init` writes keys to comment out."""
    text = MINIMAL + "model:\n  # kind: kernel_pca\ncompute:\n"
    assert load(written(text)).config == load(written(MINIMAL)).config
    assert load(written(text), ["model.n_components=3"]).config.model.n_components == 3


@pytest.mark.parametrize(
    ("text", "message", "remedy"),
    [
        ("input:\n  uri: [1, 2\n", "c.yaml:3:1: not valid YAML", "Close the bracket."),
        ("input:\n  uri: a\n  uri: b\n", "c.yaml:3:3: not valid YAML: found duplicate key", "Correct the line."),
        ("- a\n- b\n", "c.yaml:1:1: is not a mapping", "Begin with"),
        ("", "c.yaml:1:1: is not a mapping", "Begin with"),
        ("input:\n\turi: a\n", "c.yaml:2:1: not valid YAML: found character", "YAML takes no tabs."),
        (
            "input:\n  uri: a\n array: b\n",
            "c.yaml:3:2: not valid YAML: the line is indented otherwise",
            "in one column.",
        ),
        (
            "input:\n  uri: a\n    array: b\n",
            "c.yaml:3:10: not valid YAML: a colon where no key can be",
            "in one column;",
        ),
        (
            "input:\n  uri: 'a\n  array: b\n",
            "c.yaml:2:8: not valid YAML: the quote that begins here is not closed",
            "Close",
        ),
        ("input: {uri: a}\n---\nb: 1\n", "c.yaml:2:1: not valid YAML: a second document begins here", "Leave --- out"),
        ("input: {uri: *.npy}\n", "c.yaml:1:14: not valid YAML: found undefined alias", "begins with * or &."),
        ("input: {uri: @x}\n", "c.yaml:1:14: not valid YAML: found character '@'", "begins with this character."),
        (
            "input: !!python/object/apply:os.getcwd []\n",
            "c.yaml:1:8: not valid YAML: could not determine a constructor",
            "begins with !.",
        ),
    ],
)
def test_what_is_no_configuration(text, message, remedy):
    error = refusal(text)
    assert message in error.message
    assert remedy in error.remedy


LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]\n" for level in range(1, 9)
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (LAUGHS, "c.yaml:5:5: is nested more than 20 levels deep, or holds more than 10,000 keys and values"),
        (
            LAUGHS.replace("[", "{<<: [").replace("]", "]}").replace("[x, x, x, x, x, x, x, x, x]", "{x: 1}"),
            "c.yaml:5:1: ",
        ),
        ("model: 3\ninput: &a [*a]", "c.yaml:2:8: is nested more than 20 levels deep"),
        ("model: 3\ninput: &a {uri: *a}", "c.yaml:2:1: is nested more than 20 levels deep"),
        ("model: 3\ninput: " + "[" * 3000, "c.yaml:2:27: is nested more than 20 levels deep"),
        ("? " * 3000, "c.yaml:1:41: is nested more than 20 levels deep"),
        ("input:\n  ? [a, b]\n  : c", "c.yaml:2:5: a key is no text"),
        ("input:\n  uri: " + "9" * 5000, "c.yaml:2:8: can't be read as a value: Exceeds the limit"),
        ("input:\n  uri: 2001-99-99", "c.yaml:2:8: can't be read as a value: month must be in 1..12"),
        ("x: 1\n" * 20_000, "c.yaml: is larger than 65536 bytes, and no config is"),
    ],
)
def test_a_text_that_stands_for_more_than_a_config_is_refused(text, message):
    Path("c.yaml").write_text(text)
    with pytest.raises(ConfigError, match=re.escape(message)):
        load("c.yaml")
    if len(text) < 4000:
        with pytest.raises(ConfigError, match="--set"):
            load(written("input: {uri: x.zarr}\noutput: {path: r}"), ["compute=" + text])


def test_an_alias_stands_for_what_it_names():
    text = "input: {uri: &here x.zarr}\noutput: {path: r}\ncompute: {cluster: {scheduler: *here}}"
    assert load(written(text)).config.compute.cluster.scheduler == "x.zarr"


def test_a_file_that_is_absent():
    with pytest.raises(ConfigError, match=r"nowhere\.yaml: can't be read: No such file") as caught:
        load("nowhere.yaml")
    assert caught.value.remedy == "Name a YAML file: dpca init DATA > run.yaml writes one."


def test_set_overrides_and_its_errors_name_it():
    loaded = load(written(MINIMAL), ["model.n_components=7", "compute.cluster={scheduler: 'tcp://h:1'}", "input.uri=x"])
    assert loaded.config.model.n_components == 7
    assert loaded.config.compute.cluster.scheduler == "tcp://h:1"
    assert loaded.config.input.uri == "x"
    assert refusal(MINIMAL, "model.n_components=x").message == (
        "--set model.n_components=x: model.n_components is 'x', but an integer of 1 or more, a share of the variance "
        "between 0 and 1, or one of auto, rank, broken_stick, gavish_donoho, marchenko_pastur, mle, bi_cross_validation is allowed"
    )
    assert "--set model.rank=3: unknown key model.rank" in refusal(MINIMAL, "model.rank=3").message
    assert "is not KEY=VALUE" in refusal(MINIMAL, "model").message
    assert (
        "--set model={n_component: 3}: unknown key model.n_component"
        in refusal(MINIMAL, "model={n_component: 3}").message
    )
    text = MINIMAL + "compute:\n  cluster:\n    slurm: {cores: 1, memory: 1 GiB, walltime: '60', maximum: 2}\n"
    assert refusal(text, "compute.cluster={slurm: {}}").message.startswith(
        "--set compute.cluster={slurm: {}}: compute.cluster.slurm.cores is missing"
    )
    error = refusal(MINIMAL, "model.n_components=[3")
    assert error.message.startswith("--set model.n_components=[3: not valid YAML: expected ',' or ']'")
    assert error.remedy == "Quote it for the shell: --set 'KEY=[1, 2]'."
    assert "has no keys" in refusal(MINIMAL, "input.uri.x=1").message


def test_yaml_is_version_1_2():
    """1e3 is a number and `no` is text, as in JSON: not as in YAML 1.1."""
    loaded = load(written(MINIMAL + "  # c\n"), ["input.array=no"])
    assert loaded.config.input.array == "no"


def test_the_schema_describes_every_key():
    described = schema()
    json.dumps(described)
    assert set(described["properties"]) == set(Config.model_fields)
    for section in described["$defs"].values():
        for name, field in section["properties"].items():
            assert field.get("description"), name
        assert section["additionalProperties"] is False


CONFIGS = sorted((Path(__file__).parents[2] / "configs").glob("*.yaml"))


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_every_config_of_the_repository_loads(path):
    assert (load_derive if "\nfrom:" in path.read_text() else load)(path).config


def test_the_reference_of_derived_analyses_is_that_of_the_schema():
    text = (CONFIGS[0].parent / "derive.md").read_text()
    made = reference(derive.schema(), root="derive", elsewhere=("compute",))
    assert text.partition("`dpca schema --derive --markdown`.\n\n")[2] == made + "\n"
    assert json.loads((CONFIGS[0].parent / "derive.schema.json").read_text()) == derive.schema()


def test_the_reference_in_the_documents_is_that_of_the_schema():
    text = (CONFIGS[0].parent / "README.md").read_text()
    assert text.partition("`dpca schema --markdown`.\n\n")[2] == reference(schema()) + "\n"


def test_the_reference_says_what_every_key_allows():
    text = reference(schema())
    for line in (
        "| `n_components` | an integer >= 1, a number > 0 and < 1, `rank`,",
        "| `gamma` | a number >= 0, `median`, `null`, a list of these | `null` |",
        "| `missing_values` | a list (a number) | `[]` |",
        "| `memory` | `auto`, an amount such as `8 GiB`",
        "| `uri` | text | required |",
        "### `compute.cluster.slurm`",
    ):
        assert line in text
    documented = set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))
    sections = [Input, *(field.annotation for key, field in Config.model_fields.items() if key != "input")]
    assert documented >= {key for section in sections for key in section.model_fields}


def test_editors_know_the_schema_of_every_config():
    """configs/dpca.schema.json is what `dpca schema` prints."""
    assert json.loads((CONFIGS[0].parent / "dpca.schema.json").read_text()) == json.loads(json.dumps(schema()))
    for path in CONFIGS:
        schema_of = "derive" if "\nfrom:" in path.read_text() else "dpca"
        assert path.read_text().startswith(f"# yaml-language-server: $schema={schema_of}.schema.json\n")


def test_there_are_configs():
    assert CONFIGS


SECRETS = [
    "input.storage_options={secret: TOPSECRET}",
    "input.storage_options.secret=TOPSECRET",
    "input.uri=s3://somebody:TOPSECRET@bucket/x.zarr",
    "input={uri: s3://x, storage_options: {secret: TOPSECRET}}",
]


@pytest.mark.parametrize("override", SECRETS)
def test_secrets_in_overrides_are_not_said_and_not_written(override):
    Path("c.yaml").write_text(MINIMAL)
    loaded = load("c.yaml", [override])
    assert "TOPSECRET" not in loaded.command
    with pytest.raises(ConfigError, match="would be written into a script") as refused:
        loaded.check_overrides()
    assert "TOPSECRET" not in str(refused.value)


def test_options_of_the_wrong_kind_are_not_said_either():
    for text, shown in (("TOPSECRET", "'(hidden)'"), ("[TOPSECRET]", "['(hidden)']")):
        assert f"input.storage_options is {shown}, but" in refusal(MINIMAL, f"input.storage_options={text}").message


def test_a_result_does_not_go_into_its_input():
    for path in ("x.zarr", "x.zarr/out", "./x.zarr/a/b"):
        text = f"input: {{uri: x.zarr}}\noutput: {{path: {path}}}\n"
        assert f"output.path is {path}, which lies in x.zarr, the input" in refusal(text).message
