"""Builds the page from cells. The same cells give the same bytes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from harness import paper
from harness.analysis import output
from harness.analysis.cells import CellLike, by_hardware, standing
from harness.figures import Encoded
from harness.report import claims, explorers, figures, notes, tables
from harness.report.cells import Registry
from harness.tables.sources import FUNCTIONAL_TITLE, Sources

PAGE = Path(__file__).with_name("page")
NAME = "report.html"
SCRIPTS = ("core.js", "details.js", "tables.js", "layout.js", "dispatch.js", "laws.js")
"""In this order; each adds to what the ones before define."""


def render(
    cells: Iterable[CellLike],
    shipped: Iterable[CellLike],
    out_dir: Path,
    drawn: Sequence[Encoded] | None = None,
) -> Path:
    """Write `out_dir`/report.html and return its path.

    cells: measured on this machine; shipped: measured elsewhere and kept with the project. drawn:
    the figures of these cells, where they are there already. The page needs no network and no other
    file. Raises HarnessError when it cannot be written.
    """
    sources = Sources.of(
        sorted(cells, key=lambda cell: cell.id), sorted(shipped, key=lambda cell: cell.id)
    )
    return output.write(out_dir / NAME, page(sources, drawn).encode("utf-8"))


def page(sources: Sources, drawn: Sequence[Encoded] | None = None) -> str:
    """The page as text."""
    registry = Registry.of(sources)
    views = tables.views(sources, registry)
    data = {
        "cells": registry.entries(),
        "details": [view.details for view in views],
        "explore": explorers.data(sources),
    }
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            css=Markup(_read("report.css")),
            script=Markup("\n".join(_read(name) for name in SCRIPTS)),
            data=Markup(_json(data)),
            tables=views,
            figures=figures.drawn(sources, drawn),
            claims=claims.rows(sources),
            notes=notes.rows(),
            origins=_origins(sources),
            paper_hardware=paper.HARDWARE,
            explore=data["explore"],
        )
    )


def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(PAGE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def _read(name: str) -> str:
    return (PAGE / name).read_text("utf-8")


def _json(data: Any) -> str:
    """JSON that can stand in a script element: nothing in it can end the element."""
    text = json.dumps(data, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _origins(sources: Sources) -> list[dict[str, str]]:
    """What each group of columns is, and how many cells are behind it."""
    found = []
    for key, cells in (("shipped", sources.shipped), ("here", sources.here)):
        groups = by_hardware(cells)
        if not groups:
            found.append({"name": key, "text": _absent(key)})
        for members in groups.values():
            at = standing(members[0])
            valid = sum(1 for cell in members if cell.valid)
            title = FUNCTIONAL_TITLE if at.functional else at.title
            speed = " It says nothing about speed, so no ratio is formed." if at.functional else ""
            text = f"{title}: {valid:,} valid of {len(members):,} cells.{speed}"
            found.append({"name": key, "text": text})
    return found


def _absent(key: str) -> str:
    if key == "shipped":
        return "No measured cell is kept with the project yet."
    return "No cell was measured on this machine: make reproduce."
