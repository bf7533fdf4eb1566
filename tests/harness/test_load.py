"""Loads: seeded arrivals, permits, and latency that no queue of the client's hides."""

from __future__ import annotations

import asyncio
import resource
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import psutil
import pytest
import yaml
from aiohttp.test_utils import TestServer

from harness import load, metrics
from harness.config import DIRECTORY
from harness.errors import HarnessError
from harness.load.drive import Options, Outcome, drive
from harness.load.loop import Loop
from harness.load.permits import Permits
from harness.load.senders import workers_for
from tests.harness.fake_server import Fake, application, arguments
from workloads.arrivals import with_arrivals
from workloads.build import build
from workloads.request import Workload

POISSON = {"kind": "poisson_capped", "rate": 50.0, "permits": 4, "seed": 7}


@contextmanager
def fake_url(**faults: Any) -> Iterator[str]:
    """A fake server in a thread of its own, so that it does not share the client's event loop."""
    loop = asyncio.new_event_loop()
    server = TestServer(application(Fake(arguments([]), {"ignore_up_to": 0, **faults})))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(server.start_server(), loop).result(10)
        yield str(server.make_url("")).rstrip("/")
        asyncio.run_coroutine_threadsafe(server.close(), loop).result(10)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def workload(requests: int, output_tokens: int = 4) -> Workload:
    return build(
        {
            "kind": "synthetic",
            "requests": requests,
            "prefix_length": 16,
            "suffix_min": 4,
            "suffix_max": 4,
            "output_tokens": output_tokens,
            "vocab_size": 512,
        }
    )


def offer(
    config: dict[str, Any], requests: int, output_tokens: int = 4, workers: int = 1, **faults: Any
) -> pd.DataFrame:
    offered = load.make(config)
    due = with_arrivals(workload(requests, output_tokens), offered.arrivals(requests))
    options = Options(offered.permits, offered.due_when_permitted, 30, 30, workers)
    with fake_url(**faults) as url:
        outcome: Outcome = drive(url, due.requests, options, lambda: True)
    assert not outcome.died
    assert outcome.requests["ok"].all(), outcome.requests["error"].tolist()
    return outcome.requests


def test_arrivals_follow_their_seed_and_nothing_else() -> None:
    def sha(**changes: Any) -> str:
        return load.make({**POISSON, **changes}).arrivals(100).sha256

    assert sha() == sha()
    assert sha() != sha(seed=8)
    assert sha() != sha(rate=51.0)
    assert sha(permits=64) == sha()


def test_arrivals_and_lengths_have_separate_generators() -> None:
    """Another number of output tokens or another content seed moves no arrival."""
    arrivals = load.make(POISSON).arrivals(20)
    short, long = workload(20, 4), workload(20, 8)
    due = [with_arrivals(w, arrivals) for w in (short, long)]
    assert [r.due_s for r in due[0].requests] == [r.due_s for r in due[1].requests]
    assert due[0].sha256 != due[1].sha256


def test_every_load_is_a_class_and_a_file() -> None:
    kinds = {yaml.safe_load(p.read_text())["kind"] for p in (DIRECTORY / "load").glob("*.yaml")}
    assert kinds == set(load.LOADS)


def test_burstiness_is_the_shape_of_the_gaps() -> None:
    for burstiness in (0.25, 1.0, 4.0):
        config = {"kind": "gamma", "rate": 100.0, "burstiness": burstiness, "seed": 3}
        gaps = np.diff((0.0, *load.make(config).arrivals(4000).due_s))
        assert gaps.mean() == pytest.approx(0.01, rel=0.1)
        assert gaps.std() / gaps.mean() == pytest.approx(burstiness**-0.5, rel=0.1)


def test_constant_gaps() -> None:
    due = load.make({"kind": "constant", "rate": 4.0}).arrivals(3).due_s
    assert due == (0.0, 0.25, 0.5)


def test_a_replay_takes_the_workload_s_times() -> None:
    replay = load.make({"kind": "replay", "speed": 2.0})
    assert replay.arrivals(3, [0.0, 1.0, 4.0]).due_s == (0.0, 0.5, 2.0)
    with pytest.raises(HarnessError, match="needs a workload with recorded times"):
        replay.arrivals(3)


def test_poisson_rate_is_the_asked_one() -> None:
    due = np.array(load.make({**POISSON, "rate": 100.0}).arrivals(20_000).due_s)
    assert due[-1] == pytest.approx(200, rel=0.03)
    gaps = np.diff(due)
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.05)  # exponential


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({**POISSON, "rate": 0}, "load.rate must be a positive number"),
        ({**POISSON, "rate": None}, "load.rate must be a positive number"),
        ({**POISSON, "seed": -1}, "load.seed must be an integer"),
        ({**POISSON, "permits": 2.5}, "load.permits must be an integer"),
        ({**POISSON, "kind": "sudden"}, "unknown load 'sudden'"),
        ({"kind": "burst", "rate": 3}, "load.rate is unknown to burst"),
        ({"kind": "gamma", "rate": 3, "burstiness": 0, "seed": 1}, "load.burstiness must be a pos"),
        ({"kind": "replay", "speed": -1}, "load.speed must be a positive number"),
    ],
)
def test_a_bad_load_is_refused_in_words(config: dict[str, Any], words: str) -> None:
    with pytest.raises(HarnessError, match=words):
        load.make(config).arrivals(3, [0.0, 1.0, 2.0])


