"""Which nodes of a tree are one slab."""

from __future__ import annotations

from harness.analysis import derived, slabs
from tests.harness.analysis.made_up import cpu_cell, pools, tree_node

SPLIT = [
    tree_node(3, 2, 17, 1, 117),
    tree_node(1, None, 0, 10, 100),
    tree_node(2, 1, 10, 7, 110),
    tree_node(4, 1, 10, 5, 130),
    tree_node(5, 4, 15, 3, 135),
    tree_node(6, 1, 10, 4, None),
    tree_node(7, 9, 10, 4, 110),
]
"""Slots from 100 in three nodes, from 130 in two, a COLD node, and one of an unlisted parent."""


def test_nodes_that_carry_on_slots_and_tokens_are_one_run() -> None:
    assert slabs.runs(SPLIT) == {3: 1, 1: 1, 2: 1, 4: 4, 5: 4, 7: 7}


def test_slots_without_tokens_are_no_run() -> None:
    tree = [tree_node(1, None, 0, 10, 100), tree_node(2, 1, 11, 5, 110)]
    assert slabs.runs(tree) == {1: 1, 2: 2}


def test_the_number_of_slabs_is_that_of_runs() -> None:
    cell = cpu_cell("granikv", 1.0, layout={"tree": SPLIT, "pools": pools(100, 90, 30, 4, 90)})
    assert derived.value(cell, "slabs") == 3
