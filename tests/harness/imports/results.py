"""Made-up results in the exact shapes that the two benchmarks write; no number was measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def sglang(**changes: Any) -> dict[str, Any]:
    """A line of `python -m sglang.benchmark.serving` (0.5.17)."""
    result: dict[str, Any] = {
        "tag": None,
        "backend": "sglang",
        "dataset_name": "random-ids",
        "request_rate": "inf",
        "max_concurrency": 8,
        "sharegpt_output_len": None,
        "random_input_len": 512,
        "random_output_len": 128,
        "random_range_ratio": 1.0,
        "server_info": {
            "model_path": "/somewhere/llama",
            "version": "0.5.17",
            "attention_backend": "flashinfer",
            "page_size": 16,
            "internal_states": [{}],
        },
        "duration": 12.5,
        "completed": 100,
        "total_input_tokens": 51200,
        "total_input_text_tokens": 51200,
        "total_input_vision_tokens": 0,
        "total_output_tokens": 12800,
        "total_output_tokens_retokenized": 12790,
        "request_throughput": 8.0,
        "input_throughput": 4096.0,
        "output_throughput": 1024.0,
        "total_throughput": 5120.0,
        "concurrency": 7.5,
        "accept_length": None,
        "max_output_tokens_per_s": 1500.0,
        "max_concurrent_requests": 9,
    }
    middles = {"e2e_latency": 900.0, "ttft": 50.0, "tpot": 6.5, "itl": 6.4}
    for name, middle in middles.items():
        result |= {
            f"mean_{name}_ms": middle * 1.1,
            f"median_{name}_ms": middle,
            f"std_{name}_ms": middle * 0.2,
            f"p90_{name}_ms": middle * 1.5,
            f"p95_{name}_ms": middle * 1.7,
            f"p99_{name}_ms": middle * 2.0,
        }
    return result | changes


def vllm(**changes: Any) -> dict[str, Any]:
    """A file of `vllm bench serve --save-result`."""
    result: dict[str, Any] = {
        "date": "20260101-000000",
        "endpoint_type": "vllm",
        "backend": "vllm",
        "label": None,
        "model_id": "meta-llama/Llama-3.1-8B",
        "tokenizer_id": "meta-llama/Llama-3.1-8B",
        "num_prompts": 100,
        "request_rate": "inf",
        "burstiness": 1.0,
        "max_concurrency": None,
        "duration": 10.0,
        "completed": 100,
        "failed": 0,
        "total_input_tokens": 51200,
        "total_output_tokens": 12800,
        "request_throughput": 10.0,
        "request_goodput": None,
        "output_throughput": 1280.0,
        "total_token_throughput": 6400.0,
        "max_output_tokens_per_s": 1900.0,
        "max_concurrent_requests": 100,
        "rtfx": 0.0,
    }
    for name, middle in {"ttft": 40.0, "tpot": 5.5, "itl": 5.4}.items():
        result |= {
            f"mean_{name}_ms": middle * 1.1,
            f"median_{name}_ms": middle,
            f"std_{name}_ms": middle * 0.2,
            f"p99_{name}_ms": middle * 2.0,
        }
    return result | changes


def write(path: Path, *results: Any) -> Path:
    """One JSON value a line, as both tools append them."""
    path.write_text("".join(json.dumps(result) + "\n" for result in results))
    return path
