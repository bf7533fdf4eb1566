"""Metrics on hand-made logs, each number worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd
import pytest

from harness import metrics
from harness.store import frame


def request(
    index: int,
    times: Sequence[float],
    tokens: Sequence[int] | None = None,
    *,
    scheduled: float = 0.0,
    permitted: float | None = None,
    sent: float = 0.0,
    prompt: int = 10,
    cached: int = 0,
    ok: bool = True,
) -> dict[str, Any]:
    counts = list(tokens) if tokens is not None else [1] * len(times)
    return {
        "index": index,
        "prefix_class": -1,
        "scheduled_s": scheduled,
        "permitted_s": sent if permitted is None else permitted,
        "sent_s": sent,
        "first_token_s": times[0] if times else math.nan,
        "last_token_s": times[-1] if times else math.nan,
        "prompt_tokens_asked": prompt,
        "prompt_tokens": prompt,
        "cached_tokens": cached,
        "output_tokens": sum(counts),
        "output_tokens_asked": sum(counts),
        "status": 200,
        "ok": ok,
        "error": "" if ok else "failed",
        "finish_reason": "length",
        "output_sha256": "",
        "chunk_s": list(times),
        "chunk_tokens": counts,
    }


@pytest.fixture
def log() -> pd.DataFrame:
    """Two requests, 3 and 5 tokens; and a failed one that must count nowhere."""
    return frame(
        [
            request(0, [1.5, 1.6, 1.7], scheduled=0.5, permitted=0.9, sent=1.0, cached=5),
            request(1, [2.5, 3.0, 3.5, 4.0, 4.5], scheduled=2.0, sent=2.0, prompt=30, cached=15),
            request(2, [100.0], sent=0.0, prompt=999, ok=False),
        ]
    )


def test_throughput(log: pd.DataFrame) -> None:
    assert metrics.duration_s(log) == pytest.approx(3.5)  # 4.5 − 1.0
    assert metrics.requests(log) == 2
    assert metrics.output_tok_s(log) == pytest.approx(8 / 3.5)
    assert metrics.total_tok_s(log) == pytest.approx((8 + 40) / 3.5)
    assert metrics.request_per_s(log) == pytest.approx(2 / 3.5)


def test_time_to_first_token_from_sending_and_from_the_schedule(log: pd.DataFrame) -> None:
    assert metrics.ttft_s(log) == pytest.approx([0.5, 0.5])
    assert metrics.ttft_scheduled_s(log) == pytest.approx([1.0, 0.5])


def test_time_per_output_token(log: pd.DataFrame) -> None:
    assert metrics.tpot_ms(log) == pytest.approx([100.0, 500.0])  # 0.2 s / 2, 2.0 s / 4
    values = metrics.compute(log)
    assert values["tpot_p50_ms"] == pytest.approx(300.0)
    assert values["tpot_p99_ms"] == pytest.approx(496.0)


def test_tokens_that_come_together_share_their_gap() -> None:
    """First chunk of 2 tokens at 1.0, then 3 at 1.6: 0.6 s for 3 tokens, not 0.6 s for 4."""
    log = frame([request(0, [1.0, 1.6], [2, 3])])
    assert metrics.tpot_ms(log) == pytest.approx([200.0])
    assert metrics.itl_ms(log) == pytest.approx([200.0] * 3)


def test_one_token_has_no_time_per_token() -> None:
    log = frame([request(0, [1.0])])
    assert metrics.tpot_ms(log).size == 0
    assert math.isnan(metrics.compute(log)["tpot_p50_ms"])


def test_an_unmeasured_first_token_is_not_zero() -> None:
    row = {**request(0, [2.0], [16]), "first_token_s": math.nan}
    values = metrics.compute(frame([row]))
    assert math.isnan(values["ttft_p50_s"])
    assert math.isnan(values["tpot_p50_ms"])
    mixed = metrics.compute(frame([row, request(1, [0.4, 0.5])]))
    assert mixed["ttft_p50_s"] == pytest.approx(0.4)


def test_latency_lag_and_hits(log: pd.DataFrame) -> None:
    assert metrics.e2e_s(log) == pytest.approx([0.7, 2.5])
    assert metrics.send_lag_ms(log) == pytest.approx([100.0, 0.0])
    assert metrics.hit_rate(log) == pytest.approx(20 / 40)


def test_an_empty_log_has_no_number() -> None:
    values = metrics.compute(frame([]))
    assert values.pop("requests") == 0
    assert all(math.isnan(value) for value in values.values())


def test_the_steady_window_leaves_out_ramp_and_tail() -> None:
    """Two requests fly together from 2 to 6; alone, one is slow from 0 and one from 6 to 10."""
    log = frame(
        [
            request(0, [1.0, 3.0, 5.0, 6.0], sent=0.0),
            request(1, [3.0, 4.0, 6.0, 8.0, 10.0], sent=2.0),
        ]
    )
    assert metrics.steady_window_s(log) == (2.0, 6.0)
    # In (2, 6]: 3, 5 and 6 of the first; 3, 4 and 6 of the second.
    assert metrics.output_tok_s_steady(log) == pytest.approx(6 / 4)


def test_a_moment_is_no_steady_state() -> None:
    log = frame(
        [request(0, [5.0], sent=0.0), request(1, [5.1], sent=4.9), request(2, [10.0], sent=5.05)]
    )
    assert all(math.isnan(edge) for edge in metrics.steady_window_s(log))
    assert math.isnan(metrics.output_tok_s_steady(log))


def test_the_steady_window_has_its_own_request_rate() -> None:
    log = frame(
        [request(0, [1.0, 6.0], sent=0.0), request(1, [3.0, 10.0], sent=2.0), request(2, [4.0])]
    )
    assert metrics.steady_window_s(log) == (2.0, 4.0)  # three in flight
    assert metrics.request_per_s_steady(log) == pytest.approx(1 / 2)
    assert metrics.steady_share(log) == pytest.approx(2 / 10)


def test_percentiles_stand_side_by_side() -> None:
    log = frame([request(i, [float(i), 2.0 * i], scheduled=-1.0) for i in range(1, 102)])
    values = metrics.compute(log)
    assert [values[f"ttft_p{q}_s"] for q in (50, 90, 99)] == pytest.approx([51, 91, 100])
    assert values["ttft_scheduled_p90_s"] == pytest.approx(92)
    assert values["e2e_p90_s"] == pytest.approx(182)
    assert values["e2e_scheduled_p99_s"] == pytest.approx(201)
    assert values["tpot_p90_ms"] == values["itl_p90_ms"] == pytest.approx(91_000)


SLO_LOG = [
    request(0, [0.5, 0.6], scheduled=0.0),  # TTFT 0.5 s, TPOT 0.1 s, latency 0.6 s
    request(1, [1.5, 1.6], scheduled=0.0, sent=1.4),  # quick once sent, late for its user
    request(2, [2.5, 4.0], scheduled=2.0, sent=2.0),  # TPOT 1.5 s
    request(3, [3.0], scheduled=2.9, sent=2.9),  # one token
    request(4, [4.0], scheduled=3.9, sent=3.9, ok=False),
]


@pytest.mark.parametrize(
    ("slo", "good"),
    [
        ({"ttft_s": 1.0}, [True, False, True, True]),
        ({"tpot_s": 0.2}, [True, True, False, True]),
        ({"e2e_s": 0.7}, [True, False, False, True]),
        ({"ttft_s": 1.0, "tpot_s": 0.2, "e2e_s": None}, [True, False, False, True]),
    ],
)
def test_goodput_counts_requests_that_keep_every_bound(slo: metrics.Slo, good: list[bool]) -> None:
    log = frame(SLO_LOG)
    assert metrics.good(log, slo).tolist() == good
    assert metrics.goodput_req_s(log, slo) == pytest.approx(sum(good) / 4.0)
    assert metrics.slo_share(log, slo) == pytest.approx(sum(good) / 5)  # the failed one counts


def test_no_objective_gives_no_goodput() -> None:
    for slo in ({}, {"ttft_s": None}):
        assert math.isnan(metrics.goodput_req_s(frame(SLO_LOG), slo))
        assert math.isnan(metrics.slo_share(frame(SLO_LOG), slo))


def test_an_unknown_time_to_first_token_is_not_good() -> None:
    row = {**request(0, [2.0], [16]), "first_token_s": math.nan}
    assert not metrics.good(frame([row]), {"ttft_s": 100.0}).any()
