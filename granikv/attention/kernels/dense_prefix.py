"""The prefix pass: every slab range of a step, for all rows that read it, in one launch (§3.5).

The rows of a segment and the query heads of one KV head are folded into M = rows * n_q/kv, so a
tile of K is read once for up to `block_m` queries. A persistent grid walks a work list in device
memory (`worklist`): which composition of segments a step has is data, and one captured launch
serves them all.
"""

# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

import math

import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from granikv.attention.kernels.config import PrefixConfig, Shape

ITEM_FIELDS = 8
"""int32 fields of an item (`worklist.Arrays`)."""

LN2 = tl.constexpr(math.log(2.0))
LOG2E = math.log2(math.e)


@triton.jit
def fold_scores(
    s: tl.tensor,
    v: tl.tensor,
    acc: tl.tensor,
    total: tl.tensor,
    peak: tl.tensor,
    scale_log2: tl.tensor,
    PRECISION: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor, tl.tensor]:
    """One step of the online softmax: products s [M, N] = q k^T and v [N, d_v] into the sums.

    acc [M, d_v], total [M] and peak [M] (base 2, scaled) are float32; scale_log2 > 0. Every row of
    s has a finite product, or its peak is finite already.
    """
    # Scaling after the maximum leaves one fused multiply-add for each product.
    raised = tl.maximum(peak, tl.max(s, 1) * scale_log2)
    weights = tl.math.exp2(s * scale_log2 - raised[:, None])
    shrink = tl.math.exp2(peak - raised)
    total = total * shrink + tl.sum(weights, 1)
    acc = tl.dot(weights.to(v.dtype), v, acc * shrink[:, None], input_precision=PRECISION)
    return acc, total, raised


