"""The paper's tables: paper, shipped and here side by side, as CSV, Markdown and LaTeX."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from harness.analysis import output
from harness.analysis.cells import CellLike
from harness.tables import registry, render
from harness.tables.sources import Sources


def render_all(
    cells: Iterable[CellLike], shipped_cells: Iterable[CellLike], out_dir: Path
) -> list[Path]:
    """Write every table to `out_dir` as tableNN.csv, .md and .tex; returns the paths in that order.

    cells: measured on this machine; shipped_cells: measured elsewhere and kept with the project.
    The same cells give the same bytes. Raises HarnessError when a file cannot be written.
    """
    sources = Sources.of(cells, shipped_cells)
    written: list[Path] = []
    for build in registry.builders().values():
        table = build(sources)
        for ending, text in (
            ("csv", render.csv(table)),
            ("md", render.to_markdown(table)),
            ("tex", render.to_latex(table)),
        ):
            written.append(output.write(out_dir / f"{table.stem}.{ending}", text.encode("utf-8")))
    return written
