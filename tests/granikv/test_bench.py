"""The host-side benchmarks measure what they say; how fast is for a quiet machine to tell."""

from __future__ import annotations

import json

import pytest

from granikv.bench import plan_cost


def test_every_case_is_measured_on_the_shape_it_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert plan_cost.main(["--rows", "12", "--steps", "3"]) == 0
    report = json.loads(capsys.readouterr().out)
    cases = {"unchanged", "one_row_replaced", "own_slab_placed", "class_changed", "slabs_changed"}
    assert {r["case"].removesuffix(", with metadata") for r in report["records"]} == cases
    assert len(report["records"]) == 2 * (2 * 4 + 3 * 5)
    assert all(0 < r["min_us"] <= r["p50_us"] <= r["p99_us"] for r in report["records"])


def test_the_batch_is_the_one_described() -> None:
    batch = plan_cost.Batch(rows=12, classes=4, chunks=3)
    plan = batch.planner.plan(batch.nodes)
    assert [(s.length, len(s.rows)) for s in plan.segments] == [(3 * 128, 3)] * 4
    before = plan
    batch.unchanged()
    assert batch.planner.plan(list(batch.nodes)) is before
    assert batch.one_row_replaced() is before, "one of the same class"
    version = batch.index.version
    assert batch.own_slab_placed() is before, "a slab that one request reads is no segment"
    assert batch.index.version > version
    assert batch.class_changed() is not before


def test_the_end_of_a_prefix_moves() -> None:
    batch = plan_cost.Batch(rows=12, classes=4, chunks=3)
    before = [(s.base, s.length) for s in batch.unchanged().segments]
    after = [(s.base, s.length) for s in batch.slabs_changed().segments]
    assert sorted(length for _, length in after) == [128, 256, 384, 384, 384]
    assert len(set(before) & set(after)) == 3


def test_a_wrong_size_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert plan_cost.main(["--rows", "0"]) == 2
    assert "at least 1" in capsys.readouterr().err


def test_a_row_of_another_class_changes_the_sizes() -> None:
    batch = plan_cost.Batch(rows=12, classes=4, chunks=1)
    batch.one_row_replaced()
    assert [len(s.rows) for s in batch.unchanged().segments] == [3, 3, 3, 3]
    assert [len(s.rows) for s in batch.class_changed().segments] == [3, 2, 4, 3]


def test_metadata_is_written_for_a_new_plan_only() -> None:
    batch, metadata = plan_cost.Batch(rows=12, classes=4, chunks=1), plan_cost.Metadata(12)
    metadata.follow(batch.unchanged())
    assert metadata.arrays.covered[:12].tolist() == [128] * 12
    metadata.arrays.covered[:] = -1
    metadata.follow(batch.unchanged())
    assert metadata.arrays.covered[0] == -1
    metadata.follow(batch.class_changed())
    assert metadata.arrays.covered[:12].tolist() == [128] * 12
