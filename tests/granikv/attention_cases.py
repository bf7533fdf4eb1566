"""Decode steps with known storage for the attention tests: pools, page tables, poison, errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from granikv.attention import DecodeBackend, Segment, StepInputs, backend

# Of the largest magnitude, against float32. bfloat16's own rounding of the output is 2^-8.
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 4e-3}
GARBAGE_SLOT = -(2**30)


@dataclass(frozen=True)
class Shared:
    """A shared range to build: readers' batch rows, position, length."""

    rows: tuple[int, ...]
    p0: int
    length: int


@dataclass
class Case:
    """One decode step over caches whose every slot that no row may read is NaN."""

    q: Tensor
    k_cache: Tensor
    v_cache: Tensor
    step: StepInputs
    scale: float

    def to(self, device: torch.device) -> Case:
        """The case with its tensors on a device."""
        step = self.step
        segments = tuple(Segment(s.base, s.p0, s.length, s.rows.to(device)) for s in step.segments)
        table = step.page_table.to(device)
        return Case(
            self.q.to(device),
            self.k_cache.to(device),
            self.v_cache.to(device),
            StepInputs(table, step.seq_lens, segments, step.page_size),
            self.scale,
        )

    def decode(self, chosen: DecodeBackend | str, step: StepInputs | None = None) -> Tensor:
        """The backend's output for this case, or for another view of the same storage."""
        attention = backend(chosen) if isinstance(chosen, str) else chosen
        return attention.decode(self.q, self.k_cache, self.v_cache, step or self.step, self.scale)

    def expected(self) -> Tensor:
        """The reference's output before any rounding to q's dtype, float32."""
        reference = backend("reference")
        return reference.decode(self.q.float(), self.k_cache, self.v_cache, self.step, self.scale)


def build(
    seq_lens: Sequence[int],
    shared: Sequence[Shared] = (),
    *,
    heads: tuple[int, int] = (4, 2),
    d: int = 32,
    d_v: int | None = None,
    dtype: torch.dtype = torch.float32,
    slabs: bool = True,
    seed: int = 0,
) -> Case:
    """Lay the shared ranges out as slabs (or scattered slots), the rest as scattered slots.

    The page table agrees with the slabs, so the reference, which knows no segments, is the truth
    for every backend. Its entries past each sequence are slots that do not exist.
    """
    generator = torch.Generator().manual_seed(seed)
    hot = sum(part.length for part in shared)
    cold = sum(seq_lens)
    slots = 2 * (hot + cold) + 8
    page_table = torch.full((len(seq_lens), max(seq_lens, default=0) + 3), GARBAGE_SLOT)
    scattered = (hot + 4 + torch.randperm(slots - hot - 4, generator=generator)).tolist()
    for row, length in enumerate(seq_lens):
        page_table[row, :length] = torch.tensor([scattered.pop() for _ in range(length)])
    base, segments = 2, []
    for part in shared:
        where = torch.arange(base, base + part.length)
        if not slabs:
            where = torch.tensor([scattered.pop() for _ in range(part.length)], dtype=torch.int64)
        for row in part.rows:
            page_table[row, part.p0 : part.p0 + part.length] = where
        rows = torch.tensor(part.rows, dtype=torch.int64)
        segments.append(Segment(base if slabs else None, part.p0, part.length, rows))
        base += part.length
    step = StepInputs(page_table.int(), list(seq_lens), tuple(segments))
    k_cache = _poisoned(slots, heads[1], d, step, dtype, generator)
    v_cache = _poisoned(slots, heads[1], d_v or d, step, dtype, generator)
    q = torch.randn(len(seq_lens), heads[0], d, generator=generator).to(dtype)
    return Case(q, k_cache, v_cache, step, d**-0.5)


def random_layout(g: torch.Generator) -> tuple[list[int], list[Shared]]:
    """Up to 40 rows in random classes below a random common head."""
    rows, head, classes = _draw(g, 1, 40), _draw(g, 0, 90), _draw(g, 1, 5)
    of_class = [_draw(g, 0, classes) for _ in range(rows)]
    lengths = [_draw(g, 1, 300) for _ in range(classes)]
    shared = [Shared(tuple(range(rows)), 0, head)]
    for number, length in enumerate(lengths):
        members = tuple(row for row in range(rows) if of_class[row] == number)
        shared.append(Shared(members, head + _draw(g, 0, 2), length))
    reach = [head + 2 + (lengths[c] if c < classes else 0) for c in of_class]
    return [start + _draw(g, 0, 150) for start in reach], shared


def random_case(seed: int) -> Case:
    """A random layout and random heads, d_v not always d."""
    g = torch.Generator().manual_seed(seed)
    layout = random_layout(g)
    kv_heads = _draw(g, 1, 4)
    heads = (kv_heads * _draw(g, 1, 5), kv_heads)
    return build(*layout, heads=heads, d=32, d_v=_draw(g, 1, 2) * 32, seed=seed)


def _draw(g: torch.Generator, low: int, high: int) -> int:
    return int(torch.randint(low, high + 1, (), generator=g))


def _poisoned(
    slots: int, heads: int, width: int, step: StepInputs, dtype: torch.dtype, g: torch.Generator
) -> Tensor:
    cache = torch.full((slots, heads, width), torch.nan, dtype=dtype)
    for row, length in enumerate(step.seq_lens):
        live = step.page_table[row, :length].long()
        fresh = torch.randn(length, heads, width, generator=g).to(dtype)
        cache[live] = torch.where(cache[live].isnan(), fresh, cache[live])
    return cache


def relative_error(actual: Tensor, expected: Tensor) -> float:
    """Largest absolute difference over the largest expected magnitude; NaN counts as infinite."""
    if not actual.numel():
        return 0.0
    difference = (actual.float() - expected.float()).abs().max().item()
    largest = expected.float().abs().max().item()
    return difference / largest if difference == difference else float("inf")


def assert_matches_reference(case: Case, name: str) -> None:
    """The backend's output is the reference's within the dtype's tolerance, in q's dtype."""
    actual, expected = case.decode(name), case.expected()
    assert actual.dtype == case.q.dtype
    assert actual.shape == (*case.q.shape[:2], case.v_cache.shape[2])
    assert not expected.isnan().any(), "the case itself lets a row read poison"
    assert relative_error(actual, expected) <= TOLERANCE[case.q.dtype]
