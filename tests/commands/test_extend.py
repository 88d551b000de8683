"""`dpca extend` against a run from scratch on old and new files together, its one read of each, and what is refused."""

import json
import shutil
import signal
from pathlib import Path

import h5py
import numpy as np
import pytest
import zarr

from dpca.commands.extend import Asked, plan
from dpca.numerics.accumulators.border import repeated
from dpca.numerics.accumulators.tallies import FeatureTally
from dpca.sources.npy import NpySource
from tests.commands.calls import dpca, run
from tests.made import made
from tests.resume.disturbed import at_slab, disturbed, in_small_slabs
from tests.stores import bits

N, M, D = 14, 6, (5, 40)
RUN = "input: {uri: old, array: x}\nmodel: {n_components: 3, precision: double}\noutput: {path: r, report: false}\n"
PLAIN = RUN.replace("old, array: x", "old.npy")


def samples(n=N + M, dtype="f8", level=50.0, drift=3.0):
    """A few strong directions in noise, about a mean that is not 0 and that new samples shift."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((n, 4)) @ rng.standard_normal((4, D[0] * D[1])) * [[3.0]] + rng.standard_normal(
        (n, D[0] * D[1])
    )
    return (x + level + drift * (np.arange(n) >= N)[:, None]).reshape(n, *D).astype(dtype)


def config(text, name="c.yaml"):
    Path(name).write_text(text)
    return name


def arrays(path):
    group = zarr.open_group(f"{path}/result.zarr", mode="r")
    return {
        name: np.asarray(array[...], "f8")
        for name, array in group.arrays()
        if getattr(array.dtype, "kind", "T") in "biuf"
    }


def manifest(path):
    return json.loads(Path(path, "manifest.json").read_text())


def assert_same(path, scratch, to):
    found, expected = arrays(path), arrays(scratch)
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=0, atol=to * np.nanmax(np.abs(values)), err_msg=name)


def in_npy(x, stem, axis):
    np.save(f"{stem}.npy", np.moveaxis(x, 0, axis))
    return f"{stem}.npy", "null"


def plain():
    """Old samples that a configuration is of, and new ones."""
    np.save("old.npy", samples()[:N])
    np.save("new.npy", samples()[N:])
    config(PLAIN)


def in_hdf5(x, stem, axis):
    moved = np.moveaxis(x, 0, axis)
    with h5py.File(f"{stem}.h5", "w") as file:
        file.create_dataset("x", data=moved, chunks=tuple(max(1, length // 3) for length in moved.shape))
    return f"{stem}.h5", "x"


def in_zarr(x, stem, axis):
    """With times in days, which go on in the new file, and latitudes."""
    group, first = zarr.open_group(f"{stem}.zarr", mode="w"), {"old": 0, "new": N, "newest": N + M}[stem]
    dims = [["lat", "lon"][i] for i in range(2)]
    dims.insert(axis, "time")
    moved = np.moveaxis(x, 0, axis)
    group.create_array("x", data=moved, chunks=tuple(-(-length // 2) for length in moved.shape), dimension_names=dims)
    for name, values in (("time", np.arange(first, first + len(x))), ("lat", np.linspace(-50, 50, D[0]))):
        array = group.create_array(name, data=values.astype("f8"), dimension_names=(name,))
        if name == "time":
            array.attrs["units"] = "days since 2000-01-01"
    return f"{stem}.zarr", "x"


@pytest.mark.parametrize(
    ("write", "axis"), [pytest.param(in_npy, 0, marks=pytest.mark.long), (in_npy, 1), (in_hdf5, 0), (in_zarr, 1)]
)
def test_as_a_run_from_scratch(write, axis):
    x = samples()
    (old, array), (new, _) = write(x[:N], "old", axis), write(x[N:], "new", axis)
    inputs = f"array: {array}, samples_axis: {axis}"
    asked = RUN.replace("uri: old, array: x", f"uri: {old}, {inputs}")
    assert dpca("run", config(asked)) == 0
    before = bits("r")
    assert dpca("extend", "r", new, "--output", "e") == 0
    assert dpca("run", config(asked.replace(f"uri: {old}", f"uri: [{old}, {new}]").replace("path: r", "path: s"))) == 0
    assert_same("e", "s", 1e-12)
    assert bits("r") == before
    found, scratch = manifest("e"), manifest("s")
    assert found["extended"] == {"from": "r", "run": manifest("r")["run"], "samples": N}
    assert found["counts"] == scratch["counts"]
    assert found["fingerprint"] == scratch["fingerprint"]
    assert {**found["config"], "output": None} == {**scratch["config"], "output": None}


@pytest.mark.parametrize(("dtype", "to"), [("f4", 4e-6), pytest.param("i1", 1e-12, marks=pytest.mark.long)])
def test_single_precision_keeps_its_digits(dtype, to):
    x = samples(dtype=dtype, level=0.0)
    np.save("old.npy", x[:N])
    np.save("new.npy", x[N:])
    asked = PLAIN.replace(", precision: double", "")
    assert dpca("run", config(asked)) == 0
    assert dpca("extend", "r", "new.npy", "--output", "e") == 0
    assert dpca("run", config(asked.replace("old.npy", "[old.npy, new.npy]").replace("path: r", "path: s"))) == 0
    assert_same("e", "s", to)
    centred = x.reshape(len(x), -1).astype("f8")
    centred -= centred.mean(axis=0)
    products = centred @ centred.T
    assert np.abs(arrays("e")["gram"] - products).max() <= 32 * np.finfo("f4").eps * products.max()
    certificate = json.loads(Path("e/certificate.json").read_text())
    assert certificate["precision"] == "single"
    assert not certificate["exact_products"]


@pytest.mark.long
@pytest.mark.parametrize(
    "settings", ["center: false", "weights: {uri: w.npy}, filters: {mask: {uri: m.npy}}", "missing: mean"]
)
def test_what_features_have_of_their_own_stays(settings):
    x = samples()
    if settings == "missing: mean":  # among the new samples alone
        x[N + 1, 2, :5] = np.nan
    np.save("old.npy", x[:N])
    np.save("new.npy", x[N:])
    np.save("w.npy", np.linspace(0.5, 2, D[0] * D[1]).reshape(D))
    np.save("m.npy", np.arange(D[0] * D[1]).reshape(D) % 7 > 0)
    asked = f"{PLAIN}preprocess: {{{settings}}}\n"
    assert dpca("run", config(asked)) == 0
    assert dpca("extend", "r", "new.npy", "--output", "e") == 0
    assert dpca("run", config(asked.replace("old.npy", "[old.npy, new.npy]").replace("path: r", "path: s"))) == 0
    assert_same("e", "s", 1e-12)


@pytest.mark.long
@pytest.mark.parametrize("scaling", ["none", "first_eigenvalue"])
def test_inputs_side_by_side(scaling):
    x = samples()
    for stem, part in (("old", x[:N]), ("new", x[N:])):
        np.save(f"{stem}_a.npy", part[:, :2])
        np.save(f"{stem}_b.npy", 30 * part[:, 2:])
    asked = (
        "input: [{name: a, uri: old_a.npy}, {name: b, uri: old_b.npy}]\n"
        f"model: {{n_components: 3, precision: double}}\npreprocess: {{block_scaling: {scaling}}}\n"
        "output: {path: r, report: false}\n"
    )
    assert dpca("run", config(asked)) == 0
    new = config("[{name: a, uri: new_a.npy}, {name: b, uri: new_b.npy}]", "new.yaml")
    assert dpca("extend", "r", new, "--output", "e") == 0
    for name in "ab":
        asked = asked.replace(f"old_{name}.npy", f"[old_{name}.npy, new_{name}.npy]")
    assert dpca("run", config(asked.replace("path: r", "path: s"))) == 0
    assert_same("e", "s", 1e-12)


@pytest.mark.long
def test_named_groups_of_features():
    x = samples()
    np.save("old.npy", x[:N].reshape(N, -1))
    np.save("new.npy", x[N:].reshape(M, -1))
    groups = "groups: {ranges: {a: [0, 70], b: [70, 200]}}, report: false"
    asked = PLAIN.replace("report: false", groups)
    assert dpca("run", config(asked)) == 0
    assert dpca("extend", "r", "new.npy", "--output", "e") == 0
    assert dpca("run", config(asked.replace("old.npy", "[old.npy, new.npy]").replace("path: r", "path: s"))) == 0
    assert_same("e", "s", 1e-12)
    assert {"gram_by_group", "gram_mean_product_by_group", "variance_share"} <= arrays("e").keys()


def test_groups_for_validation_are_not_extended(capsys):
    run(plain, "output.groups=3")
    assert dpca("extend", "r", "new.npy", "--output", "e") == 2
    assert "groups of features for validation, which are not extended" in capsys.readouterr().err


@pytest.mark.long
def test_again_and_then_all_that_a_run_serves(capsys):
    """In several steps, several files at once; then derived, transformed and exported as a run."""
    x = samples(N + M + 5)
    for stem, part in (("old", x[:N]), ("new", x[N : N + M]), ("newest", x[N + M :])):
        in_zarr(part, stem, 0)
    asked = RUN.replace("uri: old,", "uri: old.zarr,")
    assert dpca("run", config(asked)) == 0
    assert dpca("extend", "r", "new.zarr", "--output", "e") == 0
    assert dpca("extend", "e", "newest.zarr", "--output", "twice") == 0
    assert dpca("extend", "r", "new.zarr", "newest.zarr", "--output", "once") == 0
    files = "[old.zarr, new.zarr, newest.zarr]"
    assert dpca("run", config(asked.replace("uri: old.zarr", f"uri: {files}").replace("path: r", "path: s"))) == 0
    assert_same("twice", "s", 1e-12)
    assert_same("once", "s", 1e-12)
    assert manifest("twice")["extended"] == {"from": "e", "run": manifest("e")["run"], "samples": N + M}
    for result in ("twice", "s"):
        derived = f"from: {result}\nanalyses: [{{name: a, samples: [detrend: {{degree: 1}}], model: {{kind: pca, n_components: 2}}}}]\n"
        assert dpca("derive", config(f"{derived}output: {{path: d_{result}}}")) == 0
        assert dpca("transform", result, "new.zarr", "--out", f"t_{result}.zarr") == 0
    maps = [
        zarr.open_group(f"d_{result}/result.zarr", mode="r")["a/components"][...].astype("f8")
        for result in ("twice", "s")
    ]
    np.testing.assert_allclose(*maps, atol=1e-10 * np.abs(maps[1]).max())
    scores = [zarr.open_group(f"t_{result}.zarr", mode="r")["scores"][...] for result in ("twice", "s")]
    np.testing.assert_allclose(*scores, atol=1e-11 * np.abs(scores[1]).max())
    assert dpca("export", "twice", "--to", "netcdf", "--out", "twice.nc") == 0


def test_each_value_is_read_once_a_pass(monkeypatch):
    made(run, plain, "output.components=false")
    x, read = samples(), {}
    open_ = NpySource.open

    def counting(source):
        context = open_(source)

        class Counted:
            def __enter__(self):
                reader = context.__enter__()
                read_ = reader.read

                def counted(region):
                    values = read_(region)
                    read[source.layout.name] = read.get(source.layout.name, 0) + values.size
                    return values

                reader.read = counted
                return reader

            def __exit__(self, *error):
                return context.__exit__(*error)

        return Counted()

    monkeypatch.setattr(NpySource, "open", counting)
    assert dpca("extend", "r", "new.npy", "--output", "e") == 0
    assert read == {"old.npy": x[:N].size, "new.npy": x[N:].size}
    assert manifest("e")["counts"]["passes"] == 1
    assert manifest("e")["counts"]["bytes_decoded"] == x.nbytes


def test_the_plan_says_both_reads_and_what_is_saved(capsys):
    made(run, plain)
    x = samples()
    found = plan(Asked(Path("r"), ("new.npy",), Path("e")))
    n, d = N + M, x[0].size
    assert found["extended"] == {
        "result": "r",
        "n_samples": N,
        "n_new": M,
        "bytes": x[:N].nbytes,
        "new_bytes": x[N:].nbytes,
        "flops": 2 * n * M * d,
        "flops_from_scratch": n * n * d,
    }
    assert found["passes"][0] == {"name": "gram in double", "bytes": x.nbytes, "flops": 2 * n * M * d}
    capsys.readouterr()
    assert dpca("extend", "r", "new.npy", "--output", "e", "--plan") == 0
    printed = capsys.readouterr().out
    assert "extends  r: 14 samples by 6; the first pass reads 22.4 kB of old and 9.6 kB of new data once" in printed
    assert not Path("e").exists()


@pytest.mark.long
@pytest.mark.parametrize("slab", [3, 12])
def test_kill_9_is_gone_on_with_to_the_same_bits(slab, monkeypatch):
    in_small_slabs(monkeypatch)
    x = np.random.default_rng(0).standard_normal((20, 6000))
    np.save("old.npy", x[:14])
    np.save("new.npy", x[14:])
    assert dpca("run", config(PLAIN)) == 0
    assert dpca("extend", "r", "new.npy", "--output", "e") == 0
    undisturbed = bits("e")
    shutil.rmtree("e")
    done = disturbed(at_slab(slab, "os.kill(os.getpid(), signal.SIGKILL)"), "extend", "r", "new.npy", "--output", "e")
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert list(Path("e/ledger").glob("*/parts/*/*.npz"))
    assert dpca("extend", "r", "new.npy", "--output", "e", "--resume", "--set", "compute.workers=1") == 0
    assert bits("e") == undisturbed
    before = Path("e/manifest.json").stat().st_mtime_ns
    assert dpca("extend", "r", "new.npy", "--output", "e", "--resume") == 0
    assert Path("e/manifest.json").stat().st_mtime_ns == before


@pytest.mark.long
def test_a_signal_names_the_command_that_goes_on(monkeypatch):
    x = np.random.default_rng(0).standard_normal((20, 6000))
    np.save("old.npy", x[:14])
    np.save("new.npy", x[14:])
    assert dpca("run", config(PLAIN)) == 0
    done = disturbed(at_slab(5, "os.kill(os.getpid(), signal.SIGTERM)"), "extend", "r", "new.npy", "--output", "e")
    assert "What is finished is kept: dpca extend r new.npy --output e --resume goes on." in done.stderr


@pytest.mark.long
def test_where_single_precision_does_not_suffice_all_products_are_made_again():
    rng = np.random.default_rng(0)
    modes = np.linalg.qr(rng.standard_normal((600, 3)))[0]
    x = (rng.standard_normal((20, 3)) * [1e5, 1.0, 1e-2]) @ modes.T
    np.save("old.npy", x[:14].astype("f4"))
    np.save("new.npy", x[14:].astype("f4"))
    asked = PLAIN.replace("n_components: 3, precision: double", "n_components: 1")
    assert dpca("run", config(asked)) == 0
    assert manifest("r")["numerics"]["working_dtype"] == "float32"
    assert dpca("extend", "r", "new.npy", "--output", "e", "--set", "model.n_components=3") == 0
    both = asked.replace("old.npy", "[old.npy, new.npy]").replace("path: r", "path: s").replace(": 1", ": 3")
    assert dpca("run", config(both)) == 0
    assert manifest("e")["numerics"]["working_dtype"] == manifest("s")["numerics"]["working_dtype"] == "float64"
    assert manifest("e")["numerics"]["solver"] == manifest("s")["numerics"]["solver"]
    assert_same("e", "s", 1e-12)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ("preprocess: {scale: std}", "ran with preprocess.scale: std, which depends on all samples"),
        ("preprocess: {missing: pairwise}", "ran with preprocess.missing: pairwise"),
        ("preprocess: {missing: drop}", "ran with preprocess.missing: drop"),
        ("preprocess: {filters: {min_variance: 0.1}}", "ran with preprocess.filters"),
        ("preprocess: {regress_out: {covariates: {uri: w.npy}}}", "ran with preprocess.regress_out"),
        ("preprocess: {sample_weights: {uri: w.npy}}", "ran with preprocess.sample_weights"),
        ("model: {n_components: 3, svd_solver: tsqr}", "keeps R of tsqr"),
        ("model: {n_components: 3, svd_solver: covariance_eigh}", "it kept features, not samples"),
        ("model: {n_components: 3, kind: kernel_pca}", "ran with model.kind: kernel_pca"),
        ("model: {n_components: 3, effective_samples: 9}", "ran with model.effective_samples"),
        ("output: {path: r, gram: false, report: false}", "output.gram was false"),
        ("input: {uri: old.npy, samples: {stop: 12}}", "ran with input.samples"),
        ("gaps", "ran with 2 missing values, which were replaced by the means of the old samples"),
    ],
)
def test_what_depends_on_all_samples_is_refused(settings, problem, capsys):
    x = samples()
    if settings == "gaps":
        x[3, 0, :2] = np.nan
        settings = "preprocess: {missing: mean}"
    np.save("old.npy", x[:N])
    np.save("new.npy", x[N:])
    np.save("w.npy", np.linspace(1, 2, N))
    section = settings.partition(":")[0]
    lines = [line for line in PLAIN.splitlines() if not line.startswith(section)]
    assert dpca("run", config("\n".join([*lines, settings]))) == 0
    capsys.readouterr()
    assert dpca("extend", "r", "new.npy", "--output", "e") == 2
    error = capsys.readouterr().err
    assert problem in error
    assert "Run on all files together instead." in error
    assert not Path("e").exists()


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("found_later", [False, True])
def test_land_without_values_is_in_no_samples_way(masked, found_later):
    """Features that are left out have nothing that was replaced; a mask may hide gaps; what was land may have values later."""
    x = samples()
    x[: N if found_later else None, 0, :2] = np.nan
    if masked:
        x[3, 1, 4] = np.nan
        np.save("mask.npy", np.arange(D[0] * D[1]).reshape(D) != D[1] + 4)
    np.save("old.npy", x[:N])
    np.save("new.npy", x[N:])
    given = PLAIN + "preprocess: {missing: mean" + ", filters: {mask: {uri: mask.npy}}" * masked + "}\n"
    assert dpca("run", config(given)) == 0
    assert manifest("r")["counts"]["filled_values"] == 0
    assert dpca("extend", "r", "new.npy", "--output", "e") == 0
    assert (
        dpca(
            "run", config(given.replace("uri: old.npy", "uri: [old.npy, new.npy]"), "s.yaml"), "--set", "output.path=s"
        )
        == 0
    )
    assert_same("e", "s", 1e-11)
    assert (
        manifest("e")["counts"]["filled_values"]
        == manifest("s")["counts"]["filled_values"]
        == (2 * N if found_later else 0)
    )


def old_and_new():
    x = samples()
    in_zarr(x[:N], "old", 0)
    in_zarr(x[N:], "new", 0)
    config(RUN.replace("uri: old,", "uri: old.zarr,"))


@pytest.fixture
def in_files(capsys):
    made(run, old_and_new)
    capsys.readouterr()
    return samples()


def test_samples_that_are_already_in_are_refused(in_files, capsys):
    assert dpca("extend", "r", "old.zarr", "--output", "e") == 2
    assert "old.zarr: is among the data of r already" in capsys.readouterr().err
    shutil.copytree("old.zarr", "copy.zarr")
    assert dpca("extend", "r", "copy.zarr", "--output", "e") == 2
    assert "copy.zarr:x: begins at 2000-01-01, but old.zarr:x, before it, ends at 2000-01-14" in capsys.readouterr().err
    assert not Path("e").exists()


def test_names_that_repeat_are_refused_unless_they_may(capsys):
    x = samples()
    for stem, part, names in (("old", x[:N], range(N)), ("new", x[N:], range(7, 7 + M))):
        group = zarr.open_group(f"{stem}.zarr", mode="w")
        group.create_array("x", data=part, dimension_names=("id", "lat", "lon"))
        group.create_array("id", data=np.array(names, "i8"), dimension_names=("id",))
    assert dpca("run", config(RUN.replace("uri: old,", "uri: old.zarr,"))) == 0
    capsys.readouterr()
    assert dpca("extend", "r", "new.zarr", "--output", "e") == 2
    assert "new sample 0 is 7 along 'id', and so is sample 7, which is already in" in capsys.readouterr().err
    assert not Path("e").exists()
    assert dpca("extend", "r", "new.zarr", "--output", "e", "--allow-repeats") == 0


def test_values_that_are_already_in_are_refused_unless_they_may_be(capsys, monkeypatch):
    in_small_slabs(monkeypatch)
    x = samples(dtype="f4")
    x[N + 2] = x[5]
    np.save("old.npy", x[:N])
    np.save("new.npy", x[N:])
    asked = PLAIN.replace(", precision: double", "")
    assert dpca("run", config(asked)) == 0
    capsys.readouterr()
    assert dpca("extend", "r", "new.npy", "--output", "e") == 2
    assert "new sample 2 has the values of sample 5, which is already in" in capsys.readouterr().err
    assert dpca("extend", "r", "new.npy", "--output", "e", "--resume", "--allow-repeats") == 0
    assert "spans were finished before" in capsys.readouterr().err
    assert dpca("run", config(asked.replace("old.npy", "[old.npy, new.npy]").replace("path: r", "path: s"))) == 0
    assert_same("e", "s", 4e-6)


def test_samples_that_differ_a_little_are_no_repeats():
    """By one part in a million of one value, where single precision could not tell."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((6, 400))
    x[5] = x[2]
    for change, expected in ((0.0, (5, 2)), (1e-6, None)):
        x[5, 7] = x[2, 7] + change
        centred = x - x.mean(axis=0)
        tally = FeatureTally.empty(6, 4)
        tally.squares += np.square(centred).sum(axis=1)
        tally.sketch += centred @ (centred.T @ rng.standard_normal((6, 4)))
        assert repeated(4, [tally]) == expected


