"""Scales, weights, filters and missing values, of features and of samples, against NumPy."""

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

from dpca.errors import ConfigError, DataError, InputError
from dpca.numerics.certificate import caveats
from dpca.numerics.panels import Rules
from dpca.numerics.weights import SampleWeights
from dpca.sources import as_source, open_source
from dpca.sources.weights import weights_of
from tests.drawn import examples
from tests.runs import decompose_array
from tests.stores import counted

SCALES, MISSING = ("none", "std", "pareto", "range"), ("error", "mean", "drop")


def dense(x, rules, weights=1.0, mask=True, sample_weights=None):
    """X_c, (n, d), with 0 for features that are left out; means, divisors and weights, NaN for these; the divisor of variances."""
    x, n = np.where(np.broadcast_to(mask, x.shape[1:]), x, np.nan), len(x)
    w = np.ones(n) if sample_weights is None else sample_weights.values
    here = ~np.isnan(x)
    total = w @ here
    lost = np.full(total.shape, float(rules.ddof if rules.scale_ddof is None else rules.scale_ddof))
    if sample_weights is not None and sample_weights.kind == "reliability":
        lost *= np.divide(w**2 @ here, total, out=np.zeros_like(total), where=total > 0)
    with np.errstate(all="ignore"):
        mean = (w @ np.nan_to_num(x)) / total
        centred = np.where(here, x - mean, 0.0)
        variance = (w @ centred**2) / (total - lost)
        spread = np.nanmax(np.where(here, x, -np.inf), axis=0) - np.nanmin(np.where(here, x, np.inf), axis=0)
    share = 1 - here.mean(axis=0)
    out = (share == 1) | (share > rules.max_missing) | ((rules.missing == "drop") & (share > 0))
    out |= variance < rules.min_variance
    constant = ~(variance > 1e-20)
    divisor = {"none": np.ones_like(mean), "std": np.sqrt(variance), "pareto": variance**0.25, "range": spread}[
        rules.scale
    ]
    divisor = np.where(constant, 1.0, divisor)
    weights = np.broadcast_to(weights, mean.shape).astype(float)
    scaled = (
        centred if rules.center else np.where(constant & (rules.scale != "none"), 0, centred) + mean / divisor * divisor
    )
    standard = np.where(out, 0.0, np.nan_to_num(scaled / divisor * weights))
    kept = [np.where(out, np.nan, array) for array in (mean if rules.center else 0 * mean, divisor, weights)]
    whole = w.sum() - rules.ddof * (
        1 if sample_weights is None or sample_weights.kind == "frequency" else (w**2).sum() / w.sum()
    )
    return standard, *kept, whole


def check(found, x, rules, k, weights=1.0, mask=True, sample_weights=None):
    standard, mean, divisor, given_weights, whole = dense(x, rules, weights, mask, sample_weights)
    roots = np.ones(len(x)) if sample_weights is None else np.sqrt(sample_weights.values)
    _, s, vt = np.linalg.svd(roots[:, None] * standard, full_matrices=False)
    out = np.isnan(mean)
    np.testing.assert_allclose(found.outputs.array("mean")[...], mean, atol=1e-12)
    np.testing.assert_allclose(found.outputs.array("scale")[...], divisor, rtol=1e-12)
    np.testing.assert_allclose(found.outputs.array("weights")[...], given_weights)
    left_out = sum(found.counts[f"{kind}_features"] for kind in ("empty", "masked", "incomplete", "steady"))
    assert left_out == out.sum()
    np.testing.assert_allclose(found.spectrum.explained_variance, s[:k] ** 2 / whole, rtol=1e-9, atol=1e-12 * s[0] ** 2)
    np.testing.assert_allclose(found.spectrum.total, (s**2).sum(), rtol=1e-10)
    components = np.asarray(found.outputs.array("components")[...])
    assert (np.isnan(components) == out).all()
    apart = s[:k] - np.append(s, 0.0)[1 : k + 1] > 1e-3 * s[0]
    for j in range(int(np.argmin(np.append(apart, False)))):  # vectors of values that are close turn into each other
        expected = standard @ vt[j]
        sign = np.sign(expected[np.argmax(np.abs(expected))])
        np.testing.assert_allclose(found.scores[:, j], sign * expected, atol=1e-7 * s[0])
        np.testing.assert_allclose(np.nan_to_num(components[j]), sign * vt[j], atol=1e-7)
    assert found.certificate["orthogonality"] < 1e-10 if "orthogonality" in found.certificate else True


