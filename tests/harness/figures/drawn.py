"""Reading a drawn figure back: titles, texts, bars and lines."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from harness.analysis.cells import CellLike
from harness.figures import registry, style
from harness.figures.drawing import Drawing
from harness.tables.sources import Sources


def drawing(name: str, here: Sequence[CellLike] = (), shipped: Sequence[CellLike] = ()) -> Drawing:
    """A figure laid out as it would be written."""
    with style.styled():
        found = registry.FIGURES[name](Sources.of(here, shipped))
        found.figure.draw_without_rendering()
    return found


def texts(axes: Axes) -> list[str]:
    """Every text placed in the axes."""
    return [text.get_text() for text in axes.texts]


def bars(axes: Axes) -> list[Rectangle]:
    """Every bar of some size."""
    return [
        patch
        for patch in axes.patches
        if isinstance(patch, Rectangle) and patch.get_width() and patch.get_height()
    ]


def ends(patches: Sequence[Rectangle]) -> list[float]:
    """Where horizontal bars end, ascending."""
    return sorted(round(patch.get_x() + patch.get_width(), 6) for patch in patches)


def drawn_axes(figure: Figure) -> list[Axes]:
    """Axes that show something."""
    return [axes for axes in figure.axes if axes.axison]
