"""Results, models and unfinished runs of earlier versions: each command on each of them, beside a dense oracle, or refused in a sentence.

`make.py` made them, by the code of the commits that raised a format version or changed what is written.
"""

import io
import json
import lzma
import re
import shutil
import tarfile
from collections import defaultdict
from functools import cache
from importlib.util import find_spec
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import zarr
from sklearn.decomposition import KernelPCA as DenseKernelPCA

from dpca import PCA, KernelPCA
from dpca.commands import batch
from dpca.errors import InputError
from dpca.numerics import certificate
from dpca.store import directory, outputs, unfinished
from dpca.store.derived import open_derived
from dpca.store.earlier import manifest_of_run
from dpca.store.results import open_result
from dpca.system import durable
from tests.commands.calls import dpca as command
from tests.formats.make import ARCHIVE, DATA, samples
from tests.formats.recipe import CONFIGS, OTHERS, K, N, write_config


@cache
def stored():
    """The files of the archive, by the folder that they are in: of each commit and name, and of the data."""
    archive = tarfile.open(fileobj=io.BytesIO(lzma.decompress(ARCHIVE.read_bytes())))  # noqa: SIM115  as long as this process
    found = defaultdict(list)
    for member in archive.getmembers():
        commit, *inside = member.name.removeprefix("./").split("/")
        if inside:
            found[DATA if commit == DATA else (commit, inside[0])].append(member)
    return archive, found


def unpack(folder):
    """Have the files of a folder of the archive here, without the names of the folders above it."""
    archive, found = stored()
    for member in found[folder]:
        archive.extract(member.replace(name="/".join(member.name.removeprefix("./").split("/")[1:])), filter="data")


STORED = sorted(folder for folder in stored()[1] if folder != DATA)
UNFINISHED, DERIVED, SCORES = ("unfinished", "batch"), ("derived", "maps"), ("scores",)
RESULTS = [one for one in STORED if one[1] not in (*UNFINISHED, *DERIVED, *SCORES)]
SAVED = ("saved", "saved-kernel")


@pytest.fixture
def given(request):
    """A name whose result is here, with the data that commands read."""
    _, name = request.param
    unpack(DATA)
    unpack(request.param)
    if name in CONFIGS:
        write_config(name, **CONFIGS[name])
    return name


def of(names):
    """A test for each of these."""
    return pytest.mark.parametrize("given", names, indirect=True, ids=["-".join(one) for one in names])


def matrices(name):
    """The samples of a fit and new ones, (n, d) and (3, d), as they are stored, without gaps; what divides the features; the mean."""
    x, new = samples(N).astype("f8"), samples(3, N).astype("f8")
    if name == "extended":
        x = np.concatenate([x, new])
    if name == "tall":
        x, new = x.T, x.T[:3] + 1
    if name == "sides":
        x, new = np.concatenate([x, x[:, ::-2] ** 2], 1), np.concatenate([new, new[:, ::-2] ** 2], 1)
    divisor = np.ones(x.shape[1])
    if name == "scaled":
        x[1, 4] = x[6, 11] = np.nan
        mean = np.nanmean(x, 0)
        divisor = np.nanstd(x, 0, ddof=1)
        x = np.where(np.isnan(x), mean, x)
    if name == "sides":
        for group in (slice(0, 20), slice(20, None)):
            part = x[:, group] - x[:, group].mean(0)
            divisor[group] = np.linalg.svd(part, compute_uv=False)[0] / np.sqrt(N - 1)
    return x, new, x.mean(0), divisor


def oracle(name):
    """Centred and scaled samples, new ones, U, sigma and W."""
    x, new, mean, divisor = matrices(name)
    z = (x - mean) / divisor
    u, sigma, w = np.linalg.svd(z, full_matrices=False)
    return z, (new - mean) / divisor, u, sigma, w


def signed(found, expected):
    """Columns with the signs of those that are expected."""
    return np.asarray(found) * np.sign((np.asarray(found) * expected).sum(0))


