"""What a table says of the cells of one source: where, how many runs, what was left out."""

from __future__ import annotations

from collections.abc import Sequence

from harness.analysis.cells import KERNEL, CellLike, Standing
from harness.tables.numbers import Point
from harness.tables.sources import CellSource

FEW = 3
"""Runs up to which the interval is about their range (`harness.analysis.statistics.Estimate`)."""
NAMED = 3
"""Cells that are left out and named with their reasons; more are counted."""


def notes(source: CellSource, points: Sequence[Point]) -> list[str]:
    """Of a GPU's cells at these points; empty without any."""
    return [note for note in (_runs(source, points), _left_out(source, points)) if note]


def _runs(source: CellSource, points: Sequence[Point]) -> str:
    places = [place for point in points if (place := source.place(point)) is not None]
    if not places:
        return ""
    served = [place for place in places if place.kind != KERNEL]
    at = concurrency(places)
    budgets = sorted({place.kv_budget for place in served})
    at += f"; KV budget {', '.join(budgets)}" if budgets else ""
    return f"{source.heading}{at}: {_spread(_counts(source, points))}"


def concurrency(places: Sequence[Standing]) -> str:
    """` at B = ...`, every B of these places; empty where none has one."""
    found = sorted({place.b for place in places if place.b is not None})
    return " at B = " + ", ".join(f"{b:,}" for b in found) if found else ""


def _counts(source: CellSource, points: Sequence[Point]) -> set[int]:
    """How many valid runs the points have, without those that have none."""
    valid = {sum(1 for cell in source.shown(point) if cell.valid) for point in points}
    return valid - {0}


def _spread(counts: set[int]) -> str:
    several = {count for count in counts if count > 1}
    if not several:
        return "one run each; nothing is known of the spread between runs."
    said = "means over runs with [low, high], the 95% bootstrap interval over runs"
    if min(several) <= FEW:
        said += f" (of {_either(several)} runs: about their range, so too narrow)"
    return f"{said}; without brackets, one run (of a ratio: on one of its sides)."


def _either(several: set[int]) -> str:
    return " or ".join(str(count) for count in sorted(several) if count <= FEW)


def _left_out(source: CellSource, points: Sequence[Point]) -> str:
    """The cells that are not valid where others of the same kind are: a mean without them."""
    found: dict[str, CellLike] = {}
    for point in points:
        cells = source.shown(point)
        if any(cell.valid for cell in cells):
            found |= {cell.id: cell for cell in cells if not cell.valid}
    if not found:
        return ""
    named = [f"{name} ({'; '.join(found[name].reasons)})" for name in sorted(found)[:NAMED]]
    more = f" and {len(found) - NAMED:,} more" if len(found) > NAMED else ""
    return f"{source.heading}: left out as not valid: {', '.join(named)}{more}."
