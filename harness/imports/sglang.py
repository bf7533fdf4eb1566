"""Results of `python -m sglang.benchmark.serving` (0.5.17): JSON Lines, one run a line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.imports.run import Run, base_name, latencies, load_in_words, number, optional

SOURCE = "sglang.benchmark.serving"
SETTINGS = (
    "backend",
    "dataset_name",
    "request_rate",
    "max_concurrency",
    "sharegpt_output_len",
    "random_input_len",
    "random_output_len",
    "random_range_ratio",
)
SERVER = ("version", "attention_backend", "page_size", "tp_size", "dtype", "kv_cache_dtype")
"""What is taken over of `server_info`."""


def fits(result: Mapping[str, Any]) -> bool:
    """Whether it has the keys that only this benchmark writes."""
    return "total_throughput" in result and "dataset_name" in result


def run(result: Mapping[str, Any], name: str) -> Run:
    """One result. Its output tokens are those of the replies. Raises NotAResultError."""
    info = result.get("server_info")
    server: Mapping[str, Any] = info if isinstance(info, Mapping) else {}
    completed = number(result, "completed")
    errors = [error for error in result.get("errors") or () if error]
    return Run(
        source=SOURCE,
        id=name,
        system=str(result.get("tag") or result.get("backend") or "sglang"),
        model=base_name(server.get("model_path") or ""),
        workload=_workload(result),
        load=load_in_words(result),
        metrics={
            "requests": completed,
            "duration_s": number(result, "duration"),
            "output_tok_s": number(result, "output_throughput"),
            "total_tok_s": number(result, "total_throughput"),
            "request_per_s": number(result, "request_throughput"),
            **latencies(result, "e2e_latency_ms"),
            "hit_rate": _hit_rate(result),
        },
        reasons=_reasons(completed, len(errors)),
        settings={key: result.get(key) for key in SETTINGS}
        | {f"server.{key}": server[key] for key in SERVER if key in server},
    )


def _workload(result: Mapping[str, Any]) -> str:
    name = str(result.get("dataset_name"))
    if not name.startswith("random"):
        return name
    return f"{name} {result.get('random_input_len')}+{result.get('random_output_len')}"


def _hit_rate(result: Mapping[str, Any]) -> float:
    report = result.get("cache_report")
    return optional(report if isinstance(report, Mapping) else {}, "cache_hit_rate_pct") / 100


def _reasons(completed: float, failed: int) -> list[str]:
    if completed == 0:
        return ["no request was completed"]
    return [f"{failed} requests failed"] if failed else []
