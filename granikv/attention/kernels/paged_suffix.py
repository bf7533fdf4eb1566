"""The suffix pass: what no slab holds, read slot by slot through the page table.

Once a step, `snapshot` copies the slots of each row's paged ranges out of the page table, one row
after another, and splits the rows into parts of about equal length. The layers of the step read
that copy: the scheduler may rewrite the page table while they run, and sequence lengths are read
on the device, so a step in which every row only grew by a token needs nothing from the host.
"""

# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from granikv.attention.kernels.config import Shape, SuffixConfig
from granikv.attention.kernels.dense_prefix import LN2, LOG2E, fold_scores

PART_FIELDS = 4
"""int32 fields of a part: row; where its slots start; tokens; unused."""

_GATHER = 1024
"""Tokens that one iteration of the gather copies."""
_LEAST_TILES = 2
"""Shortest part, in tiles, that a row is split into for the sake of parallelism."""


def part_limit(rows: int, shape: Shape, config: SuffixConfig) -> int:
    """Most parts that `snapshot` makes of `rows` rows."""
    return rows + _wanted_parts(rows, shape, config)


def _wanted_parts(rows: int, shape: Shape, config: SuffixConfig) -> int:
    return max(rows, -(-config.programs // shape.kv_heads))


@triton.jit(do_not_specialize=["rows", "wanted_parts"])
def _snapshot_kernel(
    page_table: tl.tensor,
    table_rows: tl.tensor,
    seq_lens: tl.tensor,
    covered: tl.tensor,
    layout: tl.tensor,
    gap_ptr: tl.tensor,
    gaps: tl.tensor,
    slots: tl.tensor,
    parts: tl.tensor,
    part_ptr: tl.tensor,
    table_stride: tl.tensor,
    rows: tl.tensor,
    wanted_parts: tl.tensor,
    least_tokens: tl.tensor,
    BLOCK_N: tl.constexpr,
    ROWS: tl.constexpr,
    GATHER: tl.constexpr,
    FIELDS: tl.constexpr,
) -> None:
    """Program i copies the slots of row i and lists its parts."""
    i = tl.program_id(0)
    at = tl.arange(0, ROWS)
    real = at < rows
    length = tl.load(seq_lens + at, mask=real, other=0).to(tl.int32)
    length = tl.maximum(length - tl.load(covered + at, mask=real, other=0), 0)
    tokens = tl.sum(length, 0)
    aim = tl.maximum((tokens + wanted_parts - 1) // wanted_parts, least_tokens)
    # A quarter over the aim does not make a part of its own.
    pieces = tl.maximum((4 * length + 3 * aim - 1) // (4 * aim), 1)
    tiles = tl.maximum(((length + pieces - 1) // pieces + BLOCK_N - 1) // BLOCK_N, 1)
    chunk = tiles * BLOCK_N
    pieces = (length + chunk - 1) // chunk
    mine = at == i
    before = at < i
    slots_at = tl.sum(tl.where(before, length, 0), 0)
    parts_at = tl.sum(tl.where(before, pieces, 0), 0)
    my_length = tl.sum(tl.where(mine, length, 0), 0)
    my_pieces = tl.sum(tl.where(mine, pieces, 0), 0)
    my_chunk = tl.sum(tl.where(mine, chunk, 0), 0)

    tl.store(part_ptr + i, parts_at)
    if i == rows - 1:
        tl.store(part_ptr + rows, parts_at + my_pieces)
    for piece in range(my_pieces):
        field = parts + (parts_at + piece) * FIELDS
        tl.store(field, i)
        tl.store(field + 1, slots_at + piece * my_chunk)
        tl.store(field + 2, tl.minimum(my_length - piece * my_chunk, my_chunk))

    end = tl.load(seq_lens + i).to(tl.int32)
    table = page_table + tl.load(table_rows + i).to(tl.int64) * table_stride
    mine_at = tl.load(layout + i)
    to = slots + slots_at
    step = tl.arange(0, GATHER)
    for gap in range(tl.load(gap_ptr + mine_at), tl.load(gap_ptr + mine_at + 1)):
        start = tl.load(gaps + 2 * gap)
        stop = tl.minimum(tl.load(gaps + 2 * gap + 1), end)
        for position in range(start, stop, GATHER):
            token = position + step
            inside = token < stop
            slot = tl.load(table + token, mask=inside, other=0)
            tl.store(to + token - start, slot.to(tl.int32), mask=inside)
        to += tl.maximum(stop - start, 0)


def snapshot(
    page_table: Tensor,
    table_rows: Tensor,
    seq_lens: Tensor,
    covered: Tensor,
    layout: Tensor,
    gap_ptr: Tensor,
    gaps: Tensor,
    slots: Tensor,
    parts: Tensor,
    part_ptr: Tensor,
    rows: int,
    shape: Shape,
    config: SuffixConfig,
) -> None:
    """Plan the suffix pass of a step on the device; writes slots, parts and part_ptr.

    page_table  [requests, context] int32 or int64 slots, last dimension contiguous
    table_rows  [rows] int32 or int64, the page-table row of each batch row
    seq_lens    [rows] int32 or int64 tokens
    covered, layout, gap_ptr, gaps
                int32, as `worklist` lays them out
    slots       [tokens] int32; must hold every token of the step that no segment covers
    parts       [part_limit(rows), 4] int32; part_ptr [rows + 1] int32
    """
    if not rows:
        return
    _snapshot_kernel[(rows,)](
        page_table,
        table_rows,
        seq_lens,
        covered,
        layout,
        gap_ptr,
        gaps,
        slots,
        parts,
        part_ptr,
        page_table.stride(0),
        rows,
        _wanted_parts(rows, shape, config),
        _LEAST_TILES * config.block_n,
        BLOCK_N=config.block_n,
        ROWS=triton.next_power_of_2(rows),
        GATHER=_GATHER,
        FIELDS=PART_FIELDS,
    )


@triton.jit(do_not_specialize=["rows"])
def _suffix_kernel(
    q: tl.tensor,
    k: tl.tensor,
    v: tl.tensor,
    part_out: tl.tensor,
    part_lse: tl.tensor,
    slots: tl.tensor,
    parts: tl.tensor,
    part_ptr: tl.tensor,
    rows: tl.tensor,
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
    BLOCK_G: tl.constexpr,
    BLOCK_N: tl.constexpr,
    FIELDS: tl.constexpr,
    PRECISION: tl.constexpr,
) -> None:
    """One (part, KV head) after another; the heads of a part stand side by side in the grid."""
    work = tl.load(part_ptr + rows) * H
    at_d = tl.arange(0, D)
    at_v = tl.arange(0, D_V)
    at_n = tl.arange(0, BLOCK_N)
    at_g = tl.arange(0, BLOCK_G)
    live = at_g < G
    for one in range(tl.program_id(0), work, tl.num_programs(0)):
        part = one // H
        head = one % H
        row = tl.load(parts + part * FIELDS).to(tl.int64)
        slots_at = slots + tl.load(parts + part * FIELDS + 1)
        tokens = tl.load(parts + part * FIELDS + 2)
        q_at = head * G + at_g
        q_ptr = q + row * q_row + (q_at * q_head)[:, None] + at_d[None, :]
        queries = tl.load(q_ptr, mask=live[:, None], other=0.0)
        k_of_head = k + head.to(tl.int64) * k_head
        v_of_head = v + head.to(tl.int64) * v_head

        peak = tl.full([BLOCK_G], float("-inf"), tl.float32)
        total = tl.zeros([BLOCK_G], tl.float32)
        acc = tl.zeros([BLOCK_G, D_V], tl.float32)
        for start in range(0, tokens, BLOCK_N):
            inside = start + at_n < tokens
            slot = tl.load(slots_at + start + at_n, mask=inside, other=0).to(tl.int64)
            keys = tl.load(
                k_of_head + slot[:, None] * k_slot + at_d[None, :], mask=inside[:, None], other=0.0
            )
            values = tl.load(
                v_of_head + slot[:, None] * v_slot + at_v[None, :], mask=inside[:, None], other=0.0
            )
            s = tl.dot(queries, keys.T, input_precision=PRECISION)
            s = tl.where(inside[None, :], s, float("-inf"))
            acc, total, peak = fold_scores(s, values, acc, total, peak, scale_log2, PRECISION)

        to = part.to(tl.int64) * (H * G) + q_at
        out_ptr = part_out + to[:, None] * D_V + at_v[None, :]
        tl.store(out_ptr, acc / total[:, None], mask=live[:, None])
        tl.store(part_lse + to, (peak + tl.math.log2(total)) * LN2, mask=live)


def paged_suffix(
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
    """Attend the parts that `snapshot` listed; part i is written to part_out[i], part_lse[i].

    Arguments as in `dense_prefix` and `snapshot`. A row without tokens has no part.
    early: a ring may begin while the launch before, in the same stream, still ends; that launch
    must write other parts alone, and needs a device of capability 9.0 or more.
    """
    if not rows:
        return
    if config.form == "ring" and ringable(q, k_cache, v_cache):
        # Its module needs Triton's Gluon, which not every build of Triton has.
        from granikv.attention.kernels.paged_suffix_hopper import paged_suffix_hopper

        where = (slots, parts, part_ptr, part_out, part_lse)
        paged_suffix_hopper(q, k_cache, v_cache, *where, rows, scale, shape, config, early)
        return
    _suffix_kernel[(max(rows * shape.kv_heads, config.programs),)](
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
        D_V=shape.d_v,
        BLOCK_G=max(16, triton.next_power_of_2(shape.group)),
        BLOCK_N=config.block_n,
        FIELDS=PART_FIELDS,
        PRECISION="ieee",
        num_warps=config.num_warps,
        num_stages=config.num_stages,
    )


def ringable(q: Tensor, k_cache: Tensor, v_cache: Tensor) -> bool:
    """Whether rows of equal widths start at multiples of 32 bytes, as the copies of a ring need."""
    width = q.shape[2]
    return (
        q.element_size() == 2
        and width == v_cache.shape[2]
        and width in (64, 128)
        and q.shape[1] <= 16 * k_cache.shape[1]
        and all(s % 16 == 0 for t in (q, k_cache, v_cache) for s in t.stride()[:2])
        and all(t.data_ptr() % 16 == 0 for t in (q, k_cache, v_cache))
    )
