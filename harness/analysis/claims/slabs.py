"""Judges the storage layer: each of several unequal prefixes lies in a slab of its own (B.8b)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from harness.analysis.cells import CellLike, server_state, standing
from harness.analysis.claims.claim import Claim, Evidence, Result, cell_count
from harness.analysis.slabs import runs

STORING = ("granikv", "granikv_dense", "granikv_cascade", "cascade_on_granikv")


def slab_ends(tree: Sequence[Mapping[str, Any]]) -> list[set[int]]:
    """Of each run of HOT slots that begins at token 0: where its nodes end, in tokens."""
    nodes = {int(node["id"]): node for node in tree}
    ends: dict[int, set[int]] = defaultdict(set)
    for node_id, first in runs(tree).items():
        if nodes[first]["p0"] == 0:
            ends[first].add(nodes[node_id]["p0"] + nodes[node_id]["length"])
    return [*ends.values()]


def unserved(cell: CellLike) -> list[int] | None:
    """Lengths of the prefixes without a slab of their own, in tokens; None where no tree was seen.

    A prefix lies in a run of slots (`slab_ends`) that has a node ending where the prefix ends, less
    than a page before it at the earliest; what lies behind is a suffix. Each run serves one prefix.
    """
    state = server_state(cell)
    if state is None:
        return None
    page = int(state["pools"]["page_size"])
    free, missing = slab_ends(state["tree"]), []
    for length in sorted(standing(cell).prefix_lengths, reverse=True):
        fits = [ends for ends in free if any(length - page < end <= length for end in ends)]
        if fits:
            # One with fewer ends has less use for another prefix.
            free.remove(min(fits, key=len))
        else:
            missing.append(length)
    return missing


def judge(claim: Claim, evidence: Evidence) -> tuple[Result, str, str]:
    """(result, observed, reason) over every valid cell with unequal prefixes and HOT storage."""
    seen = {
        cell.id: missing
        for cell in evidence.cells
        if _counts(cell) and (missing := unserved(cell)) is not None
    }
    if not seen:
        return Result.INCONCLUSIVE, "", "no cell with unequal prefixes and a tree"
    observed = cell_count(len(seen))
    for name, missing in seen.items():
        if missing:
            lengths = ", ".join(f"{length:,}" for length in missing)
            return Result.FAIL, observed, f"cell {name}: no slab for prefixes of {lengths} tokens"
    return Result.PASS, observed, "by the radix tree that the server reported"


def _counts(cell: CellLike) -> bool:
    at = standing(cell)
    return cell.valid and at.unequal and at.system in STORING
