"""Sends a schedule to a server and logs every request: the measured part of a cell."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from harness.client import Client, Reply, body, now
from harness.load.permits import Permits
from harness.store import frame
from workloads.request import Request

HEARTBEAT_S = 0.01
WATCH_S = 0.5
LEAD_S = 0.05


@dataclass(frozen=True)
class Options:
    """permits: B or None. due_when_permitted: a closed loop. The timeouts are in s."""

    permits: int | None
    due_when_permitted: bool
    request_timeout_s: float
    drain_timeout_s: float


@dataclass
class Outcome:
    """What a load gave.

    requests: the log (harness.store.REQUEST_COLUMNS). loop_lag_s: how late the client's own event
    loop woke, sampled every HEARTBEAT_S. died: the server went away in mid-run. start: the reading
    of `harness.client.now` at the log's time 0, for telemetry.
    """

    requests: pd.DataFrame
    loop_lag_s: list[float] = field(default_factory=list)
    died: bool = False
    start: float = float("nan")


def drive(
    url: str, requests: Sequence[Request], options: Options, is_alive: Callable[[], bool]
) -> Outcome:
    """Send the requests at their due times and wait for every reply; stop when the server is gone.

    Requests must carry due times. One thread, one event loop.
    """
    return asyncio.run(_Driver(url, requests, options, is_alive).run())


class _Driver:
    def __init__(
        self,
        url: str,
        requests: Sequence[Request],
        options: Options,
        is_alive: Callable[[], bool],
    ) -> None:
        self._url = url
        self._requests = requests
        self._options = options
        self._is_alive = is_alive
        # Serialised before the clock starts: a long prompt takes milliseconds.
        self._bodies = [body(r.input_ids.tolist(), r.max_new_tokens) for r in requests]
        self._rows: list[dict[str, Any]] = [_unsent(request) for request in requests]
        self._replies: dict[int, Reply] = {}
        self._lags: list[float] = []
        self._start = 0.0

    async def run(self) -> Outcome:
        client = Client(self._url, self._options.request_timeout_s)
        self._start = now() + LEAD_S
        heart = asyncio.create_task(self._beat())
        died = await self._until_done_or_dead(asyncio.create_task(self._send_all(client)))
        heart.cancel()
        for index, reply in self._replies.items():
            reply.parse()
            self._rows[index].update(_answered(reply, self._start))
        return Outcome(frame(self._rows), self._lags, died, self._start)

    def _elapsed(self) -> float:
        return now() - self._start

    async def _beat(self) -> None:
        while True:
            due = now() + HEARTBEAT_S
            await asyncio.sleep(HEARTBEAT_S)
            self._lags.append(max(0.0, now() - due))

    async def _until_done_or_dead(self, work: asyncio.Task[None]) -> bool:
        while not work.done():
            await asyncio.wait([work], timeout=WATCH_S)
            if not work.done() and not self._is_alive():
                work.cancel()
                await asyncio.wait([work])
                return True
        work.result()
        return not self._is_alive()

    async def _send_all(self, client: Client) -> None:
        permits = Permits(self._options.permits)
        flying: set[asyncio.Task[None]] = set()
        try:
            for index, request in enumerate(self._requests):
                due = request.due_s or 0.0
                await asyncio.sleep(max(0.0, due - self._elapsed()))
                free = await permits.acquire()
                permitted = max(due, free)
                row = self._rows[index]
                row["scheduled_s"] = permitted if self._options.due_when_permitted else due
                row["permitted_s"] = permitted
                task = asyncio.create_task(self._send(client, index, permits))
                flying.add(task)
                task.add_done_callback(flying.discard)
            await self._drain(flying)
        finally:
            for task in flying:
                task.cancel()

    async def _drain(self, flying: set[asyncio.Task[None]]) -> None:
        if not flying:
            return
        _, late = await asyncio.wait(set(flying), timeout=self._options.drain_timeout_s)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)

    async def _send(self, client: Client, index: int, permits: Permits) -> None:
        row = self._rows[index]
        row["sent_s"] = self._elapsed()
        row["error"] = "no reply before the load ended"
        reply = await client.generate(self._bodies[index])
        self._replies[index] = reply
        permits.release(reply.ended - self._start)


def _unsent(request: Request) -> dict[str, Any]:
    """The row of a request that was never sent."""
    never = float("nan")
    return {
        "index": request.index,
        "prefix_class": request.prefix_class,
        "scheduled_s": request.due_s,
        "permitted_s": never,
        "sent_s": never,
        "first_token_s": never,
        "last_token_s": never,
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


def _answered(reply: Reply, start: float) -> dict[str, Any]:
    return {
        "first_token_s": reply.first_token - start,
        "last_token_s": reply.last_token - start,
        "prompt_tokens": reply.prompt_tokens,
        "cached_tokens": reply.cached_tokens,
        "output_tokens": reply.output_tokens,
        "status": reply.status,
        "ok": reply.ok,
        "error": reply.error,
        "finish_reason": reply.finish_reason,
        "output_sha256": reply.output_sha256,
        "chunk_s": [at - start for at in reply.chunk_at],
        "chunk_tokens": reply.chunk_tokens,
    }