def test_old_data_that_are_gone_or_changed_are_refused(in_files, capsys):
    Path("old.zarr").rename("elsewhere.zarr")
    assert dpca("extend", "r", "new.zarr", "--output", "e") == 2
    assert "r: its data are needed again, and can't be opened at old.zarr" in capsys.readouterr().err
    in_zarr(in_files[:N] + 1, "old", 0)
    assert dpca("extend", "r", "new.zarr", "--output", "e") == 2
    assert "old.zarr:x: changed since r was made of it" in capsys.readouterr().err


def test_weights_that_changed_since_the_run_are_refused(capsys):
    x = samples()
    np.save("old.npy", x[:N])
    np.save("new.npy", x[N:])
    np.save("w.npy", np.linspace(0.5, 2, D[0] * D[1]).reshape(D))
    assert dpca("run", config(f"{PLAIN}preprocess: {{weights: {{uri: w.npy}}}}\n")) == 0
    np.save("w.npy", np.linspace(0.5, 3, D[0] * D[1]).reshape(D))
    assert dpca("extend", "r", "new.npy", "--output", "e") == 2
    assert "changed since r was made of it: preprocess.weights" in capsys.readouterr().err


def test_new_data_that_do_not_fit_are_refused(in_files, capsys):
    x = in_files
    in_hdf5(x[N:, :4], "fewer", 0)
    np.save("plain.npy", x[N:])
    in_zarr(x[N:], "newest", 0)
    zarr.open_group("new.zarr")["lat"][...] = np.linspace(50, -50, D[0])
    for given, problem in (
        ("fewer.h5", "features along axis 1"),
        ("plain.npy", "plain.npy"),
        ("new.zarr", "position 0 along 'lat' is"),
        ("newest.zarr", "there is a gap of"),
        ("absent.zarr", "absent.zarr: does not exist"),
        ("c.yaml", "is among the data of r already"),
    ):
        assert dpca("extend", "r", given, "--output", "e") == 2, given
        assert problem in capsys.readouterr().err
    assert not Path("e").exists()
    assert dpca("extend", "r", "newest.zarr", "--output", "e", "--set", "input.gaps=allow") == 0


def test_options_are_checked(in_files, capsys):
    for options, problem in (
        (["--output", "r"], "--output is r, the result that is extended"),
        (["--output", "e", "--set", "model.precision=single"], "--set model.precision: the products that r keeps"),
        (["--output", "e", "--json"], "--json is given without --plan"),
        (["--output", "e", "--overwrite", "--resume"], "give one of them"),
    ):
        assert dpca("extend", "r", "new.zarr", *options) == 2
        assert problem in capsys.readouterr().err
    assert dpca("extend", "r", "new.zarr", "--output", "e") == 0
    capsys.readouterr()
    assert dpca("extend", "r", "new.zarr", "--output", "e") == 2
    assert "Choose another --output, or replace it with --overwrite." in capsys.readouterr().err
    assert dpca("extend", "r", "new.zarr", "--output", "e", "--overwrite") == 0
