"""Workloads: requests as token ids with an arrival time and an output length, made from a seed."""

from workloads.arrivals import (
    Arrivals,
    burst,
    constant,
    gamma,
    poisson,
    recorded,
    with_arrivals,
)
from workloads.build import build
from workloads.request import NO_PREFIX, Request, Workload, WorkloadError

__all__ = [
    "NO_PREFIX",
    "Arrivals",
    "Request",
    "Workload",
    "WorkloadError",
    "build",
    "burst",
    "constant",
    "gamma",
    "poisson",
    "recorded",
    "with_arrivals",
]
