"""On a GPU: greedy tokens equal stock SGLang's, with CUDA graphs, overlap and the Triton kernels.

float32 exists there in our kernels and in SGLang's Triton backend only, so that is the stock side.
bf16 is compared teacher-forced, against the backends that users have.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from filelock import FileLock

from harness.models import tiny_llama
from tests.engine.conftest import Driver, Run, once
from tests.engine.forced import NEW_TOKENS, PROMPTS
from tests.engine.recorder import decisions

pytestmark = pytest.mark.gpu

GPU: dict[str, Any] = {
    "device": "cuda",
    "attention_backend": "triton",
    "sampling_backend": "pytorch",
    "dtype": "float32",
    "cuda_graph_bs_decode": [1, 2, 4, 8, 12, 16],
    "cuda_graph_backend_prefill": "disabled",
    "mem_fraction_static": 0.1,
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
    "parade",
    "churn",
]
DECODE_STEPS = 2000

BF16: dict[str, Any] = {
    **GPU,
    "dtype": "bfloat16",
    "max_total_tokens": 16384,
    "max_running_requests": 32,
    "cuda_graph_bs_decode": [8, 16, 24, 32],
    "enable_custom_logit_processor": True,
}
BAND = 2 * 2**-5
"""Logits: where stock's best token leads by more, every backend must prefer it too.

