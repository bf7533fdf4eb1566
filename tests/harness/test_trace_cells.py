"""Traces and agent sessions as cells on the fake server, whose prefix cache is a real one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from harness.store import Cell

RunCell = Callable[..., Cell]


def test_a_trace_is_replayed_with_its_times_and_its_sharing(run_cell: RunCell) -> None:
    cell = run_cell("workload=trace_cpu", "workload.requests=12", "load=replay", "load.speed=10")
    assert cell.valid, cell.reasons
    log = cell.requests
    assert (log["prompt_tokens"] == log["prompt_tokens_asked"]).all()
    assert len(set(log["output_tokens"])) > 3  # each request has its own length
    assert log["scheduled_s"].max() == pytest.approx(0.3, abs=0.01)  # 3 s of the trace
    # Block 0, 16 tokens here, opens every prompt; what else was shared depends on the timing.
    assert (log["cached_tokens"] >= 16).any()
    assert cell.record["cache"]["hit_rate_designed"] is None
    assert cell.record["workload"]["parameters"]["arrivals"]["kind"] == "recorded"


def test_the_turns_of_a_session_find_their_former_ones(run_cell: RunCell) -> None:
    cell = run_cell("workload=agents_cpu", "load=open", "load.rate=50")
    assert cell.valid, cell.reasons
    log = cell.requests
    later = log["index"] % 4 > 0
    former = log["prompt_tokens"].shift(1)
    # All of the former turn's prompt is still cached when the next turn comes.
    assert (log.loc[later, "cached_tokens"] >= former[later]).all()
    ready = log["last_token_s"].shift(1)[later]
    assert (log.loc[later, "scheduled_s"] > ready).all()
    assert np.isfinite(log["last_token_s"]).all()


def test_a_replay_needs_times(run_cell: RunCell) -> None:
    with pytest.raises(Exception, match="load=replay needs a workload with recorded times"):
        run_cell("load=replay")
