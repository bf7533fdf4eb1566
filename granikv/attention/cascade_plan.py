"""What one decode step tells FlashInfer's cascade, as arrays on the host (§3.5, §4.3).

Level 0 has a *request* for each segment, whose queries are the segment's rows, gathered one behind
another; the suffix level has a request for each batch row. A captured graph has the same number of
requests in every step, so the rest of level 0 are empty requests: no query, no page.

Host only, numpy only. The arrays lie in one int32 buffer of fixed size, so that captured kernels
find them at fixed addresses.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from granikv.attention.kernels.worklist import WorkListOverflow
from granikv.plan import DecodePlan, PagedRange, Segment

Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]

Buffer = TypeVar("Buffer", bound=Any)


class Capacity(NamedTuple):
    """What the buffers of one batch size hold.

    rows          batch rows, exactly
    segment_rows  (segment, row) pairs: gathered queries
    segments      requests of level 0
    gaps          paged ranges of the step's different layouts
    pages         pages of all segments
    tokens        tokens that no segment covers
    """

    rows: int
    segment_rows: int
    segments: int
    gaps: int
    pages: int
    tokens: int

    @classmethod
    def for_rows(cls, rows: int, depth: int, segments: int, pages: int, tokens: int) -> Capacity:
        """For `rows` rows that read `depth` segments on average, up to `segments` in all."""
        # FlashInfer sizes a tile for the longest request that all others leave room for, so room
        # for more segments than there can well be makes its tiles small.
        requests = min(segments, rows + depth)
        return cls(rows, rows * depth, requests, rows * (depth + 1), pages, tokens)


class Arrays(NamedTuple, Generic[Buffer]):
    """Views of one int32 buffer.

    query_ptr    [segments + 1] gathered queries of each request of level 0
    page_ptr     [segments + 1] its pages
    last_page    [segments] tokens on its last page
    base         [segments] its first slot, or `granikv.plan.NO_SLAB`
    p0           [segments] token position of that slot
    reader       [segments] a batch row that reads it, in whose page table it lies
    gathered     [segment_rows] batch row of each gathered query
    suffix_ptr   [rows + 1] tokens of each row that no segment covers
    suffix_last  [rows] tokens on its last page: 1
    covered      [rows] tokens of the row that segments cover
    layout       [rows] which layout of `gap_ptr` the row has
    gap_ptr      [rows + 2] ranges of each layout in `gaps`
    gaps         [gaps + 1, 2] token positions start, stop; `granikv.plan.OPEN_END` for the
                 sequence's end
    own_ptr      [rows + 1] zeros: no part is a row's without being listed
    part_ptr     [rows + 1] entries of each row in `parts`
    parts        [rows + segment_rows] parts of each row: i is the suffix of row i, rows + j the
                 result of gathered query j
    """

    query_ptr: Buffer
    page_ptr: Buffer
    last_page: Buffer
    base: Buffer
    p0: Buffer
    reader: Buffer
    gathered: Buffer
    suffix_ptr: Buffer
    suffix_last: Buffer
    covered: Buffer
    layout: Buffer
    gap_ptr: Buffer
    gaps: Buffer
    own_ptr: Buffer
    part_ptr: Buffer
    parts: Buffer


def _sections(capacity: Capacity) -> list[tuple[int, int]]:
    """Elements and width of each array, in the order of `Arrays`."""
    rows, segments = capacity.rows, capacity.segments
    widths = {"gaps": 2}
    sizes = {
        "query_ptr": segments + 1,
        "page_ptr": segments + 1,
        "gathered": capacity.segment_rows,
        "suffix_ptr": rows + 1,
        "gap_ptr": rows + 2,
        "gaps": 2 * (capacity.gaps + 1),
        "own_ptr": rows + 1,
        "part_ptr": rows + 1,
        "parts": rows + capacity.segment_rows,
    }
    per_row = {"suffix_last", "covered", "layout"}
    return [
        (sizes.get(name, rows if name in per_row else segments), widths.get(name, 1))
        for name in Arrays._fields
    ]


def buffer_length(capacity: Capacity) -> int:
    """int32 elements of the buffer that `split` splits."""
    return sum(_aligned(size) for size, _ in _sections(capacity))


def split(buffer: Buffer, capacity: Capacity) -> Arrays[Buffer]:
    """The arrays inside a buffer of `buffer_length` elements: views, in numpy or in torch."""
    arrays, at = [], 0
    for size, width in _sections(capacity):
        section = buffer[at : at + size]
        arrays.append(section.reshape(-1, width) if width > 1 else section)
        at += _aligned(size)
    return Arrays(*arrays)


def _aligned(size: int) -> int:
    """Elements up to the next multiple of 16 bytes."""
    return -(-size // 4) * 4


def whole_pages(plan: DecodePlan, page_size: int) -> DecodePlan:
    """The plan with each segment cut to whole pages; the rest of it is read page by page.

    Returns the same object where nothing is cut.

    Raises:
        ValueError: a segment is a slab, or starts inside a page, and pages are longer than a token.
    """
    if page_size == 1:
        return plan
    for segment in plan.segments:
        if segment.base is not None:
            raise ValueError(
                f"slabs are read at page size 1, but the cascade has pages of {page_size} tokens"
            )
        if segment.p0 % page_size:
            raise ValueError(
                f"the segment at position {segment.p0} starts inside a page of {page_size} tokens"
            )
    cut = tuple(s._replace(length=s.length // page_size * page_size) for s in plan.segments)
    if cut == plan.segments:
        return plan
    return DecodePlan(plan.rows, cut, _uncovered(plan.rows, cut))


def within(plan: DecodePlan, capacity: Capacity) -> DecodePlan:
    """The plan with as few requests of level 0 as the capacity wants, if that can be had.

    A slab that one row reads gains nothing there, and eager admission makes one of many a prompt:
    where there are too many requests or gathered queries, those rows read theirs for themselves.
    """
    segments = plan.table.base.size
    if segments <= capacity.segments and plan.segment_rows <= capacity.segment_rows:
        return plan
    return plan.shared()


def _uncovered(rows: int, segments: Sequence[Segment]) -> tuple[tuple[PagedRange, ...], ...]:
    ends = [0] * rows
    ranges: list[list[PagedRange]] = [[] for _ in ends]
    for segment in sorted(segments, key=lambda s: s.p0):
        if not segment.length:
            continue
        for row in segment.rows:
            if segment.p0 > ends[row]:
                ranges[row].append(PagedRange(ends[row], segment.p0))
            ends[row] = segment.p0 + segment.length
    return tuple((*before, PagedRange(end, None)) for before, end in zip(ranges, ends, strict=True))


def fill_segments(
    plan: DecodePlan, capacity: Capacity, page_size: int, arrays: Arrays[Int32]
) -> None:
    """Write what depends on the plan alone: all but `suffix_ptr`, `part_ptr` and `parts`.

    The plan's segments are whole pages. Segments of no tokens or no readers are left out. Rows from
    plan.rows on read no segment and have one open range from position 0, as a graph's filler rows
    need it.

    Raises:
        WorkListOverflow: the plan does not fit; nothing was written.
    """
    reads = plan.table.kept()
    segments, gathered = reads.base.size, reads.readers.size
    pages = reads.length // page_size
    layouts = plan.layouts
    _fits("rows", plan.rows, capacity.rows)
    _fits("segments", segments, capacity.segments)
    _fits("segment readers", gathered, capacity.segment_rows)
    _fits("pages of segments", int(pages.sum()), capacity.pages)
    _fits("paged ranges", len(layouts.table.bounds), capacity.gaps)

    _write_ptr(arrays.query_ptr, reads.rows)
    _write_ptr(arrays.page_ptr, pages)
    arrays.last_page[:] = page_size
    arrays.base[:segments] = reads.base
    arrays.p0[:segments] = reads.p0
    arrays.reader[:segments] = reads.readers[arrays.query_ptr[:segments]]
    arrays.gathered[:gathered] = reads.readers
    arrays.gathered[gathered:] = 0
    arrays.suffix_last[:] = 1
    tokens = reads.length.repeat(reads.rows)
    arrays.covered[:] = np.bincount(reads.readers, tokens, minlength=capacity.rows)
    arrays.own_ptr[:] = 0
    layouts.write(arrays.layout, arrays.gap_ptr, arrays.gaps)


def fill_suffix(seq_lens: Int64, capacity: Capacity, arrays: Arrays[Int32]) -> None:
    """Write what also depends on the step: `suffix_ptr`, `part_ptr` and `parts`.

    seq_lens  [rows] tokens of each row, the graph's filler rows included

    Raises:
        WorkListOverflow: more tokens are uncovered than there is room for; nothing was written.
    """
    own = np.maximum(seq_lens - arrays.covered, 0)
    _fits("tokens outside segments", int(own.sum()), capacity.tokens)
    _write_ptr(arrays.suffix_ptr, own)
    # A row without a suffix does not list that part: it holds nothing.
    kept = np.flatnonzero(own)
    gathered = arrays.gathered[: arrays.query_ptr[-1]]
    rows = np.concatenate((kept, gathered)).astype(np.uint16)
    parts = np.concatenate((kept, capacity.rows + np.arange(gathered.size)))
    arrays.parts[: parts.size] = parts[np.argsort(rows, kind="stable")]
    _write_ptr(arrays.part_ptr, np.bincount(rows, minlength=capacity.rows))


def _fits(what: str, needed: int, room: int) -> None:
    if needed > room:
        raise WorkListOverflow(
            f"the step needs {needed} {what}, and the cascade's buffers hold {room}; decode it "
            f"paged, or make them larger"
        )


def _write_ptr(ptr: Int32, sizes: NDArray[Any]) -> None:
    """Where each of some ranges begins that lie one after another; those that lack are empty."""
    ptr[0] = 0
    ptr[1 : sizes.size + 1] = np.cumsum(sizes)
    ptr[sizes.size + 1 :] = ptr[sizes.size]