def expected_scores(name):
    """Scores of the fit and of new samples, (n, k) and (3, k)."""
    if name in ("kernels", "saved-kernel"):
        x, new, *_ = matrices(name)
        model = DenseKernelPCA(K, kernel="rbf", gamma=0.01)
        return model.fit_transform(x), model.transform(new)
    z, new, u, sigma, w = oracle(name)
    k = 1 if name == "krylov" else K
    whitening = sigma[:k] / np.sqrt(len(z) - 1) if name == "scaled" else 1
    return u[:, :k] * sigma[:k] / whitening, new @ w[:k].T / whitening


def new_samples(name):
    """How a command is told of them."""
    _, new, *_ = matrices(name)
    np.save("new.npy", (new.T if name == "tall" else new).astype("f4"))
    if name == "sides":
        x = samples(3, N)
        np.save("new-one.npy", x), np.save("new-two.npy", x[:, ::-2] ** 2)
        Path("new.yaml").write_text("[{name: one, uri: new-one.npy}, {name: two, uri: new-two.npy}]")
        return "new.yaml"
    if name == "dated":
        group = zarr.create_group("new.zarr")
        shutil.copytree("dated.zarr/lat", "new.zarr/lat")
        values = new.reshape(3, 4, 5).astype("f4")
        group.create_array("sst", data=values, dimension_names=("time", "lat", "x"), attributes={"units": "K"})
        group.create_array(
            "time",
            data=np.arange(N, N + 3) * 31 + 10,
            dimension_names=("time",),
            attributes={"units": "days since 2000-01-01", "calendar": "standard"},
        )
        return "new.zarr"
    return "new.npy"


def close(found, expected, digits=4):
    np.testing.assert_allclose(found, expected, rtol=0, atol=10.0**-digits * np.abs(expected).max())


def as_claimed(place, sigma):
    """The singular values of a result have the digits that its certificate claims: the first claimed one, the next estimated them to one."""
    result = open_result(place)
    estimated = "estimates" in " ".join(result.notes)
    assert estimated == (result.certificate["format_version"] < 3)
    found = result.arrays["singular_values"][...]
    digits = [2.0 if one["digits"] is None else one["digits"] for one in result.certificate["components"]]
    assert (np.abs(found / sigma[: len(found)] - 1) <= 10.0 ** (estimated - np.array(digits))).all()


def transform(name):
    case = ("--kernel-case", "1") if name == "kernels" else ()
    yield "transform", name, new_samples(name), "--out", "out", *case
    _, expected = expected_scores(name)
    close(signed(zarr.open_array("out/scores", mode="r")[...], expected), expected)
    if "kernel" not in name:
        as_claimed(name, oracle(name)[3])


def reconstruct(name):
    yield "reconstruct", name, "--out", "out", *(("--kernel-case", "1") if name == "kernels" else ())
    x, _, mean, divisor = matrices(name)
    _, _, u, sigma, w = oracle(name)
    k = 1 if name == "krylov" else K
    expected = (u[:, :k] * sigma[:k]) @ w[:k] * divisor + mean
    found = zarr.open_group("out", mode="r")
    arrays = [found[one][...] for one in ARRAYS_OF.get(name, ("reconstruction",))]
    if name == "tall":
        arrays = [one.T for one in arrays]
    close(np.concatenate([one.reshape(len(x), -1) for one in arrays], 1), expected)


def report(name):
    pytest.importorskip("bokeh")
    yield "report", name, "--out", "report.html"
    assert "reliable" in Path("report.html").read_text()


def export(name):
    yield "export", name, "--to", "npz", "--out", "out.npz"
    of_fit, _ = expected_scores(name)
    scores = np.load("out.npz")["scores"]
    close(signed(scores[1] if name == "kernels" else scores, of_fit), of_fit)


def derive(name):
    chosen = [{"name": "a", "model": {"kind": "pca", "n_components": 2}}]
    Path("d.yaml").write_text(json.dumps({"from": name, "analyses": chosen, "output": {"path": "d", "report": False}}))
    yield "derive", "d.yaml", *(("--components",) if "saved" not in name else ())
    _, _, u, sigma, _ = oracle("plain" if name == "kernels" else name)
    found = zarr.open_group("d/result.zarr/a", mode="r")
    assert (np.abs(found["singular_values"][...] / sigma[:2] - 1) <= 10.0 ** -found["digits"][...]).all()
    close(np.abs(found["scores"][...]), np.abs(u[:, :2] * sigma[:2]))


