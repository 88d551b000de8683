"""The data of all cases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import zarr


def prepare(place: Path) -> None:
    """Make the data of all cases: several slabs of 8 MiB each, the last one narrower."""
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape, np.float32)

    def store(name: str, values: np.ndarray, chunks: tuple[int, ...], **how: Any) -> None:
        zarr.create_array(place / name, data=values, chunks=chunks, **how)

    def steep(n: int, d: int, least: float) -> np.ndarray:
        """Singular values from 1 to `least`, about."""
        return np.linalg.qr(normal(n, n).astype("f8"))[0] * np.logspace(0, np.log10(least), n) @ normal(n, d)

    place.mkdir()
    wide = normal(32, 6) * [6, 5, 3, 2, 1.5, 1] @ normal(6, 250_000) + normal(32, 250_000) + 3 * normal(250_000)
    store("wide.zarr", wide.astype("f4"), (16, 30_000))
    store("new.zarr", (wide[[3, 20, 9, 31, 0]] + 0.25 * normal(5, 250_000)).astype("f4"), (5, 50_000))
    np.save(place / "labels.npy", np.arange(32) % 3)
    wide64 = normal(24, 130_000) * np.linspace(1, 3, 24)[:, None] + np.linspace(0, 9, 130_000)
    store("wide64.zarr", wide64, (24, 20_000), zarr_format=2)
    tall = normal(150_000, 5) * [5, 4, 3, 2, 1] @ normal(5, 48) + normal(150_000, 48) + np.linspace(-3, 9, 48)
    store("tall.zarr", tall.astype("f4"), (20_000, 24))
    gaps = np.where(rng.random(tall.shape, np.float32) < 0.02, np.float32(np.nan), tall.astype("f4"))
    store("missing-tall.zarr", gaps, (20_000, 48))
    gaps = np.where(rng.random((32, 180_000), np.float32) < 0.02, np.float32(np.nan), wide[:, :180_000].astype("f4"))
    gaps[:, 70_000:70_500], gaps[:, 100_000] = np.nan, 7  # features without values, and one that is constant
    store("missing.zarr", gaps, (32, 20_000))
    pixels = np.clip(90 + 40 * normal(48, 1) + 30 * normal(48, 400_000), 0, 255)
    store("pixels.zarr", pixels.astype("u1"), (48, 50_000))
    shares = np.linspace(0.1, 0.5, 48)[:, None] * rng.random(400_000, np.float32)
    store("genotypes.zarr", rng.binomial(2, shares).astype("i1"), (48, 50_000))
    np.save(place / "fortran.npy", np.asfortranarray(wide[:, 40_000:200_000].astype("f4")))
    store("rows.zarr", np.round(wide[:24], 1).astype("f4"), (1, 250_000))
    store("rows-plain.zarr", wide[:24].astype("f4"), (1, 250_000), compressors=None)
    twice = normal(12, 400_000)
    twice[6:] = twice[:6] + 1e-3 * twice[6:]
    store("twice.zarr", twice, (12, 60_000))
    store("steep.zarr", steep(16, 160_000, 1e-13), (16, 30_000))
    store("steep32.zarr", steep(16, 300_000, 1e-5).astype("f4"), (16, 60_000))
    points = normal(87, 4).astype("f8")
    matrix = np.exp(-0.2 * ((points[:, None] - points) ** 2).sum(axis=2))
    np.save(place / "kernel.npy", matrix[:80, :80])
    np.save(place / "kernel-new.npy", matrix[80:, :80])
    fields(place, normal(25, 6) * [9, 7, 5, 4, 3, 2] @ normal(6, 300 * 1200) + normal(25, 300 * 1200) + 280)
    months(place)


def fields(place: Path, values: np.ndarray) -> None:
    """A field over time: in Zarr with time between the others, in shards, and in NetCDF, as packed integers with gaps."""
    field = values.astype("f4").reshape(25, 300, 1200)
    said = {
        "time": (31 * np.arange(25.0), {"units": "days since 2001-01-15", "calendar": "standard"}),
        "lat": (np.linspace(-60, 60, 300), {"units": "degrees_north"}),
        "lon": (np.linspace(0, 359.7, 1200), {"units": "degrees_east"}),
    }
    group = zarr.create_group(place / "field.zarr")
    kept = group.create_array(
        "field", shape=(300, 25, 1200), dtype="f4", chunks=(50, 25, 300), shards=(100, 25, 600),
        dimension_names=("lat", "time", "lon"), attributes={"units": "K"},
    )  # fmt: skip
    kept[...] = field.transpose(1, 0, 2)
    packed = np.round((field - 280) / 0.01).clip(-32000, 32000).astype("i2")
    packed[:, 40:90, 100:400], packed[3, ::7, ::11] = -32768, -32768  # land, and gaps
    with h5py.File(place / "packed.nc", "w") as file:
        how = {"compression": "gzip", "compression_opts": 1, "shuffle": True, "fillvalue": -32768}
        dataset = file.create_dataset("field", data=packed, chunks=(25, 30, 600), **how)
        dataset.attrs.update({"scale_factor": 0.01, "add_offset": 280.0, "_FillValue": np.int16(-32768)})
        for axis, (name, (coordinate, attributes)) in enumerate(said.items()):
            group.create_array(name, data=coordinate, dimension_names=(name,), attributes=attributes)
            file[name] = coordinate
            file[name].attrs.update(attributes)
            file[name].make_scale(name)
            dataset.dims[axis].attach_scale(file[name])


def months(place: Path) -> None:
    """Two variables of 84 months, on grids of their own: a cycle, a wave that travels, a trend, and noise. And 12 months more of one."""
    rng = np.random.default_rng(1)
    group, more = zarr.create_group(place / "months.zarr"), zarr.create_group(place / "later.zarr")
    step = np.arange(96)
    first = np.array("2001-01-15", "M8[D]")
    days = ((first.astype("M8[M]") + step).astype("M8[D]") - first.astype("M8[M]").astype("M8[D]")).astype("f8") + 14
    index = rng.standard_normal(96)

    def keep(of: zarr.Group, name: str, values: np.ndarray, dims: tuple[str, ...], **attributes: str) -> None:
        array = of.create_array(
            name, shape=values.shape, dtype=values.dtype, dimension_names=dims, attributes=attributes
        )
        array[...] = values

    for name, grid in (("sst", (12, 40)), ("slp", (9, 30))):
        lat, lon = np.linspace(-80, 80, grid[0]), np.linspace(0, 360, grid[1], endpoint=False)
        maps = rng.standard_normal((3, *grid))
        field = 10 * np.cos(2 * np.pi * step / 12)[:, None, None] * np.cos(np.deg2rad(lat))[:, None]
        field = (
            field + 3 * np.cos(2 * np.pi * step[:, None] / 30 - np.deg2rad(lon))[:, None] + 0.02 * step[:, None, None]
        )
        field = field + np.einsum("t,xy->txy", index, 2 * maps[0]) + rng.standard_normal((96, *grid))
        for of, part in ((group, slice(0, 84)), (more, slice(84, None))):
            dims = ("time", f"{name}_lat", f"{name}_lon")
            keep(of, name, field[part].astype("f4"), dims, units="K" if name == "sst" else "hPa")
            keep(of, dims[1], lat, dims[1:2], units="degrees_north")
            keep(of, dims[2], lon, dims[2:], units="degrees_east")
            if name == "sst":
                keep(of, "time", days[part], ("time",), units="days since 2001-01-01", calendar="standard")
    np.save(place / "weights.npy", np.tile([1.0, 2.0, 1.0], 28))
    noise = rng.standard_normal(84)
    rows = [
        f"{'warm' if value > 0.5 else 'cold' if value < -0.5 else 'none'},{value + noise[at]:.4f},{at}"
        for at, value in enumerate(index[:84])
    ]
    (place / "months.csv").write_text("\n".join(["phase,yield,trend", *rows, ""]))
