"""Where each node of a served radix tree goes in the layout drawing: positions only, no drawing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from harness.analysis import slabs

LISTED_COLD = 2
LISTED_HOT = 8
"""Branches of one pool under one parent that are drawn one by one; more are drawn as one bar."""


@dataclass
class Node:
    """A node as `/server_info` tells it. p0 and length in tokens, base in slots (None: COLD).

    run: the id of the first node of the run of slots that holds it; its own where COLD.
    """

    id: int
    parent: int | None
    p0: int
    length: int
    base: int | None
    readers: int
    run: int
    children: list[Node] = field(default_factory=list)

    @property
    def hot(self) -> bool:
        """Whether the node's tokens lie in a slab."""
        return self.base is not None

    @property
    def end(self) -> int:
        """Token position after the node's last."""
        return self.p0 + self.length

    @property
    def reach(self) -> int:
        """Tokens of the longest path that starts with this node."""
        return self.length + max((child.reach for child in self.children), default=0)

    @property
    def size(self) -> int:
        """Nodes of the subtree, this one included."""
        return 1 + sum(child.size for child in self.children)

    @property
    def simple(self) -> bool:
        """Whether nothing in the subtree needs telling apart: COLD all through, or a HOT leaf, or
        the HOT chain of one request, whose prompt and output are nodes of their own.
        """
        if not self.hot:
            return all(not child.hot and child.simple for child in self.children)
        if not self.children:
            return True
        (first, *others) = self.children
        return not others and self.readers <= 1 and first.hot and first.simple


@dataclass(frozen=True)
class Bar:
    """One rectangle: tokens [start, end) over rows [top, top + height).

    slab: letter of a HOT node, empty for COLD and for many HOT branches in one bar. branches: how
    many it stands for, of `shortest` to `longest` tokens, with `nodes` nodes in all. leaf: nothing
    is drawn to its right.
    """

    start: int
    end: int
    top: int
    height: int
    hot: bool
    slab: str
    leaf: bool
    branches: int
    nodes: int
    shortest: int
    longest: int


@dataclass(frozen=True)
class Slab:
    """A run of slots that holds HOT nodes: its letter (empty among many branches), slots
    [base, base + length), first token position and the live readers of that.
    """

    letter: str
    base: int
    length: int
    p0: int
    readers: int


@dataclass(frozen=True)
class Layout:
    """Everything the drawing places: bars, slabs in slot order, number of rows, nodes left out."""

    bars: tuple[Bar, ...]
    slabs: tuple[Slab, ...]
    rows: int


def parse(tree: Sequence[Mapping[str, Any]]) -> list[Node]:
    """Top nodes of the tree with their children: HOT first, by base, then position and id."""
    runs = slabs.runs(tree)
    nodes = {
        int(raw["id"]): Node(
            int(raw["id"]),
            None if raw["parent"] is None else int(raw["parent"]),
            int(raw["p0"]),
            int(raw["length"]),
            None if raw.get("base") is None else int(raw["base"]),
            int(raw["readers"]),
            runs.get(int(raw["id"]), int(raw["id"])),
        )
        for raw in tree
    }
    tops: list[Node] = []
    for node in nodes.values():
        parent = nodes.get(node.parent) if node.parent is not None else None
        (parent.children if parent else tops).append(node)
    for node in nodes.values():
        node.children.sort(key=_order)
    return sorted(tops, key=_order)


def _order(node: Node) -> tuple[bool, int, int, int]:
    return (node.base is None, node.base or 0, node.p0, node.id)


def letter(index: int) -> str:
    """0 -> A, 25 -> Z, 26 -> AA."""
    text = ""
    index += 1
    while index:
        index, rest = divmod(index - 1, 26)
        text = chr(ord("A") + rest) + text
    return text


def place(tops: Sequence[Node]) -> Layout:
    """Assign rows: a leaf takes one, a parent spans its children's, like branches share one.

    A run of slots has one letter, and where nothing branches off between two of its nodes one bar.
    """
    tops = [_joined(top) for top in tops]
    nodes = _walk(tops)
    shared = {
        below.id
        for node in nodes
        for group in _gathered(node)
        for branch in group
        for below in _walk([branch])
    }
    hot = sorted((node for node in nodes if node.hot), key=_order)
    named = dict.fromkeys(node.run for node in hot if node.id not in shared)
    letters = {run: letter(index) for index, run in enumerate(named)}
    bars: list[Bar] = []
    rows = 0
    for top in tops:
        rows += _place(top, rows, letters, bars)
    lengths: dict[int, int] = {}
    for node in hot:
        lengths[node.run] = lengths.get(node.run, 0) + node.length
    first = {node.run: node for node in reversed(hot)}
    listed = tuple(
        Slab(letters.get(run, ""), first[run].base or 0, length, first[run].p0, first[run].readers)
        for run, length in lengths.items()
    )
    return Layout(tuple(bars), listed, rows)


def _joined(node: Node) -> Node:
    """The subtree, with each node and an only child in the same run of slots as one node."""
    children = [_joined(child) for child in node.children]
    if len(children) == 1 and node.hot and children[0].run == node.run:
        (child,) = children
        return replace(node, length=node.length + child.length, children=child.children)
    return replace(node, children=children)


def _walk(nodes: Sequence[Node]) -> list[Node]:
    found: list[Node] = []
    stack = list(nodes)
    while stack:
        node = stack.pop()
        found.append(node)
        stack.extend(node.children)
    return found


def _gathered(node: Node) -> list[list[Node]]:
    """The node's branches that share a bar: simple ones, where a pool has more than are listed."""
    groups = []
    for hot, listed in ((True, LISTED_HOT), (False, LISTED_COLD)):
        branches = [child for child in node.children if child.hot is hot and child.simple]
        if len(branches) > listed:
            groups.append(branches)
    return groups


def _place(node: Node, row: int, letters: Mapping[int, str], bars: list[Bar]) -> int:
    """Place a node at `row` with everything below it; returns the rows taken."""
    groups = _gathered(node)
    shared = {branch.id for group in groups for branch in group}
    height = 0
    for child in node.children:
        if child.id not in shared:
            height += _place(child, row + height, letters, bars)
    for group in groups:
        bars.append(_shared_bar(group, row + height))
        height += 1
    height = max(height, 1)
    bars.append(_own_bar(node, row, height, letters.get(node.run, "") if node.hot else ""))
    return height


def _own_bar(node: Node, top: int, height: int, slab: str) -> Bar:
    length, leaf = node.length, not node.children
    return Bar(node.p0, node.end, top, height, node.hot, slab, leaf, 1, 1, length, length)


def _shared_bar(branches: Sequence[Node], top: int) -> Bar:
    reaches = [branch.reach for branch in branches]
    nodes = sum(branch.size for branch in branches)
    start, hot = branches[0].p0, branches[0].hot
    shortest, longest = min(reaches), max(reaches)
    return Bar(
        start, start + longest, top, 1, hot, "", True, len(branches), nodes, shortest, longest
    )
