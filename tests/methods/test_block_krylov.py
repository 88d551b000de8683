"""svd_solver: block_krylov gives what a dense SVD gives, within the bounds that it states, whatever the data and their preprocessing."""

import warnings

import dask.array as da
import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning

from dpca import PCA, slabs
from dpca.errors import ConfigError, OverBudgetError
from dpca.numerics.certificate import caveats
from dpca.planning import search
from tests.drawn import examples
from tests.reference import dense_pca
from tests.runs import decompose_array
from tests.stores import counted

KRYLOV = {"svd_solver": "block_krylov"}


def factors(n, d, seed=0, dtype="f4", decay=6, noise=0.05):
    """A few factors, of which each is a half of the one before or so, and noise."""
    g = np.random.default_rng(seed)
    x = g.standard_normal((n, 12)) * 2.0 ** -np.arange(12) @ g.standard_normal((12, d))
    x = 10 * x + noise * g.standard_normal((n, d)) + g.uniform(-3, 3, d)
    return np.round(4 * x).astype(dtype) if np.dtype(dtype).kind in "iu" else x.astype(dtype)


def fitted(x, k, **how):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return PCA(k, **KRYLOV, **how).fit(x)


def assert_within_bounds(pca, dense, *, vectors=True):
    """Values within their bounds; vectors where they are far from each other, to what these leave."""
    components = pca.certificate_["components"]
    true = dense.singular_values[: len(components)] ** 2
    found = pca.singular_values_**2
    for component, value, exact in zip(components, found, true, strict=True):
        size = value if value > 0 else float(found.max(initial=0.0))
        assert abs(value - exact) <= component["bound"] * size + 2e-14 * true[0], (component, value, exact)
    if vectors:
        mine, exact = (
            np.nan_to_num(pca.components_.reshape(len(found), -1)),
            np.nan_to_num(dense.components[: len(found)]),
        )
        cosines = np.abs(np.einsum("kd,kd->k", exact, mine))
        np.testing.assert_allclose(cosines, 1, atol=1e-3)


def long(*values):
    return pytest.param(*values, marks=pytest.mark.long)


@pytest.mark.parametrize("shape", [(120, 900), (900, 120), long((200, 200))])
@pytest.mark.parametrize(
    "how",
    [
        {},
        {"scale": "std"},
        {"block_krylov": {"windows": True}},
        {"precision": "single", "block_krylov": {"tolerance": 1e-5}},
        long({"center": False}),
        long({"precision": "double"}),
        long({"block_krylov": {"restart": True}}),
        long({"block_krylov": {"block": 8, "tolerance": 1e-9}, "precision": "double"}),
        long({"whiten": True}),
    ],
    ids=str,
)
def test_it_is_the_dense_answer(shape, how):
    x = factors(*shape)
    pca = fitted(x, 5, **how)
    dense = dense_pca(x, center=how.get("center", True), scale=how.get("scale", "none"))
    assert_within_bounds(pca, dense)
    certificate = pca.certificate_
    assert certificate["solver"] == "block_krylov"
    assert certificate["none_missed"] == "probable"
    assert certificate["block_krylov"]["converged"]
    assert certificate["reliable_components"] == 5
    assert all(c["residual_data"] < 1e-3 for c in certificate["components"])
    assert certificate["orthogonality"] < 1e-5
    sigma = dense.singular_values[:5]
    scores = dense.vectors[:, :5] * (np.sqrt(len(x) - 1) if how.get("whiten") else sigma)
    mine = pca.fit_transform(x)
    np.testing.assert_allclose(np.abs(mine), np.abs(scores), atol=2e-3 * np.abs(scores).max())
    assert (mine[np.abs(mine).argmax(axis=0), range(5)] > 0).all()  # the sign rule
    np.testing.assert_allclose(pca.explained_variance_ratio_, sigma**2 / dense.total, rtol=1e-5)


@examples(10)
@given(
    st.integers(3, 40),
    st.integers(1, 60),
    st.sampled_from(["f4", "f8", "i2", "u1", "f2"]),
    st.booleans(),
    st.integers(1, 6),
    st.integers(0, 20),
)
def test_small_data_of_any_shape(n, d, dtype, center, k, seed):
    x = np.random.default_rng(seed).uniform(0, 60, (n, d)).astype(dtype)
    k = min(k, n, d)
    pca = fitted(x, k, center=center)
    assert_within_bounds(pca, dense_pca(x, center=center), vectors=False)
    assert pca.components_.shape == (k, d)


