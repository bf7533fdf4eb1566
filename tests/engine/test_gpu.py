"""On a GPU: exact greedy equality with CUDA graphs, the Triton kernels and the Triton backend.

float32 exists there in our kernels and in SGLang's Triton backend only, so that is the stock side.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine.conftest import Driver, Run

pytestmark = pytest.mark.gpu

GPU: dict[str, Any] = {
    "device": "cuda",
    "attention_backend": "triton",
    "dtype": "float32",
    "cuda_graph_max_bs_decode": 16,
    "cuda_graph_backend_prefill": "disabled",
    "mem_fraction_static": 0.5,
}
POOLS = {
    "big": {"max_total_tokens": 8192, "chunked_prefill_size": 2048},
    "small": {"max_total_tokens": 1024, "chunked_prefill_size": 64},
}
SCENARIOS = [
    "one_prefix",
    "four_classes",
    "nested",
    "staggered",
    "long_prompts",
    "pressure",
    "aborts",
    "aborts_in_prefill",
    "flushed",
]


@pytest.fixture(scope="module")
def stock_gpu(drive: Driver) -> Run:
    run = drive("stock-gpu", None, {**GPU, **POOLS["big"]}, scenarios=SCENARIOS)
    assert run.returncode == 0, run.log
    return run


@pytest.mark.parametrize(("pool", "admission"), [("small", "eager"), ("big", "on_share")])
def test_dense_in_graphs_equals_stock(
    pool: str, admission: str, drive: Driver, stock_gpu: Run
) -> None:
    granikv = {
        "min_tokens": 32,
        "hot_fraction": 0.5,
        "backend": "dense",
        "admission": admission,
        "checks": pool == "small",
    }
    run = drive(f"gpu-{pool}-{admission}", granikv, {**GPU, **POOLS[pool]}, scenarios=SCENARIOS)
    assert run.returncode == 0, run.log
    for scenario in SCENARIOS:
        assert run.answers(scenario) == stock_gpu.answers(scenario), scenario
    counters = run.counters()
    assert counters["steps_dense"] > 100
    assert counters["relocations"] > 0
