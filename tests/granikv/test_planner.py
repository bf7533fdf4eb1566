"""DecodePlan: every token of every row is read once, shared ranges once for all their readers."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from granikv.plan import DecodePlan, PagedRange, Segment
from granikv.planner import CommonPrefixPlanner, Planner
from granikv.prefix_index import PrefixIndex


@dataclass(eq=False)
class Node:
    """A tree node as the planner reads it."""

    parent: Node | None
    tokens: int
    id: int = 0
    hot_base: int | None = None
    lock_ref: int = 0
    refusals: int = 0
    pins: int = 0
    children: dict[Any, Any] = field(default_factory=dict)

    @property
    def key(self) -> range:
        return range(self.tokens)


class Tree:
    """Builds nodes with unique ids."""

    def __init__(self) -> None:
        self.index = PrefixIndex()
        self.root = Node(None, 0)
        self.count = 0

    def add(self, parent: Node, tokens: int, base: int | None = None) -> Node:
        self.count += 1
        node = Node(parent, tokens, self.count)
        parent.children[self.count] = node
        if base is not None:
            self.index.place(node, base)
        return node


def test_rows_behind_one_slab_share_one_segment() -> None:
    tree = Tree()
    prefix = tree.add(tree.root, 100, base=1)
    rows = [tree.add(prefix, 5 + i) for i in range(3)]
    plan = Planner(tree.index).plan(rows)
    assert plan.segments == (Segment(1, 0, 100, (0, 1, 2)),)
    assert plan.paged == ((PagedRange(100, None),),) * 3
    assert (plan.segment_rows, plan.shared_tokens) == (3, 100)


def test_what_one_request_reads_is_no_segment() -> None:
    """Its own slab, below a shared prefix and alone; a second reader makes it one."""
    tree = Tree()
    prefix = tree.add(tree.root, 100, base=1)
    own = tree.add(prefix, 40, base=101)
    alone = tree.add(tree.root, 60, base=500)
    prefix.lock_ref, own.lock_ref, alone.lock_ref = 2, 1, 1
    rows = [tree.add(own, 5), tree.add(prefix, 7), tree.add(alone, 3)]
    for row in rows:
        row.lock_ref = 1
    planner = Planner(tree.index)
    plan = planner.plan(rows)
    assert plan.segments == (Segment(1, 0, 100, (0, 1)),)
    assert plan.paged == (*((PagedRange(100, None),),) * 2, (PagedRange(0, None),))

    joined = tree.add(own, 9)
    joined.lock_ref, own.lock_ref, prefix.lock_ref = 1, 2, 3
    plan = planner.plan([*rows, joined])
    assert plan.segments == (Segment(1, 0, 100, (0, 1, 3)), Segment(101, 100, 40, (0, 3)))


def test_nested_prefixes_are_nested_segments() -> None:
    tree = Tree()
    system = tree.add(tree.root, 64, base=1)
    role = tree.add(system, 32, base=500)
    document = tree.add(role, 16, base=900)
    plan = Planner(tree.index).plan([system, role, document, tree.add(document, 3)])
    assert plan.segments == (
        Segment(1, 0, 64, (0, 1, 2, 3)),
        Segment(500, 64, 32, (1, 2, 3)),
        Segment(900, 96, 16, (2, 3)),
    )


def test_a_common_head_in_cold_leaves_slabs_that_start_later() -> None:
    tree = Tree()
    head = tree.add(tree.root, 7)
    slabs = [tree.add(head, 50, base=100 * (i + 1)) for i in range(2)]
    middle = tree.add(slabs[1], 4)
    last = tree.add(middle, 9, base=900)
    plan = Planner(tree.index).plan([slabs[0], last])
    assert plan.segments == (
        Segment(100, 7, 50, (0,)),
        Segment(200, 7, 50, (1,)),
        Segment(900, 61, 9, (1,)),
    )
    assert plan.paged == (
        (PagedRange(0, 7), PagedRange(57, None)),
        (PagedRange(0, 7), PagedRange(57, 61), PagedRange(70, None)),
    )


def test_a_chain_of_chunk_nodes_is_one_segment() -> None:
    tree = Tree()
    node = tree.root
    for chunk in range(64):
        node = tree.add(node, 128, base=1 + 128 * chunk)
    plan = Planner(tree.index).plan([tree.add(node, 5), tree.add(node, 6)])
    assert plan.segments == (Segment(1, 0, 64 * 128, (0, 1)),)


def test_a_row_that_ends_inside_a_chain_cuts_it() -> None:
    tree = Tree()
    upper = tree.add(tree.root, 60, base=1)
    lower = tree.add(upper, 40, base=61)
    plan = Planner(tree.index).plan([lower, upper])
    assert plan.segments == (Segment(1, 0, 60, (0, 1)), Segment(61, 60, 40, (0,)))


def test_slabs_that_touch_in_memory_but_not_in_the_sequence_stay_apart() -> None:
    tree = Tree()
    first = tree.add(tree.root, 10, base=1)
    between = tree.add(first, 5)
    second = tree.add(between, 10, base=11)
    plan = Planner(tree.index).plan([second])
    assert [s.length for s in plan.segments] == [10, 10]


def test_rows_without_a_cached_prefix_are_all_paged() -> None:
    tree = Tree()
    plan = Planner(tree.index).plan([None, tree.root])
    assert plan == DecodePlan(2, (), ((PagedRange(0, None),),) * 2)


def test_the_plan_stands_while_nothing_changes() -> None:
    tree = Tree()
    rows = [tree.add(tree.add(tree.root, 50, base=1), 3)]
    planner = Planner(tree.index)
    assert planner.plan(rows) is planner.plan(list(rows))


def test_a_relocation_and_a_split_are_seen_at_once() -> None:
    """Failure kind 7: no step is served from the plan of an older tree."""
    tree = Tree()
    prefix = tree.add(tree.root, 50)
    rows = [tree.add(prefix, 3), tree.add(prefix, 4)]
    planner = Planner(tree.index)
    assert planner.plan(rows).segments == ()
    tree.index.place(prefix, 1)
    assert planner.plan(rows).segments == (Segment(1, 0, 50, (0, 1)),)
    upper = tree.add(tree.root, 20)
    prefix.parent, prefix.tokens = upper, 30
    tree.index.split(upper, prefix, 20)
    third = [*rows, tree.add(upper, 6)]
    assert planner.plan(third).segments == (
        Segment(1, 0, 20, (0, 1, 2)),
        Segment(21, 20, 30, (0, 1)),
    )


@pytest.mark.parametrize("seed", range(40))
def test_an_incremental_plan_equals_one_from_nothing(seed: int) -> None:
    """Rows come and go, slabs appear, nodes are added: the planner forgets what it must."""
    source = random.Random(seed)
    tree = Tree()
    nodes, base = [tree.root], 1
    rows: list[Node] = []
    planner = Planner(tree.index)
    for _ in range(60):
        move = source.randrange(4)
        if move == 0 or not rows:
            node = tree.add(source.choice(nodes), source.randint(1, 30))
            nodes.append(node)
            rows.append(node)
        elif move == 1:
            rows.pop(source.randrange(len(rows)))
        elif move == 2:
            rows.append(source.choice(nodes))
        else:
            cold = [n for n in nodes[1:] if n.hot_base is None]
            if cold:
                node = source.choice(cold)
                tree.index.place(node, base)
                base += node.tokens + source.randint(0, 1) * 5
        assert planner.plan(list(rows)) == Planner(tree.index).plan(list(rows))


def test_the_batch_wide_prefix_is_what_all_rows_share() -> None:
    tree = Tree()
    head = tree.add(tree.root, 16)
    left, right = tree.add(head, 32), tree.add(head, 32)
    planner = CommonPrefixPlanner()
    assert planner.plan([left, tree.add(left, 4)]).segments == (Segment(None, 0, 48, (0, 1)),)
    assert planner.plan([left, right]).segments == (Segment(None, 0, 16, (0, 1)),)
    assert planner.plan([left, right, None]).segments == ()
    assert planner.plan([left]).segments == ()
    assert planner.plan([]).segments == ()


def test_distinct_prefixes_leave_the_batch_wide_level_empty() -> None:
    """§4.5: what makes SGLang-Cascade fall back to parity under several system prompts."""
    tree = Tree()
    rows = [tree.add(tree.root, 64) for _ in range(4)]
    assert CommonPrefixPlanner().plan(rows).segments == ()


@pytest.mark.parametrize("seed", range(20))
def test_every_token_is_still_read_once_whatever_is_dropped(seed: int) -> None:
    draw = random.Random(seed)
    tree = Tree()
    nodes, base = [tree.root], 1
    for _ in range(30):
        tokens = draw.randint(1, 20)
        hot = draw.random() < 0.5
        nodes.append(tree.add(draw.choice(nodes), tokens, base if hot else None))
        base += tokens + draw.randint(0, 1)
    rows = [draw.choice(nodes) for _ in range(12)]
    plan = Planner(tree.index).plan(rows)
    places = range(len(plan.segments))
    dropped = plan.without(draw.sample(places, draw.randint(0, len(places))))
    for row, node in enumerate(rows):
        length, above = 3, [node]
        while above:
            at = above.pop()
            length += at.tokens
            above += [at.parent] if at.parent is not None else []
        reads = [0] * length
        for s in dropped.segments:
            if row in s.rows:
                for position in range(s.p0, s.p0 + s.length):
                    reads[position] += 1
        for start, stop in dropped.paged[row]:
            for position in range(start, length if stop is None else stop):
                reads[position] += 1
        assert reads == [1] * length
