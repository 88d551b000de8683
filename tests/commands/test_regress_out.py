"""A seasonal cycle, a trend and covariates out of each feature, from a config to new samples."""

import csv
import json
import pickle
from pathlib import Path

import cftime
import numpy as np
import pandas as pd
import pytest
import xarray as xr
import zarr

from dpca import PCA, KernelPCA, open_gram
from dpca.errors import ConfigError, InputError
from dpca.store.results import open_result
from tests.commands.calls import dpca, run
from tests.made import made
from tests.resume.disturbed import in_small_slabs, killed
from tests.stores import bits

N, NEW, SHAPE = 60, 9, (6, 5)
RNG = np.random.default_rng(5)
AGES, SITES = RNG.normal(40, 9, N + NEW), RNG.choice(["north", "south", "7"], N + NEW)
TIMES = np.floor(np.arange(N + NEW) * 30.4) + 12.0
DATES = [str(day)[:10] for day in cftime.num2date(TIMES, "days since 2000-01-01", "noleap")]
MONTHS = np.array([int(day[5:7]) for day in DATES])
VALUES = (
    RNG.normal(size=(N + NEW, *SHAPE))
    + 280
    + 20 * RNG.normal(size=(12, *SHAPE))[MONTHS - 1]
    + 0.02 * TIMES[:, None, None]
    + AGES[:, None, None] * RNG.normal(size=SHAPE)
)
CONFIG = """
input: {uri: x.zarr, array: t2m, samples_axis: time}
preprocess:
  scale: std
  regress_out: {seasonal_cycle: month, trend: 2, covariates: {uri: people.csv, columns: [age, site], key: day}}
model: {n_components: 3, precision: double}
output: {path: r, report: false}
"""


def store(path, which, units="days since 2000-01-01", times=TIMES, calendar="noleap"):
    group = zarr.create_group(path, overwrite=True)
    group.create_array("t2m", data=VALUES[which], chunks=(20, 2, 5), dimension_names=("time", "lat", "lon"))
    time = group.create_array("time", data=times[which], dimension_names=("time",))
    time.attrs.update({"units": units, "calendar": calendar} if units else {})


def people(path, which):
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["day", "site", "age", "other"])
        writer.writerows([DATES[number], SITES[number], AGES[number], ""] for number in which)


def given():
    store("x.zarr", slice(0, N))
    people("people.csv", np.random.default_rng(6).permutation(N))
    Path("c.yaml").write_text(CONFIG)


@pytest.fixture
def config():
    made(given)
    return "c.yaml"


def anomalies(which=slice(0, N), fitted=slice(0, N)):
    """Of some samples, from the coefficients of those of the fit; and the standard deviations of these."""
    time = TIMES / 1000
    z = np.column_stack(
        [
            *(month == MONTHS for month in range(1, 13)),
            time,
            time**2,
            AGES,
            *(site == SITES for site in ("north", "south", "7")),
        ]
    ).astype(float)
    x = VALUES.reshape(len(VALUES), -1)
    fit = z @ np.linalg.lstsq(z[fitted], x[fitted], rcond=1e-12)[0]
    left = x - fit
    return left[which] / left[fitted].std(axis=0, ddof=1), fit[which].reshape(-1, *SHAPE)


