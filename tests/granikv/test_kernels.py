"""The Triton kernels at small shapes against the float32 reference, over poisoned caches.

On a GPU they run compiled. Elsewhere `test_interpreted.py` runs this file through Triton's
interpreter.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from granikv import calibrate
from granikv.attention import Partial, Segment, StepInputs
from granikv.attention import merge as merge_reference
from granikv.attention.kernels.config import Shape
from granikv.attention.kernels.merge import merge
from granikv.attention.kernels.relocate import Relocator
from granikv.attention.kernels.worklist import WorkListOverflow
from granikv.attention.triton_dense import DenseStep
from granikv.bench import kernels as bench
from granikv.bench.kernels import timing
from granikv.bench.relocate import relocation_record
from granikv.plan import DecodePlan, PagedRange
from granikv.plan import Segment as PlannedSegment
from tests.granikv.attention_cases import (
    TOLERANCE,
    Case,
    Shared,
    build,
    random_case,
    relative_error,
)
from tests.granikv.interpreter import DEVICE, INTERPRETED, interpreted_or_gpu
from tests.granikv.planned_steps import TritonDenseBackend, plan_of
from tests.granikv.test_attention_backends import LAYOUTS
from tests.granikv.test_attention_offsets import FIRST, far_case, huge_cache

pytestmark = interpreted_or_gpu

HALF_TOLERANCE = 4e-3
# The interpreter multiplies bfloat16 as integers, so bfloat16 waits for a GPU.
DTYPES = [torch.float32, torch.float16, *([] if INTERPRETED else [torch.bfloat16])]
BACKEND = TritonDenseBackend()


def assert_matches(case: Case) -> None:
    actual = case.to(DEVICE).decode(BACKEND)
    assert actual.dtype == case.q.dtype
    assert actual.shape == (*case.q.shape[:2], case.v_cache.shape[2])
    tolerance = TOLERANCE[torch.float32] if case.q.dtype == torch.float32 else HALF_TOLERANCE
    assert relative_error(actual.cpu(), case.expected()) <= tolerance


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout: str) -> None:
    assert_matches(build(*LAYOUTS[layout]))


@pytest.mark.parametrize("seed", range(6))
def test_random_steps(seed: int) -> None:
    assert_matches(random_case(seed))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("group", "kv_heads", "d"),
    [(1, 8, 32), (2, 4, 64), (4, 2, 128), (5, 1, 64), (7, 2, 32), (8, 1, 128), (20, 1, 32)],
)
def test_groups_and_widths(group: int, kv_heads: int, d: int, dtype: torch.dtype) -> None:
    heads = (group * kv_heads, kv_heads)
    assert_matches(build(*LAYOUTS["nested"], heads=heads, d=d, dtype=dtype, seed=group))


def test_softmax_near_one_hot() -> None:
    case = build(*LAYOUTS["nested"])
    for row, position in enumerate((7, 70, 120, 149)):
        slot = case.step.page_table[row, position].long()
        case.q[row] = 300.0 * case.k_cache[slot].repeat_interleave(2, dim=0)
    assert_matches(case)


def test_scores_far_below_zero() -> None:
    case = build(*LAYOUTS["one prefix"])
    case.k_cache.copy_(case.k_cache.abs())
    case.q.copy_(-1000.0 * case.q.abs())
    assert_matches(case)


def test_strided_inputs() -> None:
    """q as a slice of a fused projection, caches as every other layer of one buffer."""
    case = build(*LAYOUTS["nested"]).to(DEVICE)
    wide = torch.full((*case.q.shape[:2], 80), torch.nan, device=DEVICE)
    wide[..., 16:48] = case.q
    caches = torch.full((case.k_cache.shape[0], 2, *case.k_cache.shape[1:]), torch.nan)
    caches = caches.to(DEVICE)
    caches[:, 1] = case.k_cache
    strided = Case(wide[..., 16:48], caches[:, 1], case.v_cache, case.step, case.scale)
    assert torch.equal(strided.decode(BACKEND), case.decode(BACKEND))


def test_inputs_are_left_alone() -> None:
    case = build(*LAYOUTS["nested"]).to(DEVICE)
    tensors = (case.q, case.k_cache, case.v_cache, case.step.page_table)
    before = [t.clone() for t in tensors]
    first = case.decode(BACKEND)
    assert torch.equal(first, case.decode(BACKEND)), "a second layer of the step differs"
    for old, new in zip(before, tensors, strict=True):
        torch.testing.assert_close(old, new, rtol=0, atol=0, equal_nan=True)


def test_a_slab_one_slot_off_is_noticed() -> None:
    case = build(*LAYOUTS["one prefix"])
    case.k_cache.nan_to_num_(0.1)
    case.v_cache.nan_to_num_(0.1)
    (s,) = case.step.segments
    assert s.base is not None
    shifted = Segment(s.base + 1, s.p0, s.length, s.rows)
    case.step = StepInputs(case.step.page_table, case.step.seq_lens, (shifted,))
    with pytest.raises(AssertionError):
        assert_matches(case)


def test_slots_past_32_bit_offsets() -> None:
    assert_matches(far_case(torch.float16))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("pages", "contiguous slabs only"),
        ("heads", "3 query heads are no multiple of 2 KV heads"),
        ("slab", r"slab .* ends past the cache"),
        ("scale", "scale must be positive"),
    ],
)
def test_refusals(change: str, message: str) -> None:
    case = build(*LAYOUTS["one prefix"], slabs=change != "pages").to(DEVICE)
    if change == "heads":
        case.q = case.q[:, :3]
    if change == "slab":
        outside = Segment(case.k_cache.shape[0] - 100, 0, 128, torch.arange(6))
        case.step = StepInputs(case.step.page_table, case.step.seq_lens, (outside,))
    if change == "scale":
        case.scale = 0.0
    with pytest.raises(ValueError, match=message):
        case.decode(BACKEND)


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Benchmarks without a graph, which the interpreter does not have, and no more than timed."""
    monkeypatch.setattr(timing, "captured", lambda launch, layers: (lambda: launch(0), 1))
    monkeypatch.setattr(calibrate, "_MIN_REPEATS", 2)


