"""A field with a wave that moves east, a seasonal cycle and land, and one analysis of each kind."""

from pathlib import Path

import numpy as np
import zarr

from tests.commands.calls import dpca

MONTHS, PERIOD = 240, 20
ANALYSES = """
  - {name: plain, model: {kind: pca, n_components: 4}}
  - {name: lagged, samples: [anomalies: {by: month}], model: {kind: extended, lags: 10, step: 2, n_components: 2}}
  - {name: moving, samples: [anomalies: {by: month}], model: {kind: hilbert, n_components: 2}}
  - {name: modes, samples: [anomalies: {by: month}], model: {kind: dmd, rank: 3}}
  - {name: fitted, samples: [anomalies: {by: month}], model: {kind: optimized_dmd, rank: 2}}
  - {name: spectra, model: {kind: spod, block: 60, n_components: 2}}
  - {name: chosen, model: {kind: spod, block: 60, frequencies: [0.05, 0.2], n_components: 2}}
  - name: drawn
    samples: [anomalies: {by: month}]
    model: {kind: pca, n_components: 3, resampling: {draws: 60, block: 20, standard_errors: true}, rotation: {kind: varimax}}
  - {name: seasons, samples: [means: {by: season}], model: {kind: pca, n_components: 2}}
"""


def make_run(place):
    """The run, in a folder: `place/run`, of `place/x.zarr`."""
    rng, months = np.random.default_rng(0), np.arange(MONTHS)[:, None, None]
    lat, lon = np.linspace(-60, 60, 12), np.arange(0, 360, 15.0)
    wave = 4 * np.cos(2 * np.pi * months / PERIOD - 2 * np.radians(lon)) * np.cos(np.radians(lat))[:, None]
    cycle = 6 * np.cos(2 * np.pi * months / 12) * np.sin(np.radians(lat))[:, None]
    values = wave + cycle + 0.5 * rng.standard_normal((MONTHS, 12, 24))
    values[:, 4:8, 10:14] = np.nan
    group = zarr.create_group(place / "x.zarr")
    group.create_array("x", data=values, chunks=(60, 6, 24), dimension_names=("time", "lat", "lon"))
    dates = np.datetime64("1990-01") + np.arange(MONTHS)
    days = (dates.astype("datetime64[D]") - np.datetime64("1970-01-01")).astype(float)
    units = {"time": "days since 1970-01-01", "lat": "degrees_north", "lon": "degrees_east"}
    for name, positions in (("time", days), ("lat", lat), ("lon", lon)):
        group.create_array(name, data=positions, dimension_names=(name,)).attrs["units"] = units[name]
    (place / "run.yaml").write_text(
        f"input: {{uri: {place}/x.zarr, array: x}}\npreprocess: {{missing: mean}}\nmodel: {{n_components: 2, precision: double}}\n"
        f"output: {{path: {place}/run, components: false, report: false}}\n"
    )
    assert dpca("run", place / "run.yaml") == 0


def write_derive(place, name="derived", settings=""):
    """The configuration of all analyses; returns its path."""
    path = Path(place) / f"{name}.yaml"
    path.write_text(f"from: {place}/run\nanalyses:{ANALYSES}{settings}\noutput: {{path: {place}/{name}}}\n")
    return path
