"""The pages of reports, each one HTML file, and what is in all of them. The only file that imports Jinja (extra `report`)."""

from __future__ import annotations

import io
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup
from ruamel.yaml import YAML

from dpca.errors import writing
from dpca.system import durable
from dpca.units import describe_memory


def write_page(template: str, contents: dict[str, Any], place: Path) -> Path:
    """Fill a template with contents, and write the page; returns its place."""
    loader = FunctionLoader(lambda name: (files("dpca.report") / name).read_text(encoding="utf-8"))
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, loader=loader)
    text = environment.get_template(template).render(contents)
    with writing(str(place)):
        durable.write(place, lambda file: file.write(text.encode()))
    return place


def link_to(identifier: str) -> Markup:
    """A link to the part of the page with this id, which it is called by."""
    return Markup('<a href="#{0}">{0}</a>').format(identifier)


def memory_of(manifest: dict[str, Any]) -> list[list[str]]:
    """Planned and measured memory, for each stage of this process and for each process."""
    memory = manifest["memory"]
    peaks = memory.get("peak_bytes_of_stages", {})
    rows = [
        [name, describe_memory(planned), describe_memory(peaks[name]) if name in peaks else "-", ""]
        for name, planned in memory.get("planned_bytes_of_stages", {}).items()
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
