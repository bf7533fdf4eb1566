"""Cells whose tokens were streamed in groups: told apart, never mixed, and described."""

from __future__ import annotations

import pytest

from harness import paper
from harness.analysis.cells import setting, standing
from harness.report.cells import describe
from harness.tables.entries import Measured
from harness.tables.metrics import OUTPUT, TO_DEFAULT
from harness.tables.numbers import Metric, Point
from harness.tables.sources import Sources
from tests.harness.analysis.made_up import MadeUpCell, gpu_cell

ROW = Point(paper.LLAMA_8B, "granikv", "sharegpt", 256, 16384)


def grouped(
    system: str, tok_s: float, interval: int | None = 8, valid: bool = True, **storage: str
) -> MadeUpCell:
    cell = gpu_cell(system, tok_s)
    engine = {"max_running_requests": 1024}
    if interval is not None:
        engine["stream_interval"] = interval
    config = dict(cell.config) | {"engine": engine, "storage": storage}
    return MadeUpCell(f"{cell.id}-{interval}-{storage}", config, cell.metrics, valid)


def shown(metric: Metric, *cells: MadeUpCell) -> float | None:
    (source,) = [one for one in Sources.of(cells, ()).measured("run it") if one.key == "here"]
    entry = source.entry(ROW, metric)
    return entry.estimate.value if isinstance(entry, Measured) else None


def test_the_interval_is_part_of_the_setting() -> None:
    one, eight = (grouped("granikv", 1.0, interval) for interval in (1, 8))
    assert (standing(one).stream_interval, standing(eight).stream_interval) == (1, 8)
    assert setting(one) != setting(eight)
    assert setting(eight) == setting(grouped("sglang_default", 1.0))


def test_a_cell_that_does_not_say_has_one() -> None:
    unsaid = grouped("granikv", 1.0, None)
    assert standing(unsaid).stream_interval == 1
    assert setting(unsaid) == setting(grouped("granikv", 1.0, 1))


def test_a_row_shows_the_largest_interval_for_all_its_systems() -> None:
    ones = [grouped(name, tok_s, 1) for name, tok_s in (("granikv", 12.0), ("sglang_default", 8.0))]
    more = [gpu_cell("granikv", 12.0, repetition=i) for i in (1, 2)]
    eights = [grouped(name, tok_s) for name, tok_s in (("granikv", 23.0), ("sglang_default", 10.0))]
    assert shown(OUTPUT, *ones, *more, *eights) == 23.0
    assert shown(TO_DEFAULT, *ones, *more, *eights) == pytest.approx(2.3)
    assert shown(TO_DEFAULT, *ones) == pytest.approx(1.5)


def test_a_setting_of_one_system_takes_no_row_from_one_that_compares() -> None:
    ones = [grouped(name, tok_s, 1) for name, tok_s in (("granikv", 12.0), ("sglang_default", 8.0))]
    alone = grouped("granikv", 23.0)
    # Nor is a ratio formed across the two.
    assert shown(OUTPUT, *ones, alone) == 12.0
    assert shown(TO_DEFAULT, *ones, alone) == pytest.approx(1.5)
    assert shown(OUTPUT, ones[0], alone) == 23.0


def test_neither_a_failed_cell_nor_an_ablation_takes_a_rows_place() -> None:
    usual = grouped("granikv", 12.0, 1)
    assert shown(OUTPUT, usual, grouped("granikv", 23.0, valid=False)) == 12.0
    assert shown(OUTPUT, usual, grouped("granikv", 23.0, admission="on_share")) == 12.0


def test_the_report_says_what_was_delivered() -> None:
    cell = grouped("granikv", 12.0)
    metrics = {"engine_decode_tok_s": 22874.21, "delivered_share": 0.547}
    words = describe(MadeUpCell("x", cell.config, metrics))
    assert words["engine"].endswith(
        "by its own log; the client's steady rate, prefills included, is 55% of that"
    )
    assert words["workload"].endswith("B = 256, tokens streamed in groups of 8")
    del metrics["delivered_share"]
    assert describe(MadeUpCell("x", cell.config, metrics))["engine"].endswith("by its own log")
    assert describe(grouped("granikv", 12.0, 1))["engine"] == ""
