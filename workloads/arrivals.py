"""Arrival times: when each request of a workload is due."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workloads.request import Workload, WorkloadError
from workloads.streams import Stream, StreamName

_LAST_NS = 2.0**62


@dataclass(frozen=True, eq=False)
class Arrivals:
    """Due times of n requests, in order.

    due_ns: int64 [n], nanoseconds after the start of the load. Whole nanoseconds, so that the last
        bit of a logarithm, which differs between processors, cannot change the hash.
    parameters: JSON values: the kind, and the rate (requests/s) and seed where there are any.
    """

    due_ns: NDArray[np.int64] = field(repr=False)
    parameters: dict[str, Any]

    @property
    def due_s(self) -> tuple[float, ...]:
        """Due times in seconds."""
        return tuple(int(time) / 1e9 for time in self.due_ns)

    @property
    def sha256(self) -> str:
        """Hash of the due times alone: equal for every system that is sent the same arrivals."""
        return hashlib.sha256(self.due_ns.astype("<i8").tobytes()).hexdigest()


def poisson(rate: float, n: int, seed: int) -> Arrivals:
    """n arrivals of a Poisson process (§4.4): independent exponential gaps of mean 1 / rate s."""
    _check(rate, n, seed)
    gaps_s = -np.log1p(-Stream(seed, StreamName.ARRIVALS).unit(n)) / rate
    due_ns = np.cumsum(np.rint(gaps_s * 1e9).astype(np.int64))
    return Arrivals(due_ns, {"kind": "poisson", "rate": float(rate), "seed": seed})


def constant(rate: float, n: int) -> Arrivals:
    """n arrivals 1 / rate s apart, the first at 0."""
    _check(rate, n)
    due_ns = np.rint(np.arange(n) * (1e9 / rate)).astype(np.int64)
    return Arrivals(due_ns, {"kind": "constant", "rate": float(rate)})


def burst(n: int) -> Arrivals:
    """n arrivals at 0: the synthetic grid's (Appendix B.1)."""
    _check(1.0, n)
    return Arrivals(np.zeros(n, dtype=np.int64), {"kind": "burst"})


def with_arrivals(workload: Workload, arrivals: Arrivals) -> Workload:
    """The same requests, due at these times; a new workload with a new hash."""
    due = arrivals.due_s
    if len(due) != len(workload.requests):
        raise WorkloadError(f"{len(due)} arrivals for {len(workload.requests)} requests")
    return replace(
        workload,
        requests=tuple(
            replace(request, due_s=time)
            for request, time in zip(workload.requests, due, strict=True)
        ),
        parameters={
            **workload.parameters,
            "arrivals": {**arrivals.parameters, "sha256": arrivals.sha256},
        },
    )


def _check(rate: float, n: int, seed: int = 0) -> None:
    if not (math.isfinite(rate) and rate > 0):
        raise WorkloadError(f"rate must be a positive number of requests/s, not {rate}; see burst")
    if n / rate * 1e9 > _LAST_NS:
        raise WorkloadError(f"at {rate} requests/s, {n} arrivals take more than a century")
    if n < 0:
        raise WorkloadError(f"the number of arrivals must not be negative, it is {n}")
    if seed < 0:
        raise WorkloadError(f"seed must not be negative, it is {seed}")
