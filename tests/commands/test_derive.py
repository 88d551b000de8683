"""`dpca derive`: analyses from kept Gram matrices against the same computed from the samples, maps in one read, and what is refused."""

import json
import shutil
from contextlib import chdir
from errno import ENOSPC
from pathlib import Path

import h5py
import numpy as np
import pytest
import zarr
from scipy import signal

from dpca.system import durable
from tests.clusters import local_cluster
from tests.commands.calls import dpca
from tests.made import made
from tests.resume.disturbed import at_slab, disturbed, in_small_slabs
from tests.stores import bits, contents

N, GRID = 72, (6, 200)
D = 1200
RUN = """
input: {uri: x.zarr, array: x, samples_axis: time}
model: {n_components: 4, precision: double}
output: {path: r, components: false}
"""
SEASONAL = """
  - name: seasonal
    samples:
      - select: {time: ["1980-03", "1985-10"]}
      - anomalies: {by: time.month}
      - detrend: {degree: 1}
    model: {kind: pca, n_components: 3, as_covariance: true, as_correlation: true}
"""
ALL = f"""
from: r
analyses: {SEASONAL}
  - {{name: windows, samples: [center: true], model: {{kind: extended, lags: 3, step: 2, n_components: 2}}}}
  - {{name: waves, model: {{kind: hilbert, n_components: 2}}}}
  - {{name: modes, model: {{kind: dmd, rank: 4}}}}
  - {{name: spectra, model: {{kind: spod, block: 16, n_components: 2}}}}
  - {{name: annual, samples: [means: {{by: year}}], model: {{kind: pca, n_components: 2}}}}
output: {{path: d}}
"""


def samples(dtype="f8", offset=3.0):
    """A travelling wave, a cycle and red noise about a mean that is not 0, a month a sample."""
    rng, t = np.random.default_rng(0), np.arange(N)
    place = np.linspace(0, 2 * np.pi, D)
    x = 3 * np.cos(place - 2 * np.pi * t[:, None] / 9) + 2 * np.outer(
        np.sin(2 * np.pi * t / 12), rng.standard_normal(D)
    )
    x = (
        x
        + rng.standard_normal((N, 5)).cumsum(0) @ rng.standard_normal((5, D))
        + 0.5 * rng.standard_normal((N, D))
        + offset
    )
    return x.astype(dtype)


def dates():
    months = np.datetime64("1980-01", "M") + np.arange(N)
    return (months.astype("datetime64[D]") - np.datetime64("1900-01-01")).astype("f8")


def write(x, name="x.zarr", chunks=(24, 1, 100)):
    group = zarr.open_group(name, mode="w")
    array = group.create_array(
        "x", shape=(N, *GRID), dtype=x.dtype, chunks=chunks, dimension_names=("time", "lat", "lon")
    )
    array[...] = x.reshape(N, *GRID)
    array.attrs["units"] = "K"
    time = group.create_array("time", shape=(N,), dtype="f8", dimension_names=("time",))
    time[...] = dates()
    time.attrs["units"] = "days since 1900-01-01"
    lat = group.create_array("lat", shape=(GRID[0],), dtype="f8", dimension_names=("lat",))
    lat[...] = np.linspace(-50, 50, GRID[0])


def finished():
    """A run, and what is to be derived of it."""
    write(samples())
    Path("r.yaml").write_text(RUN)
    assert dpca("run", "r.yaml", "--set", "output.report=false") == 0
    Path("d.yaml").write_text(ALL)


def derived():
    finished()
    assert dpca("derive", "d.yaml") == 0


