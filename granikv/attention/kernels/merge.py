"""Merging the parts of each row by log-sum-exp (§2.3, Eq. 1), any number of them a row."""

# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from granikv.attention.kernels.config import Shape

_HEADS_AT_ONCE = 4
"""Heads of a program, a warp each."""
_NOTHING = tl.constexpr(-3.0e38)
"""Finite, so that empty parts alone never give -inf - (-inf)."""


@triton.jit
def _part(
    index: tl.tensor,
    owned: tl.tensor,
    count: tl.tensor,
    own: tl.tensor,
    listed: tl.tensor,
) -> tl.tensor:
    """The number of the row's part `index`: its own ones first, then the listed ones."""
    is_listed = (index >= owned) & (index < count)
    part = tl.load(listed + index - owned, mask=is_listed, other=0)
    return tl.where(is_listed, part, own + index).to(tl.int64)


@triton.jit
def _read(
    part: tl.tensor,
    there: tl.tensor,
    part_out: tl.tensor,
    part_lse: tl.tensor,
    head: tl.tensor,
    at_v: tl.tensor,
    HEADS: tl.constexpr,
    D_V: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor]:
    """lse [BLOCK_H] and out [BLOCK_H, D_V] of one part; out not only where lse is finite: that
    would put one read of memory behind another."""
    at = part * HEADS + head
    lse = tl.load(part_lse + at, mask=there, other=float("-inf"))
    values = tl.load(part_out + at[:, None] * D_V + at_v[None, :], mask=there[:, None], other=0.0)
    return tl.where(tl.abs(lse) == float("inf"), float("-inf"), lse), values


@triton.jit
def _weighed(lse: tl.tensor, values: tl.tensor, peak: tl.tensor) -> tuple[tl.tensor, tl.tensor]:
    """A part's weight [BLOCK_H] and its weighted out; an empty part's out may hold anything."""
    weight = tl.exp(lse - peak)
    there = lse != float("-inf")
    return weight, tl.where(there[:, None], weight[:, None] * values, 0.0)


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
    EARLY: tl.constexpr,
) -> None:
    """Program (i, j): heads j * BLOCK_H onwards of row i.

    Four parts are read at once and joined element by element: no thread needs another's values, so
    nothing goes through shared memory and nothing waits but for the reads.
    """
    row = tl.program_id(0)
    head = tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H)
    real = head < HEADS
    at_v = tl.arange(0, D_V)
    own = tl.load(own_ptr + row)
    owned = tl.load(own_ptr + row + 1) - own
    first_listed = tl.load(list_ptr + row)
    listed += first_listed
    count = owned + tl.load(list_ptr + row + 1) - first_listed
    part0 = _part(0, owned, count, own, listed)
    part1 = _part(1, owned, count, own, listed)
    part2 = _part(2, owned, count, own, listed)
    part3 = _part(3, owned, count, own, listed)
    if EARLY:
        # Which parts there are was written before the launch that writes them began.
        tl.extra.cuda.gdc_wait()

    peak = tl.full([BLOCK_H], _NOTHING, tl.float32)
    total = tl.zeros([BLOCK_H], tl.float32)
    acc = tl.zeros([BLOCK_H, D_V], tl.float32)
    for first in range(0, count, 4):
        there = real & (first < count)
        lse0, values0 = _read(part0, there, part_out, part_lse, head, at_v, HEADS, D_V)
        there = real & (first + 1 < count)
        lse1, values1 = _read(part1, there, part_out, part_lse, head, at_v, HEADS, D_V)
        there = real & (first + 2 < count)
        lse2, values2 = _read(part2, there, part_out, part_lse, head, at_v, HEADS, D_V)
        there = real & (first + 3 < count)
        lse3, values3 = _read(part3, there, part_out, part_lse, head, at_v, HEADS, D_V)
        part0 = _part(first + 4, owned, count, own, listed)
        part1 = _part(first + 5, owned, count, own, listed)
        part2 = _part(first + 6, owned, count, own, listed)
        part3 = _part(first + 7, owned, count, own, listed)

        highest = _highest(_highest(lse0, lse1), _highest(lse2, lse3))
        raised = _highest(peak, highest)
        shrink = tl.exp(peak - raised)
        weight0, share0 = _weighed(lse0, values0, raised)
        weight1, share1 = _weighed(lse1, values1, raised)
        weight2, share2 = _weighed(lse2, values2, raised)
        weight3, share3 = _weighed(lse3, values3, raised)
        total = total * shrink + ((weight0 + weight1) + (weight2 + weight3))
        acc = acc * shrink[:, None] + ((share0 + share1) + (share2 + share3))
        peak = raised
    # A row whose parts are all empty has total 0 and acc 0; the largest part weighs 1.
    result = acc / tl.where(total == 0.0, 1.0, total)[:, None]
    to = out + row.to(tl.int64) * out_row + (head * out_head)[:, None] + at_v[None, :]
    tl.store(to, result.to(out.dtype.element_ty), mask=real[:, None])


@triton.jit
def _highest(a: tl.tensor, b: tl.tensor) -> tl.tensor:
    """The larger; NaN where either is NaN."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


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
    block = min(triton.next_power_of_2(shape.heads), _HEADS_AT_ONCE)
    options = {"launch_pdl": True} if early else {}
    _merge_kernel[(rows, -(-shape.heads // block))](
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
        BLOCK_H=block,
        EARLY=early,
        num_warps=block,
        **options,
    )
