"""The throughput figure draws the paper's lines and those of GPU cells."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.container import ErrorbarContainer

from harness import paper
from harness.figures import style, throughput
from harness.tables.sources import Sources
from tests.harness.analysis.made_up import MadeUpCell, cpu_cell, gpu_cell
from tests.harness.campaign import serving

Lines = dict[str, tuple[list[float], list[float]]]


def lines_of(*cells: MadeUpCell) -> dict[str, Lines]:
    """Per panel title: label -> (L_p, tok/s)."""
    with style.styled():
        figure = throughput.draw(Sources.of(cells, [])).figure
    panels = {}
    for axes in figure.axes:
        found: Lines = {}
        for container in axes.containers:
            assert isinstance(container, ErrorbarContainer)
            line = container.lines[0]
            assert line is not None
            x, y = np.asarray(line.get_xdata()), np.asarray(line.get_ydata())
            found[str(container.get_label())] = (x.tolist(), y.tolist())
        panels[axes.get_title("left")] = found
    return panels


def test_the_papers_lines() -> None:
    panels = lines_of()
    assert list(panels) == list(paper.CONFIGS)
    for lines in panels.values():
        assert list(lines) == [
            *("SGLang default, paper", "SGLang-Cascade, paper", "GraniKV, paper")
        ]
    x, y = panels[paper.LLAMA_8B]["GraniKV, paper"]
    assert x == [512, 1024, 2048, 4096, 8192, 16384]
    assert y == [5151, 5087, 5030, 4684, 3801, 2943]
    assert panels[paper.QWEN_32B]["SGLang default, paper"][1][-1] == 1726


def test_gpu_cells_are_drawn_with_their_interval() -> None:
    cells = [gpu_cell("granikv", v, repetition=i) for i, v in enumerate((2900.0, 3000.0, 3100.0))]
    panels = lines_of(*cells)
    assert panels[paper.LLAMA_8B]["GraniKV, here (one H200)"] == ([16384], [3000.0])
    (line,) = [one for one in throughput.measured_series(Sources.of(cells, [])) if one]
    assert (line.estimates[0].low, line.estimates[0].high) == (2900.0, 3100.0)


def test_what_a_user_of_the_gpu_has_today_is_drawn_where_it_was_measured() -> None:
    panels = lines_of(gpu_cell("sglang_fa3", 2500.0))
    assert panels[paper.LLAMA_8B]["SGLang with FA3, here (one H200)"] == ([16384], [2500.0])
    assert sum("FA3" in label for lines in panels.values() for label in lines) == 1


def test_cpu_cells_are_not_drawn() -> None:
    assert lines_of(cpu_cell("granikv", 9.0)) == lines_of()


def test_a_fast_gpu_does_not_squash_the_papers_lines_of_other_models() -> None:
    with style.styled():
        figure = throughput.draw(Sources.of([gpu_cell("granikv", 50_000.0)], [])).figure
    llama, *others = figure.axes
    assert llama.get_ylim()[1] > 50_000
    assert all(4_800 < axes.get_ylim()[1] < 6_500 for axes in others)


def test_axes_have_units_and_start_at_zero() -> None:
    with style.styled():
        figure = throughput.draw(Sources.of([], [])).figure
    first, *_ = figure.axes
    assert first.get_ylabel() == "Output throughput (tok/s)"
    assert first.get_xlabel() == "$L_p$ (tokens)"
    assert first.get_ylim()[0] == 0
    assert [tick.get_text() for tick in first.get_xticklabels()][-1] == "16K"


@pytest.mark.parametrize("measured", [True, False])
def test_the_caption_says_what_is_measured(measured: bool) -> None:
    with style.styled():
        drawing = throughput.draw(Sources.of([gpu_cell("granikv", 1.0)] if measured else [], []))
    assert ("no GPU cell yet" in drawing.caption) is not measured


def test_a_single_run_is_said_to_have_no_interval() -> None:
    with style.styled():
        assert "one run" in throughput.draw(Sources.of([gpu_cell("granikv", 1.0)], [])).caption


def test_a_single_run_has_no_caps() -> None:
    """Two caps on one another would look like an exact number."""
    single = gpu_cell("sglang_default", 900.0)
    three = [gpu_cell("granikv", v, repetition=i) for i, v in enumerate((2900.0, 3000.0, 3100.0))]
    with style.styled():
        figure = throughput.draw(Sources.of([single, *three], [])).figure
    drawn = {}
    for container in figure.axes[0].containers:
        assert isinstance(container, ErrorbarContainer)
        (bars,) = container.lines[2]
        lengths = [np.ptp(np.asarray(s)[:, 1]) for s in bars.get_segments() if len(s)]
        drawn[str(container.get_label())] = lengths
    assert drawn["GraniKV, here (one H200)"] == pytest.approx([200.0])
    assert drawn["SGLang default, here (one H200)"] == []


def test_points_of_different_stream_intervals_are_not_joined() -> None:
    cells = [
        serving("granikv", "sharegpt", (l_p,), 256, engine={"stream_interval": interval})
        for l_p, interval in ((512, 8), (1024, 1), (2048, 1), (16384, 8))
    ]
    with style.styled():
        shown = throughput.draw(Sources.of([], cells))
    lines = [
        np.asarray(container.lines[0].get_xdata()).tolist()
        for container in shown.figure.axes[0].containers
        if isinstance(container, ErrorbarContainer)
        and container.lines[0] is not None
        and "shipped" in str(container.get_label())
    ]
    assert lines == [[512], [1024, 2048], [16384]]
    labels = [text.get_text() for text in shown.figure.legends[0].get_texts()]
    assert labels.count("GraniKV, shipped (one H200)") == 1
    assert "streamed in different ways are not joined" in shown.caption
    assert "in groups of 8 at L_p = 512 and 16K; one by one at L_p = 1K and 2K." in shown.caption


def test_of_points_that_were_streamed_alike_nothing_is_said() -> None:
    with style.styled():
        caption = throughput.draw(Sources.of([gpu_cell("granikv", 9_000.0)], [])).caption
    assert "streamed" not in caption
