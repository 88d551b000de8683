"""Groups of features after the run: some of them, weighted, and held against each other, by `dpca derive` and in a notebook."""

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import zarr

import dpca as package
from dpca.errors import ConfigError
from tests.commands.calls import dpca, run
from tests.made import made

N, SIZES = 30, {"a": 70, "b": 120, "c": 50}
SIDE_BY_SIDE = "input: [{inputs}]\n{rest}"
REST = "model: {n_components: 4, precision: double}\noutput: {path: r, components: false, report: false}\n"
DERIVE = """
from: r
analyses:
  - {name: without, features: {leave_out: [b]}, model: {kind: pca, n_components: 3}}
  - {name: weighted, features: {weights: {a: 4, c: 0.25}}, samples: [detrend: {}], model: {kind: pca, n_components: 3}}
  - {name: mfa, features: {scaling: first_eigenvalue}, model: {kind: pca, n_components: 3}}
  - {name: total, features: {only: [a, b], scaling: total_variance}, model: {kind: pca, n_components: 3}}
  - {name: coupled, model: {kind: mca, groups: [a, b], n_components: 2, permutations: 99}}
  - {name: correlated, model: {kind: cca, groups: [b, c], n_leading: 4, permutations: 99}}
  - {name: alike, model: {kind: similarity, permutations: 99, seed: 3}}
output: {path: d, report: false}
"""


def data():
    """Three groups of features, the first two of which have something in common; their means are far from 0."""
    rng = np.random.default_rng(0)
    common = rng.standard_normal((N, 2))
    x = {name: rng.standard_normal((N, size)) + 5 for name, size in SIZES.items()}
    x["a"] += common @ rng.standard_normal((2, SIZES["a"]))
    x["b"] += common @ rng.standard_normal((2, SIZES["b"])) * 2
    return x


def beside():
    """The groups as arrays, and a configuration of them side by side."""
    for name, values in data().items():
        zarr.create_array(f"{name}.zarr", data=values, chunks=(N, 60))
    inputs = ", ".join(f"{{name: {name}, uri: {name}.zarr}}" for name in SIZES)
    Path("c.yaml").write_text(SIDE_BY_SIDE.format(inputs=inputs, rest=REST))


def make(how):
    x = data()
    if how == "inputs":
        run(beside)
    elif how == "labels":
        first = [0, 70, 190]  # groups are in the order in which they first occur
        order = [*first, *np.random.default_rng(1).permutation(np.setdiff1d(np.arange(240), first))]
        zarr.create_array("x.zarr", data=np.hstack(list(x.values()))[:, order], chunks=(N, 60))
        np.save("labels.npy", np.repeat(list(SIZES), list(SIZES.values()))[order])
        Path("c.yaml").write_text("input: {uri: x.zarr}\n" + REST)
        assert dpca("run", "c.yaml", "--set", "output.groups={labels: {uri: labels.npy}}") == 0
    else:
        beside()
        for name in x:
            Path("c.yaml").write_text(f"input: {{uri: {name}.zarr}}\n" + REST)
            assert dpca("run", "c.yaml", "--set", f"output.path={name}") == 0


@pytest.fixture(params=["inputs", "labels", "results"])
def result(request):
    """The same groups of features as inputs side by side, as labels within one, and as results of their own."""
    made(make, request.param)
    return request.param, data(), "{a: a, b: b, c: c}" if request.param == "results" else "r"


def sizes_of(x, factors):
    """Singular values of features that are multiplied by factors, and shares of groups in the first three components."""
    together = np.hstack([factors[name] * (x[name] - x[name].mean(axis=0)) for name in x])
    u, s, vt = np.linalg.svd(together, full_matrices=False)
    edges = np.cumsum([0, *(x[name].shape[1] for name in x)])
    shares = [np.square(vt[:3, a:b]).sum(axis=1) for a, b in pairwise(edges)]
    return u[:, :3] * s[:3], s[:3], np.array(shares), vt[:3]


