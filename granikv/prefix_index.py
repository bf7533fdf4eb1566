"""What a radix-tree node knows of its storage: a HOT base, or COLD (paper §3.4, B.10).

The tree is the engine's; this module adds the pool identity to its nodes and keeps the books of
slabs: which nodes are HOT, where a run of COLD nodes could become one slab, what a split and a
removal do to a base. It imports neither torch nor SGLang.

A node is HOT when ``hot_base`` is the first slot of its contiguous range, and COLD when it is
``None``. A HOT node never changes its base while it is in the tree, except that a split gives the
lower half ``base + split_len``: the bytes stay where they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sized
from typing import Any, NamedTuple, Protocol

from granikv.admission import AdmissionPolicy, Candidate
from granikv.ranges import Range


class PrefixNode(Protocol):
    """The part of the engine's tree node that the storage layer reads.

    ``lock_ref`` counts the live requests through the node, plus one for each pin.
    """

    id: int
    parent: Any
    lock_ref: int
    hot_base: int | None
    refusals: int
    pins: int

    @property
    def key(self) -> Sized:
        """The node's tokens; only their number is looked at."""


class Placed(NamedTuple):
    """A node and the token position at which it starts in every sequence through it."""

    node: PrefixNode
    p0: int


class Run(NamedTuple):
    """Neighbouring COLD nodes of one path that are to become one slab."""

    nodes: tuple[Placed, ...]
    length: int
    prefer: int | None
    """The end of the parent's slab: if the run is placed there, the slab is extended in place."""


def path_of(node: PrefixNode) -> list[PrefixNode]:
    """The nodes from just below the root down to ``node``; empty for the root itself."""
    path: list[PrefixNode] = []
    while node.parent is not None:
        path.append(node)
        node = node.parent
    path.reverse()
    return path


def placed_path(node: PrefixNode) -> list[Placed]:
    """``path_of`` with the token position at which each node starts."""
    placed: list[Placed] = []
    p0 = 0
    for step in path_of(node):
        placed.append(Placed(step, p0))
        p0 += len(step.key)
    return placed


class PrefixIndex:
    """The HOT nodes of one tree, with a version that changes when a plan could be stale."""

    def __init__(self) -> None:
        self.version = 0
        self._hot: dict[int, PrefixNode] = {}

    def __iter__(self) -> Iterator[PrefixNode]:
        return iter(self._hot.values())

    def __len__(self) -> int:
        return len(self._hot)

    def place(self, node: PrefixNode, base: int) -> None:
        """Make a COLD node HOT at ``base``.

        Raises:
            ValueError: the node is HOT already; a HOT node never moves (§3.2, B.10).
        """
        if node.hot_base is not None:
            raise ValueError(f"node {node.id} is HOT at {node.hot_base} and never moves")
        node.hot_base = base
        self._hot[node.id] = node
        self.version += 1

    def split(self, upper: PrefixNode, lower: PrefixNode, split_len: int) -> None:
        """``upper`` took the first ``split_len`` tokens of ``lower``: contiguity is kept."""
        upper.pins = lower.pins
        upper.refusals = lower.refusals
        if lower.hot_base is None:
            return
        upper.hot_base = lower.hot_base
        lower.hot_base += split_len
        self._hot[upper.id] = upper
        self.version += 1

    def drop(self, node: PrefixNode) -> Range | None:
        """``node`` leaves the tree; the slab range to release, or ``None`` if it was COLD."""
        if node.hot_base is None:
            return None
        del self._hot[node.id]
        self.version += 1
        freed = Range(node.hot_base, len(node.key))
        node.hot_base = None
        return freed

    def ranges(self) -> list[Range]:
        """The slot range of each HOT node, sorted by base."""
        return sorted(Range(n.hot_base, len(n.key)) for n in self if n.hot_base is not None)

    def runs(self, node: PrefixNode, policy: AdmissionPolicy, prompt_len: int) -> list[Run]:
        """The slabs that ``policy`` wants on the path to ``node``.

        Neighbouring COLD nodes that the policy accepts are one run, so that a prompt that was
        inserted chunk by chunk becomes one slab. A run shorter than the policy's minimum stays.

        Args:
            prompt_len: tokens of this path that belong to a prompt; what lies behind was generated.
        """
        runs: list[Run] = []
        open_run: list[Placed] = []
        for placed in [*placed_path(node), None]:
            if placed is not None and self._wanted(placed, policy, prompt_len):
                open_run.append(placed)
            elif open_run:
                run = _run_of(open_run)
                if policy.long_enough(run.length):
                    runs.append(run)
                open_run = []
        return runs

    @staticmethod
    def _wanted(placed: Placed, policy: AdmissionPolicy, prompt_len: int) -> bool:
        node = placed.node
        if node.hot_base is not None:
            return False
        return policy.wants(
            Candidate(
                readers=node.lock_ref - node.pins,
                prompt=placed.p0 + len(node.key) <= prompt_len,
                pinned=node.pins > 0,
                refusals=node.refusals,
            )
        )


def _run_of(nodes: list[Placed]) -> Run:
    parent = nodes[0].node.parent
    prefer = None if parent.hot_base is None else parent.hot_base + len(parent.key)
    return Run(tuple(nodes), sum(len(p.node.key) for p in nodes), prefer)
