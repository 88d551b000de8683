"""Cases of what is made of a result: analyses of its Gram matrix, extensions, reports, exports. And of what commands say."""

from __future__ import annotations

import json
import re
from typing import Any

from workflows.campaigns.same_bits.places import DATA, Case, Place

SST = {"array": "sst", "samples_axis": "time"}
TABLE = f"{DATA}/months.csv"
PHASE = {"uri": TABLE, "column": "phase"}
YIELD = {"uri": TABLE, "column": "yield"}
TREND = {"uri": TABLE, "columns": ["trend"]}
MONTH = {"anomalies": {"by": "month"}}
MEASURED = re.compile(
    r"(?<![\w.-])\d[\d.,]* ?(?:s|[kMG]B/s|GFLOP/s|MiB of memory at most)\b|[\d.]+ [kMGT]B free|made \d{4}-\d\d-\d\d"
    r"|(?m:^started .*)|most of it \w+"
)
"""Numbers in texts that a machine measures, and dates."""
TOOK = re.compile(r"(?s)<h2>What it took.*?(?=<h2>)")
MEASURED_KEYS = ("seconds", "per_second", "free_bytes", "time")
"""Endings of keys of such numbers in JSON."""


def steady(text: str) -> str:
    """A text without what differs from one time to the next."""
    return MEASURED.sub("#", TOOK.sub("", text))


def steady_values(document: Any) -> Any:
    """The same of a JSON."""
    if isinstance(document, dict):
        return {key: steady_values(value) for key, value in document.items() if not key.endswith(MEASURED_KEYS)}
    return [steady_values(one) for one in document] if isinstance(document, list) else document


def kept(place: Place, name: str, text: str) -> None:
    (place.path / name).write_text(steady(text).replace(str(place.path), "."), encoding="utf-8")


def of_months(place: Place, **sections: Any) -> None:
    place.run("months.zarr", **{"input": SST, "model": {"n_components": 6}, **sections})


def derive(place: Place, *analyses: dict[str, Any], to: str = "d", **more: Any) -> str:
    """Write a configuration of `dpca derive`; returns its name."""
    said = {
        "from": "r",
        "analyses": list(analyses),
        "compute": {"memory": "1 GiB", "workers": 2},
        "output": {"path": to, "report": False},
        **more,
    }
    (place.path / f"{to}.yaml").write_text(json.dumps(said))
    return f"{to}.yaml"


def one(name: str, kind: str, *samples: dict[str, Any], features: Any = None, **model: Any) -> dict[str, Any]:
    """An analysis of such a configuration."""
    said = {"name": name, "samples": list(samples), "model": {"kind": kind, **model}}
    return said if features is None else {**said, "features": features}


