"""Every figure as an image inside the page."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass

from harness.figures import Encoded, encode_all
from harness.tables.sources import Sources

TITLES = {
    "figure1": "Figure 1: the roofline",
    "layout": "Pools, slabs and radix tree of a live server",
    "throughput": "Output throughput over L_p",
    "regimes": "Regime map over B and L_p",
    "dispatch": "Dispatch trace",
    "bridge": "The Amdahl bridge",
    "causes": "What the gain comes from",
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


def drawn(sources: Sources, encoded: Sequence[Encoded] | None = None) -> list[Figure]:
    """All figures, as SVG in data addresses; `encoded` where they were drawn already."""
    if encoded is None:
        encoded = encode_all(sources.here, sources.shipped, ("svg",))
    return [Figure(one.name, TITLES[one.name], one.caption, _address(one)) for one in encoded]


def _address(figure: Encoded) -> str:
    if not figure.files:
        return ""
    return "data:image/svg+xml;base64," + base64.b64encode(figure.files["svg"]).decode("ascii")
