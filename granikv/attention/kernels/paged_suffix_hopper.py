"""The suffix pass on Hopper, persistent, in Gluon: a ring of tiles that is refilled across parts.

The portable kernel fills its pipeline anew for each (part, KV head), of a few tiles only. Here one
warpgroup walks all of its pairs as a single line of tiles, so that the same number of copies is on
its way from the first tile to the last; a tile's keys give way to later ones while its values are
still in use. Tokens are the long side of both products, scores [tokens, heads] and results [width,
heads], so a group of query heads is padded to 8 instead of 16, and accumulators stay small enough
to run beside the prefix pass.
"""

# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    async_copy,
    fence_async_shared,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from granikv.attention.kernels.config import Shape, SuffixConfig
from granikv.attention.kernels.dense_prefix import LN2, LOG2E

PART_FIELDS = gl.constexpr(4)
"""As `paged_suffix.PART_FIELDS`."""


@gluon.jit
def _copy_keys(
    operands: gl.tuple,
    one: gl.tensor,
    slot: gl.tensor,
    row: gl.tensor,
    q_tile: gl.tensor,
    k_tile: gl.tensor,
    H: gl.constexpr,
    G: gl.constexpr,
    D: gl.constexpr,
    HEADS: gl.constexpr,
    ROWS: gl.constexpr,
) -> None:
    """Start copying a tile's keys and the queries that they meet."""
    q, k, q_row, q_head, k_slot, k_head = operands
    at_d = gl.arange(0, D, gl.SliceLayout(0, ROWS))
    head = one % H
    # Heads that pad the group repeat its last one; their results are not stored.
    g = gl.minimum(gl.arange(0, HEADS, gl.SliceLayout(1, ROWS)), G - 1)
    q_at = row.to(gl.int64) * q_row + (head * G + g) * q_head
    async_copy.async_copy_global_to_shared(q_tile, q + q_at[:, None] + at_d[None, :])
    k_at = slot.to(gl.int64) * k_slot + head.to(gl.int64) * k_head
    async_copy.async_copy_global_to_shared(k_tile, k + k_at[:, None] + at_d[None, :])


@gluon.jit
def _copy_values(
    operands: gl.tuple,
    one: gl.tensor,
    slot: gl.tensor,
    v_tile: gl.tensor,
    H: gl.constexpr,
    D: gl.constexpr,
    ROWS: gl.constexpr,
) -> None:
    """Start copying a tile's values."""
    v, v_slot, v_head = operands
    at_d = gl.arange(0, D, gl.SliceLayout(0, ROWS))
    v_at = slot.to(gl.int64) * v_slot + (one % H).to(gl.int64) * v_head
    async_copy.async_copy_global_to_shared(v_tile, v + v_at[:, None] + at_d[None, :])


@gluon.jit
def _fields(parts: gl.tensor, one: gl.tensor, last: gl.tensor, H: gl.constexpr) -> gl.tuple:
    """Row, first slot and tokens of a pair's part; those of the last pair beyond it."""
    field = parts + gl.minimum(one, last) // H * PART_FIELDS
    return gl.load(field), gl.load(field + 1), gl.load(field + 2)


@gluon.jit
def _advance(
    walk: gl.tuple,
    after: gl.tuple,
    slots: gl.tensor,
    parts: gl.tensor,
    last: gl.tensor,
    at_row: gl.tensor,
    H: gl.constexpr,
    BLOCK_N: gl.constexpr,
) -> gl.tuple:
    """The tile after walk's (pair, position, row, first slot, tokens), the part after it, slots."""
    ahead, at, row, slots_at, tokens = walk
    at += BLOCK_N
    if at >= tokens:
        ahead += gl.num_programs(0)
        at = 0
        row, slots_at, tokens = after
        after = _fields(parts, ahead + gl.num_programs(0), last, H)
    slot = gl.load(slots + slots_at + gl.minimum(at + at_row, tokens - 1))
    return (ahead, at, row, slots_at, tokens), after, slot


