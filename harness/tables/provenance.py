"""What a table says of the cells of one source: where, how many runs, what was left out."""

from __future__ import annotations

from collections.abc import Sequence

from harness.analysis.cells import KERNEL, CellLike, Standing, number, standing
from harness.tables import clocks, places, sides
from harness.tables.numbers import Point
from harness.tables.sources import CellSource

FEW = 3
"""Runs up to which the interval is about their range (`harness.analysis.statistics.Estimate`)."""
NAMED = 3
"""Cells that are left out and named with their reasons; more are counted."""
BRIEF_S = 1.0
"""Seconds of load below which a cell is said to have been short."""
FRONT_END_TOK_S = 10_000
"""About what SGLang's HTTP front end delivers when each token is an event of its own, in tok/s."""


def notes(
    source: CellSource, points: Sequence[Point], ratios: Sequence[sides.Ratio] = ()
) -> list[str]:
    """Of a GPU's cells at these points, and of ratios that are formed; empty without any."""
    both = [*points, *sides.baselines(ratios)]
    said = (
        _runs(source, points),
        streaming(source, points),
        sides.prefill(source, both),
        sides.apart(source, ratios),
        sides.joined(source, ratios),
        clocks.note(source, both),
        _brief(source, points),
        _left_out(source, points),
    )
    return [note for note in said if note]


def streaming(source: CellSource, points: Sequence[Point]) -> str:
    """How many tokens an event of the stream held, by row where rows differ, and what that limits.

    Of a GPU's serving cells at these points, for tables and captions. Empty without any, and where
    each token was an event of its own and none came so fast that it mattered.
    """
    shown = {point: cells for point in points if (cells := source.served(point))}
    intervals = {point: standing(cells[0]).stream_interval for point, cells in shown.items()}
    kinds = sorted(set(intervals.values()), reverse=True)
    fast = any(
        (number(cell, "output_tok_s") or 0.0) > FRONT_END_TOK_S
        for point, cells in shown.items()
        for cell in cells
        if intervals[point] == 1
    )
    if source.functional or (kinds in ([], [1]) and not fast):
        return ""
    said = [grouping(kind) + (places.where(kind, intervals) if kinds[1:] else "") for kind in kinds]
    limit = (
        f", so that rates above some {FRONT_END_TOK_S:,} tok/s, and ratios of them, are those of "
        "SGLang's HTTP front end (results/h200/engine_rate)"
        if fast
        else ""
    )
    return f"{source.heading}: tokens were streamed {'; '.join(said)}{limit}."


def grouping(stream_interval: int) -> str:
    """How tokens were streamed: one by one or in groups."""
    return "one by one" if stream_interval == 1 else f"in groups of {stream_interval}"


def _runs(source: CellSource, points: Sequence[Point]) -> str:
    found = [place for point in points if (place := source.place(point)) is not None]
    if not found:
        return ""
    served = [place for place in found if place.kind != KERNEL]
    at = concurrency(found)
    budgets = sorted({place.kv_budget for place in served})
    at += f"; KV budget {', '.join(budgets)}" if budgets else ""
    return f"{source.heading}{at}: {_spread(_counts(source, points))}"


def concurrency(standings: Sequence[Standing]) -> str:
    """` at B = ...`, every B of these places; empty where none has one."""
    found = sorted({place.b for place in standings if place.b is not None})
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


def _brief(source: CellSource, points: Sequence[Point]) -> str:
    """At which B a load was over so soon that one hiccup is a good part of its rate."""
    served = [cell for point in points for cell in source.served(point)]
    short = {
        standing(cell).b
        for cell in served
        if (seconds := number(cell, "duration_s")) is not None and seconds < BRIEF_S
    }
    at = ", ".join(f"{b:,}" for b in sorted(b for b in short if b is not None))
    return f"{source.heading}: at B = {at} a whole load took less than a second." if at else ""


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
