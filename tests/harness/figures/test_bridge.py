"""The Amdahl bridge draws Table 22."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.axes import Axes

from harness.figures import bridge
from harness.tables.printed import PaperSource
from tests.harness.campaign import kernel, serving
from tests.harness.figures.drawn import bars, drawing, ends, texts

CELLS = [
    serving("sglang_default", "sharegpt", (16384,), 256, profile={"kind": "kineto"}),
    serving("sglang_default", "sharegpt", (16384,), 256),
    serving("granikv", "sharegpt", (16384,), 256),
    kernel("HOT", "shared"),
    kernel("paged", "unshared"),
]


def at(axes: Axes, label: str) -> list[float]:
    """x of every point under a legend entry."""
    (line,) = [one for one in axes.lines if one.get_label() == label]
    return [float(x) for x in np.asarray(line.get_xdata())]


def test_the_papers_rows() -> None:
    rows = bridge.bars(PaperSource(22), "paper")
    assert [row.shares["alpha_pct"] for row in rows] == [60.1, 65.6, 59.1]
    assert rows[1].numbers["s_eff"] == 4.1


def test_shares_are_stacked_to_the_whole_step() -> None:
    shares, _ = drawing("bridge").figure.axes
    stacked = [bar for bar in bars(shares) if round(bar.get_y() + bar.get_height() / 2) == 1]
    assert ends(stacked) == pytest.approx([65.6, 70.1, 76.6, 100.0])


def test_predictions_and_measurement() -> None:
    _, gains = drawing("bridge").figure.axes
    assert at(gains, "measured") == [2.16, 1.98, 1.57]
    assert at(gains, "predicted, Eq. 4") == [2.29, 2.59, 2.24]
    assert any("9.4×" in text for text in texts(gains))


def test_measured_terms_stand_below() -> None:
    shown = drawing("bridge", shipped=CELLS)
    shares, gains = shown.figure.axes
    labels = [tick.get_text() for tick in shares.get_yticklabels()]
    assert labels[3] == "Llama-3.1-8B/TP=1\nshipped (one H200)"
    assert at(gains, "measured")[3] == pytest.approx(2.0)
    assert at(gains, "predicted, Eq. 4")[3] == pytest.approx(1 / 0.46)
    assert any("6.0×" in text for text in texts(gains))
    assert "this project's cells" in shown.caption


def test_it_says_that_its_terms_are_of_several_leases() -> None:
    commits = ("a", "b", "b", "c", "c")
    cells = [
        replace(cell, record={"environment": {"revision": {"commit": commit}}})
        for cell, commit in zip(CELLS, commits, strict=True)
    ]
    assert "S (s), S (+β, γ), s_eff: of kernels, traces" in drawing("bridge", shipped=cells).caption


def test_without_traced_cells_it_says_so() -> None:
    assert "step is traced at this point: none yet" in drawing("bridge", shipped=CELLS[1:]).caption
