"""DecodePlan: for one decode step, which slabs are read by which rows (paper §3.4, §3.5).

A row's sequence can run through several slabs (a system prompt, then a role's, then a document),
and the rows of a batch share some of them, so a step is a list of *segments*: a contiguous slab
range, the token position at which it starts in each reader's sequence, and the rows that read it.
What no slab holds is read page by page: the *paged ranges* of a row.

The plan depends only on which node each row ends at and on where the slabs are. `Planner` keeps
what did not change: the whole plan while rows and index stand still, or while rows are replaced by
others of their class; else each node's layout, and which layouts share which ranges.
`granikv.bench.plan_cost` says what a step costs.
Host data only: no device is read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import cached_property
from itertools import accumulate, chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from granikv.prefix_index import PrefixIndex, PrefixNode, path_of

OfRow = NDArray[np.uint16]
Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]

NO_SLAB = -1
"""The base of a segment that lies on ordinary pages, where bases are numbers."""
OPEN_END = 2**31 - 1
"""The stop of a paged range that reaches to the end of the sequence, where stops are numbers."""

_REMEMBERED = 8
"""Nodes whose layout is kept, as a multiple of the batch: more would keep evicted nodes alive."""


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


class Slab(NamedTuple):
    """A contiguous range on a row's path: one HOT node, or several that follow one another."""

    base: int
    p0: int
    length: int


class Layout:
    """The slabs on one path, and what they leave over. Compared by identity.

    A slab that continues the one before, in memory and in the sequence, is one with it. Rows that
    read the same slabs hold the same object, so grouping them hashes no tuple.
    """

    __slots__ = ("paged", "slabs")

    def __init__(self, slabs: tuple[Slab, ...]) -> None:
        self.slabs = slabs
        self.paged = _paged_ranges(slabs)


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


class CommonPrefixPlanner:
    """The plan of SGLang-Cascade: what *all* rows of the batch share, on ordinary pages (§4.3).

    There is no storage layer here, so there is one shared range at most and it has no base.
    """

    def __init__(self) -> None:
        self._nodes: list[PrefixNode | None] = []
        self._plan = DecodePlan(0, (), ())

    def plan(self, nodes: Sequence[PrefixNode | None]) -> DecodePlan:
        """The plan for rows whose cached prefix ends at ``nodes``."""
        if nodes != self._nodes:
            self._nodes = list(nodes)
            self._plan = _batch_wide(len(nodes), _common_length(nodes))
        return self._plan


def _batch_wide(rows: int, length: int) -> DecodePlan:
    if rows < 2 or not length:
        return DecodePlan(rows, (), ((PagedRange(0, None),),) * rows)
    shared = Segment(None, 0, length, tuple(range(rows)))
    return DecodePlan(rows, (shared,), ((PagedRange(length, None),),) * rows)


def _common_length(nodes: Sequence[PrefixNode | None]) -> int:
    """Tokens that the paths to all ``nodes`` share."""
    if not nodes or any(node is None for node in nodes):
        return 0
    paths = [path_of(node) for node in dict.fromkeys(nodes) if node is not None]
    length = 0
    for level in zip(*paths, strict=False):
        if any(node is not level[0] for node in level):
            break
        length += len(level[0].key)
    return length


