import doctest
import inspect
import io
import math
import pickle
import re
import warnings

import dask.array as da
import h5py
import numpy as np
import pytest
import xarray as xr
import zarr
from distributed import Client
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.decomposition import PCA as SklearnPCA

import dpca
from dpca import PCA, KernelPCA, slabs
from dpca.errors import ConfigError, DataError, InputError
from dpca.estimators import kernel_pca, pca
from dpca.execution.progress import Patient, Snapshot
from dpca.numerics.ladder import working_dtype
from dpca.numerics.panels import Rules
from dpca.sources import as_source
from tests.drawn import examples
from tests.reference import assert_right, dense_pca
from tests.runs import decompose_array
from tests.stores import random_array
from tests.test_slabs import chunkings

DTYPES = ["f2", "f4", "f8", ">f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?"]


@examples(30)
@given(st.data())
def test_any_shape_chunking_orientation_dtype_and_spans_give_the_dense_answer(data):
    n = data.draw(st.integers(2, 40), "n")
    features = tuple(data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=3), "features"))
    dtype = np.dtype(data.draw(st.sampled_from(DTYPES), "dtype"))
    precision = data.draw(st.sampled_from(["auto", "single", "double"]), "precision")
    solvers = ["auto", "gram_eigh", "covariance_eigh"] + ["tsqr"] * (precision != "single")
    solver = data.draw(st.sampled_from(solvers), "solver")
    rules = Rules(data.draw(st.booleans(), "center"), data.draw(st.sampled_from(["none", "std"]), "scale"), ddof=1)
    x = random_array(data.draw(st.integers(0, 10**6), "seed"), (n, *features), dtype)
    axis = data.draw(st.integers(0, len(features)), "samples_axis")
    stored = np.moveaxis(x, 0, axis)
    stored = np.asfortranarray(stored) if data.draw(st.booleans(), "F order") else np.ascontiguousarray(stored)
    kind = data.draw(st.sampled_from(["numpy", "dask", "zarr"]), "kind")
    if kind == "dask":
        stored = da.from_array(stored, chunks=tuple(data.draw(chunkings(length)) for length in stored.shape))
    elif kind == "zarr":
        chunks = tuple(data.draw(st.integers(1, length)) for length in stored.shape)
        stored = zarr.array(np.ascontiguousarray(stored), chunks=chunks, zarr_format=2 if dtype.byteorder == ">" else 3)
    k = data.draw(st.integers(1, min(n, math.prod(features))), "k")
    plan = {"slab_bytes": data.draw(st.integers(1, 4000), "slab_bytes"), "n_spans": data.draw(st.integers(1, 9))}
    found = decompose_array(stored, k, samples_axis=axis, rules=rules, precision=precision, solver=solver, **plan)
    working = found.rung.dtype
    if solver == "gram_eigh" or (not found.spectrum.lacking.any() and found.counts["passes"] == 2 and solver == "auto"):
        assert working == working_dtype(dtype, precision)
    components = np.asarray(found.outputs.array("components")[...])
    assert components.shape == (k, *features)
    assert components.dtype == working
    dense = dense_pca(x.reshape(n, -1), center=rules.center, scale=rules.scale)
    assert_right(
        {
            "singular_values": found.spectrum.singular_values,
            "scores": found.scores,
            "components": components.reshape(k, -1),
        },
        dense,
        working,
    )
    np.testing.assert_allclose(
        np.asarray(found.outputs.array("mean")[...]).reshape(-1), dense.mean, rtol=1e-13, atol=1e-13
    )


@pytest.mark.parametrize("shift", [1e4, 1e6])
def test_a_shift_of_every_feature_changes_nothing_but_the_mean(shift):
    """Integers, so that float32 holds the shifted data exactly; what subtracting a rounded mean leaves has to go."""
    rng = np.random.default_rng(0)
    strong = (rng.standard_normal((30, 4)) * [40, 30, 20, 10]) @ rng.standard_normal((4, 5000))
    x = np.rint(strong + 3 * rng.standard_normal((30, 5000))).astype("f4")
    exact, shifted = PCA(4, precision="double").fit(x), PCA(4).fit(x + np.float32(shift))
    np.testing.assert_allclose(shifted.components_, exact.components_, rtol=0, atol=1e-7)
    np.testing.assert_allclose(shifted.singular_values_, exact.singular_values_, rtol=1e-6)
    np.testing.assert_allclose(shifted.mean_, x.mean(axis=0, dtype=float) + shift, rtol=1e-15)
    residuals = [component["residual_data"] for component in shifted.certificate_["components"]]
    assert max(residuals) < 1e-5