BAND = {"filter": {"kind": "butterworth", "order": 3, "band": [None, 0.2]}}
OPERATORS = [
    one("winters", "pca", MONTH, {"select": {"season": "DJF"}}, {"detrend": {}}, n_components=3, left_out=True),
    one("slow", "pca", MONTH, BAND, as_covariance=True, as_correlation=True),
    one("smooth", "pca", {"filter": {"kind": "lanczos", "band": [None, 0.1], "window": 13}}, n_components=2),
    one("steps", "pca", {"difference": {"lag": 12}}, n_components=4),
    one("cycle", "pca", {"between": {"by": "month"}}, n_components=2),
    one("years", "pca", {"means": {"by": "year"}}, n_components=2),
    one("rest", "pca", {"regress_out": TREND}, {"center": True}, n_components=4),
    one("years_of", "pca", {"select": {"time": ["2002", "2005"]}}, {"detrend": {"degree": 2}}, n_components=4),
    one("rotated", "pca", MONTH, n_components=6, rotation={"kind": "varimax", "n_components": 4}),
    one("promax", "pca", MONTH, n_components=4, rotation={"kind": "promax"}),
]
DRAWS = [
    one(
        "blocks", "pca", MONTH, n_components=3, resampling={"draws": 50, "block": 3, "seed": 0, "standard_errors": True}
    ),
    one("out", "pca", n_components=3, resampling={"kind": "leave_out", "by": "year"}),
    one("each", "pca", MONTH, n_components=2, resampling={"kind": "jackknife", "align": "procrustes"}),
]
WAVES = [
    one("windows", "extended", MONTH, lags=6, step=2, n_components=4),
    one("waves", "hilbert", MONTH, n_components=3),
    one("padded", "hilbert", MONTH, padding="exp", n_components=2),
    one("modes", "dmd", MONTH, rank=6),
    one("projected", "dmd", rank=4, modes="projected"),
    one("fitted", "optimized_dmd", rank=4),
    one("spectra", "spod", MONTH, block=24, n_components=2),
    one("spectrum", "spod", block=28, overlap=7, window="hann", frequencies=[1 / 14, 0.25], n_components=2),
]
STATISTICS = [
    one("near", "distances", MONTH),
    one("plane", "pcoa", n_components=3),
    one("phases", "permanova", MONTH, by=PHASE, permutations=99, strata="year"),
    one("seasons", "manova", by="season", n_components=5),
    one("directions", "discriminant", by="season", n_components=5),
    one("kernels", "kernel_pca", gamma="median", n_components=4),
    one("yield", "ridge", {"select": {"time": ["2001", "2005"]}}, target=YIELD, left_out=True),
    one("alphas", "ridge", MONTH, target=YIELD, alpha=[0.1, 10.0, 1000.0]),
    one("explained", "heritability", target=YIELD, covariates=TREND),
]
BOTH = ["sst", "slp"]
GROUPS = [
    one("alone", "pca", features={"leave_out": ["slp"]}, n_components=3),
    one("mfa", "pca", MONTH, features={"scaling": "first_eigenvalue"}, n_components=3),
    one("twice", "pca", features={"weights": {"sst": 2.0, "slp": 1.0}}, n_components=3),
    one("coupled", "mca", MONTH, groups=BOTH, n_components=3, permutations=19),
    one("correlated", "cca", MONTH, groups=BOTH, n_leading=4, permutations=19),
    one("alike", "similarity"),
]


def derived(*analyses: dict[str, Any], **sections: Any) -> Case:
    """Analyses of a run of one variable, with the maps that they have; and what a plan of them says."""

    def case(place: Place) -> None:
        of_months(place, **sections)
        config = derive(place, *analyses)
        kept(place, "plan.txt", place.dpca("derive", config, "--plan"))
        place.dpca("derive", config)

    return case


def derived_groups(place: Place) -> None:
    """Groups of features: inputs side by side, and labels within one."""
    inputs = [{"name": name, "uri": f"{DATA}/months.zarr", **SST, "array": name} for name in BOTH]
    said = {
        "input": inputs,
        "preprocess": {"block_scaling": "total_variance"},
        "model": {"n_components": 4},
        "output": {"path": "r", "report": True},
    }
    (place.path / "r.yaml").write_text(json.dumps(said))
    place.dpca("run", "r.yaml", "--set", "compute.memory=1GiB", "--set", "compute.workers=2")
    masked(place, "r")
    place.dpca("derive", derive(place, *GROUPS, output={"path": "d", "report": True}))
    masked(place, "d")


def masked(place: Place, result: str) -> None:
    """A report without what differs from one time to the next, in place of that report."""
    page = place.path / result / "report.html"
    page.write_text(steady(page.read_text(encoding="utf-8")), encoding="utf-8")


def reported(place: Place) -> None:
    """Reports of runs and of every kind of analysis."""
    of_months(place, output={"report": True}, preprocess={"scale": "std", "regress_out": {"seasonal_cycle": "month"}})
    masked(place, "r")
    analyses = [*OPERATORS[:3], OPERATORS[-1], *DRAWS[:2], *WAVES, *STATISTICS]
    place.dpca("derive", derive(place, *analyses, output={"path": "d", "report": True}))
    masked(place, "d")
    place.run("wide.zarr", to="k", model={"kind": "kernel_pca", "kernel": ["rbf", "poly"]}, output={"report": True})
    masked(place, "k")


