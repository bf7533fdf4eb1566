"""All requests at once: the synthetic grid's load (Appendix B.1)."""

from __future__ import annotations

from collections.abc import Sequence

from harness.load.base import Load
from workloads.arrivals import Arrivals, burst


class Burst(Load):
    """Every request is due at 0 and sent at once."""

    kind = "burst"

    def arrivals(self, requests: int, recorded: Sequence[float] | None = None) -> Arrivals:
        """Zero for every request."""
        return burst(requests)
