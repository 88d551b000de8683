"""The same numbers as xeofs, PyDMD and PySPOD, each from the samples; skipped where they are not installed."""

import warnings

import numpy as np
import pytest

from dpca.derived.dmd import dmd
from dpca.derived.extended import extended
from dpca.derived.gram import transformed
from dpca.derived.hilbert import hilbert
from dpca.derived.operators import Center, Chain
from dpca.derived.optimized_dmd import optimized_dmd
from dpca.derived.spod import spod
from tests.derived.drawn import STEP, assert_close, assert_same_up_to_phase, samples

pytestmark = pytest.mark.filterwarnings("ignore")
K = 5


def imported(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip(name)


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