@st.composite
def drawn_rules(draw):
    missing = draw(st.sampled_from(MISSING))
    return Rules(
        draw(st.booleans()),
        draw(st.sampled_from(SCALES)),
        missing,
        draw(st.integers(0, 1)),
        scale_ddof=draw(st.sampled_from([None, 0, 1])),
        min_variance=draw(st.sampled_from([0.0, 0.0, 0.5])),
        max_missing=draw(st.sampled_from([1.0, 0.2])),
    )


@given(st.integers(4, 40), st.integers(4, 40), drawn_rules(), st.integers(0, 999), st.data())
@examples(16)
def test_scales_weights_filters_and_missing_values_are_those_of_numpy(n, d, rules, seed, data):
    rng = np.random.default_rng(seed)
    x = rng.normal(3, 1, (n, d)) * rng.gamma(2, size=d)
    if rules.missing != "error":
        x[rng.random(x.shape) < 0.1 * rng.random(d)] = np.nan
        x[:, 1] = np.nan  # land
    x[0, 0], x[1, 0], x[:, 3] = 1.0, 2.0, 7.0
    weights = rng.gamma(2, size=d) if data.draw(st.booleans(), "weights") else None
    mask = rng.random(d) < 0.8 if data.draw(st.booleans(), "mask") else None
    if mask is not None:
        x[rng.integers(n), ~mask] = np.nan  # values elsewhere are not looked at
    how = {"slab_bytes": data.draw(st.integers(60, 2000), "slab"), "n_spans": data.draw(st.integers(1, 5), "spans")}
    fields = weights_of(as_source(x), 0, *(None if array is None else as_source(array) for array in (weights, mask)))
    oracle = {"weights": 1.0 if weights is None else weights, "mask": True if mask is None else mask}
    if np.isnan(dense(x, rules, **oracle)[1]).all():
        with pytest.raises(DataError, match="left out|all .* missing"):
            decompose_array(x, 3, rules=rules, weights=fields, **how)
        return
    found = decompose_array(x, 3, rules=rules, weights=fields, solver="auto", **how)
    check(found, x, rules, 3, **oracle)


@given(
    st.integers(5, 30),
    st.integers(5, 30),
    drawn_rules(),
    st.sampled_from(["frequency", "reliability"]),
    st.integers(0, 999),
)
@examples(14)
def test_weights_of_samples(n, d, rules, kind, seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(2, 1, (n, d)) * rng.gamma(2, size=d)
    if rules.missing != "error":
        x[rng.random(x.shape) < 0.1] = np.nan
    x[:2, 0] = 1.0, 2.0
    weights = SampleWeights(rng.integers(1, 5, n).astype(float) if kind == "frequency" else rng.gamma(2, size=n), kind)
    if np.isnan(dense(x, rules, sample_weights=weights)[1]).all():
        return
    found = decompose_array(x, 3, rules=rules, sample_weights=weights, n_spans=3, slab_bytes=500)
    check(found, x, rules, 3, sample_weights=weights)


@pytest.mark.parametrize(
    ("solver", "dtype"), [("auto", "i1"), ("gram_eigh", "f4"), ("gram_eigh", "f8"), ("tsqr", "i1"), ("tsqr", "f8")]
)
def test_a_frequency_is_a_repeated_sample(solver, dtype):
    rng = np.random.default_rng(5)
    x = rng.integers(-9, 9, (12, 300)).astype(dtype)
    times = rng.integers(1, 4, 12)
    found = decompose_array(x, 4, sample_weights=SampleWeights(times.astype(float)), solver=solver)
    repeated = decompose_array(np.repeat(x, times, axis=0), 4, precision="double")
    np.testing.assert_allclose(found.spectrum.explained_variance, repeated.spectrum.explained_variance, rtol=1e-5)
    rows = np.cumsum(times) - times
    np.testing.assert_allclose(np.abs(found.scores), np.abs(repeated.scores[rows]), atol=1e-3)
    assert np.all(found.certificate["reliable"]) if "reliable" in found.certificate else True


def test_only_ratios_of_reliabilities_matter():
    x, w = np.random.default_rng(0).normal(size=(9, 50)), np.random.default_rng(1).gamma(2, size=9)
    one, other = (decompose_array(x, 3, sample_weights=SampleWeights(f * w, "reliability")) for f in (1.0, 1e-6))
    np.testing.assert_allclose(one.spectrum.explained_variance, other.spectrum.explained_variance, rtol=1e-12)
    np.testing.assert_allclose(one.scores, other.scores, atol=1e-10)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.ones(3), "holds weights of shape .3,., but"),
        (np.array([1, 1, 0, 1.0]), "the weight of sample 2 is 0, and 1 in all are not positive and finite"),
        (np.array([1, np.nan, 0, 1.0]), "the weight of sample 1 is nan, and 2 in all"),
        (np.full(4, 0.1), "sum to 0.4, which leaves no divisor"),
    ],
)
def test_weights_of_samples_that_can_not_be(weights, message):
    with pytest.raises(ConfigError, match=message):
        decompose_array_checked(np.eye(4, 9), SampleWeights(weights))


