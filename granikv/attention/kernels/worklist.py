"""The work list of a step: a DecodePlan as the int32 arrays that the kernels walk.

The prefix work of a step is a set of *columns*: `block_m` folded rows of one segment and KV head,
against the whole segment, in blocks of `block_n` tokens. They are cut in one of two ways:

even  every column of a segment into the same number of pieces, the longest given out first, each
      to the program that has least. Columns that read the same tokens are cut alike, so they read
      them at the same time and memory is read once; and there are few parts to merge.
line  the columns laid end to end and cut into equal shares, one a program. A cut that would leave
      a sliver moves to the column's edge. No composition is uneven, but what one program reads
      now another may have read long before.

Even cuts are taken unless the line's busiest program would have clearly less to do.

Host only, numpy only. The arrays lie in one buffer of fixed size, so that captured kernels find
them at fixed addresses.
"""

from __future__ import annotations

import heapq
from functools import lru_cache
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from granikv.plan import NO_SLAB, DecodePlan, SegmentTable

Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]

Buffer = TypeVar("Buffer", bound=Any)

ITEM_FIELDS = 8

_ITEM_TOKENS = 192
"""What taking up an item costs beside its tokens, in tokens (queries, first tiles, results)."""
_LEAST_BLOCKS = 2
"""No cut leaves fewer blocks than this on either side."""
_EVEN_LOSS = 0.06
"""How much longer the busiest program may take for the sake of even cuts."""
_EVEN_PIECES = 8
"""Pieces a program up to which even cuts are tried: giving out more takes the host too long."""
_EVEN_SHARES = (1.0, 1.05, 1.1001)
"""Longest pieces to try, as multiples of an equal share."""
_CUTS = 64
"""Cuts that are kept: a batch moves between few of them while rows come and go."""


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
    gaps         [gaps + 1, 2] token positions start, stop; `granikv.plan.OPEN_END` for the
                 sequence's end
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
    reads = plan.table.kept()
    _require_slabs(reads)
    _fits("rows", plan.rows, capacity.rows)
    _fits("segment readers", reads.readers.size, capacity.segment_rows)
    tiles = (reads.rows * tiling.group + (tiling.block_m - 1)) // tiling.block_m
    blocks = (reads.length + (tiling.block_n - 1)) // tiling.block_n
    cut = _cut(tuple(tiles.tolist()), tuple(blocks.tolist()), tiling)
    counts = Counts(len(cut.items), int(reads.rows @ cut.pieces))
    _fits("prefix items", counts.items, capacity.items)
    _fits("prefix parts", counts.parts, capacity.parts)
    layouts = plan.layouts
    _fits("paged ranges", len(layouts.table.bounds), capacity.gaps)

    layouts.write(arrays.layout, arrays.gap_ptr, arrays.gaps)
    first = _starts(reads.rows)
    _write_items(reads, first, tiling, cut, arrays)
    _write_parts(reads, first, tiling, cut, arrays)
    return counts


def _fits(what: str, needed: int, room: int) -> None:
    if needed > room:
        raise WorkListOverflow(
            f"the step needs {needed} {what}, and the buffers hold {room}; decode it paged, or "
            f"make them larger"
        )


def _require_slabs(reads: SegmentTable) -> None:
    if reads.base.min(initial=0) == NO_SLAB:
        position = reads.p0[reads.base == NO_SLAB][0]
        raise ValueError(
            f"the dense kernels read contiguous slabs only, but the segment at position "
            f"{position} lies on ordinary pages (base is None)"
        )


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


class _Pieces(NamedTuple):
    """Pieces of columns, in the order of columns and tokens; begin and end in blocks."""

    column: Int64
    begin: Int64
    end: Int64
    program: Int64

    def longest(self, programs: int, item: int) -> int:
        """What the busiest program has to do, in blocks."""
        if not self.column.size:
            return 0
        work = self.end - self.begin + item
        return int(np.bincount(self.program, weights=work, minlength=programs).max())