def test_new_samples_lose_the_fit_of_the_old_ones_and_the_old_ones_get_theirs_back(config, capsys):
    assert dpca("run", config) == 0
    assert (
        "month, time, age, site regressed out: 17 parameters, the mean included, were fitted to 60"
        in capsys.readouterr().err
    )
    standard, fit = anomalies()
    s = np.linalg.svd(standard, compute_uv=False)
    result = xr.open_zarr("r/result.zarr").load()
    np.testing.assert_allclose(result.singular_values, s[:3], rtol=1e-10)
    np.testing.assert_allclose(
        result["mean"].values + np.tensordot(result.regressors, result.regression, 1), fit, rtol=1e-9
    )
    assert list(result.regressor.values[[0, 12, 13, 14, -1]]) == ["month 01", "time", "time P2", "age", "site south"]
    assert result.regressors.dims == ("time", "regressor")
    assert (
        dpca("transform", "r", "c.yaml", "--out", "same.zarr") == 2
    )  # a config says nothing of covariates of new samples
    # The same samples, and new ones, in other units of time, with a table in their order.
    store("new.zarr", slice(N, N + NEW), "hours since 2003-01-01", TIMES * 24 - 3 * 365 * 24)
    people("new.csv", range(N, N + NEW))
    for name, table, which in (("x", "people.csv, key: day", slice(0, N)), ("new", "new.csv", slice(N, N + NEW))):
        keys = f"{{uri: {name}.zarr, array: t2m, samples_axis: time, covariates: {{uri: {table}}}}}"
        Path(f"{name}.yaml").write_text(keys)
        assert dpca("transform", "r", f"{name}.yaml", "--out", f"{name}-scores.zarr") == 0
        scores = zarr.open_array(f"{name}-scores.zarr/scores")[...]
        components = result.components.values.reshape(3, -1)
        np.testing.assert_allclose(scores, anomalies(which)[0] @ components.T, atol=1e-8)
    capsys.readouterr()
    assert dpca("reconstruct", "r", "--out", "back.zarr", "--samples", "50,3:6") == 0
    back = xr.open_zarr("back.zarr").load().reconstruction
    chosen = [50, 3, 4, 5]
    left = np.tensordot(result.scores.values[chosen], result.components.values, 1) * result["scale"].values
    np.testing.assert_allclose(back, left + fit[chosen], atol=1e-8)
    assert dpca("export", "r", "--to", "netcdf") == 0


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("{}", "preprocess.regress_out is empty, but one of seasonal_cycle, trend, covariates and by is needed"),
        ("{seasonal_cycle: week}", "preprocess.regress_out.seasonal_cycle is 'week', but"),
        ("{trend: 0}", "preprocess.regress_out.trend is 0, but an integer of 1 or more"),
        ("{trend: 59}", "a polynomial of degree 59 in time fits all 60 distinct values of 60 samples"),
        (
            "{covariates: {uri: people.csv}}",
            "people.csv: is a table, and which of its columns are covariates is not said",
        ),
        ("{covariates: {uri: people.csv, columns: [agee]}}", "has no column 'agee'"),
        (
            "{covariates: {uri: people.csv, columns: [other]}}",
            "people.csv: holds labels of shape (0,), but there are 60 samples",
        ),
        (
            "{covariates: {uri: short.csv, columns: [age]}}",
            "short.csv: holds labels of shape (59,), but there are 60 samples",
        ),
        ("{covariates: {uri: short.csv, columns: [age], key: day}}", "short.csv: has no row for 1 of 60 samples"),
        ("{covariates: {uri: short.npy}}", "covariates have shape (59, 2) and type float64, but there are 60 samples"),
        ("{covariates: {uri: nan.npy}}", "preprocess.regress_out: covariate 1: the value of sample 4 is nan"),
        ("{covariates: {uri: nan.npy, columns: [age]}}", "nan.npy: is no table (.csv or .tsv), but columns are named"),
        (
            "{covariates: {uri: nan.npy, categorical: [a]}}",
            "nan.npy: is no table (.csv or .tsv), but categorical is named",
        ),
        (
            "{covariates: {uri: people.csv, columns: [age], categorical: [site]}}",
            "people.csv: 'site' is categorical, but the columns are age",
        ),
    ],
)
def test_errors_say_which_key_and_what_is_allowed(config, capsys, keys, message):
    people("short.csv", range(N - 1))
    np.save("short.npy", np.ones((N - 1, 2)))
    values = RNG.normal(size=(N, 2))
    values[4, 1] = np.nan
    np.save("nan.npy", values)
    assert dpca("run", config, "--set", f"preprocess.regress_out={keys}") in (1, 2)
    assert message in capsys.readouterr().err
    assert not Path("r").exists()


def test_keys_that_contradict_it(config, capsys):
    for key, value, message in (
        (
            "preprocess.center",
            "false",
            "preprocess.regress_out is not defined with preprocess.center: false: the mean is among what is fitted",
        ),
        ("preprocess.missing", "pairwise", "preprocess.regress_out is not defined with preprocess.missing: pairwise"),
        (
            "preprocess.sample_weights",
            "{uri: w.npy}",
            "preprocess.regress_out is not defined with preprocess.sample_weights",
        ),
        (
            "model.svd_solver",
            "covariance_eigh",
            "preprocess.regress_out is not defined with model.svd_solver: covariance_eigh",
        ),
        ("input.covariates", "{uri: people.csv}", "input.covariates is for new samples alone"),
    ):
        np.save("w.npy", np.ones(N))
        assert dpca("run", config, "--set", f"{key}={value}") == 2
        assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("units", "keys", "message"),
    [
        (None, "{seasonal_cycle: month}", "but the samples' times are no dates: their units are None"),
        ("metres", "{seasonal_cycle: hour}", "but the samples' times are no dates: their units are 'metres'"),
    ],
)
def test_times_that_are_no_dates(config, capsys, units, keys, message):
    store("x.zarr", slice(0, N), units)
    assert dpca("run", config, "--set", f"preprocess.regress_out={keys}") == 2
    assert message in capsys.readouterr().err
    assert dpca("run", config, "--set", "preprocess.regress_out={trend: 1}") == 0


