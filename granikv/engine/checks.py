"""The accounting check on a live engine, for tests: every step, every slot (`--granikv-checks`).

A wrong row that dense decode hides still reads right until its old slot is written again, so freed
slots are poisoned with NaN at once: whoever reads one shows it in the next token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from granikv.engine.allocator import slots_of
from granikv.engine.relocation import Move, Reader
from granikv.pools import check
from granikv.prefix_index import Run, path_of
from granikv.ranges import Range


class AccountingError(AssertionError):
    """The storage layer lost, shared or misplaced a slot; the process must not go on."""


class Checks:
    """Audits one tree; built only where the configuration asks for it."""

    def __init__(self, tree: Any) -> None:
        self._tree = tree
        self._guarded: Any = None

    def before_relocation(
        self, moves: Sequence[Move], source: torch.Tensor, readers: Sequence[list[Reader]]
    ) -> None:
        """Every live row through a run names the run's slots, and none is missed.

        Args:
            source: the slots of all runs, one run after the other.
            readers: those of each run.

        Raises:
            AccountingError: a node has another number of live readers than rows were found, or a
                row does not hold the node's slots.
        """
        at = 0
        for move, read_by in zip(moves, readers, strict=True):
            self._before(move.run, source[at : at + move.run.length], read_by)
            at += move.run.length

    def _before(self, run: Run, source: torch.Tensor, readers: list[Reader]) -> None:
        for count, placed in enumerate(run.nodes, start=1):
            found = sum(reader.nodes >= count for reader in readers)
            expected = placed.node.lock_ref - placed.node.pins
            if found != expected:
                raise AccountingError(
                    f"node {placed.node.id} has {expected} live readers and {found} rows were found"
                )
        page_table, p0 = self._tree.req_to_token_pool.req_to_token, run.nodes[0].p0
        for request, covered, _ in readers:
            row = page_table[request.req_pool_idx, p0 : p0 + covered]
            if not torch.equal(row.to(source.dtype), source[:covered]):
                raise AccountingError(f"row of request {request.rid} differs from the tree at {p0}")

    def audit(self) -> None:
        """The accounting check over all slots, from the tree, the pools and the live rows.

        Raises:
            AccountingError, granikv.pools.PoolError: the first thing that does not add up.
        """
        tree = self._tree
        hot, cold = tree.pools()
        self._guard(tree.token_to_kv_pool_allocator)
        owners = torch.zeros(cold.capacity + hot.size + tree.page_size, dtype=torch.int32)
        owners[: tree.page_size] = 1
        cold_live = 0
        for node in self._nodes():
            owners[node.value.cpu()] += 1
            if node.hot_base is None:
                cold_live += len(node.key)
            elif not _is_range(node.value, node.hot_base):
                raise AccountingError(f"HOT node {node.id} is not at its base {node.hot_base}")
        for request in tree.live_requests():
            slots = self._uncached(request)
            owners[slots] += 1
            cold_live += len(slots)
        for slots in hot.free_ranges():
            owners[slots.base : slots.end] += 1
        owners[tree.allocator.free_slots().cpu()] += 1
        wrong = torch.nonzero(owners != 1).flatten().tolist()
        if wrong:
            raise AccountingError(
                f"{len(wrong)} slots are not in exactly one place, first {wrong[:8]}"
            )
        check(hot, cold, tree.index.ranges(), cold_live)
        for request in tree.live_requests():
            self._row_matches_tree(request)
        tree.counters.audits += 1

    def poison(self, slots: torch.Tensor | Range) -> None:
        """Fill freed slots with NaN in every layer."""
        where: Any = slice(slots.base, slots.end) if isinstance(slots, Range) else slots
        kv_cache = self._tree.token_to_kv_pool_allocator.get_kvcache()
        for buffer in (*kv_cache.k_buffer, *kv_cache.v_buffer):
            buffer[where] = float("nan")

    def _guard(self, allocator: Any) -> None:
        """Poison what the engine frees, from the first audit on."""
        if self._guarded is allocator:
            return
        self._guarded = allocator
        allocator.free = self._poisoning(allocator.free)
        allocator.free_segment = self._poisoning(allocator.free_segment)

    def _poisoning(self, free: Callable[..., None]) -> Callable[..., None]:
        def poisoned(slots: torch.Tensor, **kwargs: int) -> None:
            hot, _ = self._tree.pools()
            lent = [(r.base, r.end) for r in hot.donated_ranges()]
            inside = (slots >= hot.start) & (slots < hot.end)
            for base, end in lent:
                inside &= (slots < base) | (slots >= end)
            if bool(inside.any()):
                raise AccountingError(f"HOT slots {slots[inside][:8].tolist()} were freed to COLD")
            free(slots, **kwargs)
            self.poison(slots)

        return poisoned

    def _nodes(self) -> Iterator[Any]:
        stack = list(self._tree.root_node.children.values())
        while stack:
            node = stack.pop()
            stack.extend(node.children.values())
            yield node

    def _uncached(self, request: Any) -> torch.Tensor:
        """Slots that the request holds beyond the tree, its last page whole."""
        page, start = self._tree.page_size, request.cache_protected_len
        stop = request.kv.kv_allocated_len
        row = self._tree.req_to_token_pool.req_to_token[request.req_pool_idx, start:stop].cpu()
        pages = torch.unique(row.long() // page)
        return slots_of(pages, page)

    def _row_matches_tree(self, request: Any) -> None:
        path = path_of(request.last_node)
        if not path:
            return
        slots = torch.cat([node.value for node in path])  # type: ignore[attr-defined]
        row = self._tree.req_to_token_pool.req_to_token[request.req_pool_idx, : len(slots)]
        if not torch.equal(row.to(slots.dtype), slots):
            raise AccountingError(f"row of request {request.rid} differs from its path in the tree")


def _is_range(slots: torch.Tensor, base: int) -> bool:
    expected = torch.arange(base, base + len(slots), dtype=slots.dtype, device=slots.device)
    return torch.equal(slots, expected)
