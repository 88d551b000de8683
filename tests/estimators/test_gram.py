"""A kept Gram matrix in a notebook, beside the same computed on the data."""

import inspect
import pickle
import re
import sys
from datetime import datetime
from pathlib import Path

import dask.array as da
import numpy as np
import pytest
import xarray as xr
import yaml
import zarr
from distributed import Client
from scipy import signal
from scipy.spatial.distance import cdist

import dpca
from dpca import PCA, KernelPCA
from dpca.analyses import kept as analyses_kept
from dpca.analyses import kinds
from dpca.analyses.kept import read_gram
from dpca.errors import ConfigError, DataError, DpcaError, InputError, OverBudgetError
from dpca.sources.base import Reader
from tests.commands.calls import dpca as command
from tests.derived.drawn import assert_close, assert_same_up_to_phase, beside, convolved, lanczos, means
from tests.stores import random_array

N, LAT, LON = 96, np.linspace(-50.0, 50.0, 6), np.arange(20) * 18.0
MONTHS = np.arange(N)
TIME = xr.date_range("1990-01-01", periods=N, freq="MS", use_cftime=True, calendar="noleap")


def field(season=20.0, dtype="f8"):
    rng = np.random.default_rng(0)
    x = (rng.standard_normal((N, 5)).cumsum(0) @ rng.standard_normal((5, 120))).reshape(N, 6, 20)
    x += season * np.cos(2 * np.pi * MONTHS / 12)[:, None, None] * rng.random((6, 20)) + 0.3 * rng.standard_normal(
        x.shape
    )
    x += 0.05 * MONTHS[:, None, None] + 7
    coords = {"time": TIME, "lat": LAT, "lon": LON}
    return xr.DataArray(x.astype(dtype), dims=("time", "lat", "lon"), coords=coords, name="sst")