Two steps of bf16 between 4 and 8, where this model's best logits lie: each of the two that are
compared may be rounded the other way."""


@pytest.fixture(scope="module")
def stock_gpu(drive: Driver, shared_dir: Path) -> Run:
    engine = {**GPU, **POOLS["big"]}
    return once(
        shared_dir, "stock-gpu", lambda: drive("stock-gpu", None, engine, scenarios=SCENARIOS)
    )


def different(run: Run, stock: Run, scenarios: list[str]) -> dict[str, int]:
    """How many answers of each scenario differ, where any does."""
    counts = {
        scenario: sum(
            a != b for a, b in zip(run.answers(scenario), stock.answers(scenario), strict=True)
        )
        for scenario in scenarios
    }
    return {scenario: count for scenario, count in counts.items() if count}


# The audit of every slot at every step makes the small pool's run slow, so it misses the parade.
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
    scenarios = [name for name in SCENARIOS if pool == "big" or name != "parade"]
    run = drive(f"gpu-{pool}-{admission}", granikv, {**GPU, **POOLS[pool]}, scenarios=scenarios)
    assert run.returncode == 0, run.log
    assert different(run, stock_gpu, scenarios) == {}
    counters = run.counters()
    assert counters["steps_dense"] > (DECODE_STEPS if pool == "big" else 500)
    assert counters["relocations"] > 80
    assert counters["steps_overflowed"] == 0


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_two_ranks_decide_alike_and_answer_as_one(
    drive: Driver, stock_gpu: Run, tmp_path: Path
) -> None:
    """Over more than a thousand steps with evictions, every decision of both ranks is the same."""
    engine = {**GPU, **POOLS["big"], "tp_size": 2}
    record = {"GRANIKV_TEST_RECORD": str(tmp_path)}
    granikv = {"min_tokens": 32, "hot_fraction": 0.1, "backend": "dense"}
    run = drive("gpu-ranks", granikv, engine, scenarios=SCENARIOS, environment=record)
    assert run.returncode == 0, run.log
    first, second = decisions(tmp_path, 0), decisions(tmp_path, 1)
    assert first == second
    assert sum(entry.get("backend") == "dense" for entry in first) > 1000
    counters = run.counters()
    assert counters["slab_evictions"] > 0
    assert counters["cold_evictions"] > 0
    assert different(run, stock_gpu, SCENARIOS) == {}


class Step(NamedTuple):
    """What an engine preferred at one step of one row, as `tests.engine.forced` logs it."""

    preferred: int
    best: float
    second: float
    forced: float

    @property
    def margin(self) -> float:
        return self.best - self.second


def steps(log: Path) -> dict[tuple[int, int], Step]:
    """Every logged step by (row, step)."""

    def parsed() -> Iterator[tuple[tuple[int, int], Step]]:
        for line in log.read_text().splitlines():
            row, step, preferred, best, second, forced = line.split()
            key = (int(row), int(step))
            yield key, Step(int(preferred), float(best), float(second), float(forced))

    return dict(parsed())


@pytest.fixture(scope="module")
def wide_model(shared_dir: Path) -> Path:
    """Heads of 128, which every backend has kernels for; a group of 4."""
    path = shared_dir / "wide_llama"
    with FileLock(shared_dir / "wide.lock"):
        if not path.exists():
            shape = tiny_llama.TinyLlama(hidden=512, layers=4, q_heads=8, kv_heads=2, head_dim=128)
            tiny_llama.write(path, shape)
    return path


@pytest.fixture(scope="module")
def free_run(
    drive: Driver, wide_model: Path, shared_dir: Path
) -> tuple[list[list[int]], dict[tuple[int, int], Step]]:
    """Stock SGLang on FlashInfer, decoding freely: its tokens, and how sure it was of each."""
    log, out = shared_dir / "free.log", shared_dir / "bf16-free.out.json"
    with FileLock(shared_dir / "free.lock"):
        if not out.exists():
            engine = {**BF16, "model_path": str(wide_model), "attention_backend": "flashinfer"}
            teacher = {"tokens": [], "log": str(log)}
            run = drive("bf16-free", None, engine, scenarios=[], teacher=teacher)
            assert run.returncode == 0, run.log
    return json.loads(out.read_text())["forced"]["answers"], steps(log)


@pytest.mark.parametrize(
    ("name", "attention", "granikv"),
    [
        ("stock-triton", "triton", None),
        ("dense-flashinfer", "flashinfer", {"backend": "dense"}),
        ("dense-fa3", "fa3", {"backend": "dense"}),
        ("paged-flashinfer", "flashinfer", {"backend": "paged"}),
        ("cascade-flashinfer", "flashinfer", {"backend": "cascade"}),
        ("hydragen-flashinfer", "flashinfer", {"backend": "hydragen"}),
        ("sglang_cascade", "flashinfer", {"backend": "cascade", "system": "sglang_cascade"}),
    ],
)
def test_bf16_prefers_the_same_token_where_stock_is_sure(
    name: str,
    attention: str,
    granikv: dict[str, Any] | None,
    drive: Driver,
    wide_model: Path,
    free_run: tuple[list[list[int]], dict[tuple[int, int], Step]],
    tmp_path: Path,
) -> None:
    tokens, sure = free_run
    log = tmp_path / "forced.log"
    settings = {"min_tokens": 32, "hot_fraction": 0.5, **granikv} if granikv else None
    page_size = 16 if name == "sglang_cascade" else 1
    engine = {
        **BF16,
        "model_path": str(wide_model),
        "attention_backend": attention,
        "page_size": page_size,
    }
    teacher = {"tokens": tokens, "log": str(log)}
    run = drive(f"bf16-{name}", settings, engine, scenarios=[], teacher=teacher)
    assert run.returncode == 0, run.log
    assert run.results["forced"]["answers"] == tokens
    seen = steps(log)
    assert seen.keys() == sure.keys()
    assert len(seen) == len(PROMPTS) * NEW_TOKENS
    apart = [abs(seen[key].forced - sure[key].best) for key in seen]
    disagree = [sure[key].margin for key in seen if seen[key].preferred != sure[key].preferred]
    print(
        f"{name}: {len(seen)} steps, largest difference {max(apart):.4f}, {len(disagree)} "
        f"disagreements, the surest at a margin of {max(disagree, default=0.0):.4f}; "
        f"{sum(step.margin > BAND for step in sure.values())} steps above the band"
    )
    assert all(margin <= BAND for margin in disagree)
    if granikv is not None:
        assert run.counters()[f"steps_{granikv['backend']}"] > NEW_TOKENS // 2
