"""A server that streams tokens at known times and remembers when it wrote them.

    python -m harness.load.pacer        prints the port that it listens on, on 127.0.0.1

It answers `/generate` like SGLang with incremental output, one event a token, and does nothing
else, so that a client can be measured against it: `POST /pace` sets the delays (the fields of
`Pace`, JSON) and forgets what was written; `GET /record` gives it (the fields of `Record`), in s on
the clock of `harness.client.now`, which all processes of a machine share.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from harness.load.streams import allow_many_files

BACKLOG = 4096
_HEAD_END = b"\r\n\r\n"
_ASKED = re.compile(rb'"max_new_tokens":\s*(\d+)')
_LENGTH = re.compile(rb"content-length:\s*(\d+)", re.IGNORECASE)
_STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
)
_STREAM_END = b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"
_FILLER = "x" * 256
"""Brings an event to the size of SGLang's, which holds more about the request."""


@dataclass(frozen=True)
class Pace:
    """ttft_s: from a request's arrival to its first token. tpot_s: between tokens.

    grid_s: all writes fall on multiples of it: an engine's streams advance together, step by step.
    stall_s: for how long the whole server stops, once, stall_at_s after the pace was set.
    """

    ttft_s: float = 0.1
    tpot_s: float = 0.02
    grid_s: float = 0.001
    stall_at_s: float = 0.0
    stall_s: float = 0.0


@dataclass
class Record:
    """One request: its prompt's first token id, when it had been read, when each token was written.

    A token's time is taken just before it is handed to the kernel.
    """

    key: int
    received: float
    written: list[float] = field(default_factory=list)


@dataclass
class Pacer:
    """The pace in force and the record since it was set."""

    pace: Pace = field(default_factory=Pace)
    record: list[Record] = field(default_factory=list)

    def set(self, body: bytes) -> None:
        """A new pace; the record starts anew."""
        self.pace, self.record = Pace(**json.loads(body)), []
        if self.pace.stall_s:
            loop = asyncio.get_running_loop()
            loop.call_later(self.pace.stall_at_s, time.sleep, self.pace.stall_s)

    def history(self) -> bytes:
        """The record as JSON."""
        return json.dumps({"requests": [vars(record) for record in self.record]}).encode()


class _Connection(asyncio.Protocol):
    """One request; the connection is closed behind its answer."""

    def __init__(self, pacer: Pacer) -> None:
        self._pacer = pacer
        self._read = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._read += data
        head, found, body = self._read.partition(_HEAD_END)
        length = _LENGTH.search(head)
        if found and len(body) >= (int(length[1]) if length else 0):
            self._answer(head.split(b" ", 2)[1], body)

    def _answer(self, path: bytes, body: bytes) -> None:
        if path == b"/generate":
            self._generate(body)
            return
        if path == b"/pace":
            self._pacer.set(body)
        text = self._pacer.history() if path == b"/record" else b"{}"
        self._transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(text) + text)
        self._transport.close()

    def _generate(self, body: bytes) -> None:
        prompt = body[body.index(b"[") + 1 : body.index(b"]")].split(b",")
        record, pace = Record(int(prompt[0]), time.perf_counter()), self._pacer.pace
        self._pacer.record.append(record)
        asked = _ASKED.search(body)
        tokens = int(asked[1]) if asked else 1
        loop = asyncio.get_running_loop()
        first = loop.time() + pace.ttft_s
        self._transport.write(_STREAM_HEAD)

        def on_grid(at: float) -> float:
            return math.ceil(at / pace.grid_s) * pace.grid_s

        def step(number: int) -> None:
            if self._transport.is_closing():
                return
            record.written.append(time.perf_counter())
            self._transport.write(event(len(prompt), number, last=number == tokens))
            if number == tokens:
                self._transport.close()
            else:
                loop.call_at(on_grid(first + number * pace.tpot_s), step, number + 1)

        loop.call_at(on_grid(first), step, 1)


def event(prompt: int, number: int, last: bool) -> bytes:
    """The chunk of a reply's token `number`, from 1, with the reply's end behind the last one."""
    reason = '{"type":"length"}' if last else "null"
    text = (
        f'data: {{"output_ids":[{number}],"meta_info":{{"prompt_tokens":{prompt},"cached_tokens":0,'
        f'"completion_tokens":{number},"finish_reason":{reason},"filler":"{_FILLER}"}}}}\n\n'
    ).encode()
    return b"%x\r\n%b\r\n%b" % (len(text), text, _STREAM_END if last else b"")


async def serve(announce: Callable[[int], None]) -> None:
    """Serve on a free port of 127.0.0.1 until cancelled; `announce` is told the port."""
    pacer = Pacer()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Connection(pacer), "127.0.0.1", 0, backlog=BACKLOG)
    announce(server.sockets[0].getsockname()[1])
    await server.serve_forever()


def main() -> None:
    """Serve until killed."""
    allow_many_files()
    asyncio.run(serve(lambda port: print(port, flush=True)))


if __name__ == "__main__":
    main()
