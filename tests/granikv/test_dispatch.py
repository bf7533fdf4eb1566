"""The paper's dispatch rule at its edges, forced backends, counters and the rule's own cost."""

from __future__ import annotations

import subprocess
import sys

import pytest

from granikv.dispatch import (
    BACKENDS,
    DispatchCounters,
    DispatchRule,
    Forced,
    SaturationRule,
    StepShape,
    overhead_ns,
)


@pytest.mark.parametrize(
    ("rows", "group_size", "expected"),
    [
        (8, 4, "cascade"),  # the paper's Table 16, M_sat = 1,024: M_eff 32, 128, 512, 1,024
        (32, 4, "cascade"),
        (128, 4, "cascade"),
        (255, 4, "cascade"),
        (256, 4, "dense"),
        (257, 4, "dense"),
        (204, 5, "cascade"),  # M_eff 1,020 and 1,025 on Qwen's heads
        (205, 5, "dense"),
        (1023, 1, "cascade"),
        (1024, 1, "dense"),
    ],
)
def test_the_papers_threshold(rows: int, group_size: int, expected: str) -> None:
    assert SaturationRule(1024).choose(StepShape(rows, group_size, rows)) == expected


def test_the_whole_batch_counts_and_not_the_class() -> None:
    one_reader = StepShape(rows=256, group_size=4, segment_rows=1)
    assert SaturationRule(1024).choose(one_reader) == "dense"


@pytest.mark.parametrize("rule", [SaturationRule(1), *map(Forced, BACKENDS)])
def test_a_step_without_a_segment_is_paged(rule: DispatchRule) -> None:
    assert rule.choose(StepShape(512, 8, 0)) == "paged"


@pytest.mark.parametrize("name", BACKENDS)
def test_forced(name: str) -> None:
    rule = Forced(name)
    assert {rule.choose(StepShape(rows, 4, 1)) for rows in (1, 256, 4096)} == {name}
    assert rule.describe().startswith(name)


def test_impossible_rules_are_refused() -> None:
    with pytest.raises(ValueError, match="no backend 'auto' to force; there are: paged, cascade"):
        Forced("auto")
    with pytest.raises(ValueError, match="M_sat must be at least 1, not 0"):
        SaturationRule(0)


def test_description_names_the_threshold() -> None:
    assert ">= 1024" in SaturationRule(1024).describe()


def test_counters() -> None:
    counters = DispatchCounters()
    counters.count("dense", StepShape(256, 4, 512), 8192)
    counters.count("dense", StepShape(300, 4, 300), 100)
    counters.count("cascade", StepShape(8, 4, 8), 50)
    counters.count("paged", StepShape(3, 4, 0), 0)
    shown = counters.as_dict()
    assert {key: shown[key] for key in ("steps", "rows", "segment_rows", "hot_tokens_read")} == {
        "steps": 4,
        "rows": 567,
        "segment_rows": 820,
        "hot_tokens_read": 8342,
    }
    assert {key: shown[f"steps_{key}"] for key in BACKENDS} == {
        "paged": 1,
        "cascade": 1,
        "dense": 2,
        "contiguous_unshared": 0,
        "hydragen": 0,
    }
    assert shown["rows_dense"] == 556
    assert shown["segment_rows_dense"] == 812
    assert shown["hot_tokens_read_cascade"] == 50
    with pytest.raises(KeyError):
        counters.count("flash", StepShape(1, 1, 1), 1)


def test_overhead_is_measured_and_small() -> None:
    """Host noise of a shared machine included: an order of magnitude, not the paper's 1 us."""

    class Slow(SaturationRule):
        def choose(self, shape: StepShape) -> str:
            for _ in range(2_000):
                pass
            return super().choose(shape)

    usual = overhead_ns(steps=2_000)
    assert 50 < usual < 20_000
    assert overhead_ns(Slow(1024), steps=200) > 2 * usual


def test_neither_torch_nor_the_engine_is_imported() -> None:
    code = (
        "import sys, granikv.dispatch, granikv.hardware; "
        "assert not {'torch', 'sglang'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
