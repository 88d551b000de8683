"""Formats that are converted before they are read: how each is known, and a command that converts it."""

from __future__ import annotations

import gzip
import json
import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dpca.errors import InputError
from dpca.settings import INPUT
from dpca.system import regular

HEAD_BYTES = 2**12
"""Size of the part of a table that is read to know whether it has a header."""


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
_NUMBERS = ".select_dtypes('number').to_numpy()"
_PICTURE = "Each picture is a sample: name all of them in that list."
_FORMATS: Mapping[str, _Format] = {
    ".csv": _Format("a table of text", ".npy", _saved("pandas", f"pandas.read_csv(PATH, HEADER){_NUMBERS}")),
    ".tsv": _Format("a table of text", ".npy", _saved("pandas", f"pandas.read_csv(PATH, sep=TAB, HEADER){_NUMBERS}")),
    ".parquet": _Format("a table of Parquet", ".npy", _saved("pandas", f"pandas.read_parquet(PATH){_NUMBERS}")),
    ".feather": _Format("a table of Arrow", ".npy", _saved("pandas", f"pandas.read_feather(PATH){_NUMBERS}")),
    ".npz": _Format(
        "an archive of NumPy", ".npy", "import numpy; numpy.save(MADE, numpy.load(PATH)['NAME'])", "NAME is that of an array in it."
    ),
    ".mat": _Format(
        "a file of MATLAB before 7.3", ".npy", _saved("scipy.io", "scipy.io.loadmat(PATH)['NAME']"), "NAME is that of a variable."
    ),
    ".rds": _Format("an object of R", ".npy", _saved("rdata", "rdata.read_rds(PATH)")),
    ".rda": _Format("a file of R", ".npy", _saved("rdata", "rdata.read_rda(PATH)['NAME']"), "NAME is that of an object."),
    ".pgen": _Format("a file of PLINK 2", ".bed", f"plink2 --pfile STEM PACKED {_ALLELES}"),
    ".vcf": _Format(
        "a VCF", ".bed", f"plink2 --vcf PATH {_ALLELES}", "Or, with all alleles, vcf2zarr convert of bio2zarr makes a VCF Zarr."
    ),
    ".bcf": _Format("a BCF", ".bed", f"plink2 --bcf PATH {_ALLELES}"),
    ".bgen": _Format(
        "a BGEN", ".bed", f"plink2 --bgen PATH ref-first PEOPLE {_ALLELES}", "Genotypes that are not certain are missing there."
    ),
    ".nii": _Format(
        "an image of NIfTI",
        ".npy",
        _saved("nibabel", "[nibabel.load(one).get_fdata(dtype='f4') for one in [PATH]]"),
        f"Each image is a sample: name all of them in that list; of one image along time set {INPUT.samples_axis.at(4)}.",
    ),
    ".mtx": _Format(
        "a sparse matrix in text",
        ".h5ad",
        "import anndata, scipy.io, scipy.sparse; anndata.AnnData(scipy.sparse.csr_matrix(scipy.io.mmread(PATH))).write_h5ad(MADE)",
        f"Where its columns are samples, as 10x has cells, set {INPUT.samples_axis.at(1)}.",
    ),
    ".png": _Format("a picture", ".npy", _saved("PIL.Image", "[numpy.asarray(PIL.Image.open(one).convert('L')) for one in [PATH]]"), _PICTURE),
    ".jpg": _Format("a picture", ".npy", _saved("PIL.Image", "[numpy.asarray(PIL.Image.open(one).convert('L')) for one in [PATH]]"), _PICTURE),
    ".tif": _Format("pictures of TIFF", ".npy", _saved("tifffile", "tifffile.imread([PATH])"), "Of several files name all in that list."),
    ".grib": _Format("a file of GRIB", ".nc", "import xarray; xarray.open_dataset(PATH, engine='cfgrib').to_netcdf(MADE)"),
    "10x": _Format("a matrix of 10x Genomics", ".h5ad", "import scanpy; scanpy.read_10x_h5(PATH).write_h5ad(MADE)"),
}  # fmt: skip
"""Formats by suffix, in lower case; 10x is a layout of HDF5."""
_ALSO = {
    ".tab": ".tsv", ".rdata": ".rda", ".jpeg": ".jpg", ".tiff": ".tif", ".grb": ".grib", ".grib2": ".grib", ".grb2": ".grib"
}  # fmt: skip
_MAGICS = {
    b"PAR1": ".parquet",
    b"GRIB": ".grib",
    b"##filefo": ".vcf",
    b"%%Matrix": ".mtx",
    b"\x89PNG": ".png",
    b"\xff\xd8\xff": ".jpg",
    b"II*\0": ".tif",
    b"MM\0*": ".tif",
    **{b"\x6c\x1b" + bytes([mode]): ".pgen" for mode in (0x10, 0x11, 0x20, 0x21)},
}
"""How files begin; a .pgen as a .bed, but for its third byte (specification of PLINK 2 binary files)."""