def decompose_array_checked(x, weights, n_components=2):
    from dpca.config.model import Model

    Model(n_components, sample_weights=weights).check("x", *x.shape)
    return decompose_array(x, 2, sample_weights=weights)


def test_weights_broadcast_to_the_feature_axes_by_name_or_from_the_last_axis():
    x = np.random.default_rng(0).normal(size=(6, 4, 5))
    whole = np.broadcast_to(np.arange(1.0, 5)[:, None], (4, 5))
    expected = decompose_array(x * whole, 3)
    for weights in (whole, np.arange(1.0, 5)[:, None], zarr.create_array({}, data=np.arange(1.0, 5)[:, None])):
        found = decompose_array(x, 3, weights=weights_of(as_source(x), 0, as_source(weights), None))
        np.testing.assert_allclose(found.scores, expected.scores, atol=1e-12)
    xr = pytest.importorskip("xarray")
    named = as_source(xr.DataArray(x, dims=("time", "lat", "lon")))
    for dims in (("lat",), ("lon", "lat")):
        by_name = (
            xr.DataArray(whole, dims=("lat", "lon")).isel(lon=0) if len(dims) == 1 else xr.DataArray(whole.T, dims=dims)
        )
        found = decompose_array(named, 3, weights=weights_of(named, "time", as_source(by_name), None))
        np.testing.assert_allclose(found.scores, expected.scores, atol=1e-12)
    with pytest.raises(InputError, match=r"has shape \(4,\), which does not broadcast to the feature axes \(4, 5\)"):
        weights_of(as_source(x), 0, as_source(np.ones(4)), None)


@pytest.mark.parametrize("wrong", [-1.0, np.nan, np.inf])
def test_weights_that_are_negative_or_not_finite(wrong):
    x, weights = np.random.default_rng(0).normal(size=(6, 4, 5)), np.ones((4, 5))
    weights[2, 3] = wrong
    with pytest.raises(DataError, match=rf"the weight of feature \[2, 3\] is {wrong:g}, and 1 in region"):
        decompose_array(x, 2, weights=weights_of(as_source(x), 0, as_source(weights), None))
    mask = np.ones((4, 5), bool)
    mask[2, 3] = False
    decompose_array(x, 2, weights=weights_of(as_source(x), 0, as_source(weights), as_source(mask)))


def test_all_that_is_left_out_is_counted_where_nothing_is_left():
    x = np.random.default_rng(0).normal(size=(6, 9))
    x[0, :4] = np.nan
    fields = weights_of(as_source(x), 0, None, as_source(np.arange(9) > 1))
    message = "all 9 features are left out: 2 by preprocess.filters .mask, chromosomes, variants, exclude, min_distance., 2 with more missing .*, 5 with less"
    with pytest.raises(DataError, match=message):
        decompose_array(x, 2, rules=Rules(missing="drop", min_variance=100.0), weights=fields)


@pytest.mark.parametrize("wide", [True, False])
def test_no_chunk_is_read_more_often_for_scales_weights_and_filters(tmp_path, wide):
    shape, chunks = ((8, 600), (8, 50)) if wide else ((600, 8), (50, 8))
    x = np.random.default_rng(0).normal(size=shape).astype("f4")
    array, reads = counted(zarr.create_array({}, data=x, chunks=chunks))
    fields = weights_of(
        as_source(array), 0, as_source(np.arange(1.0, shape[1] + 1)), as_source(np.arange(shape[1]) % 3 > 0)
    )
    rules = Rules(scale="range", min_variance=1e-3)
    found = decompose_array(as_source(array), 3, rules=rules, weights=fields, n_spans=3)
    assert set(reads.values()) == {found.counts["passes"]}
    assert found.counts["passes"] == 2


