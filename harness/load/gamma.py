"""An open loop with gamma-distributed gaps: burstier or more even than Poisson arrivals."""

from __future__ import annotations

from collections.abc import Sequence

from harness.load.base import Load
from workloads.arrivals import Arrivals, gamma


class Gamma(Load):
    """Sent at its time, whatever is in flight.

    rate: requests/s. burstiness: the shape of the gaps' distribution; 1 is Poisson, below 1 comes
    in bursts, above 1 more evenly. seed: of the arrivals alone.
    """

    kind = "gamma"

    @classmethod
    def keys(cls) -> tuple[str, ...]:
        """Options of this load."""
        return ("rate", "burstiness", "seed")

    def arrivals(self, requests: int, recorded: Sequence[float] | None = None) -> Arrivals:
        """Gaps of mean 1 / rate and coefficient of variation 1 / √burstiness."""
        seed = self.integer("seed", minimum=0)
        return gamma(self.number("rate"), self.number("burstiness"), requests, seed)
