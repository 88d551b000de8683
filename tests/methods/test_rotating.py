"""Rotated arrays of runs: right for any layout, with the same bits by any way, and nothing read for them."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml
import zarr

from dpca.config.model import Model
from dpca.errors import AssumptionError, ConfigError
from dpca.execution.executors import Threads
from dpca.numerics.certificate import caveats, caveats_of_rotation
from dpca.numerics.panels import Rules
from dpca.numerics.rotation import Rotating
from dpca.sources import as_source
from tests.commands.calls import dpca
from tests.numerics.test_fourth_moments import up_to_order_and_sign, varimax_of
from tests.resume.disturbed import disturbed, in_small_slabs
from tests.runs import RecordingSource, decompose_array
from tests.stores import bits

KINDS = ("varimax", "promax", "fastica", "jade")


def mixture(shape=(40, 30, 20), k=4, dtype="f8", seed=0):
    """Samples of k sources with heavy tails, and some noise."""
    rng = np.random.default_rng(seed)
    d = int(np.prod(shape[1:]))
    x = (rng.normal(size=(shape[0], k)) * np.arange(k, 0, -1)) @ rng.laplace(size=(k, d))
    return (x + 0.1 * rng.normal(size=(shape[0], d))).reshape(shape).astype(dtype)


def arrays_of(found, *names):
    return tuple(np.asarray(found.outputs.array(name)[...], np.float64) for name in names)


def check_consistent(found, x, n):
    """What holds for all kinds: rotated scores times rotated components is what the components gave."""
    w, z, turned, scores, matrix, variance, ratio = arrays_of(
        found,
        *("components", "scores", "rotated_components", "rotated_scores", "rotation_matrix"),
        *("rotated_explained_variance", "rotated_explained_variance_ratio"),
    )
    k = turned.shape[0]
    w, turned = np.nan_to_num(w.reshape(len(w), -1)), np.nan_to_num(turned.reshape(k, -1))
    np.testing.assert_allclose(scores @ turned, z[:, :k] @ w[:k], atol=1e-5 * np.abs(z).max())
    np.testing.assert_allclose(np.linalg.norm(turned, axis=1), 1, rtol=1e-6)
    np.testing.assert_allclose(scores.var(0, ddof=1), variance, rtol=1e-6)
    assert (np.diff(variance) <= 0).all()
    assert (scores[np.abs(scores).argmax(0), np.arange(k)] > 0).all()
    np.testing.assert_allclose(
        ratio, variance / np.nan_to_num(x - x.mean(0)).reshape(n, -1).var(0, ddof=1).sum(), rtol=1e-5
    )
    correlation = np.linalg.inv(matrix[:k].T @ matrix[:k])
    np.testing.assert_allclose(np.corrcoef(scores.T), correlation, atol=1e-6)
    certificate = found.certificate["rotation"]
    assert json.loads(json.dumps(certificate)) == certificate
    assert certificate["converged"]
    assert certificate["n_components"] == k
    assert certificate["overlap_error"] is None or certificate["overlap_error"] < 1e-5
    return certificate


@pytest.mark.parametrize(("kind", "dtype"), [*((kind, "f8") for kind in KINDS), ("promax", "f4")])
def test_rotated_scores_and_components_are_those_of_the_rotation(kind, dtype):
    x = mixture(dtype=dtype)
    found = decompose_array(x, 5, rotation=Rotating(kind, n_components=4), slab_bytes=40 * 8 * 60, n_spans=4)
    check_consistent(found, x, 40)
    assert found.outputs.array("rotated_components").dtype == dtype
    assert found.outputs.array("rotation_matrix").shape == (5, 4)
    assert not arrays_of(found, "rotation_matrix")[0][4].any()
    assert ("factor_correlation" in found.outputs) == (kind != "varimax")


@pytest.mark.parametrize("kind", KINDS)
def test_where_features_are_kept_it_is_the_same_rotation(kind):
    x = mixture((200, 90))
    wide = decompose_array(x, 4, rotation=Rotating(kind), solver="gram_eigh")
    tall = decompose_array(x, 4, rotation=Rotating(kind), n_spans=4, slab_bytes=90 * 8 * 20)
    check_consistent(tall, x, 200)
    names = ("rotated_components", "rotated_scores", "rotation_matrix", "rotated_explained_variance")
    for name, one, other in zip(names, arrays_of(wide, *names), arrays_of(tall, *names), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6 * np.abs(one).max(), err_msg=name)


@pytest.mark.parametrize("normalize", [True, False])
def test_varimax_is_the_loop_over_loadings_of_a_dense_svd(normalize):
    x = mixture((30, 500))
    found = decompose_array(x, 4, rotation=Rotating("varimax", normalize=normalize), slab_bytes=30 * 8 * 64)
    _, s, vt = np.linalg.svd(x - x.mean(0), full_matrices=False)
    loadings = vt[:4].T * s[:4] / np.sqrt(29)
    rows = loadings / np.linalg.norm(loadings, axis=1)[:, None] if normalize else loadings
    rotated = loadings @ varimax_of(rows)
    (components,) = arrays_of(found, "rotated_components")
    (variance,) = arrays_of(found, "rotated_explained_variance")
    ours = components.T * np.sqrt(variance)
    np.testing.assert_allclose(ours, up_to_order_and_sign(ours, rotated), atol=1e-7 * np.abs(ours).max())


def test_features_that_are_left_out_stay_out():
    x = mixture()
    x[:, 3, :] = np.nan
    found = decompose_array(x, 4, rules=Rules(missing="mean"), rotation=Rotating("promax"))
    plain = decompose_array(np.delete(x, 3, axis=1), 4, rotation=Rotating("promax"))
    (with_gaps,), (without,) = (arrays_of(one, "rotated_components") for one in (found, plain))
    assert np.isnan(with_gaps[:, 3]).all()
    np.testing.assert_allclose(np.delete(with_gaps, 3, axis=1), without, atol=1e-7)


def test_nothing_is_read_for_a_rotation():
    recording = RecordingSource(as_source(mixture()))
    decompose_array(recording, 4, rotation=Rotating("promax"), slab_bytes=40 * 8 * 60, n_spans=4)
    seen = np.zeros((40, 30, 20), int)
    for region in recording.regions:
        seen[region] += 1
    assert (seen == 2).all()


@pytest.mark.parametrize(
    ("kind", "shape"), [*((kind, (40, 30, 20)) for kind in KINDS), ("promax", (400, 30)), ("jade", (400, 30))]
)
def test_one_worker_and_two_give_the_same_bits(kind, shape):
    names = ("rotated_components", "rotated_scores", "rotation_matrix", "rotated_explained_variance")
    one, two = (
        decompose_array(
            mixture(shape), 4, rotation=Rotating(kind), executor=Threads(n), slab_bytes=40 * 8 * 60, n_spans=4
        )
        for n in (1, 2)
    )
    for a, b in zip(arrays_of(one, *names), arrays_of(two, *names), strict=True):
        assert a.tobytes() == b.tobytes()


def test_components_that_are_zero_are_not_rotated():
    x = np.outer(np.arange(40.0), np.repeat([1.0, -2.0], 300))
    found = decompose_array(x, 3, rotation=Rotating("varimax", n_components=3))
    assert found.certificate["rotation"]["n_components"] == 1
    assert found.outputs.array("rotated_components").shape == (1, 600)
    assert "varimax is of 1 of the 3 components that were asked for" in " ".join(caveats(found.certificate))
    found = decompose_array(np.ones((40, 600)), 3, rotation=Rotating("varimax"))
    assert "varimax rotated nothing" in caveats_of_rotation(found.certificate["rotation"])[0]


def test_what_can_not_be_rotated_is_refused_by_its_key():
    with pytest.raises(ConfigError, match=r"is 6, but .* has at most 4") as caught:
        Model(4, rotation=Rotating("varimax", n_components=6)).check("x", 40, 600)
    assert caught.value.key == "model.rotation.n_components"
    with pytest.raises(ConfigError, match="at most 100 can be rotated"):
        Model(None, rotation=Rotating("varimax")).check("x", 400, 6000)
    with pytest.raises(ConfigError, match="pairwise"):
        Model(4, Rules(missing="pairwise"), rotation=Rotating("varimax")).check("x", 40, 600)
    same = np.outer(np.arange(-20.0, 20), np.ones(600))
    with pytest.raises(AssumptionError, match="independent components are not defined"):
        decompose_array(same, 1, rotation=Rotating("jade"))


# By the command.


@pytest.fixture
def config(monkeypatch):
    zarr.create_array("x.zarr", data=mixture((20, 6000)), chunks=(20, 600), dimension_names=("time", "x"))
    asked = {
        "input": {"uri": "x.zarr"},
        "model": {"n_components": 4, "rotation": {"kind": "promax"}},
        "output": {"path": "r"},
    }
    Path("c.yaml").write_text(yaml.safe_dump(asked))
    in_small_slabs(monkeypatch)
    return "c.yaml"


@pytest.mark.long
@pytest.mark.parametrize("stage", ["fourth moments", "promax target", "rotated components"])
def test_a_run_that_is_killed_in_a_sweep_of_the_rotation_goes_on_to_the_same_bits(config, stage):
    assert dpca("run", config) == 0
    undisturbed = bits("r")
    shutil.rmtree("r")
    task = {
        "fourth moments": "moments_span",
        "promax target": "targets_span",
        "rotated components": "orthogonalize_span",
    }
    kill = f"""