def extended(place: Place) -> None:
    """A result with samples that came later, and what a plan of it says."""
    of_months(place, preprocess={"weights": "sqrt_cos_lat"})
    more = (
        "r",
        f"{DATA}/later.zarr",
        "--output",
        "more",
        "--set",
        "output.report=false",
        "--set",
        "compute.memory=1GiB",
    )
    kept(place, "plan.txt", place.dpca("extend", *more, "--plan"))
    place.dpca("extend", *more)
    place.dpca("derive", derive(place, OPERATORS[0], **{"from": "more"}))


def exported(place: Place) -> None:
    """Maps in units and as correlations, scores of new samples, and samples again, in other programs' formats."""
    of_months(place, preprocess={"weights": "sqrt_cos_lat", "scale": "std"})
    place.dpca("export", "r", "--to", "netcdf", "--as-covariance", "--as-correlation")
    place.dpca("transform", "r", f"{DATA}/later.zarr", "--out", "scores.zarr", "--memory", "1GiB", "--workers", "2")
    for to in ("csv", "netcdf"):
        place.dpca("export", "scores.zarr", "--to", to)
    place.dpca("reconstruct", "r", "--out", "samples.zarr", "--samples", "0:3", "--memory", "1GiB", "--workers", "2")
    place.dpca("export", "samples.zarr", "--to", "netcdf")


GRAM = """
import json
import numpy as np, zarr
import dpca

group = zarr.open_group("../../data/months.zarr", mode="r")
phase, crop, trend = np.loadtxt("../../data/months.csv", delimiter=",", skiprows=1, dtype=str).T
crop, trend = crop.astype(float), trend.astype(float)
gram = dpca.open_gram("r")
anomalies = gram.anomalies("month")

def keep(name, made):
    found = made.to_dataset() if hasattr(made, "to_dataset") and not hasattr(made, "to_xarray") else made.to_xarray()
    certificate = getattr(made, "certificate", None)
    np.savez(f"{name}.npz", **{str(key): np.asarray(value) for key, value in found.variables.items()})
    with open(f"{name}.txt", "w") as file:
        print(repr(made), {key: dict(value.attrs) for key, value in sorted(found.variables.items())}, found.attrs, file=file)
        print(json.dumps(certificate, default=str, sort_keys=True), file=file)

winters = anomalies.sel(time=slice("2001", "2006"), season="DJF").detrend()
eofs = winters.pca(3)
keep("eofs", eofs)
np.savez("more.npz", rest=eofs.rest(), maps=eofs.components(), rows=anomalies.isel(time=slice(0, 20)).pca(2).scores)
keep("rotated", eofs.rotated("varimax", n_components=3))
keep("drawn", eofs.bootstrap(40, block=3))
keep("left_out", anomalies.pca(2).leave_out("year"))
keep("jackknife", anomalies.pca(2).jackknife())
keep("covariance", anomalies.pca(2, as_covariance=True, as_correlation=True))
slow = gram.filter("lanczos", (None, 1 / 10), window=13)
keep("waves", slow.hilbert(2))
keep("windows", anomalies.extended(6, n_components=3))
keep("modes", anomalies.dmd(4))
keep("fitted", anomalies.optimized_dmd(4))
keep("spectra", anomalies.spod(24, n_components=2))
keep("kernel", anomalies.kernel_pca("rbf", gamma="median", n_components=3))
keep("phases", anomalies.permanova(phase, permutations=99, strata="year"))
keep("seasons", gram.manova("season", 4))
keep("directions", gram.discriminant("season", 4))
keep("ridge", anomalies.ridge(crop))
keep("h2", anomalies.heritability(crop, trend))
keep("plane", gram.pcoa(3))
np.savez("distances.npz", near=gram.difference(12).distances(), out=gram.regress_out(trend).center().pca(2).scores)
new = zarr.open_group("../../data/later.zarr", mode="r")["sst"][...]
np.savez("new.npz", scores=gram.pca(3).transform(new))
"""


def opened(place: Place) -> None:
    """Everything that `dpca.open_gram` gives."""
    of_months(place)
    place.python(GRAM)


