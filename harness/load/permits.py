"""B permits, handed out first come, first served, each with the moment it became free."""

from __future__ import annotations

import asyncio
from collections import deque


class Permits:
    """count: B, or None for no limit. Times are those given to `release`."""

    def __init__(self, count: int | None) -> None:
        self._unlimited = count is None
        self._free = deque([0.0] * (count or 0))
        self._waiting: deque[asyncio.Future[float]] = deque()

    async def acquire(self) -> float:
        """Wait for a permit; the moment at which it had become free."""
        if self._unlimited:
            return 0.0
        if self._free:
            return self._free.popleft()
        turn: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        return await turn

    def release(self, at: float) -> None:
        """Give a permit back, free since `at`."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(at)
                return
        self._free.append(at)