import os, signal
from dpca.methods import rotating
inner, done = rotating.{task[stage]}, []
def counted(*arguments):
    done.append(1)
    if len(done) > 4:
        os.kill(os.getpid(), signal.SIGKILL)
    return inner(*arguments)
rotating.{task[stage]} = counted
"""
    ended = disturbed(kill, "run", config)
    assert ended.returncode == -9, ended.stderr
    assert dpca("run", config, "--resume") == 0
    assert bits("r") == undisturbed


@pytest.mark.long
def test_a_job_array_gives_the_same_bits(config, capsys):
    assert dpca("run", config, "--set", "output.path=expected") == 0
    assert dpca("batch", "init", config, "--partitions", "2") == 0
    stages = []
    for _ in range(7):
        capsys.readouterr()
        assert dpca("batch", "status", "r", "--json") == 0
        found = json.loads(capsys.readouterr().out)
        if found["state"] == "done":
            break
        stages.append(found["stage"])
        for index in range(found["partitions"]):
            assert dpca("batch", "partition", "r", "--index", str(index)) == 0
        assert dpca("batch", "finalize", "r") == 0
    assert stages[-3:] == ["fourth moments", "promax target", "rotated components"]
    assert bits("r") == bits("expected")


def test_the_command_names_components_that_are_not_reliable(capsys):
    rng = np.random.default_rng(0)
    u, v = np.linalg.qr(rng.normal(size=(20, 5)))[0], np.linalg.qr(rng.normal(size=(3000, 5)))[0]
    np.save("x.npy", (u * [1, 0.5, 0.2, 6e-4, 1e-7]) @ v.T)
    Path("c.yaml").write_text(
        "input: {uri: x.npy}\npreprocess: {center: false}\n"
        "model: {n_components: 4, svd_solver: gram_eigh, precision: single, rotation: {kind: varimax}}\noutput: {path: r}\n"
    )
    assert dpca("run", "c.yaml") == 0
    assert json.loads(Path("r/certificate.json").read_text())["rotation"]["not_reliable"] == [3]
    assert "varimax mixes component 4, which is not reliable" in capsys.readouterr().err


def test_inputs_side_by_side_are_rotated_together():
    x = mixture((30, 700))
    np.save("a.npy", x[:, :300])
    np.save("b.npy", x[:, 300:])
    np.save("x.npy", x)
    model = "model: {n_components: 4, rotation: {kind: varimax}}\n"
    Path("two.yaml").write_text(
        f"input: [{{uri: a.npy, name: a}}, {{uri: b.npy, name: b}}]\n{model}output: {{path: two}}\n"
    )
    Path("one.yaml").write_text(f"input: {{uri: x.npy}}\n{model}output: {{path: one}}\n")
    assert dpca("run", "two.yaml") == dpca("run", "one.yaml") == 0
    two, one = (zarr.open_group(f"{name}/result.zarr", mode="r") for name in ("two", "one"))
    both = np.hstack([two["rotated_components_a"][...], two["rotated_components_b"][...]])
    np.testing.assert_allclose(both, one["rotated_components"][...], atol=1e-9)
    np.testing.assert_allclose(two["rotated_scores"][...], one["rotated_scores"][...], atol=1e-7)


def test_without_components_there_is_nothing_to_rotate(config, capsys):
    assert dpca("run", config, "--set", "output.components=false") == 2
    assert "there are no components to rotate" in capsys.readouterr().err
