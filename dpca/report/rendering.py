"""The pages of reports, each one HTML file, and what is in all of them. The only file that knows Jinja and Bokeh (extra `report`).

Of Bokeh only its JavaScript is used, which the page holds: importing the package would take longer than drawing.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import deflate
from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup
from ruamel.yaml import YAML

from dpca.errors import writing
from dpca.report.marks import Figure, Table
from dpca.report.payload import LEVEL, packed
from dpca.report.static import as_svg
from dpca.sources.credentials import check_local
from dpca.system import durable
from dpca.units import describe_memory

SCRIPTS = ("bokeh.min.js", "bokeh-api.min.js")
_BOKEH = find_spec("bokeh")
if _BOKEH is None or not _BOKEH.submodule_search_locations:
    raise ModuleNotFoundError("No module named 'bokeh'", name="bokeh")


def write_page(template: str, contents: dict[str, Any], place: Path, tables: Mapping[str, Table] | None = None) -> Path:
    """Fill a template with contents, and write the page; returns its place.

    Parameters
    ----------
    tables : rows that figures show, by the names that these call them
    """
    check_local(place, "path")
    drawings = _Drawings(tables or {})
    loader = FunctionLoader(lambda name: (files("dpca.report") / name).read_text(encoding="utf-8"))
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, loader=loader)
    text = environment.get_template(template).render(contents, drawings=drawings)
    with writing(str(place)):
        durable.write(place, lambda file: file.write(text.encode()))
    return place


class _Drawings:
    """The figures of a page, in the order in which it shows them."""

    def __init__(self, tables: Mapping[str, Table]) -> None:
        self._tables, self._figures, self._kinds = tables, list[Figure](), set[str]()

    def show(self, figure: Figure) -> Markup:
        """Where a figure is drawn; the first of each kind as a picture, too."""
        number = len(self._figures)
        self._figures.append(figure)
        picture = Markup('<p class="waiting">An interactive figure: {}.</p>').format(figure.about or figure.name)
        if figure.kind not in self._kinds:
            self._kinds.add(figure.kind)
            picture = Markup(f'<div class="static">{as_svg(figure, self._tables)}</div>')
        name = Markup.escape(figure.name)
        return Markup(f'<div class="plot" id="plot.{name}" data-figure="{number}">{picture}</div>')

    @property
    def packed(self) -> Markup:
        """All figures that were shown."""
        return _as_text(packed(self._figures, self._tables))

    @property
    def library(self) -> Markup:
        """Library that draws them, compressed."""
        return _as_text(bytes(deflate.zlib_compress(_library(), LEVEL)))

    @property
    def script(self) -> Markup:
        """Script that reads both."""
        return Markup(_script())

    @property
    def policy(self) -> Markup:
        """Policy of the page: it loads nothing, and runs these two scripts, by their hashes (Content Security Policy, level 3)."""
        hashes = (base64.b64encode(sha256(text).digest()).decode() for text in (_script().encode(), _library()))
        scripts = " ".join(f"'sha256-{one}'" for one in hashes)
        return Markup(
            f"default-src 'none'; script-src {scripts}; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'"
        )


def _script() -> str:
    return (files("dpca.report") / "page.js").read_text(encoding="utf-8")


@cache
def _library() -> bytes:
    assert _BOKEH is not None
    assert _BOKEH.submodule_search_locations is not None
    place = Path(_BOKEH.submodule_search_locations[0]) / "server" / "static" / "js"
    return b"\n".join((place / name).read_bytes() for name in SCRIPTS)


def _as_text(block: bytes) -> Markup:
    return Markup(base64.b64encode(block).decode())


def link_to(identifier: str) -> Markup:
    """A link to the part of the page with this id, which it is called by."""
    return Markup('<a href="#{0}">{0}</a>').format(identifier)


def memory_of(manifest: dict[str, Any]) -> list[list[str]]:
    """Planned and measured memory, for each stage of this process and for each process."""
    if (memory := manifest["memory"]) is None:
        return []
    peaks = memory["peak_bytes_of_stages"]
    rows = [
        [name, describe_memory(planned), describe_memory(peaks[name]) if name in peaks else "-", ""]
        for name, planned in memory["planned_bytes_of_stages"].items()
    ]
    for number, (name, planned) in enumerate(memory["planned_bytes"].items()):
        peak = describe_memory(memory["peak_bytes_of_this_process"]) if not number else "-"
        rows.append([f"{name}, in all", describe_memory(planned), peak, describe_memory(memory["budget_bytes"][name])])
    return rows


def as_yaml(config: dict[str, Any]) -> str:
    """A config as a file, from which it can be repeated."""
    written = io.StringIO()
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.dump(_plain(config), written)
    return written.getvalue()


def _plain(value: Any) -> Any:
    """The config without values that are not set, so that the file is easy to read and valid."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items() if item not in (None, {}, [])}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value
