"""Results of `vllm bench serve --save-result`: one JSON object, or one a line when appended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.imports.run import Run, base_name, latencies, load_in_words, number, optional

SOURCE = "vllm bench serve"
SETTINGS = (
    "backend",
    "endpoint_type",
    "tokenizer_id",
    "num_prompts",
    "request_rate",
    "burstiness",
    "max_concurrency",
)


def fits(result: Mapping[str, Any]) -> bool:
    """Whether it has the keys that only this benchmark writes."""
    return "total_token_throughput" in result and "model_id" in result


def run(result: Mapping[str, Any], name: str) -> Run:
    """One result. E2E is there only if it was asked for. Raises NotAResultError."""
    completed = number(result, "completed")
    prompts, tokens = result.get("num_prompts"), optional(result, "total_input_tokens")
    each = f" of {tokens / completed:,.0f} tokens" if completed and tokens == tokens else ""
    return Run(
        source=SOURCE,
        id=name,
        system=str(result.get("label") or result.get("backend") or "vllm"),
        model=base_name(result["model_id"]),
        workload=f"{prompts} prompts{each}",
        load=load_in_words(result),
        metrics={
            "requests": completed,
            "duration_s": number(result, "duration"),
            "output_tok_s": number(result, "output_throughput"),
            "total_tok_s": number(result, "total_token_throughput"),
            "request_per_s": number(result, "request_throughput"),
            **latencies(result, "e2el_ms"),
            "goodput_req_s": optional(result, "request_goodput"),
        },
        reasons=_reasons(completed, optional(result, "failed")),
        settings={key: result.get(key) for key in SETTINGS},
    )


def _reasons(completed: float, failed: float) -> list[str]:
    if completed == 0:
        return ["no request was completed"]
    return [f"{failed:.0f} requests failed"] if failed > 0 else []