def test_permits_are_given_in_order_with_the_moment_they_were_free() -> None:
    async def run() -> list[float]:
        permits = Permits(2)
        got = [await permits.acquire(), await permits.acquire()]
        waiting = [asyncio.create_task(permits.acquire()) for _ in range(2)]
        await asyncio.sleep(0)
        permits.release(5.0)
        permits.release(6.0)
        return got + [await task for task in waiting]

    assert asyncio.run(run()) == [0.0, 0.0, 5.0, 6.0]


def test_a_permit_whose_waiter_gave_up_is_not_lost() -> None:
    async def run() -> float:
        permits = Permits(1)
        await permits.acquire()
        gone = asyncio.create_task(permits.acquire())
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.sleep(0)
        permits.release(3.0)
        return await asyncio.wait_for(permits.acquire(), 1)

    assert asyncio.run(run()) == 3.0


def test_the_cap_queues_and_the_schedule_shows_it() -> None:
    """Due all at once, one permit: quick from sending; from the schedule the last is slow."""
    log = offer({**POISSON, "rate": 1e6, "permits": 1}, 10, tpot_s=0.02)
    late = metrics.ttft_scheduled_s(log)
    assert late[-1] > 9 * 3 * 0.02
    assert list(late) == sorted(late)
    assert metrics.ttft_s(log).max() < late[-1] / 3
    assert metrics.send_lag_ms(log).max() < 100


def test_an_open_loop_keeps_its_rate_whatever_the_server_does() -> None:
    """The server stalls 1 s on every request; an open loop keeps its rate."""
    log = offer({"kind": "open", "rate": 100.0, "seed": 3}, 60, ttft_s=1.0)
    sent = log["sent_s"].to_numpy()
    due = log["scheduled_s"].to_numpy()
    assert np.abs(sent - due).max() < 0.3
    assert metrics.ttft_scheduled_s(log).min() >= 1.0


def test_two_hundred_requests_a_second_are_really_sent() -> None:
    """In one of three loads: a machine that is busy with something else sends late."""

    def deviation() -> float:
        log = offer({"kind": "open", "rate": 200.0, "seed": 3}, 200)
        asked = log["scheduled_s"].max() - log["scheduled_s"].min()
        took = log["sent_s"].max() - log["sent_s"].min()
        return abs(float(asked / took) - 1)

    assert any(deviation() <= 0.04 for _ in range(3))