@pytest.mark.parametrize("axis", [1, long(0), long(2)])
def test_the_axis_of_samples_may_be_any(axis):
    x = np.moveaxis(factors(60, 20 * 30).reshape(60, 20, 30), 0, axis)
    pca = fitted(x, 3, samples_axis=axis)
    dense = dense_pca(np.moveaxis(x, axis, 0).reshape(60, -1))
    assert_within_bounds(pca, dense)
    assert pca.components_.shape == (3, 20, 30)
    many = np.moveaxis(factors(700, 20 * 3).reshape(700, 20, 3), 0, axis)
    assert_within_bounds(fitted(many, 3, samples_axis=axis), dense_pca(np.moveaxis(many, axis, 0).reshape(700, -1)))


@pytest.mark.parametrize(
    ("shape", "scale"), [((80, 500), "std"), ((500, 80), "none"), long((80, 500), "none"), long((500, 80), "std")]
)
def test_missing_values_become_means(shape, scale):
    x = factors(*shape)
    x[np.random.default_rng(1).random(shape) < 0.03] = np.nan
    x[:, 7] = np.nan
    assert_within_bounds(fitted(x, 3, missing="mean", scale=scale), _present(x, scale))


def _present(x, scale):
    there = ~np.isnan(x).all(axis=0)
    dense = dense_pca(x[:, there], scale=scale)
    components = np.zeros((len(dense.components), x.shape[1]))
    components[:, there] = dense.components
    dense.components = components
    return dense


def test_features_are_left_out_and_weighted():
    x = factors(60, 400)
    x[:, 5] = 1.0
    weights = np.linspace(0.5, 2, 400)
    pca = fitted(x, 3, weights=weights, filters={"min_variance": 1e-6})
    dense = dense_pca((x - x.mean(0, dtype=float)) * np.where(np.arange(400) == 5, 0, weights))
    assert_within_bounds(pca, dense)
    assert np.isnan(pca.components_[:, 5]).all()
    tall = factors(500, 60)
    tall[:, 5] = 1.0
    pca = fitted(tall, 3, weights=weights[:60], filters={"min_variance": 1e-6})
    kept = np.where(np.arange(60) == 5, 0, weights[:60])
    assert_within_bounds(pca, dense_pca((tall - tall.mean(0, dtype=float)) * kept))


def test_samples_are_weighted():
    x = factors(60, 400)
    weights = np.random.default_rng(0).integers(1, 4, 60)
    pca = PCA(3, **KRYLOV).fit(x, sample_weight=weights)
    dense = dense_pca(np.repeat(x, weights, axis=0))
    assert_within_bounds(pca, dense)


def test_a_regression_is_subtracted_in_every_pass():
    line = np.linspace(0, 30, 60)[:, None]
    x = factors(60, 400) + line.astype("f4")
    both = np.hstack([line, np.ones((60, 1))])
    rest = x - both @ np.linalg.lstsq(both, x.astype(float), rcond=None)[0]
    pca = PCA(3, regress_out={"covariates": line}, **KRYLOV).fit(x)
    assert_within_bounds(pca, dense_pca(rest))


def test_inputs_lie_side_by_side():
    left, right = factors(60, 300), factors(60, 200, seed=1, dtype="f8")
    pca = PCA(3, **KRYLOV).fit({"left": left, "right": right})
    dense = dense_pca(np.hstack([left, right]))
    np.testing.assert_allclose(pca.singular_values_, dense.singular_values[:3], rtol=1e-6)
    np.testing.assert_allclose(pca.variance_share_.sum(axis=0), 1, rtol=1e-6)


def test_the_same_bits_for_any_number_of_threads_and_any_cuts_of_time():
    x = factors(90, 4000, dtype="f8")

    def bits(**how):
        found = decompose_array(x, 4, solver="block_krylov", n_spans=9, tile_width=1, slab_bytes=90 * 8 * 100, **how)
        return [
            np.asarray(found.outputs.array(name)[...]).tobytes() for name in ("scores", "eigenvalues", "components")
        ]

    from dpca.execution.executors import Threads

    assert bits(executor=Threads(1)) == bits(executor=Threads(3)) == bits(executor=Threads(2), window=9)


