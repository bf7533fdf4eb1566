"""A planner that lived through many changes plans what the plainest planner makes from nothing."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from granikv.plan import DecodePlan, PagedRange, Segment
from granikv.planner import Planner
from tests.granikv.test_planner import Node, Tree


def plainly(nodes: list[Node]) -> DecodePlan:
    """HOT nodes with their readers, neighbours of the same readers joined; the rest is paged.

    So is what one live request alone reads.
    """
    readers: dict[int, list[int]] = {}
    slabs: dict[int, tuple[int, int]] = {}
    paged = []
    for row, node in enumerate(nodes):
        path = []
        while node.parent is not None:
            path.append(node)
            node = node.parent
        at, open_from, ranges = 0, 0, []
        for step in reversed(path):
            if step.hot_base is not None and step.lock_ref != 1:
                readers.setdefault(step.hot_base, []).append(row)
                slabs[step.hot_base] = (at, step.tokens)
                if at > open_from:
                    ranges.append(PagedRange(open_from, at))
                open_from = at + step.tokens
            at += step.tokens
        paged.append((*ranges, PagedRange(open_from, None)))
    segments: list[Segment] = []
    for base in sorted(readers):
        p0, length = slabs[base]
        segment = Segment(base, p0, length, tuple(readers[base]))
        last = segments[-1] if segments else None
        if (
            last is not None
            and last.base is not None
            and (last.base + last.length, last.p0 + last.length) == (base, p0)
            and last.rows == segment.rows
        ):
            segments[-1] = last._replace(length=last.length + length)
        else:
            segments.append(segment)
    segments.sort(key=lambda s: (s.p0, s.base))
    return DecodePlan(len(nodes), tuple(segments), tuple(paged))


class Life:
    """A tree under admission, splits and relocations, with a batch that comes and goes."""

    def __init__(self) -> None:
        self.tree = Tree()
        self.nodes = [self.tree.root]
        self.free = 1
        self.rows: list[Node] = []

    def base(self, tokens: int, gap: int) -> int:
        at = self.free + gap
        self.free = at + tokens
        return at

    def grow(self, parent: int, tokens: int, hot: bool, gap: int) -> None:
        above = self.nodes[parent % len(self.nodes)]
        self.nodes.append(self.tree.add(above, tokens, self.base(tokens, gap) if hot else None))

    def relocate(self, which: int, gap: int) -> None:
        node = self.nodes[which % len(self.nodes)]
        if node.parent is not None and node.hot_base is None:
            self.tree.index.place(node, self.base(node.tokens, gap))

    def drop(self, which: int) -> None:
        self.tree.index.drop(self.nodes[which % len(self.nodes)])

    def lock(self) -> None:
        """As the engine counts: the live requests through each node."""
        for node in self.nodes:
            node.lock_ref = 0
        for row in self.rows:
            above: Node | None = row
            while above is not None:
                above.lock_ref += 1
                above = above.parent

    def split(self, which: int, at: int) -> None:
        lower = self.nodes[which % len(self.nodes)]
        if lower.parent is None or lower.tokens < 2:
            return
        upper_tokens = 1 + at % (lower.tokens - 1)
        upper = self.tree.add(lower.parent, upper_tokens)
        lower.parent, lower.tokens = upper, lower.tokens - upper_tokens
        self.tree.index.split(upper, lower, upper_tokens)
        self.nodes.append(upper)

    def admit(self, which: int) -> None:
        self.rows.append(self.nodes[which % len(self.nodes)])

    def replace(self, row: int, which: int) -> None:
        if self.rows:
            self.rows[row % len(self.rows)] = self.nodes[which % len(self.nodes)]

    def leave(self, row: int) -> None:
        if self.rows:
            del self.rows[row % len(self.rows)]


_N = st.integers(0, 1000)
_ACTS = st.one_of(
    st.tuples(st.just("grow"), _N, st.integers(1, 9), st.booleans(), st.sampled_from([0, 0, 0, 1])),
    st.tuples(st.just("relocate"), _N, st.sampled_from([0, 0, 1])),
    st.tuples(st.just("drop"), _N),
    st.tuples(st.just("split"), _N, _N),
    st.tuples(st.just("admit"), _N),
    st.tuples(st.just("admit"), _N),
    st.tuples(st.just("replace"), _N, _N),
    st.tuples(st.just("leave"), _N),
    st.tuples(st.just("step")),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(_ACTS, min_size=10, max_size=60), st.booleans())
def test_a_veteran_plans_as_the_plainest_planner(
    acts: list[tuple[object, ...]], locks: bool
) -> None:
    life = Life()
    planner = Planner(life.tree.index)
    for name, *arguments in [*acts, ("step",)]:
        if name == "step":
            if locks:
                life.lock()
            assert planner.plan(life.rows) == plainly(life.rows)
        else:
            getattr(life, str(name))(*arguments)


def test_a_chain_that_ends_at_different_nodes_is_cut_at_each() -> None:
    """Three rows on one slab of three nodes, ending at each of them, and one that branches off."""
    life = Life()
    for parent in (0, 1, 2):
        life.grow(parent, 10, hot=True, gap=0)
    life.grow(1, 5, hot=True, gap=3)
    life.rows = life.nodes[1:]
    plan = Planner(life.tree.index).plan(life.rows)
    assert plan == plainly(life.rows)
    assert [(s.base, s.length, s.rows) for s in plan.segments] == [
        (1, 10, (0, 1, 2, 3)),
        (11, 10, (1, 2)),
        (34, 5, (3,)),
        (21, 10, (2,)),
    ]


@settings(max_examples=60, deadline=None)
@given(st.lists(_ACTS, min_size=10, max_size=40))
def test_what_the_planner_says_of_layouts_is_so(acts: list[tuple[object, ...]]) -> None:
    life = Life()
    for name, *arguments in acts:
        if name != "step":
            getattr(life, str(name))(*arguments)
    plan = Planner(life.tree.index).plan(life.rows)
    ranges, of_row = plan.layouts.ranges, plan.layouts.of_row
    assert [ranges[number] for number in of_row] == list(plan.paged)
    assert list(dict.fromkeys(of_row)) == list(range(len(ranges)))