def test_a_client_that_is_busy_shows_as_its_own_lag(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client's event loop is blocked for 0.4 s: its requests wait inside it, and it says so."""

    def blocked(self: Loop) -> None:
        self.call_later(0.1, time.sleep, 0.4)

    monkeypatch.setattr(Loop, "beat", blocked)
    log = offer({"kind": "open", "rate": 100.0, "seed": 3}, 60)
    assert metrics.send_lag_ms(log).max() > 200
    assert metrics.ttft_s(log).max() < metrics.ttft_scheduled_s(log).max()


def test_known_delays_are_measured() -> None:
    log = offer({"kind": "closed", "permits": 2}, 6, output_tokens=11, ttft_s=0.2, tpot_s=0.03)
    values = metrics.compute(log)
    assert values["ttft_p50_s"] == pytest.approx(0.2, rel=0.2)
    assert values["tpot_p50_ms"] == pytest.approx(30, rel=0.2)
    assert values["output_tok_s"] == pytest.approx(2 * 11 / 0.5, rel=0.2)


def test_a_closed_loop_is_due_when_a_client_is_free() -> None:
    log = offer({"kind": "closed", "permits": 2}, 8, tpot_s=0.01)
    assert (log["scheduled_s"] == log["permitted_s"]).all()
    assert list(log["scheduled_s"]) == sorted(log["scheduled_s"])
    assert (log["scheduled_s"] > 0).sum() == 6  # all but the two that found a permit


def test_a_burst_is_sent_at_once() -> None:
    log = offer({"kind": "burst"}, 20, ttft_s=0.3)
    assert log["sent_s"].max() < 0.2


def test_a_dead_server_ends_the_load() -> None:
    due = with_arrivals(workload(5), load.make({"kind": "burst"}).arrivals(5))
    alive = iter([True])
    with fake_url(ttft_s=60) as url:
        outcome = drive(url, due.requests, Options(None, False, 90, 90), lambda: next(alive, False))
    assert outcome.died
    assert not outcome.requests["ok"].any()
    assert set(outcome.requests["error"]) == {"no reply before the load ended"}


def test_a_reply_that_never_comes_does_not_hold_the_load() -> None:
    due = with_arrivals(workload(3), load.make({"kind": "burst"}).arrivals(3))
    with fake_url(ttft_s=60) as url:
        outcome = drive(url, due.requests, Options(None, False, 90, 0.3), lambda: True)
    assert not outcome.died
    assert set(outcome.requests["error"]) == {"no reply before the load ended"}


def test_worker_processes_share_the_permits() -> None:
    """Three processes, five permits: five in flight whoever sends, and no permit idles."""
    log = offer({**POISSON, "rate": 1e6, "permits": 5}, 30, workers=3, tpot_s=0.02)
    assert (log["output_tokens"] == 4).all()
    edges = [(t, 1) for t in log["sent_s"]] + [(t, -1) for t in log["last_token_s"]]
    flying = np.cumsum([step for _, step in sorted(edges)])
    assert flying.max() == 5
    assert (log["permitted_s"] <= log["sent_s"]).all()


def test_worker_processes_give_what_one_process_gives() -> None:
    one, three = (offer({"kind": "burst"}, 20, workers=workers) for workers in (1, 3))
    same = ["index", "prompt_tokens", "output_tokens", "output_sha256", "finish_reason", "status"]
    assert one[same].equals(three[same])
    assert three["chunk_tokens"].map(list).tolist() == [[1] * 4] * 20


def test_a_worker_that_dies_is_one_clear_line() -> None:
    due = with_arrivals(workload(6), load.make({"kind": "burst"}).arrivals(6))
    killed: list[psutil.Process] = []

    def alive() -> bool:
        if not killed:
            killed.extend(
                child
                for child in psutil.Process().children()
                if "harness.load.worker" in child.cmdline()
            )
            killed[0].kill()
        return True

    with (
        fake_url(ttft_s=60) as url,
        pytest.raises(
            HarnessError, match=r"^client worker \d died \(exit status -9\): .*workers=1"
        ),
    ):
        drive(url, due.requests, Options(None, False, 90, 90, 2), alive)
    assert len(killed) == 2
    assert not any(child.is_running() for child in killed)


@pytest.mark.parametrize(
    ("streams", "cores", "workers"),
    [(1, 2, 1), (256, 2, 1), (256, 16, 8), (32, 64, 1), (512, 64, 16)],
)
def test_processes_by_streams_and_cores(streams: int, cores: int, workers: int) -> None:
    assert workers_for(streams, cores) == workers


@pytest.mark.parametrize("workers", [0, -1, True])
def test_a_bad_number_of_workers_is_refused(workers: int) -> None:
    with pytest.raises(HarnessError, match=r"client\.workers must be null or at least 1"):
        drive("http://127.0.0.1:9", [], Options(None, False, 1, 1, workers), lambda: True)


AGENTS = {
    "kind": "agents",
    "requests": 9,
    "turns": 3,
    "prefix_length": 16,
    "message_min": 4,
    "output_tokens": 4,
    "think_s": 0.1,
    "vocab_size": 512,
}


@pytest.mark.parametrize("permits", [None, 1])
def test_a_dialogue_waits_for_its_answers_and_thinks(permits: int | None) -> None:
    offered = load.make(POISSON)
    built = build(AGENTS)
    due = with_arrivals(built, offered.arrivals(3))
    with fake_url(tpot_s=0.01) as url:
        outcome = drive(url, due.requests, Options(permits, False, 30, 30), lambda: True)
    log = outcome.requests
    assert log["ok"].all()
    for request in built.requests:
        if request.after is None:
            continue
        row, former = log.loc[request.index], log.loc[request.after]
        ready = former["last_token_s"] + request.think_s
        assert row["scheduled_s"] == pytest.approx(ready, abs=0.02)
        assert row["sent_s"] >= row["permitted_s"] >= row["scheduled_s"]
        assert row["scheduled_s"] >= ready - 1e-9  # a log's times are whole nanoseconds


def test_a_dialogue_goes_on_while_others_have_long_ended() -> None:
    """The drain limit counts from the last request sent, not from the last that opened."""
    due = with_arrivals(
        build({**AGENTS, "requests": 18, "turns": 6}), load.make({"kind": "burst"}).arrivals(3)
    )
    with fake_url() as url:
        outcome = drive(url, due.requests, Options(None, False, 30, 0.6), lambda: True)
    assert outcome.requests["ok"].all()


def test_more_streams_than_the_shell_s_limit_of_open_files() -> None:
    """Sockets above the soft limit that this process was started with."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(list(Path("/proc/self/fd").iterdir()))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 60, hard))
    try:
        log = offer({"kind": "burst"}, 60, ttft_s=0.5)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert log["sent_s"].max() < log["first_token_s"].min()  # all were open at once