def inputs(x, path):
    """The same values as every kind of input that the estimator takes."""
    yield "numpy", x
    yield "dask", da.from_array(x, chunks=(7, 300))
    yield "zarr", zarr.array(x, chunks=(11, 500))
    with h5py.File(path / "x.h5", "w") as file:
        yield "h5py", file.create_dataset("x", data=x, chunks=(5, 200))
    yield "xarray", xr.DataArray(da.from_array(x, chunks=(20, 512)), dims=("sample", "gene"))


@pytest.mark.parametrize("whiten", [False, True])
def test_it_is_scikit_learns_pca_for_every_kind_of_input(tmp_path, whiten):
    x = random_array(0, (20, 1500), "f8")
    new = random_array(1, (6, 1500), "f8")
    reference = SklearnPCA(5, svd_solver="full", whiten=whiten).fit(x)
    for (kind, data), (_, more) in zip(inputs(x, tmp_path), inputs(new, tmp_path / ".."), strict=True):
        fitted = PCA(5, whiten=whiten)
        scores = fitted.fit_transform(data)
        signs = np.sign((np.asarray(fitted.components_) * reference.components_).sum(1))
        for name in ("explained_variance_", "explained_variance_ratio_", "singular_values_", "mean_"):
            np.testing.assert_allclose(np.asarray(getattr(fitted, name)), getattr(reference, name), rtol=1e-10)
        np.testing.assert_allclose(np.asarray(fitted.components_) * signs[:, None], reference.components_, atol=1e-10)
        np.testing.assert_allclose(scores * signs, reference.transform(x), atol=1e-9)
        np.testing.assert_allclose(fitted.transform(data), scores, atol=1e-9)
        np.testing.assert_allclose(fitted.transform(more) * signs, reference.transform(new), atol=1e-9)
        restored = fitted.inverse_transform(scores)
        np.testing.assert_allclose(np.asarray(restored), reference.inverse_transform(reference.transform(x)), atol=1e-9)
        assert (fitted.n_samples_, fitted.n_features_in_, fitted.n_components_) == (20, 1500, 5)
        lazy = kind != "numpy"
        labelled = kind == "xarray"
        for array in (fitted.components_, fitted.mean_, restored):
            assert isinstance(array, xr.DataArray) == labelled
            assert isinstance(array.data if labelled else array, da.Array if lazy else np.ndarray)
        assert isinstance(scores, xr.DataArray if labelled else np.ndarray)


def test_feature_axes_come_back_as_they_went_in():
    x = random_array(0, (6, 10, 8), "f8")
    stored = np.ascontiguousarray(np.moveaxis(x, 0, 1))
    fitted = PCA(3, samples_axis=1).fit(stored)
    flat = PCA(3).fit(x.reshape(6, 80))
    assert fitted.components_.shape == (3, 10, 8)
    assert fitted.mean_.shape == (10, 8)
    np.testing.assert_allclose(fitted.components_.reshape(3, 80), flat.components_, atol=1e-12)


def test_samples_axis_by_name_and_reconstruction_in_the_layout_of_the_fit():
    x = random_array(0, (10, 6, 8), "f8")
    data = xr.DataArray(x, dims=("lat", "time", "lon"))
    fitted = PCA(samples_axis="time").fit(data)
    assert fitted.components_.shape == (6, 10, 8)
    np.testing.assert_allclose(fitted.inverse_transform(fitted.transform(data)), x, atol=1e-10)


