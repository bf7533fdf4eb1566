"""Where the nodes of a tree are placed."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from harness.figures import radix
from harness.figures.radix import Bar, Slab
from tests.harness.analysis.made_up import tree_node


def test_letters() -> None:
    assert [radix.letter(i) for i in (0, 1, 25, 26, 27, 51, 52, 701, 702)] == [
        *("A", "B", "Z", "AA", "AB", "AZ", "BA", "ZZ", "AAA")
    ]


def test_a_nested_tree_by_hand() -> None:
    tree = [
        tree_node(5, None, 0, 30, None),
        tree_node(1, None, 0, 96, 1024, 3),
        tree_node(2, 1, 96, 160, 1280, 2),
        tree_node(3, 1, 96, 40, None, 1),
        tree_node(4, 2, 256, 20, None, 1),
    ]
    layout = radix.place(radix.parse(tree))
    assert layout.rows == 3
    assert set(layout.bars) == {
        Bar(0, 96, 0, 2, True, "A", False, 1, 1, 96, 96),
        Bar(96, 256, 0, 1, True, "B", False, 1, 1, 160, 160),
        Bar(256, 276, 0, 1, False, "", True, 1, 1, 20, 20),
        Bar(96, 136, 1, 1, False, "", True, 1, 1, 40, 40),
        Bar(0, 30, 2, 1, False, "", True, 1, 1, 30, 30),
    }
    assert layout.slabs == (Slab("A", 1024, 96, 0, 3), Slab("B", 1280, 160, 96, 2))


def test_many_cold_leaves_share_a_bar() -> None:
    tree = [tree_node(1, None, 0, 10, 100)]
    tree += [tree_node(2 + i, 1, 10, 5 + i, None) for i in range(radix.LISTED_COLD + 1)]
    bars = radix.place(radix.parse(tree)).bars
    (shared,) = [bar for bar in bars if not bar.hot]
    assert shared == Bar(10, 17, 0, 1, False, "", True, 3, 3, 5, 7)


def test_cold_branches_share_a_bar_with_all_their_nodes() -> None:
    """A suffix is often two nodes, prompt and output; a branch with a slab in it stands alone."""
    tree = [tree_node(1, None, 0, 10, 100)]
    for suffix in range(3):
        tree.append(tree_node(10 + suffix, 1, 10, 5 + suffix, None))
        tree.append(tree_node(20 + suffix, 10 + suffix, 15 + suffix, 16, None))
    tree += [tree_node(30, 1, 10, 8, None), tree_node(31, 30, 18, 40, 300)]
    layout = radix.place(radix.parse(tree))
    (shared,) = [bar for bar in layout.bars if bar.branches > 1]
    assert shared == Bar(10, 33, 1, 1, False, "", True, 3, 6, 21, 23)
    assert Bar(10, 18, 0, 1, False, "", False, 1, 1, 8, 8) in layout.bars


def test_many_hot_leaves_share_a_bar_and_have_no_letters() -> None:
    tree = [tree_node(1, None, 0, 10, 100)]
    tree += [tree_node(2 + i, 1, 10, 4, 200 + 10 * i) for i in range(radix.LISTED_HOT + 1)]
    layout = radix.place(radix.parse(tree))
    assert [slab.letter for slab in layout.slabs] == ["A"] + [""] * 9
    assert [bar.nodes for bar in layout.bars if not bar.slab] == [9]


def test_the_chain_of_one_request_shares_the_bar_of_suffixes() -> None:
    """Prompt and output can be two slabs of it: one letter behind the other could not be read."""
    tree = [tree_node(1, None, 0, 10, 100, 9)]
    for i in range(radix.LISTED_HOT + 1):
        tree.append(tree_node(10 + i, 1, 10, 4, 200 + 10 * i, 1))
        tree.append(tree_node(50 + i, 10 + i, 14, 1, 206 + 10 * i, 1))
    layout = radix.place(radix.parse(tree))
    (shared,) = [bar for bar in layout.bars if not bar.slab]
    assert (shared.branches, shared.nodes, shared.longest) == (9, 18, 5)
    assert [slab.letter for slab in layout.slabs] == ["A"] + [""] * 18


def test_a_prefix_that_requests_share_is_no_suffix() -> None:
    tree = [tree_node(1, None, 0, 10, 100, 9)]
    for i in range(radix.LISTED_HOT + 1):
        tree.append(tree_node(10 + i, 1, 10, 4, 200 + 10 * i, 2))
        tree.append(tree_node(50 + i, 10 + i, 14, 1, 206 + 10 * i, 1))
    assert all(slab.letter for slab in radix.place(radix.parse(tree)).slabs)


def test_nodes_in_one_run_of_slots_are_one_slab_and_one_bar() -> None:
    """A request that asks for all but the last token of a slab splits it and moves no slot."""
    tree = [tree_node(1, None, 0, 10, 100, 3), tree_node(2, 1, 10, 20, 110, 3)]
    for i in range(3):
        tree.append(tree_node(10 + i, 2, 30, 7, 200 + 8 * i, 1))
        tree.append(tree_node(20 + i, 10 + i, 37, 1, 207 + 8 * i, 1))
    layout = radix.place(radix.parse(tree))
    assert layout.slabs == (
        Slab("A", 100, 30, 0, 3),
        *(Slab("BCD"[i], 200 + 8 * i, 8, 30, 1) for i in range(3)),
    )
    assert {(bar.slab, bar.start, bar.end) for bar in layout.bars} == {
        ("A", 0, 30),
        *((name, 30, 38) for name in "BCD"),
    }


def test_a_branch_that_carries_on_a_slab_has_its_letter() -> None:
    """The first suffix behind a prefix can lie right behind it: two bars, one run of slots."""
    tree = [tree_node(1, None, 0, 10, 100, 3)]
    tree += [tree_node(2, 1, 10, 5, 110, 1), tree_node(3, 1, 10, 5, 130, 1)]
    layout = radix.place(radix.parse(tree))
    assert layout.slabs == (Slab("A", 100, 15, 0, 3), Slab("B", 130, 5, 10, 1))
    assert sorted((bar.slab, bar.start) for bar in layout.bars) == [("A", 0), ("A", 10), ("B", 10)]


def test_slots_or_tokens_alone_make_no_run() -> None:
    tree = [tree_node(1, None, 0, 10, 100), tree_node(2, 1, 10, 5, 111), tree_node(3, 9, 0, 5, 110)]
    assert len(radix.place(radix.parse(tree)).slabs) == 3


def test_a_node_whose_parent_was_not_sent_stands_at_the_top() -> None:
    (top,) = radix.parse([tree_node(7, 3, 50, 5, None)])
    assert top.id == 7


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 30), st.booleans(), st.integers(1, 50)), max_size=40))
def test_bars_never_overlap_and_no_node_is_lost(shape: list[tuple[int, bool, int]]) -> None:
    tree = []
    ends = {0: 0}
    for node_id, (parent, hot, length) in enumerate(shape, 1):
        parent %= node_id
        base = 1000 * node_id if hot else None
        tree.append(tree_node(node_id, parent or None, ends[parent], length, base))
        ends[node_id] = ends[parent] + length
    layout = radix.place(radix.parse(tree))
    assert sum(bar.nodes for bar in layout.bars) == len(tree)
    assert len(layout.slabs) == sum(hot for _, hot, _ in shape)
    for index, one in enumerate(layout.bars):
        assert 0 <= one.top < one.top + one.height <= layout.rows
        for other in layout.bars[index + 1 :]:
            apart = one.end <= other.start or other.end <= one.start
            apart |= one.top + one.height <= other.top or other.top + other.height <= one.top
            assert apart
