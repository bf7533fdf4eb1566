"""The due times that a trace was recorded with."""

from __future__ import annotations

from collections.abc import Sequence

from harness.errors import HarnessError
from harness.load.base import Load
from workloads.arrivals import Arrivals
from workloads.arrivals import recorded as replayed


class Replay(Load):
    """Sent at its recorded time, whatever is in flight. speed: 2 runs the trace in half its time.

    Needs a workload that brings times along: workload=trace.
    """

    kind = "replay"

    @classmethod
    def keys(cls) -> tuple[str, ...]:
        """Options of this load."""
        return ("speed",)

    def arrivals(self, requests: int, recorded: Sequence[float] | None = None) -> Arrivals:
        """The workload's own times. Raises HarnessError if it has none."""
        if recorded is None:
            raise HarnessError(
                "load=replay needs a workload with recorded times, such as workload=trace"
            )
        return replayed(recorded, self.number("speed"))
