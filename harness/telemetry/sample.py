"""One reading, as the sampling process takes it and sends it on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

GPU, METRICS, STATE = "gpu", "metrics", "granikv"
"""Sources: NVML, the engine's `/metrics`, GraniKV's part of `/server_info`."""


class SourceError(Exception):
    """A source that cannot be read, in one line."""


class Reading(NamedTuple):
    """A number. rank: of the server's process, which is also the GPU's place among its GPUs."""

    rank: int
    name: str
    value: float


class Sample(NamedTuple):
    """A reading at a moment: seconds on the clock of `harness.client.now`."""

    at: float
    source: str
    rank: int
    name: str
    value: float


class Source(Protocol):
    """Something that can be read again and again; `read` raises SourceError."""

    name: str
    period_s: float

    def read(self) -> Iterable[Reading]: ...
