"""A case in the memory of a device."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from granikv.bench.kernels.cases import Case
from granikv.plan import DecodePlan, PagedRange, Segment


class Storage(NamedTuple):
    """A case on a device: queries [rows, H_q, d], caches a layer [slots, H_kv, d], page table."""

    q: Tensor
    k: list[Tensor]
    v: list[Tensor]
    page_table: Tensor
    plan: DecodePlan


def build(case: Case, layers: int, device: torch.device, dtype: torch.dtype) -> Storage:
    """Random K and V; slabs from slot 1 on, the rest scattered in page-1 slots."""
    ends = [0] * case.rows
    for read in case.reads:
        for row in range(read.first, read.first + read.rows):
            ends[row] = read.p0 + read.length
    hot = sum(read.length for read in case.reads)
    cold = 1 + hot + torch.randperm(case.rows * case.suffix, device=device, dtype=torch.int32)
    width = max(ends) + case.suffix
    table = torch.zeros(case.rows, width, dtype=torch.int32, device=device)
    base, segments = 1, []
    for read in case.reads:
        rows = slice(read.first, read.first + read.rows)
        slots = torch.arange(base, base + read.length, dtype=torch.int32, device=device)
        table[rows, read.p0 : read.p0 + read.length] = slots
        readers = tuple(range(read.first, read.first + read.rows))
        segments.append(Segment(base, read.p0, read.length, readers))
        base += read.length
    for row, own in enumerate(cold.view(case.rows, case.suffix)):
        table[row, ends[row] : ends[row] + case.suffix] = own
    shape = (1 + hot + case.rows * case.suffix, case.heads[1], case.d)
    caches = [torch.randn(shape, device=device, dtype=dtype) for _ in range(2 * layers)]
    q = torch.randn(case.rows, case.heads[0], case.d, device=device, dtype=dtype)
    paged = {end: (PagedRange(end, None),) for end in ends}
    plan = DecodePlan(case.rows, tuple(segments), tuple(paged[end] for end in ends))
    return Storage(q, caches[::2], caches[1::2], table, plan)
