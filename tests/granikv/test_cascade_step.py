"""CascadeStep from end to end beside the reference, with FlashInfer stood in for by torch.

Our own launches run through Triton's interpreter, which `test_interpreted.py` starts. The library
itself is tested in `test_cascade_gpu.py`.
"""

from __future__ import annotations

import pytest
import torch

from granikv import profiling
from granikv.attention.flashinfer_cascade import CascadeStep
from granikv.attention.kernels.config import Shape
from granikv.attention.kernels.worklist import WorkListOverflow
from granikv.plan import DecodePlan, PagedRange, Segment
from tests.granikv import fake_flashinfer
from tests.granikv.attention_cases import (
    TOLERANCE,
    Case,
    Shared,
    build,
    random_layout,
    relative_error,
)
from tests.granikv.cascade_cases import decode, page_case, step_for
from tests.granikv.interpreter import interpreted_only
from tests.granikv.planned_steps import plan_of
from tests.granikv.test_attention_backends import LAYOUTS

pytestmark = interpreted_only

EXACT = TOLERANCE[torch.float32]


def assert_matches(case: Case, **options: int) -> None:
    step = step_for(case, max(1, len(case.step.seq_lens)), fake_flashinfer, **options)
    actual = decode(step, case)
    assert actual.dtype == case.q.dtype
    assert relative_error(actual, case.expected()) <= EXACT


@pytest.mark.parametrize("slabs", [True, False])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout: str, slabs: bool) -> None:
    assert_matches(build(*LAYOUTS[layout], slabs=slabs))


@pytest.mark.parametrize("seed", range(2))
def test_random_steps(seed: int) -> None:
    assert_matches(
        build(*random_layout(torch.Generator().manual_seed(seed)), heads=(7, 1), seed=seed)
    )


@pytest.mark.parametrize(("heads", "d"), [((5, 1), 64), ((8, 8), 32)])
def test_groups_and_widths(heads: tuple[int, int], d: int) -> None:
    assert_matches(build([40, 33, 35], [Shared((0, 1, 2), 3, 30)], heads=heads, d=d))


@pytest.mark.parametrize("prefix", [1, 15, 16, 17, 64, 100])
def test_whole_pages_of_ordinary_storage(prefix: int) -> None:
    """SGLang-Cascade: a shared range of pages; what does not fill one is read row by row."""
    assert_matches(page_case([prefix + 1, prefix + 40, prefix + 16], prefix, 16), page_size=16)


def test_half_precision_parts() -> None:
    case = build(*LAYOUTS["nested"], dtype=torch.float16)
    actual = decode(step_for(case, 6, fake_flashinfer), case)
    assert actual.dtype == torch.float16
    assert relative_error(actual, case.expected()) <= 4e-3


def test_strided_queries() -> None:
    case = build(*LAYOUTS["nested"])
    wide = torch.full((*case.q.shape[:2], 80), torch.nan)
    wide[..., 16:48] = case.q
    case.q = wide[..., 16:48]
    assert_matches(case)


def test_one_object_serves_steps_of_changing_composition_and_size() -> None:
    """Failure kinds 5, 7: no plan outlives its step, no part is read that was not written."""
    step = step_for(build([1]), 8, fake_flashinfer)
    for name in ("nested", "no segment", "four classes, common head", "a row of no tokens"):
        for lengths, shared in (LAYOUTS[name], ([70, 71], [Shared((0, 1), 0, 64)])):
            case = build(lengths, shared)
            assert relative_error(decode(step, case), case.expected()) <= EXACT


def test_a_plan_holds_while_rows_only_grow() -> None:
    step, plan = None, None
    for grown in (0, 1, 70):
        case = build([140 + grown, 90 + grown, 72 + grown], [Shared((0, 1, 2), 8, 64)])
        step = step or step_for(case, 3, fake_flashinfer)
        plan = plan or plan_of(case.step)
        assert relative_error(decode(step, case, plan), case.expected()) <= EXACT


def test_rows_beyond_the_plan_are_read_whole() -> None:
    """A captured graph has more rows than the batch; the filler must read what it is told to."""
    case = build([90, 80, 1, 1], [Shared((0, 1), 0, 64)])
    whole = plan_of(case.step)
    plan = DecodePlan(2, whole.segments, whole.paged[:2])
    actual = decode(step_for(case, 4, fake_flashinfer), case, plan)
    assert relative_error(actual, case.expected()) <= EXACT


