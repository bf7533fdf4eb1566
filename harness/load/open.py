"""An open loop: Poisson arrivals, whatever is in flight."""

from __future__ import annotations

from harness.load.poisson_capped import PoissonCapped


class Open(PoissonCapped):
    """Sent at its Poisson time. rate: requests/s. seed: of the arrivals alone."""

    kind = "open"

    @classmethod
    def keys(cls) -> tuple[str, ...]:
        """Options of this load."""
        return ("rate", "seed")
