"""Memory of derived analyses: measured beside planned, each kind in a process of its own."""

import json
from pathlib import Path

import numpy as np
import pytest
import zarr

from dpca.analyses.config import load_derive
from dpca.commands.derive import plan
from tests.commands.calls import dpca, dpca_process

N, D = 2000, 2400
MODELS = [
    "{kind: pca, n_components: 10}",
    "{kind: pca, n_components: 10, resampling: {draws: 60, standard_errors: true}}",
    "{kind: pca, n_components: 10, resampling: {kind: leave_out, by: {uri: some.npy}, standard_errors: true, columns: 5}}",
    "{kind: pca, n_components: 20, rotation: {kind: promax}}",
    "{kind: extended, lags: 12, n_components: 10}",
    "{kind: hilbert, n_components: 5}",
    "{kind: hilbert, n_components: 5, padding: exp}",
    "{kind: dmd, rank: 12}",
    "{kind: dmd, rank: 12, delays: 12}",
    "{kind: optimized_dmd, rank: 2}",
    "{kind: spod, block: 256}",
    "{kind: distances}",
    "{kind: pcoa, n_components: 10}",
    "{kind: permanova, by: {uri: two.npy}}",
    "{kind: permanova, by: {uri: many.npy}, permutations: 99}",
    "{kind: manova, by: {uri: many.npy}, n_components: 10}",
    "{kind: discriminant, by: {uri: many.npy}, n_components: 10}",
    "{kind: kernel_pca, gamma: median, n_components: 10}",
    "{kind: ridge, target: {uri: y.npy}}",
    "{kind: heritability, target: {uri: y.npy}, covariates: {uri: z.npy}}",
    "{kind: mca, groups: [a, b], n_components: 10, permutations: 9}",
    "{kind: cca, groups: [a, b], permutations: 9}",
    "{kind: similarity, permutations: 9}",
]


OF_FACTOR = [
    "{kind: pca, n_components: 10}",
    "{kind: pca, n_components: 10, resampling: {kind: leave_out, by: {uri: some.npy}, standard_errors: true, columns: 5}}",
    "{kind: extended, lags: 3, n_components: 10}",
    "{kind: hilbert, n_components: 5}",
    "{kind: dmd, rank: 12}",
    "{kind: dmd, rank: 12, delays: 3}",
    "{kind: spod, block: 256}",
    "{kind: distances}",
    "{kind: mca, groups: [a, b], n_components: 10, permutations: 9}",
]
"""Those in whose arrays a kept R makes a difference of its own; the others factor it, or multiply it out, as one of these does."""


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """2000 samples."""
    place = tmp_path_factory.mktemp("kept")
    rng, t = np.random.default_rng(0), np.arange(N)
    x = np.outer(np.cos(2 * np.pi * t / 50), rng.standard_normal(D)) + np.outer(
        np.sin(2 * np.pi * t / 50), rng.standard_normal(D)
    )
    zarr.create_array(str(place / "x.zarr"), data=(10 * x + rng.standard_normal((N, D))).astype("f4"), chunks=(N, 400))
    return place


def result_of(data, solver):
    """A run on them with two groups of features, which keeps K or R."""
    place = data / solver
    (data / "r.yaml").write_text(
        f"input: {{uri: {data}/x.zarr}}\nmodel: {{n_components: 2, svd_solver: {solver}}}\n"
        f"output: {{path: {place}, components: false, groups: {{ranges: {{a: [0, 1400], b: [1400, {D}]}}}}}}\n"
    )
    if not place.exists():
        assert dpca("run", data / "r.yaml") == 0
    return place


@pytest.mark.long
@pytest.mark.parametrize(
    ("solver", "model"), [*(("gram_eigh", model) for model in MODELS), *(("tsqr", model) for model in OF_FACTOR)]
)
def test_analyses_and_maps_take_what_was_planned(data, solver, model):
    result = result_of(data, solver)
    operators = "[select: {samples: {start: 1}}, detrend: {}]"
    Path("d.yaml").write_text(
        f"from: {result}\ntime: index\nanalyses: [{{name: a, samples: {operators}, model: {model}}}]\noutput: {{path: d, report: false}}\n"
    )
    rng = np.random.default_rng(1)
    np.save("two.npy", np.arange(N) % 2), np.save("many.npy", np.arange(N) % 200)
    np.save("some.npy", np.arange(N) % 20)
    np.save("y.npy", rng.standard_normal(N)), np.save("z.npy", rng.standard_normal((N, 2)))
    before = {
        name: size
        for one in plan(load_derive("d.yaml"), components=True)["memory"]
        for name, size in one["stages"].items()
    }
    done = dpca_process("derive", "d.yaml")
    assert done.returncode == 0, done.stderr
    memory = json.loads(Path("d/manifest.json").read_text())["memory"]
    for stage in memory["planned_bytes_of_stages"]:
        assert memory["peak_bytes_of_stages"].get(stage, 0) <= memory["planned_bytes_of_stages"][stage], (stage, memory)
        assert memory["planned_bytes_of_stages"][stage] <= before[stage], (
            stage,
            before,
        )  # what dpca derive --plan says
