"""Launches in a CUDA graph, and what its replays take."""

from __future__ import annotations

from collections.abc import Callable

import torch

from granikv.calibrate import Timing

_LAUNCHES = 12
"""Launches that one graph holds, at least."""


def captured(launch: Callable[[int], None], layers: int) -> tuple[Callable[[], object], int]:
    """A graph of launches over all layers, as its replay, and how many it holds."""
    rounds = -(-_LAUNCHES // layers)
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        launch(0)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(rounds):
            for layer in range(layers):
                launch(layer)
    return graph.replay, rounds * layers


def microseconds(timing: Timing, launches: int) -> dict[str, float]:
    """Median and interquartile range of one launch, in µs."""
    return {
        "us": round(timing.median * 1e6 / launches, 2),
        "iqr_us": round(timing.spread * 1e6 / launches, 2),
    }