def test_each_pass_reads_each_chunk_once():
    array, reads = counted(zarr.create_array({}, data=factors(120, 3000), chunks=(40, 300)))
    pca = PCA(4, memory="400 MiB", **KRYLOV).fit(array)
    passes = pca.certificate_["block_krylov"]["passes"]
    kept = pca._result.manifest["keeps_data"]
    assert max(reads.values()) <= (1 if kept else passes)
    assert pca._result.manifest["counts"]["passes"] == passes


def test_dask_arrays_stay_lazy_and_have_the_same_answer():
    x = factors(120, 3000)
    lazy = PCA(4, **KRYLOV).fit(da.from_array(x, chunks=(120, 300)))
    assert isinstance(lazy.components_, da.Array)
    np.testing.assert_allclose(lazy.singular_values_, dense_pca(x).singular_values[:4], rtol=1e-6)


def test_far_means_and_integers():
    x = factors(60, 500, dtype="f8") + 1e6
    assert_within_bounds(fitted(x, 3), dense_pca(x))
    assert_within_bounds(fitted(x.astype("f4"), 3), dense_pca(x.astype("f4")), vectors=False)
    small = factors(60, 500, dtype="i1", noise=0.3)
    assert_within_bounds(fitted(small, 3), dense_pca(small))


def test_constant_and_rank_deficient_data():
    constant = fitted(np.full((20, 50), 3.5), 4)
    assert (constant.singular_values_ == 0).all()
    assert constant.certificate_["block_krylov"]["converged"]
    assert caveats(constant.certificate_) == [
        "the samples do not differ from their mean: there are no components to find, and all are zero"
    ]
    g = np.random.default_rng(0)
    low = (g.standard_normal((50, 3)) @ g.standard_normal((3, 400))).astype("f4")
    pca = fitted(low, 6)
    np.testing.assert_allclose(pca.singular_values_[:3], dense_pca(low).singular_values[:3], rtol=1e-6)
    assert (pca.singular_values_[3:] == 0).all()
    assert (pca.components_[3:] == 0).all()
    assert pca.certificate_["reliable_components"] == 3
    assert pca.certificate_["block_krylov"][
        "converged"
    ]  # the others are known to be 0, as far as single precision can tell
    assert "components 4 to 6 can't be told from rounding" in " ".join(caveats(pca.certificate_))


def test_equal_values_are_all_found_and_called_not_separate():
    g = np.random.default_rng(0)
    basis, rows = np.linalg.qr(g.standard_normal((300, 5)))[0], np.linalg.qr(g.standard_normal((90, 6)))[0][:, 1:]
    rows -= rows.mean(axis=0)
    rows = np.linalg.qr(rows)[0]
    x = (rows * [3.0, 3.0, 3.0, 3.0, 1.0]) @ basis.T
    pca = fitted(x, 5, precision="double")
    np.testing.assert_allclose(pca.singular_values_, [3, 3, 3, 3, 1], rtol=1e-10)
    assert [c["separate"] for c in pca.certificate_["components"]] == [False, False, False, False, True]


def test_components_in_the_bulk_are_said_to_be_so():
    g = np.random.default_rng(0)
    x = g.standard_normal((600, 2000)).astype("f4")
    x += (20 * g.standard_normal((600, 2)) @ g.standard_normal((2, 2000))).astype("f4")
    with pytest.warns(ConvergenceWarning, match="4 of 6 components are not known to 1e-06 after"):
        pca = PCA(6, **KRYLOV).fit(x)
    components = pca.certificate_["components"]
    assert [c["bulk"] for c in components] == [False, False, True, True, True, True]
    assert [c["reliable"] for c in components] == [True, True, False, False, False, False]
    assert_within_bounds(pca, dense_pca(x), vectors=False)
    (said,) = caveats(pca.certificate_)
    assert said.startswith("components 3 to 6 lie in the bulk, hardly larger than what is around: known to ")
    assert pca.certificate_["block_krylov"]["passes"] < 12  # nothing is spent on what can't be reached


def test_what_an_independent_block_finds_is_measured():
    x = factors(120, 900)
    without, restarted = fitted(x, 4), fitted(x, 4, block_krylov={"restart": True})
    assert without.certificate_["block_krylov"]["restart"] is None
    found = restarted.certificate_["block_krylov"]
    assert found["restart"] < 1e-6
    assert found["passes"] == without.certificate_["block_krylov"]["passes"] + 2


