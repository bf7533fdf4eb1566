"""Which HOT nodes of a radix tree lie in one run of slots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def runs(tree: Sequence[Mapping[str, Any]]) -> dict[int, int]:
    """Of each HOT node that a server listed, by id, the id of the first node of its run.

    A child whose tokens and slots both carry on where its parent's end lies in the same run: the
    tree splits a slab where requests part, or one that was asked for again, and moves no slot.
    """
    hot = {int(node["id"]): node for node in tree if node.get("base") is not None}
    found: dict[int, int] = {}
    for node_id in hot:
        chain = [node_id]
        while chain[-1] not in found and (parent := _carried_on(hot, chain[-1])) is not None:
            chain.append(parent)
        first = found.get(chain[-1], chain[-1])
        found |= dict.fromkeys(chain, first)
    return found


def run_count(tree: Sequence[Mapping[str, Any]]) -> int:
    """How many runs of slots hold the tree's HOT nodes, as far as the server listed it."""
    return len(set(runs(tree).values()))


def _carried_on(hot: Mapping[int, Mapping[str, Any]], node_id: int) -> int | None:
    """The parent whose run a node carries on; None where it begins one."""
    node = hot[node_id]
    parent = hot.get(node["parent"]) if node["parent"] is not None else None
    if parent is None:
        return None
    ends = (parent["base"] + parent["length"], parent["p0"] + parent["length"])
    return int(parent["id"]) if ends == (node["base"], node["p0"]) else None