def test_samples_without_times(config, capsys):
    np.save("plain.npy", VALUES[:N])
    plain = ("--set", "input={uri: plain.npy}", "--set", "preprocess.regress_out={seasonal_cycle: season}")
    assert dpca("run", config, *plain) == 2
    message = "preprocess.regress_out.seasonal_cycle needs the samples' dates or times, but its samples axis 0 has no coordinate"
    assert message in capsys.readouterr().err
    Path("days.txt").write_text("\n".join(DATES[:N]))
    assert dpca("run", config, *plain, "--set", "input.sample_names={uri: days.txt}") == 0
    seasons = np.array(["DJF", "MAM", "JJA", "SON"])[MONTHS[:N] % 12 // 3]
    x = VALUES[:N].reshape(N, -1).copy()
    for season in np.unique(seasons):
        x[seasons == season] -= x[seasons == season].mean(axis=0)
    found = open_result("r").arrays["singular_values"][...]
    np.testing.assert_allclose(found, np.linalg.svd(x / x.std(0, ddof=1), compute_uv=False)[:3], rtol=1e-10)


def test_new_samples_of_which_the_fit_knows_nothing(config, capsys):
    seasons = ("--set", "input.samples={stop: 7}", "--set", "preprocess.regress_out={seasonal_cycle: season}")
    assert dpca("run", config, *seasons) == 0
    assert dpca("transform", "r", "x.zarr", "--out", "s.zarr") == 2
    assert (
        "season is SON of sample 8, and 15 samples in all are of none of the fit's: DJF, JJA, MAM"
        in capsys.readouterr().err
    )
    keys = "{uri: x.zarr, array: t2m, samples_axis: time, covariates: {uri: people.csv, columns: [age]}}"
    Path("n.yaml").write_text(keys)
    assert dpca("transform", "r", "n.yaml", "--out", "s.zarr") == 2
    assert "was fitted without covariates" in capsys.readouterr().err


def test_covariates_and_dates_that_changed_are_another_run(config, capsys):
    made(run, given)
    assert dpca("run", config, "--resume") == 0  # nothing is left to do
    kept = Path("people.csv").read_text()
    Path("people.csv").write_text(kept.replace("north", "west"))
    assert dpca("run", config, "--resume") == 2
    assert "preprocess.fields.covariates" in capsys.readouterr().err
    Path("people.csv").write_text(kept)
    manifest = json.loads(Path("r/manifest.json").read_text())
    assert len(manifest["asked"]["preprocess"]["regress_out"]["sha256"]) == 64
    assert [term["name"] for term in manifest["regressors"]] == ["month", "time", "age", "site"]


def test_a_job_array_and_any_memory_have_the_same_bits(config, monkeypatch):
    in_small_slabs(monkeypatch)
    assert dpca("run", config, "--set", "output.path=expected") == 0
    assert dpca("batch", "init", config, "--partitions", "2") == 0
    for _ in range(3):
        for index in (1, 0):
            dpca("batch", "partition", "r", "--index", index)
        assert dpca("batch", "finalize", "r") == 0
    assert bits("r") == bits("expected")


def test_kernels_of_what_is_left(config, capsys):
    rbf = ("--set", "model={kind: kernel_pca, kernel: rbf, gamma: 0.02, n_components: 3}")
    assert dpca("run", config, *rbf) == 0
    standard, _ = anomalies()
    fitted = KernelPCA(3, kernel="rbf", gamma=0.02).fit(standard)
    np.testing.assert_allclose(open_result("r").arrays["scores"][...], fitted.transform(standard), atol=1e-8)
    store("new.zarr", slice(N, N + NEW))
    people("new.csv", range(N, N + NEW))
    Path("n.yaml").write_text("{uri: new.zarr, array: t2m, samples_axis: time, covariates: {uri: new.csv}}")
    assert dpca("transform", "r", "n.yaml", "--out", "s.zarr") == 0
    expected = fitted.transform(anomalies(slice(N, N + NEW))[0])
    np.testing.assert_allclose(zarr.open_array("s.zarr/scores")[...], expected, atol=1e-7)
    capsys.readouterr()
    assert dpca("reconstruct", "r", "--out", "b.zarr") == 2
    assert "which can't reconstruct samples" in capsys.readouterr().err
    # More kernels of the same anomalies; not of other ones.
    more = ("--set", "model={kind: kernel_pca, kernel: poly, n_components: 3}", "--set", "output.path=k")
    assert dpca("run", config, *more, "--from-gram", "r") == 0
    assert dpca("transform", "k", "n.yaml", "--out", "t.zarr") == 0
    expected = KernelPCA(3, kernel="poly", center=True).fit(standard).transform(anomalies(slice(N, N + NEW))[0])
    np.testing.assert_allclose(zarr.open_array("t.zarr/scores")[...], expected, atol=1e-6)
    other = ("--set", "preprocess.regress_out={trend: 1}", "--set", "output.path=l")
    assert dpca("run", config, *more, *other, "--from-gram", "r") == 2
    assert "its Gram matrix is of other values: preprocess.regress_out" in capsys.readouterr().err


@pytest.mark.long
def test_covariates_that_changed_while_a_run_was_down_are_refused(config, monkeypatch, capsys):
    in_small_slabs(monkeypatch)
    np.save("x.npy", RNG.normal(size=(N, 3000)))
    aged = "preprocess.regress_out={covariates: {uri: people.csv, columns: [age]}}"
    aged = ("--set", "input={uri: x.npy}", "--set", aged)
    assert dpca("run", config, *aged, "--set", "output.path=expected") == 0
    killed(config, 7, how=aged)
    kept = Path("people.csv").read_bytes()
    people("people.csv", range(N))  # the same rows in another order
    assert dpca("run", config, *aged, "--resume") == 2
    assert "preprocess.regress_out.sha256" in capsys.readouterr().err
    Path("people.csv").write_bytes(kept)
    assert dpca("run", config, *aged, "--resume") == 0
    assert bits("r") == bits("expected")


def test_inputs_side_by_side_lose_the_same_regressors(config):
    np.save("plain.npy", VALUES[:N, :2])
    both = "[{name: a, uri: plain.npy}, {name: b, uri: x.zarr, array: t2m, samples_axis: time}]"
    assert dpca("run", config, "--set", f"input={both}", "--set", "preprocess.regress_out={seasonal_cycle: month}") == 0
    result = open_result("r")
    for name, values in (("a", VALUES[:N, :2]), ("b", VALUES[:N])):
        first = values[MONTHS[:N] == 1].mean(axis=0) - values.mean(axis=0)
        np.testing.assert_allclose(result.arrays[f"regression_{name}"][0], first, atol=1e-10)
    Path("n.yaml").write_text(both)
    assert dpca("transform", "r", "n.yaml", "--out", "s.zarr") == 0
    np.testing.assert_allclose(zarr.open_array("s.zarr/scores")[...], result.arrays["scores"][...], atol=1e-8)


BATCH = np.arange(N + NEW) % 3


def without_means(x, groups):
    """Samples less the mean of their group."""
    x = x.reshape(len(x), -1).copy()
    for group in np.unique(groups):
        x[groups == group] -= x[groups == group].mean(axis=0)
    return x


def test_a_column_of_numbers_is_categories_where_the_config_says_so(config):
    with open("batches.csv", "w") as file:
        file.write("batch\n" + "".join(f"{one}\n" for one in BATCH[:N]))
    asked = "preprocess.regress_out={covariates: {uri: batches.csv, columns: [batch]%s}}"
    for more, z in ((", categorical: [batch]", BATCH[:N, None] == range(3)), ("", BATCH[:N, None])):
        assert dpca("run", config, "--overwrite", "--set", asked % more, "--set", "preprocess.scale=none") == 0
        z = np.column_stack([np.ones(N), z])
        x = VALUES[:N].reshape(N, -1)
        expected = np.linalg.svd(x - z @ np.linalg.pinv(z) @ x, compute_uv=False)[:3]
        np.testing.assert_allclose(open_result("r").arrays["singular_values"][...], expected, rtol=1e-10)
    # New samples have the kinds of the fit, whatever theirs look like alone.
    assert dpca("run", config, "--overwrite", "--set", asked % ", categorical: [batch]") == 0
    keys = "uri: x.zarr\narray: t2m\nsamples_axis: time\nsamples: [2, 6]\n"
    Path("n.yaml").write_text(keys + "covariates: {uri: few.csv, columns: [lot]}\n")
    Path("few.csv").write_text("lot\n" + "".join(f"{BATCH[number]}\n" for number in range(N)))
    assert dpca("transform", "r", "n.yaml", "--out", "s.zarr") == 0
    scores = open_result("r").arrays["scores"][...]
    np.testing.assert_allclose(zarr.open_array("s.zarr/scores")[...], scores[[2, 6]], atol=1e-8)


@pytest.mark.parametrize(
    ("of", "categories"),
    [
        (lambda one: one, False),
        (lambda one: one.astype(object), False),
        (lambda one: pd.Series(one, dtype="Int64"), False),
        (lambda one: one.astype(str), True),
        (lambda one: one.astype(str).astype(object), True),
        (lambda one: pd.Series(one.astype(str), dtype="string"), True),
        (lambda one: pd.Categorical(one), True),
        (lambda one: pd.Series(one.astype(float), dtype="category"), True),
    ],
)
def test_in_python_the_type_says_what_is_a_category(of, categories):
    x = VALUES[:N]
    pca = PCA(3, regress_out={"covariates": {"batch": of(BATCH[:N])}}).fit(x)
    z = np.column_stack([np.ones(N), BATCH[:N]])
    flat = x.reshape(N, -1)
    left = without_means(x, BATCH[:N]) if categories else flat - z @ np.linalg.pinv(z) @ flat
    np.testing.assert_allclose(pca.singular_values_, np.linalg.svd(left, compute_uv=False)[:3], rtol=1e-9)
    few = pca.transform(x[[2, 6]], covariates={"batch": of(BATCH[[2, 6]])})
    np.testing.assert_allclose(few, pca.transform(x, covariates={"batch": of(BATCH[:N])})[[2, 6]], atol=1e-9)
    other = BATCH[:2] if categories else BATCH[:2].astype(str)
    with pytest.raises(InputError, match="batch is (numbers|text) of the new samples, but (numbers|text) in the fit"):
        pca.transform(x[:2], covariates={"batch": other})


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA])
def test_a_missing_category_is_none(missing):
    batch = BATCH[:N].astype(str).astype(object)
    batch[4] = missing
    numbers = pd.Categorical(np.where(np.arange(N) == 4, np.nan, BATCH[:N]))
    for values in (batch, pd.Categorical(batch), numbers):
        with pytest.raises(InputError, match=r"covariates: batch is missing \(.*\) of sample 4"):
            PCA(2, regress_out={"covariates": {"batch": values}}).fit(VALUES[:N])


