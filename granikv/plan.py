"""DecodePlan: for one decode step, which slabs are read by which rows (paper §3.4, §3.5).

A row's sequence can run through several slabs (a system prompt, then a role's, then a document),
and the rows of a batch share some of them, so a step is a list of *segments*: a contiguous slab
range, the token position at which it starts in each reader's sequence, and the rows that read it.
What no slab holds is read page by page: the *paged ranges* of a row.
`granikv.planner` makes the plans. Host data only: no device is read.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property
from itertools import accumulate, chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

OfRow = NDArray[np.uint16]
Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]

NO_SLAB = -1
"""The base of a segment that lies on ordinary pages, where bases are numbers."""
OPEN_END = 2**31 - 1
"""The stop of a paged range that reaches to the end of the sequence, where stops are numbers."""


class Segment(NamedTuple):
    """A shared range and the rows whose sequence runs through it."""

    base: int | None
    """First slot of the slab; None where the range lies on the engine's ordinary pages."""
    p0: int
    """Token position of that slot in each reader's sequence."""
    length: int
    """Tokens, and so slots."""
    rows: tuple[int, ...]
    """Batch rows, ascending."""


class PagedRange(NamedTuple):
    """Token positions [start, stop) read page by page; ``stop`` is None for the sequence's end."""

    start: int
    stop: int | None


class SegmentTable(NamedTuple):
    """The segments of a step as int64 arrays, and their readers.

    base, p0, length  [segments] as `Segment` has them; base is NO_SLAB on ordinary pages
    rows              [segments] how many rows read it
    readers           [sum of rows] batch rows, ascending within each segment, one after another
    """

    base: Int64
    p0: Int64
    length: Int64
    rows: Int64
    readers: Int64

    @classmethod
    def of(cls, segments: Sequence[Segment]) -> SegmentTable:
        """That of the segments."""
        numbers = [(NO_SLAB if s.base is None else s.base, s.p0, s.length) for s in segments]
        base, p0, length = np.array(numbers, dtype=np.int64).reshape(-1, 3).T
        rows = np.array([len(s.rows) for s in segments], dtype=np.int64)
        readers = np.fromiter(chain.from_iterable([s.rows for s in segments]), np.int64)
        return cls(base, p0, length, rows, readers)

    def segments(self) -> tuple[Segment, ...]:
        """What `of` makes the table of."""
        readers = tuple(self.readers.tolist())
        stops = accumulate(self.rows.tolist())
        columns = (self.base.tolist(), self.p0.tolist(), self.length.tolist())
        segments, start = [], 0
        for base, p0, length, stop in zip(*columns, stops, strict=True):
            slab = None if base == NO_SLAB else base
            segments.append(Segment(slab, p0, length, readers[start:stop]))
            start = stop
        return tuple(segments)

    def kept(self) -> SegmentTable:
        """Without the segments of no tokens or no readers; itself where there is none."""
        keep = (self.length * self.rows).astype(np.bool_)
        if keep.all():
            return self
        base, p0, length, rows = self.base[keep], self.p0[keep], self.length[keep], self.rows[keep]
        return SegmentTable(base, p0, length, rows, self.readers[keep.repeat(self.rows)])


class RangeTable(NamedTuple):
    """The paged ranges of some layouts as int64 arrays.

    sizes   [layouts] how many each has
    bounds  [sum of sizes, 2] start and stop, one layout after another; the stop is OPEN_END at the
            end of the sequence
    """

    sizes: Int64
    bounds: Int64

    @classmethod
    def of(cls, layouts: Sequence[tuple[PagedRange, ...]]) -> RangeTable:
        """That of the layouts."""
        bounds = chain.from_iterable(chain.from_iterable(layouts))
        numbers = [OPEN_END if bound is None else bound for bound in bounds]
        sizes = np.fromiter(map(len, layouts), np.int64, len(layouts))
        return cls(sizes, np.array(numbers, dtype=np.int64).reshape(-1, 2))


class RowLayouts(NamedTuple):
    """The different paged ranges of a step, in the order of their first row, and whose they are."""

    ranges: Sequence[tuple[PagedRange, ...]]
    table: RangeTable
    of_row: Sequence[int] | OfRow

    @classmethod
    def of(cls, paged: Sequence[tuple[PagedRange, ...]]) -> RowLayouts:
        """Those of the rows' ranges, told apart by identity: hashing them is slow."""
        numbers: dict[int, int] = {}
        of_row = [numbers.setdefault(id(ranges), len(numbers)) for ranges in paged]
        first = dict(zip(reversed(of_row), reversed(paged), strict=True))
        ranges = [first[number] for number in range(len(numbers))]
        return cls(ranges, RangeTable.of(ranges), of_row)

    def write(self, layout: Int32, gap_ptr: Int32, gaps: Int32) -> None:
        """Into the arrays that kernels read.

        layout   [rows or more] which layout each row has; rows beyond the batch share one layout
                 more, a whole sequence
        gap_ptr  [layouts + 2 or more] the ranges of each layout in `gaps`
        gaps     [ranges + 1 or more, 2] their bounds
        """
        sizes, bounds = self.table
        rows = len(self.of_row)
        layout[:rows] = self.of_row
        gap_ptr[0] = 0
        gap_ptr[1 : sizes.size + 1] = sizes.cumsum()
        gaps[: len(bounds)] = bounds
        layout[rows:] = sizes.size
        gap_ptr[sizes.size + 1] = len(bounds) + 1
        gaps[len(bounds)] = 0, OPEN_END


