"""An open loop with equal gaps."""

from __future__ import annotations

from collections.abc import Sequence

from harness.load.base import Load
from workloads.arrivals import Arrivals, constant


class Constant(Load):
    """Sent every 1 / rate s, whatever is in flight. rate: requests/s."""

    kind = "constant"

    @classmethod
    def keys(cls) -> tuple[str, ...]:
        """Options of this load."""
        return ("rate",)

    def arrivals(self, requests: int, recorded: Sequence[float] | None = None) -> Arrivals:
        """The first at 0."""
        return constant(self.number("rate"), requests)