def test_scaled_and_filled_data_are_restored_in_their_own_units():
    x = random_array(0, (12, 40), "f8")
    x[3, 5] = np.nan
    x[:, 7] = 2.5
    fitted = PCA(scale="std", missing="mean").fit(x)
    restored = fitted.inverse_transform(fitted.transform(x))
    present = np.isfinite(x)
    np.testing.assert_allclose(restored[present], x[present], atol=1e-9)
    np.testing.assert_allclose(restored[3, 5], np.nanmean(x[:, 5]), atol=1e-9)
    dense = dense_pca(x, scale="std")
    np.testing.assert_allclose(fitted.singular_values_, dense.singular_values, atol=1e-9)
    np.testing.assert_allclose(fitted.explained_variance_.sum(), 39, rtol=0.02)  # one a feature but the constant


def test_a_feature_without_any_value_is_nan_in_the_result_and_harmless():
    x = random_array(0, (9, 30), "f8")
    x[:, 4] = np.nan
    fitted = PCA(3, missing="mean").fit(x)
    assert np.isnan(fitted.components_[:, 4]).all()
    assert np.isnan(fitted.mean_[4])
    reference = SklearnPCA(3, svd_solver="full").fit(np.delete(x, 4, axis=1))
    np.testing.assert_allclose(fitted.singular_values_, reference.singular_values_)
    assert np.isfinite(fitted.transform(x)).all()


@pytest.mark.filterwarnings("ignore:.* missing values? of .* new sample:UserWarning")
@pytest.mark.parametrize("missing", ["mean", "drop", "pairwise"])
@pytest.mark.parametrize("several", [False, True])
def test_new_samples_with_missing_values(missing, several):
    x = random_array(0, (20, 30), "f8")
    x[3, 7] = np.nan
    new = random_array(1, (5, 30), "f8")
    new[1], new[2, :12], new[4, 7] = np.nan, np.nan, np.nan
    new[3] = np.where(np.arange(30) == 7, 1.0, np.nan)  # under drop that is no value of a feature that is used
    parts = (lambda of: {"a": of[:, :12], "b": of[:, 12:]}) if several else (lambda of: of)
    fitted = PCA(3, missing=missing, weights={"a": None, "b": None} if several else None).fit(parts(x))
    lacks = [1, 3] if missing == "drop" else [1]
    said = r"samples? 1.*: no value of a feature that the fit kept, and NaN in the result"
    with pytest.warns(UserWarning, match=said):
        scores, likelihood = fitted.transform(parts(new)), fitted.score_samples(parts(new))
    assert np.flatnonzero(np.isnan(scores).all(axis=1)).tolist() == lacks
    assert np.flatnonzero(np.isnan(likelihood)).tolist() == lacks
    mean, components = (
        np.concatenate([one[name] for name in "ab"], axis=-1) if several else one
        for one in (fitted.mean_, fitted.components_)
    )
    expected = np.nan_to_num(new - mean) @ np.nan_to_num(components).T
    np.testing.assert_allclose(np.delete(scores, lacks, 0), np.delete(expected, lacks, 0), atol=1e-9)
    few = parts(new[[0, 2]])
    if missing == "drop":
        with pytest.warns(
            UserWarning, match=r"1[12] missing values of 1 new sample, most of sample 1 \(1[12]\), counted as"
        ):
            fitted.transform(few)
    else:
        with warnings.catch_warnings(action="error"):
            fitted.transform(few)


def test_a_value_of_a_feature_without_weight_is_no_value():
    weights = np.ones(6)
    weights[2] = 0
    fitted = PCA(2, missing="mean", weights=weights).fit(random_array(0, (20, 6), "f8"))
    new = np.where(np.arange(6) == 2, 5.0, np.nan)[None]
    with pytest.warns(UserWarning, match="sample 0: no value of a feature"):
        assert np.isnan(fitted.transform(new)).all()


@pytest.mark.parametrize(("n", "d"), [(2, 1), (2, 50), (7, 7), (30, 8)])
def test_none_keeps_min_n_d_components_and_zeros_beyond_the_rank(n, d):
    fitted = PCA().fit(random_array(0, (n, d), "f8"))
    assert fitted.components_.shape == (min(n, d), d)
    rank = min(n - 1, d)
    overlap = fitted.components_ @ fitted.components_.T
    np.testing.assert_allclose(overlap, np.diag([1.0] * rank + [0.0] * (min(n, d) - rank)), atol=1e-9)
    assert [c["reliable"] for c in fitted.certificate_["components"]] == [True] * rank + [False] * (min(n, d) - rank)