def known_by(head: bytes) -> str | None:
    """The format of a file that begins with these bytes, if it is one of those here."""
    return next((kind for magic, kind in _MAGICS.items() if head.startswith(magic)), None)


def refusal(path: str, kind: str | None = None) -> InputError:
    """The error for a file that is not read, with the command that converts it.

    Parameters
    ----------
    kind : its format, if its content tells; None to take it from its name
    """
    form = _FORMATS.get(kind or _split(path)[1])
    read = "is neither Zarr nor HDF5 nor netCDF nor .npy nor .bed"
    if form is None:
        return InputError(
            f"{path}: {read}", "Convert it to one of them: numpy.save('x.npy', VALUES) does in Python.", key="input.uri"
        )
    problem = f"{path}: {'is' if kind == '10x' else read + ', but'} {form.what}"
    stem = _split(path)[0]
    made = f"{stem}{'-converted' if stem + form.made == path else ''}{form.made}"
    remedy = f"Convert it by `{_command(form, path, made)}`, and set {INPUT.uri.at(made)}."
    return InputError(problem, f"{remedy} {form.then}".strip(), key="input.uri")


def _command(form: _Format, path: str, made: str) -> str:
    """The command that converts a file, in words of a shell."""
    in_python = form.command.startswith("import ")
    words, stem = _words(form, path), _split(path)[0]
    quoted = json.dumps if in_python else shlex.quote
    words |= {"PATH": quoted(path), "STEM": quoted(stem), "MADE": quoted(made)}
    text = re.sub("|".join(words), lambda match: words[match[0]], form.command.replace("'", '"'))
    text = text.replace(", )", ")").replace("  ", " ")
    return f"python -c {shlex.quote(text)}" if in_python else text


def _words(form: _Format, path: str) -> dict[str, Any]:
    """The options that depend on what is in a file, or beside it."""
    stem = _split(path)[0]
    return {
        "TAB": r'"\t"',
        "HEADER": "" if "HEADER" not in form.command or _has_header(path) else "header=None",
        "PACKED": "vzs" if os.path.exists(f"{stem}.pvar.zst") else "",
        "PEOPLE": f"--sample {shlex.quote(stem)}.sample" if os.path.exists(f"{stem}.sample") else "",
    }


def _has_header(path: str) -> bool:
    """Whether the first line of a table has a word that is no number."""
    try:
        with regular.opened(path) as file:
            packed = file.peek(2).startswith(b"\x1f\x8b")
            content = (gzip.GzipFile(fileobj=file) if packed else file).read(HEAD_BYTES)
    except (OSError, EOFError):
        return True
    words = re.split(r"[,;\t]", content.decode(errors="replace").partition("\n")[0])
    return not all(re.fullmatch(r"[-+.\deE]*|nan|NaN|NA", word.strip().strip('"')) for word in words)


def _split(path: str) -> tuple[str, str]:
    """A path without the suffix of its format, and this suffix, in lower case; of x.vcf.gz x and .vcf."""
    stem, suffix = os.path.splitext(path)
    if suffix.lower() in (".gz", ".bgz", ".zst"):
        stem, suffix = os.path.splitext(stem)
    return stem, _ALSO.get(suffix.lower(), suffix.lower())
