"""Room in HOT for the runs that one step makes slabs (paper §3.2, B.12).

Free space first, then loans that nobody uses, then unlocked slabs. Nothing is evicted unless that
makes a range long enough, and nothing at all on a path that this step relocates: a prompt that
ended with its prefill is unlocked, and its KV may still be on its way into a slab.

Locks do not change while a step is placed, so what can be evicted is looked up once for all runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from granikv.engine.loans import Reclaimable, reclaimable
from granikv.pools import ColdPool, HotPool
from granikv.prefix_index import Run, path_of
from granikv.ranges import Range, RangeSet

_AHEAD = 32
"""Once slabs are evicted, more go while no more than this fraction of HOT is free: finding what to
evict takes longer than evicting it, and is so not needed for each of the next prompts."""


class Placement:
    """Places the runs of one step of one tree.

    Args:
        tree: the rank's tree.
        ends: the deepest node of each path that the step relocates.
    """

    def __init__(self, tree: Any, ends: Sequence[Any]) -> None:
        self._tree = tree
        self._ends = ends
        self._victims: list[Any] | None = None
        self._attainable = RangeSet()

    def place(self, run: Run) -> int | None:
        """The first slot of a contiguous range that is the run's now; None to stay COLD."""
        hot, cold = self._tree.pools()
        base: int | None = hot.alloc(run.length, run.prefer)
        if base is None and hot.donated_size:
            base = self._on_loans(hot, cold, run)
        if base is None:
            base = self._in_place_of_slabs(hot, run)
        if base is not None and self._victims is not None:
            self._attainable.remove(Range(base, run.length))
        return base

    def _on_loans(self, hot: HotPool, cold: ColdPool, run: Run) -> int | None:
        """Place the run where HOT has lent space that is free, or held by stale nodes only."""
        loans, nodes = self._loans
        if not loans:
            return None
        self._survey(hot)
        if RangeSet([*self._attainable.ranges(), *loans]).longest() < run.length:
            return None
        for node in nodes:
            if node.parent.children.get(node.key.child_key(self._tree.page_size)) is node:
                self._tree.drop_subtree(node)
        self._tree.take_back(hot, cold)
        del self._loans
        self._victims = None
        return hot.alloc(run.length, run.prefer)

    def _in_place_of_slabs(self, hot: HotPool, run: Run) -> int | None:
        """Evict unlocked slabs, the cheapest first, until the run fits."""
        victims = self._survey(hot)
        if self._attainable.longest() < run.length:
            return None
        base: int | None = None
        while base is None:
            self._evict(victims.pop())
            base = hot.alloc(run.length, run.prefer)
        while victims and hot.free_size + len(victims[-1].key) <= hot.size // _AHEAD:
            self._evict(victims.pop())
        return base

    def _evict(self, victim: Any) -> None:
        if victim.hot_base is not None:  # else it went with a node above it
            self._tree.drop_subtree(victim)

    def _survey(self, hot: HotPool) -> list[Any]:
        """The unlocked slabs, the next to go last; with them, which ranges could be had."""
        if self._victims is None:
            unlocked = [n for n in self._tree.index if n.lock_ref == 0 and n.id not in self._kept]
            slabs = [Range(n.hot_base, len(n.key)) for n in unlocked]
            self._attainable = RangeSet([*hot.free_ranges(), *slabs])
            self._victims = sorted(unlocked, key=self._tree.eviction.key, reverse=True)
        return self._victims

    @cached_property
    def _kept(self) -> frozenset[int]:
        return frozenset(node.id for end in self._ends for node in path_of(end))

    @cached_property
    def _loans(self) -> Reclaimable:
        """Loans that can be ended, and the stale nodes to evict for it; this reads the device.

        Kept until a loan ends, so slots that runs placed later in the step leave are not seen.
        """
        self._tree.copy_placed()  # which frees the slots that they leave
        hot, _ = self._tree.pools()
        return reclaimable(hot, self._tree.allocator.free_slots(), self._stale_nodes())

    def _stale_nodes(self) -> list[Any]:
        """COLD nodes that no live request reads, none came back for and no path needs."""
        stale, stack = [], list(self._tree.root_node.children.values())
        while stack:
            node = stack.pop()
            stack.extend(node.children.values())
            idle = node.hot_base is None and node.lock_ref == 0 and not node.hits
            if idle and node.id not in self._kept:
                stale.append(node)
        return stale
