"""Prefix and suffix of a layer in one persistent launch on Hopper.

The prefix pass is bound by arithmetic and the suffix pass by bytes, so together they need not take
the sum of their times. Every multiprocessor runs one program of four roles: the two consumer
warpgroups and the producer warp of `dense_prefix_hopper`, and the warpgroup of
`paged_suffix_hopper`, each on its own list of work. Nothing passes between the two lists: their
parts meet in the merge.

For 256 rows behind 8K, 32/8 heads of 128, the floors are 43.5 µs of arithmetic and 70 µs of bytes.
What the roles share is the L2: a tile of 128 folded rows reads K and V once more for each such
tile, 268 MB, beside as many bytes of the suffix; at about 6 TB/s that alone is 90 µs. So 90 to
105 µs is what to expect of any form of overlap with tiles of this height.
"""

# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.language.extra.cuda import gdc_launch_dependents

from granikv.attention.kernels.config import PrefixConfig, Shape, SuffixConfig
from granikv.attention.kernels.dense_prefix import ITEM_FIELDS, LOG2E
from granikv.attention.kernels.dense_prefix_hopper import (
    PRODUCER_REGISTERS,
    WARPGROUP_ROWS,
    allocate_tiles,
    cache_descriptor,
    consume,
    consumer_registers,
    produce,
)
from granikv.attention.kernels.paged_suffix_hopper import allocate_ring, attend_parts, padded_heads

_REGISTERS = 128
"""A thread, on average: 16 warps (three warpgroups and the producer's) fill the register file."""
_SUFFIX_REGISTERS = 128


@gluon.jit(do_not_specialize=["batch"])
def _fused_kernel_hopper(
    q: gl.tensor,
    k_desc: gl.tensor,
    v_desc: gl.tensor,
    k: gl.tensor,
    v: gl.tensor,
    part_out: gl.tensor,
    part_lse: gl.tensor,
    program_ptr: gl.tensor,
    items: gl.tensor,
    rows: gl.tensor,
    slots: gl.tensor,
    parts: gl.tensor,
    part_ptr: gl.tensor,
    batch: gl.tensor,
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
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    BUFFERS: gl.constexpr,
    FIELDS: gl.constexpr,
    Q_SHARED: gl.constexpr,
    SUFFIX_HEADS: gl.constexpr,
    SUFFIX_N: gl.constexpr,
    SUFFIX_BUFFERS: gl.constexpr,
    CONSUMER: gl.constexpr,
    SUFFIX: gl.constexpr,
    PRODUCER: gl.constexpr,
) -> None:
    """Program i: items program_ptr[i] .. program_ptr[i + 1], and every n-th suffix pair from i."""
    gdc_launch_dependents()
    dtype: gl.constexpr = q.dtype.element_ty
    q_tiles, k_tiles, v_tiles, barriers, swept = allocate_tiles(
        k_desc, v_desc, dtype, D, D, BLOCK_M, BLOCK_N, BUFFERS, Q_SHARED
    )
    ring = allocate_ring(dtype, D, SUFFIX_HEADS, SUFFIX_N, SUFFIX_BUFFERS)
    operands = (q, q_row, q_head, scale_log2, part_out, part_lse)
    work = (program_ptr, items, rows)
    suffix_operands = (q, k, v, q_row, q_head, k_slot, k_head, v_slot, v_head)
    suffix_work = (slots, parts, part_ptr, batch)
    results = (part_out, part_lse, scale_log2)
    # fmt: off
    gl.warp_specialize(
        [
            (consume, (
                operands, work, q_tiles.index(0), k_tiles, v_tiles, barriers, swept,
                H, G, D, D, BLOCK_M, BLOCK_N, BUFFERS, FIELDS, Q_SHARED, 0,
            )),
            (consume, (
                operands, work, q_tiles.index(1), k_tiles, v_tiles, barriers, swept,
                H, G, D, D, BLOCK_M, BLOCK_N, BUFFERS, FIELDS, Q_SHARED, 1,
            )),
            (attend_parts, (
                suffix_operands, suffix_work, results, ring,
                H, G, D, SUFFIX_HEADS, SUFFIX_N, SUFFIX_BUFFERS,
            )),
            (produce, (
                k_desc, v_desc, program_ptr, items, k_tiles, v_tiles, barriers,
                D, D, BLOCK_N, BUFFERS, FIELDS,
            )),
        ],
        [4, 4, 1],
        [CONSUMER, SUFFIX, PRODUCER],
    )
    # fmt: on


def fused_hopper(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    program_ptr: Tensor,
    items: Tensor,
    rows: Tensor,
    slots: Tensor,
    parts: Tensor,
    part_ptr: Tensor,
    part_out: Tensor,
    part_lse: Tensor,
    batch: int,
    scale: float,
    shape: Shape,
    prefix: PrefixConfig,
    suffix: SuffixConfig,
) -> None:
    """`dense_prefix` and `paged_suffix` (of `batch` rows) at once; arguments as theirs.

    The prefix is in its specialised form and the suffix in its ring form, whose conditions hold.
    """
    _fused_kernel_hopper[(prefix.programs,)](
        q,
        cache_descriptor(k_cache, prefix.block_n),
        cache_descriptor(v_cache, prefix.block_n),
        k_cache,
        v_cache,
        part_out,
        part_lse,
        program_ptr,
        items,
        rows,
        slots,
        parts,
        part_ptr,
        batch,
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
        BLOCK_M=WARPGROUP_ROWS,
        BLOCK_N=prefix.block_n,
        BUFFERS=prefix.num_stages,
        FIELDS=ITEM_FIELDS,
        Q_SHARED=prefix.q_shared,
        SUFFIX_HEADS=padded_heads(shape),
        SUFFIX_N=suffix.block_n,
        SUFFIX_BUFFERS=suffix.num_stages,
        CONSUMER=consumer_registers(4 * _REGISTERS - _SUFFIX_REGISTERS - PRODUCER_REGISTERS),
        SUFFIX=_SUFFIX_REGISTERS,
        PRODUCER=PRODUCER_REGISTERS,
        num_warps=4,
        maxnreg=_REGISTERS,
    )
