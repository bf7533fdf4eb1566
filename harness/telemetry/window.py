"""From samples to what a cell stores: rows of the measured window, and its energy.

The window is that of `harness.metrics.duration_s`: from the first request sent to the last token.
A server's start, its warm-up and the idle time around the load are outside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from harness.telemetry.sample import GPU, Sample
from harness.telemetry.watch import Recording

COLUMNS = {
    "t_s": "float64",
    "source": "object",
    "rank": "int64",
    "name": "object",
    "value": "float64",
}
"""Columns of a cell's telemetry, one row a reading. t_s: as in its requests, in `telemetry.parquet`
whole ns too. rank: of the server's process, and of its GPU."""

NAN = float("nan")


@dataclass(frozen=True)
class Telemetry:
    """What a cell keeps. frame: COLUMNS. record: what was watched and what could not be."""

    frame: pd.DataFrame
    metrics: dict[str, float]
    record: dict[str, Any]


def frame(samples: Sequence[Sample], start: float, window: tuple[float, float]) -> pd.DataFrame:
    """The samples within the window (s since `start`), in the order of time."""
    rows = pd.DataFrame(list(samples), columns=list(COLUMNS)).astype(COLUMNS)
    rows["t_s"] -= start
    inside = rows[rows["t_s"].between(*window)]
    return inside.sort_values(["t_s", "source", "rank", "name"], ignore_index=True)


def measured_window(log: pd.DataFrame) -> tuple[float, float]:
    """First request sent and last token of all in s; (NaN, NaN) where nothing was answered."""
    ok = log[log["ok"].astype(bool)]
    if ok.empty:
        return NAN, NAN
    return float(ok["sent_s"].min()), float(ok["last_token_s"].max())


def energy_j(samples: Sequence[Sample], begin: float, end: float) -> float:
    """Energy of all GPUs between two moments on the samples' clock in J.

    Σ over GPUs of the chip's own energy counter, interpolated at both edges; of a GPU without one,
    the integral of its power. NaN where the samples of a GPU do not enclose the window.
    """
    rows = pd.DataFrame([s for s in samples if s.source == GPU], columns=list(Sample._fields))
    if rows.empty or not begin < end:
        return NAN
    return float(sum(_of_one(of_gpu, begin, end) for _, of_gpu in rows.groupby("rank")))


def _of_one(rows: pd.DataFrame, begin: float, end: float) -> float:
    named = {str(name): part.sort_values("at") for name, part in rows.groupby("name")}
    counter, power = named.get("energy_j"), named.get("power_w")
    series = power if counter is None else counter
    if series is None or series["at"].min() > begin or series["at"].max() < end:
        return NAN
    at, values = series["at"].to_numpy(float), series["value"].to_numpy(float)
    if counter is not None:
        first, last = np.interp([begin, end], at, values)
        return float(last - first)
    moments = np.concatenate(([begin], at[(at > begin) & (at < end)], [end]))
    return float(np.trapezoid(np.interp(moments, at, values), moments))


def mean_clock_mhz(rows: pd.DataFrame) -> float:
    """Mean of the SM clocks among these rows of `telemetry.parquet`; NaN where there is none."""
    return float(rows.loc[rows["name"] == "sm_clock_mhz", "value"].mean())


def measured(recording: Recording, start: float, log: pd.DataFrame) -> Telemetry:
    """Telemetry of a load whose log's time 0 was `start` on the samples' clock.

    Metrics: `energy_j` of the window, `power_mean_w` = energy / window, `joules_per_output_token` =
    energy / Σ output tokens of the requests answered, and `sm_clock_mean_mhz` over the window's
    readings of all GPUs; NaN without NVML.
    """
    window = measured_window(log)
    joules = energy_j(recording.samples, start + window[0], start + window[1])
    tokens = float(log.loc[log["ok"].astype(bool), "output_tokens"].sum())
    rows = frame(recording.samples, start, window)
    return Telemetry(
        frame=rows,
        metrics={
            "energy_j": joules,
            "power_mean_w": joules / (window[1] - window[0]),
            "joules_per_output_token": joules / tokens if tokens else NAN,
            "sm_clock_mean_mhz": mean_clock_mhz(rows),
        },
        record={
            "window_s": list(window),
            "rows": {
                str(source): int(count) for source, count in rows["source"].value_counts().items()
            },
            "missing": recording.missing,
        },
    )
