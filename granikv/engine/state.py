"""What `/server_info` shows of the storage layer: internal_states[0]["granikv"], by rank."""

from __future__ import annotations

from typing import Any

import torch.distributed

from granikv.engine.runtime import Runtime
from granikv.engine.tree import GraniKVRadixCache

MAX_NODES = 4096
"""Nodes of the tree's layout that are sent; `tree_nodes` says how many there are."""


def snapshot(runtime: Runtime, prefill_backend: str) -> dict[str, Any]:
    """Backends, pools, counters and the tree's layout of one rank; plain JSON values."""
    state: dict[str, Any] = {
        "system": runtime.config.system,
        "config": runtime.config.public(),
        "backends": {
            "decode": "granikv",
            "prefill": prefill_backend,
            "forced": None if runtime.config.backend == "auto" else runtime.config.backend,
            "rule": runtime.rule.describe() if runtime.rule is not None else None,
        },
        "counters": {
            **runtime.dispatched.as_dict(),
            "steps_unplanned": runtime.unplanned,
            "steps_overflowed": runtime.overflowed,
        },
    }
    if runtime.tree is not None:
        state["counters"].update(runtime.tree.counters.as_dict())
        state["pools"] = pool_state(runtime.tree)
        state["live_requests"] = len(runtime.tree.live)
        state["pins"] = runtime.tree.pins.as_dicts()
        state["tree"], state["tree_nodes"] = tree_layout(runtime.tree)
    return state


def of_all_ranks(own: dict[str, Any], scheduler: Any) -> list[dict[str, Any]]:
    """The snapshots of all tensor-parallel ranks, in their order.

    Collective: the engine hands a request for its state to every rank between the same two steps,
    and only rank 0's answer reaches the front end.
    """
    ranks = int(scheduler.ps.tp_size)
    if ranks == 1:
        return [own]
    states = [own] * ranks
    torch.distributed.all_gather_object(states, own, group=scheduler.tp_cpu_group)
    return states


def pool_state(tree: GraniKVRadixCache) -> dict[str, Any]:
    """Occupancy of both pools, in slots, and HOT's ranges as [base, length]."""
    hot, cold = tree.pools()
    return {
        "capacity": hot.size + cold.capacity,
        "page_size": hot.page_size,
        "hot_start": hot.start,
        "hot_size": hot.size,
        "hot_free": hot.free_size,
        "hot_live": hot.live_size,
        "hot_donated": hot.donated_size,
        "cold_free": cold.free_size,
        "cold_live": cold.live_size,
        "hot_live_ranges": [list(r) for r in hot.live_ranges()],
        "hot_donated_ranges": [list(r) for r in hot.donated_ranges()],
    }


def tree_layout(tree: GraniKVRadixCache) -> tuple[list[dict[str, Any]], int]:
    """The tree's nodes from the root down, breadth first, and how many there are in all."""
    layout: list[dict[str, Any]] = []
    level = [(child, None, 0) for child in tree.root_node.children.values()]
    count = 0
    while level:
        below = []
        for node, parent, p0 in level:
            count += 1
            if len(layout) < MAX_NODES:
                layout.append(_node(node, parent, p0))
            stop = p0 + len(node.key)
            below += [(child, node.id, stop) for child in node.children.values()]
        level = below
    return layout, count


def _node(node: Any, parent: int | None, p0: int) -> dict[str, Any]:
    return {
        "id": node.id,
        "parent": parent,
        "p0": p0,
        "length": len(node.key),
        "pool": "COLD" if node.hot_base is None else "HOT",
        "base": node.hot_base,
        "readers": node.lock_ref - node.pins,
        "pinned": node.pins > 0,
        "children": len(node.children),
    }
