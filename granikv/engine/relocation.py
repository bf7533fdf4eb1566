"""Relocation: runs of COLD nodes become slabs (paper §3.2; B.10 says when).

The KV of a prompt is written by prefill before its place in the tree is known, so it lands in COLD
slots and is copied once. The copy runs just before the next forward is planned: on a GPU in that
forward's stream, so after the forward that may still read the old slots and before the one that
reads the new ones. All runs of a step are copied together, since what a copy costs is launches.
Everything that names an old slot is repointed in the same call: the nodes, the page-table rows of
every live request through them, and the requests' own `prefix_indices`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch

from granikv.prefix_index import Run


class Move(NamedTuple):
    """A run that has its slab, and whose KV is still to be copied there."""

    run: Run
    base: int
    """First slot of the slab."""


class Reader(NamedTuple):
    """A live request whose sequence runs through the head of a run."""

    request: Any
    covered: int
    """Tokens of the run that its sequence contains."""
    nodes: int
    """Nodes of the run that its sequence contains."""


def readers_of(moves: Sequence[Move], live: Iterable[Any]) -> list[list[Reader]]:
    """For each move, the requests in ``live`` that read its run.

    Each holds a page-table row that names the run's slots.
    """
    ends: dict[int, tuple[int, int, int]] = {}
    for number, move in enumerate(moves):
        covered = 0
        for count, placed in enumerate(move.run.nodes, start=1):
            covered += len(placed.node.key)
            ends[placed.node.id] = (number, covered, count)
    readers: list[list[Reader]] = [[] for _ in moves]
    for request in live:
        node, seen = request.last_node, -1
        while node is not None:
            number, covered, count = ends.get(node.id, (seen, 0, 0))
            if number != seen:  # the deepest of the run's nodes on this path
                readers[number].append(Reader(request, covered, count))
                seen = number
            node = node.parent
    return readers


Copier = Callable[[torch.Tensor, torch.Tensor], None]
"""Copies the K and V of source slots [n], in all layers, to the target slots [n]."""


def copier(kv_cache: Any) -> Copier:
    """The copy for this pool: one launch on a GPU, plain indexing on a CPU."""
    buffers = [*kv_cache.k_buffer, *kv_cache.v_buffer]
    if buffers[0].is_cuda:
        from granikv.attention.kernels.relocate import Relocator

        return Relocator(buffers).copy

    def copy_slots(source: torch.Tensor, target: torch.Tensor) -> None:
        for buffer in buffers:
            buffer[target] = buffer[source]

    return copy_slots


def repoint(
    readers: Sequence[Reader], page_table: torch.Tensor, p0: int, slots: torch.Tensor
) -> None:
    """Point each reader's row, and its `prefix_indices`, at the slab.

    Args:
        page_table: [requests, context] slot of each token position.
        p0: token position at which the run starts.
        slots: [run.length] the slab's slots, in token order.
    """
    for request, covered, _ in readers:
        page_table[request.req_pool_idx, p0 : p0 + covered] = slots[:covered]
        known = request.prefix_indices
        within = min(len(known) - p0, covered)
        if within > 0:
            known[p0 : p0 + within] = slots[:within]
