"""Server-sent events out of a byte stream, whatever the length of a line."""

from __future__ import annotations

from collections.abc import Iterator


class EventBuffer:
    """Collects bytes as they come and gives the payload of each complete `data:` line."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """The payloads that this chunk completes, in order."""
        if b"\n" not in chunk:
            # Joined once the line ends: a long line in many reads would be copied again at each.
            self._parts.append(chunk)
            return
        *lines, rest = b"".join([*self._parts, chunk]).split(b"\n")
        self._parts = [rest] if rest else []
        for line in lines:
            if line.startswith(b"data:"):
                yield line[5:].strip()