SMALL = bench.Case(
    "nested",
    6,
    20,
    (4, 2),
    32,
    (bench.Read(0, 6, 0, 70), bench.Read(0, 4, 70, 40), bench.Read(4, 2, 70, 1)),
)
CEILINGS = bench.Ceilings(bandwidth_gbps=1000.0, peak_tflops=100.0)
ON: dict[str, Any] = {"device": DEVICE.type, "dtype": torch.float32}


@pytest.mark.usefixtures("eager")
def test_what_the_benchmark_times_is_right() -> None:
    records = bench.records_of(SMALL, "cold", 10_000, 0.0, CEILINGS, **ON)
    assert [r["pass"] for r in records] == list(bench.work_of(SMALL))
    assert all(r["relative_error"] <= TOLERANCE[torch.float32] for r in records)
    assert all(r["us"] > 0 for r in records)


@pytest.mark.usefixtures("eager")
def test_all_four_cells_of_table_5_compute_the_same() -> None:
    case = SMALL._replace(reads=(bench.Read(0, 6, 0, 100),))
    records = bench.table5_records(0.0, CEILINGS, case, 1, **ON)
    assert {(r["layout"], r["read"]) for r in records} == {
        ("HOT", "shared"),
        ("HOT", "unshared"),
        ("paged", "shared"),
        ("paged", "unshared"),
    }
    assert all(r["relative_error"] <= TOLERANCE[torch.float32] for r in records)
    assert records[1]["floor_bytes_us"] == pytest.approx(6 * records[0]["floor_bytes_us"], abs=0.1)


@pytest.mark.usefixtures("eager")
def test_the_other_records_of_the_benchmark() -> None:
    assert relocation_record(0.0, CEILINGS, 40, 2, DEVICE.type)["equal"]
    records = bench.host_records(SMALL, 3, **ON)
    assert len(records) == 4
    assert records[1]["p50_us"] < records[0]["p50_us"], "an unchanged plan is not planned again"


