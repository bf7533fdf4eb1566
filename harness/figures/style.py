"""How every figure looks and how it is written: the same figure always gives the same bytes."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

# Okabe and Ito's colours, told apart with the common colour blindnesses; markers differ as well.
BLACK = "#000000"
GREY = "#6f6f6f"
BLUE = "#0072B2"
SKY = "#56B4E9"
GREEN = "#009E73"
ORANGE = "#E69F00"
VERMILION = "#D55E00"
PURPLE = "#CC79A7"
YELLOW = "#F0E442"

SYSTEM_COLOURS = {
    "sglang_default": GREY,
    "sglang_fa3": GREEN,
    "sglang_cascade": BLUE,
    "granikv": VERMILION,
}
BACKEND_COLOURS = {"dense": VERMILION, "cascade": BLUE, "paged": "#c4c4c4"}
SYSTEM_MARKERS = {"sglang_default": "s", "sglang_fa3": "D", "sglang_cascade": "^", "granikv": "o"}

FORMATS = ("pdf", "svg", "png")
DPI = 200

_RC: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9.0,
    "axes.titlesize": 10.0,
    "axes.labelsize": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.linewidth": 0.8,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "lines.linewidth": 1.6,
    "lines.markersize": 5.5,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "svg.hashsalt": "granikv",
    "svg.fonttype": "path",
    "pdf.fonttype": 42,
    "path.simplify": False,
}
# Without these each file would hold the time at which it was written.
_METADATA: dict[str, dict[str, str | None]] = {
    "pdf": {"CreationDate": None, "Producer": None, "Creator": None},
    "svg": {"Date": None, "Creator": None},
    "png": {"Software": None},
}


@contextmanager
def styled() -> Iterator[None]:
    """Figures made and written inside look alike, whatever a user's matplotlibrc says."""
    with mpl.rc_context():
        mpl.rcdefaults()
        cast("Any", mpl.rcParams).update(_RC)
        yield


def settle(figure: Figure) -> None:
    """Lay the figure out once, for all formats; call inside `styled()`.

    The solver's last bits depend on the order of its hashes, and ids in an SVG on those bits.
    """
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    for axes in figure.axes:
        x, y, width, height = (round(bound, 6) for bound in axes.get_position().bounds)
        axes.set_position((x, y, width, height))


def encode(figure: Figure, fmt: str) -> bytes:
    """The figure as the bytes of a pdf, svg or png file. Call inside `styled()`."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format=fmt, dpi=DPI, metadata=_METADATA[fmt], bbox_inches="tight")
    return buffer.getvalue()


def figure(width: float, height: float) -> Figure:
    """An empty figure, inches; matplotlib's constrained engine keeps it free of overlaps."""
    return Figure(figsize=(width, height), layout="constrained")


def describe(axes: Axes, *, title: str, x: str, y: str) -> None:
    """Title and axis labels; a label names its unit. Symbols are set as the paper sets them."""
    axes.set_title(typeset(title), loc="left")
    axes.set_xlabel(typeset(x))
    axes.set_ylabel(typeset(y))


def typeset(text: str) -> str:
    """Plain names of the paper's symbols as mathematics."""
    for plain, symbol in (("L_p", "$L_p$"), ("f_p", "$f_p$"), ("M_eff", "$M_{eff}$")):
        text = text.replace(plain, symbol)
    return text.replace("M_sat", "$M_{sat}$").replace("s_eff", "$s_{eff}$")


def ink(background: tuple[float, float, float, float]) -> str:
    """Black or white, whichever reads better on a colour (RGBA in [0, 1])."""
    red, green, blue, _ = background
    return BLACK if 0.299 * red + 0.587 * green + 0.114 * blue > 0.55 else "white"