def test_in_python():
    made(run, given)
    result = open_result("r")
    new = xr.open_zarr("x.zarr", consolidated=False, decode_times=xr.coders.CFDatetimeCoder(use_cftime=True)).t2m
    asked = {"seasonal_cycle": "month", "trend": 2, "covariates": {"age": AGES[:N], "site": SITES[:N]}}
    pca = PCA(3, scale="std", regress_out=asked, precision="double", samples_axis="time").fit(new.load())
    np.testing.assert_allclose(pca.singular_values_, result.arrays["singular_values"][...], rtol=1e-12)
    theirs = {"site": SITES[[3, 5]], "age": AGES[[3, 5]]}
    few = new.isel(time=[3, 5])
    expected = result.arrays["scores"][...][[3, 5]]
    assert pca.to_xarray().regression.dims == ("regressor", "lat", "lon")
    for fitted in (pca, PCA.load("r"), PCA.load(pca.save("saved")), pickle.loads(pickle.dumps(pca))):
        np.testing.assert_allclose(fitted.transform(few, covariates=theirs), expected, atol=1e-8)
        with pytest.raises(InputError, match="covariates were regressed out"):
            fitted.transform(few)
        with pytest.raises(ConfigError, match="inverse_transform would give samples without"):
            fitted.inverse_transform(expected)
    again = PCA.load("r")
    assert set(again.regress_out) == {"seasonal_cycle", "trend", "covariates"}
    np.testing.assert_allclose(again.fit(new).singular_values_, pca.singular_values_, rtol=1e-9)
    plain = PCA(2, regress_out={"covariates": AGES[:N]}).fit(VALUES[:N])
    left = np.column_stack([np.ones(N), AGES[:N]])
    left = VALUES[:N].reshape(N, -1) - left @ np.linalg.pinv(left) @ VALUES[:N].reshape(N, -1)
    np.testing.assert_allclose(plain.singular_values_, np.linalg.svd(left, compute_uv=False)[:2], rtol=1e-9)
    for wrong, match in (
        ({"trend": "linear"}, "regress_out.trend is 'linear', but an integer of 1 or more"),
        ({"seasonal_cycle": "month"}, "seasonal_cycle needs the samples' dates"),
        ({"covariates": AGES}, "covariates: covariate 0 has shape .* but X has 60 samples"),
    ):
        with pytest.raises((ConfigError, InputError), match=match):
            PCA(2, regress_out=wrong).fit(VALUES[:N])


