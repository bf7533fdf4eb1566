"""What tables say of the GPUs' clocks and power."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from harness import paper
from harness.tables import clocks
from harness.tables.numbers import Point
from harness.tables.sources import Sources
from tests.harness.analysis.made_up import MadeUpCell, cpu_cell
from tests.harness.campaign import kernel, serving

SHIPPED = "shipped (one H200): "


def ran(
    system: str, mhz: float | None, watts: float | None = None, *, limits: Sequence[float] = (700,)
) -> MadeUpCell:
    """A cell with these means, of GPUs with these power limits."""
    cell = serving(system, "sharegpt", (8192,), 256, repetition=int(mhz or 0))
    found = {"sm_clock_mean_mhz": mhz, "power_mean_w": watts}
    known = {name: value for name, value in found.items() if value is not None}
    gpus = [{"power_limit_w": limit} for limit in limits]
    return replace(cell, metrics={**cell.metrics, **known}, record={"environment": {"gpus": gpus}})


def note(*cells: MadeUpCell) -> str:
    points = [
        Point(paper.LLAMA_8B, system, "sharegpt", 256, 8192)
        for system in ("sglang_default", "granikv")
    ]
    shipped, *_ = Sources.of((), cells).measured("again")
    return clocks.note(shipped, points).removeprefix(SHIPPED)


def test_each_systems_clocks_and_the_power_of_all() -> None:
    cells = [ran("granikv", 1609.2, 693), ran("granikv", 1651.0, 686), ran("sglang_default", 1976)]
    assert note(*cells) == (
        "mean SM clock 1,976 MHz (SGLang default), 1,609 to 1,651 MHz (GraniKV), at 98% to 99% of "
        "the power limit."
    )


def test_the_power_limit_is_that_of_all_gpus() -> None:
    two = ran("granikv", 1600, 1050, limits=(700, 700))
    assert note(two) == "mean SM clock 1,600 MHz (GraniKV), at 75% of the power limit."


@pytest.mark.parametrize(
    "cell", [ran("granikv", None, 690), cpu_cell("granikv", 90.0), kernel("HOT", "shared")]
)
def test_without_clocks_of_a_gpu_nothing_is_said(cell: MadeUpCell) -> None:
    assert note(cell) == ""