def test_a_fit_that_leaves_features_out_projects_what_is_missing_there(tmp_path):
    from dpca import PCA

    rng = np.random.default_rng(0)
    x, weights, mask = rng.normal(size=(10, 30)), rng.gamma(2, size=30), np.arange(30) % 4 > 0
    weights[5] = 0.0
    x[:, ~mask] = np.nan
    for center in (True, False):
        fit = PCA(9, weights=weights, filters={"mask": mask}, scale="pareto", center=center).fit(x)
        np.testing.assert_allclose(fit.transform(x), fit.fit_transform(x), atol=1e-10)
        back = fit.inverse_transform(fit.transform(x))
        assert (np.isnan(back) == ~mask).all()
        if center:
            used = mask & (weights > 0)
            np.testing.assert_allclose(back[:, used], x[:, used], atol=1e-10)
            np.testing.assert_allclose(back[:, 5], x[:, 5].mean())
        path = fit.save(tmp_path / f"fit-{center}")
        np.testing.assert_allclose(PCA.load(path).transform(x), fit.transform(x), atol=1e-10)
        np.testing.assert_allclose(np.asarray(PCA.load(path).inverse_transform(fit.transform(x))), back, atol=1e-10)


def test_rbf_distances_see_weights_and_masks():
    from sklearn.metrics.pairwise import rbf_kernel

    from dpca import KernelPCA

    rng = np.random.default_rng(0)
    x, weights, mask = rng.normal(size=(12, 40)), rng.gamma(2, size=40), np.arange(40) % 4 > 0
    fit = KernelPCA(3, kernel="rbf", gamma=0.01, weights=weights, filters={"mask": mask}).fit(x)
    kernel = rbf_kernel((x * weights)[:, mask], gamma=0.01)
    centred = kernel - kernel.mean(0) - kernel.mean(1)[:, None] + kernel.mean()
    np.testing.assert_allclose(fit.eigenvalues_, np.linalg.eigvalsh(centred)[::-1][:3], rtol=1e-9)
    new = rng.normal(size=(5, 40))
    both = rbf_kernel((new * weights)[:, mask], (x * weights)[:, mask], gamma=0.01)
    expected = (
        (both - both.mean(1)[:, None] - kernel.mean(0) + kernel.mean()) @ fit.eigenvectors_ / np.sqrt(fit.eigenvalues_)
    )
    np.testing.assert_allclose(fit.transform(new), expected, atol=1e-9)


def test_open_source_is_not_changed_by_a_mask(tmp_path):
    """Sentinels and infinities outside a mask are not looked at."""
    x = np.random.default_rng(0).normal(size=(6, 20))
    x[:, 3], x[2, 4] = np.inf, -999.0
    zarr.create_array(tmp_path / "x.zarr", data=x)
    source = open_source(tmp_path / "x.zarr", missing_values=[-999])
    mask = ~np.isin(np.arange(20), [3, 4])
    found = decompose_array(source, 3, weights=weights_of(source, 0, None, as_source(mask)))
    np.testing.assert_allclose(found.scores, decompose_array(x[:, mask], 3).scores, atol=1e-12)