@lru_cache(maxsize=_CUTS)
def _cut(tiles_of: tuple[int, ...], blocks_of: tuple[int, ...], tiling: Tiling) -> _Cut:
    """Cut the columns of segments with so many tiles a KV head and so many blocks."""
    tiles, blocks = (np.array(sizes, dtype=np.int64) for sizes in (tiles_of, blocks_of))
    columns = tiles * tiling.kv_heads
    pieces = _pieces(columns, blocks, tiling)
    first_column = _starts(columns)
    column = pieces.column
    of_columns = np.bincount(column, minlength=int(columns.sum()))
    number = np.arange(column.size) - _starts(of_columns)[column]
    most = np.maximum.reduceat(of_columns, first_column) if tiles.size else of_columns
    segment = np.repeat(np.arange(tiles.size), columns)[column]
    last = np.ones(column.size, dtype=bool)
    last[:-1] = column[1:] != column[:-1]

    head, within = np.divmod(column - first_column[segment], tiles[segment])
    items = np.zeros((column.size, ITEM_FIELDS), dtype=np.int64)
    items[:, 0] = pieces.begin * tiling.block_n
    items[:, 1] = pieces.end * tiling.block_n
    items[:, 2] = head
    items[:, 3] = within * tiling.block_m
    items[:, 7] = np.where(last, most[segment] - number - 1, 0)
    order = np.argsort(pieces.program, kind="stable")
    program_ptr = np.zeros(tiling.programs + 1, dtype=np.int64)
    np.cumsum(np.bincount(pieces.program, minlength=tiling.programs), out=program_ptr[1:])
    return _Cut(items[order], segment[order], number[order], most, program_ptr)