def detrended(x):
    t = np.vander(np.arange(N), 2)
    return {name: values - t @ np.linalg.lstsq(t, values, rcond=None)[0] for name, values in x.items()}


def test_analyses_of_groups_are_those_of_their_features(result):
    how, x, source = result
    components = how != "labels"
    text = DERIVE.replace("from: r", f"from: {source}").replace("detrend: {}", "detrend: {degree: 1}")
    Path("d.yaml").write_text(text + ("time: index\n") + ("" if components else "components: false\n"))
    assert dpca("derive", "d.yaml") == 0
    kept = zarr.open_group("d/result.zarr")
    found = {f"{name}/{array}": kept[f"{name}/{array}"][...] for name in kept for array in kept[name]}
    first = {name: np.linalg.norm(v - v.mean(axis=0), 2) / np.sqrt(N - 1) for name, v in x.items()}
    total = {name: np.linalg.norm(v - v.mean(axis=0)) / np.sqrt(N - 1) for name, v in x.items()}
    cases = {
        "without": (x, {"a": 1, "b": 0, "c": 1}),
        "weighted": (detrended(x), {"a": 2, "b": 1, "c": 0.5}),
        "mfa": (x, {name: 1 / value for name, value in first.items()}),
        "total": (x, {"a": 1 / total["a"], "b": 1 / total["b"], "c": 0}),
    }
    for name, (values, factors) in cases.items():
        scores, singular, shares, vt = sizes_of(values, factors)
        np.testing.assert_allclose(found[f"{name}/singular_values"], singular, rtol=1e-9)
        np.testing.assert_allclose(np.abs(found[f"{name}/scores"]), np.abs(scores), atol=1e-8)
        np.testing.assert_allclose(found[f"{name}/variance_share"], shares, atol=1e-9)
        if components:
            start = 0
            for group, size in SIZES.items():
                maps = found[f"{name}/components_{group}"]
                expected = vt[:, start : start + size]
                start += size
                if factors[group] == 0:
                    assert np.isnan(maps).all()  # 0 would look like a component
                else:
                    np.testing.assert_allclose(np.abs(maps), np.abs(expected), atol=1e-8)
    a, b, c = (values - values.mean(axis=0) for values in x.values())
    u, s, vt = np.linalg.svd(a.T @ b / (N - 1), full_matrices=False)
    np.testing.assert_allclose(found["coupled/covariance"], s[:2], rtol=1e-9)
    np.testing.assert_allclose(np.abs(found["coupled/scores"][0]), np.abs(a @ u[:, :2]), atol=1e-8)
    np.testing.assert_allclose(np.abs(found["coupled/scores"][1]), np.abs(b @ vt[:2].T), atol=1e-8)
    np.testing.assert_allclose(found["coupled/squared_covariance_fraction"], s[:2] ** 2 / np.sum(s**2), rtol=1e-9)
    if components:
        np.testing.assert_allclose(np.abs(found["coupled/components_a"][0]), np.abs(u[:, :2].T), atol=1e-8)
        np.testing.assert_allclose(np.abs(found["coupled/components_b"][1]), np.abs(vt[:2]), atol=1e-8)
        assert np.isnan(found["coupled/components_a"][1]).all()
    leading = [np.linalg.svd(one, full_matrices=False) for one in (b, c)]
    u, s, vt = np.linalg.svd(leading[0][0][:, :4].T @ leading[1][0][:, :4])
    np.testing.assert_allclose(found["correlated/correlations"], s, rtol=1e-9)
    for side, (name, (left, size, right), turn) in enumerate(zip("bc", leading, (u, vt.T), strict=True)):
        np.testing.assert_allclose(np.abs(found["correlated/scores"][side]), np.abs(left[:, :4] @ turn), atol=1e-8)
        if components:
            weights = right[:4].T / size[:4] @ turn
            np.testing.assert_allclose(
                np.abs(found[f"correlated/components_{name}"][side]), np.abs(weights.T), atol=1e-8
            )
    certificates = json.loads(Path("d/certificate.json").read_text())["analyses"]
    for array in ("coupled/p_value", "correlated/p_value", "correlated/p_value_of_first"):
        analysis, _, name = array.partition("/")
        assert found[array] == certificates[analysis][name]
    said = kept["coupled/p_value"].attrs["long_name"]
    assert said.startswith("of the sum of squared covariances, by 99 permutations")
    grams = [one @ one.T for one in (a, b, c)]
    rv = [[np.sum(k * m) / np.linalg.norm(k) / np.linalg.norm(m) for m in grams] for k in grams]
    np.testing.assert_allclose(found["alike/similarity"], rv, rtol=1e-9)
    p = found["alike/p_value"]
    assert p[0, 1] == 0.01  # the least that 99 permutations can give
    assert p[0, 2] > 0.05
    assert p[1, 2] > 0.05