SAYING = """
import contextlib, io, json, runpy, sys
sys.path.insert(0, "")
for at, arguments in enumerate(json.loads(sys.argv[1])):
    out = io.StringIO()
    sys.argv = ["dpca", *arguments]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            runpy.run_module("dpca", run_name="__main__")
            code = 0
        except SystemExit as end:
            code = end.code
    print("$ dpca", *arguments)
    print(out.getvalue())
    print("exit code", code)
"""
"""Commands in one process, and what each says."""
COMMANDS = (
    "batch demo derive export extend init inspect plan reconstruct report run schema status submit transform validate"
)


def said(place: Place, name: str, *commands: str) -> None:
    """What commands say, in one file."""
    kept(place, f"{name}.txt", place.python(SAYING, json.dumps([command.split() for command in commands])))


def helped(place: Place) -> None:
    """Help, schemas and references."""
    said(place, "help", "--help", *(f"{command} --help" for command in COMMANDS.split()))
    said(place, "schema", "schema", "schema --derive", "schema --markdown", "schema --derive --markdown")


WRONG = """
model.n_components=-1 model.n_components=many model.kind=pcs model.n_componets=3 model.svd_solver=full model.kernel=rbf
model.precision=half model.ddof=7 model.tolerance=0.1 preprocess.scale=yes preprocess.scale=robust preprocess.missing=drop
preprocess.center=maybe preprocess.weights=cos_lat preprocess.regress_out={seasonal_cycle:week} preprocess.block_scaling=none
compute.memory=lots compute.memory=1KiB compute.workers=0 compute.cluster={slurm:{}} compute.cluster=mpi compute.scratch=no/where
input.array=none input.samples_axis=x input.samples_axis=depth input.sel={time:1999} input.sel={month:13} input.isel={time:200}
input.samples={time:[2030,2031]} input.missing_values=many input.uri=none.zarr input.nope=1 output.path= output.gram=2
output.path=x.nc output.components=0 model.rotation={kind:varimax,n_components:9} model.rotation={kind:oblimin}
model.kind=kernel_pca,output.groups={labels:x} model.whiten=2 output.spectrum=none preprocess.scale={binomial:nobody}
output.bi_cross_validation=1
"""
"""Settings that can't be; several at once are separated by a comma before a key."""
WRONG_ANALYSES = [
    one("a", "pcs"),
    one("a b", "pca"),
    one("a", "pca", n_components=-1),
    one("a", "pca", {"anomalies": {"by": "week"}}),
    one("a", "pca", {"select": {"season": "XYZ"}}),
    one("a", "pca", {"select": {"time": ["2050", "2051"]}}),
    one("a", "pca", {"detrend": {"degree": -1}}),
    one("a", "pca", {"filter": {"kind": "lanczos", "band": [None, 0.1]}}),
    one("a", "pca", {"filter": {"kind": "butterworth", "band": [0.4, 0.2]}}),
    one("a", "pca", {"regress_out": {"uri": TABLE, "columns": ["none"]}}),
    one("a", "pca", {"difference": {"lag": 90}}),
    one("a", "pca", {"center": True, "detrend": {}}),
    one("a", "pca", n_components=90),
    one("a", "pca", rotation={"kind": "varimax", "n_components": 50}),
    one("a", "pca", resampling={"draws": 1}),
    one("a", "pca", features={"leave_out": ["slp"]}),
    one("a", "extended", lags=200),
    one("a", "extended", {"select": {"season": "DJF"}}, lags=2),
    one("a", "hilbert", {"means": {"by": "month"}}, n_components=30),
    one("a", "dmd", rank=84),
    one("a", "optimized_dmd"),
    one("a", "spod", block=100),
    one("a", "spod", block=10, overlap=10),
    one("a", "spod", block=10, window="round"),
    one("a", "permanova", by="century"),
    one("a", "permanova", {"select": {"month": [1]}}, by="month"),
    one("a", "permanova", by={"uri": TABLE, "column": "none"}),
    one("a", "manova", by="season", n_components=90),
    one("a", "ridge", target=PHASE),
    one("a", "ridge", target=YIELD, alpha=-1.0),
    one("a", "heritability", target={"uri": "none.csv", "column": "yield"}),
    one("a", "mca", groups=BOTH),
    one("a", "similarity"),
]


