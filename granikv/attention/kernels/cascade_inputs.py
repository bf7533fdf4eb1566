"""What FlashInfer's cascade reads on the device: page lists of the segments, gathered queries."""

# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 1024
_PROGRAMS = 16
"""Programs that write the pages of one segment."""


@triton.jit
def _pages_kernel(
    page_table: tl.tensor,
    table_rows: tl.tensor,
    page_ptr: tl.tensor,
    base: tl.tensor,
    p0: tl.tensor,
    reader: tl.tensor,
    pages: tl.tensor,
    table_stride: tl.tensor,
    PAGE: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """Program (i, j): blocks j, j + programs, ... of the pages of segment i."""
    segment = tl.program_id(0)
    start = tl.load(page_ptr + segment)
    count = tl.load(page_ptr + segment + 1) - start
    if count > 0:
        first = tl.load(base + segment)
        row = tl.load(table_rows + tl.load(reader + segment)).to(tl.int64)
        table = page_table + row * table_stride + tl.load(p0 + segment)
        for block in range(tl.program_id(1) * BLOCK, count, tl.num_programs(1) * BLOCK):
            at = block + tl.arange(0, BLOCK)
            inside = at < count
            slot = tl.load(table + at * PAGE, mask=inside & (first < 0), other=0).to(tl.int32)
            page = tl.where(first < 0, slot // PAGE, first + at)
            tl.store(pages + start + at, page, mask=inside)


def segment_pages(
    page_table: Tensor,
    table_rows: Tensor,
    page_ptr: Tensor,
    base: Tensor,
    p0: Tensor,
    reader: Tensor,
    pages: Tensor,
    page_size: int,
) -> None:
    """Write the pages of every segment into pages, one segment behind another.

    page_table  [requests, context] int32 or int64 slots, last dimension contiguous
    table_rows  [rows] int32 or int64, the page-table row of each batch row
    page_ptr, base, p0, reader
                int32, as `cascade_plan` lays them out; a slab (base >= 0) is read at page size 1
    pages       int32; must hold page_ptr[-1] elements
    """
    _pages_kernel[(base.numel(), _PROGRAMS)](
        page_table,
        table_rows,
        page_ptr,
        base,
        p0,
        reader,
        pages,
        page_table.stride(0),
        PAGE=page_size,
        BLOCK=_BLOCK,
    )


@triton.jit
def _gather_kernel(
    q: tl.tensor,
    rows: tl.tensor,
    count: tl.tensor,
    gathered: tl.tensor,
    q_row: tl.tensor,
    q_head: tl.tensor,
    WIDTH: tl.constexpr,
    D: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """Program i copies query i; those from count on stay as they are."""
    i = tl.program_id(0)
    if i < tl.load(count):
        source = q + tl.load(rows + i).to(tl.int64) * q_row
        target = gathered + i.to(tl.int64) * WIDTH
        for first in range(0, WIDTH, BLOCK):
            at = first + tl.arange(0, BLOCK)
            inside = at < WIDTH
            value = tl.load(source + at // D * q_head + at % D, mask=inside)
            tl.store(target + at, value, mask=inside)


def gather_queries(q: Tensor, rows: Tensor, count: Tensor, gathered: Tensor) -> None:
    """gathered[i] = q[rows[i]] for i < count[0], as the launch finds them when it runs.

    q [n, H_q, d], last dimension contiguous; rows [m] int32; count [1] int32; gathered [m, H_q, d]
    contiguous
    """
    width = q.shape[1] * q.shape[2]
    _gather_kernel[(gathered.shape[0],)](
        q,
        rows,
        count,
        gathered,
        q.stride(0),
        q.stride(1),
        WIDTH=width,
        D=q.shape[2],
        BLOCK=min(triton.next_power_of_2(width), 2048),
    )
