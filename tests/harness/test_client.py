"""One streamed request: what is counted, what is a failure, and how fast long events are read."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from harness.client import Client, Reply, body
from harness.sse import EventBuffer
from tests.harness.fake_server import Fake, application, arguments, tokens_of

PROMPT = [5, 6, 7, 8]


async def served(app: web.Application, ask: Callable[[Client], Awaitable[Any]]) -> Any:
    async with TestServer(app) as server:
        return await ask(Client(str(server.make_url("")).rstrip("/"), 10))


def reply_to(count: int = 6, timeout_s: float = 10, **faults: Any) -> Reply:
    fake = Fake(arguments([]), {"ignore_up_to": 0, **faults})

    async def ask(client: Client) -> Reply:
        return await client.generate(body(PROMPT, count))

    reply = asyncio.run(served(application(fake), ask))
    assert isinstance(reply, Reply)
    reply.parse()
    return reply


def test_a_complete_reply() -> None:
    reply = reply_to(tpot_s=0.01)
    assert reply.ok
    assert (reply.status, reply.output_tokens, reply.prompt_tokens) == (200, 6, 4)
    assert reply.output_ids == tokens_of(PROMPT, 6)
    assert reply.chunk_tokens == [1] * 6
    assert reply.chunk_at == sorted(reply.chunk_at)
    assert reply.last_token - reply.first_token >= 5 * 0.009


def test_chunks_of_several_tokens_are_counted_by_tokens() -> None:
    reply = reply_to(10, chunk=4)
    assert reply.ok
    assert reply.output_tokens == 10
    assert reply.chunk_tokens == [4, 4, 2]


def test_a_reply_in_one_piece_has_no_time_to_first_token() -> None:
    reply = reply_to(6, chunk=6)
    assert reply.ok
    assert math.isnan(reply.first_token)
    assert math.isfinite(reply.last_token)
    assert math.isfinite(reply_to(1).first_token)


@pytest.mark.parametrize(
    ("faults", "error"),
    [
        ({"tokens": 0}, "a reply without a token"),
        ({"status": 503}, "status 503: no such luck"),
        ({"early_end": True}, "the stream ended early"),
        ({"finish": "abort"}, "ended by abort: because"),
        ({"error": "out of slots"}, "server error: out of slots"),
        ({"extra_ids": [3]}, "the events hold 12 token ids, the server counts 6"),
    ],
)
def test_a_failure_is_never_a_success(faults: dict[str, Any], error: str) -> None:
    reply = reply_to(**faults)
    assert not reply.ok
    assert error in reply.error


def test_a_server_that_is_not_there() -> None:
    async def ask() -> Reply:
        return await Client("http://127.0.0.1:9", 5).generate(body(PROMPT, 1))

    reply = asyncio.run(ask())
    reply.parse()
    assert reply.error.startswith("connection failed")
    assert reply.status == 0


def test_a_request_that_takes_too_long() -> None:
    fake = Fake(arguments([]), {"ttft_s": 30, "ignore_up_to": 0})

    async def run() -> Reply:
        async with TestServer(application(fake)) as server:
            client = Client(str(server.make_url("")).rstrip("/"), 0.3)
            return await client.generate(body(PROMPT, 1))

    reply = asyncio.run(run())
    reply.parse()
    assert reply.error == "timed out (client.request_timeout_s)"


def test_an_unreadable_event() -> None:
    async def nonsense(_: web.Request) -> web.Response:
        return web.Response(body=b"data: {nonsense\n\n", content_type="text/event-stream")

    app = web.Application()
    app.router.add_post("/generate", nonsense)

    async def ask(client: Client) -> Reply:
        return await client.generate(body(PROMPT, 1))

    reply = asyncio.run(served(app, ask))
    reply.parse()
    assert reply.error.startswith("unreadable reply")


def test_long_event_lines_do_not_throttle() -> None:
    """64 events of 1 MB: a reader that stalls at 64 KB, or copies a line at each read, crawls."""
    began = time.perf_counter()
    reply = reply_to(64, padding=2**20, tpot_s=0)
    assert reply.ok
    assert reply.output_tokens == 64
    assert time.perf_counter() - began < 8


def test_events_survive_any_cut() -> None:
    stream = b'data: {"a": 1}\n\ndata: {"b": 2}\r\n\n: comment\ndata: [DONE]\n\n'
    whole = list(EventBuffer().feed(stream))
    assert whole == [b'{"a": 1}', b'{"b": 2}', b"[DONE]"]
    for size in range(1, len(stream)):
        events = EventBuffer()
        cut = [stream[i : i + size] for i in range(0, len(stream), size)]
        assert [event for part in cut for event in events.feed(part)] == whole


def test_a_long_line_in_small_pieces_costs_linear_time() -> None:
    events = EventBuffer()
    piece = b"x" * 1000
    began = time.perf_counter()
    for _ in range(20_000):
        assert not list(events.feed(piece))
    (line,) = events.feed(b"\ndata: end\n")
    assert line == b"end"
    assert time.perf_counter() - began < 5


CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"5\r\nhello\r\n7;x=y\r\n\r\nworld\r\n0\r\n\r\n"
)
PLAIN = b"HTTP/1.1 503 Busy\r\ncontent-length: 4\r\n\r\nlate"


def raw_reply(raw: bytes) -> Reply:
    """The reply to a server that writes these bytes and closes."""

    async def run() -> Reply:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(raw)
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            return await Client(f"http://127.0.0.1:{port}", 10).generate(body(PROMPT, 1))

    reply = asyncio.run(run())
    reply.parse()
    return reply


@pytest.mark.parametrize(
    ("raw", "error"),
    [
        (b"", "connection failed: ServerDisconnectedError"),
        (b"SSH-2.0-hello\r\n\r\n", "connection failed: ClientResponseError"),
        (PLAIN[:-1], "the stream ended early: the connection was closed"),
        (CHUNKED[:-9], "the stream ended early: the connection was closed"),
        (PLAIN, "status 503: late"),
    ],
)
def test_a_broken_response_is_a_failure_in_words(raw: bytes, error: str) -> None:
    assert raw_reply(raw).error == error
