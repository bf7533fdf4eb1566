"""On a GPU: greedy tokens equal stock SGLang's, with CUDA graphs, overlap and the Triton kernels.

float32 exists there in our kernels and in SGLang's Triton backend only, so that is the stock side.
bf16 is compared teacher-forced, against stock on the same prefill backend; how far apart the two
may be is measured between stock's own decode backends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from filelock import FileLock

from harness.models import tiny_llama
from tests.engine.conftest import Driver, Run, once
from tests.engine.forced import NEW_TOKENS, PROMPTS
from tests.engine.recorder import decisions
from tests.engine.scenarios import Tokens

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
NOISE = ["triton", "fa3"]
"""Stock's decode backends whose distance from its FlashInfer is the noise of bf16."""
LIMIT = 1.5
"""Logits: the widest band that still says something; a wider one is a fault of its own."""
SURE_STEPS = 100
"""Steps that stock must decide by more than the band, or agreeing there would prove nothing."""


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


Steps = dict[tuple[int, int], Step]
"""By (row, step)."""


def steps(log: Path) -> Steps:
    """Every logged step."""

    def parsed() -> Iterator[tuple[tuple[int, int], Step]]:
        for line in log.read_text().splitlines():
            row, step, preferred, best, second, forced = line.split()
            key = (int(row), int(step))
            yield key, Step(int(preferred), float(best), float(second), float(forced))

    return dict(parsed())


class Comparison(NamedTuple):
    """One run beside stock, over the same steps."""

    apart: float
    """The largest difference of the forced token's logit."""
    disagreements: list[float]
    """Stock's margin wherever the other run preferred another token."""
    margins: list[float]
    """Stock's margin at every step."""

    def sure(self, band: float) -> int:
        return sum(margin > band for margin in self.margins)

    def told(self, name: str, band: float) -> str:
        return (
            f"{name}: {len(self.margins)} steps, largest difference {self.apart:.4f}, "
            f"{len(self.disagreements)} disagreements, the surest at a margin of "
            f"{max(self.disagreements, default=0.0):.4f}; "
            f"band {band:.4f}, {self.sure(band)} steps above it"
        )


def compared(seen: Steps, stock: Steps) -> Comparison:
    assert seen.keys() == stock.keys()
    assert len(seen) == len(PROMPTS) * NEW_TOKENS
    apart = [abs(seen[key].forced - stock[key].forced) for key in stock]
    assert all(map(isfinite, apart))  # max() may pass over a NaN
    disagreements = [
        stock[key].margin for key in stock if seen[key].preferred != stock[key].preferred
    ]
    return Comparison(max(apart), disagreements, [step.margin for step in stock.values()])


def judge(comparison: Comparison, band: float) -> None:
    assert band <= LIMIT
    assert comparison.sure(band) >= SURE_STEPS
    assert comparison.apart <= band
    assert all(margin <= band for margin in comparison.disagreements)


@pytest.fixture(scope="module")
def wide_model(shared_dir: Path) -> Path:
    """Heads of 128, which every backend has kernels for; a group of 4."""
    path = shared_dir / "wide_llama"
    with FileLock(shared_dir / "wide.lock"):
        if not path.exists():
            shape = tiny_llama.TinyLlama(hidden=512, layers=4, q_heads=8, kv_heads=2, head_dim=128)
            tiny_llama.write(path, shape)
    return path


class Bf16:
    """Engines in bf16 that decode PROMPTS, each run once for all workers, when first asked for.

    What a run needs of another is asked for late, so that workers wait for each other least.
    """

    def __init__(self, run: Callable[..., tuple[list[Tokens], Steps, Run]]) -> None:
        self._run = run

    def free(self) -> tuple[list[Tokens], Steps]:
        """Stock on FlashInfer, decoding freely: the tokens that all others are forced to."""
        answers, seen, _ = self._run("stock-flashinfer", None, {"attention_backend": "flashinfer"})
        return answers, seen

    def forced(
        self, name: str, granikv: dict[str, Any] | None, engine: dict[str, Any]
    ) -> tuple[Steps, Run]:
        tokens, _ = self.free()
        answers, seen, run = self._run(name, granikv, engine, tokens)
        assert answers == tokens
        return seen, run

    def stock(self, attention: str) -> Steps:
        """Stock whose prefill and decode are `attention`'s."""
        if attention == "flashinfer":
            return self.free()[1]
        return self.forced(f"stock-{attention}", None, {"attention_backend": attention})[0]

    def noise(self, decode: str) -> Comparison:
        """Stock that decodes by `decode` after FlashInfer's prefill, beside FlashInfer alone."""
        engine = {
            "attention_backend": "flashinfer",
            "prefill_attention_backend": "flashinfer",
            "decode_attention_backend": decode,
        }
        seen, _ = self.forced(f"noise-{decode}", None, engine)
        return compared(seen, self.stock("flashinfer"))

    def band(self) -> float:
        """Logits: where stock's best token leads by more, every backend must prefer it too.

        2e, where e is the largest difference of a forced token's logit between stock's own decode
        backends, over all steps of every run in NOISE: of two logits that are compared, each may
        move by e, in opposite directions. Nothing of GraniKV's enters it.
        """
        return 2 * max(self.noise(decode).apart for decode in NOISE)


@pytest.fixture(scope="module")
def bf16(drive: Driver, wide_model: Path, shared_dir: Path) -> Bf16:
    def run(
        name: str,
        granikv: dict[str, Any] | None,
        engine: dict[str, Any],
        tokens: list[Tokens] | None = None,
    ) -> tuple[list[Tokens], Steps, Run]:
        name = f"bf16-{name}"
        log = shared_dir / f"{name}.steps"
        options = {**BF16, "model_path": str(wide_model), "page_size": 1, **engine}
        teacher = {"tokens": tokens or [], "log": str(log)}
        made = once(
            shared_dir, name, lambda: drive(name, granikv, options, scenarios=[], teacher=teacher)
        )
        return made.answers("forced"), steps(log), made

    return Bf16(run)


@pytest.mark.parametrize("decode", NOISE)
def test_bf16_noise_of_stock_is_small(decode: str, bf16: Bf16) -> None:
    noise, band = bf16.noise(decode), bf16.band()
    print(noise.told(f"stock {decode}", band))
    judge(noise, band)


@pytest.mark.parametrize(
    ("name", "attention", "granikv"),
    [
        ("dense-flashinfer", "flashinfer", {"backend": "dense"}),
        ("dense-fa3", "fa3", {"backend": "dense"}),
        ("paged-flashinfer", "flashinfer", {"backend": "paged"}),
        ("cascade-flashinfer", "flashinfer", {"backend": "cascade"}),
        ("hydragen-flashinfer", "flashinfer", {"backend": "hydragen"}),
        ("sglang_cascade", "flashinfer", {"backend": "cascade", "system": "sglang_cascade"}),
    ],
)
def test_bf16_prefers_the_same_token_where_stock_is_sure(
    name: str, attention: str, granikv: dict[str, Any], bf16: Bf16
) -> None:
    """Stock's prefill backend is the same, so only decode differs."""
    settings = {"min_tokens": 32, "hot_fraction": 0.5, **granikv}
    page_size = 16 if name == "sglang_cascade" else 1
    engine = {"attention_backend": attention, "page_size": page_size}
    seen, run = bf16.forced(name, settings, engine)
    comparison, band = compared(seen, bf16.stock(attention)), bf16.band()
    print(comparison.told(name, band))
    judge(comparison, band)
    assert run.counters()[f"steps_{granikv['backend']}"] > NEW_TOKENS // 2
