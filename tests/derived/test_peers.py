"""The same numbers as peers find from the samples: xeofs, eofs, PyDMD, PySPOD, scikit-bio, statsmodels (`make peers`), scikit-learn, scipy."""

from pathlib import Path

import numpy as np
import pytest
from scipy import signal
from scipy.spatial.distance import cdist
from sklearn.decomposition import PCA
from sklearn.linear_model import RidgeCV

from dpca import PCA as dpca_PCA
from dpca.analyses.answers import ProductAccuracy
from dpca.analyses.axis import Axis
from dpca.analyses.samples import Samples as Rows
from dpca.derived.dmd import dmd
from dpca.derived.extended import extended
from dpca.derived.feature_groups import canonical_correlations, maximum_covariance
from dpca.derived.filters import Butterworth, Lanczos
from dpca.derived.fits import Detrend
from dpca.derived.gram import products_of, transformed
from dpca.derived.groups import Anomalies, GroupMeans
from dpca.derived.hilbert import hilbert
from dpca.derived.operators import Center, Chain, Difference, SelectRows
from dpca.derived.optimized_dmd import optimized_dmd
from dpca.derived.pca import pca, project
from dpca.derived.resampling import Bootstrap, resampled
from dpca.derived.spod import spod
from dpca.store.gram import read_gram
from dpca.store.results import open_result
from tests.analyses import asked
from tests.commands.calls import dpca
from tests.derived.drawn import STEP, Samples, assert_close, assert_same_up_to_phase, convolved, lanczos, means, samples
from tests.peers import imported

pytestmark = pytest.mark.filterwarnings("ignore")
K = 5


def labelled(x):
    xarray = imported("xarray")
    return xarray.DataArray(x, dims=("time", "x"), coords={"time": np.arange(len(x)), "x": np.arange(x.shape[1])})


def of_xeofs(model, fit, maps):
    """The spectrum, scores and components of a fit, all less far from ours than the tolerances."""
    np.testing.assert_allclose(fit.eigenvalues, model.data["norms"].values[:K] ** 2, rtol=1e-12)
    np.testing.assert_allclose(fit.explained_variance(), model.explained_variance().values[:K], rtol=1e-12)
    assert_same_up_to_phase(fit.scores, model.scores(normalized=False).transpose("time", "mode").values[:, :K], 1e-11)
    assert_same_up_to_phase(maps, model.components().transpose(..., "mode").values.reshape(-1, K), 1e-11)


@pytest.mark.parametrize("padding", ["none", "exp"])
def test_hilbert_eof_of_xeofs(padding):
    single = imported("xeofs.single")
    data = samples(0, 61, 200)
    model = single.HilbertEOF(n_modes=K, padding=padding, decay_factor=0.3, solver="full").fit(labelled(data.x), "time")
    fit = hilbert(data.products, Chain(61), K, padding, 0.3)
    of_xeofs(model, fit, data.centred.T @ fit.coefficients)


def test_extended_eof_of_xeofs():
    single = imported("xeofs.single")
    data = samples(1, 70, 100)
    model = single.ExtendedEOF(n_modes=K, tau=2, embedding=6, solver="full").fit(labelled(data.x), "time")
    fit = extended(transformed(data.products, Chain(70, (Center(70),))), 6, 2, K)
    maps = np.concatenate([data.centred.T @ coefficients for coefficients in fit.coefficients])
    np.testing.assert_allclose(fit.eigenvalues, model.data["norms"].values ** 2, rtol=1e-12)
    scores = model.scores(normalized=False).transpose("time", "mode").values
    assert_same_up_to_phase(fit.scores, scores[np.isfinite(scores[:, 0])], 1e-11)
    components = model.components().transpose("embedding", "x", "mode").values.reshape(-1, K)
    assert_same_up_to_phase(maps, components, 1e-11)
    assert fit.lags.tolist() == model.components().embedding.values.tolist()


