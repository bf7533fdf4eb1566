"""Every figure as an image inside the page."""

from __future__ import annotations

import base64
from dataclasses import dataclass

from harness.figures import registry, style
from harness.figures.drawing import NothingToDraw
from harness.tables.sources import Sources

TITLES = {
    "figure1": "Figure 1: the roofline",
    "layout": "Pools, slabs and radix tree of a live server",
    "throughput": "Output throughput over L_p",
    "regimes": "Regime map over B and L_p",
    "dispatch": "Dispatch trace",
    "bridge": "The Amdahl bridge",
    "sensitivity": "Sensitivity to f_p",
    "latency": "TTFT and TPOT distributions",
    "occupancy": "Pool occupancy",
}


@dataclass(frozen=True)
class Figure:
    """One figure; without an image, `caption` is the reason."""

    name: str
    title: str
    caption: str
    image: str


def drawn(sources: Sources) -> list[Figure]:
    """All figures, as SVG in data addresses."""
    found = []
    with style.styled():
        for name, draw in registry.FIGURES.items():
            try:
                drawing = draw(sources.here, sources.shipped)
            except NothingToDraw as reason:
                found.append(Figure(name, TITLES[name], str(reason), ""))
                continue
            svg = base64.b64encode(style.encode(drawing.figure, "svg")).decode("ascii")
            image = f"data:image/svg+xml;base64,{svg}"
            found.append(Figure(name, TITLES[name], drawing.caption, image))
    return found
