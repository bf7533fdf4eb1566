"""The GPU decode backend's own steps, on the CPU: what it decides, prepares, counts and gives way.

The stock backend and the children are stood in for; kernels and graphs are tested on a GPU.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

pytest.importorskip("sglang")

from sglang.srt.layers.attention.attention_registry import ATTENTION_BACKENDS

from granikv.attention.kernels.worklist import WorkListOverflow
from granikv.config import GraniKVConfig
from granikv.cost import Geometry
from granikv.dispatch import Decision, Forced, StepShape
from granikv.engine.gpu import backend as module
from granikv.engine.gpu.backend import GraphDecodeBackend
from granikv.engine.gpu.graphs import GraniKVGraphRunner
from granikv.engine.runtime import Runtime
from granikv.plan import DecodePlan, PagedRange, Segment

FILL = 3
SHARED = DecodePlan(3, (Segment(1, 0, 40, (0, 1, 2)),), ((PagedRange(40, None),),) * 3)
UNSHARED = DecodePlan(3, (), ((PagedRange(0, None),),) * 3)


class Stock:
    """Notes what it is asked."""

    def __init__(self, runner: Any) -> None:
        self.calls: list[str] = []

    def get_cuda_graph_seq_len_fill_value(self) -> int:
        return FILL

    def init_forward_metadata(self, batch: Any) -> None:
        self.calls.append("eager")

    def init_forward_metadata_out_graph(self, batch: Any, in_capture: bool = False) -> None:
        self.calls.append("capture" if in_capture else "replay")


class Child:
    """Notes the plans it is given; refuses where told to."""

    def __init__(self, *_: Any) -> None:
        self.plans: list[DecodePlan] = []
        self.full = False

    def prepare(self, plan: DecodePlan, page_table: torch.Tensor, batch: Any) -> None:
        if self.full:
            raise WorkListOverflow("no room")
        self.plans.append(plan)


class Watched(Forced):
    """A forced rule that notes what it is shown."""

    seen: tuple[StepShape, int]

    def decide(self, shape: StepShape, plan: DecodePlan, tokens: int) -> Decision:
        self.seen = (shape, tokens)
        return super().decide(shape, plan, tokens)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A backend for `name`, with all that it stands on replaced."""

    def make(name: str) -> tuple[GraphDecodeBackend, Any, Any]:
        monkeypatch.setitem(ATTENTION_BACKENDS, "stand-in", Stock)
        monkeypatch.setattr(module, "child", Child)
        runtime = Runtime(GraniKVConfig(backend=name))
        runtime.rule = Watched(name)
        table = torch.zeros(8, 64, dtype=torch.int32)
        runner = SimpleNamespace(
            req_to_token_pool=SimpleNamespace(size=8, req_to_token=table),
            token_to_kv_pool=None,
            max_total_num_tokens=512,
            device="cpu",
            dtype=torch.bfloat16,
        )
        geometry = Geometry(2, 4, 64, 64, 2)
        backend = GraphDecodeBackend(runner, runtime, "stand-in", (name,), geometry)
        return backend, backend.stock, backend._children[name]

    return make


def batch(rows: int, padding: int = 0) -> SimpleNamespace:
    """Rows of 50 tokens and a graph's filler behind them, as the engine's replay view has them."""
    lens = torch.tensor([50] * rows + [FILL] * padding)
    total = int(lens.sum())
    return SimpleNamespace(
        batch_size=rows + padding, num_padding=padding, seq_lens_cpu=lens, seq_lens_sum=total
    )


def test_filler_rows_are_neither_rows_nor_tokens_of_the_step(made: Any) -> None:
    backend, stock, child = made("dense")
    backend.runtime._plan = SHARED
    backend.init_forward_metadata_out_graph(batch(3, padding=5))
    assert backend.runtime.rule.seen == (StepShape(3, 1, 3), 150)
    assert (backend.variant, child.plans, stock.calls) == ("dense", [SHARED], [])
    assert backend.runtime.dispatched.as_dict()["rows_dense"] == 3
    assert backend.runtime.unplanned == 0


def test_each_variant_is_captured_and_the_stock_one_by_the_stock_backend(made: Any) -> None:
    backend, stock, child = made("cascade")
    assert backend.variants == ("paged", "cascade")
    for variant in backend.variants:
        backend.capturing = variant
        backend.init_forward_metadata_out_graph(batch(0, padding=4), in_capture=True)
        assert backend.variant == variant
    assert stock.calls == ["capture"]
    (plan,) = child.plans
    assert (plan.rows, plan.segments) == (4, ())
    assert backend.runtime.dispatched.as_dict()["steps"] == 0, "a capture serves nothing"


def test_a_step_that_does_not_fit_is_paged_and_said_so(made: Any) -> None:
    backend, stock, child = made("dense")
    backend.runtime._plan = SHARED
    child.full = True
    backend.init_forward_metadata(batch(3))
    assert (backend.variant, stock.calls) == ("paged", ["eager"])
    counters = backend.runtime.dispatched.as_dict()
    assert (backend.runtime.overflowed, counters["steps_paged"], counters["steps_dense"]) == (
        1,
        1,
        0,
    )
    child.full = False
    backend.init_forward_metadata(batch(3))
    assert (backend.variant, child.plans) == ("dense", [SHARED]), "the next one is looked at anew"


def test_a_batch_that_is_not_the_planned_one_is_paged(made: Any) -> None:
    backend, stock, child = made("dense")
    backend.runtime._plan = SHARED
    backend.init_forward_metadata(batch(4))
    assert (backend.variant, child.plans, stock.calls) == ("paged", [], ["eager"])
    assert backend.runtime.unplanned == 1


def test_only_steps_that_share_leave_the_graphs_of_a_backend_without(made: Any) -> None:
    backend, _, _ = made("hydragen")
    assert backend.variants == ("paged",)
    runner: Any = SimpleNamespace(_ours=lambda: backend)
    backend.runtime._plan = SHARED
    assert GraniKVGraphRunner.can_run_graph(runner, batch(3)) is False
    backend.runtime._plan = UNSHARED
    assert not backend.must_run_eagerly()
    backend, _, _ = made("dense")
    backend.runtime._plan = SHARED
    assert not backend.must_run_eagerly()
