"""The two products and a softmax beside the reference, over poisoned caches.

On a GPU the suffix and the merge run compiled. Elsewhere `test_interpreted.py` runs this file
through Triton's interpreter.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from granikv.attention import Partial
from granikv.attention.dense import DenseBackend
from granikv.attention.hydragen import HydragenStep
from granikv.attention.kernels.config import Shape
from granikv.attention.kernels.worklist import WorkListOverflow
from granikv.plan import DecodePlan, PagedRange
from tests.granikv.attention_cases import (
    TOLERANCE,
    Case,
    Shared,
    build,
    random_layout,
    relative_error,
)
from tests.granikv.interpreter import DEVICE, interpreted_or_gpu
from tests.granikv.planned_steps import plan_of
from tests.granikv.test_attention_backends import LAYOUTS

pytestmark = interpreted_or_gpu

# The weights of the second product are 16-bit.
HALF_TOLERANCE = 6e-3


def step_for(case: Case, rows: int, tokens: int = 20_000, **options: int) -> HydragenStep:
    heads, width = case.k_cache.shape[1:]
    shape = Shape(heads, case.q.shape[1] // heads, width, case.v_cache.shape[2], case.q.dtype)
    return HydragenStep(shape, rows, tokens, DEVICE, **options)


def decode(step: HydragenStep, case: Case, plan: DecodePlan | None = None) -> Tensor:
    case = case.to(DEVICE)
    lens = case.step.seq_lens
    step.part_out.fill_(torch.nan)
    step.part_lse.fill_(torch.nan)
    step.plan(plan or plan_of(case.step))
    rows = torch.arange(len(lens), device=DEVICE)
    step.snapshot(case.step.page_table, rows, torch.tensor(lens, device=DEVICE), sum(lens))
    out = torch.full((*case.q.shape[:2], case.v_cache.shape[2]), torch.nan, device=DEVICE)
    out = out.to(case.q.dtype)
    step.attend(case.q, case.k_cache, case.v_cache, out, case.scale)
    return out.cpu()


def error(case: Case, **options: int) -> float:
    step = step_for(case, max(1, len(case.step.seq_lens)), **options)
    return relative_error(decode(step, case), case.expected())


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout: str) -> None:
    assert error(build(*LAYOUTS[layout])) <= TOLERANCE[torch.float32]


@pytest.mark.parametrize("seed", range(2))
def test_random_steps(seed: int) -> None:
    layout = random_layout(torch.Generator().manual_seed(seed))
    case = build(*layout, heads=(7, 1), d_v=64, seed=seed)
    assert error(case) <= TOLERANCE[torch.float32]


def test_half_precision() -> None:
    assert error(build(*LAYOUTS["nested"], d=64, dtype=torch.float16)) <= HALF_TOLERANCE


@pytest.mark.parametrize("score_bytes", [1, 4 * 4 * 64 * 3])
def test_rows_in_turn(score_bytes: int) -> None:
    case = build(*LAYOUTS["nested"])
    assert error(case, score_bytes=score_bytes) <= TOLERANCE[torch.float32]


def test_one_object_serves_steps_of_changing_composition() -> None:
    """Failure kinds 5, 7: no plan outlives its step, no part is read that was not written."""
    step = step_for(build([1]), 8)
    for name in ("nested", "no segment", "four classes, common head", "nested"):
        case = build(*LAYOUTS[name])
        assert relative_error(decode(step, case), case.expected()) <= TOLERANCE[torch.float32]


def test_rows_beyond_the_plan_are_read_whole() -> None:
    case = build([90, 80, 1, 1], [Shared((0, 1), 0, 64)])
    whole = plan_of(case.step)
    actual = decode(step_for(case, 6), case, DecodePlan(2, whole.segments, whole.paged[:2]))
    assert relative_error(actual, case.expected()) <= TOLERANCE[torch.float32]


def test_what_one_row_reads_alone_takes_no_products(monkeypatch: pytest.MonkeyPatch) -> None:
    products, prefix = [], DenseBackend.prefix

    def noted(backend: DenseBackend, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Partial:
        products.append(q.shape[0])
        return prefix(backend, q, k, v, scale)

    monkeypatch.setattr(DenseBackend, "prefix", noted)
    own = [Shared((row,), 64, 9) for row in range(4)]
    assert (
        error(build([90, 80, 75, 77], [Shared((0, 1, 2, 3), 0, 64), *own]))
        <= TOLERANCE[torch.float32]
    )
    assert products == [4]


def test_ordinary_pages_are_refused() -> None:
    with pytest.raises(ValueError, match="contiguous slabs only"):
        error(build(*LAYOUTS["one prefix"], slabs=False))


def test_what_does_not_fit_leaves_the_plan_in_force() -> None:
    case = build([90, 80], [Shared((0, 1), 0, 64)])
    step = step_for(case, 4, tokens=100)
    before = decode(step, case)
    five = DecodePlan(5, (), ((PagedRange(0, None),),) * 5)
    with pytest.raises(WorkListOverflow, match=r"5 rows, .* hold 4"):
        step.plan(five)
    with pytest.raises(WorkListOverflow, match="2 rows with 102 tokens outside segments"):
        decode(step, build([130, 100], [Shared((0, 1), 0, 64)]))
    assert torch.equal(decode(step, case), before)
