"""Merging the parts of each row by log-sum-exp (§2.3, Eq. 1), any number of them a row."""

# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from granikv.attention.kernels.config import Shape

_FEW_ROWS = 64


@triton.jit
def _merge_kernel(
    part_out: tl.tensor,
    part_lse: tl.tensor,
    own_ptr: tl.tensor,
    list_ptr: tl.tensor,
    listed: tl.tensor,
    out: tl.tensor,
    out_row: tl.tensor,
    out_head: tl.tensor,
    HEADS: tl.constexpr,
    D_V: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_P: tl.constexpr,
    EARLY: tl.constexpr,
) -> None:
    """Program (i, j): heads j * BLOCK_H onwards of row i, BLOCK_P parts at a time."""
    row = tl.program_id(0)
    head = tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H)
    real = head < HEADS
    at_v = tl.arange(0, D_V)
    at_p = tl.arange(0, BLOCK_P)
    own = tl.load(own_ptr + row)
    owned = tl.load(own_ptr + row + 1) - own
    listed += tl.load(list_ptr + row)
    count = owned + tl.load(list_ptr + row + 1) - tl.load(list_ptr + row)

    is_listed = (at_p >= owned) & (at_p < count)
    part = tl.load(listed + at_p - owned, mask=is_listed, other=0)
    part = tl.where(is_listed, part, own + at_p).to(tl.int64)
    if EARLY:
        # Which parts there are was written before the launch that writes them began.
        tl.extra.cuda.gdc_wait()

    # Finite, so that empty parts alone never give -inf - (-inf).
    peak = tl.full([BLOCK_H], -3.0e38, tl.float32)
    total = tl.zeros([BLOCK_H], tl.float32)
    acc = tl.zeros([BLOCK_H, D_V], tl.float32)
    for first in range(0, count, BLOCK_P):
        there = (first + at_p < count)[:, None] & real[None, :]
        at = part[:, None] * HEADS + head[None, :]
        lse = tl.load(part_lse + at, mask=there, other=float("-inf"))
        # Not only where lse is finite: that would put one read of memory behind another.
        ptr = part_out + at[:, :, None] * D_V + at_v[None, None, :]
        values = tl.load(ptr, mask=there[:, :, None], other=0.0)
        index = first + BLOCK_P + at_p
        is_listed = (index >= owned) & (index < count)
        part = tl.load(listed + index - owned, mask=is_listed, other=0)
        part = tl.where(is_listed, part, own + index).to(tl.int64)

        there = there & (tl.abs(lse) != float("inf"))
        lse = tl.where(there, lse, float("-inf"))
        raised = tl.maximum(peak, tl.max(lse, 0))
        weight = tl.exp(lse - raised[None, :])
        shrink = tl.exp(peak - raised)
        total = total * shrink + tl.sum(weight, 0)
        # An empty part's out may hold anything.
        values = tl.where(there[:, :, None], values, 0.0)
        acc = acc * shrink[:, None] + tl.sum(weight[:, :, None] * values, 0)
        peak = raised
    # A row whose parts are all empty has total 0 and acc 0; the largest part weighs 1.
    result = acc / tl.where(total == 0.0, 1.0, total)[:, None]
    to = out + row.to(tl.int64) * out_row + (head * out_head)[:, None] + at_v[None, :]
    tl.store(to, result.to(out.dtype.element_ty), mask=real[:, None])


def merge(
    part_out: Tensor,
    part_lse: Tensor,
    own_ptr: Tensor,
    list_ptr: Tensor,
    listed: Tensor,
    out: Tensor,
    shape: Shape,
    early: bool = False,
) -> None:
    """Join the parts of each row; writes out [n, H_q, d_v] in its own dtype.

    part_out  [parts, H_q, d_v] float32, part_lse [parts, H_q] float32, natural logarithm. An lse of
              -inf or +inf marks an empty part, whose out is ignored; NaN stays NaN.
    own_ptr   [n + 1] int32: parts own_ptr[i] .. own_ptr[i + 1] belong to row i,
    list_ptr  [n + 1] int32: and those that listed [entries] int32 names at list_ptr[i] onwards
    out       last dimension contiguous; a row without parts gets 0
    early     begin while the launch before, in the same stream, still ends. That launch must write
              parts alone, and needs a device of capability 9.0 or more.
    """
    rows = out.shape[0]
    if not rows:
        return
    # Few rows have many parts each, many rows few.
    block_h, block_p = (1, 16) if rows <= _FEW_ROWS else (4, 4)
    block_h = min(triton.next_power_of_2(shape.heads), block_h)
    options = {"launch_pdl": True} if early else {}
    _merge_kernel[(rows, -(-shape.heads // block_h))](
        part_out,
        part_lse,
        own_ptr,
        list_ptr,
        listed,
        out,
        out.stride(0),
        out.stride(1),
        HEADS=shape.heads,
        D_V=shape.d_v,
        BLOCK_H=block_h,
        BLOCK_P=block_p,
        EARLY=early,
        num_warps=4,
        **options,
    )
