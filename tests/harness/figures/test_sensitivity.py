"""The f_p figure draws Table 24."""

from __future__ import annotations

import pytest
from matplotlib.container import ErrorbarContainer

from harness.figures import sensitivity
from harness.tables.metrics import OUTPUT, TPOT_P50
from harness.tables.sources import Sources
from tests.harness.campaign import serving, throughput
from tests.harness.figures.drawn import drawing

STORAGE = {"admission": "eager", "eviction": "lru"}
CELLS = [
    serving(
        "granikv",
        "synthetic",
        (8192,),
        256,
        budget="paper",
        storage={"hot_fraction": fraction, **STORAGE},
    )
    for fraction in (0.05, 0.4)
] + [serving("sglang_cascade", "synthetic", (8192,), 256, budget="paper")]


def test_the_papers_sweep() -> None:
    (one,) = sensitivity.sweeps(OUTPUT, Sources.of([], []))
    assert [e.value for e in one.points.values()] == [2987, 2983, 3005, 3006, 3003, 3014]
    assert one.cascade is not None
    assert one.cascade.value == 2574


def test_measured_points_at_their_budget() -> None:
    _, one = sensitivity.sweeps(TPOT_P50, Sources.of([], CELLS))
    assert one.label == "shipped (one H200), KV budget 148,400"
    assert list(one.points) == [0.05, 0.4]
    assert one.points[0.4].value == pytest.approx(1000 * 256 / throughput("granikv", 8192))
    assert one.cascade is not None
    assert one.cascade.value == pytest.approx(1000 * 256 / throughput("sglang_cascade", 8192))


def test_both_axes_start_at_zero_and_cascade_is_a_line() -> None:
    shown = drawing("sensitivity", shipped=CELLS)
    speed, tpot = shown.figure.axes
    assert speed.get_ylim()[0] == tpot.get_ylim()[0] == 0
    labels = set(speed.get_legend_handles_labels()[1])
    assert labels >= {"GraniKV, paper (A100)", "SGLang-Cascade, paper (A100)"}
    assert len(labels) == 4
    assert "f_p" in shown.caption
    assert "No GPU cell yet" in drawing("sensitivity").caption


def test_a_single_run_has_no_interval() -> None:
    shown = drawing("sensitivity", shipped=CELLS)
    for container in shown.figure.axes[0].containers:
        assert isinstance(container, ErrorbarContainer)
        (bars,) = container.lines[2]
        assert [len(segment) for segment in bars.get_segments()].count(2) == 0
    assert "no interval: one run" in shown.caption