@triton.jit
def _prefix_kernel(
    q: tl.tensor,
    k: tl.tensor,
    v: tl.tensor,
    k_desc: tl.tensor,
    v_desc: tl.tensor,
    part_out: tl.tensor,
    part_lse: tl.tensor,
    program_ptr: tl.tensor,
    items: tl.tensor,
    rows: tl.tensor,
    slot_table: tl.tensor,
    scale_log2: tl.tensor,
    q_row: tl.tensor,
    q_head: tl.tensor,
    k_slot: tl.tensor,
    k_head: tl.tensor,
    v_slot: tl.tensor,
    v_head: tl.tensor,
    H: tl.constexpr,
    G: tl.constexpr,
    D: tl.constexpr,
    D_V: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    FIELDS: tl.constexpr,
    DESCRIPTORS: tl.constexpr,
    PRECISION: tl.constexpr,
) -> None:
    """Program i attends items program_ptr[i] .. program_ptr[i + 1], one after another."""
    first = tl.load(program_ptr + tl.program_id(0))
    last = tl.load(program_ptr + tl.program_id(0) + 1)
    at_d = tl.arange(0, D)
    at_v = tl.arange(0, D_V)
    at_n = tl.arange(0, BLOCK_N)
    for item in range(first, last):
        field = items + item * FIELDS
        slot = tl.load(field)
        tokens = tl.load(field + 1)
        head = tl.load(field + 2)
        folded = tl.load(field + 3) + tl.arange(0, BLOCK_M)
        m_total = tl.load(field + 4)
        rows_at = tl.load(field + 5)
        part = tl.load(field + 6)
        pads = tl.load(field + 7)

        live = folded < m_total
        local = folded // G
        q_at = head * G + folded % G
        row = tl.load(rows + rows_at + local, mask=live, other=0).to(tl.int64)
        q_ptr = q + (row * q_row + q_at * q_head)[:, None] + at_d[None, :]
        queries = tl.load(q_ptr, mask=live[:, None], other=0.0)
        k_of_head = k + head.to(tl.int64) * k_head
        v_of_head = v + head.to(tl.int64) * v_head

        peak = tl.full([BLOCK_M], float("-inf"), tl.float32)
        total = tl.zeros([BLOCK_M], tl.float32)
        acc = tl.zeros([BLOCK_M, D_V], tl.float32)
        full = tokens // BLOCK_N
        for tile in range(full):
            start = slot + tile * BLOCK_N
            if DESCRIPTORS:
                keys = k_desc.load([start, head * D])
                values = v_desc.load([start, head * D_V])
            else:
                at = start + at_n
                if slot_table is not None:
                    at = tl.load(slot_table + at)
                at = at.to(tl.int64)
                keys = tl.load(k_of_head + at[:, None] * k_slot + at_d[None, :])
                values = tl.load(v_of_head + at[:, None] * v_slot + at_v[None, :])
            s = tl.dot(queries, keys.T, input_precision=PRECISION)
            acc, total, peak = fold_scores(s, values, acc, total, peak, scale_log2, PRECISION)
        rest = tokens - full * BLOCK_N
        if rest > 0:
            # The slots behind the range are another's: they may hold NaN, and 0 * NaN is NaN.
            inside = at_n < rest
            at = slot + full * BLOCK_N + at_n
            if slot_table is not None:
                at = tl.load(slot_table + at, mask=inside, other=0)
            at = at.to(tl.int64)
            keys = tl.load(
                k_of_head + at[:, None] * k_slot + at_d[None, :], mask=inside[:, None], other=0.0
            )
            values = tl.load(
                v_of_head + at[:, None] * v_slot + at_v[None, :], mask=inside[:, None], other=0.0
            )
            s = tl.dot(queries, keys.T, input_precision=PRECISION)
            s = tl.where(inside[None, :], s, float("-inf"))
            acc, total, peak = fold_scores(s, values, acc, total, peak, scale_log2, PRECISION)

        to = (part + local).to(tl.int64) * (H * G) + q_at
        out_ptr = part_out + to[:, None] * D_V + at_v[None, :]
        tl.store(out_ptr, acc / total[:, None], mask=live[:, None])
        tl.store(part_lse + to, (peak + tl.math.log2(total)) * LN2, mask=live)
        # Other tiles of this segment were cut into more parts: what is missing here is empty.
        per_part = (m_total // G) * (H * G)
        for pad in range(1, pads + 1):
            tl.store(part_lse + to + pad * per_part, float("-inf"), mask=live)


def dense_prefix(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    program_ptr: Tensor,
    items: Tensor,
    rows: Tensor,
    part_out: Tensor,
    part_lse: Tensor,
    scale: float,
    shape: Shape,
    config: PrefixConfig,
    slot_table: Tensor | None = None,
) -> None:
    """Attend every item of a work list; writes parts, returns nothing.

    q         [n, H_q, d], last dimension contiguous
    k_cache   [slots, H_kv, d]; v_cache [slots, H_kv, d_v]; last dimension contiguous
    program_ptr, items, rows
              int32, as `worklist` lays them out; read when the launch runs, not when it is made
    part_out  [parts, H_q, d_v] float32: each (row, head) normalised over its part alone
    part_lse  [parts, H_q] float32, natural logarithm; -inf for a part that has no keys
    slot_table
              int32; where given, the segments are ranges of it instead of slabs: the shared read
              without the contiguous storage (Table 5)
    """
    described = (
        config.form != "pointers"
        and slot_table is None
        and describable(k_cache)
        and describable(v_cache)
    )
    where = (program_ptr, items, rows, part_out, part_lse)
    if described and config.form == "specialised":
        # Its module needs Triton's Gluon, which not every build of Triton has.
        from granikv.attention.kernels.dense_prefix_hopper import dense_prefix_hopper

        dense_prefix_hopper(q, k_cache, v_cache, *where, scale, shape, config)
        return
    _prefix_kernel[(config.programs,)](
        q,
        k_cache,
        v_cache,
        _descriptor(k_cache, config.block_n) if described else None,
        _descriptor(v_cache, config.block_n) if described else None,
        part_out,
        part_lse,
        program_ptr,
        items,
        rows,
        slot_table,
        scale * LOG2E,
        q.stride(0),
        q.stride(1),
        k_cache.stride(0),
        k_cache.stride(1),
        v_cache.stride(0),
        v_cache.stride(1),
        H=shape.kv_heads,
        G=shape.group,
        D=shape.d,
        D_V=shape.d_v,
        BLOCK_M=config.block_m,
        BLOCK_N=config.block_n,
        FIELDS=ITEM_FIELDS,
        DESCRIPTORS=described,
        PRECISION="ieee",
        num_warps=config.num_warps,
        num_stages=config.num_stages,
    )


def describable(cache: Tensor) -> bool:
    """Whether the heads of a slot lie side by side and rows start at multiples of 16 bytes."""
    size = cache.element_size()
    return (
        cache.stride(1) == cache.shape[2]
        and cache.stride(0) * size % 16 == 0
        and cache.data_ptr() % 16 == 0
    )


def _descriptor(cache: Tensor, tokens: int) -> TensorDescriptor:
    """The cache as a matrix [slots, H_kv * width], read `tokens` slots of one head at a time."""
    width = cache.shape[2]
    shape = [cache.shape[0], cache.shape[1] * width]
    return TensorDescriptor(cache, shape, [cache.stride(0), 1], [tokens, width])
