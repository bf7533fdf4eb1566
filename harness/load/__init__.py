"""The loads: one file each, and the registry that the configuration chooses from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.errors import HarnessError
from harness.load.base import Load
from harness.load.burst import Burst
from harness.load.closed import Closed
from harness.load.constant import Constant
from harness.load.gamma import Gamma
from harness.load.open import Open
from harness.load.poisson_capped import PoissonCapped
from harness.load.replay import Replay

__all__ = ["LOADS", "Load", "make"]

LOADS: dict[str, type[Load]] = {
    load.kind: load for load in (PoissonCapped, Open, Gamma, Constant, Burst, Replay, Closed)
}
"""The registry: a new load is a module with a class, a line here and a file in conf/load/."""


def make(config: Mapping[str, Any]) -> Load:
    """The load that the group `load` of a configuration describes."""
    kind = config.get("kind")
    if kind not in LOADS:
        raise HarnessError(f"unknown load {kind!r}; there are: {', '.join(LOADS)}")
    return LOADS[kind](config)
