"""Judges the storage layer: each of several unequal prefixes lies in a slab of its own (B.8b)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.analysis.cells import CellLike, server_state, standing
from harness.analysis.claims.claim import Claim, Evidence, Result
from harness.figures.radix import Node, parse

STORING = ("granikv", "granikv_dense", "granikv_cascade", "cascade_on_granikv")


def slab_reaches(tops: Sequence[Node]) -> list[int]:
    """The longest HOT path from each HOT node without a HOT parent, tokens, longest first."""
    return sorted((_reach(node) for node in _hot_tops(tops)), reverse=True)


def _hot_tops(nodes: Sequence[Node]) -> Iterator[Node]:
    for node in nodes:
        if node.hot:
            yield node
        else:
            yield from _hot_tops(node.children)


def _reach(node: Node) -> int:
    below = [_reach(child) for child in node.children if child.hot]
    return node.length + max(below, default=0)


def unserved(cell: CellLike) -> list[int] | None:
    """Lengths of the prefixes without a slab of their own, in tokens; None where no tree was seen.

    The longest prefix takes the longest slab, and so on down: what is left over has none. A slab
    may be shorter than its prefix by less than a page.
    """
    state = server_state(cell)
    if state is None:
        return None
    page = int(state["pools"]["page_size"])
    reaches = slab_reaches(parse(state["tree"]))
    lengths = sorted(standing(cell).prefix_lengths, reverse=True)
    reaches += [0] * (len(lengths) - len(reaches))
    return [n for n, reach in zip(lengths, reaches, strict=False) if reach <= n - page]


def judge(claim: Claim, evidence: Evidence) -> tuple[Result, str, str]:
    """(result, observed, reason) over every valid cell with unequal prefixes and HOT storage."""
    seen = {
        cell.id: missing
        for cell in evidence.cells
        if _counts(cell) and (missing := unserved(cell)) is not None
    }
    if not seen:
        return Result.INCONCLUSIVE, "", "no cell with unequal prefixes and a tree"
    observed = f"{len(seen):,} cells"
    for name, missing in seen.items():
        if missing:
            lengths = ", ".join(f"{length:,}" for length in missing)
            return Result.FAIL, observed, f"cell {name}: no slab for prefixes of {lengths} tokens"
    return Result.PASS, observed, "by the radix tree that the server reported"


def _counts(cell: CellLike) -> bool:
    at = standing(cell)
    return cell.valid and at.unequal and at.system in STORING
