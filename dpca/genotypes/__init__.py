"""Genotypes: formats of dosages, what is known of variants and people, and which variants a config chooses. Other rooms of data know nothing of these."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dpca.sources.base import Source
from dpca.sources.coordinate import Vector
from dpca.sources.formats import FileFormat, GroupFormat, register

BED_MAGIC = b"\x6c\x1b"
PGEN_MODES = (b"\x02", b"\x03", b"\x04", b"\x10", b"\x11", b"\x20", b"\x21")
"""Third bytes of a .pgen, which begins as a .bed (specification of PLINK 2 binary files)."""
CALLS = "call_genotype"
"""The array of a VCF Zarr that holds its calls."""


def _is_pgen(_: str, head: bytes) -> bool:
    return head.startswith(BED_MAGIC) and head[2:3] in PGEN_MODES


def _open_pgen(path: str) -> Source:
    from dpca.genotypes.pgen import PgenSource

    return PgenSource(path)


def _is_bed(path: str, head: bytes) -> bool:
    return head.startswith(BED_MAGIC) or path.endswith(".bed")


def _open_bed(path: str) -> Source:
    from dpca.genotypes.plink import BedSource

    return BedSource(path)


def _open_calls(calls: Source, beside: Callable[[str], Vector | None], settings: Mapping[str, Any]) -> Source:
    from dpca.genotypes.vcf_zarr import VcfZarrSource

    return VcfZarrSource(calls, beside, settings.get("multiallelic", "error"))


register(FileFormat("pgen", _is_pgen, _open_pgen))
register(FileFormat("bed", _is_bed, _open_bed))
register(GroupFormat(CALLS, _open_calls))
