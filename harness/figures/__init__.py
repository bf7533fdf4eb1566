"""The paper's figures and those drawn from what it only tabulates, as PDF, SVG and PNG."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from harness.analysis import output
from harness.analysis.cells import CellLike
from harness.figures import registry, style
from harness.figures.drawing import NothingToDraw

INDEX = "figures.md"


def render_all(
    cells: Iterable[CellLike], shipped_cells: Iterable[CellLike], out_dir: Path
) -> list[Path]:
    """Write every figure that the cells allow to `out_dir`, and an index with captions.

    The same cells give the same bytes. A figure with nothing to show is not written, an earlier
    one of its name is removed, and the index gives the reason. Raises HarnessError when a file
    cannot be written.
    """
    here = sorted(cells, key=lambda cell: cell.id)
    shipped = sorted(shipped_cells, key=lambda cell: cell.id)
    written: list[Path] = []
    lines = ["# Figures", ""]
    with style.styled():
        for name, draw in registry.FIGURES.items():
            try:
                drawing = draw(here, shipped)
            except NothingToDraw as reason:
                _remove(out_dir, name)
                lines.append(f"- {name}: not drawn. {reason}")
                continue
            for fmt in style.FORMATS:
                data = style.encode(drawing.figure, fmt)
                written.append(output.write(out_dir / f"{name}.{fmt}", data))
            lines.append(f"- [{name}]({name}.svg): {drawing.caption}")
    written.append(output.write(out_dir / INDEX, ("\n".join(lines) + "\n").encode("utf-8")))
    return written


def _remove(out_dir: Path, name: str) -> None:
    for fmt in style.FORMATS:
        (out_dir / f"{name}.{fmt}").unlink(missing_ok=True)
