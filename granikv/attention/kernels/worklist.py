"""The work list of a step: a DecodePlan as the int32 arrays that the kernels walk.

The prefix work of a step is a set of *tiles*: `block_m` folded rows of one segment and KV head,
against the whole segment. A few tiles of one segment side by side make a *column*, which a gang of
as many programs walks in step, so that what they share is read from memory once. Laid end to end,
in blocks of `block_n` tokens, the columns make one line that is cut into equal shares, one a gang;
where a cut falls inside a column, its tiles fall into parts that the merge joins. So any
composition of segments, equal or not, nested or not, spreads evenly over the device. A cut that
would leave a sliver moves to the column's edge.

Host only, numpy only. The arrays lie in one buffer of fixed size, so that captured kernels find
them at fixed addresses.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from granikv.plan import DecodePlan, PagedRange, RowLayouts, Segment

Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]

Buffer = TypeVar("Buffer", bound=Any)

ITEM_FIELDS = 8
OPEN_END = 2**31 - 1
"""The stop of a paged range that reaches to the end of the sequence."""

_ITEM_BLOCKS = 1
"""What taking up an item costs beside its tokens, in blocks (queries, first tiles, results)."""
_LEAST_BLOCKS = 2
"""No cut leaves fewer blocks than this on either side."""
_GANGS: tuple[int, ...] = ()
"""Sizes of gangs to try, the largest first. None yet: a gang has not been run on a GPU."""
_CUTS = 64
"""Cuts that are kept: a batch moves between few of them while rows come and go."""
_GANG_WASTE = 1 / 32
"""A gang may leave this part of its programs' time unused, for want of tiles in the last column."""


class WorkListOverflow(ValueError):  # noqa: N818 - named for what happened, like StopIteration
    """The step has more segments or readers than the buffers were made for."""


class Tiling(NamedTuple):
    """What cuts the work.

    block_m   folded rows of a tile
    block_n   tokens of a block
    programs  the persistent grid
    first_part  index of the first prefix part in the part buffer
    """

    kv_heads: int
    group: int
    block_m: int
    block_n: int
    programs: int
    first_part: int