def test_dmd_of_pydmd():
    pydmd = imported("pydmd")
    data = samples(2, 60, 200)
    model = pydmd.DMD(svd_rank=8, exact=True).fit(data.centred.T)
    fit = dmd(transformed(data.products, Chain(60, (Center(60),))), data.times, 8)
    order = np.abs(fit.eigenvalues[:, None] - model.eigs).argmin(1)
    np.testing.assert_allclose(fit.eigenvalues, model.eigs[order], rtol=1e-11)
    assert_close(
        (data.centred.T @ fit.coefficients) * fit.amplitudes, (model.modes * model.amplitudes)[:, order], 1e-10
    )


@pytest.mark.filterwarnings("ignore:Input data condition number")
def test_dmd_of_delays_of_pydmd():
    """Eigenvalues of HODMD, whose modes are of principal components; modes and amplitudes of HankelDMD, which has the same operator."""
    pydmd = imported("pydmd")
    data = samples(2, 60, 200)
    fit = dmd(transformed(data.products, Chain(60, (Center(60),))), data.times, 8, "exact", 5)
    model = pydmd.HODMD(svd_rank=8, exact=True, d=5, svd_rank_extra=-1).fit(data.centred.T)
    order = np.abs(fit.eigenvalues[:, None] - model.eigs).argmin(1)
    np.testing.assert_allclose(fit.eigenvalues, model.eigs[order], rtol=1e-11)
    model = pydmd.HankelDMD(svd_rank=8, exact=True, d=5).fit(data.centred.T)
    order = np.abs(fit.eigenvalues[:, None] - model.eigs).argmin(1)
    parts = (data.centred.T @ fit.coefficients) * fit.amplitudes
    assert_close(parts, (model.modes[:200] * model.amplitudes)[:, order], 1e-10)


def test_optimized_dmd_of_pydmd():
    pydmd = imported("pydmd")
    rng = np.random.default_rng(3)
    data = samples(3, 60, 100, mean=0.0)
    t, maps = STEP * np.arange(60), rng.standard_normal((2, 100)) + 1j * rng.standard_normal((2, 100))
    waves = (np.exp(np.outer(t, [-0.02 + 2j, 0.01 + 0.7j])) @ maps).real + 0.1 * rng.standard_normal((60, 100))
    data = type(data)(waves, np.zeros(100))
    options = {"tol": 1e-14, "maxiter": 200, "eps_stall": 1e-15}
    model = pydmd.BOPDMD(svd_rank=4, num_trials=0, use_proj=True, varpro_opts_dict=options).fit(waves.T, t)
    fit = optimized_dmd(transformed(data.products, Chain(60)), t, 4)
    order = np.abs(fit.exponents[:, None] - model.eigs).argmin(1)
    np.testing.assert_allclose(fit.exponents, model.eigs[order], rtol=1e-6)
    parts = model.modes * model.amplitudes
    assert_close((waves.T @ fit.coefficients) * fit.amplitudes, parts[:, order], 1e-5)