@pytest.mark.filterwarnings("ignore:Writing zarr v2:UserWarning")
@pytest.mark.parametrize("suffix", ["h5ad", "zarr"])
def test_a_categorical_column_of_anndata_is_categories_and_no_codes(suffix):
    anndata, pandas = pytest.importorskip("anndata"), pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    batches, x = rng.integers(0, 3, 12), rng.standard_normal((12, 30))
    for name, chosen, order in (("a", slice(0, 12), ["x", "y", "z"]), ("new", slice(0, 5), ["z", "x", "y"])):
        names = np.array(["x", "y", "z"])[batches[chosen]]
        obs = pandas.DataFrame({"batch": pandas.Categorical(names, order)}, index=list(map(str, range(len(names)))))
        cells = anndata.AnnData(x[chosen], obs=obs)
        cells.write_h5ad("a.h5ad" if name == "a" else "new.h5ad") if suffix == "h5ad" else cells.write_zarr(
            f"{name}.zarr"
        )
    covariates = f"{{uri: a.{suffix}, array: obs/batch}}"
    Path("c.yaml").write_text(
        f"input: {{uri: a.{suffix}}}\npreprocess: {{regress_out: {{covariates: {covariates}}}}}\n"
        "model: {n_components: 3}\noutput: {path: r}\n"
    )
    assert dpca("run", "c.yaml") == 0
    left = x - np.stack([x[batches == batch].mean(axis=0) for batch in batches])
    found = zarr.open_group("r/result.zarr", mode="r")
    np.testing.assert_allclose(found["singular_values"][:], np.linalg.svd(left, compute_uv=False)[:3], rtol=1e-9)
    Path("new.yaml").write_text(f"uri: new.{suffix}\ncovariates: {{uri: new.{suffix}, array: obs/batch}}\n")
    assert dpca("transform", "r", "new.yaml", "--out", "s.zarr") == 0
    np.testing.assert_allclose(zarr.open_array("s.zarr/scores")[:], found["scores"][:5], atol=1e-9)


RUNS = np.array(["one", "two", "three"])[np.random.default_rng(8).integers(0, 3, N + NEW)]
SECONDS = np.array([np.count_nonzero(RUNS[:number] == name) for number, name in enumerate(RUNS)], float) + 1e6
"""Times that begin anew in each run."""


def within_runs(x, *columns, old=slice(0, N)):
    """Samples less the fit of a constant and of columns in each run, which is of the old samples."""
    x = x.reshape(len(x), -1).copy()
    for name in np.unique(RUNS):
        own = name == RUNS
        z = np.column_stack([np.ones(own.sum()), *(column[own] - column.mean() for column in columns)])
        fitted = np.flatnonzero(own[old])
        x[own] -= z @ np.linalg.lstsq(z[: len(fitted)], x[fitted], rcond=None)[0]
    return x


def of_runs(path, which):
    group = zarr.create_group(path, overwrite=True)
    one = group.create_array("bold", data=VALUES[which], chunks=(20, 2, 5), dimension_names=("time", "lat", "lon"))
    one.attrs["coordinates"] = "run"
    group.create_array("time", data=SECONDS[which], dimension_names=("time",))
    runs = group.create_array("run", shape=RUNS[which].shape, dtype="U5", dimension_names=("time",))
    runs[...] = RUNS[which]


IN_RUNS = """
input: {uri: runs.zarr, array: bold, samples_axis: time}
preprocess: {regress_out: {trend: 1, by: run}}
model: {n_components: 3, precision: double}
output: {path: r, report: false}
"""


def given_runs():
    of_runs("runs.zarr", slice(0, N))
    Path("c.yaml").write_text(IN_RUNS)
    with open("runs.csv", "w", newline="") as file:
        rows = [["day", "run", "age"], *([number, RUNS[number], AGES[number]] for number in range(N))]
        csv.writer(file).writerows(rows)