def extend(name):
    yield "extend", name, new_samples(name), "--output", "more", "--set", "output.report=false"
    if name == "sides":  # scaled anew, by their own first eigenvalues
        x = [
            np.concatenate([samples(N), samples(3, N)]).astype("f8")[:, :: (1, -2)[side]] ** (1 + side)
            for side in (0, 1)
        ]
        x = np.concatenate(
            [(one - one.mean(0)) / np.linalg.svd(one - one.mean(0), compute_uv=False)[0] * np.sqrt(N + 2) for one in x],
            1,
        )
    else:
        x = np.concatenate(matrices(name)[:2])
    sigma = np.linalg.svd(x - x.mean(0), compute_uv=False)
    as_claimed("more", sigma)


def kernels(name):
    """Other kernels of the Gram matrix that is kept."""
    sets = (
        "model.kind=kernel_pca",
        "model.kernel=[rbf, poly]",
        "model.gamma=0.01",
        "output.path=k",
        "model.whiten=false",
        "model.svd_solver=auto",
    )
    yield "run", f"{name}.yaml", "--from-gram", name, *(word for one in sets for word in ("--set", one))
    x, _, _, divisor = matrices(name)
    found = zarr.open_array("k/result.zarr/singular_values", mode="r")[...]
    for case, kernel in enumerate(("rbf", "poly")):
        dense = DenseKernelPCA(K, kernel=kernel, gamma=0.01, coef0=1.0, degree=3).fit(x / divisor)
        close(found[case], np.sqrt(dense.eigenvalues_))


def again(name):
    yield "run", f"{name}.yaml", "--resume"


def replace(name):
    yield "run", f"{name}.yaml", "--overwrite"
    if name != "kernels":
        as_claimed(name, oracle(name)[3])


def status(name):
    yield "status", name


ASKED = [transform, reconstruct, report, export, derive, extend, kernels, again, replace, status]
ARRAYS_OF = {"sides": ("reconstruction_one", "reconstruction_two")}
REFUSED = {
    (transform, "bare"): "has no components",
    (reconstruct, "bare"): "has no components",
    (reconstruct, "kernels"): "fit_inverse_transform is false",
    (reconstruct, "saved-kernel"): "fit_inverse_transform is false",
    (derive, "bare"): "keeps no Gram matrix",
    (derive, "tall"): "keeps no Gram matrix|R \\(features are fewer",
    (derive, "krylov"): "keeps no Gram matrix",
    (derive, "saved"): "keeps no Gram matrix|in the memory of a Python program",
    (derive, "saved-kernel"): "keeps no Gram matrix",
    (extend, "bare"): "keeps no Gram matrix",
    (extend, "tall"): "keeps no Gram matrix",
    (extend, "krylov"): "keeps no Gram matrix",
    (extend, "tsqr"): "keeps R of tsqr",
    (extend, "scaled"): "ran with preprocess.scale: std",
    (extend, "kernels"): "ran with model.kind: kernel_pca",
    (extend, "saved-kernel"): "ran with model.kind: kernel_pca",
    (extend, "saved"): "a Python program held in memory",
    (extend, "extended"): "is among the data of extended already",
    (kernels, "bare"): "keeps no Gram matrix",
    (kernels, "tall"): "keeps no Gram matrix",
    (kernels, "tsqr"): "keeps no Gram matrix",
    (kernels, "krylov"): "keeps no Gram matrix",
    (kernels, "sides"): "is for results of one input",
    (status, "saved"): "has no run",
    (status, "saved-kernel"): "has no run",
}
"""What can't be done with a result, whichever version wrote it."""
FIRST = ("6f78cf0", "3aafd50", "9b80506")
OF_VERSIONS = {
    (derive, "9dab141", "sides"): "keeps no gram_mean_product_by_group, which an earlier version did not write",
    **dict.fromkeys(
        product((derive, extend, kernels, again), FIRST, ("dated",)),
        "an earlier version did not record the sizes and times of its chunk files",
    ),
    **dict.fromkeys(product((derive, extend, kernels), FIRST[:2], ("tall",)), ""),
}
"""What only some versions can't do, and what only they can."""