def _pieces(columns: Int64, blocks: Int64, tiling: Tiling) -> _Pieces:
    item = max(1, _ITEM_TOKENS // tiling.block_n)
    line = _line_pieces(np.repeat(blocks, columns), tiling.programs, item)
    bound = (1 + _EVEN_LOSS) * line.longest(tiling.programs, item)
    share = max(int(columns @ blocks) / tiling.programs, 1.0)
    most = np.maximum(blocks // _LEAST_BLOCKS, 1)
    best, tried = line, set()
    for longest in _EVEN_SHARES:
        number = np.clip(np.ceil(blocks / (longest * share)), 1, most).astype(np.int64)
        # No way of giving the pieces out takes less than the longest of them, or the mean.
        least = max(
            int((-(-blocks // number) + item).max(initial=0)),
            int(columns @ (blocks + number * item)) // tiling.programs,
        )
        pieces = int(columns @ number)
        if tuple(number) in tried or least > bound or pieces > _EVEN_PIECES * tiling.programs:
            continue
        tried.add(tuple(number))
        even = _even_pieces(columns, blocks, number, tiling.programs, item)
        taken = even.longest(tiling.programs, item)
        if taken < bound or (taken == bound and best is line):
            best, bound = even, taken
    return best


def _even_pieces(columns: Int64, blocks: Int64, number: Int64, programs: int, item: int) -> _Pieces:
    """Every column of segment s in number[s] pieces, the longest given out first."""
    of_column = np.repeat(np.arange(columns.size), columns)
    cut = number[of_column]
    column = np.repeat(np.arange(of_column.size), cut)
    at = np.arange(column.size) - _starts(cut)[column]
    height, cut = blocks[of_column[column]], cut[column]
    begin, end = at * height // cut, (at + 1) * height // cut
    work = end - begin + item
    order = np.argsort(-work, kind="stable")
    program = np.zeros(column.size, dtype=np.int64)
    program[order[:programs]] = np.arange(min(order.size, programs))
    if order.size > programs:
        loads = [(int(work[piece]), i) for i, piece in enumerate(order[:programs])]
        heapq.heapify(loads)
        for piece in order[programs:].tolist():
            load, least = loads[0]
            heapq.heapreplace(loads, (load + int(work[piece]), least))
            program[piece] = least
    return _Pieces(column, begin, end, program)


def _line_pieces(height: Int64, programs: int, item: int) -> _Pieces:
    """The columns end to end, of so many blocks each, in equal shares."""
    line = _starts(height)
    cuts = _line_cuts(height, line, programs, item)
    begin = np.concatenate((line, cuts))
    begin.sort(kind="stable")
    total = height.sum(keepdims=True)
    distinct = np.ones(begin.size, dtype=bool)
    distinct[1:] = begin[1:] != begin[:-1]
    distinct &= begin < total
    begin = begin[distinct]
    end = np.concatenate((begin[1:], total[: begin.size]))
    column = np.searchsorted(line, begin, "right") - 1
    program = np.searchsorted(cuts, begin, "right")
    return _Pieces(column, begin - line[column], end - line[column], program)


def _line_cuts(height: Int64, line: Int64, programs: int, item: int) -> Int64:
    """Where the line is cut, in blocks: one cut fewer than programs at most, not descending."""
    weights = height + item
    ends = np.cumsum(weights)
    if not ends.size:
        return np.zeros(0, dtype=np.int64)
    total = int(ends[-1])
    shares = min(programs, max(1, total // (_LEAST_BLOCKS + item)))
    wanted = np.arange(1, shares) * total // shares
    column = np.searchsorted(ends, wanted, "right")
    within = np.maximum(wanted - (ends - weights)[column] - item, 0)
    blocks = height[column]
    within = np.where(within < _LEAST_BLOCKS, 0, within)
    within = np.where(blocks - within < _LEAST_BLOCKS, np.where(within, blocks, 0), within)
    cuts: Int64 = line[column] + within
    return cuts


def _write_items(
    reads: SegmentTable, first: Int64, tiling: Tiling, cut: _Cut, arrays: Arrays[Int32]
) -> None:
    """The items with slots, lengths, readers and parts.

    first  [segments] where the readers of each begin
    """
    arrays.program_ptr[: cut.program_ptr.size] = cut.program_ptr
    arrays.rows[: reads.readers.size] = reads.readers
    first_part = tiling.first_part + _starts(reads.rows * cut.pieces)
    of_segment = np.array((reads.base, reads.length, reads.rows, first, first_part))
    base, length, rows, start, part = of_segment.take(cut.segment, axis=1)
    items = arrays.items[: len(cut.items)]
    items[:] = cut.items
    items[:, 0] = cut.items[:, 0] + base
    items[:, 1] = np.minimum(cut.items[:, 1], length) - cut.items[:, 0]
    items[:, 4] = rows * tiling.group
    items[:, 5] = start
    items[:, 6] = cut.number * rows + part


def _starts(sizes: Int64) -> Int64:
    """Where each of some ranges begins that lie one after another."""
    starts: Int64 = sizes.cumsum() - sizes
    return starts


def _write_parts(
    reads: SegmentTable, first: Int64, tiling: Tiling, cut: _Cut, arrays: Arrays[Int32]
) -> None:
    """For each row the parts it has, and how many tokens its segments hold.

    The parts of a segment lie side by side, pieces x rows of them, in the order of its readers.

    first  [segments] where the readers of each begin
    """
    of_piece = np.arange(cut.pieces.size).repeat(cut.pieces)
    size = reads.rows[of_piece]
    reader = (first[of_piece] - _starts(size)).repeat(size)
    reader += np.arange(reader.size)
    row = reads.readers[reader]
    order = row.astype(np.uint16).argsort(kind="stable")
    arrays.parts[: row.size] = tiling.first_part + order
    arrays.part_ptr[0] = 0
    arrays.part_ptr[1:] = np.bincount(row, minlength=arrays.part_ptr.size - 1).cumsum()
    tokens = reads.length.repeat(reads.rows)
    arrays.covered[:] = np.bincount(reads.readers, tokens, minlength=arrays.covered.size)
