"""One streamed request to `/generate`: when its tokens came, and how many by the server's count."""

from __future__ import annotations

import hashlib
import json
import math
import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from harness.sse import EventBuffer

READ_BUFFER_BYTES = 4 * 1024 * 1024
"""Reading pauses beyond twice this, which a few long event lines must not reach."""
NEVER = math.nan
COMPLETE = ("length", "stop")
DONE = b"[DONE]"


def now() -> float:
    """Seconds on the one monotonic clock of all measurements, the same in every process."""
    return time.perf_counter()


def body(input_ids: Sequence[int], max_new_tokens: int) -> bytes:
    """A greedy, streamed request for exactly `max_new_tokens` tokens."""
    message = {
        "input_ids": list(input_ids),
        "sampling_params": {
            "temperature": 0,
            "max_new_tokens": max_new_tokens,
            "ignore_eos": True,
        },
        "stream": True,
    }
    return json.dumps(message, separators=(",", ":")).encode()


@dataclass
class Reply:
    """What came back. Times are on the clock of `now`, NaN for never; counts are the server's own.

    ended: the last read of a reply that ended, else the failure. error: empty for a complete reply.
    read_at, pieces: the body's bytes that came and when, until `parse`. chunk_at, chunk_tokens:
    arrival and number of new tokens of each event that brought some.
    """

    status: int = 0
    error: str = ""
    finish_reason: str = ""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    ended: float = NEVER
    read_at: list[float] = field(default_factory=list, repr=False)
    pieces: list[bytes] = field(default_factory=list, repr=False)
    chunk_at: list[float] = field(default_factory=list)
    chunk_tokens: list[int] = field(default_factory=list)
    output_ids: list[int] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """A complete reply with at least one token."""
        return not self.error

    @property
    def first_token(self) -> float:
        """When the first token came; NaN where the whole reply of several tokens came at once.

        Such a reply was not streamed, so the time to its first token is not known.
        """
        if not self.chunk_at or (len(self.chunk_at) == 1 and self.output_tokens > 1):
            return NEVER
        return self.chunk_at[0]

    @property
    def last_token(self) -> float:
        """When the last token came."""
        return self.chunk_at[-1] if self.chunk_at else NEVER

    @property
    def output_sha256(self) -> str:
        """Hash of the output's token ids."""
        return hashlib.sha256(
            struct.pack(f"<{len(self.output_ids)}q", *self.output_ids)
        ).hexdigest()

    def parse(self) -> None:
        """Understand what was read, and find what makes a finished reply a failure."""
        if self.status == 200:
            self._parse_events()
        elif not self.error:
            text = b"".join(self.pieces).decode("utf-8", "replace")
            self.error = f"status {self.status}: {_message(text)}"
        self.pieces.clear()
        self._judge()

    def _parse_events(self) -> None:
        events = EventBuffer()
        try:
            for at, piece in zip(self.read_at, self.pieces, strict=True):
                for payload in events.feed(piece):
                    if payload != DONE:
                        self._take(payload, at)
        except ValueError as error:
            self.error = self.error or f"unreadable reply: {error}"

    def _take(self, payload: bytes, at: float) -> None:
        """Add one event. Raises ValueError for one that is no JSON object."""
        event = json.loads(payload)
        if not isinstance(event, dict):
            raise ValueError("an event is no JSON object")
        if "error" in event:
            self.error = self.error or f"server error: {_message(event['error'])}"
            return
        meta = event.get("meta_info") or {}
        self._count(meta, event.get("output_ids") or [], at)
        reason = meta.get("finish_reason")
        if reason:
            self.finish_reason = str(
                reason.get("type", reason) if isinstance(reason, dict) else reason
            )
            if self.finish_reason not in COMPLETE:
                self.error = self.error or f"ended by {self.finish_reason}: {_message(reason)}"

    def _count(self, meta: Mapping[str, Any], ids: Sequence[int], at: float) -> None:
        self.prompt_tokens = int(meta.get("prompt_tokens") or self.prompt_tokens)
        self.cached_tokens = int(meta.get("cached_tokens") or self.cached_tokens)
        total = int(meta.get("completion_tokens") or 0)
        if total > self.output_tokens:
            self.chunk_at.append(at)
            self.chunk_tokens.append(total - self.output_tokens)
            self.output_tokens = total
        self.output_ids += ids

    def fail(self, error: str) -> None:
        """Note that the reply broke off now."""
        self.error, self.ended = error, now()

    def _judge(self) -> None:
        if self.error:
            return
        if self.output_tokens == 0:
            self.error = "a reply without a token"
        elif not self.finish_reason:
            self.error = "the stream ended early"
        elif len(self.output_ids) != self.output_tokens:
            self.error = (
                f"the events hold {len(self.output_ids)} token ids, the server counts "
                f"{self.output_tokens}"
            )


def _message(error: Any) -> str:
    text = str(error.get("message", "") if isinstance(error, dict) else error)
    return " ".join(text.split())[:200]


class Client:
    """Requests to one server over HTTP.

    Every request has a connection of its own, closed behind its answer: none waits for another's,
    and none is sent into a connection that the server is about to close for idleness.
    """

    def __init__(self, url: str, request_timeout_s: float) -> None:
        self._url = f"{url}/generate"
        self._timeout = aiohttp.ClientTimeout(total=request_timeout_s)

    async def generate(self, message: bytes) -> Reply:
        """Send one body and read its stream to the end; failures are in the reply, never raised.

        The reply is not parsed yet (`Reply.parse`): while others stream, that would make the reader
        late for them.
        """
        reply = Reply()
        try:
            await self._stream(message, reply)
        except TimeoutError:
            reply.fail("timed out (client.request_timeout_s)")
        except aiohttp.ClientPayloadError:
            reply.fail("the stream ended early: the connection was closed")
        except aiohttp.ClientError as error:
            reply.fail(f"connection failed: {type(error).__name__}")
        else:
            reply.ended = reply.read_at[-1] if reply.read_at else now()
        return reply

    async def _stream(self, message: bytes, reply: Reply) -> None:
        # One request, one connection: a session that several share would have none to reuse.
        asking = aiohttp.request(
            "POST",
            self._url,
            data=message,
            headers={"Content-Type": "application/json"},
            timeout=self._timeout,
            read_bufsize=READ_BUFFER_BYTES,
        )
        async with asking as response:
            reply.status = response.status
            async for piece in response.content.iter_any():
                reply.read_at.append(now())
                reply.pieces.append(piece)
