"""The work list of a step: a DecodePlan as the int32 arrays that the kernels walk.

The prefix work of a step is a set of *tiles*: `block_m` folded rows of one segment and KV head,
against the whole segment. Laid end to end, in blocks of `block_n` tokens, the tiles make one line
that is cut into equal shares, one a program; where a cut falls inside a tile, the tile falls into
parts that the merge joins. So any composition of segments, equal or not, nested or not, spreads
evenly over the device. A cut that would leave a sliver moves to the tile's edge.

Host only, numpy only. The arrays lie in one buffer of fixed size, so that captured kernels find
them at fixed addresses.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from granikv.plan import DecodePlan, PagedRange, Segment

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
    cut = _cut(reads, tiling)
    counts = Counts(cut.begin.size, int((reads.rows * cut.pieces).sum()))
    _fits("prefix items", counts.items, capacity.items)
    _fits("prefix parts", counts.parts, capacity.parts)
    ranges, layouts = _layouts(plan.paged)
    _fits("paged ranges", sum(map(len, ranges)), capacity.gaps)

    _write_ranges(plan.rows, ranges, layouts, arrays)
    _write_items(reads, tiling, cut, arrays)
    _write_parts(reads, plan.rows, tiling, cut, arrays)
    return counts


def _fits(what: str, needed: int, room: int) -> None:
    if needed > room:
        raise WorkListOverflow(
            f"the step needs {needed} {what}, and the buffers hold {room}; decode it paged, or "
            f"make them larger"
        )


class _Reads(NamedTuple):
    """The segments that read anything, as arrays; `readers` holds theirs one after another."""

    base: Int64
    length: Int64
    rows: Int64
    readers: Int64


def _reads(segments: Sequence[Segment]) -> _Reads:
    kept = [s for s in segments if s.length and s.rows]
    for segment in kept:
        if segment.base is None:
            raise ValueError(
                f"the dense kernels read contiguous slabs only, but the segment at position "
                f"{segment.p0} lies on ordinary pages (base is None)"
            )
    return _Reads(
        _array([s.base for s in kept]),
        _array([s.length for s in kept]),
        _array([len(s.rows) for s in kept]),
        _array([row for s in kept for row in s.rows]),
    )


def _array(values: list[Any]) -> Int64:
    return np.array(values, dtype=np.int64)


class _Cut(NamedTuple):
    """The tiles and where they are cut.

    Per segment: tiles (of folded rows, a KV head), pieces (most parts of any of its tiles), its
    first tile. Per tile, ordered by segment, KV head, folded rows: segment, first block on the
    line. Per item: tile, begin and end block on the line.
    program_ptr [programs + 1]: the items of each program.
    """

    tiles: Int64
    pieces: Int64
    first_tile: Int64
    segment: Int64
    tile_begin: Int64
    tile: Int64
    begin: Int64
    end: Int64
    program_ptr: Int64


def _cut(reads: _Reads, tiling: Tiling) -> _Cut:
    tiles = -(-reads.rows * tiling.group // tiling.block_m)
    of_segment = tiles * tiling.kv_heads
    first_tile = _starts(of_segment)
    segment = np.repeat(np.arange(tiles.size), of_segment)
    of_tile = (-(-reads.length // tiling.block_n))[segment]
    ends = np.cumsum(of_tile)
    tile_begin = ends - of_tile
    cuts = _cuts(of_tile, tile_begin, tiling.programs)
    begin = np.concatenate((tile_begin, cuts))
    begin.sort(kind="stable")
    distinct = np.ones(begin.size, dtype=bool)
    distinct[1:] = begin[1:] != begin[:-1]
    if ends.size:
        distinct &= begin < ends[-1]
    begin = begin[distinct]
    end = np.concatenate((begin[1:], ends[-1:]))
    tile = np.searchsorted(tile_begin, begin, "right") - 1
    of_tile = np.bincount(tile, minlength=segment.size)
    pieces = np.maximum.reduceat(of_tile, first_tile) if tiles.size else first_tile
    program_ptr = np.full(tiling.programs + 1, begin.size)
    program_ptr[0] = 0
    program_ptr[1 : 1 + cuts.size] = np.searchsorted(begin, cuts)
    return _Cut(tiles, pieces, first_tile, segment, tile_begin, tile, begin, end, program_ptr)


def _cuts(of_tile: Int64, tile_begin: Int64, programs: int) -> Int64:
    """Where the line is cut, in blocks: one cut fewer than programs at most, not descending."""
    weights = of_tile + _ITEM_BLOCKS
    ends = np.cumsum(weights)
    if not ends.size:
        return np.zeros(0, dtype=np.int64)
    total = int(ends[-1])
    shares = min(programs, max(1, total // (_LEAST_BLOCKS + _ITEM_BLOCKS)))
    wanted = np.arange(1, shares) * total // shares
    tile = np.searchsorted(ends, wanted, "right")
    within = np.maximum(wanted - (ends - weights)[tile] - _ITEM_BLOCKS, 0)
    blocks = of_tile[tile]
    within = np.where(within < _LEAST_BLOCKS, 0, within)
    within = np.where(blocks - within < _LEAST_BLOCKS, np.where(within, blocks, 0), within)
    cuts: Int64 = tile_begin[tile] + within
    return cuts


def _write_items(reads: _Reads, tiling: Tiling, cut: _Cut, arrays: Arrays[Int32]) -> None:
    arrays.program_ptr[: tiling.programs + 1] = cut.program_ptr
    arrays.rows[: reads.readers.size] = reads.readers
    tile = cut.tile
    seg = cut.segment[tile]
    line = cut.tile_begin[tile]
    start = (cut.begin - line) * tiling.block_n
    in_segment = tile - cut.first_tile[seg]
    tiles, rows, pieces = cut.tiles[seg], reads.rows[seg], cut.pieces[seg]
    head = in_segment // tiles
    piece = np.arange(tile.size) - np.searchsorted(tile, tile)
    last = np.ones(tile.size, dtype=bool)
    last[:-1] = tile[1:] != tile[:-1]
    items = arrays.items[: tile.size]
    items[:, 0] = reads.base[seg] + start
    items[:, 1] = np.minimum((cut.end - line) * tiling.block_n, reads.length[seg]) - start
    items[:, 2] = head
    items[:, 3] = (in_segment - head * tiles) * tiling.block_m
    items[:, 4] = rows * tiling.group
    items[:, 5] = _starts(reads.rows)[seg]
    items[:, 6] = tiling.first_part + _starts(reads.rows * cut.pieces)[seg] + piece * rows
    items[:, 7] = np.where(last, pieces - piece - 1, 0)


def _starts(sizes: Int64) -> Int64:
    """Where each of some ranges begins that lie one after another."""
    starts: Int64 = np.cumsum(sizes) - sizes
    return starts


def _write_parts(
    reads: _Reads, rows: int, tiling: Tiling, cut: _Cut, arrays: Arrays[Int32]
) -> None:
    """For each row the parts it has, and how many tokens its segments hold.

    The parts of a segment lie side by side, pieces x rows of them, in the order of its readers.
    """
    sizes = reads.rows * cut.pieces
    seg = np.repeat(np.arange(sizes.size), sizes)
    reader = (np.arange(seg.size) - _starts(sizes)[seg]) % reads.rows[seg]
    row = reads.readers[_starts(reads.rows)[seg] + reader].astype(np.uint16)
    arrays.parts[: row.size] = tiling.first_part + np.argsort(row, kind="stable")
    arrays.part_ptr[0] = 0
    arrays.part_ptr[1 : rows + 1] = np.cumsum(np.bincount(row, minlength=rows))
    arrays.part_ptr[rows + 1 :] = row.size
    tokens = np.repeat(reads.length, reads.rows)
    arrays.covered[:rows] = np.bincount(reads.readers, weights=tokens, minlength=rows)
    arrays.covered[rows:] = 0


def _layouts(
    paged: Sequence[tuple[PagedRange, ...]],
) -> tuple[list[tuple[PagedRange, ...]], list[int]]:
    """The different tuples of ranges, and which of them each row has."""
    known: dict[int, int] = {}
    different: list[tuple[PagedRange, ...]] = []
    layouts = []
    for ranges in paged:
        at = known.get(id(ranges))
        if at is None:
            at = known[id(ranges)] = len(different)
            different.append(ranges)
        layouts.append(at)
    return different, layouts


def _write_ranges(
    rows: int, different: list[tuple[PagedRange, ...]], layouts: list[int], arrays: Arrays[Int32]
) -> None:
    # Rows beyond the batch share one layout more, a whole sequence.
    listed = [*different, (PagedRange(0, None),)]
    arrays.layout[:rows] = layouts
    arrays.layout[rows:] = len(different)
    flat = [
        (start, OPEN_END if stop is None else stop) for ranges in listed for start, stop in ranges
    ]
    arrays.gap_ptr[0] = 0
    arrays.gap_ptr[1 : len(listed) + 1] = np.cumsum([len(ranges) for ranges in listed])
    if flat:
        arrays.gaps[: len(flat)] = flat
