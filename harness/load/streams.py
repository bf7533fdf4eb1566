"""Requests in flight from one process: sent on demand, their streams recorded, read afterwards."""

from __future__ import annotations

import gc
import math
import resource
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from harness.client import Client, Reply, now
from harness.load.loop import HEARTBEAT_S

UNANSWERED = "no reply before the load ended"


@dataclass
class Sent:
    """A request on its way. at: when it was sent, on the clock of `harness.client.now`, in s."""

    at: float
    reply: Reply | None = None


@dataclass
class Streams:
    """The requests of one process. bodies: the serialised request of each index.

    Serialised before the clock starts: a long prompt takes milliseconds.
    """

    client: Client
    bodies: Mapping[int, bytes]
    sent: dict[int, Sent] = field(default_factory=dict)

    async def send(self, index: int) -> float:
        """Send one request and read its stream; when it ended, in s."""
        request = self.sent[index] = Sent(now())
        request.reply = await self.client.generate(self.bodies[index])
        return request.reply.ended

    def answers(self) -> dict[int, dict[str, Any]]:
        """What is known of each request that was sent: columns of the log, absolute times."""
        return {index: _answer(request) for index, request in self.sent.items()}

    def lags(self, beats: Sequence[tuple[float, float]]) -> list[float]:
        """How late the event loop was while replies came in, in s, by its samples.

        Before the first token there is nothing to read late: a burst that is all sent at once keeps
        the loop busy then, and the log shows that as send lag.
        """
        read = [request.reply.read_at for request in self.sent.values() if request.reply]
        first = min((times[0] for times in read if times), default=math.inf)
        last = max((times[-1] for times in read if times), default=-math.inf)
        # One sample before the first token too: replies may all have come between two.
        return [lag for due, lag in beats if due <= last and due + lag >= first - HEARTBEAT_S]


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
