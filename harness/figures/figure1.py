"""Figure 1: both storage layouts of the prefix on the roofline (B.11, Table 23)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes

from harness import paper
from harness.analysis import roofline
from harness.analysis.cells import CellLike, standing
from harness.analysis.roofline import Ceilings, Placement
from harness.figures import style
from harness.figures.drawing import Drawing
from harness.tables.sources import Sources

PAPER_CASES = {"paged": "unique (paged)", "HOT": "shared (HOT)"}
PAPER_READS = {"paged": "unshared", "HOT": "shared"}
"""Who reads in the paper's two cases; it has none that changes storage or reading alone."""
LAYOUT_NAMES = {"paged": "paged", "HOT": "HOT slab"}
READ_NAMES = {"unshared": "every row reads the prefix", "shared": "read once"}
LAYOUT_MARKERS = {"paged": "s", "HOT": "o"}
READ_COLOURS = {"unshared": style.VERMILION, "shared": style.GREEN}
PAPER_PROFILE = "a100_40gb"

_INTENSITY = (1.0, 4000.0)
CACHED = 2.0
"""Measured intensity over the byte model's from which caches served most reads."""
_ROOF_STYLES = ((style.BLUE, "--"), (style.PURPLE, "-."), (style.ORANGE, ":"))


@dataclass(frozen=True)
class Point:
    """One kernel on the plot: intensity in FLOP/byte, useful TFLOP/s, and its device's roofs.

    read: `shared` once for all rows, or `unshared`. modelled: the byte model's intensity where the
    cell states its shape.
    """

    layout: str
    read: str
    origin: str
    intensity: float
    tflops: float
    ceilings: Ceilings
    modelled: float | None = None

    @property
    def name(self) -> str:
        """Storage and who reads, in words."""
        return f"{LAYOUT_NAMES[self.layout]}: {READ_NAMES[self.read]}"

    @property
    def of_roof(self) -> float:
        """Share of the attainable TFLOP/s at this intensity."""
        return self.tflops / self.ceilings.roof_tflops(self.intensity)


def paper_ceilings() -> Ceilings:
    """The A100's roofs as Figure 1 states them."""
    caption = paper.figure(1)
    peak, bandwidth = (paper.value(caption, metric=m) for m in ("peak_tflops", "hbm_gb_s"))
    return Ceilings(
        PAPER_PROFILE,
        f"A100 40 GB, paper ({peak:,.0f} TFLOP/s, {bandwidth:,.0f} GB/s)",
        peak,
        bandwidth,
    )


def paper_points() -> list[Point]:
    """Both layouts as Table 23 prints them."""
    frame, roofs = paper.table(23), paper_ceilings()
    return [
        Point(
            layout,
            PAPER_READS[layout],
            "paper",
            paper.value(frame, case=case, metric="intensity"),
            paper.value(frame, case=case, metric="throughput"),
            roofs,
        )
        for layout, case in PAPER_CASES.items()
    ]


def measured_points(cells: Sequence[CellLike], roofs: dict[str, Ceilings]) -> list[Point]:
    """Cells with kernel counters, on devices with known roofs. A CPU cell is never one."""
    points = []
    for cell in cells:
        at = standing(cell)
        placement = roofline.placement(cell)
        if placement is not None and cell.valid and not at.functional and at.hardware in roofs:
            points.append(_point(cell, placement, roofs[at.hardware]))
    return points


def _point(cell: CellLike, placed: Placement, roofs: Ceilings) -> Point:
    read, shape = standing(cell).read, roofline.shape_of(cell)
    modelled = None if shape is None else shape.intensity(shared=read == "shared")
    return Point(placed.layout, read, roofs.title, placed.intensity, placed.tflops, roofs, modelled)


def other_ceilings() -> dict[str, Ceilings]:
    """Roofs of this project's hardware profiles, the paper's own device left out."""
    found = roofline.read_ceilings(paper.ROOT / "conf" / "hardware")
    return {name: roofs for name, roofs in found.items() if name != PAPER_PROFILE}


def _roof(axes: Axes, roofs: Ceilings, colour: str, dashes: str, title: str) -> None:
    x = np.array([_INTENSITY[0], roofs.ridge, _INTENSITY[1]])
    y = [roofs.roof_tflops(value) for value in x]
    axes.plot(x, y, color=colour, linestyle=dashes, label=title, zorder=2)


def _title(roofs: Ceilings) -> str:
    peak, bandwidth = f"{roofs.peak_tflops:,.0f} TFLOP/s", f"{roofs.bandwidth_gbps:,.0f} GB/s"
    return f"{roofs.title}, hardware profile ({peak}, {bandwidth})"