def test_duplicate_samples_in_single_precision_give_no_noise_as_components():
    x = np.repeat(random_array(0, (5, 3000), "f4"), 4, axis=0)
    fitted = PCA().fit(x)
    norms = np.linalg.norm(fitted.components_.astype(float), axis=1)
    reliable = np.array([c["reliable"] for c in fitted.certificate_["components"]])
    assert reliable.sum() == 4
    np.testing.assert_allclose(norms[reliable], 1, atol=1e-5)
    assert np.isfinite(fitted.components_).all()


@pytest.mark.parametrize("solver", ["auto", "block_krylov"])
@pytest.mark.parametrize(("dtype", "scale"), [("f4", 1e-42), ("f8", 1e-200)])
def test_errors_of_numpy_that_its_user_asked_for_are_of_the_users_own_thread(dtype, scale, solver):
    """Underflow in the columns of a slab is no error of a fit, which workers of a cluster do not report either."""
    x = (random_array(0, (60, 500), "f8") * np.where(np.arange(500) % 2, scale, 1)).astype(dtype)
    expected = PCA(3, svd_solver=solver).fit(x).singular_values_
    with np.errstate(all="raise"):
        found = PCA(3, svd_solver=solver).fit(x).singular_values_
    np.testing.assert_array_equal(found, expected)


def test_irregular_dask_chunks_are_written_right(monkeypatch):
    """Tiles then share output chunks, which takes the lock."""
    monkeypatch.setattr(slabs, "TILE_WIDTH", 1)
    x = random_array(0, (8, 4000), "f8")
    lazy = da.from_array(x, chunks=((8,), (700, 100, 1500, 3, 900, 797)))
    found = decompose_array(lazy, 3, slab_bytes=8 * 8 * 500, n_spans=4)
    assert not found.plan.regular
    np.testing.assert_allclose(np.asarray(found.outputs.array("components")), PCA(3).fit(x).components_, atol=1e-12)


def test_it_runs_on_the_active_client_and_on_a_given_one(cluster, tmp_path):
    x = random_array(0, (10, 400), "f8")
    expected = PCA(3).fit(x)
    with Client(cluster) as client:
        for fitted in (
            PCA(3).fit(da.from_array(x, chunks=(10, 90))),
            PCA(3, client=client, store=tmp_path / "kept.zarr").fit(x),
        ):
            np.testing.assert_allclose(np.asarray(fitted.components_), expected.components_, atol=1e-12)
        with h5py.File(io.BytesIO(), "w") as file, pytest.raises(InputError, match="open in this process alone"):
            PCA(3).fit(file.create_dataset("x", data=x))
    (place,) = (tmp_path / "kept.zarr").iterdir()
    assert zarr.open_array(place / "result.zarr" / "components", mode="r").shape == (3, 400)


