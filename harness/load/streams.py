"""Requests in flight from one process: sent on demand, their streams recorded, read afterwards."""

from __future__ import annotations

import asyncio
import gc
import resource
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from harness.client import Client, Reply, now

HEARTBEAT_S = 0.01
UNANSWERED = "no reply before the load ended"


@dataclass
class Sent:
    """A request on its way. at: when it was sent, on the clock of `harness.client.now`, in s."""

    at: float
    reply: Reply | None = None


@dataclass
class Streams:
    """The requests of one process. bodies: the serialised request of each index.

    Serialised before the clock starts: a long prompt takes milliseconds. lags: how late this
    process's event loop woke, in s, sampled every HEARTBEAT_S.
    """

    client: Client
    bodies: Mapping[int, bytes]
    sent: dict[int, Sent] = field(default_factory=dict)
    lags: list[float] = field(default_factory=list)

    async def send(self, index: int) -> float:
        """Send one request and read its stream; when it ended, in s."""
        request = self.sent[index] = Sent(now())
        request.reply = await self.client.generate(self.bodies[index])
        return request.reply.ended

    async def beat(self) -> None:
        """Sample the event loop's lateness until cancelled."""
        while True:
            due = now() + HEARTBEAT_S
            await asyncio.sleep(HEARTBEAT_S)
            self.lags.append(max(0.0, now() - due))

    def answers(self) -> dict[int, dict[str, Any]]:
        """What is known of each request that was sent: columns of the log, absolute times."""
        return {index: _answer(request) for index, request in self.sent.items()}


def _answer(request: Sent) -> dict[str, Any]:
    reply = request.reply
    if reply is None:
        return {"sent_s": request.at, "error": UNANSWERED}
    reply.parse()
    return {
        "sent_s": request.at,
        "first_token_s": reply.first_token,
        "last_token_s": reply.last_token,
        "prompt_tokens": reply.prompt_tokens,
        "cached_tokens": reply.cached_tokens,
        "output_tokens": reply.output_tokens,
        "status": reply.status,
        "ok": reply.ok,
        "error": reply.error,
        "finish_reason": reply.finish_reason,
        "output_sha256": reply.output_sha256,
        "chunk_s": reply.chunk_at,
        "chunk_tokens": reply.chunk_tokens,
    }


@contextmanager
def undisturbed() -> Iterator[None]:
    """No garbage collection inside: a pass over a load's records stops every stream at once."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def allow_many_files() -> None:
    """Lift this process's limit on open files as far as it may: each stream is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
