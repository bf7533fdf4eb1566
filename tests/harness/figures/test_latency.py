"""The latency figure draws every request of a cell as a cumulative curve."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import pytest

from harness import store
from harness.errors import HarnessError
from harness.figures import latency
from harness.tables.sources import Sources
from tests.harness.analysis.made_up import MadeUpCell, cpu_cell
from tests.harness.campaign import K4, serving
from tests.harness.figures.drawn import drawing, texts


@dataclass(frozen=True)
class Logged(MadeUpCell):
    """A made-up cell with a request log."""

    requests: pd.DataFrame = field(default_factory=pd.DataFrame)


class Damaged(MadeUpCell):
    """A cell whose log is another's."""

    @property
    def requests(self) -> pd.DataFrame:
        raise HarnessError("requests.parquet was changed")


def log(ttfts: list[float], tpot_ms: float) -> pd.DataFrame:
    """Requests of eleven tokens each, sent at 0."""
    rows = []
    for index, ttft in enumerate(ttfts):
        last = ttft + 10 * tpot_ms / 1000
        row: dict[str, Any] = dict.fromkeys(store.REQUEST_COLUMNS, 0)
        row |= {
            "index": index,
            "first_token_s": ttft,
            "last_token_s": last,
            "output_tokens": 11,
            "ok": True,
            "error": "",
            "finish_reason": "length",
            "output_sha256": "",
            "chunk_s": [ttft, last],
            "chunk_tokens": [1, 10],
        }
        rows.append(row)
    return store.frame(rows)


def logged(cell: MadeUpCell, ttfts: list[float], tpot_ms: float) -> Logged:
    return Logged(cell.id, cell.config, cell.metrics, requests=log(ttfts, tpot_ms))


GRANIKV = serving("granikv", "multi_prefix", K4, 256, k=4)


def curve(cells: list[MadeUpCell], panel: int) -> list[latency.Curve]:
    (source,) = [s for s in Sources.of(cells, []).measured("") if s.cells]
    return latency.measured(source, latency.PANELS[panel])


def test_the_papers_quantiles() -> None:
    ttft, tpot = latency.PANELS
    assert [c.values.tolist() for c in latency.paper_quantiles(ttft)] == [[4.5], [4.4], [4.6]]
    granikv = latency.paper_quantiles(tpot)[2]
    assert (granikv.values.tolist(), granikv.shares.tolist()) == ([38.0, 49.4], [0.5, 0.99])


def test_a_curve_has_a_step_for_each_request() -> None:
    (ttft,) = curve([logged(GRANIKV, [0.3, 0.1, 0.2, 0.4], 5.0)], 0)
    assert ttft.system == "granikv"
    assert ttft.values.tolist() == [0.1, 0.2, 0.3, 0.4]
    assert ttft.shares.tolist() == [0.25, 0.5, 0.75, 1.0]
    (tpot,) = curve([logged(GRANIKV, [0.3, 0.1], 5.0)], 1)
    assert tpot.values == pytest.approx(np.array([5.0, 5.0]))


def test_repetitions_are_pooled_and_invalid_ones_left_out() -> None:
    again = serving("granikv", "multi_prefix", K4, 256, k=4, repetition=1)
    bad = serving("granikv", "multi_prefix", K4, 256, k=4, repetition=2)
    invalid = Logged(
        bad.id, bad.config, bad.metrics, valid=False, reasons=("x",), requests=log([9.0], 1.0)
    )
    (ttft,) = curve([logged(GRANIKV, [0.1], 5.0), logged(again, [0.2], 5.0), invalid], 0)
    assert ttft.values.tolist() == [0.1, 0.2]


def test_a_cell_without_a_usable_log_is_left_out() -> None:
    damaged = Damaged(GRANIKV.id, GRANIKV.config, GRANIKV.metrics)
    assert curve([damaged], 0) == []
    assert curve([GRANIKV], 0) == []


def test_each_source_has_a_row_and_a_cpu_is_a_functional_check() -> None:
    cpu = cpu_cell("granikv", 1.0, kind="multi_prefix", lengths=(64, 128, 256, 512))
    shown = drawing("latency", [logged(cpu, [0.1, 0.2], 3.0)], [logged(GRANIKV, [0.5], 2.0)])
    assert len(shown.figure.axes) == 6
    titles = [axes.get_title("left") for axes in shown.figure.axes[::2]]
    assert titles == [
        "paper (A100)",
        "shipped (one H200)",
        "here (functional check, tiny model on the CPU)",
    ]
    assert all("(s)" in axes.get_xlabel() for axes in shown.figure.axes[::2])
    assert "functional check" in shown.caption
    assert "No request log" in drawing("latency").caption


def test_a_system_without_cells_is_named_where_its_curve_is_missing() -> None:
    others = [
        logged(serving(system, "multi_prefix", K4, 256, k=4), [0.5], 2.0)
        for system in ("sglang_default", "sglang_cascade")
    ]
    paper_row, measured_row = (
        drawing("latency", shipped=others).figure.axes[:2],
        drawing("latency", shipped=others).figure.axes[2:],
    )
    assert [texts(axes) for axes in measured_row] == [["not measured: GraniKV"]] * 2
    assert [texts(axes) for axes in paper_row] == [[], []]
    every = [*others, logged(GRANIKV, [0.5], 2.0)]
    assert texts(drawing("latency", shipped=every).figure.axes[2]) == []


def test_what_a_user_of_the_gpu_has_today_is_drawn_where_it_was_measured() -> None:
    """Its prefill is GraniKV's, so a gain in TTFT over other baselines may be theirs alike."""
    fa3 = logged(serving("sglang_fa3", "multi_prefix", K4, 256, k=4), [0.3], 2.0)
    for cells, named in (([fa3], True), ([logged(GRANIKV, [0.5], 2.0)], False)):
        shown = drawing("latency", shipped=cells).figure
        assert ("SGLang with FA3" in [t.get_text() for t in shown.legends[0].get_texts()]) is named
        assert not any("FA3" in text for axes in shown.axes for text in texts(axes))
    (curve_of_fa3,) = curve([fa3], 0)
    assert (curve_of_fa3.system, curve_of_fa3.values.tolist()) == ("sglang_fa3", [0.3])


def test_the_caption_says_of_which_kv_budget_the_curves_are() -> None:
    """The paper's server had far fewer slots than a GPU that gives all it has."""
    shown = drawing("latency", shipped=[logged(GRANIKV, [0.5], 2.0)])
    assert "148,400 in the paper, full here" in shown.caption
    assert "KV tokens" not in drawing("latency").caption