def test_a_value_that_was_missed_is_found_by_a_restart(monkeypatch):
    """The first block is made orthogonal to the first component, as no random one is."""
    x = factors(120, 900, dtype="f8")
    first = dense_pca(x).vectors[:, 0]
    from dpca.methods import block_krylov as method

    random = method.random_block

    def blind(m, columns, null, number=0):
        block = random(m, columns, null, number)
        return block if number else np.linalg.qr(block - np.outer(first, first @ block))[0]

    monkeypatch.setattr(method, "random_block", blind)
    found = fitted(x, 4, block_krylov={"restart": True}, precision="double")
    assert found.certificate_["block_krylov"]["restart"] > 0.1
    np.testing.assert_allclose(found.singular_values_, dense_pca(x).singular_values[:4], rtol=1e-6)
    assert "the first block had missed something" in " ".join(caveats(found.certificate_))


def test_auto_takes_it_where_no_matrix_fits():
    x = np.random.default_rng(0).standard_normal((4000, 5000), dtype="f4")
    x[:, :3000] += 3 * np.random.default_rng(1).standard_normal((4000, 1), dtype="f4")
    pca = PCA(1, memory="480 MiB").fit(da.from_array(x, chunks=(4000, 500)))
    assert pca.certificate_["solver"] == "block_krylov"
    assert PCA(1, memory="8 GiB").fit(da.from_array(x[:500], chunks=(500, 500))).certificate_["solver"] == "gram_eigh"
    with pytest.raises(
        OverBudgetError,
        match="With a number for n_components, model.svd_solver: block_krylov needs|With a number for n_components, svd_solver='block_krylov' needs no matrix",
    ):
        PCA(0.9, memory="480 MiB").fit(da.from_array(x, chunks=(4000, 500)))


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"block_krylov": {"block": 3}}, "block is 3, but 4 components are asked for"),
        (
            {"block_krylov": {"tolerance": 1e-9}, "precision": "single"},
            "below what products in single precision can support",
        ),
        ({"block_krylov": {"tolerance": 1e-16}}, "below what double precision can support: 1.42109e-14"),
        ({"block_krylov": {"passes": 3}}, "(?s)unknown key block_krylov.passes .* mean block_krylov.max_passes"),
        ({"block_krylov": {"max_passes": 1}}, "block_krylov.max_passes is 1, but at least 2"),
        ({"block_krylov": {"max_passes": 2, "windows": True}}, "the pass with windows is followed by two more"),
        ({"missing": "pairwise"}, "makes no n x n matrix, but missing='pairwise' needs it"),
    ],
)
def test_what_can_not_be_is_refused(how, message):
    with pytest.raises(ConfigError, match=message):
        PCA(4, **KRYLOV, **how).fit(factors(60, 100))


@pytest.mark.parametrize("asked", [0.9, "rank", None])
def test_the_number_of_components_has_to_be_one(asked):
    with pytest.raises(ConfigError, match="makes no n x n matrix, but n_components=.* needs it"):
        PCA(asked, **KRYLOV).fit(factors(60, 100))


def test_one_pass_alone_says_that_nothing_is_certain():
    pca = fitted(factors(120, 900), 3, block_krylov={"max_passes": 2, "block": 3})
    assert pca.certificate_["block_krylov"]["passes"] == 2
    assert not any(c["met"] for c in pca.certificate_["components"])
    assert_within_bounds(pca, dense_pca(factors(120, 900)), vectors=False)


@pytest.mark.long
def test_real_data(shared_data):
    faces = np.load(shared_data("orl-faces") / "faces_400x10304_u8.npy")
    pca = fitted(faces, 10)
    assert_within_bounds(pca, dense_pca(faces))
    np.testing.assert_allclose(pca.explained_variance_ratio_[:3], [0.1760955, 0.12906636, 0.06841042], rtol=1e-6)
    np.testing.assert_allclose(pca.explained_variance_[:3], [2823910.06, 2069739.46, 1097046.14], rtol=1e-6)
    golub = np.load(shared_data("golub-expression") / "expression_72x7129_f64.npy")
    np.testing.assert_allclose(
        fitted(golub, 3).explained_variance_ratio_, [0.17427768, 0.10338643, 0.0769023], rtol=1e-6
    )


@pytest.mark.long
def test_real_genotypes(shared_data):
    genotypes = np.load(shared_data("hapmap-genotypes") / "genotype_279x9088_int8.npy")
    x = np.where(genotypes < 0, np.nan, genotypes.astype("f4"))
    krylov, gram = fitted(x, 4, missing="mean"), PCA(4, missing="mean", precision="double").fit(x)
    bounds = np.array([c["bound"] for c in krylov.certificate_["components"]])
    assert (np.abs(krylov.singular_values_**2 / gram.singular_values_**2 - 1) <= bounds + 1e-12).all()
    assert (bounds[:2] <= 1e-6).all()


