"""HTTP/1.1 with as little work as possible while it runs: recorded first, understood afterwards."""

from __future__ import annotations

import asyncio
import time

_HEAD_END = b"\r\n\r\n"
_LAST_CHUNK = b"0\r\n\r\n"


def post(host: str, port: int, path: str, message: bytes) -> bytes:
    """A request whose connection is closed behind its answer."""
    return (
        f"POST {path} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(message)}\r\nConnection: close\r\n\r\n"
    ).encode() + message


class Exchange(asyncio.Protocol):
    """One request and what came back for it: pieces of bytes, and when each was read.

    read_at: on the clock of `time.perf_counter`, in s. done: set when the answer has ended; it
    raises OSError where the connection broke before.
    """

    def __init__(self, request: bytes) -> None:
        self._request = request
        self.read_at: list[float] = []
        self.pieces: list[bytes] = []
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the request."""
        assert isinstance(transport, asyncio.Transport)
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        """Note the bytes; nothing here may depend on how many streams there are."""
        self.read_at.append(time.perf_counter())
        self.pieces.append(data)
        # A terminator cut by a read is found by the connection's end instead, a moment later.
        if data.endswith(_LAST_CHUNK):
            self._finish()

    def connection_lost(self, error: Exception | None) -> None:
        """The other side closed, or the connection broke."""
        if error is not None and not self.done.done():
            self.done.set_exception(error)
        self._finish()

    def _finish(self) -> None:
        if not self.done.done():
            self.done.set_result(None)


class Response:
    """An HTTP/1.1 response, decoded piece by piece.

    status: 0 before its head is complete. complete: whether its last byte was there, which for a
    body without a stated length nobody can tell.
    """

    def __init__(self) -> None:
        self.status = 0
        self.complete = False
        self._buffer = b""
        self._chunked = False
        self._left: int | None = None

    def feed(self, piece: bytes) -> bytes:
        """The bytes of the body that this piece brings. Raises ValueError if it is not HTTP."""
        self._buffer += piece
        if not self.status and not self._take_head():
            return b""
        return self._take_chunks() if self._chunked else self._take_plain()

    def _take_head(self) -> bool:
        head, found, rest = self._buffer.partition(_HEAD_END)
        if not found:
            return False
        first, *lines = head.decode("latin-1").split("\r\n")
        version, _, status = first.partition(" ")
        if not version.startswith("HTTP/1."):
            raise ValueError("not an HTTP/1 response")
        fields = dict(line.lower().split(":", 1) for line in lines if ":" in line)
        self._chunked = fields.get("transfer-encoding", "").strip() == "chunked"
        length = fields.get("content-length")
        self._left = int(length) if length is not None and not self._chunked else None
        self.complete = not self._chunked and not self._left
        self._buffer, self.status = rest, int(status[:3])
        return True

    def _take_plain(self) -> bytes:
        body, self._buffer = self._buffer, b""
        if self._left is not None:
            self._left -= len(body)
            self.complete = self._left <= 0
        return body

    def _take_chunks(self) -> bytes:
        """Whole and partial chunks; `_left` counts what a chunk and its line end still lack."""
        parts: list[bytes] = []
        while not self.complete:
            if self._left is None:
                line, found, rest = self._buffer.partition(b"\r\n")
                if not found:
                    break
                size = int(line.partition(b";")[0], 16)
                self._buffer = rest
                self._left, self.complete = size + 2, size == 0
            elif not self._buffer:
                break
            else:
                taken, self._buffer = self._buffer[: self._left], self._buffer[self._left :]
                inside = max(0, self._left - 2)
                parts.append(taken[:inside])
                self._left = (self._left - len(taken)) or None
        return b"".join(parts)