class Capacity(NamedTuple):
    """Sizes of the buffers.

    rows          batch rows
    segment_rows  (segment, row) pairs
    items         items of the prefix pass
    parts         prefix parts, each of one row: the part buffer beyond `first_part`
    gaps          paged ranges of the step's different layouts
    """

    rows: int
    segment_rows: int
    items: int
    parts: int
    gaps: int

    @classmethod
    def for_rows(cls, rows: int, tiling: Tiling, depth: int = 4) -> Capacity:
        """Room for every step of up to `rows` rows that read up to `depth` segments each."""
        pairs = rows * depth
        # At most one tile a reader and KV head, and one cut a program.
        items = tiling.kv_heads * pairs + tiling.programs
        # A tile as long as w shares has at most w + 2 parts; summed over the tiles of one KV head,
        # w is at most programs / kv_heads, and a tile has block_m / group readers.
        cut = -(-tiling.block_m * tiling.programs // (tiling.group * tiling.kv_heads))
        return cls(rows, pairs, items, 2 * pairs + cut, rows * (depth + 1))


class Arrays(NamedTuple, Generic[Buffer]):
    """Views of one int32 buffer; all offsets and lengths in their own unit.

    program_ptr  [programs + 1] items of each program of the prefix pass
    part_ptr     [rows + 1] entries of each row in `parts`
    layout       [rows] which layout of `gap_ptr` the row has
    covered      [rows] tokens of the row that segments hold
    gap_ptr      [rows + 2] ranges of each layout in `gaps`
    gaps         [gaps + 1, 2] token positions start, stop; OPEN_END for the sequence's end
    rows         [segment_rows] readers of each segment, one after another
    parts        [parts] indices of the prefix parts of each row
    items        [items, 8]: first slot; tokens; KV head; first folded row; folded rows of the
                 segment; where its readers start in `rows`; index of the part of its first
                 reader; how many parts of the segment this tile lacks (after the last one)
    """

    program_ptr: Buffer
    part_ptr: Buffer
    layout: Buffer
    covered: Buffer
    gap_ptr: Buffer
    gaps: Buffer
    rows: Buffer
    parts: Buffer
    items: Buffer


class Counts(NamedTuple):
    """How much of the arrays one step fills."""

    items: int
    parts: int


def buffer_length(capacity: Capacity, tiling: Tiling) -> int:
    """int32 elements of the buffer that `view` splits."""
    return sum(size for size, _ in _sections(capacity, tiling))


def split(buffer: Buffer, capacity: Capacity, tiling: Tiling) -> Arrays[Buffer]:
    """The arrays inside a buffer of `buffer_length` elements: views, in numpy or in torch."""
    arrays, at = [], 0
    for size, width in _sections(capacity, tiling):
        section = buffer[at : at + size]
        arrays.append(section.reshape(-1, width) if width > 1 else section)
        at += size
    return Arrays(*arrays)


def used_length(counts: Counts, capacity: Capacity, tiling: Tiling) -> int:
    """int32 elements from the buffer's start that a filled step reaches; the items come last."""
    spare = capacity.items - counts.items
    return buffer_length(capacity, tiling) - ITEM_FIELDS * spare


def _sections(capacity: Capacity, tiling: Tiling) -> list[tuple[int, int]]:
    """Elements and width of each array, in the order of `Arrays`; starts are 16-byte aligned."""
    sizes = (
        (tiling.programs + 1, 1),
        (capacity.rows + 1, 1),
        (capacity.rows, 1),
        (capacity.rows, 1),
        (capacity.rows + 2, 1),
        (2 * (capacity.gaps + 1), 2),
        (capacity.segment_rows, 1),
        (capacity.parts, 1),
        (ITEM_FIELDS * capacity.items, ITEM_FIELDS),
    )
    return [(-(-size // 4) * 4, width) for size, width in sizes]


def fill(plan: DecodePlan, tiling: Tiling, capacity: Capacity, arrays: Arrays[Int32]) -> Counts:
    """Write the plan into the arrays.

    Segments of no tokens or no readers are left out. Rows from plan.rows on get no part and one
    open range from position 0, as a graph's filler rows need it.

    Raises:
        ValueError: a segment lies on ordinary pages (base None).
        WorkListOverflow: the plan does not fit; nothing that a kernel reads was changed.
    """
    reads = _reads(plan.segments)
    _fits("rows", plan.rows, capacity.rows)
    _fits("segment readers", reads.readers.size, capacity.segment_rows)
    tiles = tuple([-(-count * tiling.group // tiling.block_m) for count in reads.rows])
    blocks = tuple([-(-length // tiling.block_n) for length in reads.length])
    cut = _cut(tiles, blocks, tiling)
    rows = np.array(reads.rows, dtype=np.int64)
    counts = Counts(len(cut.items), int(rows @ cut.pieces))
    _fits("prefix items", counts.items, capacity.items)
    _fits("prefix parts", counts.parts, capacity.parts)
    layouts = plan.layouts
    _fits("paged ranges", sum(map(len, layouts.ranges)), capacity.gaps)

    _write_ranges(plan.rows, layouts, arrays)
    _write_items(reads, rows, tiling, cut, arrays)
    _write_parts(reads, rows, plan.rows, tiling, cut, arrays)
    return counts


def _fits(what: str, needed: int, room: int) -> None:
    if needed > room:
        raise WorkListOverflow(
            f"the step needs {needed} {what}, and the buffers hold {room}; decode it paged, or "
            f"make them larger"
        )


class _Reads(NamedTuple):
    """The segments that read anything: first slot, tokens, rows; `readers` of one after another."""

    base: list[int]
    length: list[int]
    rows: list[int]
    readers: Int64


def _reads(segments: Sequence[Segment]) -> _Reads:
    kept = [s for s in segments if s.length and s.rows]
    bases = [s.base for s in kept if s.base is not None]
    if len(bases) < len(kept):
        paged = next(s for s in kept if s.base is None)
        raise ValueError(
            f"the dense kernels read contiguous slabs only, but the segment at position "
            f"{paged.p0} lies on ordinary pages (base is None)"
        )
    rows = [len(s.rows) for s in kept]
    readers = np.fromiter(chain.from_iterable([s.rows for s in kept]), np.int64, sum(rows))
    return _Reads(bases, [s.length for s in kept], rows, readers)


class _Cut(NamedTuple):
    """The columns, cut, and who takes what; nothing here depends on slots or on which rows read.

    Never written after it is made: it is shared by all steps that are cut alike.

    items        [items, 8], program after program, as `Arrays.items` where that is known: tokens
                 from the segment's first, then blocks end in tokens, KV head, first folded row;
                 zeros; how many parts the tile lacks
    segment      [items] segment of each
    number       [items] which piece of its column it is
    pieces       [segments] most parts of any column
    program_ptr  [programs + 1]
    """

    items: Int64
    segment: Int64
    number: Int64
    pieces: Int64
    program_ptr: Int64


@lru_cache(maxsize=_CUTS)
def _cut(tiles_of: tuple[int, ...], blocks_of: tuple[int, ...], tiling: Tiling) -> _Cut:
    """Cut the columns of segments with so many tiles a KV head and so many blocks."""
    tiles, blocks = (np.array(sizes, dtype=np.int64) for sizes in (tiles_of, blocks_of))
    all_tiles = tiles * tiling.kv_heads
    gang = _gang(all_tiles, blocks, tiling.programs)
    columns = -(-all_tiles // gang)
    first_column = _starts(columns)
    of_column = np.repeat(np.arange(tiles.size), columns)
    height = blocks[of_column]
    line = _starts(height)
    cuts = _cuts(height, line, tiling.programs // gang)
    begin = np.concatenate((line, cuts))
    begin.sort(kind="stable")
    total = height.sum(keepdims=True)
    distinct = np.ones(begin.size, dtype=bool)
    distinct[1:] = begin[1:] != begin[:-1]
    distinct &= begin < total
    begin = begin[distinct]
    end = np.concatenate((begin[1:], total[: begin.size]))
    column = np.searchsorted(line, begin, "right") - 1
    of_columns = np.bincount(column, minlength=of_column.size)
    number = np.arange(column.size) - _starts(of_columns)[column]
    pieces = np.maximum.reduceat(of_columns, first_column) if tiles.size else of_columns
    segment = of_column[column]
    last = np.ones(segment.size, dtype=bool)
    last[:-1] = column[1:] != column[:-1]

    lane = np.arange(gang)
    tile = ((column - first_column[segment]) * gang)[:, None] + lane
    there = (tile < all_tiles[segment][:, None]).ravel()
    head, within = np.divmod(tile, tiles[segment][:, None])
    of_piece = np.zeros((segment.size, ITEM_FIELDS), dtype=np.int64)
    of_piece[:, 0] = (begin - line[column]) * tiling.block_n
    of_piece[:, 1] = (end - line[column]) * tiling.block_n
    of_piece[:, 7] = np.where(last, pieces[segment] - number - 1, 0)
    items = np.repeat(of_piece, gang, axis=0)
    items[:, 2] = head.ravel()
    items[:, 3] = within.ravel() * tiling.block_m
    program = (np.searchsorted(cuts, begin, "right")[:, None] * gang + lane).ravel()[there]
    order = np.flatnonzero(there)[np.argsort(program.astype(np.uint16), kind="stable")]
    program_ptr = np.zeros(tiling.programs + 1, dtype=np.int64)
    np.cumsum(np.bincount(program, minlength=tiling.programs), out=program_ptr[1:])
    of_item = order // gang
    return _Cut(items[order], segment[of_item], number[of_item], pieces, program_ptr)


def _gang(all_tiles: Int64, blocks: Int64, programs: int) -> int:
    """Most tiles a column for which hardly any program goes without one."""
    work = int((all_tiles * blocks).sum())
    for gang in _GANGS:
        taken = int((-(-all_tiles // gang) * gang * blocks).sum())
        if programs % gang == 0 and taken <= (1 + _GANG_WASTE) * work:
            return gang
    return 1


def _cuts(height: Int64, line: Int64, gangs: int) -> Int64:
    """Where the line is cut, in blocks: one cut fewer than gangs at most, not descending."""
    weights = height + _ITEM_BLOCKS
    ends = np.cumsum(weights)
    if not ends.size:
        return np.zeros(0, dtype=np.int64)
    total = int(ends[-1])
    shares = min(gangs, max(1, total // (_LEAST_BLOCKS + _ITEM_BLOCKS)))
    wanted = np.arange(1, shares) * total // shares
    column = np.searchsorted(ends, wanted, "right")
    within = np.maximum(wanted - (ends - weights)[column] - _ITEM_BLOCKS, 0)
    blocks = height[column]
    within = np.where(within < _LEAST_BLOCKS, 0, within)
    within = np.where(blocks - within < _LEAST_BLOCKS, np.where(within, blocks, 0), within)
    cuts: Int64 = line[column] + within
    return cuts


def _write_items(
    reads: _Reads, rows: Int64, tiling: Tiling, cut: _Cut, arrays: Arrays[Int32]
) -> None:
    """The items with slots, lengths, readers and parts."""
    arrays.program_ptr[: cut.program_ptr.size] = cut.program_ptr
    arrays.rows[: reads.readers.size] = reads.readers
    items, seg = cut.items.copy(), cut.segment
    of_segment = np.array((reads.base, reads.length), dtype=np.int64)
    rows_of = rows[seg]
    items[:, 1] = np.minimum(items[:, 1], of_segment[1][seg]) - items[:, 0]
    items[:, 0] += of_segment[0][seg]
    items[:, 4] = rows_of * tiling.group
    items[:, 5] = _starts(rows)[seg]
    items[:, 6] = cut.number * rows_of + (tiling.first_part + _starts(rows * cut.pieces))[seg]
    arrays.items[: len(items)] = items


def _starts(sizes: Int64) -> Int64:
    """Where each of some ranges begins that lie one after another."""
    starts: Int64 = np.cumsum(sizes) - sizes
    return starts


def _write_parts(
    reads: _Reads, rows: Int64, batch: int, tiling: Tiling, cut: _Cut, arrays: Arrays[Int32]
) -> None:
    """For each row the parts it has, and how many tokens its segments hold.

    The parts of a segment lie side by side, pieces x rows of them, in the order of its readers.
    """
    sizes = rows * cut.pieces
    seg = np.repeat(np.arange(sizes.size), sizes)
    reader = (np.arange(seg.size) - _starts(sizes)[seg]) % rows[seg]
    row = reads.readers[_starts(rows)[seg] + reader].astype(np.uint16)
    arrays.parts[: row.size] = tiling.first_part + np.argsort(row, kind="stable")
    arrays.part_ptr[0] = 0
    arrays.part_ptr[1 : batch + 1] = np.cumsum(np.bincount(row, minlength=batch))
    arrays.part_ptr[batch + 1 :] = row.size
    tokens = np.repeat(np.array(reads.length, dtype=np.int64), rows)
    arrays.covered[:batch] = np.bincount(reads.readers, weights=tokens, minlength=batch)
    arrays.covered[batch:] = 0


def _write_ranges(rows: int, layouts: RowLayouts, arrays: Arrays[Int32]) -> None:
    # Rows beyond the batch share one layout more, a whole sequence.
    listed = [*layouts.ranges, (PagedRange(0, None),)]
    arrays.layout[:rows] = layouts.of_row
    arrays.layout[rows:] = len(layouts.ranges)
    flat = [
        (start, OPEN_END if stop is None else stop) for ranges in listed for start, stop in ranges
    ]
    arrays.gap_ptr[0] = 0
    arrays.gap_ptr[1 : len(listed) + 1] = np.cumsum([len(ranges) for ranges in listed])
    if flat:
        arrays.gaps[: len(flat)] = flat
