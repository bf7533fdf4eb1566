"""The dispatch trace stacks each cell's steps to 100%."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.analysis.cells import FITTED
from harness.figures import dispatch
from harness.tables.sources import Sources
from tests.harness.analysis.made_up import MadeUpCell
from tests.harness.campaign import serving
from tests.harness.figures.drawn import bars, drawing, texts

BURST = [serving("granikv", "synthetic", (8192,), b) for b in (128, 256)]


def test_the_papers_shares() -> None:
    shares = dispatch.paper_trace().shares
    assert len(shares) == 16
    assert shares[(16384, 128)] == {"dense": 13.0, "cascade": 87.0, "paged": 0.0}


def test_measured_shares_are_the_counters() -> None:
    (trace,) = dispatch.measured_traces(Sources.of([], BURST))
    assert set(trace.shares) == {(8192, 128), (8192, 256)}
    assert trace.shares[(8192, 256)] == {"dense": 90.0, "cascade": 8.0, "paged": 2.0}


def test_a_cell_without_counters_is_left_out() -> None:
    silent = MadeUpCell("x", BURST[0].config, BURST[0].metrics)
    assert dispatch.measured_traces(Sources.of([silent], [])) == []


def test_each_bar_is_a_whole() -> None:
    figure = drawing("dispatch", shipped=BURST).figure
    of_paper, measured = figure.axes
    tops: dict[float, float] = {}
    for bar in bars(of_paper):
        x = round(bar.get_x(), 3)
        tops[x] = max(tops.get(x, 0.0), bar.get_y() + bar.get_height())
    assert len(tops) == 16
    assert list(tops.values()) == pytest.approx([100.0] * 16)
    assert len({round(bar.get_x(), 3) for bar in bars(measured)}) == 2
    assert {"90", "3"} <= set(texts(measured))
    ticks = [tick.get_text() for tick in of_paper.get_xticklabels()]
    assert ticks[-1].startswith("B = 256")
    assert "1,024" in ticks[-1]


def test_an_empty_place_says_why_it_is_empty() -> None:
    """Nothing there would look like a share of 0."""
    late = replace(BURST[0], valid=False, reasons=("the client read late",))
    (trace,) = dispatch.measured_traces(Sources.of([], [late, BURST[1]]))
    assert trace.gaps[(8192, 128)] == "invalid"
    assert trace.gaps[(512, 8)] == "not measured"
    assert len(trace.gaps) == 15
    _, measured = drawing("dispatch", shipped=[late, BURST[1]]).figure.axes
    assert texts(measured).count("invalid") == 1
    assert texts(measured).count("not measured") == 14
    assert texts(measured).count("16K") == 4


def test_the_caption_says_how_the_servers_chose() -> None:
    state = dict(BURST[0].state or {}) | {"backends": {"rule": f"{FITTED}paged, cascade, dense"}}
    caption = drawing("dispatch", shipped=[replace(BURST[0], state=state)]).caption
    assert "shipped (one H200): chosen by the fitted cost model, not by Eq. 2" in caption


def test_without_counters_it_says_so() -> None:
    assert "counts its steps here yet" in drawing("dispatch").caption
