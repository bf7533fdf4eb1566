"""What a step costs before its first layer."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any

import torch

from granikv.bench.kernels import timing
from granikv.bench.kernels.cases import Case
from granikv.bench.kernels.step import Bench
from granikv.calibrate import time_together
from granikv.plan import DecodePlan

_WARM_UP = 20
"""Calls that are not measured: the first ones make what is kept, and fill the caches."""


def _percentiles(act: Callable[[], object], steps: int) -> dict[str, float]:
    """Host time of `act` in µs; the device is left to follow."""
    times = []
    for _ in range(_WARM_UP + steps):
        begin = time.perf_counter_ns()
        act()
        times.append((time.perf_counter_ns() - begin) / 1e3)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
    times = sorted(times[_WARM_UP:])
    return {"p50_us": round(times[steps // 2], 1), "p99_us": round(times[steps * 99 // 100], 1)}


def host_records(case: Case, steps: int = 300, **options: Any) -> list[dict[str, Any]]:
    """What a step costs before its first layer: host time, and the snapshot's device time."""
    bench = Bench(case, 1, **options)
    plan = bench.storage.plan
    turns = itertools.cycle([DecodePlan(plan.rows, plan.segments, plan.paged) for _ in range(2)])
    replay, launches = timing.captured(lambda _: bench.snapshot(), 1)
    (taken,) = time_together(bench.device.type, [replay], 0.2)
    host: dict[str, Callable[[], object]] = {
        "plan (host)": lambda: bench.step.plan(next(turns)),
        "plan, unchanged (host)": lambda: bench.step.plan(plan),
        "snapshot (host)": bench.snapshot,
    }
    about = {"case": case.name, "rows": case.rows, "segments": len(case.reads)}
    return [
        *({**about, "pass": name, **_percentiles(act, steps)} for name, act in host.items()),
        {**about, "pass": "snapshot", **timing.microseconds(taken, launches)},
    ]