def test_the_page_table_may_change_after_the_snapshot() -> None:
    case = build(*LAYOUTS["one prefix"], slabs=False)
    step = step_for(case, 6, fake_flashinfer)
    expected = decode(step, case)
    case.step.page_table.fill_(-5)
    out = torch.empty_like(case.q)
    step.attend(case.q, case.k_cache, case.v_cache, out, case.scale)
    assert torch.equal(out, expected)


MANY = DecodePlan(
    2, tuple(Segment(i, i, 1, (0, 1)) for i in range(9)), ((PagedRange(9, None),),) * 2
)
LONG = DecodePlan(2, (Segment(0, 0, 500, (0, 1)),), ((PagedRange(500, None),),) * 2)
NONE = DecodePlan(2, (), ((PagedRange(0, None),),) * 2)


@pytest.mark.parametrize(
    ("plan", "lens", "message"),
    [
        (MANY, [10, 10], "9 segments, and the cascade's buffers hold 6"),
        (LONG, [501, 501], "500 pages of segments, .* hold 400"),
        (NONE, [200, 200], "400 tokens outside segments, .* hold 300"),
        (NONE, [1] * 5, "5 rows, .* hold 4"),
    ],
)
def test_what_does_not_fit_leaves_the_plan_in_force(
    plan: DecodePlan, lens: list[int], message: str
) -> None:
    case = build([90, 80], [Shared((0, 1), 0, 64)])
    step = step_for(case, 4, fake_flashinfer, tokens=300, shared_tokens=400)
    before = decode(step, case)
    with pytest.raises(WorkListOverflow, match=message):
        step.plan(plan, lens)
    out = torch.empty_like(case.q)
    step.attend(case.q, case.k_cache, case.v_cache, out, case.scale)
    assert torch.equal(out, before)
    assert torch.equal(decode(step, case), before)


def test_too_many_readers_overflow() -> None:
    step = step_for(build([1]), 4, fake_flashinfer, depth=1)
    both = DecodePlan(
        2,
        (Segment(0, 0, 5, (0, 1)), Segment(9, 5, 5, (0, 1))),
        ((PagedRange(10, None),),) * 2,
    )
    with pytest.raises(WorkListOverflow, match=r"4 segment readers, .* hold 2"):
        step.plan(both, [20, 20])


def test_more_slabs_of_one_row_than_requests_are_read_by_their_rows() -> None:
    """No step of a forced cascade turns paged because every prompt has a slab of its own."""
    shared = Shared((0, 1, 2, 3), 0, 64)
    own = [Shared((row,), 64, 9) for row in range(4)]
    case = build([90, 80, 75, 77], [shared, *own])
    assert len(case.step.segments) == 5
    assert_matches(case, segments=4)


def test_passes_are_named_on_a_profilers_timeline(monkeypatch: pytest.MonkeyPatch) -> None:
    case, seen = build([90, 80], [Shared((0, 1), 0, 64)]), []
    step = step_for(case, 2, fake_flashinfer)
    decode(step, case)
    monkeypatch.setattr(profiling.ProfilerRange, "__enter__", lambda self: seen.append(self))
    monkeypatch.setattr(profiling.ProfilerRange, "__exit__", lambda *_: None)
    step.attend(case.q, case.k_cache, case.v_cache, torch.empty_like(case.q), case.scale)
    assert seen == [profiling.PREFIX, profiling.SUFFIX, profiling.MERGE]


def test_slabs_need_page_size_one() -> None:
    case = build([90, 80], [Shared((0, 1), 0, 64)])
    with pytest.raises(ValueError, match="slabs are read at page size 1"):
        decode(step_for(case, 2, fake_flashinfer, page_size=16), case)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        (Shape(2, 2, 64, 64, torch.float32), "no attention in torch.float32"),
        (Shape(2, 2, 64, 128, torch.bfloat16), "K and V of one width, not 64 and 128"),
    ],
)
def test_shapes_that_the_library_lacks(shape: Shape, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CascadeStep(shape, 4, 10, 10, torch.device("cpu"))


def test_a_slab_one_slot_off_is_noticed() -> None:
    case = build(*LAYOUTS["one prefix"])
    case.k_cache.nan_to_num_(0.1)
    case.v_cache.nan_to_num_(0.1)
    plan = plan_of(case.step)
    (segment,) = plan.segments
    assert segment.base is not None
    off = DecodePlan(plan.rows, (segment._replace(base=segment.base + 1),), plan.paged)
    actual = decode(step_for(case, 6, fake_flashinfer), case, off)
    assert relative_error(actual, case.expected()) > EXACT