@gluon.jit
def attend_parts(
    operands: gl.tuple,
    work: gl.tuple,
    results: gl.tuple,
    ring: gl.tuple,
    H: gl.constexpr,
    G: gl.constexpr,
    D: gl.constexpr,
    HEADS: gl.constexpr,
    BLOCK_N: gl.constexpr,
    BUFFERS: gl.constexpr,
) -> None:
    """One warpgroup: (part, KV head) number program_id, and every num_programs-th after it."""
    q, k, v, q_row, q_head, k_slot, k_head, v_slot, v_head = operands
    keys = (q, k, q_row, q_head, k_slot, k_head)
    values = (v, v_slot, v_head)
    q_ring, k_ring, v_ring, p_tile = ring
    slots, parts, part_ptr, rows = work
    part_out, part_lse, scale_log2 = results
    ROWS: gl.constexpr = gl.BlockedLayout([1, 8], [256 // D, D // 8], [4, 1], [1, 0])
    PRODUCT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HEADS, 16])
    dtype: gl.constexpr = q.dtype.element_ty
    stride = gl.num_programs(0)
    pairs = gl.load(part_ptr + rows) * H
    last = gl.maximum(pairs - 1, 0)
    at_row = gl.arange(0, BLOCK_N, gl.SliceLayout(1, ROWS))
    at_n = gl.arange(0, BLOCK_N, gl.SliceLayout(1, PRODUCT))
    at_d = gl.arange(0, D, gl.SliceLayout(1, PRODUCT))
    at_g = gl.arange(0, HEADS, gl.SliceLayout(0, PRODUCT))

    # Two walks over the same line of tiles: `walk` copies, `one` computes. Each knows the fields of
    # its next part already when it gets there.
    one = gl.program_id(0)
    row, slots_at, tokens = _fields(parts, one, last, H)
    after = _fields(parts, one + stride, last, H)
    next_tokens = after[2]
    walk = (one, 0, row, slots_at, tokens)
    # Before the first step the list may be empty, and its first part without tokens.
    slot = gl.load(slots + slots_at + gl.maximum(gl.minimum(at_row, tokens - 1), 0))
    for first in gl.static_range(BUFFERS):
        if walk[0] < pairs:
            _copy_keys(
                keys,
                walk[0],
                slot,
                walk[2],
                q_ring.index(first),
                k_ring.index(first),
                H,
                G,
                D,
                HEADS,
                ROWS,
            )
        async_copy.commit_group()
        if walk[0] < pairs:
            _copy_values(values, walk[0], slot, v_ring.index(first), H, D, ROWS)
            walk, after, slot = _advance(walk, after, slots, parts, last, at_row, H, BLOCK_N)
        async_copy.commit_group()
    at = 0
    count = 0

    peak = gl.full([HEADS], float("-inf"), gl.float32, gl.SliceLayout(0, PRODUCT))
    total = gl.zeros([BLOCK_N, HEADS], gl.float32, PRODUCT)
    acc = gl.zeros([D, HEADS], gl.float32, PRODUCT)
    zero = gl.zeros([BLOCK_N, HEADS], gl.float32, PRODUCT)
    while one < pairs:
        buffer = count % BUFFERS
        async_copy.wait_group(2 * BUFFERS - 1)
        fence_async_shared()
        gl.thread_barrier()
        s = warpgroup_mma(
            k_ring.index(buffer), q_ring.index(buffer).permute((1, 0)), zero, use_acc=False
        )
        s = gl.where((at + at_n < tokens)[:, None], s, float("-inf"))
        fresh = at == 0
        before = gl.where(fresh, float("-inf"), peak)
        peak = gl.maximum(before, gl.max(s, 0) * scale_log2)
        weights = gl.exp2(s * scale_log2 - peak[None, :])
        shrink = gl.exp2(before - peak)[None, :]
        # A part's sums are replaced, not multiplied by 0: the part before may have held NaN.
        total = gl.where(fresh, 0.0, total * shrink) + weights
        acc = gl.where(fresh, 0.0, acc * shrink)
        p_tile.store(weights.to(dtype).permute((1, 0)))
        # The values of this tile were asked for after its keys, and before the next tile's.
        async_copy.wait_group(2 * BUFFERS - 2)
        fence_async_shared()
        gl.thread_barrier()
        token = warpgroup_mma(
            v_ring.index(buffer).permute((1, 0)), p_tile.permute((1, 0)), acc, is_async=True
        )
        # Everyone has done with this tile's keys, and below with its values.
        if walk[0] < pairs:
            _copy_keys(
                keys,
                walk[0],
                slot,
                walk[2],
                q_ring.index(buffer),
                k_ring.index(buffer),
                H,
                G,
                D,
                HEADS,
                ROWS,
            )
        async_copy.commit_group()
        acc = warpgroup_mma_wait(0, deps=(token,))
        gl.thread_barrier()
        if walk[0] < pairs:
            _copy_values(values, walk[0], slot, v_ring.index(buffer), H, D, ROWS)
            walk, after, slot = _advance(walk, after, slots, parts, last, at_row, H, BLOCK_N)
        async_copy.commit_group()
        count += 1
        at += BLOCK_N
        if at >= tokens:
            sums = gl.sum(total, 0)
            to = (one // H).to(gl.int64) * (H * G) + one % H * G + at_g
            live = at_g < G
            gl.store(part_out + to[None, :] * D + at_d[:, None], acc / sums[None, :], live[None, :])
            gl.store(part_lse + to, (peak + gl.log2(sums)) * LN2, live)
            one += stride
            at = 0
            tokens = next_tokens
            next_tokens = _fields(parts, one + stride, last, H)[2]
    async_copy.wait_group(0)


@gluon.jit
def allocate_ring(
    dtype: gl.constexpr,
    D: gl.constexpr,
    HEADS: gl.constexpr,
    BLOCK_N: gl.constexpr,
    BUFFERS: gl.constexpr,
) -> gl.tuple:
    """Shared memory of a warpgroup: queries, keys and values of each tile, and one's weights."""
    tile: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BLOCK_N, D], dtype)
    q_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([HEADS, D], dtype)
    p_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([HEADS, BLOCK_N], dtype)
    q_ring = gl.allocate_shared_memory(dtype, [BUFFERS, HEADS, D], q_layout)
    k_ring = gl.allocate_shared_memory(dtype, [BUFFERS, BLOCK_N, D], tile)
    v_ring = gl.allocate_shared_memory(dtype, [BUFFERS, BLOCK_N, D], tile)
    p_tile = gl.allocate_shared_memory(dtype, [HEADS, BLOCK_N], p_layout)
    return q_ring, k_ring, v_ring, p_tile


