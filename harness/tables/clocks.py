"""How fast the GPUs themselves ran under each system: at a power limit a busier one is slower."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.analysis.cells import CellLike, number, standing
from harness.tables.labels import system_label
from harness.tables.numbers import Point
from harness.tables.sources import CellSource


def note(source: CellSource, points: Sequence[Point]) -> str:
    """Each system's mean SM clocks in MHz and the power, of these points' serving cells.

    By NVML's readings in the measured window, of GPU cells; empty where none has any.
    """
    clocks: dict[str, list[float]] = {}
    powers: list[float] = []
    for cell in (cell for point in points for cell in source.served(point)):
        clock, power = number(cell, "sm_clock_mean_mhz"), _power(cell)
        if clock is not None:
            clocks.setdefault(system_label(standing(cell).system), []).append(clock)
        powers += [] if power is None else [power]
    if source.functional or not clocks:
        return ""
    said = [f"{_range(values, ',.0f')} MHz ({system})" for system, values in clocks.items()]
    share = f", at {_range(powers, '.0%')} of the power limit" if powers else ""
    return f"{source.heading}: mean SM clock {', '.join(said)}{share}."


def _range(values: Sequence[float], form: str) -> str:
    ends = dict.fromkeys(format(value, form) for value in (min(values), max(values)))
    return " to ".join(ends)


def _power(cell: CellLike) -> float | None:
    """Mean power as a share of the limits of all GPUs that the cell saw."""
    gpus: Sequence[Mapping[str, Any]] = cell.record.get("environment", {}).get("gpus") or ()
    limits = [float(limit) for gpu in gpus if (limit := gpu.get("power_limit_w")) is not None]
    watts = number(cell, "power_mean_w")
    if watts is None or not limits or len(limits) < len(gpus):
        return None
    return watts / sum(limits)
