"""The engine's `/metrics`: Prometheus' text format, as far as gauges and counters go."""

from __future__ import annotations

import math
import re

from harness import http
from harness.telemetry.sample import METRICS, Reading, SourceError

PREFIX = "sglang:"
WANTED = {
    "num_queue_reqs": "queued_requests",
    "num_running_reqs": "running_requests",
    "num_retracted_reqs": "retracted_requests",
    "token_usage": "kv_used_share",
    "num_used_tokens": "kv_used_tokens",
    "kv_available_tokens": "kv_available_tokens",
    "kv_evictable_tokens": "kv_evictable_tokens",
    "evicted_tokens_total": "evicted_tokens",
    "cache_hit_rate": "hit_rate_last_batch",
    "gen_throughput": "output_tok_s_last_batches",
    "generation_tokens_total": "generated_tokens",
    "prompt_tokens_total": "prompt_tokens",
}
"""The engine's names to ours; what a version lacks is left out."""

_LINE = re.compile(r"([A-Za-z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+-?\d+)?")
_RANK = re.compile(r'(?:^|,)\s*tp_rank="(\d+)"')


def parse(text: str) -> list[Reading]:
    """The wanted metrics of one scrape; rank is the label `tp_rank`, 0 without it.

    A counter that is kept by further labels is summed over them. Values that are no numbers (an
    unused gauge is NaN) are left out. Raises SourceError for a line that is no metric.
    """
    found: dict[tuple[int, str], float] = {}
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            name, rank, value = _metric(line.strip())
            if name in WANTED and not math.isnan(value):
                key = rank, WANTED[name]
                counted = found.get(key, 0.0) if name.endswith("_total") else 0.0
                found[key] = counted + value
    return [Reading(rank, name, value) for (rank, name), value in found.items()]


def _metric(line: str) -> tuple[str, int, float]:
    found = _LINE.fullmatch(line)
    try:
        value = float(found[3]) if found else None
    except ValueError:
        value = None
    if found is None or value is None:
        raise SourceError(f"/metrics has a line that is none: {line[:60]!r}")
    rank = _RANK.search(found[2] or "")
    return found[1].removeprefix(PREFIX), int(rank[1]) if rank else 0, value


class EngineMetrics:
    """`/metrics` of a server that was started with --enable-metrics."""

    name = METRICS

    def __init__(self, url: str, hz: float) -> None:
        self.period_s = 1.0 / hz
        self._url = f"{url}/metrics"

    def read(self) -> list[Reading]:
        """One scrape."""
        status, body = http.request(self._url, timeout_s=10.0)
        if status != 200:
            raise SourceError(f"GET /metrics failed: {http.describe(status)}")
        return parse(body.decode("utf-8", "replace"))
