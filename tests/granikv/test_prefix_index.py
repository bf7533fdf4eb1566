"""Which runs become slabs, and what splits, chains and removals do to a base."""

from __future__ import annotations

import pytest

from granikv.admission import Candidate, Eager, OnShare, Pinned, admission_policy
from granikv.prefix_index import Placed, path_of, placed_path
from granikv.ranges import Range
from tests.granikv.test_planner import Node, Tree


def chain(tree: Tree, *tokens: int) -> list[Node]:
    nodes, parent = [], tree.root
    for length in tokens:
        parent = tree.add(parent, length)
        nodes.append(parent)
    return nodes


def test_positions_along_a_path() -> None:
    tree = Tree()
    nodes = chain(tree, 5, 7, 2)
    assert path_of(nodes[-1]) == nodes
    assert placed_path(nodes[-1]) == [Placed(n, p) for n, p in zip(nodes, (0, 5, 12), strict=True)]
    assert path_of(tree.root) == []


def test_eager_makes_one_slab_of_a_chunked_prompt_and_leaves_what_was_generated() -> None:
    tree = Tree()
    nodes = chain(tree, 64, 64, 30, 20)
    (run,) = tree.index.runs(nodes[-1], Eager(32), prompt_len=158)
    assert [p.node for p in run.nodes] == nodes[:3]
    assert (run.length, run.prefer) == (158, None)


def test_a_short_run_stays_in_cold() -> None:
    tree = Tree()
    nodes = chain(tree, 31)
    assert tree.index.runs(nodes[0], Eager(32), 31) == []
    assert len(tree.index.runs(nodes[0], Eager(31), 31)) == 1


def test_a_refused_prefix_stays_in_cold_for_its_lifetime() -> None:
    """B.10: no promotion on a later reference."""
    tree = Tree()
    (node,) = chain(tree, 100)
    node.refusals = 1
    assert tree.index.runs(node, Eager(32), 100) == []
    node.lock_ref = 2
    assert len(tree.index.runs(node, OnShare(32), 100)) == 1


def test_on_share_waits_for_live_readers_not_for_references() -> None:
    """Failure kind 10: a pin, or a reader of the head only, is no reader of the tail."""
    tree = Tree()
    head, tail = chain(tree, 64, 64)
    head.lock_ref, tail.lock_ref = 8, 1
    (run,) = tree.index.runs(tail, OnShare(32), 128)
    assert [p.node for p in run.nodes] == [head]
    head.lock_ref, head.pins = 2, 1
    assert tree.index.runs(tail, OnShare(32), 128)[0].nodes[0].node is head
    assert not OnShare(32).wants(Candidate(1, True, False, 0))


def test_a_run_below_a_slab_asks_to_extend_it() -> None:
    tree = Tree()
    nodes = chain(tree, 50, 60)
    tree.index.place(nodes[0], 11)
    (run,) = tree.index.runs(nodes[1], Eager(32), 110)
    assert run.prefer == 61


def test_pinned_takes_declared_prefixes_only_however_short() -> None:
    tree = Tree()
    nodes = chain(tree, 8, 100)
    nodes[0].pins = 1
    (run,) = tree.index.runs(nodes[1], Pinned(32), 108)
    assert [p.node for p in run.nodes] == nodes[:1]


def test_a_split_keeps_both_halves_where_they_are() -> None:
    tree = Tree()
    (lower,) = chain(tree, 100)
    tree.index.place(lower, 7)
    lower.pins, lower.refusals = 2, 1
    upper = tree.add(tree.root, 40)
    lower.parent, lower.tokens = upper, 60
    before = tree.index.version
    tree.index.split(upper, lower, 40)
    assert (upper.hot_base, lower.hot_base) == (7, 47)
    assert (upper.pins, upper.refusals) == (2, 1)
    assert tree.index.ranges() == [Range(7, 40), Range(47, 60)]
    assert tree.index.version > before


def test_a_hot_node_never_moves() -> None:
    tree = Tree()
    (node,) = chain(tree, 100)
    tree.index.place(node, 7)
    with pytest.raises(ValueError, match="never moves"):
        tree.index.place(node, 300)


def test_a_node_that_leaves_gives_its_range_back_once() -> None:
    tree = Tree()
    hot, cold = chain(tree, 100, 20)
    tree.index.place(hot, 7)
    assert tree.index.drop(cold) is None
    assert tree.index.drop(hot) == Range(7, 100)
    assert tree.index.drop(hot) is None
    assert len(tree.index) == 0


def test_policies_by_name() -> None:
    assert admission_policy("on_share", 64).min_tokens == 64
    with pytest.raises(ValueError, match="eager, on_share, pinned"):
        admission_policy("lazy", 64)
    with pytest.raises(ValueError, match="at least 1 token"):
        Eager(0)
    with pytest.raises(ValueError, match="at least 1 reader"):
        OnShare(32, 0)
