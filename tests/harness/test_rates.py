"""The engine's own decode rate: which lines of a server's log count, and what they give."""

from __future__ import annotations

import math

import pytest

from harness.servers.rates import delivered_share, engine_decode_tok_s, of_window

NAN = float("nan")


def decode(running: int, rate: float, rank: str = "") -> str:
    return (
        f"[2026-01-01 00:00:01{rank}] Decode batch, #running-req: {running}, #token: 45056, token "
        f"usage: 0.05, cuda graph: True, gen throughput (token/s): {rate:.2f}, #queue-req: 0"
    )


def prefill(rank: str = "") -> str:
    return (
        f"[2026-01-01 00:00:01{rank}] Prefill batch, #new-seq: 3, #new-token: 138, #cached-token: "
        "49152, token usage: 0.02, #running-req: 250, #queue-req: 0, cuda graph: True, input "
        "throughput (token/s): 10162.63"
    )


def rate(*lines: str) -> float:
    return engine_decode_tok_s("\n".join(lines) + "\n")


ROUND = (prefill(), decode(256, 5517.0), decode(256, 19413.0), decode(256, 19241.0))
"""One round of requests that start together: the first line's rate holds what stood before it."""


def test_the_median_of_the_lines_that_count() -> None:
    assert rate(*ROUND, decode(256, 15677.0)) == 19241.0
    assert rate(*ROUND) == pytest.approx((19413.0 + 19241.0) / 2)


def test_a_line_after_a_prefill_does_not_count() -> None:
    assert rate(*ROUND, prefill(), decode(256, 1.0), *ROUND) == rate(*ROUND)
    assert math.isnan(rate(prefill(), decode(256, 5517.0), prefill(), decode(256, 5517.0)))


def test_the_first_line_of_a_window_does_not_count() -> None:
    """Its rate reaches back to before the window."""
    assert math.isnan(rate(decode(256, 300.0)))
    assert rate(decode(256, 300.0), decode(256, 20000.0)) == 20000.0


@pytest.mark.parametrize(("running", "counts"), [(231, True), (230, False), (12, False)])
def test_a_batch_that_has_thinned_out_does_not_count(running: int, counts: bool) -> None:
    found = rate(*ROUND, decode(running, 1000.0), decode(running, 1000.0))
    assert found == (pytest.approx((1000.0 + 19241.0) / 2) if counts else rate(*ROUND))


def test_ranks_that_log_alike_count_once() -> None:
    lines = [line.replace("00:00:01", f"00:00:01 TP{rank}") for line in ROUND for rank in range(2)]
    assert rate(*lines) == rate(*ROUND)
    other = [decode(256, 5.0, " TP1")] * 9
    assert rate(*(line.replace("00:00:01]", "00:00:01 TP0]") for line in ROUND), *other) == rate(
        *ROUND
    )


def test_other_lines_between_change_nothing() -> None:
    access = '[2026-01-01 00:00:02] INFO:     127.0.0.1:51234 - "POST /generate HTTP/1.1" 200 OK'
    assert rate(*(part for line in ROUND for part in (line, access, "0%|  | 0/4"))) == rate(*ROUND)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Avg generation throughput: 250.1 tokens/s\n",
        decode(256, 5.0).replace("gen throughput (token/s): 5.00", "gen throughput: nan"),
        "\n".join([decode(256, 0.0)] * 2).replace("0.00", "inf"),
    ],
)
def test_a_log_that_says_nothing_gives_nan(text: str) -> None:
    assert math.isnan(engine_decode_tok_s(text))
    assert all(math.isnan(value) for value in of_window(text, 100.0).values())


def test_the_share_that_was_delivered() -> None:
    text = "\n".join(ROUND)
    assert of_window(text, 10000.0)["delivered_share"] == pytest.approx(10000.0 / rate(*ROUND))
    assert math.isnan(of_window(text, NAN)["delivered_share"])
    assert math.isnan(delivered_share(100.0, 0.0))