class DecodePlan:
    """One step's reads. Rows are batch rows; all numbers are tokens (= slots).

    What is read is said twice, by `segments` and `paged` and, as arrays, by `table` and `layouts`.
    A plan is made of one form and makes the other where it is asked for, since most steps need the
    arrays alone. Never changed after it is made; plans that read the same are equal.
    """

    def __init__(
        self,
        rows: int,
        segments: tuple[Segment, ...],
        paged: tuple[tuple[PagedRange, ...], ...],
    ) -> None:
        """
        rows      batch size
        segments  sorted by p0, then base
        paged     for each row its paged ranges, ascending and disjoint; together with the segments
                  that name the row they cover the sequence exactly once
        """
        self.rows = rows
        self.segments = segments
        self.paged = paged

    @classmethod
    def of_arrays(cls, table: SegmentTable, layouts: RowLayouts) -> DecodePlan:
        """The plan of these segments and ranges."""
        plan = cls.__new__(cls)
        plan.rows = len(layouts.of_row)
        plan.table = table
        plan.layouts = layouts
        return plan

    @cached_property
    def segments(self) -> tuple[Segment, ...]:
        """Sorted by p0, then base."""
        return self.table.segments()

    @cached_property
    def paged(self) -> tuple[tuple[PagedRange, ...], ...]:
        """For each row its paged ranges."""
        return tuple([self.layouts.ranges[number] for number in self.layouts.of_row])

    @cached_property
    def table(self) -> SegmentTable:
        """The segments as arrays."""
        return SegmentTable.of(self.segments)

    @cached_property
    def layouts(self) -> RowLayouts:
        """Which rows have the same paged ranges."""
        return RowLayouts.of(self.paged)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DecodePlan):
            return NotImplemented
        return self._said() == other._said()

    def __repr__(self) -> str:
        return f"DecodePlan{self._said()!r}"

    def _said(self) -> tuple[object, ...]:
        return self.rows, self.segments, self.paged

    @property
    def segment_rows(self) -> int:
        """How many (segment, row) pairs there are: partial results from slabs."""
        return self.table.readers.size

    @property
    def shared_tokens(self) -> int:
        """Tokens that are read once instead of once a row."""
        return sum(self.table.length.tolist())

    @property
    def covered(self) -> int:
        """(row, token) pairs that segments hold."""
        return int(self.table.rows @ self.table.length)

    def without(self, dropped: Collection[int]) -> DecodePlan:
        """The same step with some segments (by their place) read page by page by their rows.

        Rows whose paged ranges are one object keep one object between them.
        """
        gone = set(dropped)
        kept = []
        paged = list(self.paged)
        for place, segment in enumerate(self.segments):
            if place not in gone:
                kept.append(segment)
            elif segment.length:
                widened: dict[int, tuple[PagedRange, ...]] = {}
                for row in segment.rows:
                    ranges = paged[row]
                    if id(ranges) not in widened:
                        widened[id(ranges)] = _with_range(ranges, segment)
                    paged[row] = widened[id(ranges)]
        return DecodePlan(self.rows, tuple(kept), tuple(paged))

    def shared(self) -> DecodePlan:
        """The same step with what one row alone reads left to that row; itself where nothing is."""
        alone = [place for place, segment in enumerate(self.segments) if len(segment.rows) < 2]
        return self.without(alone) if alone else self


def _with_range(ranges: tuple[PagedRange, ...], segment: Segment) -> tuple[PagedRange, ...]:
    """The ranges and the segment's, which meets none of them; joined where they touch."""
    start, stop = segment.p0, segment.p0 + segment.length
    before = 0
    while before < len(ranges) and ranges[before].start < start:
        before += 1
    after = before
    joined = PagedRange(start, stop)
    if before and ranges[before - 1].stop == start:
        before -= 1
        joined = PagedRange(ranges[before].start, stop)
    if after < len(ranges) and ranges[after].start == stop:
        joined = PagedRange(joined.start, ranges[after].stop)
        after += 1
    return (*ranges[:before], joined, *ranges[after:])
