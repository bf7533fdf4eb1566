"""The paper's load: Poisson arrivals, and at most B requests in flight (§4.4)."""

from __future__ import annotations

from collections.abc import Sequence

from harness.load.base import Load
from workloads.arrivals import Arrivals, poisson


class PoissonCapped(Load):
    """A request is due at its Poisson time and is sent when one of B permits is free, in order.

    rate: requests/s. permits: B. seed: of the arrivals alone.
    """

    kind = "poisson_capped"

    @classmethod
    def keys(cls) -> tuple[str, ...]:
        """Options of this load."""
        return ("rate", "permits", "seed")

    def arrivals(self, requests: int, recorded: Sequence[float] | None = None) -> Arrivals:
        """Exponential gaps of mean 1 / rate."""
        return poisson(self.number("rate"), requests, self.integer("seed", minimum=0))