@of(RESULTS)
@pytest.mark.parametrize(
    "ask",
    [
        transform,
        *(pytest.param(ask, marks=pytest.mark.looks if ask is report else pytest.mark.long) for ask in ASKED[1:]),
    ],
)
def test_commands(given, ask, request, capsys):
    if not Path(f"{given}.yaml").exists() and ask in (kernels, again, replace):
        pytest.skip("it was made by no run of a config")
    steps = ask(given)
    code = command(*next(steps))
    said = "".join(capsys.readouterr())
    assert "unexpected" not in said, said
    commit, _ = request.node.callspec.params["given"]
    if refused := OF_VERSIONS.get((ask, commit, given), REFUSED.get((ask, given))):
        assert code == 2, said
        assert re.search(refused, said), said
        return
    assert code == 0, said
    assert list(steps) == []


MODELS = [one for one in RESULTS if one[1] in ("plain", "scaled", "dated", "tall", "tsqr", "extended", *SAVED)]


@of(MODELS)
def test_models_are_loaded(given):
    _, new, *_ = matrices(given)
    shaped = new.reshape(3, 4, 5) if given == "dated" else new.T if given == "tall" else new
    model = (KernelPCA if given == "saved-kernel" else PCA).load(given)
    found, (_, expected) = model.transform(shaped.astype("f4")), expected_scores(given)
    close(signed(found, expected), expected)
    model.save("copy")
    np.testing.assert_array_equal(type(model).load("copy").transform(shaped.astype("f4")), found)


@of([one for one in STORED if one[1] in DERIVED])
def test_derived_analyses_are_read(given, capsys):
    analyses = open_derived(given).analyses
    sigma = oracle("dated")[3]
    if given == "derived":
        close(analyses["plain"]["singular_values"][...], sigma[: len(analyses["plain"]["singular_values"][...])])
    else:
        assert [*analyses][:5] == [one["name"] for one in OTHERS]
        assert analyses["lagged"].maps[""].shape[1:] == (2, 4, 5)
    if find_spec("bokeh"):
        assert command("report", given) == 0
        assert "reliable" in Path(given, "report.html").read_text()
    assert command("status", given) == 2
    assert "no run" in capsys.readouterr().err


@of([one for one in STORED if one[1] in SCORES])
def test_scores_are_read_and_replaced(given, request):
    _, expected = expected_scores("plain")
    assert command("export", given, "--to", "npz", "--out", "out.npz") == 0
    close(signed(np.load("out.npz")["scores"], expected), expected)


EARLIER = r"its format_version is \d|a version of dpca with other arithmetic"


def refuses(capsys, *arguments):
    capsys.readouterr()
    assert command(*arguments) == 2
    said = capsys.readouterr().err
    assert re.search(EARLIER, said), said
    assert "--overwrite" in said
    assert said.count("error:") == 1, said


@of([one for one in STORED if one[1] == "unfinished"])
def test_an_unfinished_run_is_not_gone_on_with_but_begun_anew(given, capsys):
    shutil.rmtree(
        f"{given}/.lock", ignore_errors=True
    )  # of another host, it is watched for seconds before it counts as left behind
    write_config(given, input=CONFIGS["plain"]["input"], model=CONFIGS["plain"]["model"])
    durable.write_json(
        Path(given, "status.json"), json.loads(Path(given, "status.json").read_text()) | {"state": "interrupted"}
    )
    assert command("status", given) == 0
    shown = capsys.readouterr().out
    assert re.search(EARLIER, " ".join(shown.split())), shown
    assert "--resume" not in shown
    refuses(capsys, "run", f"{given}.yaml", "--resume")
    assert command("run", f"{given}.yaml", "--overwrite") == 0
    close(zarr.open_array(f"{given}/result.zarr/singular_values", mode="r")[...], oracle("plain")[3][:K])
    assert not Path(given, "ledger").exists()