def in_spans(x, chunks, monkeypatch):
    monkeypatch.setattr(slabs, "TILE_WIDTH", 1)
    monkeypatch.setattr(search, "PRODUCT_SLAB_BYTES", 60_000)
    return zarr.create_array({}, data=x, chunks=chunks)


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("dtype", ["f4", long("f8")])
def test_windows_lose_nothing_that_their_first_spans_know_nothing_of(center, dtype, monkeypatch):
    """Cells and genes, rare variants: a stretch of features differs from 0 in some samples only, so that K of some spans maps most to 0."""
    g = np.random.default_rng(3)
    x = np.zeros((120, 4000))
    for b in range(8):
        block = np.outer(g.standard_normal(15), g.standard_normal(500)) * (1 + b) + 0.2 * g.standard_normal((15, 500))
        x[15 * b : 15 * b + 15, 500 * b : 500 * b + 500] = block
    stored = in_spans(x.astype(dtype), (120, 100), monkeypatch)
    pca = fitted(stored, 5, center=center, block_krylov={"windows": True, "max_passes": 20})
    assert_within_bounds(pca, dense_pca(x.astype(dtype), center=center), vectors=False)
    assert pca.certificate_["block_krylov"]["converged"]
    np.testing.assert_allclose(pca.singular_values_, dense_pca(x, center=center).singular_values[:5], rtol=1e-5)


@pytest.mark.parametrize(
    ("shape", "how"),
    [
        ((150, 800), "one sample apart"),
        ((150, 800), "far mean, not centred"),
        ((800, 150), "far mean, not centred"),
        ((800, 150), "steep"),
    ],
)
def test_what_single_precision_can_not_tell_from_0_is_found_in_double(shape, how):
    x = factors(*shape, dtype="f8")
    if how == "steep":
        u, _, v = np.linalg.svd(x, full_matrices=False)
        x = (u * np.concatenate([[1.0], 1e-4 * 2.0 ** -np.arange(len(v) - 1)])) @ v
    if how == "one sample apart":
        x[0] *= 1e4
    x = (x + 1e5 * (how == "far mean, not centred")).astype("f4")
    center = how != "far mean, not centred"
    pca = fitted(x, 4, center=center)
    dense = dense_pca(x, center=center)
    assert_within_bounds(pca, dense, vectors=False)
    assert pca.certificate_["reliable_components"] == 4
    np.testing.assert_allclose(pca.singular_values_, dense.singular_values[:4], rtol=1e-5)
    single = fitted(x, 4, center=center, precision="single")
    assert_within_bounds(single, dense, vectors=False)
    for component, value in zip(single.certificate_["components"], dense.singular_values, strict=False):
        if component["singular_value"] == 0:
            assert value**2 <= component["bound"] * dense.singular_values[0] ** 2


@pytest.mark.parametrize("shape", [(150, 800), (800, 150)])
def test_missing_values_of_data_that_are_not_centred_are_means_in_every_pass(shape):
    x = factors(*shape)
    x[np.random.default_rng(1).random(shape) < 0.05] = np.nan
    pca = fitted(x, 4, missing="mean", center=False)
    assert_within_bounds(pca, dense_pca(x, center=False))
    assert pca.certificate_["reliable_components"] == 4


def test_precision_that_is_lacking_is_not_blamed_on_the_data():
    x = factors(150, 800, noise=1e-3)
    pca = fitted(x, 4, precision="single", block_krylov={"tolerance": 1.5e-7})
    said = " ".join(caveats(pca.certificate_))
    assert "since products in single precision give no more: set model.precision: double" in said
    assert "bulk" not in said


def test_a_block_without_room_is_named():
    g = np.random.default_rng(0)
    x = g.standard_normal((400, 900)) * 0.3 + g.standard_normal((400, 6)) @ g.standard_normal((6, 900))
    pca = fitted(x, 5, block_krylov={"block": 5, "max_passes": 30})
    assert "or set a larger model.block_krylov.block" in " ".join(caveats(pca.certificate_))


def test_a_restart_that_was_not_made_is_said():
    pca = fitted(factors(120, 900), 3, block_krylov={"restart": True, "max_passes": 3})
    if pca.certificate_["block_krylov"]["restart"] is None:
        assert "asked for and not made" in " ".join(caveats(pca.certificate_))
