"""GraniKV's part of `/server_info` over time: pools, admissions, donations, evictions, backends.

A poll stops the scheduler between two steps and describes its tree, so it is off unless asked for;
`conf/telemetry/server.yaml` says what it was measured to cost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from harness import http
from harness.errors import ServerError
from harness.telemetry.sample import STATE, Reading, SourceError

POOLS = "pool_"
"""Prefix of the pools' readings, in slots; the others are GraniKV's counters."""


def readings(info: Mapping[str, Any]) -> Iterator[Reading]:
    """Every number of the pools and every counter, of each rank; none on a stock server."""
    states = info.get("internal_states") or [{}]
    for rank, state in enumerate(states[0].get("granikv") or []):
        for name, value in (state.get("pools") or {}).items():
            if isinstance(value, int | float):
                yield Reading(rank, POOLS + name, float(value))
        for name, value in (state.get("counters") or {}).items():
            yield Reading(rank, name, float(value))


class StorageState:
    """`/server_info` of a server that may have the plugin."""

    name = STATE

    def __init__(self, url: str, hz: float) -> None:
        self.period_s = 1.0 / hz
        self._url = f"{url}/server_info"

    def read(self) -> list[Reading]:
        """One poll."""
        try:
            return list(readings(http.get_json(self._url, timeout_s=10.0)))
        except ServerError as error:
            raise SourceError(str(error)) from None
