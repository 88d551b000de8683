"""Formats that are converted before they are read: how each is known, and a command that converts it."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from dpca.errors import InputError
from dpca.settings import INPUT


@dataclass(frozen=True)
class _Format:
    """A format that is not read."""

    what: str
    made: str
    """Suffix of what the command makes."""
    command: str
    """A statement of Python, or a command of PLINK 2; words in capitals stand for paths and options (`_words`)."""
    then: str = ""
    """Further advice, as a sentence."""


def _saved(module: str, values: str) -> str:
    """The statement that saves values as .npy."""
    return f"import numpy, {module}; numpy.save(MADE, {values})"


_ALLELES = "--max-alleles 2 --set-missing-var-ids @:# --allow-extra-chr --make-bed --out STEM"
_FORMATS: Mapping[str, _Format] = {
    ".feather": _Format("a table of Arrow", ".npy", _saved("pandas", "pandas.read_feather(PATH).select_dtypes('number').to_numpy()")),
    ".npz": _Format(
        "an archive of NumPy", ".npy", "import numpy; numpy.save(MADE, numpy.load(PATH)['NAME'])", "NAME is that of an array in it."
    ),
    ".mat": _Format(
        "a file of MATLAB before 7.3", ".npy", _saved("scipy.io", "scipy.io.loadmat(PATH)['NAME']"), "NAME is that of a variable."
    ),
    ".rds": _Format("an object of R", ".npy", _saved("rdata", "rdata.read_rds(PATH)")),
    ".rda": _Format("a file of R", ".npy", _saved("rdata", "rdata.read_rda(PATH)['NAME']"), "NAME is that of an object."),
    ".vcf": _Format(
        "a VCF", ".bed", f"plink2 --vcf PATH {_ALLELES}", "Or, with all alleles, vcf2zarr convert of bio2zarr makes a VCF Zarr."
    ),
    ".bcf": _Format("a BCF", ".bed", f"plink2 --bcf PATH {_ALLELES}"),
    ".bgen": _Format(
        "a BGEN", ".bed", f"plink2 --bgen PATH ref-first PEOPLE {_ALLELES}", "Genotypes that are not certain are missing there."
    ),
    ".mtx": _Format(
        "a sparse matrix in text",
        ".h5ad",
        "import anndata, scipy.io, scipy.sparse; anndata.AnnData(scipy.sparse.csr_matrix(scipy.io.mmread(PATH))).write_h5ad(MADE)",
        f"Where its columns are samples, as 10x has cells, set {INPUT.samples_axis.at(1)}.",
    ),
}  # fmt: skip
"""Formats by suffix, in lower case."""
_ALSO = {".rdata": ".rda"}
_MAGICS = {
    b"GRIB": ".grib",
    b"##filefo": ".vcf",
    b"%%Matrix": ".mtx",
}
"""How files begin."""


def known_by(head: bytes) -> str | None:
    """The format of a file that begins with these bytes, if it is one of those here."""
    return next((kind for magic, kind in _MAGICS.items() if head.startswith(magic)), None)


def refusal(path: str, kind: str | None = None) -> InputError:
    """The error for a file that is not read, with the command that converts it.

    Parameters
    ----------
    kind : its format, if its content tells; None to take it from its name
    """
    kind = kind or _split(path)[1]
    if kind in (".grib", ".grb", ".grib2", ".grb2"):
        return InputError(
            f"{path}: is a file of GRIB, which xarray's engine cfgrib opens",
            f"{INPUT.engine.set_to('cfgrib')}, after pip install cfgrib eccodes.",
            key="input.engine",
        )
    form = _FORMATS.get(kind)
    read = "is neither Zarr nor HDF5 nor netCDF nor .npy nor .bed"
    if form is None:
        return InputError(
            f"{path}: {read}", "Convert it to one of them: numpy.save('x.npy', VALUES) does in Python.", key="input.uri"
        )
    problem = f"{path}: {read}, but {form.what}"
    stem = _split(path)[0]
    made = f"{stem}{'-converted' if stem + form.made == path else ''}{form.made}"
    remedy = f"Convert it by `{_command(form, path, made)}`, and set {INPUT.uri.at(made)}."
    return InputError(problem, f"{remedy} {form.then}".strip(), key="input.uri")


def _command(form: _Format, path: str, made: str) -> str:
    """The command that converts a file, in words of a shell."""
    in_python = form.command.startswith("import ")
    stem, quoted = _split(path)[0], json.dumps if in_python else shlex.quote
    words = {"PATH": quoted(path), "STEM": quoted(stem), "MADE": quoted(made)}
    words["PEOPLE"] = f"--sample {quoted(stem)}.sample" if os.path.exists(f"{stem}.sample") else ""
    text = re.sub("|".join(words), lambda match: words[match[0]], form.command.replace("'", '"'))
    text = text.replace(", )", ")").replace("  ", " ")
    return f"python -c {shlex.quote(text)}" if in_python else text


def _split(path: str) -> tuple[str, str]:
    """A path without the suffix of its format, and this suffix, in lower case; of x.vcf.gz x and .vcf."""
    stem, suffix = os.path.splitext(path)
    if suffix.lower() in (".gz", ".bgz", ".zst"):
        stem, suffix = os.path.splitext(stem)
    return stem, _ALSO.get(suffix.lower(), suffix.lower())
