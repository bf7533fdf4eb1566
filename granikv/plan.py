"""DecodePlan: for one decode step, which slabs are read by which rows (paper §3.4, §3.5).

A row's sequence can run through several slabs (a system prompt, then a role's, then a document),
and the rows of a batch share some of them, so a step is a list of *segments*: a contiguous slab
range, the token position at which it starts in each reader's sequence, and the rows that read it.
What no slab holds is read page by page: the *paged ranges* of a row.

The plan depends only on which node each row ends at and on where the slabs are. `Planner` keeps
what did not change: the whole plan while rows and index stand still, or while rows are replaced by
others of their class; else each node's layout, and which layouts share which ranges.
`granikv.bench.plan_cost` says what a step costs.
Pure Python, host data only: no device is read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from granikv.prefix_index import PrefixIndex, PrefixNode, path_of

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

    A slab that continues the one before, in memory and in the sequence, is one with it. Every COLD
    node shares its parent's layout object, so rows that read the same slabs hold the same object,
    and grouping them hashes no tuple.
    """

    __slots__ = ("paged", "slabs")

    def __init__(self, slabs: tuple[Slab, ...]) -> None:
        self.slabs = slabs
        self.paged = _paged_ranges(slabs)


class RowLayouts(NamedTuple):
    """The different paged ranges of a step, in the order of their first row, and whose they are."""

    ranges: Sequence[tuple[PagedRange, ...]]
    of_row: Sequence[int]


@dataclass(frozen=True, slots=True)
class DecodePlan:
    """One step's reads. Rows are batch rows; all numbers are tokens (= slots).

    Attributes:
        rows: batch size.
        segments: sorted by p0, then base.
        paged: for each row its paged ranges, ascending and disjoint; together with the segments
            that name the row they cover the sequence exactly once.
        known_layouts: `layouts`, where the plan's maker knows them.
    """

    rows: int
    segments: tuple[Segment, ...]
    paged: tuple[tuple[PagedRange, ...], ...]
    known_layouts: RowLayouts | None = field(default=None, compare=False, repr=False)

    @property
    def layouts(self) -> RowLayouts:
        """Which rows have the same paged ranges, told apart by identity: hashing them is slow."""
        if self.known_layouts is not None:
            return self.known_layouts
        numbers: dict[int, int] = {}
        of_row = [numbers.setdefault(id(ranges), len(numbers)) for ranges in self.paged]
        first = dict(zip(reversed(of_row), reversed(self.paged), strict=True))
        return RowLayouts([first[number] for number in range(len(numbers))], of_row)

    @property
    def segment_rows(self) -> int:
        """How many (segment, row) pairs there are: partial results from slabs."""
        return sum(len(s.rows) for s in self.segments)

    @property
    def shared_tokens(self) -> int:
        """Tokens that are read once instead of once a row."""
        return sum(s.length for s in self.segments)

    @property
    def covered(self) -> int:
        """(row, token) pairs that segments hold."""
        return sum(len(s.rows) * s.length for s in self.segments)

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
        self._by_slabs: dict[tuple[Slab, ...], Layout] = {}
        self._of_rows: list[Layout] | None = None
        self._shape_of: set[Layout] = set()
        self._shape: list[tuple[Slab, list[Layout]]] = []

    def plan(self, nodes: Sequence[PrefixNode | None]) -> DecodePlan:
        """The plan for rows whose cached prefix ends at ``nodes`` (None: no cached prefix)."""
        version = self._index.version
        if version != self._version:
            self._layouts = {None: self._of_slabs([])}
            self._version = version
        elif nodes == self._nodes:
            return self._plan
        room = _REMEMBERED * (len(nodes) + 32)
        if len(self._layouts) > room or len(self._by_slabs) > room:
            self._by_slabs = {}
            self._layouts = {None: self._of_slabs([])}
        self._nodes = list(nodes)
        self._plan = self._build(nodes)
        return self._plan

    def _build(self, nodes: Sequence[PrefixNode | None]) -> DecodePlan:
        layouts = self._layouts_of(nodes)
        if layouts == self._of_rows:
            return self._plan  # a plan follows from its rows' layouts alone
        self._of_rows = layouts
        classes: dict[Layout, list[int]] = {layout: [] for layout in layouts}
        for row, layout in enumerate(layouts):
            classes[layout].append(row)
        if classes.keys() != self._shape_of:
            self._shape = _shared_ranges(classes)
            self._shape_of = set(classes)
        segments = [Segment(*slab, _rows(classes, readers)) for slab, readers in self._shape]
        number = dict(zip(classes, range(len(classes)), strict=True))
        known = RowLayouts([x.paged for x in classes], [number[x] for x in layouts])
        return DecodePlan(len(nodes), tuple(segments), tuple([x.paged for x in layouts]), known)

    def _layouts_of(self, nodes: Sequence[PrefixNode | None]) -> list[Layout]:
        """The layout that each row shares with others; most rows end in a node of their own.

        A slab that one live request reads is read like its other tokens: read once or by each
        reader is the same, and a tile of its own costs more. Eager admission makes such slabs of
        whatever is long enough.
        """
        known, layouts = self._layouts, []
        for node in nodes:
            while node is not None and node.lock_ref == 1:
                node = node.parent
            layout = known.get(node)
            if layout is None:
                assert node is not None, "None is always known"
                if node.hot_base is None and node.parent in known:
                    layout = known[node] = known[node.parent]
                else:
                    layout = self._layout(node)
            layouts.append(layout)
        return layouts

    def _layout(self, node: PrefixNode) -> Layout:
        """The slabs on the path to ``node``, remembered where a HOT stretch of it ends."""
        known = self._layouts
        path: list[PrefixNode] = []
        above: PrefixNode | None = node
        while above not in known:
            assert above is not None, "None is always known"
            path.append(above)
            above = above.parent
        layout = known[above]
        slabs: list[Slab] = []
        for below in reversed(path):
            if below.hot_base is not None:
                slabs = slabs or list(layout.slabs)
                _extend(slabs, below)
            else:
                if slabs:
                    layout = known[below.parent] = self._of_slabs(slabs)
                    slabs = []
                known[below] = layout
        if slabs:
            layout = known[node] = self._of_slabs(slabs)
        return layout

    def _of_slabs(self, slabs: list[Slab]) -> Layout:
        """The one layout of these slabs, so that what a change of the index left alone stays."""
        key = tuple(slabs)
        layout = self._by_slabs.get(key)
        if layout is None:
            layout = self._by_slabs[key] = Layout(key)
        return layout


def _extend(slabs: list[Slab], node: PrefixNode) -> None:
    """Add a HOT node behind the slabs of its ancestors."""
    base, length, parent = node.hot_base, len(node.key), node.parent
    assert base is not None
    if parent is not None and parent.hot_base is not None:
        last = slabs[-1]
        if last.base + last.length == base:
            slabs[-1] = Slab(last.base, last.p0, last.length + length)
        else:
            slabs.append(Slab(base, last.p0 + last.length, length))
        return
    depth = 0
    while parent is not None:
        depth += len(parent.key)
        parent = parent.parent
    slabs.append(Slab(base, depth, length))


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


def _rows(classes: Mapping[Layout, list[int]], layouts: list[Layout]) -> tuple[int, ...]:
    if len(layouts) == 1:
        return tuple(classes[layouts[0]])
    return tuple(sorted(row for layout in layouts for row in classes[layout]))