def refused(place: Place) -> None:
    """What commands say of settings that can't be."""
    of_months(place)
    config = place.config("months.zarr", to="w", input=SST)
    commands = []
    for wrong in WRONG.split():
        settings = " ".join(f"--set {one}" for one in re.split(r",(?=\w+\.)", wrong))
        commands += [f"{command} {config} {settings}" for command in ("validate", "plan")]
    said(place, "run", *commands)
    names = []
    for at, analysis in enumerate(WRONG_ANALYSES):
        names.append(derive(place, analysis, to=f"w{at}"))
    said(place, "derive", *(f"derive {name}" for name in names))
    new = f"{DATA}/new.zarr"
    said(
        place, "others",
        f"transform r {new} --out s.zarr", "transform r none.zarr --out s.zarr", f"extend r {new} --output m",
        f"extend r {DATA}/months.zarr --output m", "reconstruct r --out s.zarr --samples 90:", "export r --to xls",
        "export r --to anndata --as-covariance", "export none --to csv", "report none", "status none", "derive none.yaml",
        f"init {DATA}/none.zarr", f"inspect {DATA}/months.csv", "reconstruct r --out s.zarr --n-components 9",
        f"run {DATA}/months.zarr", "run r.yaml", "batch status r", "batch partition r --index 0",
    )  # fmt: skip
    kept(place, "python.txt", place.python(WRONG_IN_PYTHON))


WRONG_IN_PYTHON = """
import numpy as np
import dpca

x = np.random.default_rng(0).standard_normal((20, 30))
gram = dpca.open_gram("r")
calls = {
    "PCA(-1)": lambda: dpca.PCA(-1).fit(x), "PCA(1.0)": lambda: dpca.PCA(1.0).fit(x), "PCA(21)": lambda: dpca.PCA(21).fit(x),
    "PCA('all')": lambda: dpca.PCA("all").fit(x), "svd_solver": lambda: dpca.PCA(3, svd_solver="full").fit(x),
    "scale": lambda: dpca.PCA(3, scale=True).fit(x), "missing": lambda: dpca.PCA(3, missing="drop").fit(x),
    "memory": lambda: dpca.PCA(3, memory="1 KiB").fit(x), "axis": lambda: dpca.PCA(3, samples_axis=2).fit(x),
    "nan": lambda: dpca.PCA(3).fit(x * np.nan), "text": lambda: dpca.PCA(3).fit("none.zarr"), "weights": lambda: dpca.PCA(3, weights="cos_lat").fit(x),
    "one": lambda: dpca.PCA(3).fit(x[:1]), "transform": lambda: dpca.PCA(3).fit(x).transform(x[:, :4]),
    "regress_out": lambda: dpca.PCA(3, regress_out={"seasonal_cycle": "week"}).fit(x), "groups": lambda: dpca.PCA(3, block_scaling="total_variance").fit(x),
    "rotation": lambda: dpca.PCA(3, rotation="oblimin").fit(x), "scale and dosages": lambda: dpca.PCA(3, scale={"binomial": "nobody"}).fit(x),
    "kernel": lambda: dpca.KernelPCA(3, kernel="none").fit(x), "gamma": lambda: dpca.KernelPCA(3, kernel="linear", gamma=-1.0).fit(x),
    "degree": lambda: dpca.KernelPCA(3, kernel="poly", degree="two").fit(x), "precomputed": lambda: dpca.KernelPCA(3, kernel="precomputed").fit(x),
    "sel": lambda: gram.sel(season="XYZ"), "sel time": lambda: gram.sel(time=slice("2050", "2051")), "sel dim": lambda: gram.sel(depth=3),
    "isel": lambda: gram.isel(time=200), "anomalies": lambda: gram.anomalies("week"), "labels": lambda: gram.anomalies(np.arange(3)),
    "detrend": lambda: gram.detrend("time"), "filter": lambda: gram.filter("box", (None, 0.1)), "band": lambda: gram.filter("butterworth", (0.4, 0.2)),
    "gram.pca": lambda: gram.pca(-1), "many": lambda: gram.pca(90), "extended": lambda: gram.extended(200), "dmd": lambda: gram.dmd(84),
    "spod": lambda: gram.spod(100), "window": lambda: gram.spod(10, window="round"), "permanova": lambda: gram.permanova("century"),
    "manova": lambda: gram.manova("season", 90), "ridge": lambda: gram.ridge(np.zeros(84)), "target": lambda: gram.ridge(np.zeros(3)),
    "heritability": lambda: gram.heritability(np.full(84, np.nan)), "kernel_pca": lambda: gram.kernel_pca("none"), "mca": lambda: gram.mca("a", "b"),
    "open": lambda: dpca.open_gram("none"), "load": lambda: dpca.PCA.load("none"),
}
for name, call in calls.items():
    try:
        said = repr(call())
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
    print(f"{name}: {said}")
"""