FIELD = field()
X = FIELD.values.reshape(N, -1)
YEARS, MONTH = MONTHS // 12, MONTHS % 12
INDEX = xr.DataArray(np.random.default_rng(3).standard_normal(N), dims="time", coords={"time": TIME}, name="soi")
WEIGHTS = np.random.default_rng(4).random(N) + 0.5


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Paths of results, by name."""
    place = tmp_path_factory.mktemp("results")

    def run(name, given, preprocess=None, **model):
        inputs = []
        for number, data in enumerate(given):
            path = str(place / f"{name}{number}.zarr")
            data.to_dataset(name="sst").chunk(time=-1, lat=2).to_zarr(path, consolidated=False)
            inputs.append({"name": "ab"[number], "uri": path, "array": "sst", "samples_axis": "time"})
        alone = {key: value for key, value in inputs[0].items() if key != "name"}
        config = {
            "input": inputs if len(inputs) > 1 else alone,
            "preprocess": preprocess or {},
            "model": {"n_components": 2, "svd_solver": "gram_eigh", **model},
            "output": {"path": str(place / name), "components": name == "gram", "report": False},
        }
        (place / f"{name}.yaml").write_text(yaml.safe_dump(config))
        assert command("run", str(place / f"{name}.yaml")) == 0
        return str(place / name)

    south, north = FIELD.isel(lat=slice(0, 4)), FIELD.isel(lat=slice(4, 6))
    seasonal = field(season=2000.0, dtype="f4")
    return {
        "gram": run("gram", [FIELD]),
        "tsqr": run("tsqr", [FIELD], svd_solver="tsqr"),
        "south": run("south", [south]),
        "north": run("north", [north]),
        "both": run("both", [south, north]),
        "filled": run("filled", [south, north], {"missing": "mean"}),
        "regressed": run("regressed", [FIELD], {"regress_out": {"seasonal_cycle": "month", "trend": 1}}),
        "scaled": run("scaled", [south, north], {"scale": "std", "weights": "sqrt_cos_lat"}),
        "single": run("single", [seasonal]),
        "double": run("double", [seasonal], precision="double"),
    }


@pytest.fixture
def gram(results):
    return dpca.open_gram(results["gram"])


@pytest.fixture
def values_read(monkeypatch):
    """How many values of data have been read so far."""
    read, count = Reader.read, [0]

    def counted(self, region):
        values = read(self, region)
        count[0] += values.size
        return values

    monkeypatch.setattr(Reader, "read", counted)
    return lambda: count[0]


@pytest.fixture
def grams_read(monkeypatch):
    """The results whose Gram matrices have been read so far."""
    read = []
    monkeypatch.setattr(analyses_kept, "read_gram", lambda result: read.append(result.name) or read_gram(result))
    return read


def trend(t):
    return np.stack([np.ones(len(t)), t - t.mean()], axis=1)


def days(rows):
    return np.array([(one - TIME[0]).days for one in TIME[rows]], float)


def seasons(x):
    winter = np.isin(MONTH, [11, 0, 1])
    return np.stack([x[winter & (year == YEARS)].mean(0) for year in range(8)])


LATER = (YEARS >= 2) & (YEARS <= 6)
WINTER = np.isin(MONTH, [11, 0, 1])
CHAINS = {
    "all": (lambda g: g, lambda x: x),
    "climatology of what is selected": (
        lambda g: g.sel(time=slice("1992", "1996")).anomalies("time.month").detrend(),
        lambda x: beside(x[LATER] - means(x[LATER], MONTH[LATER]), trend(days(LATER))),
    ),
    "selected of a climatology of all": (
        lambda g: g.anomalies("month").sel(time=slice("1992", "1996")),
        lambda x: (x - means(x, MONTH))[LATER],
    ),
    "winters": (lambda g: g.sel(season="DJF").means("year"), seasons),
    "months": (
        lambda g: g.sel(month=[12, 1, 2]).anomalies(YEARS),
        lambda x: x[WINTER] - means(x[WINTER], YEARS[WINTER]),
    ),
    "between": (lambda g: g.between("month"), lambda x: means(x, MONTH)),
    "filtered": (
        lambda g: g.anomalies("month").filter("lanczos", (None, 0.1), window=7),
        lambda x: convolved(x - means(x, MONTH), lanczos(7, 0.1)),
    ),
    "differences": (lambda g: g.difference(12), lambda x: x[12:] - x[:-12]),
    "regressed": (lambda g: g.regress_out(INDEX), lambda x: beside(x, np.stack([np.ones(N), INDEX.values], axis=1))),
    "weighted": (
        lambda g: g.isel(time=slice(3, None)).weighted(WEIGHTS),
        lambda x: np.sqrt(WEIGHTS[3:, None]) * (x[3:] - np.average(x[3:], axis=0, weights=WEIGHTS[3:])),
    ),
}


# What a chain does to rows does not depend on what was kept: of a factor, a few stand for all.
@pytest.mark.parametrize(
    ("kept", "chain"),
    [
        *(("gram", chain) for chain in CHAINS),
        *(("tsqr", chain) for chain in ("all", "climatology of what is selected", "weighted")),
    ],
)
def test_components_of_what_operators_leave(results, kept, chain):
    apply, directly = CHAINS[chain]
    found, rows = apply(dpca.open_gram(results[kept])).pca(3), directly(X)
    rows = rows - rows.mean(0) if chain != "weighted" else rows
    left, sigma, right = np.linalg.svd(rows, full_matrices=False)
    assert_close(found.eigenvalues.values, sigma[:3] ** 2, 1e-11)
    assert_same_up_to_phase(found.scores.values, left[:, :3] * sigma[:3], 1e-9)
    assert_same_up_to_phase(found.components().values.reshape(3, -1).T, right[:3].T, 1e-8)
    assert found.certificate["reliable_components"] == 3
    assert found.explained_variance_ratio.sum() == pytest.approx((sigma[:3] ** 2).sum() / (sigma**2).sum())


def test_labels_come_with_what_was_found(gram):
    found = gram.sel(time=slice("1992", "1996")).pca(2)
    data = found.to_xarray()
    assert data.sizes == {"time": 60, "component": 2}
    assert data.time.values[0] == TIME[24]
    assert "time from 1992 to 1996" in data.attrs["samples"]
    assert data.attrs["verdict"] == found.certificate["verdict"]
    maps = found.components()
    assert maps.dims == ("component", "lat", "lon")
    assert (maps.lat == LAT).all()
    assert (maps.lon == LON).all()
    assert gram.means("year").pca(2).scores.year.values.tolist() == list(range(1990, 1998))
    assert gram.extended(4, n_components=1).components().lag.values.tolist() == [0, 1, 2, 3]


KINDS = {
    "pca": lambda g: g.pca(3),
    "extended": lambda g: g.extended(lags=12, n_components=2),
    "hilbert": lambda g: g.hilbert(2),
    "dmd": lambda g: g.anomalies("month").dmd(rank=4),
    "optimized_dmd": lambda g: g.optimized_dmd(2),
    "spod": lambda g: g.spod(block=24, n_components=2),
}


def test_components_of_every_kind_cost_one_read(gram, values_read, grams_read):
    found = {kind: analyse(gram) for kind, analyse in KINDS.items()}
    assert values_read() == 0
    assert all(one.certificate["maps"] is None for one in found.values())
    maps = gram.components(found.values())
    assert values_read() == X.size
    for one in found.values():
        measured = one.certificate["maps"]
        flat = np.ravel(np.array(measured["residual_data"], float))
        assert measured["orthogonality"] < 1e-12
        assert flat[np.isfinite(flat)].max() < 1e-8
        assert "largest residual" in repr(one)
    assert [one.dtype.kind for one in maps] == ["f", "f", "c", "c", "c", "c"]
    xr.testing.assert_identical(found["hilbert"].components(), maps[2])
    assert (values_read(), len(grams_read)) == (X.size, 1)


def test_modes_have_their_step_and_are_exact_or_projected(gram):
    rows, found = gram.anomalies("month"), {}
    for modes in ("exact", "projected"):
        one = found[modes] = rows.dmd(rank=4, modes=modes)
        assert one.certificate["modes"] == modes
        assert (float(one.step), one.step.units) == (1.0, "1 month")
        assert one.frequencies.units == "1 / (1 month)"
        steps = np.exp(one.exponents.values * float(one.step))
        assert_close(one.eigenvalues.values, steps, 1e-12)
        assert one.certificate["maps"] is None
    assert (found["exact"].eigenvalues.values == found["projected"].eigenvalues.values).all()
    maps = found["projected"].components().values.reshape(4, -1)
    _, _, leading = np.linalg.svd((X - means(X, MONTH))[:-1], full_matrices=False)
    assert_close(maps @ leading[:4].T @ leading[:4], maps, 1e-9)
    uneven = gram.isel(time=np.arange(N) % 5 != 3).optimized_dmd(2)
    assert (uneven.step.dtype.kind, uneven.step.units) == ("f", "1 day")
    rows = days(np.arange(N) % 5 != 3)
    assert uneven.to_xarray().step == pytest.approx(np.ptp(rows) / (len(rows) - 1))


def test_complex_components_are_of_the_analytic_signal(gram):
    found = gram.hilbert(3)
    rows = signal.hilbert(X - X.mean(0), axis=0)
    left, sigma, right = np.linalg.svd(rows, full_matrices=False)
    assert_same_up_to_phase(found.scores.values, left[:, :3] * sigma[:3], 1e-9)
    assert_same_up_to_phase(found.components().values.reshape(3, -1).T, right[:3].conj().T, 1e-9)


def test_nothing_is_read_before_it_is_needed_and_the_gram_matrix_once(results, values_read, grams_read):
    gram = dpca.open_gram([results["south"], results["north"]])
    chains = [
        gram.anomalies("month").detrend(),
        gram.sel(season="JJA").means("year"),
        gram.filter("butterworth", (None, 0.2)),
    ]
    repr(chains)
    gram._repr_html_()
    assert (grams_read, values_read()) == ([], 0)
    for one in chains:
        one.pca(2)
        one.kernel_pca(n_components=2)
    assert (sorted(grams_read), values_read()) == (sorted([results["south"], results["north"]]), 0)


def test_what_was_there_does_not_change(gram):
    anomalies = gram.anomalies("month")
    before = anomalies.pca(2).scores.values.copy()
    anomalies.detrend().sel(time="1993").pca(1)
    assert (anomalies.n_samples, gram.n_samples) == (N, N)
    assert (anomalies.pca(2).scores.values == before).all()
    with pytest.raises(AttributeError):
        gram._rows = None


def test_it_says_what_it_stands_for(gram, results):
    rows = gram.sel(time=slice("1992", "1996")).anomalies("time.month")
    assert repr(rows).splitlines() == [
        f"<dpca.Gram time: 60 of 96 samples, {results['gram']} (gram_eigh, double)>",
        "  time from 1992 to 1996",
        "  less the mean of each month",
        "  time 1992-01-01 to 1996-12-01",
    ]
    found = rows.pca(2)
    assert "amplification" in repr(rows)
    assert "2 of 2 components reliable" in repr(found)
    assert "&lt;dpca.Gram" in rows._repr_html_()
    assert found._repr_html_().startswith("<pre>&lt;dpca pca")
    assert {"scores", "eigenvalues"} <= {*dir(found)}
    with pytest.raises(AttributeError, match="this analysis has no lags, but scores"):
        _ = found.lags


@pytest.mark.parametrize(
    ("select", "rows"),
    [
        (lambda g: g.sel(time="1993"), YEARS == 3),
        (lambda g: g.sel(time=slice(None, "1990-03")), MONTHS < 3),
        (lambda g: g.sel(time=slice(TIME[2], TIME[5])), (MONTHS >= 2) & (MONTHS <= 5)),
        (lambda g: g.sel(time=[TIME[7], TIME[3]]), [7, 3]),
        (lambda g: g.sel(time=["1990-08", "1990-04-01"]), [7, 3]),
        (lambda g: g.sel(time=np.datetime64("1990-04-01", "ns")), [3]),
        (lambda g: g.sel(time=slice(datetime(1997, 12, 1), None)), [95]),
        (lambda g: g.sel(season=["MAM", "JJA"], year=1991), (YEARS == 1) & (MONTH >= 2) & (MONTH <= 7)),
        (lambda g: g.isel(time=-1), [95]),
        (lambda g: g.isel(time=[0, -2]), [0, 94]),
        (lambda g: g.isel(time=MONTH == 5), MONTH == 5),
    ],
)
def test_labels_that_select(gram, select, rows):
    assert select(gram)._rows.axis.names == np.array(gram._rows.axis.names)[np.asarray(rows)].tolist()


def test_kernels_and_distances_of_what_operators_leave(gram, results):
    anomalies = X - means(X, MONTH)
    for rows, directly in ((gram.anomalies("month"), anomalies), (gram.sel(time="1992"), X[YEARS == 2])):
        assert_close(rows.distances().values, cdist(directly, directly), 1e-9)
        for kernel, how in (("rbf", {"gamma": "median"}), ("poly", {"degree": 2}), ("cosine", {}), ("linear", {})):
            expected = KernelPCA(n_components=3, kernel=kernel, **how).fit(directly)
            found = rows.kernel_pca(kernel, n_components=3, **how)
            assert_close(found.eigenvalues.values, expected.eigenvalues_, 1e-9)
            assert found.certificate["reliable_components"] == 3
    assert gram.distances().dims == ("time", "time_b")
    assert gram.distances().attrs["known_above"] < 1e-2
    with pytest.raises(ConfigError, match="kernel_pca has no components"):
        gram.kernel_pca().components()
    with pytest.raises(ConfigError, match="kernel is 'laplacian', but 'linear'"):
        gram.kernel_pca("laplacian")


def test_rows_of_zeros_have_a_cosine_of_0_whatever_selects_them(tmp_path):
    counts = np.random.default_rng(0).poisson(0.3, (24, 200)).astype("f4")
    counts[[3, 4]] = 0
    np.save(tmp_path / "counts.npy", counts)
    model = {"n_components": 2, "svd_solver": "gram_eigh", "precision": "single"}
    config = {
        "input": {"uri": str(tmp_path / "counts.npy"), "samples_axis": 0},
        "model": model,
        "output": {"path": str(tmp_path / "counts"), "report": False},
    }
    (tmp_path / "counts.yaml").write_text(yaml.safe_dump(config))
    assert command("run", str(tmp_path / "counts.yaml")) == 0
    gram = dpca.open_gram(str(tmp_path / "counts"))
    some = np.arange(24) % 2 == 1  # one of the two rows of zeros
    for rows, directly in ((gram, counts), (gram.isel(sample=some), counts[some])):
        found = rows.kernel_pca("cosine", n_components=3)
        assert found.certificate["reliable_components"] == 3
        expected = KernelPCA(3, kernel="cosine", precision="double").fit(directly).eigenvalues_
        assert_close(found.eigenvalues.values, expected, 1e-5)


REST = {
    "mean": (lambda g: g.sel(time=slice("1992", "1996")), lambda x, y: y - x[LATER].mean(0)),
    "climatology": (
        lambda g: g.sel(time=slice("1992", "1996")).anomalies("month"),
        lambda x, y: y - np.stack([x[LATER & (m == MONTH)].mean(0) for m in MONTH[~LATER]]),
    ),
    "climatology of all": (
        lambda g: g.anomalies("month").sel(time=slice("1992", "1996")),
        lambda x, y: (x - means(x, MONTH))[~LATER] - (x - means(x, MONTH))[LATER].mean(0),
    ),
    "trend": (
        lambda g: g.sel(time=slice("1992", "1996")).detrend(),
        lambda x, y: (
            y - np.vander(days(~LATER), 2) @ np.linalg.lstsq(np.vander(days(LATER), 2), x[LATER], rcond=None)[0]
        ),
    ),
    "weighted": (
        lambda g: g.sel(time=slice("1992", "1996")).weighted(WEIGHTS),
        lambda x, y: y - np.average(x[LATER], axis=0, weights=WEIGHTS[LATER]),
    ),
}


@pytest.mark.parametrize(
    ("kept", "chain"),
    [*(("gram", chain) for chain in REST), *(("tsqr", chain) for chain in ("climatology of all", "weighted"))],
)
def test_samples_that_were_left_out(results, kept, chain, values_read):
    apply, directly = REST[chain]
    found = apply(dpca.open_gram(results[kept])).pca(3)
    scores = found.rest()
    assert values_read() == 0
    assert (scores.time.values == TIME[~LATER]).all()
    maps = found.components().values.reshape(3, -1)
    assert_close(scores.values, directly(X, X[~LATER]) @ maps.T, 1e-9)
    # The same as new samples: by one read of both, or, with components, of the new ones.
    for made in (found, apply(dpca.open_gram(results[kept])).pca(3)):
        before = values_read()
        projected = made.transform(FIELD[~LATER])
        assert values_read() - before == X[~LATER].size + (0 if made is found else X.size)
        xr.testing.assert_allclose(projected, scores, rtol=1e-8, atol=1e-8)


def test_new_samples_lose_what_the_run_has_regressed_out(results):
    found = dpca.open_gram(results["regressed"]).sel(time=slice("1992", "1996")).pca(3)
    by_products = found.transform(FIELD[~LATER])
    fitted = np.hstack([np.eye(12)[MONTH], days(slice(None))[:, None]])
    left, maps = beside(X, fitted), found.components().values.reshape(3, -1)
    assert_close(found.rest().values, (left[~LATER] - left[LATER].mean(0)) @ maps.T, 1e-9)
    assert_close(by_products.values, found.rest().values, 1e-9)
    assert_close(found.transform(FIELD[~LATER]).values, found.rest().values, 1e-9)


def test_new_samples_without_values_are_nan_by_products_as_by_components(results):
    new = {name: part.values[:5].copy() for name, part in (("a", FIELD[:, :4]), ("b", FIELD[:, 4:]))}
    new["a"][[1, 2]], new["b"][[1, 3]] = np.nan, np.nan
    found = dpca.open_gram(results["filled"]).pca(2)
    for _ in range(2):  # by products with the data, and by components
        with pytest.warns(UserWarning, match=r"sample 1: no value of a feature that the fit kept, and NaN in the"):
            scores = found.transform(new)
        assert np.flatnonzero(np.isnan(scores).all(axis=1)).tolist() == [1]
        mean = X.mean(axis=0)
        filled = np.hstack([new["a"].reshape(5, -1), new["b"].reshape(5, -1)]) - mean
        maps = np.hstack([part.values.reshape(2, -1) for part in found.components().values()])
        assert_close(np.delete(scores, 1, 0), np.delete(np.nan_to_num(filled) @ maps.T, 1, 0), 1e-9)


def test_new_samples_without_names(gram):
    found = gram.sel(time=slice("1992", "1996")).pca(2)
    assert_close(found.transform(FIELD.values[:5]), found.rest().values[:5], 1e-9)
    with pytest.raises(ConfigError, match="grouped|dates"):
        gram.anomalies("month").pca(2).transform(FIELD.values[:5])
    with pytest.raises(InputError, match="6 .lat. x 9|6 x 9"):
        found.transform(FIELD.values[:5, :, :9])


@pytest.mark.parametrize(
    ("analyse", "why"),
    [
        (lambda g: g.filter("butterworth", (None, 0.2)).pca(2), "needs the samples before and after"),
        (lambda g: g.sel(time="1992").difference().pca(2), "needs the samples before and after"),
        (lambda g: g.means("year").pca(2), "makes rows of several samples"),
        (lambda g: g.between("year").pca(2), "in the place of a sample"),
        (lambda g: g.hilbert(2), "the analytic signal is made of all samples"),
        (lambda g: g.extended(3, n_components=2), "windows of samples"),
        (lambda g: g.kernel_pca(n_components=2), "dpca.KernelPCA projects"),
        (lambda g: g.pca(2), "all 96 samples took part"),
        (
            lambda g: g.sel(season="DJF").anomalies("month").pca(2),
            "1990-03-01 is of group 3, of which no sample took part",
        ),
        (
            lambda g: g.sel(time="1992").anomalies(MONTH[YEARS == 2] // 6).pca(2),
            "labels of the samples that were left out",
        ),
        (lambda g: g.sel(time="1992").regress_out(WEIGHTS, intercept=False).pca(2), "keep a part of the mean"),
    ],
)
def test_what_has_no_meaning_for_others_is_refused(gram, analyse, why):
    with pytest.raises(ConfigError, match=why):
        analyse(gram).rest()


SEVERAL = {
    **KINDS,
    "kernel_pca": lambda g: g.kernel_pca(n_components=2),
    "mca": lambda g: g.mca("a", "b", 2, permutations=9),
    "cca": lambda g: g.cca("a", "b", 3, permutations=9),
    "similarity": lambda g: g.similarity(permutations=9),
    "pcoa": lambda g: g.pcoa(2),
    "permanova": lambda g: g.permanova("season", permutations=9),
    "manova": lambda g: g.manova("season", 3),
    "discriminant": lambda g: g.discriminant("season", 3),
    "ridge": lambda g: g.ridge(INDEX, 1.0),
    "heritability": lambda g: g.heritability(INDEX),
}
PROJECTING = {"pca", "mca", "cca", "discriminant"}
WITH_MAPS = {*KINDS, "mca", "cca", "discriminant"}
PROJECTS = {
    **{kind: f"samples are projected on an analysis of kind {kind}, but" for kind in SEVERAL},
    **dict.fromkeys(PROJECTING),
}
NEW = {"a": FIELD.isel(lat=slice(0, 4))[:5], "b": FIELD.isel(lat=slice(4, 6))[:5]}
METHODS = {
    "transform": (lambda one, g: one.transform(NEW), PROJECTS),
    "rest": (lambda one, g: one.rest(), PROJECTS),
    "components": (
        lambda one, g: one.components(),
        {kind: None if kind in WITH_MAPS else f"{kind} has no components among the features: " for kind in SEVERAL},
    ),
    "components of several": (
        lambda one, g: g.components([one]),
        {kind: None if kind in WITH_MAPS else f"{kind} has no components among the features: " for kind in SEVERAL},
    ),
    "standard_errors": (
        lambda one, g: one.standard_errors(),
        dict.fromkeys(SEVERAL, "this analysis has no standard errors"),
    ),
    "bootstrap": (
        lambda one, g: one.bootstrap(40),
        {kind: None if kind == "pca" else f"rows of {kind} are resampled" for kind in SEVERAL},
    ),
    "as_covariance": (lambda one, g: one.as_covariance(), dict.fromkeys(SEVERAL, "this analysis has no maps as_cov")),
    "as_correlation": (
        lambda one, g: one.as_correlation(),
        dict.fromkeys(SEVERAL, "this analysis has no maps as_corr"),
    ),
    "rotated": (
        lambda one, g: one.rotated(n_components=2),
        {kind: None if kind == "pca" else f"{kind} can't be rotated" for kind in SEVERAL},
    ),
    "variance_share": (
        lambda one, g: g.variance_share(one),
        {kind: None if kind == "pca" else f"of components of a pca, but this is {kind}" for kind in SEVERAL},
    ),
    "to_xarray": (lambda one, g: [one.to_xarray()[name] for name in one.arrays], dict.fromkeys(SEVERAL)),
    "repr": (lambda one, g: (repr(one), one._repr_html_(), one.certificate, dir(one)), dict.fromkeys(SEVERAL)),
    "pickle": (lambda one, g: pickle.loads(pickle.dumps(one)).to_xarray(), dict.fromkeys(SEVERAL)),
}


def test_the_table_has_every_kind():
    """A distance has no analysis in a notebook: it is an array."""
    assert set(SEVERAL) == set(kinds.KINDS) - {"distances"}


@pytest.mark.parametrize("kind", SEVERAL)
def test_every_method_of_every_analysis_answers_or_says_what_to_do(results, kind):
    gram = dpca.open_gram(results["both"]).sel(time=slice("1991", None))
    found = SEVERAL[kind](gram)
    assert found.kind == kind
    for ask, said in METHODS.values():
        if said[kind] is None:
            assert ask(found, gram) is not None
            continue
        with pytest.raises(ConfigError, match=re.escape(said[kind])) as told:
            ask(found, gram)
        assert told.value.remedy
    if "scores" in found.arrays:
        assert found.scores.sizes["component"]
    else:  # an AttributeError, as Python wants it of what is not there
        with pytest.raises(AttributeError, match="this analysis has no scores, but "):
            _ = found.scores


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["equal", "weighted"])
@pytest.mark.parametrize("of", ["gram", "both", "scaled", "weighted features"])
def test_maps_in_the_unit_of_the_data_and_as_correlations(results, of, weights, values_read):
    """Regressions of the rows on scores of unit variance, and their correlations with these, whatever X was scaled by."""
    gram = dpca.open_gram(results["both" if of == "weighted features" else of])
    gram = gram.features(weights={"a": 3.0, "b": 0.5}) if of == "weighted features" else gram
    rows = gram.sel(time=slice("1991", None)).anomalies("month")
    found = (rows if weights is None else rows.weighted(weights)).pca(3, as_covariance=True, as_correlation=True)
    maps = [found.as_covariance(), found.as_correlation()]
    found.components()
    assert values_read() == X.size  # one read for all three
    if of != "gram":
        maps = [
            xr.concat([one[f"{name}_a"].rename(a_lat="lat"), one[f"{name}_b"].rename(b_lat="lat")], "lat")
            for one, name in zip(maps, ("as_covariance", "as_correlation"), strict=True)
        ]
    later = X[12:] - np.array([X[12:][MONTH[12:] == month].mean(0) for month in range(12)])[MONTH[12:]]
    w = np.ones(len(later)) if weights is None else weights[12:]
    later = later - w @ later / w.sum()
    scores = found.scores.values / np.sqrt(w)[:, None]  # of the weighted rows, as everywhere
    scores = scores / np.sqrt(w @ scores**2 / (w.sum() - 1))
    covariance = (scores * w[:, None]).T @ later / (w.sum() - 1)
    correlation = covariance / np.sqrt(w @ later**2 / (w.sum() - 1))
    np.testing.assert_allclose(maps[0].values.reshape(3, -1), covariance, atol=1e-9 * np.abs(covariance).max())
    np.testing.assert_allclose(maps[1].values.reshape(3, -1), correlation, atol=1e-9)


@pytest.mark.parametrize("kind", ["mca", "cca"])
def test_other_samples_have_scores_on_both_sides(results, kind, values_read):
    """Those of the directions that the selected samples have, by a read of both, by maps of both, and by the kept matrices."""
    gram = dpca.open_gram(results["both"]).sel(time=slice("1992", "1996"))
    found = SEVERAL[kind](gram)
    parts = [FIELD.isel(lat=slice(0, 4)).values.reshape(N, -1), FIELD.isel(lat=slice(4, 6)).values.reshape(N, -1)]
    centred = [one[LATER] - one[LATER].mean(0) for one in parts]
    if kind == "mca":
        left, _, right = np.linalg.svd(centred[0].T @ centred[1], full_matrices=False)
        directions = left[:, :2], right[:2].T
    else:
        leading = [np.linalg.svd(one, full_matrices=False) for one in centred]
        (u_1, s_1, w_1), (u_2, s_2, w_2) = ((u[:, :3], s[:3], w[:3].T) for u, s, w in leading)
        p, correlations, q = np.linalg.svd(u_1.T @ u_2)
        directions = w_1 / s_1 @ p, w_2 / s_2 @ q.T
        assert_close(found.correlations.values, correlations, 1e-9)
    others = [one[~LATER] - one[LATER].mean(0) for one in parts]
    before = values_read()
    rest = found.rest()
    assert values_read() == before
    assert rest.dims == ("side", "time", "component")
    assert rest.side.values.tolist() == ["a", "b"]
    assert (rest.time.values == TIME[~LATER]).all()
    signs = np.sign(np.sum(found.scores.values[0] * (centred[0] @ directions[0]), axis=0))
    for side, (other, direction) in enumerate(zip(others, directions, strict=True)):
        assert_close(rest.values[side], other @ direction * signs, 1e-8)
    new = {"a": FIELD.isel(lat=slice(0, 4))[~LATER], "b": FIELD.isel(lat=slice(4, 6))[~LATER]}
    by_products = found.transform(new)
    assert values_read() - before == X.size + X[~LATER].size
    maps = found.components()
    for side, (name, direction) in enumerate(zip("ab", directions, strict=True)):
        own = maps[f"components_{name}"]
        assert_close(own.values[side].reshape(len(signs), -1).T, direction * signs, 1e-8)
        assert np.isnan(own.values[1 - side]).all()
    assert found.certificate["maps"]["orthogonality"] < 1e-10
    assert max(np.ravel(found.certificate["maps"]["residual_data"])) < 1e-8
    before = values_read()
    by_maps = found.transform(new)
    assert values_read() - before == X[~LATER].size
    for one in (by_products, by_maps):
        xr.testing.assert_allclose(one, rest, rtol=1e-8, atol=1e-8)
    plain = found.transform({name: one.values for name, one in new.items()})
    assert_close(plain, rest.values, 1e-8)
    assert 0 < float(found.to_xarray().p_value) <= 1


def test_results_beside_each_other_are_one(results, gram, values_read):
    chain = CHAINS["climatology of what is selected"][0]
    expected, maps = chain(gram).pca(2), chain(gram).pca(2).components()
    south, north = FIELD.isel(lat=slice(0, 4)), FIELD.isel(lat=slice(4, 6))
    opened = {
        ("south", "north"): dpca.open_gram([results["south"], results["north"]]),
        ("a", "b"): dpca.open_gram({"a": results["south"], "b": results["north"]}),
        ("b", "a"): dpca.open_gram(results["both"]),
    }
    for names, several in opened.items():
        names = sorted(names, reverse="south" in names)
        found = chain(several).pca(2)
        assert_close(found.scores.values, expected.scores.values, 1e-9)
        before = values_read()
        made = found.components()
        assert values_read() - before == X.size
        together = np.concatenate([made[f"components_{name}"].values for name in names], axis=1)
        assert_close(together, maps.values, 1e-9)
        lon = "lon" if several is opened["b", "a"] else f"{names[0]}_lon"  # which the inputs of one result share
        assert made[f"components_{names[0]}"].dims == ("component", f"{names[0]}_lat", lon)
        new = {names[0]: south[~LATER], names[1]: north[~LATER]}
        for one in (found, chain(several).pca(2)):
            assert_close(one.transform(new).values, expected.rest().values, 1e-9)


def test_single_precision_has_no_digits_under_a_strong_cycle(results):
    season = dpca.open_gram(results["single"])
    weak = season.anomalies("month").pca()
    assert weak.certificate["amplification"] > 50
    assert weak.certificate["reliable_components"] < weak.certificate["components"]
    assert "model.precision: double" in weak.caveat
    assert "caveat: " in repr(weak)
    assert weak.to_xarray().attrs["caveat"] == weak.caveat
    assert not dpca.open_gram(results["double"]).anomalies("month").pca(30).caveat
    with pytest.raises(ConfigError, match="(?s)n_components is 30, but 1 to .*precision='double'"):
        season.anomalies("month").pca(30)
    assert not season.pca(2).caveat


def test_pickles_carry_arrays_and_no_gram_matrix(gram, grams_read):
    rows = gram.anomalies("month")
    found = [rows.pca(2), gram.extended(3, n_components=1), gram.spod(24), gram.dmd(3), gram.kernel_pca(n_components=2)]
    found[0].components()
    del grams_read[:]
    again, others = pickle.loads(pickle.dumps(rows)), pickle.loads(pickle.dumps(found))
    assert len(pickle.dumps(rows)) < 8 * N * N
    xr.testing.assert_identical(others[0].to_xarray(), found[0].to_xarray())
    assert grams_read == []
    assert (again.pca(2).scores.values == found[0].scores.values).all()
    xr.testing.assert_allclose(others[0].components(), found[0].components())
    assert all(one.components() is not None for one in others[:4])


def test_what_does_not_fit_is_refused(gram, results):
    with pytest.raises(ConfigError, match="along 'lat', but they lie along 'time'"):
        gram.sel(lat=slice(0, 1))
    with pytest.raises(ConfigError, match="no sample has time from 2003"):
        gram.sel(time="2003")
    with pytest.raises(ConfigError, match="month 13"):
        gram.sel(month=13)
    with pytest.raises(ConfigError, match="samples 0 to 200"):
        gram.isel(time=[0, 200])
    with pytest.raises(InputError, match="soi: time 0 is 1990-02-01, but 1990-01-01 here"):
        gram.regress_out(INDEX.roll(time=-1, roll_coords=True))
    with pytest.raises(ConfigError, match="another open_gram"):
        gram.components([dpca.open_gram(results["gram"]).pca(1)])
    with pytest.raises(ConfigError, match="time is 'dates'"):
        dpca.open_gram(results["gram"], time="dates")
    with pytest.raises(InputError):
        dpca.open_gram("nowhere")
    with pytest.raises(OverBudgetError, match=r"an analysis of 96 rows of 96 samples takes .*\nSelect .*memory='"):
        dpca.open_gram(results["gram"], memory="100 kB").pca(1)
    assert_close(dpca.open_gram(PCA.load(results["gram"])).pca(2).scores.values, gram.pca(2).scores.values)


def stored(values):
    array = zarr.create_array("x.zarr", shape=values.shape, chunks=(N, 40), dtype=values.dtype)
    array[...] = values
    return array


FITS = {
    "NumPy": (lambda: X, {}),
    "single": (lambda: X.astype("f4"), {}),
    "tsqr": (lambda: X, {"svd_solver": "tsqr"}),
    "Dask": (lambda: da.from_array(X, chunks=(N, 40)), {}),
    "DataArray": (lambda: FIELD, {"samples_axis": "time"}),
    "Zarr": (lambda: stored(X), {}),
    "several": (lambda: {"a": X[:, :50], "b": X[:, 50:]}, {}),
}


@pytest.mark.parametrize("saved", [False, True], ids=["fit", "saved"])
@pytest.mark.parametrize("of", FITS)
def test_a_fit_opens_as_a_gram_matrix(of, saved):
    """What dpca.open_gram needs is kept where it is small; components are of the data, which the caller passes or files hold."""
    make, how = FITS[of]
    x = make()
    fit = PCA(2, **how).fit(x)
    place = fit.save("fit") if saved else fit
    data = None if of == "Zarr" else x
    found = dpca.open_gram(place, data=data).pca(2)
    np.testing.assert_allclose(found.explained_variance, fit.explained_variance_, rtol=1e-5)
    made = found.components()
    parts = made.data_vars.values() if of == "several" else [made]
    fitted = fit.components_.values() if of == "several" else [fit.components_]
    for ours, theirs in zip(parts, fitted, strict=True):
        flat = np.asarray(theirs).reshape(2, -1)
        assert_same_up_to_phase(ours.values.reshape(2, -1).T, flat.T, 1e-4)
    if data is not None:
        with pytest.raises(DataError, match="fitted to values in the memory of a Python program"):
            dpca.open_gram(place).pca(2).components()
        wrong = {name: one[::-1] for name, one in x.items()} if of == "several" else x[::-1]
        with pytest.raises(DataError, match="data is not what .* was made of"):
            dpca.open_gram(place, data=wrong).pca(2).components()


def test_a_large_gram_matrix_is_kept_if_asked_for():
    tall = np.random.default_rng(0).standard_normal((400, 500))
    with pytest.raises(
        InputError, match=r"this PCA keeps no Gram matrix of its 400 samples .*\nFit with keep_gram=True"
    ):
        dpca.open_gram(PCA(2).fit(tall))
    assert dpca.open_gram(PCA(2, keep_gram=True).fit(tall)).n_samples == 400
    with pytest.raises(InputError, match="its solver was covariance_eigh"):
        dpca.open_gram(PCA(2, keep_gram=True).fit(tall[:, :300]))
    with pytest.raises(InputError, match="keeps no Gram matrix of its 96 samples"):
        dpca.open_gram(PCA(2, keep_gram=False).fit(X))
    with pytest.raises(InputError, match="data has 95 samples, but this estimator has 96"):
        dpca.open_gram(PCA(2).fit(X), data=X[1:])


def test_data_that_are_gone_or_changed_are_named(tmp_path, values_read):
    data = FIELD.to_dataset()
    data.to_zarr("x.zarr", consolidated=False)
    config = {
        "input": {"uri": str(tmp_path / "x.zarr"), "array": "sst", "samples_axis": "time"},
        "model": {"n_components": 1, "svd_solver": "gram_eigh"},
        "output": {"path": "x", "components": False},
    }
    (tmp_path / "x.yaml").write_text(yaml.safe_dump(config))
    assert command("run", "x.yaml") == 0
    found = dpca.open_gram("x").anomalies("month").pca(2)
    (2 * data).to_zarr("x.zarr", mode="w", consolidated=False)
    with pytest.raises(DataError, match="changed since x was made of it"):
        found.components()
    (tmp_path / "x.zarr").rename("y.zarr")
    with pytest.raises(DataError, match="can't be opened"):
        found.components()
    assert found.rest is not None


def test_samples_without_dates_are_numbered(results):
    indexed = dpca.open_gram(results["gram"], time="index")
    assert indexed.detrend().pca(1).scores.time.values.tolist() == list(range(N))
    assert indexed.sel(time=slice(3, 5)).n_samples == 3
    with pytest.raises(ConfigError, match="month needs dates"):
        indexed.anomalies("month")


def test_without_xarray_arrays_are_numpy(gram, monkeypatch):
    monkeypatch.delitem(sys.modules, "dpca.store.labelled", raising=False)
    monkeypatch.delattr("dpca.store.labelled", raising=False)
    monkeypatch.setitem(sys.modules, "xarray", None)
    found = gram.anomalies("month").pca(2)
    assert found.arrays["scores"].shape == (N, 2)
    for needs in (found.to_xarray, found.components, gram.distances, lambda: found.scores):
        with pytest.raises(InputError, match=r"xarray, which is not installed\n.*pip install xarray"):
            needs()


def test_components_on_a_cluster(results, cluster, tmp_path):
    with Client(cluster, set_as_default=False) as client:
        gram = dpca.open_gram(results["gram"], client=client, store=tmp_path / "maps", memory="2 GiB")
        found = gram.hilbert(2)
        xr.testing.assert_identical(found.components(), dpca.open_gram(results["gram"]).hilbert(2).components())
        assert pickle.loads(pickle.dumps(found))._opened.client is None
    assert [path.name.partition("-")[0] for path in (tmp_path / "maps").iterdir()] == ["components"]


SPANS = [
    ("2000-02-01 12:00", "2000-02-03 06:00"),
    ("2000-02-01T12", "2000-02-03T06"),
    ("2000-02-01T12:00:00Z", "2000-02-03T06:00Z"),
    ("2000-2-1", "2000-2-3"),
    ("2000-02", "2000-02"),
    ("2000-01-30", None),
    (None, "2000-02-28"),
    ("2000", "2000"),
    (2000, 2000),
    ("2000-02-29 18:00", "2000-03-01 00:00"),
]


def six_hourly(calendar, start):
    """The result of 6-hourly samples of five months, and their times."""
    import xarray as xr

    times = xr.date_range(start, periods=600, freq="6h", calendar=calendar, use_cftime=calendar != "standard")
    data = xr.DataArray(random_array(0, (600, 700), "f4"), coords={"time": times}, dims=("time", "cell"), name="x")
    data.to_dataset().to_netcdf("x.nc", engine="h5netcdf")
    Path("c.yaml").write_text(
        "input: {uri: x.nc, array: x, samples_axis: time}\nmodel: {n_components: 1}\noutput: {path: r, report: false, components: false}\n"
    )
    assert command("run", "c.yaml") == 0
    return dpca.open_gram("r"), data


@pytest.mark.parametrize("calendar", ["standard", "noleap", "360_day", "proleptic_gregorian"])
def test_spans_of_time_are_those_of_xarray(calendar):
    gram, data = six_hourly(calendar, "1999-12-15")
    for start, stop in SPANS:
        if calendar == "noleap" and "02-29" in str(start):
            continue
        as_text = [None if one is None else str(one).removesuffix("Z") for one in (start, stop)]
        if calendar != "standard":  # xarray reads a space, and one digit of a month, of NumPy's dates alone
            padded = [one and re.sub(r"-(\d)(?!\d)", r"-0\1", one.replace(" ", "T")) for one in as_text]
            as_text = [one and re.sub(r"(T\d\d)$", r"\1:00", one) for one in padded]
        expected = data.time.sel(time=slice(*as_text))
        found = gram.sel(time=slice(start, stop))._rows.axis.names
        assert len(expected)
        assert [one[:13] for one in found] == [str(one)[:13].replace(" ", "T") for one in expected.values], (
            start,
            stop,
        )
    for label, problem in {
        "2000-02-31": "is no date of calendar",
        "2000-13": "is no date",
        "2000-02-01 25:00": "is no date",
        "01.02.2000": "is no date",
        "2000-02-01T12:00+02:00": "is no date",
    }.items():
        with pytest.raises(ConfigError, match=problem):
            gram.sel(time=slice(label, None))


def test_years_before_0_and_after_9999_are_in_order():
    from dpca.sources.calendars import moment_of, moments

    units = {"units": "days since 0001-01-01", "calendar": "proleptic_gregorian"}
    told = moments(np.array([-400_000.0, 0.0, 4_000_000.0]), units)
    assert told == sorted(told)
    assert told[0][0] < 0 < told[1][0] < 9999 < told[2][0]
    assert (
        moment_of("-0044-03-15", units, "time")
        < moment_of("0850", units, "time")
        < moment_of("+10000-01", units, "time")
    )


def kept(times, name, x=None):
    """A result of samples at these times."""
    import xarray as xr

    x = random_array(0, (len(times), len(times) + 9), "f8") if x is None else x
    data = xr.DataArray(x, coords={"time": times}, dims=("time", "cell"), name="x")
    data.to_dataset().to_zarr(f"{name}.zarr", consolidated=False)
    Path(f"{name}.yaml").write_text(
        f"input: {{uri: {name}.zarr, array: x, samples_axis: time}}\nmodel: {{n_components: 1}}\n"
        f"output: {{path: {name}, report: false, components: false}}\n"
    )
    assert command("run", f"{name}.yaml") == 0
    return name


@pytest.mark.filterwarnings("ignore")
def test_results_beside_each_other_are_paired_by_their_moments(capsys):
    """Whatever the units are; by days or months where these are to count, and only where these tell samples apart."""
    import xarray as xr

    def of(calendar, hour=0, n=4, encoding=None, start="2001-02-26"):
        how = {"calendar": calendar, "use_cftime": calendar != "standard"}
        times = xr.DataArray(xr.date_range(f"{start}T{hour:02}", periods=n, freq="D", **how), dims="time")
        times.encoding = encoding or {}
        return times

    midnight, noon = kept(of("standard"), "a"), kept(of("standard", 12), "noon")
    hours = kept(of("standard", encoding={"units": "hours since 1900-01-01", "dtype": "f8"}), "hours")
    assert dpca.open_gram([midnight, hours]).pca(1).explained_variance_ratio.shape == (1,)
    models = kept(of("360_day"), "models")  # 28, 29, and no 1 March
    with pytest.raises(InputError, match="models: sample 3 is '2001-02-29', but '2001-03-01' in a"):
        dpca.open_gram([midnight, models])
    with pytest.raises(
        InputError, match=r"sample 0 is '2001-02-26T12:00:00', but '2001-02-26' in a[\s\S]*pair_by: day"
    ):
        dpca.open_gram([midnight, noon])
    paired = dpca.open_gram([midnight, noon], pair_by="day")
    assert paired._rows.axis.names == dpca.open_gram(midnight)._rows.axis.names
    Path("d.yaml").write_text(
        "from: {a: a, b: noon}\nanalyses: [{name: x, model: {kind: pca}}]\ncomponents: false\noutput: {path: d}\n"
    )
    assert command("derive", "d.yaml") == 2
    assert "pair_by: day" in capsys.readouterr().err
    assert command("derive", "d.yaml", "--set", "pair_by=day") == 0
    kept(of("standard", n=3), "three"), kept(of("standard", n=3, start="2001-02-10"), "earlier")
    assert command("derive", "d.yaml", "--set", "pair_by=month", "--set", "from=[three, earlier]", "--overwrite") == 2
    assert "several samples of one month" in capsys.readouterr().err
    months = [pd_month(day) for day in (1, 16)]
    first, middle = kept(months[0], "first"), kept(months[1], "middle")
    with pytest.raises(InputError, match="pair_by: month"):
        dpca.open_gram([first, middle])
    assert dpca.open_gram({"a": first, "b": middle}, pair_by="month").n_samples == 36
    both = "[{name: u, uri: first.zarr, array: x, samples_axis: time}, {name: v, uri: middle.zarr, array: x, samples_axis: time}]"
    Path("two.yaml").write_text(
        f"input: {both}\nmodel: {{n_components: 1}}\npreprocess: {{block_scaling: none}}\noutput: {{path: two}}\n"
    )
    assert command("run", "two.yaml") == 2
    assert "dpca derive with pair_by: month" in capsys.readouterr().err


def pd_month(day):
    return np.arange("2000-01", "2003-01", dtype="M8[M]").astype("M8[D]").astype("M8[ns]") + np.timedelta64(
        day - 1, "D"
    )


@pytest.mark.parametrize("named", [False, True])
def test_means_of_months_have_dates(named):
    """Of days with dates, and with names that are dates: what follows in time is that of monthly means by xarray."""
    import xarray as xr

    times = np.arange("2000-01-01", "2003-01-01", dtype="M8[D]")[::5]
    x = random_array(0, (len(times), 300), "f8") + np.arange(len(times))[:, None] / 300
    data = xr.DataArray(x, coords={"time": times.astype("M8[ns]")}, dims=("time", "cell"))
    gram = dpca.open_gram(kept(times.astype(str) if named else times.astype("M8[ns]"), "days", x))
    means = gram.means("year_month")
    monthly = data.resample(time="MS").mean()
    assert means._rows.axis.names == [str(one)[: 7 if named else 10] for one in monthly.time.values]
    found = means.detrend().sel(season="DJF").sel(time=slice("2001", None)).pca(2)
    days = (monthly.time.values - monthly.time.values[0]) / np.timedelta64(1, "D")
    z = np.column_stack([np.ones(len(days)), days])
    left = monthly.values - z @ np.linalg.lstsq(z, monthly.values, rcond=None)[0]
    chosen = (monthly.time.dt.season == "DJF") & (monthly.time.dt.year >= 2001)
    rows = left[chosen.values]
    expected = np.linalg.svd(rows - rows.mean(0), compute_uv=False)[:2] ** 2 / (len(rows) - 1)
    np.testing.assert_allclose(found.explained_variance, expected, rtol=1e-9)
    assert means.filter("running_mean", window=3).n_samples == 34
    seasons = gram.means("season")
    assert seasons._rows.axis.values.tolist() == ["DJF", "MAM", "JJA", "SON"]
    by_season = [x[data.time.dt.season.values == one].mean(0) for one in ("DJF", "MAM", "JJA", "SON")]
    centred = np.array(by_season) - np.mean(by_season, axis=0)
    scores = np.linalg.svd(centred, full_matrices=False)
    assert_same_up_to_phase(seasons.pca(1).scores.values, (scores[0] * scores[1])[:, :1])
    assert seasons.anomalies(np.array([0, 0, 1, 1])).n_samples == 4


@pytest.mark.filterwarnings("ignore")
def test_what_times_lack_is_said_with_the_place(capsys):
    """Gaps of days and of months, years of 365 days in the standard calendar, steps of seconds, and units that tell no dates."""
    import xarray as xr

    month = pd_month(16)
    days = np.arange("1999-12-01", "2000-12-31", dtype="M8[D]").astype("M8[ns]")
    leap = [str(day)[5:10] == "02-29" for day in days]
    cases = {
        "months": (np.delete(month, [17, 25]), "2001-07-16 follows 2001-05-16, where most samples are a month apart"),
        "days": (
            np.delete(days, 300),
            f"{str(days[301])[:10]} follows {str(days[299])[:10]}, where most samples are 1 day apart",
        ),
        "no leap days": (
            days[~np.array(leap)],
            r"2000-03-01 follows 2000-02-28.*there is no 29 February[\s\S]*Pass time=.index.",
        ),
    }
    for number, (times, said) in enumerate(cases.values()):
        gram = dpca.open_gram(kept(times, f"r{number}"))
        with pytest.raises(ConfigError, match=said):
            gram.filter("running_mean", window=3)
    assert dpca.open_gram("r2", time="index").filter("running_mean", window=3).n_samples == len(days) - sum(leap) - 2
    for number, (units, calendar) in enumerate(
        [
            ("days since 0000-00-00", "standard"),
            ("Months since 1980-01-01", "standard"),
            ("days since 1980-01-01", "none"),
        ]
    ):
        data = xr.DataArray(random_array(0, (9, 50), "f8"), dims=("time", "cell"), name="x")
        data = data.assign_coords(time=("time", np.arange(9.0), {"units": units, "calendar": calendar}))
        data.to_dataset().to_zarr("u.zarr", consolidated=False, mode="w")
        config = f"input: {{uri: u.zarr, array: x, samples_axis: time}}\nmodel: {{n_components: 1}}\noutput: {{path: u{number}}}\n"
        Path("u.yaml").write_text(config)
        assert command("run", "u.yaml") == 0
        with pytest.raises(ConfigError, match=re.escape(f"{units!r} and calendar {calendar!r}")):
            dpca.open_gram(f"u{number}").anomalies("month")
    for units, said in (("s", "0.01 s"), ("days", "0.01 days"), ("m", "0.01 m"), ("seconds", "0.01 seconds")):
        from dpca.analyses.axis import Axis

        assert Axis("t", 0.01 * np.arange(9), {"units": units}).clock("a test").step == said


@pytest.mark.parametrize("value", ["time", None, 3.5, [], {}, object()], ids=lambda value: type(value).__name__)
def test_an_argument_of_a_wrong_type_is_refused_in_a_sentence_by_every_method(gram, value):
    """Or taken, where it is none; of too few or too many arguments Python says so itself."""
    methods = [name for name in dir(gram) if not name.startswith("_") and callable(getattr(gram, name))]
    assert {"detrend", "pca", "mca", "ridge", "filter", "weighted"} <= {*methods}
    refused = []
    for name in methods:
        parameters = inspect.signature(getattr(gram, name)).parameters
        positional = [one for one in parameters.values() if one.kind is one.POSITIONAL_OR_KEYWORD]
        n_needed = sum(one.default is one.empty for one in positional)
        if not positional:
            continue
        try:
            getattr(gram, name)(*[value] * max(1, n_needed))
        except DpcaError as error:
            refused.append(error.remedy)
    assert len(refused) > 10
    assert all(refused)