def test_each_run_loses_a_trend_of_its_own(capsys):
    made(given_runs)
    assert dpca("run", "c.yaml") == 0
    said = (
        "time and the mean in each run alone regressed out: 6 parameters, the mean included, were fitted to 60 samples"
    )
    assert said in capsys.readouterr().err
    expected = within_runs(VALUES, SECONDS)
    result = open_result("r")
    s = np.linalg.svd(expected[:N], compute_uv=False)[:3]
    np.testing.assert_allclose(result.arrays["singular_values"][...], s, rtol=1e-10)
    arrays = xr.open_zarr("r/result.zarr").load()
    left = VALUES[:N] - arrays["mean"].values - np.tensordot(arrays.regressors, arrays.regression, 1)
    np.testing.assert_allclose(left.reshape(N, -1), expected[:N], atol=1e-9)
    names = [f"run {name}{more}" for name in ("one", "three", "two") for more in ("", ": time")]
    assert arrays.regressor.values.tolist() == names
    of_runs("new.zarr", slice(N, N + NEW))
    Path("n.yaml").write_text("{uri: new.zarr, array: bold, samples_axis: time}")
    assert dpca("transform", "r", "n.yaml", "--out", "s.zarr") == 0
    scores = expected[N:] @ arrays.components.values.reshape(3, -1).T
    np.testing.assert_allclose(zarr.open_array("s.zarr/scores")[...], scores, atol=1e-8)
    # The same runs, from a table that samples are found in, are the same groups.
    other = ("--set", "preprocess.regress_out.by={uri: runs.csv, column: run}", "--set", "output.path=t")
    assert dpca("run", "c.yaml", *other) == 0
    assert bits("t") == bits("r")
    assert dpca("transform", "t", "n.yaml", "--out", "u.zarr") == 2
    assert "was fitted in each run alone, and labels of the new samples are not given" in capsys.readouterr().err
    Path("new.csv").write_text("\n".join(["run", *RUNS[N:]]))
    Path("m.yaml").write_text("{uri: new.zarr, array: bold, samples_axis: time, by: {uri: new.csv, column: run}}")
    for result, file in (("t", "m.yaml"), ("r", "m.yaml")):
        assert dpca("transform", result, file, "--out", "u.zarr", "--overwrite") == 0
        np.testing.assert_allclose(zarr.open_array("u.zarr/scores")[...], scores, atol=1e-8)
    # An analysis of the stored Gram matrix takes them by the same name.
    new = xr.DataArray(VALUES[N:], dims=("time", "lat", "lon"), coords={"time": SECONDS[N:]})
    found = open_gram("t").pca(3).transform(new, by=RUNS[N:])
    np.testing.assert_allclose(np.abs(found), np.abs(scores), atol=1e-8)
    # Labels that changed are of another run, and of another Gram matrix.
    kept = Path("runs.csv").read_text()
    Path("runs.csv").write_text(kept.replace("two", "one"))
    capsys.readouterr()
    assert dpca("run", "c.yaml", *other, "--resume") == 2
    assert "preprocess.fields.by" in capsys.readouterr().err


def z_scores(left, groups, fitted=slice(0, N)):
    """What is left of samples over its standard deviation in each group, which is of the samples of the fit; and these, of each sample."""
    scales = np.empty_like(left)
    for name in np.unique(groups):
        own = np.flatnonzero(groups == name)
        scales[own] = left[own[np.isin(own, np.arange(fitted.stop))]].std(axis=0, ddof=1)
    return left / scales, scales


SCALED = ("--set", "preprocess.regress_out={trend: 1, by: run, scale: std}")


def test_z_scores_of_each_run(capsys):
    made(given_runs)
    assert dpca("run", "c.yaml", *SCALED) == 0
    said = "time and the mean in each run alone regressed out, and what is left divided by its standard deviation in each run: 6 parameters"
    assert said in capsys.readouterr().err
    expected, scales = z_scores(within_runs(VALUES, SECONDS), RUNS)
    u, s, v = np.linalg.svd(expected[:N], full_matrices=False)
    result = xr.open_zarr("r/result.zarr").load()
    np.testing.assert_allclose(result.singular_values, s[:3], rtol=1e-10)
    assert result.group_scale.dims == ("sample_group", "lat", "lon")
    assert result.sample_group.values.tolist() == ["run one", "run three", "run two"]
    of_runs_alone = [scales[name == RUNS][0].reshape(SHAPE) for name in ("one", "three", "two")]
    np.testing.assert_allclose(result.group_scale, of_runs_alone, rtol=1e-9)
    components = result.components.values.reshape(3, -1)
    of_runs("new.zarr", slice(N, N + NEW))
    Path("n.yaml").write_text("{uri: new.zarr, array: bold, samples_axis: time}")
    assert dpca("transform", "r", "n.yaml", "--out", "s.zarr") == 0
    np.testing.assert_allclose(zarr.open_array("s.zarr/scores")[...], expected[N:] @ components.T, atol=1e-8)
    assert dpca("reconstruct", "r", "--out", "back.zarr", "--samples", "50,3:6") == 0
    chosen = [50, 3, 4, 5]
    fit = VALUES.reshape(N + NEW, -1) - within_runs(VALUES, SECONDS)
    left = (u[:, :3] * s[:3] @ v[:3])[chosen] * scales[chosen]
    back = xr.open_zarr("back.zarr").load().reconstruction.values.reshape(4, -1)
    np.testing.assert_allclose(back, left + fit[chosen], atol=1e-8)


