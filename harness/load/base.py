"""How requests are offered to a server: when each is due, and how many may be in flight."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from harness.errors import HarnessError
from workloads.arrivals import Arrivals


class Load(ABC):
    """One way to offer requests. A load is a file in this package and one in conf/load/."""

    kind: ClassVar[str]
    due_when_permitted: ClassVar[bool] = False
    """Whether a request is due only when a permit is free (a closed loop), not by a clock."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        unknown = sorted(set(config) - {"kind", *self.keys()})
        if unknown:
            raise HarnessError(
                f"load.{unknown[0]} is unknown to {self.kind}; it takes: {', '.join(self.keys())}"
            )
        self._config = config
        self.permits = self.integer("permits") if "permits" in self.keys() else None
        """B: how many requests may be in flight; None for any number."""

    @classmethod
    def keys(cls) -> tuple[str, ...]:
        """The options it takes."""
        return ()

    @abstractmethod
    def arrivals(self, requests: int, recorded: Sequence[float] | None = None) -> Arrivals:
        """Due times of so many requests.

        recorded: those that the workload brings along, in s, if any; only a replay looks at them.
        """

    def number(self, key: str) -> float:
        """A positive number from the configuration."""
        value = self._config.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise HarnessError(f"load.{key} must be a positive number, not {value!r}")
        return float(value)

    def integer(self, key: str, minimum: int = 1) -> int:
        """An integer ≥ minimum from the configuration."""
        value = self._config.get(key)
        if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
            raise HarnessError(
                f"load.{key} must be an integer of at least {minimum}, not {value!r}"
            )
        return value
