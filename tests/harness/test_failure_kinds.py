"""Known ways in which load generators mislead, each as an input that shows it, end to end.

What a single reply or log can show is in test_client.py, test_metrics.py and test_validation.py,
whole cells in test_cell.py, lateness and stalls in test_accuracy.py; here is what needs a load.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from harness import metrics
from harness.load.drive import Options, drive
from harness.plan import plan
from tests.harness.test_load import fake_url, offer, workload
from workloads.arrivals import burst, with_arrivals

BURST = {"kind": "burst"}


def replies(requests: int, output_tokens: int = 4, **faults: Any) -> Any:
    """The log of a burst in which replies may fail."""
    due = with_arrivals(workload(requests, output_tokens), burst(requests))
    with fake_url(**faults) as url:
        return drive(url, due.requests, Options(None, False, 30, 30), lambda: True).requests


def test_a_reply_that_comes_whole_has_no_latency_of_zero() -> None:
    """Kind 22: its first token's time is unknown, and so is its time per token."""
    log = offer(BURST, 4, output_tokens=8, chunk=8, ttft_s=0.05)
    values = metrics.compute(log, {"ttft_s": 10.0})
    assert math.isnan(values["ttft_p50_s"])
    assert math.isnan(values["tpot_p50_ms"])
    assert values["slo_share"] == 0
    assert values["e2e_p50_s"] >= 0.05


def test_a_success_without_a_token_is_a_failure() -> None:
    """Kind 22: status 200 alone counts nothing."""
    log = replies(4, tokens=0)
    assert (log["status"] == 200).all()
    assert not log["ok"].any()
    assert metrics.compute(log)["requests"] == 0
    assert math.isnan(metrics.compute(log)["output_tok_s"])


@pytest.mark.parametrize("chunk", [1, 3, 5])
def test_tokens_are_the_server_s_count_whatever_comes_in_an_event(chunk: int) -> None:
    """Kind 23: counting events would give a third or a fifth; TPOT is per token, not per event."""
    log = offer(BURST, 4, output_tokens=16, chunk=chunk, tpot_s=0.03)
    assert (log["output_tokens"] == 16).all()
    assert log["chunk_tokens"].map(sum).eq(16).all()
    events = log["chunk_tokens"].map(len)
    assert events.eq(-(-16 // chunk)).all()
    spans = 1000 * (log["last_token_s"] - log["first_token_s"])
    assert metrics.tpot_ms(log) == pytest.approx(spans / (16 - min(chunk, 16)))


def test_an_early_end_counts_no_requested_length() -> None:
    """Kinds 23 and 29: 9 tokens of 16 asked are 9, and the row says that 16 were asked."""
    log = replies(3, output_tokens=16, tokens=9)
    assert (log["output_tokens"] == 9).all()
    assert (log["output_tokens_asked"] == 16).all()
    cut = replies(3, output_tokens=16, early_end=True)
    assert not cut["ok"].any()


def test_a_queue_inside_the_client_is_seen() -> None:
    """Kind 24: due within 1 ms, sent as permits come free: the wait counts from the schedule."""
    log = offer({"kind": "poisson_capped", "rate": 1e4, "permits": 2, "seed": 1}, 12, ttft_s=0.1)
    hidden = metrics.compute(log)["ttft_p99_s"]
    real = metrics.compute(log)["ttft_scheduled_p99_s"]
    assert real > 3 * hidden
    assert (log["sent_s"] - log["scheduled_s"]).max() > 0.4


def test_arrivals_are_seeded_hashed_and_their_own(
    cell_config: Callable[..., dict[str, Any]],
) -> None:
    """Kind 25: equal for every system and length; moved by their seed alone."""

    def arrivals(*overrides: str) -> str:
        return plan(cell_config(*overrides)).arrivals.sha256

    reference = arrivals()
    assert arrivals("system=granikv") == reference
    assert arrivals("workload.seed=43", "workload.output_tokens=5") == reference
    assert arrivals("load.permits=2") == reference
    assert arrivals("load.seed=8") != reference


def test_prompts_have_the_length_that_was_asked() -> None:
    """Kind 27: token ids are sent; the log holds the server's own count beside the length asked."""
    good, drifted = replies(3), replies(3, prompt_drift=1)
    assert (good["prompt_tokens"] == good["prompt_tokens_asked"]).all()
    assert (drifted["prompt_tokens"] == drifted["prompt_tokens_asked"] + 1).all()


def test_long_events_do_not_slow_the_stream() -> None:
    """Kind 30: events of 200 KB, three times a usual read buffer, keep their pace and number."""
    log = offer(BURST, 2, output_tokens=12, padding=200_000, tpot_s=0.02)
    assert (log["output_tokens"] == 12).all()
    assert log["chunk_tokens"].map(list).tolist() == [[1] * 12] * 2
    assert (log["last_token_s"] - log["first_token_s"]).max() < 5