def test_a_notebook_has_the_same_and_projects_samples(result):
    how, x, source = result
    gram = package.open_gram({name: name for name in x} if source != "r" else "r")
    assert gram.groups == tuple(SIZES)
    some = gram.features(leave_out=["b"], weights={"a": 2})
    found = some.pca(3)
    _, singular, shares, _ = sizes_of(x, {"a": np.sqrt(2), "b": 0, "c": 1})
    np.testing.assert_allclose(found.singular_values, singular, rtol=1e-9)
    np.testing.assert_allclose(gram.variance_share(found), shares, atol=1e-9)
    assert "features of a times 2, c" in repr(found)
    left = some.isel(sample=slice(0, 20)).pca(2)
    assert left.rest().shape == (10, 2)  # of what counts alone; no read
    if how == "labels":
        with pytest.raises(ConfigError, match="counts otherwise than others of the same input"):
            found.components()
        pair = gram.isel(sample=slice(0, 20)).cca("a", "c", 2)
        for ask in (pair.components, pair.rest, lambda: pair.transform(x)):
            with pytest.raises(
                ConfigError, match=r"one of its groups is labels within an input[\s\S]*a list of inputs"
            ):
                ask()
        return
    np.testing.assert_allclose(np.abs(found.transform(x)), np.abs(found.scores), atol=1e-8)
    found.components()
    np.testing.assert_allclose(np.abs(found.transform(x)), np.abs(found.scores), atol=1e-8)


@pytest.mark.parametrize(
    ("what", "problem"),
    [
        (lambda gram: gram.features(["d"]), "no group of features 'd', but a, b, c"),
        (lambda gram: gram.features(leave_out=["a", "b", "c"]), "no group of features is left"),
        (lambda gram: gram.features(weights={"a": -1}), "weight of group a is -1"),
        (lambda gram: gram.features(scaling="std"), "scaling is 'std'"),
        (lambda gram: gram.mca("a", "a"), "two of a, b, c are needed"),
        (lambda gram: gram.features(leave_out=["a"]).mca("a", "b"), "group a is left out"),
        (lambda gram: gram.cca("a", "b", 40), "n_leading is 40, but 1 to 29"),
        (lambda gram: gram.similarity(permutations=-1), "permutations is -1"),
    ],
)
def test_what_can_not_be_asked_of_groups_is_refused(what, problem):
    made(make, "inputs")
    with pytest.raises(ConfigError, match=problem):
        what(package.open_gram("r"))


def test_one_group_has_none_to_be_held_against(capsys):
    np.save("x.npy", data()["a"])
    Path("c.yaml").write_text("input: {uri: x.npy}\n" + REST)
    assert dpca("run", "c.yaml") == 0
    Path("d.yaml").write_text("from: r\nanalyses:\n  - {name: s, model: {kind: similarity}}\noutput: {path: d}\n")
    assert dpca("derive", "d.yaml") == 2
    assert "has one group of features" in capsys.readouterr().err
