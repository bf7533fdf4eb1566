"""The figures: a new one is a module with `draw(sources) -> Drawing` and its line here."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from harness.figures import (
    bridge,
    causes,
    dispatch,
    figure1,
    latency,
    layout,
    occupancy,
    regimes,
    sensitivity,
    throughput,
)
from harness.figures.drawing import Drawing
from harness.tables.sources import Sources

Draw: TypeAlias = Callable[[Sources], Drawing]

FIGURES: dict[str, Draw] = {
    "figure1": figure1.draw,
    "layout": layout.draw,
    "throughput": throughput.draw,
    "regimes": regimes.draw,
    "dispatch": dispatch.draw,
    "bridge": bridge.draw,
    "causes": causes.draw,
    "sensitivity": sensitivity.draw,
    "latency": latency.draw,
    "occupancy": occupancy.draw,
}
