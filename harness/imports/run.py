"""One run of another benchmark, and the small steps that its readers share."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

NAN = float("nan")


class NotAResultError(Exception):
    """A JSON object that is no result of this benchmark; the message says what is wrong with it."""


@dataclass(frozen=True)
class Run:
    """One run. source: the benchmark. metrics: as in `harness.metrics`. reasons: against it."""

    source: str
    id: str
    system: str
    model: str
    workload: str
    load: str
    metrics: Mapping[str, float]
    repetition: int = 0
    reasons: Sequence[str] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)


def number(result: Mapping[str, Any], key: str) -> float:
    """A number that the result must have. Raises NotAResultError."""
    if key not in result:
        raise NotAResultError(f"no {key!r}")
    value = optional(result, key)
    if math.isnan(value):
        raise NotAResultError(f"{key!r} is {result[key]!r}, not a number")
    return value


def optional(result: Mapping[str, Any], key: str) -> float:
    """A number that the result may have; NaN without it. Raises NotAResultError for a text."""
    value = result.get(key)
    if value is None:
        return NAN
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise NotAResultError(f"{key!r} is {value!r}, not a number")
    return float(value)


def percentiles(
    result: Mapping[str, Any], theirs: str, ours: str, unit: str, scale: float
) -> dict[str, float]:
    """p50, p90 and p99 of a latency: `median_ttft_ms`, `p99_ttft_ms` as `ttft_p50_s`, ...

    Both tools write 0 for what they could not measure (a reply that was not streamed): here NaN.
    """
    keys = {"p50": f"median_{theirs}", "p90": f"p90_{theirs}", "p99": f"p99_{theirs}"}
    return {
        f"{ours}_{at}_{unit}": (optional(result, key) or NAN) * scale for at, key in keys.items()
    }


def latencies(result: Mapping[str, Any], e2e: str) -> dict[str, float]:
    """TTFT and E2E in s, TPOT and ITL in ms, from a result in ms; `e2e` is its name for E2E."""
    return {
        **percentiles(result, "ttft_ms", "ttft", "s", 0.001),
        **percentiles(result, "tpot_ms", "tpot", "ms", 1.0),
        **percentiles(result, "itl_ms", "itl", "ms", 1.0),
        **percentiles(result, e2e, "e2e", "s", 0.001),
    }


def load_in_words(result: Mapping[str, Any]) -> str:
    """Request rate and largest concurrency."""
    concurrency, rate = result.get("max_concurrency"), result.get("request_rate")
    at = "at once" if rate in (None, "inf", math.inf) else rate if rate == "trace" else f"{rate}/s"
    return f"B={concurrency} {at}" if concurrency else str(at)


def base_name(text: object) -> str:
    """A model's name without the directory that it lay in."""
    return Path(str(text)).name if str(text).startswith(("/", "~", ".")) else str(text)
