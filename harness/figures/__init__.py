"""The paper's figures and those drawn from what it only tabulates, as PDF, SVG and PNG."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.analysis import output
from harness.analysis.cells import CellLike
from harness.figures import registry, style
from harness.figures.drawing import NothingToDraw
from harness.tables.sources import Sources

INDEX = "figures.md"


@dataclass(frozen=True)
class Encoded:
    """One figure as bytes by format; without any, `caption` is the reason."""

    name: str
    caption: str
    files: dict[str, bytes] = field(default_factory=dict)


def encode_all(
    cells: Iterable[CellLike],
    shipped_cells: Iterable[CellLike],
    formats: Sequence[str] = style.FORMATS,
) -> list[Encoded]:
    """Every figure in each format. The same cells give the same bytes."""
    sources = Sources.of(
        sorted(cells, key=lambda cell: cell.id), sorted(shipped_cells, key=lambda cell: cell.id)
    )
    found = []
    with style.styled():
        for name, draw in registry.FIGURES.items():
            try:
                drawing = draw(sources)
            except NothingToDraw as reason:
                found.append(Encoded(name, str(reason)))
                continue
            style.settle(drawing.figure)
            files = {fmt: style.encode(drawing.figure, fmt) for fmt in formats}
            found.append(Encoded(name, drawing.caption, files))
    return found


def write_all(encoded: Iterable[Encoded], out_dir: Path) -> list[Path]:
    """Write the figures to `out_dir`, and an index with captions; returns the paths in that order.

    A figure with nothing to show is not written, an earlier one of its name is removed, and the
    index gives the reason. Raises HarnessError when a file cannot be written.
    """
    written: list[Path] = []
    lines = ["# Figures", ""]
    for figure in encoded:
        for fmt, data in figure.files.items():
            written.append(output.write(out_dir / f"{figure.name}.{fmt}", data))
        if figure.files:
            lines.append(f"- [{figure.name}]({figure.name}.svg): {figure.caption}")
        else:
            _remove(out_dir, figure.name)
            lines.append(f"- {figure.name}: not drawn. {figure.caption}")
    written.append(output.write(out_dir / INDEX, ("\n".join(lines) + "\n").encode("utf-8")))
    return written


def render_all(
    cells: Iterable[CellLike], shipped_cells: Iterable[CellLike], out_dir: Path
) -> list[Path]:
    """Draw and write every figure that the cells allow."""
    return write_all(encode_all(cells, shipped_cells), out_dir)


def _remove(out_dir: Path, name: str) -> None:
    for fmt in style.FORMATS:
        (out_dir / f"{name}.{fmt}").unlink(missing_ok=True)
