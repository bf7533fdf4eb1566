"""Who makes the plan of each decode step (paper §3.4, §3.5, §4.3).

A plan depends only on which node each row ends at and on where the slabs are. `Planner` keeps
what did not change: the whole plan while rows and index stand still, or while rows are replaced by
others of their class; else each node's layout, and which layouts share which ranges.
`granikv.bench.plan_cost` says what a step costs. Host data only: no device is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from granikv.plan import (
    DecodePlan,
    Int64,
    OfRow,
    PagedRange,
    RangeTable,
    RowLayouts,
    Segment,
    SegmentTable,
)
from granikv.prefix_index import PrefixIndex, PrefixNode, path_of

_REMEMBERED = 8
"""Nodes whose layout is kept, as a multiple of the batch: more would keep evicted nodes alive."""


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
