"""How late the client reads: samples of its event loop, while there is something to read."""

from __future__ import annotations

import asyncio
import time

import pytest

from harness.client import Reply
from harness.load.loop import HEARTBEAT_S, Loop, run, running
from harness.load.streams import Sent, Streams


def sampled(entered: float, returned: float, due: float, woke: float) -> float:
    """What a loop says of a sample; its look for what is ready lasted from entered to returned."""
    loop = Loop()
    try:
        loop.time = lambda: woke  # type: ignore[method-assign]
        loop._polls.entered, loop._polls.returned = entered, returned
        loop._sample(due)
        return loop.beats[0][1]
    finally:
        loop.close()


def test_a_timer_that_is_rounded_up_is_no_lateness() -> None:
    """Idle from before the sample was due: late by what the loop did since it woke."""
    assert sampled(1.0, 1.5009, 1.5, 1.5011) == pytest.approx(0.0002)


def test_a_loop_that_was_busy_is_late_from_when_the_sample_was_due() -> None:
    assert sampled(1.52, 1.5201, 1.5, 1.5203) == pytest.approx(0.0203)


def test_a_blocked_loop_shows() -> None:
    async def main() -> list[tuple[float, float]]:
        running().beat()
        await asyncio.sleep(5 * HEARTBEAT_S)
        time.sleep(0.2)
        await asyncio.sleep(5 * HEARTBEAT_S)
        return running().beats

    assert max(late for _, late in run(main())) >= 0.2 - HEARTBEAT_S - 0.001


def test_a_client_runs_on_that_loop_alone() -> None:
    async def main() -> Loop:
        return running()

    with pytest.raises(TypeError, match="runs on Loop"):
        asyncio.run(main())


def streams(*read: list[float]) -> Streams:
    sent = {i: Sent(0.0, Reply(read_at=times)) for i, times in enumerate(read)}
    return Streams(client=None, bodies={}, sent=sent)  # type: ignore[arg-type]


def test_only_lateness_while_replies_come_in_counts() -> None:
    beats = [(1.0, 0.5), (2.0, 0.1), (2.9, 0.2), (3.5, 0.3), (4.0, 0.4), (4.1, 0.6)]
    #        sending      before      into it     reading     the last    over
    assert streams([3.0, 3.5], [3.2, 4.0]).lags(beats) == [0.2, 0.3, 0.4]


def test_replies_between_two_samples_are_judged_by_the_one_before() -> None:
    beats = [(1.0, 0.0), (1.0 + HEARTBEAT_S, 0.001), (1.0 + 2 * HEARTBEAT_S, 0.0)]
    assert streams([1.012, 1.018]).lags(beats) == [0.001]


def test_without_a_reply_there_is_no_sample() -> None:
    assert streams([]).lags([(1.0, 0.0)]) == []
    assert Streams(client=None, bodies={}, sent={0: Sent(0.0)}).lags([(1.0, 0.0)]) == []  # type: ignore[arg-type]
