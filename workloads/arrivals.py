"""Arrival times: when each request of a workload is due."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
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


def gamma(rate: float, shape: float, n: int, seed: int) -> Arrivals:
    """n arrivals whose gaps are gamma-distributed with mean 1 / rate s and this shape.

    Shape 1 is a Poisson process; below 1 arrivals come in bursts, above 1 more evenly. The gaps'
    coefficient of variation is 1 / √shape.
    """
    _check(rate, n, seed)
    if not (math.isfinite(shape) and shape > 0):
        raise WorkloadError(f"burstiness must be a positive number, not {shape}")
    gaps_s = [
        _gamma(Stream(seed, StreamName.ARRIVALS, i), shape) / (rate * shape) for i in range(n)
    ]
    due_ns = np.cumsum(np.rint(np.array(gaps_s) * 1e9).astype(np.int64))
    parameters = {"kind": "gamma", "rate": float(rate), "shape": float(shape), "seed": seed}
    return Arrivals(due_ns, parameters)


def _gamma(stream: Stream, shape: float) -> float:
    """One gamma variate of mean `shape` (Marsaglia and Tsang 2000, a method by rejection)."""
    if shape < 1:
        return _gamma(stream, shape + 1) * math.pow(1 - float(stream.unit(1)[0]), 1 / shape)
    d = shape - 1 / 3
    while True:
        radius, angle, accept = map(float, stream.unit(3))
        normal = math.sqrt(-2 * math.log(1 - radius)) * math.cos(2 * math.pi * angle)
        v = (1 + normal / math.sqrt(9 * d)) ** 3
        if v > 0 and math.log(1 - accept) < normal**2 / 2 + d * (1 - v + math.log(v)):
            return d * v


def recorded(due_s: Sequence[float], speed: float = 1.0) -> Arrivals:
    """The due times of a trace, run `speed` times as fast as they were recorded."""
    if not (math.isfinite(speed) and speed > 0):
        raise WorkloadError(f"speed must be a positive number, not {speed}")
    due_ns = np.rint(np.asarray(due_s, dtype=np.float64) * (1e9 / speed)).astype(np.int64)
    return Arrivals(due_ns, {"kind": "recorded", "speed": float(speed)})


def burst(n: int) -> Arrivals:
    """n arrivals at 0: the synthetic grid's (Appendix B.1)."""
    _check(1.0, n)
    return Arrivals(np.zeros(n, dtype=np.int64), {"kind": "burst"})


def with_arrivals(workload: Workload, arrivals: Arrivals) -> Workload:
    """The same requests, due at these times; a new workload with a new hash.

    One time for each request that opens a dialogue (without dialogues: for each request).
    """
    times = arrivals.due_s
    openers = workload.openers
    if len(times) != len(openers):
        raise WorkloadError(f"{len(times)} arrivals for {len(openers)} requests")
    due = dict(zip((request.index for request in openers), times, strict=True))
    for request in workload.requests:
        if request.after is not None:
            due[request.index] = due[request.after]
    return replace(
        workload,
        requests=tuple(replace(request, due_s=due[request.index]) for request in workload.requests),
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