@pytest.mark.long
def test_other_solvers_kernels_and_analyses_are_of_the_same_z_scores(capsys):
    made(given_runs)
    assert dpca("run", "c.yaml", *SCALED) == 0
    expected, _ = z_scores(within_runs(VALUES, SECONDS), RUNS)
    u, s, _ = np.linalg.svd(expected[:N], full_matrices=False)
    components = open_result("r").arrays["components"][...].reshape(3, -1)
    of_runs("new.zarr", slice(N, N + NEW))
    Path("n.yaml").write_text("{uri: new.zarr, array: bold, samples_axis: time}")
    other = ("--set", "model.svd_solver=block_krylov", "--set", "output.path=b")
    assert dpca("run", "c.yaml", *SCALED, *other) == 0
    np.testing.assert_allclose(open_result("b").arrays["singular_values"][...], s[:3], rtol=1e-6)
    kernel = ("--set", "model={kind: kernel_pca, kernel: rbf, gamma: 0.02, n_components: 3}", "--set", "output.path=k")
    fitted = KernelPCA(3, kernel="rbf", gamma=0.02).fit(expected[:N])
    for how in ((), ("--from-gram", "r", "--overwrite")):
        assert dpca("run", "c.yaml", *SCALED, *kernel, *how) == 0
        assert dpca("transform", "k", "n.yaml", "--out", "t.zarr", "--overwrite") == 0
        np.testing.assert_allclose(zarr.open_array("t.zarr/scores")[...], fitted.transform(expected[N:]), atol=1e-7)
    assert dpca("run", "c.yaml", *kernel, "--from-gram", "r", "--overwrite") == 2
    assert "its Gram matrix is of other values: preprocess.regress_out.scale" in capsys.readouterr().err
    new = xr.DataArray(VALUES[N:], dims=("time", "lat", "lon"), coords={"time": SECONDS[N:], "run": ("time", RUNS[N:])})
    gram = open_gram("r")
    for found in (gram.pca(3), gram.pca(3, as_covariance=True)):
        np.testing.assert_allclose(np.abs(found.transform(new)), np.abs(expected[N:] @ components.T), atol=1e-8)
    maps = gram.pca(3, as_correlation=True)
    correlations = np.corrcoef(expected[:N].T, u[:, 0])[-1, :-1]
    np.testing.assert_allclose(np.abs(np.ravel(maps.as_correlation()[0])), np.abs(correlations), atol=1e-8)
    for refused in (gram.pca(3, as_covariance=True).as_covariance, lambda: PCA.load("r").to_xarray(as_covariance=True)):
        with pytest.raises(
            ConfigError, match="has no maps in the unit of the data .as_covariance., since .*scale has divided"
        ):
            refused()


def test_standardized_anomalies_of_each_month(config):
    keys = "preprocess={scale: none, regress_out: {seasonal_cycle: month, trend: 1, scale: std}, scale_ddof: 0}"
    assert dpca("run", config, "--set", keys) == 0
    z = np.column_stack([MONTHS[:, None] == range(1, 13), TIMES / 1000])
    x = VALUES.reshape(N + NEW, -1)
    left = x - z @ np.linalg.lstsq(z[:N], x[:N], rcond=None)[0]
    for month in range(1, 13):
        left[month == MONTHS] /= left[:N][month == MONTHS[:N]].std(axis=0)
    result = open_result("r")
    np.testing.assert_allclose(
        result.arrays["singular_values"][...], np.linalg.svd(left[:N], compute_uv=False)[:3], rtol=1e-9
    )
    store("new.zarr", slice(N, N + NEW))
    assert dpca("transform", "r", "new.zarr", "--out", "s.zarr") == 0
    scores = left[N:] @ np.asarray(result.arrays["components"][...]).reshape(3, -1).T
    np.testing.assert_allclose(zarr.open_array("s.zarr/scores")[...], scores, atol=1e-8)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("{scale: std}", "preprocess.regress_out.scale is std, but nothing says in which groups of samples"),
        ("{trend: 1, scale: std}", "preprocess.regress_out.scale is std, but nothing says in which groups of samples"),
        ("{by: run, scale: range}", "preprocess.regress_out.scale is 'range', but"),
        (
            "{by: {uri: days.txt}, scale: std}",
            "preprocess.regress_out.scale is std, but group b has 2 samples, and 1 of 2 groups have fewer than 3",
        ),
    ],
)
def test_groups_that_nothing_can_be_divided_in(capsys, keys, message):
    made(given_runs)
    Path("days.txt").write_text("\n".join(["a"] * (N - 2) + ["b"] * 2))
    ddof = ("--set", "preprocess.scale_ddof=2")
    assert dpca("run", "c.yaml", "--set", f"preprocess.regress_out={keys}", *ddof) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert not Path("r").exists()


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            "{by: session}",
            "preprocess.regress_out.by is 'session', but the samples have no coordinate of that name: those beside",
        ),
        ("{by: time}", "preprocess.regress_out.by is 'time', but the samples have no coordinate of that name"),
        (
            "{by: 3}",
            "preprocess.regress_out.by is 3, but the name of a coordinate of samples, such as run, or labels {uri: PATH}",
        ),
        ("{by: {uri: runs.csv}}", "runs.csv"),
        ("{by: {uri: runs.csv, column: rum}}", "has no column 'rum'"),
        ("{by: {uri: short.txt}}", "short.txt: holds labels of shape (59,), but there are 60 samples"),
        ("{by: {uri: nan.npy}}", "nan.npy: the label of number 4 of the samples is NaN"),
        ("{by: {uri: runs.csv, column: day}}", "preprocess.regress_out: the mean fit the only sample of day 0 exactly"),
    ],
)
def test_groups_of_samples_that_there_are_none_of(capsys, keys, message):
    made(given_runs)
    Path("short.txt").write_text("\n".join(RUNS[: N - 1]))
    np.save("nan.npy", np.where(np.arange(N) == 4, np.nan, 1.0))
    assert dpca("run", "c.yaml", "--set", f"preprocess.regress_out={keys}") == 2
    assert message in capsys.readouterr().err
    assert not Path("r").exists()