def planned(place: Place) -> None:
    """What plans say, as text and as JSON, of runs of several kinds."""
    runs: dict[str, dict[str, Any]] = {
        "wide": {},
        "double": {"model": {"precision": "double"}},
        "tsqr": {"model": {"svd_solver": "tsqr"}},
        "krylov": {"model": {"svd_solver": "block_krylov", "n_components": 3}},
        "kernels": {"model": {"kind": "kernel_pca", "kernel": ["rbf", "poly"]}},
        "rotation": {"model": {"n_components": 6, "rotation": {"kind": "varimax"}}},
        "small": {"compute": {"memory": "201 MiB"}},
    }
    for name, sections in runs.items():
        config = place.config("wide.zarr", to=name, **sections)
        kept(place, f"{name}.txt", place.dpca("plan", config, "--memory"))
        found = steady_values(json.loads(place.dpca("plan", config, "--json")))
        kept(place, f"{name}-json.txt", json.dumps(found, indent=1))


def described(place: Place) -> None:
    """What is said of data of many kinds, and the configs made of them."""
    places = ("wide.zarr", "tall.zarr", "pixels.zarr", "genotypes.zarr", "missing.zarr", "packed.nc", "fortran.npy")
    uris = [*(f"{DATA}/{name}" for name in places), *(f"{DATA}/{name}.zarr" for name in ("field", "months", "later"))]
    said(place, "inspect", *(f"inspect {uri}" for uri in uris))
    said(place, "init", *(f"init {uri}" for uri in uris), *(f"init {uri} --all" for uri in uris))
    of_months(place)
    said(place, "result", "init r", "status r", "inspect r")


def run_of_months(**sections: Any) -> Case:
    return lambda place: of_months(place, **sections)


HALVES = {"ranges": {"south": [0, 6], "north": [6, 12]}, "axis": "sst_lat"}

CASES: dict[str, Case] = {
    "regress-out": run_of_months(preprocess={"regress_out": {"seasonal_cycle": "month", "trend": 1}, "scale": "std"}),
    "rotation": run_of_months(model={"n_components": 6, "rotation": {"kind": "promax", "n_components": 4}}),
    "block-krylov": run_of_months(model={"svd_solver": "block_krylov", "n_components": 3}),
    "feature-groups": run_of_months(output={"groups": HALVES}, model={"n_components": "bi_cross_validation"}),
    "sample-weights": run_of_months(preprocess={"sample_weights": {"uri": f"{DATA}/weights.npy"}}),
    "binomial": lambda place: place.run("genotypes.zarr", preprocess={"scale": {"binomial": "plink2"}}),
    "derive-operators": derived(*OPERATORS),
    "derive-draws": derived(*DRAWS),
    "derive-waves": derived(*WAVES),
    "derive-statistics": derived(*STATISTICS, preprocess={"scale": "std"}),
    "derive-groups": derived_groups,
    "open-gram": opened,
    "extend": extended,
    "reports": reported,
    "exports-of-all": exported,
    "help": helped,
    "refusals": refused,
    "plans": planned,
    "inspect-and-init": described,
}