def test_it_clones_pickles_and_shows_its_parameters():
    fitted = PCA(3, scale="std").fit(random_array(0, (10, 40), "f8"))
    assert clone(fitted).get_params() == fitted.get_params()
    assert fitted.get_params()["scale"] == "std"
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.components_, fitted.components_)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_components": 0}, "n_components is 0, but an integer of 1 or more"),
        ({"n_components": 6}, "n_components is 6, but .* has 5 samples and 40 features"),
        ({"n_components": 2.5}, "n_components is 2.5, but an integer of 1 or more, a share of the variance"),
        (
            {"svd_solver": "randomized"},
            "svd_solver is 'randomized', but 'auto', 'gram_eigh', 'covariance_eigh', 'tsqr' or 'block_krylov' is allowed",
        ),
        ({"scale": "auto"}, "scale is 'auto'"),
        ({"center": "no"}, "center is 'no', but True or False is allowed"),
        ({"whiten": "no"}, "whiten is 'no', but True or False is allowed"),
        ({"ddof": 1.5}, "ddof is 1.5, but an integer is allowed"),
        ({"ddof": "1"}, "ddof is '1', but an integer is allowed"),
        (
            {"samples_axis": 1.0},
            "samples_axis is 1.0, but an integer such as 0, a dimension's name, or a list of these",
        ),
        ({"samples_axis": None}, "samples_axis is None, but an integer"),
        (
            {"samples_axis": True},
            "samples_axis is True, but an integer such as 0, a dimension's name, or a list of these",
        ),
        ({"ddof": True}, "ddof is True, but an integer is allowed"),
        ({"client": "tcp://x:1"}, "client is 'tcp://x:1', but a Client or cluster of dask.distributed is allowed"),
        (
            {"n_components": "bi_cross_validation", "missing": "pairwise"},
            "n_components='bi_cross_validation' is not defined with missing='pairwise'",
        ),
        ({"filters": {"chromosomes": "all"}}, "filters has 'chromosomes', but min_variance"),
        ({"filters": {"min_variance": -1}}, "filters.min_variance is -1, but at least 0"),
        ({"rotation": "varimaks"}, r"(?s)rotation\.kind is 'varimaks'.*Did you mean varimax"),
        ({"sample_weight_kind": "freq"}, r"(?s)sample_weight_kind is 'freq'.*Did you mean frequency"),
        (
            {"regress_out": "month"},
            r"(?s)regress_out is 'month'.*Pass regress_out=\{'seasonal_cycle': 'month', 'trend': 1\}",
        ),
        ({"verbose": "yes"}, "verbose is 'yes', but True or False or None"),
        ({"ddof": 5}, "ddof is 5, but from 0 to n_samples - 1 = 4 is allowed"),
    ],
)
def test_parameters_that_are_not_allowed(parameters, message):
    with pytest.raises(ConfigError, match=message):
        PCA(**parameters).fit(random_array(0, (5, 40), "f8"))


def test_what_holds_arrays_is_none():
    with pytest.raises(InputError, match=r"x\.npy: does not exist"):
        PCA().fit("x.npy")
    group = zarr.open_group("g.zarr", mode="w")
    for name in ("pres", "temp"):
        group.create_array(name, shape=(3, 4), dtype="f4")
    with pytest.raises(InputError, match=r"X is a Group, which holds .*temp.*\nGive one of its arrays: X\['NAME'\]"):
        PCA().fit(group)
    with h5py.File("g.h5", "w") as file, pytest.raises(InputError, match="X is a File, which holds nothing"):
        PCA().fit(file)


def test_input_that_is_not_allowed():
    with pytest.raises(ValueError, match="Expected 2D array, got 1D array"):
        PCA().fit(np.arange(5.0))
    with pytest.raises(InputError, match="has no features"):
        PCA().fit(da.arange(5, chunks=5))
    with pytest.raises(InputError, match=r"has 1 sample\(s\)"):
        PCA().fit(np.ones((1, 5)))
    with pytest.raises(ValueError, match="Complex data not supported"):
        PCA().fit(np.ones((3, 5), complex))
    with pytest.raises(InputError, match="complex128"):
        PCA().fit(da.ones((3, 5), dtype=complex))
    with pytest.raises(DataError, match="NaN"):
        PCA().fit([[1.0, np.nan], [2.0, 3.0]])
    fitted = PCA(2).fit(random_array(0, (5, 40), "f8"))
    with pytest.raises(ValueError, match="X has 39 features, but PCA is expecting 40 features"):
        fitted.transform(np.ones((3, 39)))
    with pytest.raises(InputError, match=r"has 39 features a sample .* but this estimator was fitted to 40"):
        fitted.transform(da.ones((3, 39)))
    with pytest.raises(InputError, match=r"scores have shape \(3, 5\), but the fit has 2 components"):
        fitted.inverse_transform(np.ones((3, 5)))
    with pytest.raises(DataError, match=r"\[1, 7\] \(sample 1\)"):
        fitted.transform(np.where(np.arange(80).reshape(2, 40) == 47, np.nan, 1.0))


