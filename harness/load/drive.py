"""Sends a schedule to a server and logs every request: the measured part of a cell."""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from harness.client import body, now
from harness.errors import HarnessError
from harness.load import senders
from harness.load.loop import run
from harness.load.permits import Permits
from harness.load.senders import Job, Senders
from harness.load.streams import undisturbed
from harness.store import frame
from workloads.request import Request

WATCH_S = 0.5
LEAD_S = 0.05
TIMES = ("sent_s", "first_token_s", "last_token_s")


@dataclass(frozen=True)
class Options:
    """permits: B or None. due_when_permitted: a closed loop. The timeouts are in s.

    workers: client processes; None: decided by how many streams there can be at once.
    """

    permits: int | None
    due_when_permitted: bool
    request_timeout_s: float
    drain_timeout_s: float
    workers: int | None = 1


@dataclass
class Outcome:
    """What a load gave.

    requests: the log (harness.store.REQUEST_COLUMNS). loop_lag_s: how late the client's event loops
    were while replies came in (harness.load.loop.Loop). died: the server went away in mid-run.
    start: the reading of `harness.client.now` at the log's time 0, for telemetry. workers: client
    processes.
    """

    requests: pd.DataFrame
    loop_lag_s: list[float] = field(default_factory=list)
    died: bool = False
    start: float = float("nan")
    workers: int = 1


def drive(
    url: str, requests: Sequence[Request], options: Options, is_alive: Callable[[], bool]
) -> Outcome:
    """Send the requests at their due times and wait for every reply; stop when the server is gone.

    Requests must carry due times. Raises HarnessError when a client process fails.
    """
    bodies = {i: body(r.input_ids.tolist(), r.max_new_tokens) for i, r in enumerate(requests)}
    workers = _workers(options, len(requests))
    sender = senders.make(Job(url, options.request_timeout_s, bodies), workers)
    try:
        with undisturbed():
            outcome = run(_Driver(sender, requests, options, is_alive).run())
    finally:
        sender.close()
    outcome.workers = workers
    return outcome


def _workers(options: Options, requests: int) -> int:
    if options.workers is None:
        streams = min(requests, options.permits or requests)
        return senders.workers_for(streams, os.cpu_count() or 1)
    if isinstance(options.workers, bool) or options.workers < 1:
        raise HarnessError(f"client.workers must be null or at least 1, not {options.workers!r}")
    return options.workers


class _Driver:
    def __init__(
        self,
        sender: Senders,
        requests: Sequence[Request],
        options: Options,
        is_alive: Callable[[], bool],
    ) -> None:
        self._sender = sender
        self._requests = requests
        self._options = options
        self._is_alive = is_alive
        self._rows: list[dict[str, Any]] = [_unsent(request) for request in requests]
        place = {request.index: i for i, request in enumerate(requests)}
        self._followers = {place[r.after]: i for i, r in enumerate(requests) if r.after is not None}
        self._permits = Permits(options.permits)
        self._start = 0.0
        self._last_sent = 0.0

    async def run(self) -> Outcome:
        await self._sender.start()
        self._start = now() + LEAD_S
        died = await self._until_done_or_dead(asyncio.create_task(self._send_all()))
        results = await self._sender.results()
        for index, answer in results.answers.items():
            self._rows[index].update(_since(self._start, answer))
        return Outcome(frame(self._rows), results.lags, died, self._start)

    def _elapsed(self) -> float:
        return now() - self._start

    async def _until_done_or_dead(self, work: asyncio.Task[None]) -> bool:
        try:
            while not work.done():
                await asyncio.wait([work], timeout=WATCH_S)
                self._sender.check()
                if not work.done() and not self._is_alive():
                    return True
            work.result()
        finally:
            if not work.done():
                work.cancel()
                await asyncio.wait([work])
        return not self._is_alive()

    async def _send_all(self) -> None:
        flying: set[asyncio.Task[None]] = set()
        try:
            for index, request in enumerate(self._requests):
                if request.after is not None:
                    continue
                due = request.due_s or 0.0
                await self._permitted(index, due)
                task = asyncio.create_task(self._converse(index))
                flying.add(task)
                task.add_done_callback(flying.discard)
            await self._drain(flying)
        finally:
            for task in flying:
                task.cancel()

    async def _permitted(self, index: int, due: float) -> None:
        """Wait until a request is due and has a permit."""
        await asyncio.sleep(max(0.0, due - self._elapsed()))
        free = await self._permits.acquire()
        row = self._rows[index]
        row["permitted_s"] = permitted = max(due, free)
        row["scheduled_s"] = permitted if self._options.due_when_permitted else due

    async def _converse(self, index: int | None) -> None:
        """Send a request that has its permit, then those that follow it, one after the other."""
        while index is not None:
            self._last_sent = self._elapsed()
            ended = await self._sender.send(index) - self._start
            self._permits.release(ended)
            index = self._followers.get(index)
            if index is not None:
                request = self._requests[index]
                await self._permitted(index, max(request.due_s or 0.0, ended + request.think_s))

    async def _drain(self, flying: set[asyncio.Task[None]]) -> None:
        """Wait for all that is in flight, for a limited time after the last request was sent."""
        while flying:
            left = self._last_sent + self._options.drain_timeout_s - self._elapsed()
            if left <= 0:
                return
            await asyncio.wait(set(flying), timeout=left)


def _unsent(request: Request) -> dict[str, Any]:
    """The row of a request that was never sent."""
    return {
        "index": request.index,
        "prefix_class": request.prefix_class,
        "scheduled_s": request.due_s,
        "permitted_s": math.nan,
        "sent_s": math.nan,
        "first_token_s": math.nan,
        "last_token_s": math.nan,
        "prompt_tokens_asked": request.prompt_len,
        "prompt_tokens": 0,
        "cached_tokens": 0,
        "output_tokens": 0,
        "output_tokens_asked": request.max_new_tokens,
        "status": 0,
        "ok": False,
        "error": "never sent",
        "finish_reason": "",
        "output_sha256": "",
        "chunk_s": [],
        "chunk_tokens": [],
    }


def _since(start: float, answer: dict[str, Any]) -> dict[str, Any]:
    """An answer with its times counted from the start of the load."""
    moved = {name: answer[name] - start for name in TIMES if name in answer}
    chunks = [at - start for at in answer.get("chunk_s", ())]
    return {**answer, **moved, "chunk_s": chunks}
