"""One relocation: a run of COLD nodes becomes a slab (paper §3.2; B.10 says when).

The KV of a prompt is written by prefill before its place in the tree is known, so it lands in COLD
slots and is copied once. The copy runs just before the next forward is planned: on a GPU in that
forward's stream, so after the forward that may still read the old slots and before the one that
reads the new ones. Everything that names an old slot is repointed in the same call: the nodes, the
page-table rows of every live request through them, and the requests' own `prefix_indices`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch

from granikv.prefix_index import Run


class Reader(NamedTuple):
    """A live request whose sequence runs through the head of a run."""

    request: Any
    covered: int
    """Tokens of the run that its sequence contains."""
    nodes: int
    """Nodes of the run that its sequence contains."""


def readers_of(run: Run, live: Iterable[Any]) -> list[Reader]:
    """The requests in ``live`` that read the run; each holds a page-table row that names it."""
    ends: dict[int, tuple[int, int]] = {}
    covered = 0
    for count, placed in enumerate(run.nodes, start=1):
        covered += len(placed.node.key)
        ends[placed.node.id] = (covered, count)
    readers = []
    for request in live:
        node = request.last_node
        while node is not None and node.id not in ends:
            node = node.parent
        if node is not None:
            readers.append(Reader(request, *ends[node.id]))
    return readers


Copier = Callable[[torch.Tensor, int], None]
"""Copies the K and V of source slots [n], in all layers, to the slots base..base+n."""


def copier(kv_cache: Any) -> Copier:
    """The copy for this pool: one launch on a GPU, plain indexing on a CPU."""
    buffers = [*kv_cache.k_buffer, *kv_cache.v_buffer]
    if buffers[0].is_cuda:
        from granikv.attention.kernels.relocate import Relocator

        return Relocator(buffers).copy

    def copy_slots(source: torch.Tensor, base: int) -> None:
        stop = base + source.numel()
        for buffer in buffers:
            buffer[base:stop] = buffer[source]

    return copy_slots


def repoint(readers: list[Reader], page_table: torch.Tensor, p0: int, base: int) -> None:
    """Point each reader's row, and its `prefix_indices`, at the slab.

    Args:
        page_table: [requests, context] slot of each token position.
        p0: token position at which the run starts.
        base: first slot of the slab.
    """
    for request, covered, _ in readers:
        slots = torch.arange(base, base + covered, dtype=torch.int64, device=page_table.device)
        page_table[request.req_pool_idx, p0 : p0 + covered] = slots.to(page_table.dtype)
        known = request.prefix_indices
        within = min(len(known), p0 + covered) - p0
        if within > 0:
            known[p0 : p0 + within] = slots[:within].to(known.device)


def run_slots(run: Run) -> torch.Tensor:
    """The COLD slots [run.length] that the run's nodes hold, in token order."""
    slots: torch.Tensor = torch.cat([placed.node.value for placed in run.nodes])  # type: ignore[attr-defined]
    return slots
