"""Results, saved models and unfinished runs as commits of the past wrote them, in one small archive: `make formats`.

Each commit of `COMMITS` carries out `recipe.py` by its own code, in a folder that is the same on every machine. What is in the
archive is what a user has who has kept a result since then.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import numpy as np
import zarr

from tests.formats.recipe import D, N
from workflows.campaigns.same_bits.places import code_of

HERE = Path(__file__).parent
ARCHIVE = HERE / "made.tar.xz"
PLACE = Path("/tmp/dpca-formats")
"""Where results are made: it is recorded in some, and says nothing about the machine."""
DATA = "data"
MOMENT = 1_700_000_000
"""When files of data were written, in seconds: whoever unpacks them has the same."""

COMMITS = {
    "6f78cf0": "results 1, certificate 1",
    "3aafd50": "certificate 2: digits, estimated; tsqr",
    "9b80506": "dpca transform; features are kept where they are fewer",
    "cb82226": "ledger 1; runs have identifiers",
    "1a7b21b": "records with checksums; what was asked for",
    "814da53": "batch 1; kernels",
    "25d8b35": "certificate 3: digits, measured",
    "c0d3505": "results 2, with an inventory; ledger 2; models that Python saved",
    "ba690c6": "batch 2, with a checksum",
    "9b47d31": "ledger 3: what was read for each part",
    "9dab141": "derived analyses; inputs side by side",
    "e00a505": "extended results; resampled analyses; matrices of groups of features",
    "a7326d1": "block Krylov",
    "1a033ae": "errors of what lies beside the components, in the certificate",
    "859a1c4": "units, and numbers of components",
    "b810895": "the last one before the policy",
}
"""Commits that raised a version, or changed what is written without that, and what was new. A result that is written as by an earlier one
is left out."""


NOT_COMPARED = ("config", "asked", "arrays", "seconds", "task_seconds", "memory", "network", "environment")
"""Mappings whose keys differ from run to run, and settings: every version has more, and results without them are read in one way."""


def samples(n, start=0):
    """Samples whose features differ in mean and spread, (n, D)."""
    rows, columns = np.arange(start, start + n)[:, None], np.arange(D)
    waves = np.sin(rows * 0.7 + columns * 0.3) * 4 + np.cos(rows * 1.9 - columns * 0.8) + rows * columns / 40
    return (np.round(waves * 64) / 64 + columns).astype(np.float32)


def write_data():
    """Write the data here."""
    x = samples(N)
    np.save("data.npy", x)
    np.save("new.npy", samples(3, N))
    np.save("other.npy", x[:, ::-2] ** 2)
    gaps = x.copy()
    gaps[1, 4] = gaps[6, 11] = np.nan
    np.save("gaps.npy", gaps)
    group = zarr.create_group("dated.zarr")
    days, field = np.arange(N) * 31 + 10, x.reshape(N, 4, D // 4)
    for name, values, dims, attributes in (
        ("time", days, ("time",), {"units": "days since 2000-01-01", "calendar": "standard"}),
        ("lat", np.array([-60.0, -20.0, 20.0, 60.0]), ("lat",), {"units": "degrees_north"}),
        ("sst", field, ("time", "lat", "x"), {"units": "K", "long_name": "surface temperature"}),
    ):
        group.create_array(name, data=values, dimension_names=dims, attributes=attributes)
    for path in Path().rglob("*"):
        os.utime(path, (MOMENT, MOMENT))


def carried_out(code, place, what):
    """Carry out a part of the recipe by the code of a commit; what it said of what it could not make."""
    done = subprocess.run(
        [sys.executable, "-P", HERE / "recipe.py", what],
        cwd=place,
        env=os.environ | {"PYTHONPATH": str(code), "OPENBLAS_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
    )
    return done.stderr


def layout(place):
    """What tells how a result is written: names and types of its arrays, keys of its documents; all manifests are like that of `plain`."""
    found = set()
    for path in sorted(place.rglob("*")):
        inside = "/".join("N" if part.isdigit() or len(part) == 32 else part for part in path.relative_to(place).parts)
        if path.name in ("certificate.json", "run.json", "batch.json") or (
            path.name == "manifest.json" and place.name in ("plain", "derived")
        ):
            document = json.loads(path.read_text())
            found |= {f"{inside} {key}" for key in keys(document.get("document", document))}
        elif path.name == "zarr.json":
            node = json.loads(path.read_text())
            what = [node.get("data_type"), node.get("dimension_names"), sorted(node["attributes"])]
            found.add(f"{inside} {what}")
        elif path.suffix == ".npz":
            with np.load(path) as arrays:
                found.add(f"{inside} {sorted(arrays)}")
    return frozenset(found)


def keys(document, depth=2):
    """Keys of a document and of the mappings in it; a format's version with its value."""
    for key, value in document.items() if isinstance(document, dict) else ():
        yield f"{key} {value}" if key in ("format_version", "version") else key
        if depth and key not in NOT_COMPARED:
            first = value[0] if isinstance(value, list) and value else value
            yield from (f"{key}.{inner}" for inner in keys(first, depth - 1))


def make(commit, place, code, verbose):
    """Have in a folder what a commit makes."""
    code_of(commit, code)
    shutil.copytree(PLACE.parent / f"{PLACE.name}-{DATA}", PLACE)
    inputs = set(os.listdir(PLACE))
    for what in ("results", "python", "unfinished", "batch"):
        said = carried_out(code, PLACE, what)
        if verbose:
            print(said)
    place.mkdir()
    for path in sorted(PLACE.iterdir()):
        if path.is_dir() and path.name not in inputs:
            (path / "report.html").unlink(missing_ok=True)
            path.rename(place / path.name)
    shutil.rmtree(PLACE)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commits", nargs="*", default=list(COMMITS))
    parser.add_argument("--verbose", action="store_true", help="Say also why something was not made.")
    parser.add_argument("--out", type=Path, default=ARCHIVE)
    given = parser.parse_args()
    out, data, seen = given.out.absolute(), PLACE.parent / f"{PLACE.name}-{DATA}", set()
    for path in (PLACE, data):
        shutil.rmtree(path, ignore_errors=True)
    data.mkdir()
    os.chdir(data)
    write_data()
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch, "formats")
        root.mkdir()
        for commit in given.commits:
            make(commit, root / commit, Path(scratch, "code", commit), given.verbose)
            found = {place.name: layout(place) for place in (root / commit).iterdir()}
            new = {"plain"} | {name for name, how in found.items() if (name, how) not in seen}
            seen |= found.items()
            for name in found.keys() - new - ({"dated"} if new & {"derived", "maps"} else set()):
                shutil.rmtree(root / commit / name)
            print(commit, *sorted(os.listdir(root / commit)), flush=True)
        shutil.copytree(data, root / DATA)
        files = sorted((path for path in root.rglob("*") if path.is_file()), key=lambda path: path.parts[::-1])
        with tarfile.open(out, "w:xz", preset=9) as archive:
            for path in files:
                archive.add(path, path.relative_to(root), filter=nobodys)
    shutil.rmtree(data)
    print(f"{out}: {out.stat().st_size:,} bytes, {len(files):,} files")


def nobodys(member):
    """A file of the archive without its owner."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


if __name__ == "__main__":
    main()