@of([one for one in STORED if one[1] == "batch"])
def test_an_unfinished_job_array_is_not_gone_on_with_but_begun_anew(given, capsys):
    write_config(given, input=CONFIGS["plain"]["input"], model=CONFIGS["plain"]["model"])
    record = Path(given, "ledger", "batch.json")
    document = json.loads(record.read_text())
    if "document" in document:  # it is gone on with where it was begun
        here = {"directory": str(Path.cwd()), "config": str(Path(f"{given}.yaml").absolute())}
        durable.write_checked(record, document["document"] | here)
    refuses(capsys, "batch", "finalize", given)
    refuses(capsys, "batch", "partition", given, "--index", "0")
    assert command("batch", "init", f"{given}.yaml", "--overwrite") == 0
    assert command("batch", "partition", given, "--index", "0") == 0


@of([("859a1c4", "plain"), ("859a1c4", "derived")])
@pytest.mark.parametrize("document", ["manifest.json", "certificate.json"])
def test_what_a_later_version_wrote_is_refused(given, document):
    path = Path(given, document)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format_version": 99}))
    with pytest.raises(InputError, match="has format_version 99, but this dpca reads up to") as refused:
        _ = (open_derived if given == "derived" else open_result)(given).certificate
    assert "Read it with the version of dpca that its manifest.json names." in str(refused.value)


def written(name):
    """Format versions of the documents of this name in the archive."""
    archive, found = stored()
    members = [member for files in found.values() for member in files if member.name.endswith(f"/{name}")]
    documents = [json.loads(archive.extractfile(member).read()) for member in members]
    return {one.get("document", one)["format_version"] for one in documents}


def test_every_version_before_this_one_is_in_the_archive_and_is_read():
    now = {
        "manifest.json": outputs.FORMAT_VERSION,
        "certificate.json": certificate.FORMAT_VERSION,
        "run.json": unfinished.FORMAT_VERSION,
        "batch.json": batch.FORMAT_VERSION,
    }
    assert [name for name, version in now.items() if not written(name) >= set(range(1, version))] == []
    assert tuple(range(1, outputs.FORMAT_VERSION + 1)) == directory.READABLE
    assert directory.READABLE_CERTIFICATES["run"] == tuple(range(1, certificate.FORMAT_VERSION + 1))


def first_manifest():
    """The manifest of the first result."""
    archive, found = stored()
    (member,) = [one for one in found["6f78cf0", "plain"] if one.name.endswith("plain/manifest.json")]
    return json.loads(archive.extractfile(member).read())


def test_a_result_without_an_identifier_has_the_same_one_whenever_it_is_read():
    first, other = first_manifest(), first_manifest()
    other["seconds"]["total"] += 1
    assert manifest_of_run(first)["run"] == manifest_of_run(first_manifest())["run"]
    assert manifest_of_run(first)["run"] != manifest_of_run(other)["run"]
    assert "run" not in first


def test_a_number_of_components_that_was_left_out_is_not_all_of_them():
    """It was written as null, which means all since results say when they were made."""
    before = first_manifest()
    before["asked"] = {name: before["config"][name] for name in ("input", "preprocess", "model")}
    before["asked"]["model"] = before["asked"]["model"] | {"n_components": None}
    assert manifest_of_run(before)["asked"]["model"]["n_components"] == "auto"
    assert manifest_of_run(before | {"made": "2026-11-28"})["asked"]["model"]["n_components"] is None


def test_what_is_written_today_stays_as_it_is():
    today = manifest_of_run(first_manifest())
    assert manifest_of_run(today) == today


@of([("6f78cf0", "plain")])
def test_a_saved_copy_of_the_first_result_is_one_of_today(given):
    PCA.load(given).save("copy")
    found, copied = open_result(given), open_result("copy")
    assert copied.manifest["format_version"] == 2
    assert copied.run == found.run
    np.testing.assert_array_equal(copied.arrays["components"][...], found.arrays["components"][...])