def test_products_that_lose_the_data_are_an_error_and_not_a_wrong_answer():
    tiny = random_array(0, (5, 40), "f8") * 1e-30
    with pytest.raises(ArithmeticError, match="lost the data"):
        PCA(precision="single").fit(tiny)
    np.testing.assert_allclose(PCA(2).fit(tiny).singular_values_, PCA(2).fit(tiny * 1e30).singular_values_ * 1e-30)


def test_working_precision_follows_the_dtype():
    single = {
        dtype for dtype in DTYPES if working_dtype(as_source(np.zeros((1, 1), dtype)).layout.dtype, "auto") == "f4"
    }
    assert single == {"f2", "f4", "i1", "i2", "u1", "u2", "?"}


def test_errors_name_parameters_as_python_has_them():
    x = np.random.default_rng(0).normal(size=(20, 300_000))
    with pytest.raises(MemoryError, match=r"Set memory to \d+ MiB or more"):
        PCA(3, memory="100 MiB").fit(x)
    with pytest.raises(ValueError, match="Pass missing='mean' to fill"):
        PCA(3).fit(np.where(x > 4, np.nan, x))


@pytest.mark.parametrize("memory", [-5, 0, "", True, [1], "much"])
def test_memory_that_is_no_amount_is_refused(memory):
    with pytest.raises(ValueError, match="memory is .*, but an amount"):
        PCA(2, memory=memory).fit(np.eye(4))


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ({"svd_solver": "full"}, "Pass svd_solver='auto': each solver here is exact"),
        ({"scale": True}, "Pass scale='std'."),
        ({"precision": np.float32}, "Pass precision='single'."),
        ({"missing": None}, "Pass missing='error'."),
        ({"n_components": 1.0}, "Pass n_components=None for all."),
        ({"n_components": 3.0}, "Pass n_components=3."),
        ({"n_components": 31}, "Set n_components to a number from 1 to 20"),
    ],
)
def test_values_of_other_programs_are_answered_by_what_to_pass(given, hint):
    with pytest.raises(ConfigError) as caught:
        PCA(**given).fit(np.ones((20, 30)))
    assert caught.value.remedy.startswith(hint)


@pytest.mark.parametrize("module", [pca, kernel_pca])
def test_examples_of_docstrings(module):
    found = doctest.testmod(module)
    assert found.attempted > 4
    assert not found.failed


def test_names_of_the_package_and_plain_types_in_help():
    assert {"PCA", "KernelPCA", "Gram", "Analysis", "open_gram"} <= {*dir(dpca)}
    for of in (PCA, KernelPCA):
        kinds = [str(one.annotation) for one in inspect.signature(of).parameters.values()]
        assert not [
            kind
            for kind in kinds
            if re.search(r"NComponents|Solver|Spread|Missing|Precision|Kind|Scaling|Literal", kind)
        ]


def test_a_fit_that_is_stopped_leaves_few_lines_and_progress_is_shown_if_asked_for(capsys, monkeypatch):
    x = da.from_array(np.random.default_rng(0).standard_normal((20, 3000)), chunks=(20, 500))
    PCA(2).fit(x)
    PCA(2, verbose=False).fit(x)
    assert capsys.readouterr().err == ""
    PCA(2, verbose=True).fit(x)
    assert "dpca: components: 100 %" in capsys.readouterr().err

    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(pca, "decompose", stop)
    with pytest.raises(KeyboardInterrupt) as caught:
        PCA(2).fit(x)
    assert caught.value.__suppress_context__
    assert len(caught.traceback) < 8


def test_a_display_is_patient():
    """Nothing of what is done before its seconds are over; all of a stage that takes longer."""
    shown, now = [], [0.0]

    class Display:
        def __getattr__(self, name):
            return lambda *_: shown.append(name)

    patient = Patient(Display(), seconds=5, clock=lambda: now[0])
    patient.begin(Snapshot())
    patient.update(Snapshot())
    patient.end(Snapshot())
    patient.say("x")
    assert not shown
    patient.begin(Snapshot())
    now[0] = 6.0
    patient.update(Snapshot())
    patient.end(Snapshot())
    patient.say("x")
    assert shown == ["begin", "update", "end", "say"]