@gluon.jit(do_not_specialize=["rows"])
def _suffix_kernel_hopper(
    q: gl.tensor,
    k: gl.tensor,
    v: gl.tensor,
    part_out: gl.tensor,
    part_lse: gl.tensor,
    slots: gl.tensor,
    parts: gl.tensor,
    part_ptr: gl.tensor,
    rows: gl.tensor,
    scale_log2: gl.tensor,
    q_row: gl.tensor,
    q_head: gl.tensor,
    k_slot: gl.tensor,
    k_head: gl.tensor,
    v_slot: gl.tensor,
    v_head: gl.tensor,
    H: gl.constexpr,
    G: gl.constexpr,
    D: gl.constexpr,
    HEADS: gl.constexpr,
    BLOCK_N: gl.constexpr,
    BUFFERS: gl.constexpr,
    EARLY: gl.constexpr,
) -> None:
    """One warpgroup a program."""
    gdc_launch_dependents()
    ring = allocate_ring(q.dtype.element_ty, D, HEADS, BLOCK_N, BUFFERS)
    operands = (q, k, v, q_row, q_head, k_slot, k_head, v_slot, v_head)
    work = (slots, parts, part_ptr, rows)
    results = (part_out, part_lse, scale_log2)
    attend_parts(operands, work, results, ring, H, G, D, HEADS, BLOCK_N, BUFFERS)
    if EARLY:
        # So that whoever waits for this launch has waited for the one before it too.
        gdc_wait()


def padded_heads(shape: Shape) -> int:
    """Query heads of a KV head, as the products take them: a multiple of 8."""
    return 8 if shape.group <= 8 else 16


def paged_suffix_hopper(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    slots: Tensor,
    parts: Tensor,
    part_ptr: Tensor,
    part_out: Tensor,
    part_lse: Tensor,
    rows: int,
    scale: float,
    shape: Shape,
    config: SuffixConfig,
    early: bool = False,
) -> None:
    """As `paged_suffix`, whose arguments these are; d = d_v, and the types are 16-bit."""
    options = {"launch_pdl": True} if early else {}
    _suffix_kernel_hopper[(config.programs,)](
        q,
        k_cache,
        v_cache,
        part_out,
        part_lse,
        slots,
        parts,
        part_ptr,
        rows,
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
        HEADS=padded_heads(shape),
        BLOCK_N=config.block_n,
        BUFFERS=config.num_stages,
        EARLY=early,
        num_warps=4,
        **options,
    )