class Server:
    """A DenseStep as an engine holds it: one for every step, its parts poisoned before each."""

    def __init__(
        self, rows: int, tokens: int, heads: tuple[int, int] = (4, 2), d: int = 32
    ) -> None:
        shape = Shape(heads[1], heads[0] // heads[1], d, d, torch.float32)
        self.step = DenseStep(shape, rows, tokens, DEVICE)

    def decode(self, case: Case, plan: DecodePlan | None = None) -> Tensor:
        case = case.to(DEVICE)
        lens = case.step.seq_lens
        self.step.part_out.fill_(torch.nan)
        self.step.part_lse.fill_(torch.nan)
        self.step.plan(plan or plan_of(case.step))
        rows = torch.arange(len(lens), device=DEVICE)
        self.step.snapshot(case.step.page_table, rows, torch.tensor(lens, device=DEVICE), sum(lens))
        out = torch.full_like(case.q, torch.nan)
        self.step.attend(case.q, case.k_cache, case.v_cache, out, case.scale)
        return out.cpu()


def test_one_object_serves_steps_of_changing_composition() -> None:
    """Failure kinds 5, 7: no plan outlives its step, no part is read that was not written."""
    server = Server(rows=8, tokens=1600)
    for name in (
        "nested",
        "no segment",
        "four classes, common head",
        "a row of no tokens",
        "nested",
    ):
        case = build(*LAYOUTS[name])
        assert relative_error(server.decode(case), case.expected()) <= TOLERANCE[torch.float32]


def test_a_plan_holds_while_rows_only_grow() -> None:
    server, plan = Server(rows=6, tokens=700), None
    for grown in (0, 1, 70):
        case = build([140 + grown, 90 + grown, 72 + grown], [Shared((0, 1, 2), 8, 64)])
        plan = plan or plan_of(case.step)
        assert relative_error(server.decode(case, plan), case.expected()) <= 1e-5


def test_rows_beyond_the_plan_are_read_whole() -> None:
    """A captured graph has more rows than the batch; the filler must read what it is told to."""
    server = Server(rows=6, tokens=700)
    case = build([90, 80, 1, 1], [Shared((0, 1), 0, 64)])
    whole = plan_of(case.step)
    actual = server.decode(case, DecodePlan(2, whole.segments, whole.paged[:2]))
    assert relative_error(actual, case.expected()) <= TOLERANCE[torch.float32]


def test_the_page_table_may_change_after_the_snapshot() -> None:
    server = Server(rows=6, tokens=900)
    case = build(*LAYOUTS["one prefix"]).to(DEVICE)
    expected = server.decode(case)
    case.step.page_table.fill_(-5)
    out = torch.empty_like(case.q)
    server.step.attend(case.q, case.k_cache, case.v_cache, out, case.scale)
    assert torch.equal(out.cpu(), expected)


def test_what_does_not_fit_leaves_the_plan_in_force() -> None:
    server = Server(rows=4, tokens=300)
    case = build([90, 80], [Shared((0, 1), 0, 64)])
    before = server.decode(case)
    ranges = (PagedRange(1, None),)
    many = DecodePlan(5, (PlannedSegment(0, 0, 1, (0, 1, 2, 3, 4)),), (ranges,) * 5)
    with pytest.raises(WorkListOverflow, match="5 rows, and the buffers hold 4"):
        server.step.plan(many)
    assert torch.equal(server.decode(case), before)
    table, rows = case.step.page_table.to(DEVICE), torch.arange(2, device=DEVICE)
    with pytest.raises(ValueError, match="exceed the room for 4 rows and 300 tokens"):
        server.step.snapshot(table, rows, torch.tensor([1, 1], device=DEVICE), 1000)


def _merged(parts: list[Partial], dtype: torch.dtype = torch.float32) -> Tensor:
    """The kernel's merge; part 0 is each row's own, the others come through the list."""
    rows, heads, d_v = parts[0].out.shape
    shape = Shape(heads, 1, d_v, d_v, dtype)
    ptr = torch.arange(rows + 1, dtype=torch.int32)
    others = len(parts) - 1
    listed = (rows * torch.arange(1, len(parts)) + torch.arange(rows)[:, None]).flatten()
    out = torch.full((rows, heads, d_v), torch.nan, dtype=dtype, device=DEVICE)
    merge(
        torch.cat([p.out for p in parts]).to(DEVICE),
        torch.cat([p.lse for p in parts]).to(DEVICE),
        ptr.to(DEVICE),
        (ptr * others).to(DEVICE),
        listed.int().to(DEVICE),
        out,
        shape,
    )
    return out.cpu()


def _parts(count: int, heads: int = 5) -> list[Partial]:
    g = torch.Generator().manual_seed(count)
    return [
        Partial(torch.randn(4, heads, 32, generator=g), 5.0 * torch.randn(4, heads, generator=g))
        for _ in range(count)
    ]


@pytest.fixture(params=[1, 2, 3, 4, 5, 9])
def parts(request: pytest.FixtureRequest) -> list[Partial]:
    return _parts(request.param)


def test_merge_joins_any_number_of_parts(parts: list[Partial]) -> None:
    assert relative_error(_merged(parts), merge_reference(parts).out) <= 1e-6


def test_merge_survives_empty_parts() -> None:
    """-inf and FlashAttention's +inf mark a part that has no keys; its out may be NaN."""
    parts = _parts(6)
    for index, (row, mark) in enumerate([(0, -torch.inf), (1, torch.inf), (0, torch.inf)]):
        parts[index].out[row], parts[index].lse[row] = torch.nan, mark
    for part in parts:
        part.out[2], part.lse[2] = torch.nan, -torch.inf
        part.out[3, 1], part.lse[3, 1] = torch.nan, torch.inf
    merged = _merged(parts)
    assert (merged[2] == 0).all()
    assert (merged[3, 1] == 0).all()
    assert relative_error(merged, merge_reference(parts).out) <= 1e-6


def test_merge_keeps_a_real_nan() -> None:
    parts = _parts(3)
    parts[1].lse[1] = torch.nan
    merged = _merged(parts)
    assert merged[1].isnan().all()
    assert not merged[[0, 2, 3]].isnan().any()


@pytest.mark.parametrize("level", [-1e30, 1e30])
def test_merge_of_extreme_sums(level: float) -> None:
    parts = [Partial(p.out, torch.full_like(p.lse, level)) for p in _parts(2)]
    torch.testing.assert_close(_merged(parts), (parts[0].out + parts[1].out) / 2)


def test_relocation_copies_every_layer_and_nothing_else() -> None:
    g = torch.Generator().manual_seed(0)
    buffers = [torch.randn(200, 2, 36, generator=g).to(DEVICE) for _ in range(4)]
    before = [b.clone() for b in buffers]
    source = (100 + torch.randperm(100, generator=g)[:37]).to(DEVICE)
    target = torch.cat([torch.arange(60, 71), torch.arange(11, 37)]).to(DEVICE)
    Relocator(buffers).copy(source, target)
    for old, new in zip(before, buffers, strict=True):
        assert torch.equal(new[target], old[source])
        new[target] = old[target]
        assert torch.equal(new, old)


def test_relocation_past_32_bit_offsets() -> None:
    cache = huge_cache().to(DEVICE)
    cache[FIRST + 50 : FIRST + 60] = torch.randn(10, *cache.shape[1:]).bfloat16().to(DEVICE)
    source = torch.arange(FIRST + 50, FIRST + 60, dtype=torch.int32, device=DEVICE)
    Relocator([cache]).copy(source, source - 50)
    assert torch.equal(cache[FIRST : FIRST + 10], cache[FIRST + 50 : FIRST + 60])
    assert cache[FIRST].abs().max() > 0.1


@pytest.mark.parametrize(
    ("buffers", "message"),
    [
        ([torch.zeros(9, 2, 32), torch.zeros(9, 2, 16)], "must be alike"),
        ([torch.zeros(9, 4, 32)[:, ::2]], "contiguous heads"),
        ([torch.zeros(9, 1, 3)], "multiple of 16 bytes"),
    ],
)
def test_relocation_refuses_what_it_cannot_copy(buffers: list[Tensor], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Relocator(buffers)
