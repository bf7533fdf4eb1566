"""The host-side benchmarks measure what they say; how fast is for a quiet machine to tell."""

from __future__ import annotations

import json

import pytest

from granikv.bench import plan_cost


def test_every_case_is_measured_on_the_shape_it_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert plan_cost.main(["--rows", "12", "--steps", "3"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert len(report["records"]) == 15
    assert {r["case"] for r in report["records"]} == {
        "unchanged",
        "one_row_replaced",
        "slabs_changed",
    }
    assert all(0 < r["min_us"] <= r["p50_us"] <= r["p99_us"] for r in report["records"])


def test_the_batch_is_the_one_described() -> None:
    batch = plan_cost.Batch(rows=12, classes=4, chunks=3)
    plan = batch.planner.plan(batch.nodes)
    assert [(s.length, len(s.rows)) for s in plan.segments] == [(3 * 128, 3)] * 4
    before = plan
    batch.unchanged()
    assert batch.planner.plan(list(batch.nodes)) is before
    batch.one_row_replaced()
    assert batch.planner.plan(list(batch.nodes)) is not before


def test_a_wrong_size_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert plan_cost.main(["--rows", "0"]) == 2
    assert "at least 1" in capsys.readouterr().err
