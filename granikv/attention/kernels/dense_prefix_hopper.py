"""The prefix pass on Hopper, warp-specialised: the same work list as `dense_prefix`, in Gluon.

One producer warp keeps the bulk copies of K and V tiles in flight; two consumer warpgroups of 64
folded rows each attend them. Within a warpgroup the softmax of one tile runs while the tensor cores
multiply the weights of the tile before with its V; the other warpgroup fills what that leaves.
"""

# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

import torch
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor
from triton.language.extra.cuda import gdc_launch_dependents

from granikv.attention.kernels.config import PrefixConfig, Shape
from granikv.attention.kernels.dense_prefix import ITEM_FIELDS, LN2, LOG2E

WARPGROUP_ROWS = 64
_GLUON_TYPES = {torch.bfloat16: gl.bfloat16, torch.float16: gl.float16}
PRODUCER_REGISTERS = 24


@gluon.jit
def produce(
    k_desc: gl.tensor,
    v_desc: gl.tensor,
    program_ptr: gl.tensor,
    items: gl.tensor,
    k_tiles: gl.tensor,
    v_tiles: gl.tensor,
    barriers: gl.tuple,
    D: gl.constexpr,
    D_V: gl.constexpr,
    BLOCK_N: gl.constexpr,
    BUFFERS: gl.constexpr,
    FIELDS: gl.constexpr,
) -> None:
    """Copy the tiles of all items of this program, in the order in which they are consumed."""
    k_ready, k_free, v_ready, v_free = barriers
    first = gl.load(program_ptr + gl.program_id(0))
    last = gl.load(program_ptr + gl.program_id(0) + 1)
    count = 0
    for item in range(first, last):
        slot = gl.load(items + item * FIELDS)
        tokens = gl.load(items + item * FIELDS + 1)
        head = gl.load(items + item * FIELDS + 2)
        for start in range(0, tokens, BLOCK_N):
            at = count % BUFFERS
            phase = (count // BUFFERS) & 1
            mbarrier.wait(k_free.index(at), phase ^ 1)
            mbarrier.expect(k_ready.index(at), k_desc.block_type.nbytes)
            tma.async_copy_global_to_shared(
                k_desc, [slot + start, head * D], k_ready.index(at), k_tiles.index(at)
            )
            mbarrier.wait(v_free.index(at), phase ^ 1)
            mbarrier.expect(v_ready.index(at), v_desc.block_type.nbytes)
            tma.async_copy_global_to_shared(
                v_desc, [slot + start, head * D_V], v_ready.index(at), v_tiles.index(at)
            )
            count += 1


@gluon.jit
def consume(
    operands: gl.tuple,
    work: gl.tuple,
    q_tile: gl.tensor,
    k_tiles: gl.tensor,
    v_tiles: gl.tensor,
    barriers: gl.tuple,
    swept: gl.tensor,
    H: gl.constexpr,
    G: gl.constexpr,
    D: gl.constexpr,
    D_V: gl.constexpr,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    BUFFERS: gl.constexpr,
    FIELDS: gl.constexpr,
    Q_SHARED: gl.constexpr,
    GROUP: gl.constexpr,
) -> None:
    """Warpgroup GROUP's half of every tile of this program's items."""
    q, q_row, q_head, scale_log2, part_out, part_lse = operands
    program_ptr, items, rows = work
    k_ready, k_free, v_ready, v_free = barriers
    s_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    o_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, D_V, 16])
    p_layout: gl.constexpr = gl.DotOperandLayout(0, o_layout, 2)
    m_layout: gl.constexpr = gl.SliceLayout(1, o_layout)
    io_layout: gl.constexpr = gl.BlockedLayout([1, 8], [2, 16], [4, 1], [1, 0])
    q_layout: gl.constexpr = io_layout if Q_SHARED else gl.DotOperandLayout(0, s_layout, 2)
    dtype: gl.constexpr = q.dtype.element_ty
    at_n = gl.arange(0, BLOCK_N, gl.SliceLayout(0, s_layout))
    first = gl.load(program_ptr + gl.program_id(0))
    last = gl.load(program_ptr + gl.program_id(0) + 1)
    count = 0
    sweeps = 0
    for item in range(first, last):
        field = items + item * FIELDS
        tokens = gl.load(field + 1)
        head = gl.load(field + 2)
        m0 = gl.load(field + 3) + GROUP * BLOCK_M
        m_total = gl.load(field + 4)
        rows_at = gl.load(field + 5)
        part = gl.load(field + 6)
        pads = gl.load(field + 7)
        tiles = gl.cdiv(tokens, BLOCK_N)
        rest = tokens - (tiles - 1) * BLOCK_N

        folded = m0 + gl.arange(0, BLOCK_M, gl.SliceLayout(1, q_layout))
        inside = folded < m_total
        row = gl.load(rows + rows_at + folded // G, mask=inside, other=0).to(gl.int64)
        q_at = row * q_row + (head * G + folded % G) * q_head
        at_d = gl.arange(0, D, gl.SliceLayout(0, q_layout))
        queries = gl.load(q + q_at[:, None] + at_d[None, :], mask=inside[:, None], other=0.0)
        if Q_SHARED:
            q_tile.store(queries)
            fence_async_shared()
            queries = q_tile

        zero = gl.zeros([BLOCK_M, BLOCK_N], gl.float32, s_layout)
        acc = gl.zeros([BLOCK_M, D_V], gl.float32, o_layout)
        at = count % BUFFERS
        mbarrier.wait(k_ready.index(at), (count // BUFFERS) & 1)
        keys = k_tiles.index(at).permute((1, 0))
        s_token = warpgroup_mma(queries, keys, zero, use_acc=False, is_async=True)
        s = warpgroup_mma_wait(0, deps=(s_token,))
        mbarrier.arrive(k_free.index(at), count=1)
        if tiles == 1:
            s = gl.where((at_n < rest)[None, :], s, float("-inf"))
        peak = gl.max(s, 1) * scale_log2
        weights = gl.exp2(s * scale_log2 - peak[:, None])
        total = gl.sum(weights, 1)
        p = gl.convert_layout(weights.to(dtype), p_layout)
        for tile in range(1, tiles):
            now = count + tile
            at = now % BUFFERS
            before = (now - 1) % BUFFERS
            mbarrier.wait(k_ready.index(at), (now // BUFFERS) & 1)
            keys = k_tiles.index(at).permute((1, 0))
            s_token = warpgroup_mma(queries, keys, zero, use_acc=False, is_async=True)
            mbarrier.wait(v_ready.index(before), ((now - 1) // BUFFERS) & 1)
            o_token = warpgroup_mma(p, v_tiles.index(before), acc, is_async=True)
            s = warpgroup_mma_wait(1, deps=(s_token,))
            mbarrier.arrive(k_free.index(at), count=1)
            if tile == tiles - 1:
                s = gl.where((at_n < rest)[None, :], s, float("-inf"))
            raised = gl.maximum(peak, gl.max(s, 1) * scale_log2)
            weights = gl.exp2(s * scale_log2 - raised[:, None])
            shrink = gl.exp2(peak - raised)
            total = total * shrink + gl.sum(weights, 1)
            peak = raised
            acc = warpgroup_mma_wait(0, deps=(o_token, p))[0]
            mbarrier.arrive(v_free.index(before), count=1)
            p = gl.convert_layout(weights.to(dtype), p_layout)
            acc = acc * gl.convert_layout(shrink, m_layout)[:, None]
        count += tiles
        at = (count - 1) % BUFFERS
        mbarrier.wait(v_ready.index(at), ((count - 1) // BUFFERS) & 1)
        if rest < BLOCK_N:
            # The slots behind the range are another's: they may hold NaN, and 0 * NaN is NaN.
            if GROUP == 0:
                values = v_tiles.index(at).load(io_layout)
                real = gl.arange(0, BLOCK_N, gl.SliceLayout(1, io_layout)) < rest
                v_tiles.index(at).store(gl.where(real[:, None], values, 0.0))
                fence_async_shared()
            mbarrier.arrive(swept, count=1)
            mbarrier.wait(swept, sweeps & 1)
            sweeps += 1
        o_token = warpgroup_mma(p, v_tiles.index(at), acc, is_async=True)
        acc = warpgroup_mma_wait(0, deps=(o_token, p))[0]
        mbarrier.arrive(v_free.index(at), count=1)

        folded = m0 + gl.arange(0, BLOCK_M, m_layout)
        live = folded < m_total
        to = (part + folded // G).to(gl.int64) * (H * G) + head * G + folded % G
        total = gl.convert_layout(total, m_layout)
        peak = gl.convert_layout(peak, m_layout)
        at_v = gl.arange(0, D_V, gl.SliceLayout(0, o_layout))
        gl.store(
            part_out + to[:, None] * D_V + at_v[None, :], acc / total[:, None], mask=live[:, None]
        )
        gl.store(part_lse + to, (peak + gl.log2(total)) * LN2, mask=live)
        # Other columns of this segment were cut into more parts: what is missing here is empty.
        per_part = (m_total // G) * (H * G)
        for pad in range(1, pads + 1):
            gl.store(part_lse + to + pad * per_part, float("-inf"), mask=live)


@gluon.jit
def allocate_tiles(
    k_desc: gl.tensor,
    v_desc: gl.tensor,
    dtype: gl.constexpr,
    D: gl.constexpr,
    D_V: gl.constexpr,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    BUFFERS: gl.constexpr,
    Q_SHARED: gl.constexpr,
) -> tuple[gl.tensor, gl.tensor, gl.tensor, gl.tuple, gl.tensor]:
    """Shared memory of the roles: queries, keys, values, and the barriers between them, ready."""
    q_shared: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BLOCK_M, D], dtype)
    # Where queries stay in registers, the smallest tile that has this layout stands in.
    q_rows: gl.constexpr = BLOCK_M if Q_SHARED else 8
    q_tiles = gl.allocate_shared_memory(dtype, [2, q_rows, D], q_shared)
    k_tiles = gl.allocate_shared_memory(dtype, [BUFFERS, BLOCK_N, D], k_desc.layout)
    v_tiles = gl.allocate_shared_memory(dtype, [BUFFERS, BLOCK_N, D_V], v_desc.layout)
    k_ready = gl.allocate_shared_memory(gl.int64, [BUFFERS, 1], mbarrier.MBarrierLayout())
    k_free = gl.allocate_shared_memory(gl.int64, [BUFFERS, 1], mbarrier.MBarrierLayout())
    v_ready = gl.allocate_shared_memory(gl.int64, [BUFFERS, 1], mbarrier.MBarrierLayout())
    v_free = gl.allocate_shared_memory(gl.int64, [BUFFERS, 1], mbarrier.MBarrierLayout())
    swept = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    for i in gl.static_range(BUFFERS):
        mbarrier.init(k_ready.index(i), count=1)
        mbarrier.init(v_ready.index(i), count=1)
        mbarrier.init(k_free.index(i), count=2)
        mbarrier.init(v_free.index(i), count=2)
    mbarrier.init(swept, count=2)
    fence_async_shared()

    return q_tiles, k_tiles, v_tiles, (k_ready, k_free, v_ready, v_free), swept


@gluon.jit
def _prefix_kernel_hopper(
    q: gl.tensor,
    k_desc: gl.tensor,
    v_desc: gl.tensor,
    part_out: gl.tensor,
    part_lse: gl.tensor,
    program_ptr: gl.tensor,
    items: gl.tensor,
    rows: gl.tensor,
    scale_log2: gl.tensor,
    q_row: gl.tensor,
    q_head: gl.tensor,
    H: gl.constexpr,
    G: gl.constexpr,
    D: gl.constexpr,
    D_V: gl.constexpr,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    BUFFERS: gl.constexpr,
    FIELDS: gl.constexpr,
    Q_SHARED: gl.constexpr,
    CONSUMER: gl.constexpr,
    PRODUCER: gl.constexpr,
) -> None:
    """Program i attends items program_ptr[i] .. program_ptr[i + 1]."""
    gdc_launch_dependents()
    dtype: gl.constexpr = q.dtype.element_ty
    q_tiles, k_tiles, v_tiles, barriers, swept = allocate_tiles(
        k_desc, v_desc, dtype, D, D_V, BLOCK_M, BLOCK_N, BUFFERS, Q_SHARED
    )
    operands = (q, q_row, q_head, scale_log2, part_out, part_lse)
    work = (program_ptr, items, rows)
    # fmt: off
    gl.warp_specialize(
        [
            (consume, (
                operands, work, q_tiles.index(0), k_tiles, v_tiles, barriers, swept,
                H, G, D, D_V, BLOCK_M, BLOCK_N, BUFFERS, FIELDS, Q_SHARED, 0,
            )),
            (consume, (
                operands, work, q_tiles.index(1), k_tiles, v_tiles, barriers, swept,
                H, G, D, D_V, BLOCK_M, BLOCK_N, BUFFERS, FIELDS, Q_SHARED, 1,
            )),
            (produce, (
                k_desc, v_desc, program_ptr, items, k_tiles, v_tiles, barriers,
                D, D_V, BLOCK_N, BUFFERS, FIELDS,
            )),
        ],
        [4, 1],
        [CONSUMER, PRODUCER],
    )
    # fmt: on


def consumer_registers(both: int) -> int:
    """Registers a thread of a warpgroup, when the two share `both`: a multiple of 8."""
    return both // 2 // 8 * 8


def dense_prefix_hopper(
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
) -> None:
    """As `dense_prefix`, whose arguments these are; block_m is 128 and the types are 16-bit."""
    _prefix_kernel_hopper[(config.programs,)](
        q,
        cache_descriptor(k_cache, config.block_n),
        cache_descriptor(v_cache, config.block_n),
        part_out,
        part_lse,
        program_ptr,
        items,
        rows,
        scale * LOG2E,
        q.stride(0),
        q.stride(1),
        H=shape.kv_heads,
        G=shape.group,
        D=shape.d,
        D_V=shape.d_v,
        BLOCK_M=WARPGROUP_ROWS,
        BLOCK_N=config.block_n,
        BUFFERS=config.num_stages,
        FIELDS=ITEM_FIELDS,
        Q_SHARED=config.q_shared,
        CONSUMER=consumer_registers(3 * config.registers - PRODUCER_REGISTERS),
        PRODUCER=PRODUCER_REGISTERS,
        num_warps=4,
        maxnreg=config.registers,
    )


def cache_descriptor(cache: Tensor, tokens: int) -> TensorDescriptor:
    """The cache as a matrix [slots, H_kv * width], read `tokens` slots of one head at a time."""
    width = cache.shape[2]
    block = [tokens, width]
    layout = gl.NVMMASharedLayout.get_default_for(block, _GLUON_TYPES[cache.dtype])
    shape = [cache.shape[0], cache.shape[1] * width]
    return TensorDescriptor(cache, shape, [cache.stride(0), 1], block, layout)