@pytest.fixture
def x():
    made(finished)
    return samples()


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A run in a directory that no test changes."""
    place = tmp_path_factory.mktemp("kept")
    with chdir(place):
        made(finished)
        np.save("l.npy", np.arange(5))
        Path("c.csv").write_text("age,site\n1,a\n2,b\n3,a\n")
    return place


def analysis(name, place="d"):
    return zarr.open_group(f"{place}/result.zarr/{name}", mode="r")


def certificate(name, place="d"):
    return json.loads(Path(place, "certificate.json").read_text())["analyses"][name]


def flat(maps):
    return maps[...].reshape(*maps.shape[:-2], -1)


def assert_svd(found, rows, k, centred=True):
    """Scores, spectrum and maps of rows, real or complex, up to phase: they are a rank-k part of the rows."""
    rows = rows - rows.mean(0) if centred else rows
    u, s, vh = np.linalg.svd(rows, full_matrices=False)
    np.testing.assert_allclose(found["eigenvalues"][:], s[:k] ** 2, rtol=1e-10)
    scores, maps = found["scores"][:], flat(found["components"])
    np.testing.assert_allclose(maps @ maps.conj().T, np.eye(k), atol=1e-9)
    np.testing.assert_allclose(np.conj(maps) @ rows.T, scores.T, atol=1e-9 * s[0]) if np.isrealobj(rows) else None
    np.testing.assert_allclose(scores @ maps.conj(), u[:, :k] * s[:k] @ vh[:k], atol=1e-9 * s[0])


def test_every_analysis_is_that_of_the_samples(x, capsys):
    assert dpca("derive", "d.yaml") == 0
    said = capsys.readouterr().out
    assert "6 analyses" in said
    assert "691 kB of data read" in said
    t = np.arange(N)
    kept = x[2:70]
    month, kept_t = t[2:70] % 12, dates()[2:70]
    rows = kept - np.stack([kept[month == m].mean(0) for m in month])
    line = np.vander((kept_t - kept_t.mean()) / 1000, 2)
    rows = rows - line @ np.linalg.lstsq(line, rows, rcond=None)[0]
    assert_svd(analysis("seasonal"), rows, 3, centred=False)
    found = analysis("seasonal")
    np.testing.assert_array_equal(found["time"][:], kept_t)
    deviations = np.sqrt(found["explained_variance"][:])
    in_kelvin, correlations = found["as_covariance"], found["as_correlation"]
    assert (in_kelvin.attrs["units"], correlations.attrs["units"]) == ("K", "1")
    np.testing.assert_allclose(flat(in_kelvin), flat(found["components"]) * deviations[:, None], atol=1e-12)
    both = np.corrcoef(found["scores"][:].T, rows.T)[:3, 3:]
    np.testing.assert_allclose(flat(correlations), both, atol=1e-9)
    centred = x - x.mean(0)
    windows = np.hstack([centred[lag : N - 4 + lag] for lag in (0, 2, 4)])
    found = analysis("windows")
    np.testing.assert_allclose(
        found["eigenvalues"][:], np.linalg.svd(windows - windows.mean(0), compute_uv=False)[:2] ** 2, rtol=1e-10
    )
    together = np.moveaxis(flat(found["components"]), 0, 1).reshape(2, -1)
    np.testing.assert_allclose(together @ (windows - windows.mean(0)).T, found["scores"][:].T, atol=1e-8)
    assert found["lag"][:].tolist() == [0, 2, 4]
    assert_svd(analysis("waves"), signal.hilbert(centred, axis=0), 2)
    assert_svd(analysis("annual"), np.stack([x[12 * year : 12 * year + 12].mean(0) for year in range(6)]), 2)
    assert analysis("annual")["year"][:].tolist() == list(range(1980, 1986))


def test_modes_and_spectra_are_those_of_the_samples():
    made(derived)
    x = samples()
    u, s, vh = (part[..., :4] if part.ndim < 2 else part for part in np.linalg.svd(x[:-1], full_matrices=False))
    u, vh = u[:, :4], vh[:4]
    reduced = vh @ x[1:].T @ u / s  # A of x_{t+1} = A x_t, on the first components
    found = analysis("modes")
    np.testing.assert_allclose(
        np.sort_complex(found["eigenvalues"][:]), np.sort_complex(np.linalg.eigvals(reduced)), rtol=1e-8
    )
    modes, mu = flat(found["components"]), found["eigenvalues"][:]
    np.testing.assert_allclose(np.linalg.norm(modes, axis=1), 1, rtol=1e-10)
    stepped = x[1:].T @ (u / s) @ (vh @ modes.T)
    np.testing.assert_allclose(stepped, modes.T * mu, atol=1e-8)
    assert (found["step"][...], found["step"].attrs["units"]) == (1.0, "1 month")
    np.testing.assert_allclose(mu, np.exp(found["exponents"][:] * found["step"][...]), rtol=1e-12)
    found = analysis("spectra")
    window = signal.get_window("hamming", 16)
    starts = range(0, N - 15, 8)
    sums = np.stack([np.fft.rfft(window[:, None] * (x - x.mean(0))[start : start + 16], axis=0) for start in starts])
    sums /= np.sqrt(len(starts) * (window @ window))
    sums[:, 1:-1] *= np.sqrt(2)
    for f in range(9):
        energies = np.linalg.svd(sums[:, f], compute_uv=False)[:2] ** 2
        np.testing.assert_allclose(found["energies"][f], energies, rtol=1e-8)
        maps = flat(found["components"])[f]
        np.testing.assert_allclose(maps @ maps.conj().T, np.eye(2), atol=1e-8)
        projected = sums[:, f] @ maps.conj().T
        np.testing.assert_allclose(np.abs(projected), np.abs(found["scores"][f]), atol=1e-8 * np.sqrt(energies[0]))
    np.testing.assert_allclose(found["frequency"][:], np.fft.rfftfreq(16))


def test_maps_are_certified_from_the_same_pass():
    made(derived)
    for name in ("seasonal", "windows", "waves", "modes", "spectra", "annual"):
        maps = certificate(name)["maps"]
        assert maps["orthogonality"] < 1e-9
        assert max(np.ravel(maps["residual_data"])) < 1e-9, name
    manifest = json.loads(Path("d/manifest.json").read_text())
    assert manifest["counts"] == {"passes": 1, "bytes_decoded": samples().nbytes, "absent_chunks": 0}


def test_without_maps_no_data_are_needed(x, capsys):
    shutil.rmtree("x.zarr")
    assert dpca("derive", "d.yaml", "--set", "components=false") == 0
    assert "no data read" in capsys.readouterr().out
    assert "components" not in analysis("waves")
    assert certificate("waves")["maps"] is None
    assert dpca("derive", "d.yaml", "--set", "output.path=other") == 2
    assert "maps need its data again" in capsys.readouterr().err
    assert not Path("other").exists()


def test_maps_can_be_made_later():
    made(derived)
    Path("d").rename("at_once")
    assert dpca("derive", "d.yaml", "--set", "components=false") == 0
    assert dpca("derive", "d.yaml", "--components") == 0
    assert bits("d") == bits("at_once")
    assert dpca("derive", "d.yaml", "--components") == 2  # they are there


def test_data_that_changed_are_refused_for_maps_alone(x, capsys):
    array = zarr.open_array("x.zarr/x")
    array[0, 0, 0] = 1e6
    assert dpca("derive", "d.yaml") == 2
    assert "changed since r was made of it" in capsys.readouterr().err
    assert dpca("derive", "d.yaml", "--set", "components=false") == 0


def test_what_was_finished_is_not_read_again(x, monkeypatch, capsys):
    in_small_slabs(monkeypatch)
    assert dpca("derive", "d.yaml", "--set", "output.path=whole") == 0
    stopped = disturbed(
        at_slab(9, "os.kill(os.getpid(), signal.SIGKILL)"), "derive", "d.yaml", "--set", "compute.workers=1"
    )
    assert stopped.returncode == -9, stopped.stderr
    assert not Path("d").exists()
    assert dpca("derive", "d.yaml", "--set", "compute.workers=1") == 0
    assert "spans were finished before" in capsys.readouterr().err
    assert contents("d/result.zarr") == contents("whole/result.zarr")
    assert not list(Path().glob(".d.partial"))


@pytest.mark.long
def test_what_was_finished_with_other_labels_is_not_used(x, monkeypatch):
    in_small_slabs(monkeypatch)
    model = "{kind: pca, n_components: 2}"
    Path("l.yaml").write_text(
        f"from: r\nanalyses: [{{name: a, samples: [anomalies: {{by: {{uri: l.npy}}}}], model: {model}}}]\noutput: {{path: d}}"
    )
    np.save("l.npy", np.arange(N) % 5)
    stopped = disturbed(
        at_slab(9, "os.kill(os.getpid(), signal.SIGKILL)"), "derive", "l.yaml", "--set", "compute.workers=1"
    )
    assert stopped.returncode == -9, stopped.stderr
    labels = np.arange(N) % 7
    np.save("l.npy", labels)
    assert dpca("derive", "l.yaml") == 0
    assert_svd(analysis("a"), x - np.stack([x[labels == one].mean(0) for one in labels]), 2, centred=False)


@pytest.mark.long
def test_the_same_bits_on_a_cluster(x, tmp_path, monkeypatch):
    in_small_slabs(monkeypatch)
    assert dpca("derive", "d.yaml", "--set", "compute.workers=1") == 0
    with local_cluster(tmp_path) as cluster:
        where = f"compute.cluster={{scheduler: '{cluster.scheduler_address}'}}"
        assert dpca("derive", "d.yaml", "--set", where, "--set", "output.path=far") == 0
    assert contents("far/result.zarr") == contents("d/result.zarr")


@pytest.mark.parametrize(
    "keys", ["preprocess: {scale: std}", "preprocess: {weights: sqrt_cos_lat}", "preprocess: {center: false}"]
)
def test_maps_are_of_what_the_run_made_of_the_data(x, keys):
    Path("k.yaml").write_text(RUN.replace("path: r", "path: k") + keys)
    assert dpca("run", "k.yaml") == 0
    few = "[{name: modes, model: {kind: dmd, rank: 4}}, {name: annual, samples: [means: {by: year}], model: {kind: pca, n_components: 2}}]"
    assert dpca("derive", "d.yaml", "--set", "from=k", "--set", f"analyses={few}") == 0
    rows = x - x.mean(0)
    if "std" in keys:
        rows = rows / x.std(0, ddof=1)
    if "cos" in keys:
        rows = (rows.reshape(N, *GRID) * np.sqrt(np.cos(np.radians(np.linspace(-50, 50, GRID[0]))))[:, None]).reshape(
            N, -1
        )
    assert_svd(analysis("annual"), np.stack([rows[12 * year : 12 * year + 12].mean(0) for year in range(6)]), 2)
    assert max(certificate("modes")["maps"]["residual_data"]) < 1e-9


def test_weights_of_the_run_do_not_count_and_weights_of_an_analysis_do(x):
    w = np.random.default_rng(1).uniform(0.5, 2, N)
    np.save("w.npy", w)
    Path("k.yaml").write_text(RUN.replace("path: r", "path: k") + "preprocess: {sample_weights: {uri: w.npy}}")
    assert dpca("run", "k.yaml") == 0
    weighted = "{name: weighted, samples: [weights: {uri: w.npy}], model: {kind: pca, n_components: 3}}"
    Path("w.yaml").write_text(
        f"from: k\nanalyses:\n  - {weighted}\n  - {{name: plain, model: {{kind: pca, n_components: 3}}}}\noutput: {{path: d}}"
    )
    assert dpca("derive", "w.yaml") == 0
    np.testing.assert_allclose(
        analysis("weighted")["eigenvalues"][:], zarr.open_group("k/result.zarr")["eigenvalues"][:3], rtol=1e-10
    )
    np.testing.assert_allclose(
        analysis("weighted")["explained_variance"][:],
        zarr.open_group("k/result.zarr")["explained_variance"][:3],
        rtol=1e-10,
    )
    assert_svd(analysis("plain"), x, 3)


def test_factors_of_a_qr_factorization_keep_all_digits(x):
    """The components that are 1e-9 of the largest are known from R, and not from K."""
    u, _, vh = np.linalg.svd(x - x.mean(0), full_matrices=False)
    small = u[:, :4] * [1, 1e-3, 1e-6, 1e-9] @ vh[:4] * 1e3 + 5.0
    write(small)
    for solver in ("tsqr", "gram_eigh"):
        Path("k.yaml").write_text(
            RUN.replace("path: r", f"path: {solver}").replace("precision", f"svd_solver: {solver}, precision")
        )
        assert dpca("run", "k.yaml", "--set", "model.n_components=1") == 0
    Path("f.yaml").write_text(
        "from: tsqr\nanalyses: [{name: a, samples: [difference: {lag: 1}], model: {kind: pca, n_components: 4}}]\noutput: {path: d}"
    )
    assert dpca("derive", "f.yaml") == 0
    np.testing.assert_allclose(
        analysis("a")["singular_values"][:],
        np.linalg.svd(np.diff(small, axis=0) - np.diff(small, axis=0).mean(0), compute_uv=False)[:4],
        rtol=1e-5,
    )
    assert dpca("derive", "f.yaml", "--set", "from=gram_eigh", "--overwrite") == 2


def test_results_beside_each_other():
    made(derived)
    x = samples()
    for name, piece in (("left", slice(0, 80)), ("right", slice(80, 200))):
        part = x.reshape(N, *GRID)[:, :, piece]
        with h5py.File(f"{name}.h5", "w") as file:
            file["x"] = part
            file["time"] = dates()
            file["time"].attrs["units"] = "days since 1900-01-01"
            file["time"].make_scale("time")
            for axis, dim in enumerate(("time", "lat", "lon")):
                file["x"].dims[axis].label = dim
            file["x"].dims[0].attach_scale(file["time"])
        Path(f"{name}.yaml").write_text(RUN.replace("x.zarr", f"{name}.h5").replace("path: r", f"path: out/{name}"))
        assert dpca("run", f"{name}.yaml") == 0
    assert dpca("derive", "d.yaml", "--set", "from=[out/left, out/right]", "--set", "output.path=both") == 0
    for name in ("seasonal", "waves", "modes"):
        both, whole = analysis(name, "both"), analysis(name)
        np.testing.assert_allclose(np.abs(both["scores"][:]), np.abs(whole["scores"][:]), atol=1e-8)
        maps = np.concatenate([both["components_left"][:], both["components_right"][:]], axis=-1)
        np.testing.assert_allclose(np.abs(maps), np.abs(whole["components"][:]), atol=1e-8)
        assert both["components_left"].metadata.dimension_names[-1] == "left_lon"


def test_what_single_precision_does_not_know_is_not_called_reliable(capsys):
    x = samples("f4")
    cycle = 1e3 * np.outer(np.sin(2 * np.pi * np.arange(N) / 12), np.random.default_rng(3).standard_normal(D))
    write((x + cycle).astype("f4"))
    Path("r.yaml").write_text(RUN.replace(", precision: double", ""))
    assert dpca("run", "r.yaml", "--set", "model.n_components=1") == 0
    Path("d.yaml").write_text(f"from: r\nanalyses: {SEASONAL}\ncomponents: false\noutput: {{path: d}}")
    assert dpca("derive", "d.yaml", "--set", "analyses.0.model.n_components=1") == 0
    said = capsys.readouterr()
    found = certificate("seasonal")
    assert found["amplification"] > 1e4
    assert "1 part in" in found["caveat"]
    assert "run r again with model.precision: double (one read of 346 kB)" in said.err
    if found["reliable_components"]:  # then it has the digits that it claims
        rows = (x + cycle).astype("f4").astype("f8")[2:70]
        month = np.arange(N)[2:70] % 12
        rows = rows - np.stack([rows[month == m].mean(0) for m in month])
        line = np.vander(dates()[2:70] / 1e4, 2)
        rows = rows - line @ np.linalg.lstsq(line, rows, rcond=None)[0]
        true = np.linalg.svd(rows, compute_uv=False)[0] ** 2
        assert abs(analysis("seasonal")["eigenvalues"][0] / true - 1) < 10 ** -found["digits"][0]


BAD = [
    ("from: nowhere", "nowhere: does not exist"),
    ("analyses: []", "analyses is [], but"),
    ("time: soon", "time is 'soon'"),
    ("components: maybe", "components is 'maybe'"),
    ("analyses.0.name: 1a", "analyses.0.name is '1a'"),
    ("analyses.1.name: seasonal", "are both called 'seasonal'"),
    (
        "analyses.0.samples: [{select: {time: ['1999', '2000']}}]",
        "no sample has time from 1999 to 2000: they are 1980-01-01 to 1985-12-01",
    ),
    ("analyses.0.samples: [{select: {place: ['1999', '2000']}}]", "selected along 'place', but their axis is 'time'"),
    ("analyses.0.samples: [{select: {month: 13}}]", "no sample has month 13"),
    (
        "analyses.0.samples: [{select: {samples: [0, 99]}}]",
        "samples 0 to 99 are selected, but there are samples 0 to 71",
    ),
    ("analyses.0.samples: [{select: {samples: ['1980-02', '1980']}}]", "is the label of 12 samples"),
    ("analyses.0.samples: [{anomalies: {by: week}}]", "grouped by 'week', but"),
    ("analyses.0.samples: [{anomalies: {by: monht}}]", "Did you mean month?"),
    ("analyses.0.samples: [{anomalies: {by: place.month}}]", "grouped by 'place.month', but their axis is 'time'"),
    ("analyses.0.samples: [{anomalies: {by: {uri: l.npy}}}]", "but there are 72 samples"),
    ("analyses.0.samples: [{detrend: {degree: 80}}]", "degree 80 fits all"),
    ("analyses.0.samples: [{filter: {kind: butterworth, band: [0.1, 0.7]}}]", "0.5"),
    ("analyses.0.samples: [{filter: {kind: butterworth}}]", "filter butterworth needs band"),
    ("analyses.0.samples: [{filter: {kind: running_mean, window: 3, order: 2}}]", "filter running_mean has no order"),
    (
        "analyses.0.samples: [{select: {season: DJF}}, {filter: {kind: running_mean, window: 3}}]",
        "needs regular times, but 1980-12-01 follows 1980-02-01, where most samples are a month apart (5 more such gaps)",
    ),
    ("analyses.0.samples: [{regress_out: {uri: c.csv}}]", "which of its columns are covariates is not said"),
    ("analyses.0.samples: [{regress_out: {uri: c.csv, columns: [agee]}}]", "Did you mean age?"),
    (
        "analyses.0.samples: [{regress_out: {uri: c.csv, columns: [age]}}]",
        "holds labels of shape (3,), but there are 72 samples",
    ),
    ("analyses.0.samples: [{center: true, detrend: {}}]", "one operator is needed, not detrend and center\n"),
    (
        "analyses.0.samples: [{standardize: true}]",
        "depends on the values of each feature, which a Gram matrix does not have",
    ),
    ("analyses.0.samples: [{weights: {uri: l.npy}}]", "weights"),
    ("analyses.0.model: {kind: pca, n_components: 70}", "n_components is 70, but 1 to"),
    ("analyses.0.model: {kind: ica}", "analyses.0.model"),
    ("analyses.1.model: {kind: extended, lags: 90}", "90 lags of 1 take 90 of 72 rows"),
    ("analyses.1.model: {kind: dmd, rank: 99}", "rank is 99"),
    ("analyses.1.model: {kind: optimized_dmd, rank: 60}", "rank is 60, but 72 rows allow 36"),
    ("analyses.1.model: {kind: spod, block: 100}", "block is 100 rows, but 2 to 72"),
    ("analyses.1.model: {kind: spod, block: 60, overlap: 10}", "components need two or more"),
    ("analyses.1.model: {kind: spod, block: 16, frequencies: [0.7]}", "0 to 0.5 cycles"),
    ("analyses.1.model: {kind: spod, block: 16, window: round}", "window is 'round'"),
    ("output: {path: r}", "is, holds or lies in"),
    ("output: {path: r/inside}", "is, holds or lies in"),
    ("compute: {memory: 160 MiB}", "compute.memory"),
]


@pytest.mark.parametrize(("key", "said"), BAD)
def test_bad_input_is_named(kept, key, said, capsys, monkeypatch):
    monkeypatch.chdir(kept)
    name, _, value = key.partition(": ")
    arguments = ("--set", f"{name}={value}")
    assert dpca("derive", "d.yaml", *arguments) in (2, 3)
    error = capsys.readouterr().err
    assert said in error, error
    assert not Path("d").exists()
    assert not list(Path().glob(".*.partial"))


def test_the_line_at_fault_is_named(x, capsys):
    Path("d.yaml").write_text(ALL.replace("degree: 1", "degree: 200"))
    assert dpca("derive", "d.yaml") == 2
    assert "d.yaml:8:" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ("output: {path: k, gram: false}", "keeps no Gram matrix of its samples (output.gram was false)"),
        ("preprocess: {missing: pairwise}", "that of no samples"),
        ("model: {svd_solver: covariance_eigh}", "keeps no Gram matrix of its samples (it kept features, not samples)"),
        ("model: {kind: kernel_pca, kernel: precomputed}", "is of a kernel matrix"),
    ],
)
def test_results_that_can_not_be_derived_from(x, keys, said, capsys):
    Path("k.yaml").write_text(RUN.replace("path: r", "path: k"))
    changes = ["--set", keys.replace(": ", "=", 1)]
    if "precomputed" in keys:
        np.save("k.npy", x @ x.T)
        Path("k.yaml").write_text("input: {uri: k.npy}\noutput: {path: k}\n")
    if "gram:" in keys:
        changes = ["--set", "output.gram=false"]
    if "svd" in keys:
        np.save("k.npy", x[:, :100])
        changes = ["--set", "model.svd_solver=covariance_eigh", "--set", "input={uri: k.npy}"]
    assert dpca("run", "k.yaml", *changes) == 0
    assert dpca("derive", "d.yaml", "--set", "from=k") == 2
    assert said in capsys.readouterr().err


def test_other_samples_beside_each_other_are_refused(x, capsys):
    Path("k.yaml").write_text(
        RUN.replace("path: r", "path: k").replace("samples_axis: time", "samples_axis: time, samples: {stop: 70}")
    )
    assert dpca("run", "k.yaml") == 0
    assert dpca("derive", "d.yaml", "--set", "from=[r, k]") == 2
    assert "k: has 70 samples, but r has 72" in capsys.readouterr().err
    assert dpca("derive", "d.yaml", "--set", "from=[r, r]") == 2
    assert "would be called r, r" in capsys.readouterr().err


def test_other_commands_say_what_a_derived_result_is(capsys):
    made(derived)
    for command in (
        ["transform", "d", "x.zarr", "--out", "t"],
        ["reconstruct", "d", "--out", "t"],
        ["export", "d", "--to", "npz"],
    ):
        assert dpca(*command) == 2
        assert "holds analyses derived from r" in capsys.readouterr().err
    assert dpca("derive", "d.yaml", "--set", "from=d", "--set", "output.path=e") == 2
    assert "holds analyses derived from r" in capsys.readouterr().err


def test_samples_without_a_time(capsys):
    x = samples()
    np.save("x.npy", x)
    Path("r.yaml").write_text("input: {uri: x.npy}\nmodel: {precision: double}\noutput: {path: r}\n")
    assert dpca("run", "r.yaml") == 0
    Path("d.yaml").write_text("from: r\nanalyses: [{name: m, model: {kind: dmd, rank: 3}}]\noutput: {path: d}\n")
    assert dpca("derive", "d.yaml") == 2
    assert "DMD needs times, but the samples have no coordinate" in capsys.readouterr().err
    assert dpca("derive", "d.yaml", "--set", "time=index") == 0
    assert analysis("m")["components"].shape == (3, D)


def test_the_plan_says_what_is_read_and_held(x, capsys):
    assert dpca("derive", "d.yaml", "--plan") == 0
    said = capsys.readouterr().out
    assert "6 analyses of 72 samples x 1,200 features, from the Gram matrix of gram_eigh in double precision" in said
    assert "one read of 691 kB" in said
    assert "analyses: " in said
    assert not Path("d").exists()
    assert dpca("derive", "d.yaml", "--plan", "--set", "components=false") == 0
    assert "no data read" in capsys.readouterr().out


def test_samples_that_were_left_out(x):
    steps = "[select: {month: [12, 1, 2]}, anomalies: {by: month}]"
    Path("l.yaml").write_text(
        "from: r\ncomponents: true\noutput: {path: d}\nanalyses:\n"
        "  - {name: winters, samples: [select: {month: [12, 1, 2]}], model: {kind: pca, n_components: 3, left_out: true}}\n"
    )
    assert dpca("derive", "l.yaml") == 0
    month = np.arange(N) % 12
    winter = np.isin(month, [11, 0, 1])
    found = analysis("winters")
    expected = (x[~winter] - x[winter].mean(0)) @ flat(found["components"]).T
    np.testing.assert_allclose(found["scores_left_out"][:], expected, atol=1e-9)
    np.testing.assert_array_equal(found["time_left_out"][:], dates()[~winter])
    assert (
        dpca("derive", "l.yaml", "--overwrite", "--set", f"analyses.0.samples={steps}") == 2
    )  # no climatology of the others
    assert dpca("derive", "l.yaml", "--overwrite", "--set", "analyses.0.samples=[]") == 2  # none is left out


def test_covariates_are_regressed_out(x):
    rng = np.random.default_rng(5)
    age, site = rng.normal(40, 10, N), np.arange(N) % 3
    Path("c.csv").write_text(
        "age,site\n" + "".join(f"{a!r},{'abc'[s]}\n" for a, s in zip(age.tolist(), site, strict=True))
    )
    steps = "[select: {samples: {start: 5}}, regress_out: {uri: c.csv, columns: [age, site]}]"
    Path("c.yaml").write_text(
        f"from: r\nanalyses: [{{name: a, samples: {steps}, model: {{kind: pca, n_components: 3}}}}]\noutput: {{path: d}}"
    )
    assert dpca("derive", "c.yaml") == 0
    z = np.column_stack([np.ones(N), age, site == 1, site == 2])[5:]
    assert_svd(analysis("a"), x[5:] - z @ np.linalg.lstsq(z, x[5:], rcond=None)[0], 3, centred=False)


def test_maps_of_a_run_that_regressed_out_a_cycle(x):
    Path("k.yaml").write_text(
        RUN.replace("path: r", "path: k") + "preprocess: {scale: std, regress_out: {seasonal_cycle: month, trend: 1}}"
    )
    assert dpca("run", "k.yaml") == 0
    Path("k-d.yaml").write_text(
        "from: k\nanalyses: [{name: a, samples: [select: {samples: {start: 12}}], model: {kind: pca, n_components: 3}}]\noutput: {path: d}"
    )
    assert dpca("derive", "k-d.yaml") == 0
    t = np.arange(N)
    z = np.column_stack([t % 12 == m for m in range(12)] + [dates() - dates().mean()])
    rows = x - z @ np.linalg.lstsq(z, x, rcond=None)[0]
    assert_svd(analysis("a"), (rows / rows.std(0, ddof=1))[12:], 3)
    assert max(certificate("a")["maps"]["residual_data"]) < 1e-9


@pytest.mark.parametrize("name", ["certificate.json", "manifest.json"])
def test_a_disk_that_is_full_in_the_end_is_said(x, name, capsys, monkeypatch):
    Path("few.yaml").write_text(f"from: r\nanalyses: {SEASONAL}\noutput: {{path: d}}\n")
    write = durable.write

    def full(path, *given):
        if path.name == name:
            raise OSError(ENOSPC, "No space left on device")
        write(path, *given)

    monkeypatch.setattr(durable, "write", full)
    assert dpca("derive", "few.yaml") == 1
    assert "d: could not be written: No space left on device" in capsys.readouterr().err