@pytest.mark.parametrize("block", [16, 17])
def test_spod_of_pyspod(block, tmp_path):
    standard = imported("pyspod.spod.standard")
    data = samples(4, 90, 60)
    settings = {
        "time_step": STEP,
        "n_space_dims": 1,
        "n_variables": 1,
        "n_dft": block,
        "overlap": 50,
        "mean_type": "longtime",
        "savedir": str(tmp_path),
    }
    model = standard.Standard(settings).fit(data_list=data.x[:, :, None])
    window = np.hamming(block)
    fit = spod(transformed(data.products, Chain(90, (Center(90),))), data.times, block, -(-block // 2), window)
    np.testing.assert_allclose(fit.frequencies, model.freq)
    ratio = fit.energies[:, :5] / model.eigs.real[:, :5]  # its sums are not scaled to densities
    ratio[-1] /= 2 if block % 2 else 1  # it takes the last frequency for Nyquist, also where a block is odd
    np.testing.assert_allclose(ratio, ratio[0, 0], rtol=1e-11)
    for f in range(len(fit.frequencies)):
        modes = np.asarray(model.get_modes_at_freq(f)).reshape(60, -1)[:, :3]
        assert_same_up_to_phase(data.centred.T @ fit.coefficients[f][:, :3], modes, 1e-8)


def rows(n):
    """By name: operators on n samples, and what users of the peers below do to samples, (n, features), before their PCA."""
    times, seasons, pairs = STEP * np.arange(n), np.arange(n) % 3, np.arange(n) // 2
    sections = signal.butter(1, (0.1, 0.4), "bandpass", fs=1 / STEP, output="sos")
    return {
        "samples": ((), lambda x: x),
        "anomalies, detrended": (
            (Anomalies(seasons), Detrend(times)),
            lambda x: signal.detrend(x - means(x, seasons), axis=0),
        ),
        "band-pass": ((Butterworth(times, (0.1, 0.4), 1),), lambda x: signal.sosfiltfilt(sections, x, axis=0)),
        "Lanczos": ((Lanczos(times, (None, 0.2), 7),), lambda x: convolved(x, lanczos(7, 0.2 * STEP))),
        "differences of some": ((SelectRows(np.arange(2, n), n), Difference(n - 2)), lambda x: np.diff(x[2:], axis=0)),
        "means of groups": (
            (GroupMeans(pairs),),
            lambda x: np.stack([x[pairs == pair].mean(0) for pair in set(pairs)]),
        ),
    }


def components(products, operators):
    """Of the rows, about their mean."""
    chain = Chain(products.n, operators)
    return pca(transformed(products, chain.then(Center(chain.n_out))), K)


def of_eofs(rows, weights, fit, maps, tolerance):
    """Variances, their shares, PCs and EOFs of rows with weights of features."""
    solver = imported("eofs.standard").Eof(rows, weights=weights)
    right = {"rtol": 0, "atol": tolerance * solver.eigenvalues(1)[0]}
    np.testing.assert_allclose(fit.explained_variance(), solver.eigenvalues(K), **right)
    np.testing.assert_allclose(fit.explained_variance_ratio, solver.varianceFraction(K), rtol=0, atol=tolerance)
    assert_same_up_to_phase(fit.scores, solver.pcs(npcs=K), tolerance)
    assert_same_up_to_phase(maps, solver.eofs(neofs=K).reshape(K, -1).T, tolerance)


@pytest.mark.parametrize("name", rows(61))
def test_pca_of_eofs_weighted_by_area(name):
    x, weights = samples(5, 61, 200).x, np.sqrt(np.cos(np.deg2rad(np.linspace(-80, 80, 200))))
    weighted = Samples(x * weights, (x * weights).mean(axis=0))
    operators, theirs = rows(61)[name]
    fit = components(weighted.products, operators)
    of_eofs(theirs(x), weights, fit, weighted.centred.T @ fit.coefficients, 1e-11)


@pytest.mark.parametrize(("name", "weighted"), [*((name, True) for name in rows(15)), (next(iter(rows(15))), False)])
def test_pca_of_eofs_from_the_gram_matrix_that_a_run_on_real_data_keeps(name, weighted, shared_data):
    folder = shared_data("climate-sst")
    sst, land = np.load(folder / "sst.npy"), np.isnan(np.load(folder / "sst.npy")[0])
    weights = np.load(folder / "weights.area.npy") if weighted else np.ones(land.shape)
    given = f"{{uri: {folder / 'weights.area.npy'}}}" if weighted else "null"
    Path("c.yaml").write_text(
        f"input: {{uri: {folder / 'sst.npy'}}}\npreprocess: {{missing: mean, weights: {given}}}\noutput: {{path: r}}\n"
    )
    assert dpca("run", "c.yaml") == 0
    operators, theirs = rows(15)[name]
    fit = components(products_of(read_gram(open_result("r"))), operators)
    x, w = sst[:, ~land], weights[~land]
    of_eofs(theirs(x), w, fit, ((x - x.mean(axis=0)) * w).T @ fit.coefficients, 1e-10)


@pytest.mark.parametrize("name", rows(61))
def test_pca_of_scikit_learn_behind_filters_of_scipy(name):
    data = samples(6, 61, 200)
    operators, theirs = rows(61)[name]
    fit, model = components(data.products, operators), PCA(K, svd_solver="full")
    scores = model.fit_transform(theirs(data.x))
    np.testing.assert_allclose(fit.explained_variance(), model.explained_variance_, rtol=1e-11)
    np.testing.assert_allclose(fit.explained_variance_ratio, model.explained_variance_ratio_, rtol=1e-11)
    assert_same_up_to_phase(fit.scores, scores, 1e-11)
    assert_same_up_to_phase(data.centred.T @ fit.coefficients, model.components_.T, 1e-11)


def test_pca_of_a_subset_and_scores_of_the_rest_of_scikit_learn():
    data = samples(7, 61, 200)
    inside = np.random.default_rng(7).permutation(61) < 40
    select = SelectRows(np.flatnonzero(inside), 61)
    fit, model = components(data.products, (select,)), PCA(K, svd_solver="full").fit(data.x[inside])
    np.testing.assert_allclose(fit.explained_variance(), model.explained_variance_, rtol=1e-11)
    rest = project(data.products, fit.coefficients, data.products.matrix[~inside], inside / inside.sum())
    theirs = model.transform(data.x[~inside])
    signs = np.sign(((data.centred.T @ fit.coefficients).T * model.components_).sum(axis=1))
    assert_close(rest * signs, theirs, 1e-11)


def test_draws_of_the_bootstrapper_of_xeofs():
    """Samples drawn with replacement are a selection like any other: as xeofs fits them, draw by draw."""
    single, validation = imported("xeofs.single"), imported("xeofs.validation")
    data, n = samples(3, 50, 80), 50
    model = single.EOF(n_modes=K, solver="full").fit(labelled(data.x), "time")
    drawn = validation.EOFBootstrapper(n_bootstraps=4, seed=7)
    drawn.fit(model)
    rng = np.random.default_rng(7)
    for number, expected in enumerate(drawn.data["explained_variance"].transpose("n", "mode").values):
        chosen = SelectRows(rng.choice(n, n, replace=True), n)
        fit = pca(transformed(data.products, Chain(n, (chosen, Center(n)))), K)
        np.testing.assert_allclose(fit.explained_variance(), expected, rtol=1e-9, err_msg=f"draw {number}")


def test_the_bootstrap_draws_what_xeofs_draws():
    """From the same seed: variances of each draw, and where xeofs aligns signs alone, components and scores too."""
    single, validation = imported("xeofs.single"), imported("xeofs.validation")
    data, n = samples(3, 50, 80), 50
    model = single.EOF(n_modes=K, solver="full").fit(labelled(data.x), "time")
    drawn = validation.EOFBootstrapper(n_bootstraps=5, seed=7)
    drawn.fit(model)
    rows = transformed(data.products, Chain(n, (Center(n),)))
    found = pca(rows, K)
    got = resampled(rows, found.eigenvalues, found.scores, Bootstrap(n, 5, seed=7), of_maps=True)
    expected = drawn.data["explained_variance"].transpose("n", "mode").values
    np.testing.assert_allclose(got.variances.of_draws, expected, rtol=1e-9)
    theirs = drawn.components().transpose("n", "mode", ...).values.reshape(5, K, -1)
    own = found.coefficients.T @ data.centred
    overlap = np.abs(np.einsum("kf,bkf->bk", own, theirs))
    alike = overlap > 0.75  # components that changed places are in another order here
    assert alike.mean() > 0.5
    np.testing.assert_allclose(np.abs(got.congruence)[alike], overlap[alike], rtol=1e-9)


def statistical(seed=8, n=60, d=200):
    """Samples in three groups of other sizes, whose centres differ a little, as rows, as they are, and their labels."""
    data, labels = samples(seed, n, d), np.repeat(["a", "b", "c"], [n // 2, n // 3, n - n // 2 - n // 3])
    data.x[labels == "b"] += 0.4 * np.random.default_rng(seed).standard_normal(d)
    data = type(data)(data.x, data.x.mean(0))
    known = ProductAccuracy("results/x", "gram_eigh", "double", data.x.nbytes)
    return Rows.of(data.products, Axis("sample", None), known), data.x, np.random.default_rng(0).permutation(labels)


@pytest.mark.parametrize("seed", [0, 5])
def test_permanova_of_scikit_bio_with_the_same_permutations(seed):
    distance = imported("skbio.stats.distance")
    rows, x, labels = statistical(seed)
    expected = distance.permanova(distance.DistanceMatrix(cdist(x, x)), labels, permutations=199, seed=seed)
    found = asked.permanova(rows, labels, 199, seed).certificate
    np.testing.assert_allclose(found["pseudo_f"], expected["test statistic"], rtol=1e-10)
    assert found["p_value"] == expected["p-value"]
    assert (found["groups"], found["rows"]) == (expected["number of groups"], expected["sample size"])


def test_pcoa_of_scikit_bio():
    ordination, distance = imported("skbio.stats.ordination"), imported("skbio.stats.distance")
    rows, x, _ = statistical()
    expected = ordination.pcoa(distance.DistanceMatrix(cdist(x, x)), method="eigh", dimensions=K)
    found = asked.pcoa(rows, K).arrays
    np.testing.assert_allclose(found["eigenvalues"].values, expected.eigvals.values[:K], rtol=1e-10)
    shares = expected.proportion_explained.values[:K]
    np.testing.assert_allclose(found["explained_variance_ratio"].values, shares, rtol=1e-10)
    assert_same_up_to_phase(found["scores"].values, expected.samples.values[:, :K], 1e-10)


@pytest.mark.parametrize("k", [2, 3, 5])
def test_manova_of_statsmodels(k):
    manova = imported("statsmodels.multivariate.manova")
    rows, x, labels = statistical()
    scores = PCA(k, svd_solver="full").fit_transform(x)
    groups = np.stack([np.ones(60), labels == "b", labels == "c"], axis=1).astype(float)
    test = manova.MANOVA(scores, groups).mv_test([("groups", np.eye(3)[1:])]).results["groups"]["stat"]
    found = asked.manova(rows, labels, k).arrays
    expected = test[["Value", "F Value", "Num DF", "Den DF", "Pr > F"]].values.astype(float)
    ours = [found[name].values for name in ("statistic", "f_value", "degrees_of_freedom", "p_value")]
    np.testing.assert_allclose(np.column_stack(ours), expected, rtol=1e-9)


def test_ridge_of_scikit_learn():
    rows, x, _ = statistical()
    rng = np.random.default_rng(1)
    y = x @ rng.standard_normal(200) + 5 * rng.standard_normal(60)
    alphas = np.array([0.1, 10.0, 1e3, 1e5])
    model = RidgeCV(alphas, store_cv_results=True).fit(x, y)
    found = asked.ridge(rows, y, alphas.tolist())
    np.testing.assert_allclose(found.arrays["mean_squared_error"].values, model.cv_results_.mean(axis=0), rtol=1e-9)
    assert found.certificate["alpha"] == model.alpha_
    assert_close(found.arrays["fitted"].values, model.predict(x), 1e-10)


def test_heritability_of_a_mixed_model_of_statsmodels():
    """REML of a variance component, whose optimizer stops earlier than a root of the slope."""
    mixed = imported("statsmodels.regression.mixed_linear_model")
    rows, x, _ = statistical()
    rng = np.random.default_rng(2)
    z = x - x.mean(0)
    y = z @ rng.standard_normal(200) / 60 + rng.standard_normal(60) + 3
    covariates = rng.standard_normal((60, 1))
    found = asked.heritability(rows, y, covariates).certificate
    roots = z / np.sqrt((z**2).sum() / 60)
    components = mixed.VCSpec(["g"], [[[f"x{i}" for i in range(200)]]], [[roots]])
    fixed = np.hstack([np.ones((60, 1)), covariates])
    model = mixed.MixedLM(y, fixed, groups=np.ones(60), exog_vc=components).fit(
        reml=True, method="powell", xtol=1e-10, ftol=1e-12
    )
    np.testing.assert_allclose(found["variance_of_rows"], model.vcomp[0], rtol=1e-4)
    np.testing.assert_allclose(found["residual_variance"], model.scale, rtol=1e-4)


def test_maximum_covariance_analysis_of_xeofs():
    cross = imported("xeofs.cross")
    a, b = samples(0, 61, 200), samples(1, 61, 150)
    model = cross.MCA(n_modes=K, use_pca=False, solver="full").fit(labelled(a.x), labelled(b.x), "time")
    orders = np.empty((0, 61), np.intp)
    found = maximum_covariance(a.centred @ a.centred.T, b.centred @ b.centred.T, K, (1e-8, 1e-8), orders)
    np.testing.assert_allclose(found.values / 60, model.data["singular_values"].values[:K], rtol=1e-9)
    np.testing.assert_allclose(found.values**2 / found.total, model.squared_covariance_fraction().values[:K], rtol=1e-9)
    for ours, data, theirs in zip(found.coefficients, (a, b), model.components(), strict=True):
        assert_same_up_to_phase(data.centred.T @ ours, theirs.transpose("x", "mode").values[:, :K], 1e-9)


def test_canonical_correlations_of_scikit_learn():
    from sklearn.cross_decomposition import CCA

    rng = np.random.default_rng(0)
    common = rng.standard_normal((80, 2))
    x, y = common @ rng.standard_normal((2, 5)), common @ rng.standard_normal((2, 4))
    x, y = x + rng.standard_normal((80, 5)), y + rng.standard_normal((80, 4))
    fit = CCA(n_components=2, scale=False, max_iter=10_000, tol=1e-14).fit(x, y)
    theirs = [np.corrcoef(one, two)[0, 1] for one, two in zip(*(side.T for side in fit.transform(x, y)), strict=True)]
    x, y = x - x.mean(axis=0), y - y.mean(axis=0)
    orders = np.empty((0, 80), np.intp)
    found = canonical_correlations(x @ x.T, y @ y.T, 4, None, (1e-8, 1e-8), orders)
    # All five components of x are needed for all of its correlations: those of y's four lie within their span.
    assert found.values[0] <= theirs[0] + 1e-9
    both = canonical_correlations(x[:, :4] @ x[:, :4].T, y @ y.T, 4, 2, (1e-8, 1e-8), orders)
    fit = CCA(n_components=2, scale=False, max_iter=10_000, tol=1e-14).fit(x[:, :4], y)
    pairs = zip(*(side.T for side in fit.transform(x[:, :4], y)), strict=True)
    np.testing.assert_allclose(both.values, [np.corrcoef(one, two)[0, 1] for one, two in pairs], rtol=1e-6)


@pytest.mark.parametrize("power", [1, 2, 3, 4])
def test_rotation_of_xeofs(power):
    """Its rotator is varimax for power 1, and promax beyond, both with Kaiser's rule."""
    xeofs = imported("xeofs")
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(60, K)) * np.arange(K, 0, -1)) @ rng.laplace(size=(K, 900)) + rng.normal(size=(60, 900))
    model = xeofs.single.EOF(n_modes=K, random_state=0)
    model.fit(labelled(x), dim="time")
    rotator = xeofs.single.EOFRotator(n_modes=K, power=power, rtol=1e-14, max_iter=10000)
    rotator.fit(model)
    kind = {"kind": "varimax"} if power == 1 else {"kind": "promax", "power": float(power)}
    ours = dpca_PCA(K, svd_solver="tsqr", rotation=kind).fit(x)
    np.testing.assert_allclose(ours.rotated_explained_variance_, rotator.explained_variance().values, rtol=1e-5)
    maps = rotator.components().transpose("mode", "x").values
    signs = np.sign(np.einsum("jf,jf->j", maps, ours.rotated_components_))
    np.testing.assert_allclose(ours.rotated_components_, maps * signs[:, None], atol=1e-6)
    scores = rotator.scores(normalized=False).transpose("time", "mode").values
    np.testing.assert_allclose(ours.transform(x), scores * signs, atol=1e-5 * np.abs(scores).max())