@given(
    st.integers(3, 25),
    st.integers(5, 80),
    st.sampled_from(["none", "std"]),
    st.sampled_from([0.01, 0.3]),
    st.integers(0, 999),
)
@examples(12)
def test_pairwise_divides_by_the_features_that_both_samples_have(n, d, scale, share, seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(2, 1, (n, d)) * rng.gamma(2, size=d)
    x[rng.random(x.shape) < share] = np.nan
    x[:, 1], x[:, 0] = np.nan, np.arange(n)
    rules, k = Rules(scale=scale, missing="pairwise"), 2
    found = decompose_array(x, k, rules=rules, n_spans=3, slab_bytes=900)
    standard, mean, *_ = dense(x, Rules(scale=scale, missing="mean"))
    here, used = ~np.isnan(x) & ~np.isnan(mean), int((~np.isnan(mean)).sum())
    matrix = standard @ standard.T * used / (here.astype(float) @ here.T)
    values, vectors = np.linalg.eigh(matrix)
    values, vectors = values[::-1], vectors[:, ::-1]
    np.testing.assert_allclose(found.outputs.array("gram")[...], matrix, atol=1e-10 * values[0])
    np.testing.assert_allclose(found.spectrum.eigenvalues[:k], values[:k], atol=1e-10 * values[0])
    assert found.counts["passes"] == 2
    pairs, beyond = found.certificate["pairwise"], values[values < -n * 2.3e-16 * values[0]]
    assert (pairs is None) == bool(here[:, ~np.isnan(mean)].all())
    if pairs is not None:
        assert pairs["dual"] is False
        assert abs(pairs["negative_eigenvalues"] - len(beyond)) <= 1
        np.testing.assert_allclose(pairs["most_negative_ratio"], -min(values[-1], 0) / values[0], atol=1e-12)
    if values[0] - values[1] > 1e-3 * values[0]:
        sign = np.sign(vectors[np.argmax(np.abs(vectors[:, 0])), 0])
        np.testing.assert_allclose(found.scores[:, 0], sign * vectors[:, 0] * np.sqrt(values[0]), atol=1e-9 * values[0])
        components = np.asarray(found.outputs.array("components")[...])
        expected = np.where(np.isnan(mean), np.nan, standard.T @ vectors[:, 0] * sign / np.sqrt(values[0]))
        np.testing.assert_allclose(components[0], expected, atol=1e-9)


def test_pairwise_without_missing_values_is_the_gram_matrix():
    x = np.random.default_rng(0).normal(size=(9, 300)).astype("f4")
    pairs, plain = decompose_array(x, 5, rules=Rules(missing="pairwise")), decompose_array(x, 5)
    np.testing.assert_array_equal(pairs.outputs.array("gram")[...], plain.outputs.array("gram")[...])
    assert plain.certificate["pairwise"] is None


def test_pairwise_of_complete_data_has_no_note_on_pairs():
    """Neither where a feature that no sample has is left out: all that is used is there."""
    x = np.random.default_rng(0).normal(size=(9, 300))
    land = np.where(np.arange(300) < 20, np.nan, x)
    for data, expected in ((x, None), (land, None), (np.where(np.eye(9, 300) > 0, np.nan, x), False)):
        found = decompose_array(data, 5, rules=Rules(missing="pairwise")).certificate
        assert (found["pairwise"] or {}).get("dual") is expected
        assert any("K is the Gram matrix of no data" in one for one in caveats(found)) == (expected is False)


def test_pairs_of_samples_without_a_feature_in_common():
    x = np.ones((3, 4))
    x[0, :2], x[1, 2:], x[2] = np.nan, np.nan, np.arange(4)
    with pytest.raises(DataError, match="sample 0 and sample 1 have no feature in common"):
        decompose_array(x, 1, rules=Rules(missing="pairwise"))


@pytest.mark.parametrize("what", [{"sample_weights": SampleWeights(np.ones(5))}, {"solver": "tsqr"}])
def test_what_pairwise_is_not_defined_for(what):
    from dpca.config.model import Model

    with pytest.raises(ConfigError, match="divides the Gram matrix entry by entry, and is not defined for"):
        Model(2, Rules(missing="pairwise"), **what).check("x", 5, 9)


@pytest.mark.parametrize("shape", [(30, 900), (300, 20)])
@pytest.mark.parametrize("what", ["weights", "mask", "samples", "pairwise"])
def test_digits_are_right_with_weights_masks_and_pairs(what, shape):
    """The certificate's claims in single precision, of graded values down to where it has no digits left."""
    rng = np.random.default_rng(0)
    n, d = shape
    k = min(shape) - 2
    left, right = (np.linalg.qr(rng.normal(size=(m, k)))[0] for m in shape)
    x = ((left * np.logspace(0, -6, k)) @ right.T).astype("f4")
    given = {"weights": 1.0, "mask": True, "sample_weights": None}
    rules, how = Rules(), {"precision": "single"}
    if what == "weights":
        given["weights"] = rng.gamma(1, size=d)
        how["weights"] = weights_of(as_source(x), 0, as_source(given["weights"]), None)
    elif what == "mask":
        given["mask"] = rng.random(d) < 0.7
        how["weights"] = weights_of(as_source(x), 0, None, as_source(given["mask"]))
    elif what == "samples":
        given["sample_weights"] = how["sample_weights"] = SampleWeights(rng.gamma(1, size=n) + 0.05)
    else:
        rules = Rules(missing="pairwise")
        x[rng.random(x.shape) < 0.05] = np.nan
    found = decompose_array(x, 8, rules=rules, slab_bytes=20_000, n_spans=3, **how)
    standard, *_ = dense(x.astype(float), Rules(missing="mean"), **given)
    if what == "pairwise":
        here = ~np.isnan(x)
        values = np.linalg.eigvalsh(standard @ standard.T * d / (here.astype(float) @ here.T))[::-1][:8]
    else:
        roots = 1.0 if what != "samples" else np.sqrt(given["sample_weights"].values)[:, None]
        values = np.linalg.svd(roots * standard, compute_uv=False)[:8] ** 2
    for component, value in zip(found.certificate["components"], np.sqrt(np.maximum(values, 0)), strict=True):
        if component["digits"] > 0:
            assert abs(component["singular_value"] / value - 1) <= 2 * 10 ** -component["digits"]
        if value > 1e-2 * np.sqrt(values[0]):
            assert component["reliable"]


def test_a_task_carries_its_part_of_weights_in_memory_alone():
    import pickle

    from dpca.methods.passes import Pass
    from dpca.planning.cuts import plan_layout

    x = np.random.default_rng(0).normal(size=(5, 40, 1000))
    source, weights = as_source(x), as_source(np.ones((40, 1000)))
    plan = plan_layout(source.layout, 0, 2, slab_bytes=20_000, n_spans=20)
    work = Pass(
        source, plan, Rules(), np.dtype(float), weights=weights_of(source, 0, weights, as_source(np.ones((40, 1))))
    )
    whole, part = work, work.part(3)[0]
    assert len(pickle.dumps(part)) < len(pickle.dumps(whole)) / 10
    with whole.weighing() as of_whole, part.weighing() as of_part:
        for tile in plan.tiles_of(3):
            np.testing.assert_array_equal(of_part(tile), of_whole(tile))


def test_weights_are_along_the_coordinates_of_the_input():
    xr = pytest.importorskip("xarray")
    from dpca import PCA

    lat = np.array([-60.0, -20.0, 20.0, 60.0])
    x = xr.DataArray(np.random.default_rng(0).normal(size=(6, 4, 5)), dims=("time", "lat", "lon"), coords={"lat": lat})
    weights = xr.DataArray([1.0, 2, 3, 4], dims="lat", coords={"lat": lat[::-1]})
    with pytest.raises(InputError, match="position 0 along 'lat' is 60.0, but .* has -60.0 there .4 differ."):
        PCA(2, samples_axis="time", weights=weights).fit(x)
    PCA(2, samples_axis="time", weights=weights.sortby("lat")).fit(x)
    with pytest.raises(InputError, match="which does not broadcast to the feature axes"):
        PCA(2, samples_axis="time", weights=weights.rename(lat="foo")).fit(x)
    inside = x.assign_coords(lat=("lat", np.radians(lat), {"units": "radians"}))
    fit = PCA(2, samples_axis="time", weights="sqrt_cos_lat").fit(inside)
    np.testing.assert_allclose(fit.weights_[:, 0], np.sqrt(np.cos(np.radians(lat))))


def test_a_loaded_fit_has_the_weights_and_filters_of_its_own(tmp_path):
    from dpca import PCA, KernelPCA

    rng = np.random.default_rng(0)
    x, weights, mask = rng.normal(size=(10, 30)), rng.gamma(2, size=30), np.arange(30) % 4 > 0
    for kind, how in ((PCA, {}), (KernelPCA, {"kernel": "rbf", "gamma": 0.01})):
        fit = kind(3, weights=weights, filters={"mask": mask, "min_variance": 0.1}, **how).fit(x)
        loaded = kind.load(fit.save(tmp_path / kind.__name__))
        again = loaded.fit_transform(x)
        np.testing.assert_allclose(again, fit.transform(x), atol=1e-9)
    with pytest.raises(ConfigError, match="filters is .'mask'., but a mapping or None is allowed"):
        PCA(2, filters=["mask"]).fit(x)


def test_frequencies_count_as_so_many_samples_in_errors_and_what_is_left():
    from dpca import PCA

    rng = np.random.default_rng(0)
    x, times = rng.normal(size=(40, 8)), rng.integers(1, 5, 40)
    found = decompose_array(x, 3, sample_weights=SampleWeights(times.astype(float)))
    assert found.certificate["effective_samples"] == times.sum()
    np.testing.assert_allclose(found.certificate["components"][0]["sampling_error"], np.sqrt(2 / times.sum()))
    repeated = PCA(3).fit(np.repeat(x, times, axis=0))
    left = found.spectrum.projection_error[-1] / (8 - 3)
    np.testing.assert_allclose(left, repeated.noise_variance_)
    with pytest.raises(ConfigError, match="weights of samples are not defined for model.n_components: mle"):
        decompose_array_checked(x, SampleWeights(times.astype(float)), "mle")