def test_labels_of_new_samples_are_for_fits_of_groups(config, capsys):
    assert dpca("run", config, "--set", "input.by={uri: people.csv, column: site}") == 2
    assert "input.by is for new samples alone" in capsys.readouterr().err
    assert dpca("run", config, "--set", "preprocess.regress_out={trend: 1}") == 0
    Path("n.yaml").write_text("{uri: x.zarr, array: t2m, samples_axis: time, by: {uri: people.csv, column: site}}")
    assert dpca("transform", "r", "n.yaml", "--out", "s.zarr") == 2
    assert "was fitted without groups of samples, but new samples are given labels" in capsys.readouterr().err


def test_z_scores_in_python():
    x = xr.DataArray(VALUES, dims=("time", "lat", "lon"), coords={"time": SECONDS, "run": ("time", RUNS)})
    expected, _ = z_scores(within_runs(VALUES, SECONDS), RUNS)
    v = np.linalg.svd(expected[:N], full_matrices=False)[2][:3]
    asked = {"trend": 1, "by": "run", "scale": "std"}
    fitted = PCA(3, regress_out=asked, samples_axis="time", keep_gram=True).fit(x[:N])
    for one in (fitted, PCA.load(fitted.save("saved")), pickle.loads(pickle.dumps(fitted))):
        scores = one.transform(x[N:]).values
        np.testing.assert_allclose(np.abs(scores), np.abs(expected[N:] @ v.T), atol=1e-8)
        assert one.regress_out == asked
        with pytest.raises(ConfigError, match="after a product with group_scale of each sample's group"):
            one.inverse_transform(scores)
    assert fitted.to_xarray().group_scale.dims == ("sample_group", "lat", "lon")
    by = PCA(3, regress_out={**asked, "by": RUNS[:N]}, samples_axis="time").fit(x[:N].drop_vars("run"))
    np.testing.assert_allclose(by.singular_values_, fitted.singular_values_, rtol=1e-12)
    np.testing.assert_allclose(by.score(x[N:], by=RUNS[N:]), fitted.score(x[N:]), rtol=1e-9)


def test_groups_in_python():
    x = xr.DataArray(VALUES, dims=("time", "lat", "lon"), coords={"time": SECONDS, "run": ("time", RUNS)})
    old, few = x[:N], x[[N, 3, N + 2]]
    expected = np.linalg.svd(within_runs(VALUES, SECONDS)[:N], compute_uv=False)[:3]
    by_name = PCA(3, regress_out={"trend": 1, "by": "run"}, samples_axis="time").fit(old)
    np.testing.assert_allclose(by_name.singular_values_, expected, rtol=1e-9)
    scores = by_name.transform(few).values
    for form in (
        np.array,
        list,
        pd.Categorical,
        lambda one: pd.Series(one, name="run"),
        lambda one: old.run[: len(one)].copy(data=one),
    ):
        fitted = PCA(3, regress_out={"trend": 1, "by": form(RUNS[:N])}, samples_axis="time").fit(old)
        np.testing.assert_allclose(fitted.singular_values_, expected, rtol=1e-9)
        np.testing.assert_allclose(fitted.transform(few, by=form(few.run.values)).values, scores, atol=1e-9)
    for given in (
        by_name,
        PCA.load(by_name.save("saved")),
        PCA.load(fitted.save("labels")),
        pickle.loads(pickle.dumps(by_name)),
    ):
        by = None if isinstance(given.regress_out["by"], str) else few.run.values
        np.testing.assert_allclose(given.transform(few, by=by).values, scores, atol=1e-8)
        np.testing.assert_allclose(given.fit(old).singular_values_, expected, rtol=1e-9)
    with pytest.raises(InputError, match="labels of the new samples are not given"):
        fitted.transform(few)
    with pytest.raises(InputError, match="run is four of sample 1, .* none of the fit's: one, three, two"):
        fitted.transform(few, by=["one", "four", "one"])
    with pytest.raises(InputError, match=r"regress_out.by has shape \(2,\), but X has 60 samples"):
        PCA(3, regress_out={"by": ["a", "b"]}).fit(VALUES[:N])
    with pytest.raises(InputError, match=r"regress_out.by is missing \(None\) of sample 1"):
        PCA(3, regress_out={"by": ["a", None, *RUNS[2:N]]}).fit(VALUES[:N])
    numbers = np.unique(RUNS, return_inverse=True)[1]
    covariates = {"age": AGES[:N], "site": SITES[:N]}
    of_numbers = PCA(3, regress_out={"covariates": covariates, "by": numbers[:N]}).fit(VALUES[:N])
    sites = [(site == SITES).astype(float) for site in ("north", "south")]
    expected = np.linalg.svd(within_runs(VALUES, AGES, *sites)[:N], compute_uv=False)[:3]
    np.testing.assert_allclose(of_numbers.singular_values_, expected, rtol=1e-9)
    again = PCA.load(of_numbers.save("numbers"))
    new = {"covariates": {"age": AGES[N:], "site": SITES[N:]}, "by": numbers[N:].astype(float)}
    np.testing.assert_allclose(again.transform(VALUES[N:], **new), of_numbers.transform(VALUES[N:], **new), atol=1e-9)
    np.testing.assert_allclose(again.score(VALUES[N:], **new), of_numbers.score(VALUES[N:], **new), rtol=1e-9)
    np.testing.assert_allclose(again.fit(VALUES[:N]).singular_values_, expected, rtol=1e-9)