def _mark(axes: Axes, point: Point) -> None:
    hollow, colour = point.origin != "paper", READ_COLOURS[point.read]
    axes.plot(
        [point.intensity],
        [point.tflops],
        linestyle="none",
        marker=LAYOUT_MARKERS[point.layout],
        markersize=9,
        markerfacecolor="none" if hollow else colour,
        markeredgecolor=colour,
        markeredgewidth=1.8,
        label=f"{point.name} ({point.origin})",
        zorder=4,
    )
    roof = point.ceilings.roof_tflops(point.intensity)
    axes.plot(
        [point.intensity] * 2,
        [point.tflops, roof],
        color=colour,
        linewidth=0.9,
        linestyle=(0, (2, 2)),
        zorder=1,
    )


def _annotate(axes: Axes, point: Point) -> None:
    bound = "memory roof" if point.intensity < point.ceilings.ridge else "matrix peak"
    text = (
        f"{point.intensity:,.3g} FLOP/byte\n{point.tflops:,.3g} TFLOP/s\n"
        f"{point.of_roof:.0%} of the {bound}"
    )
    below = point.layout == "HOT"
    axes.annotate(
        text,
        (point.intensity, point.tflops),
        xytext=(0, -8) if below else (12, -4),
        textcoords="offset points",
        ha="center" if below else "left",
        va="top",
        fontsize=8,
        color=READ_COLOURS[point.read],
    )


def _ridge(axes: Axes, roofs: Ceilings) -> None:
    axes.annotate(
        f"ridge\n{roofs.ridge:,.0f} FLOP/byte",
        (roofs.ridge, roofs.peak_tflops),
        xytext=(8, -8),
        textcoords="offset points",
        fontsize=8,
        va="top",
    )


def _scales(axes: Axes) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(*_INTENSITY)
    axes.set_ylim(1.0, 1500.0)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.grid(True, which="major")


def draw(sources: Sources) -> Drawing:
    """The roofline. Cells add points only where they hold kernel counters of a profiled GPU."""
    roofs = other_ceilings()
    measured = measured_points([*sources.shipped, *sources.here], roofs)
    figure = style.figure(6.6, 4.6)
    axes = figure.add_subplot()
    _scales(axes)
    _roof(axes, paper_ceilings(), style.BLACK, "-", paper_ceilings().title)
    for (colour, dashes), other in zip(_ROOF_STYLES, roofs.values(), strict=False):
        _roof(axes, other, colour, dashes, _title(other))
    points = paper_points()
    for point in (*points, *measured):
        _mark(axes, point)
    for point in points:
        _annotate(axes, point)
    _ridge(axes, paper_ceilings())
    style.describe(
        axes,
        title="Prefix attention on the roofline: B = 256, L_p = 8K, Llama-3.1-8B heads",
        x="Arithmetic intensity (FLOP per DRAM byte read)",
        y="Useful throughput (TFLOP/s)",
    )
    figure.legend(*_key(axes), loc="outside lower left", ncols=1)
    caption = _caption(points, measured)
    figure.supxlabel(_status(measured), x=0.99, ha="right", fontsize=7.5, color=style.GREY)
    return Drawing(figure, caption)


def _key(axes: Axes) -> tuple[list[Artist], list[str]]:
    """Each label once, however many runs of it there are."""
    handles, labels = axes.get_legend_handles_labels()
    unique = dict(zip(reversed(labels), reversed(handles), strict=True))
    return [unique[label] for label in dict.fromkeys(labels)], list(dict.fromkeys(labels))


def _status(measured: Sequence[Point]) -> str:
    if measured:
        return "Hollow: this project's kernel counters"
    return "Placements are the paper's; no kernel counters measured here yet."


def _caption(points: Sequence[Point], measured: Sequence[Point]) -> str:
    paged, hot = points
    return (
        "Both layouts under the paper's A100 roofs (Table 23), with the roofs of the other "
        "hardware profiles. In the paper the slab that is read once has "
        f"{hot.intensity / paged.intensity:,.0f}× the intensity and "
        f"{hot.tflops / paged.tflops:,.1f}× the useful throughput of pages that every row reads. "
        f"{_status(measured)}{_cached(measured)}"
    )


def _cached(measured: Sequence[Point]) -> str:
    """What a reader must know where caches, not memory, served the rows' own reads."""
    fewer = [
        point.intensity / point.modelled
        for point in measured
        if point.read == "unshared" and point.modelled is not None
    ]
    if not fewer or max(fewer) < CACHED:
        return ""
    return (
        f". Where every row reads the prefix, DRAM gave up to {max(fewer):,.0f}× fewer bytes than "
        "the byte model: caches served the rest, and the memory roof is not what bounds it."
    )
