"""The client's event loop: it samples how long what has come waits to be read."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

from harness.client import now

HEARTBEAT_S = 0.01
Result = TypeVar("Result")


class _Polls(selectors.DefaultSelector):
    """entered, returned: when the last look for what is ready began and ended, by `now`, in s."""

    entered = returned = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.entered = now()
        ready = super().select(timeout)
        self.returned = now()
        return ready


class Loop(asyncio.SelectorEventLoop):
    """beats: when each sample was due, and how late the loop was then; both in s, by `now`.

    A timer is no measure of that by itself: epoll rounds its time up to a whole millisecond, for
    which an idle loop sleeps on, while a socket wakes it at once.
    """

    def __init__(self) -> None:
        self._polls = _Polls()
        super().__init__(self._polls)
        self.beats: list[tuple[float, float]] = []

    def time(self) -> float:
        """On the clock of all measurements."""
        return now()

    def beat(self) -> None:
        """Take a sample every HEARTBEAT_S from now on."""
        due = self.time() + HEARTBEAT_S
        self.call_at(due, self._sample, due)

    def _sample(self, due: float) -> None:
        idle = self._polls.entered <= due
        late = self.time() - (self._polls.returned if idle else due)
        self.beats.append((due, max(0.0, late)))
        self.beat()


def run(main: Coroutine[Any, Any, Result]) -> Result:
    """`asyncio.run`, on a Loop."""
    with asyncio.Runner(loop_factory=Loop) as runner:
        return runner.run(main)


def running() -> Loop:
    """The loop that this runs on. Raises TypeError outside `run`."""
    loop = asyncio.get_running_loop()
    if not isinstance(loop, Loop):
        raise TypeError(f"a client runs on {Loop.__name__}, not on {type(loop).__name__}")
    return loop
