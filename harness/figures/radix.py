"""Where each node of a served radix tree goes in the layout drawing: positions only, no drawing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

LISTED_COLD = 2
LISTED_HOT = 8
"""Leaves of one pool under one parent that are drawn one by one; more are drawn as one bar."""


@dataclass
class Node:
    """A node as `/server_info` tells it. p0 and length in tokens, base in slots (None: COLD)."""

    id: int
    parent: int | None
    p0: int
    length: int
    base: int | None
    readers: int
    children: list[Node] = field(default_factory=list)

    @property
    def hot(self) -> bool:
        """Whether the node's tokens lie in a slab."""
        return self.base is not None

    @property
    def end(self) -> int:
        """Token position after the node's last."""
        return self.p0 + self.length


@dataclass(frozen=True)
class Bar:
    """One rectangle: tokens [start, end) over rows [top, top + height).

    slab: the letter of a HOT node, empty for COLD and for many HOT leaves in one bar. nodes: how
    many it stands for, of `shortest` to `longest` tokens. leaf: nothing is drawn to its right.
    """

    start: int
    end: int
    top: int
    height: int
    hot: bool
    slab: str
    leaf: bool
    nodes: int
    shortest: int
    longest: int


@dataclass(frozen=True)
class Slab:
    """A HOT node: its letter (empty among many leaves), slots [base, base + length), first token
    position and live readers.
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
    nodes = {
        int(raw["id"]): Node(
            int(raw["id"]),
            None if raw["parent"] is None else int(raw["parent"]),
            int(raw["p0"]),
            int(raw["length"]),
            None if raw.get("base") is None else int(raw["base"]),
            int(raw["readers"]),
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
    """Assign rows: a leaf takes one, a parent spans its children's, many like leaves share one."""
    nodes = _walk(tops)
    shared = {leaf.id for node in nodes for group in _gathered(node) for leaf in group}
    slabs = sorted((node for node in nodes if node.hot), key=_order)
    named = [node.id for node in slabs if node.id not in shared]
    letters = {node_id: letter(index) for index, node_id in enumerate(named)}
    bars: list[Bar] = []
    rows = 0
    for top in tops:
        rows += _place(top, rows, letters, bars)
    listed = tuple(
        Slab(letters.get(n.id, ""), n.base or 0, n.length, n.p0, n.readers) for n in slabs
    )
    return Layout(tuple(bars), listed, rows)


def _walk(nodes: Sequence[Node]) -> list[Node]:
    found: list[Node] = []
    stack = list(nodes)
    while stack:
        node = stack.pop()
        found.append(node)
        stack.extend(node.children)
    return found


def _gathered(node: Node) -> list[list[Node]]:
    """The node's leaves that share a bar: those of a pool with more leaves than are listed."""
    groups = []
    for hot, listed in ((True, LISTED_HOT), (False, LISTED_COLD)):
        leaves = [child for child in node.children if child.hot is hot and not child.children]
        if len(leaves) > listed:
            groups.append(leaves)
    return groups


def _place(node: Node, row: int, letters: Mapping[int, str], bars: list[Bar]) -> int:
    """Place a node at `row` with everything below it; returns the rows taken."""
    groups = _gathered(node)
    shared = {leaf.id for group in groups for leaf in group}
    height = 0
    for child in node.children:
        if child.id not in shared:
            height += _place(child, row + height, letters, bars)
    for group in groups:
        bars.append(_bar(group, row + height, 1, ""))
        height += 1
    height = max(height, 1)
    bars.append(_bar([node], row, height, letters.get(node.id, "")))
    return height


def _bar(nodes: Sequence[Node], top: int, height: int, slab: str) -> Bar:
    lengths = [node.length for node in nodes]
    start, hot, leaf = nodes[0].p0, nodes[0].hot, not nodes[0].children
    shortest, longest = min(lengths), max(lengths)
    return Bar(start, start + longest, top, height, hot, slab, leaf, len(nodes), shortest, longest)
