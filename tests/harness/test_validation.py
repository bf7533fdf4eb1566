"""Validation on hand-made evidence: what each check lets through and what it does not."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
import yaml

from harness import config, systems, validation
from harness.store import frame
from harness.systems import ServerInfo
from harness.validation import Evidence
from tests.harness.test_metrics import request
from workloads.build import build
from workloads.request import Workload

LIMITS: dict[str, Any] = {
    "hit_rate_tolerance": 0.02,
    "send_lag_floor_ms": 10,
    "send_lag_ttft_share": 0.01,
    "loop_lag_tpot_share": 0.05,
}
PREFIX, SUFFIX, OUTPUT = 32, 8, 5


def workload(kind: str = "synthetic", **options: Any) -> Workload:
    return build(
        {
            "kind": kind,
            "requests": 4,
            "prefix_length": PREFIX,
            "suffix_min": SUFFIX,
            "suffix_max": SUFFIX,
            "output_tokens": OUTPUT,
            "vocab_size": 512,
            **options,
        }
    )


def rows(**changes: Any) -> list[dict[str, Any]]:
    """Four good requests; `changes` hits the second."""
    good = [
        {
            **request(i, [1.0 + 0.1 * t for t in range(OUTPUT)], sent=0.5, scheduled=0.5),
            "prompt_tokens": PREFIX + SUFFIX,
            "prompt_tokens_asked": PREFIX + SUFFIX,
            "cached_tokens": PREFIX,
        }
        for i in range(4)
    ]
    good[1] |= changes
    return good


def evidence(log: pd.DataFrame | None = None, page_size: int = 1, **changes: Any) -> Evidence:
    text = (config.DIRECTORY / "system" / "sglang_default.yaml").read_text()
    known: dict[str, Any] = {
        "log": frame(rows()) if log is None else log,
        "loop_lag_s": [0.0] * 100,
        "workload": workload(),
        "system": systems.make(yaml.safe_load(text), {}),
        "before": ServerInfo({}),
        "opened": ServerInfo({}),
        "after": ServerInfo({"page_size": page_size}),
        "primed": True,
    }
    return Evidence(**(known | changes))


def test_good_evidence_has_no_reason_against_it() -> None:
    assert validation.reasons(evidence(), LIMITS) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"ok": False, "error": "connection failed: X"}, "1 of 4 requests failed: 1 × connection"),
        (
            {"output_tokens": 4},
            "1 requests got another number of tokens than asked, such as 4 for 5",
        ),
        ({"prompt_tokens": 41}, "with another prompt length, such as 41 for 40"),
        ({"first_token_s": float("nan")}, "no measured time to first token"),
        ({"first_token_s": 0.5}, "no measured time to first token"),  # a TTFT of 0.0
        ({"cached_tokens": 0}, "hit rate 0.600, designed 0.800"),
        ({"cached_tokens": 40}, "hit rate 0.850, designed 0.800"),
        ({"sent_s": 0.6}, "the client sent late: lag p99"),
    ],
)
def test_one_bad_request_is_found(changes: dict[str, Any], words: str) -> None:
    assert words in "; ".join(validation.reasons(evidence(frame(rows(**changes))), LIMITS))


def test_short_replies_are_not_a_regression() -> None:
    """63 tokens of 1,024 asked for is an invalid cell, not a slower system."""
    log = frame([{**row, "output_tokens_asked": 1024} for row in rows()])
    assert "such as 5 for 1024" in "; ".join(validation.output_lengths(evidence(log)))


def test_whole_pages_are_designed_to_hit() -> None:
    assert validation.designed_hit_rate(evidence(page_size=16)) == pytest.approx(32 / 40)
    ragged = evidence(page_size=16, workload=workload(prefix_length=40))
    assert validation.designed_hit_rate(ragged) == pytest.approx(32 / 48)


def test_unprimed_prefixes_have_no_designed_hit_rate() -> None:
    assert validation.designed_hit_rate(evidence(primed=False)) is None
    assert validation.hit_rate(evidence(primed=False), 0.0) == []


def test_nothing_shared_is_designed_to_hit_nothing() -> None:
    alone = build(
        {
            "kind": "negative_control",
            "requests": 4,
            "prefix_length": 16,
            "output_tokens": 4,
            "vocab_size": 512,
        }
    )
    assert validation.designed_hit_rate(evidence(workload=alone, primed=False)) == 0.0
    assert validation.hit_rate(evidence(workload=alone, primed=False), 0.02)


def test_the_limits_can_be_switched_off() -> None:
    off = {**LIMITS, "hit_rate_tolerance": None, "send_lag_ttft_share": None}
    log = frame(rows(cached_tokens=0, sent_s=0.9))
    assert validation.reasons(evidence(log), off) == []


def test_the_send_lag_may_grow_with_the_time_to_first_token() -> None:
    """12 ms late is too late at a TTFT of 0.5 s and not at one of 2 s."""
    late = [{**row, "permitted_s": row["sent_s"] - 0.012} for row in rows()]
    assert validation.client_lag(evidence(frame(late)), LIMITS)
    slow = [{**row, "sent_s": -1.0, "permitted_s": -1.012} for row in late]
    assert not validation.client_lag(evidence(frame(slow)), LIMITS)


def test_a_blocked_event_loop_is_found() -> None:
    """TPOT is 100 ms; 5% of it is 5 ms."""
    assert not validation.client_lag(evidence(loop_lag_s=[0.004] * 100), LIMITS)
    blocked = validation.client_lag(evidence(loop_lag_s=[0.006] * 100), LIMITS)
    assert "the client read late: lag p99 6.00 ms, 5.00 allowed" in blocked[0]
    assert validation.client_lag(evidence(loop_lag_s=[]), LIMITS)


def test_replies_of_one_token_have_no_time_per_token_to_be_late_for() -> None:
    one = {"output_tokens": 1, "output_tokens_asked": 1, "chunk_s": [1.0], "chunk_tokens": [1]}
    log = frame([{**row, **one, "last_token_s": 1.0} for row in rows()])
    assert validation.client_lag(evidence(log), LIMITS) == []


def test_a_load_without_a_reply_says_only_that() -> None:
    log = frame([{**row, "ok": False, "error": "never sent"} for row in rows()])
    assert validation.reasons(evidence(log), LIMITS) == ["4 of 4 requests failed: 4 × never sent"]


def test_traffic_names_the_prefixes_that_were_used() -> None:
    one = validation.traffic(workload())
    assert (list(one.prefix_lengths), one.shared_by_all) == ([PREFIX], True)
    several = build(
        {
            "kind": "multi_prefix",
            "requests": 4,
            "prefix_lengths": [16, 32],
            "assignment": "round_robin",
            "output_tokens": 4,
            "vocab_size": 512,
        }
    )
    two = validation.traffic(several)
    assert (list(two.prefix_lengths), two.shared_by_all) == ([16, 32], False)


def test_only_the_measured_window_counts_for_steps_left_to_pages() -> None:
    """What the priming and the warm-up did before it is in neither difference."""
    text = (config.DIRECTORY / "system" / "sglang_cascade.yaml").read_text()
    cascade = systems.make(yaml.safe_load(text), {})

    def seen(steps: int, overflowed: int) -> ServerInfo:
        counters = {"steps": steps, "steps_cascade": steps, "steps_overflowed": overflowed}
        return ServerInfo({"internal_states": [{"granikv": [{"counters": counters}]}]})

    known: dict[str, Any] = {"system": cascade, "before": seen(2, 0), "after": seen(9, 4)}
    assert validation.in_use(evidence(**known, opened=seen(5, 4))) == []
    (reason,) = validation.in_use(evidence(**known, opened=seen(5, 1)))
    assert "'steps_overflowed' rose by 3" in reason


def test_ranks_that_decided_otherwise_are_named() -> None:
    state = {"counters": {"steps": 9, "relocations": 2}, "pools": {"hot_free": 4}, "tree": []}

    def after(**changes: Any) -> ServerInfo:
        return ServerInfo({"internal_states": [{"granikv": [state, {**state, **changes}]}]})

    assert validation.ranks_alike(evidence(after=after())) == []
    other = after(counters={"steps": 9, "relocations": 3}, pools={"hot_free": 5})
    (reason,) = validation.reasons(evidence(after=other), LIMITS)
    assert reason == "rank 1 and rank 0 differ in pools, relocations"