class Planner:
    """Builds the plan of each step, keeping what did not change since the last."""

    def __init__(self, index: PrefixIndex) -> None:
        self._index = index
        self._version = -1
        self._nodes: list[PrefixNode | None] = []
        self._plan = DecodePlan(0, (), ())
        self._layouts: dict[PrefixNode | None, Layout] = {}
        self._paths: dict[PrefixNode | None, tuple[list[int | None], Layout]] = {}
        self._by_slabs: dict[tuple[Slab, ...], Layout] = {}
        self._ends: list[PrefixNode | None] = []
        self._places: list[PrefixNode | None] = []
        self._at_places: list[Layout] = []
        self._classes: list[Layout] = []
        self._of_row: OfRow = np.zeros(0, dtype=np.uint16)
        self._shared: list[tuple[Slab, list[Layout]]] = []
        self._shared_by: set[Layout] = set()
        self._slabs: Int64 = np.zeros((3, 0), dtype=np.int64)
        self._reads = np.zeros((0, 0), dtype=np.bool_)
        self._ranges: list[tuple[PagedRange, ...]] = []
        self._range_table = RangeTable.of([])

    def plan(self, nodes: Sequence[PrefixNode | None]) -> DecodePlan:
        """The plan for rows whose cached prefix ends at ``nodes`` (None: no cached prefix)."""
        version = self._index.version
        if version != self._version:
            self._layouts = {}
            self._version = version
        elif nodes == self._nodes:
            return self._plan
        room = _REMEMBERED * (len(nodes) + 32)
        if len(self._paths) > room or len(self._by_slabs) > room:
            self._layouts, self._paths, self._by_slabs = {}, {}, {}
        self._nodes = list(nodes)
        self._plan = self._build(nodes)
        return self._plan

    def _build(self, nodes: Sequence[PrefixNode | None]) -> DecodePlan:
        # Most rows end in a node of their own: what is above it is looked up once for all of them.
        ends = [n.parent if n is not None and n.lock_ref == 1 else n for n in nodes]
        moved = ends != self._ends
        if moved:
            self._ends, self._places = ends, list(dict.fromkeys(ends))
        layouts = [self._layout_at(place) for place in self._places]
        if not moved and layouts == self._at_places:
            return self._plan
        self._at_places = layouts
        numbers: dict[Layout, int] = {}
        at = {
            place: numbers.setdefault(layout, len(numbers))
            for place, layout in zip(self._places, layouts, strict=True)
        }
        of_row = np.fromiter(map(at.__getitem__, ends), np.uint16, len(ends))
        classes = list(numbers)
        if classes != self._classes:
            self._arrange(classes)
        elif of_row.tobytes() == self._of_row.tobytes():
            return self._plan  # a plan follows from its rows' layouts alone
        self._classes, self._of_row = classes, of_row
        return self._of_rows()

    def _arrange(self, classes: list[Layout]) -> None:
        """What these layouts, all different, read: which segments, and which paged ranges."""
        if self._shared_by != set(classes):
            self._shared, self._shared_by = _shared_ranges(classes), set(classes)
            numbers = chain.from_iterable([slab for slab, _ in self._shared])
            self._slabs = np.fromiter(numbers, np.int64).reshape(-1, 3).T.copy()
        number = {layout: number for number, layout in enumerate(classes)}
        readers = [number[layout] for _, layouts in self._shared for layout in layouts]
        segment = [place for place, (_, layouts) in enumerate(self._shared) for _ in layouts]
        self._reads = np.zeros((len(classes), len(self._shared)), dtype=np.bool_)
        self._reads[readers, segment] = True
        self._ranges = [layout.paged for layout in classes]
        self._range_table = RangeTable.of(self._ranges)

    def _of_rows(self) -> DecodePlan:
        """The plan for the rows as they are."""
        base, p0, length = self._slabs
        reads = self._reads.take(self._of_row, axis=0)
        row, segment = np.divmod(reads.ravel().nonzero()[0], base.size)
        readers = row[segment.astype(np.uint16).argsort(kind="stable")]
        count = np.bincount(segment, minlength=base.size)
        return DecodePlan.of_arrays(
            SegmentTable(base, p0, length, count, readers),
            RowLayouts(self._ranges, self._range_table, self._of_row),
        )

    def _layout_at(self, node: PrefixNode | None) -> Layout:
        """The layout of what a row that ends at ``node`` shares with others.

        A slab that one live request reads is read like its other tokens: read once or by each
        reader is the same, and a tile of its own costs more. Eager admission makes such slabs of
        whatever is long enough.
        """
        while node is not None and node.lock_ref == 1:
            node = node.parent
        layout = self._layouts.get(node)
        if layout is None:
            layout = self._layouts[node] = self._looked_up(node)
        return layout

    def _looked_up(self, node: PrefixNode | None) -> Layout:
        """The layout on the path to ``node``, made anew where a slab on it is not where it was.

        The lengths need no look: a split, which alone changes them, makes the path longer.
        """
        bases: list[int | None] = []
        above = node
        while above is not None:
            bases.append(above.hot_base)
            above = above.parent
        known = self._paths.get(node)
        if known is not None and known[0] == bases:
            return known[1]
        # One object for equal slabs, so that what a change of the index left alone stays.
        slabs = _slabs_along(path_of(node)) if node is not None else ()
        layout = self._by_slabs.get(slabs)
        if layout is None:
            layout = self._by_slabs[slabs] = Layout(slabs)
        self._paths[node] = bases, layout
        return layout


def _slabs_along(path: Iterable[PrefixNode]) -> tuple[Slab, ...]:
    """The slabs on a path from the root down; HOT nodes that follow one another are one."""
    slabs: list[Slab] = []
    base = begin = p0 = 0
    stop: int | None = None  # of the open slab, which began at slot base and position begin
    for node in path:
        length = len(node.key)
        if stop is not None and node.hot_base != stop:
            slabs.append(Slab(base, begin, stop - base))
            stop = None
        if node.hot_base is not None:
            if stop is None:
                base, begin = node.hot_base, p0
            stop = node.hot_base + length
        p0 += length
    if stop is not None:
        slabs.append(Slab(base, begin, stop - base))
    return tuple(slabs)


def _paged_ranges(slabs: tuple[Slab, ...]) -> tuple[PagedRange, ...]:
    """What ``slabs`` leave over, up to the end of the sequence."""
    ranges: list[PagedRange] = []
    start = 0
    for slab in slabs:
        if slab.p0 > start:
            ranges.append(PagedRange(start, slab.p0))
        start = slab.p0 + slab.length
    ranges.append(PagedRange(start, None))
    return tuple(ranges)


def _shared_ranges(layouts: Iterable[Layout]) -> list[tuple[Slab, list[Layout]]]:
    """Each maximal contiguous range that one set of layouts shares, sorted by p0, then base.

    Paths that run through one node agree on everything above it, so slabs of different layouts
    that overlap begin together, and the shorter ends where its path leaves the longer's.
    """
    beginning: dict[int, list[tuple[Slab, Layout]]] = {}
    for layout in layouts:
        for slab in layout.slabs:
            beginning.setdefault(slab.base, []).append((slab, layout))
    shared: list[tuple[Slab, list[Layout]]] = []
    for reading in beginning.values():
        if len(reading) == 1:
            slab, layout = reading[0]
            shared.append((slab, [layout]))
        else:
            shared += _cut(reading)
    shared.sort(key=_by_position)
    return shared


def _cut(reading: list[tuple[Slab, Layout]]) -> list[tuple[Slab, list[Layout]]]:
    """Slabs that begin together, cut where one of them ends."""
    (base, p0, _), _ = reading[0]
    pieces, begin = [], 0
    for end in sorted({slab.length for slab, _ in reading}):
        readers = [layout for slab, layout in reading if slab.length >= end]
        pieces.append((Slab(base + begin, p0 + begin, end - begin), readers))
        begin = end
    return pieces


def _by_position(shared: tuple[Slab, list[Layout]]) -> tuple[int, int]:
    return shared[0].p0, shared[0].base
