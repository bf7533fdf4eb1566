"""What a table says of the cells of one source: where, how many runs, what was left out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations, groupby
from typing import TypeAlias

from harness.analysis.cells import KERNEL, CellLike, Standing, number, standing
from harness.tables.labels import length_label
from harness.tables.numbers import Point, Trait
from harness.tables.sources import CellSource

FEW = 3
"""Runs up to which the interval is about their range (`harness.analysis.statistics.Estimate`)."""
NAMED = 3
"""Cells that are left out and named with their reasons; more are counted."""
FRONT_END_TOK_S = 10_000
"""About what SGLang's HTTP front end delivers when each token is an event of its own, in tok/s."""
NEIGHBOURS = 3
"""Values next to one another from which on they are told as `first to last`."""

Value: TypeAlias = Trait | None
Axis: TypeAlias = tuple[str, Callable[[Point], Value]]
AXES: tuple[Axis, ...] = (
    ("L_p", lambda point: point.l_p),
    ("k", lambda point: point.k),
    ("B", lambda point: point.b),
    ("model", lambda point: point.config),
    ("KV budget", lambda point: dict(point.traits).get("kv_budget")),
)
"""What can tell rows of different stream intervals apart; None where a row has no such value."""


def notes(source: CellSource, points: Sequence[Point]) -> list[str]:
    """Of a GPU's cells at these points; empty without any."""
    said = (_runs(source, points), streaming(source, points), _left_out(source, points))
    return [note for note in said if note]


def streaming(source: CellSource, points: Sequence[Point]) -> str:
    """How many tokens an event of the stream held, by row where rows differ, and what that limits.

    Of a GPU's serving cells at these points, for tables and captions. Empty without any, and where
    each token was an event of its own and none came so fast that it mattered.
    """
    shown = {point: cells for point in points if (cells := _served(source, point))}
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
    said = [grouping(kind) + (_where(kind, intervals) if kinds[1:] else "") for kind in kinds]
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


def _served(source: CellSource, point: Point) -> list[CellLike]:
    """The valid cells behind a point's rates: a kernel serves nothing, a traced cell no rate."""
    cells = [(standing(cell), cell) for cell in source.shown(point) if cell.valid]
    return [cell for at, cell in cells if at.kind != KERNEL and not at.probe]


def _where(interval: int, intervals: Mapping[Point, int]) -> str:
    """` at L_p = ...`: the points of this interval by the fewest axes that tell them apart."""
    axes = _telling(intervals)
    if not axes:
        return " in some rows"
    (name, value), *others = axes
    every = sorted({value(point) for point in intervals}, key=_order)
    rest: dict[str, list[Value]] = {}
    for point in (point for point, found in intervals.items() if found == interval):
        told = "".join(f", {other} = {_label(other, of(point))}" for other, of in others)
        rest.setdefault(told, []).append(value(point))
    parts = [f"{name} = {_listed(name, found, every)}{told}" for told, found in rest.items()]
    return f" at {' and at '.join(parts)}"


def _telling(intervals: Mapping[Point, int]) -> tuple[Axis, ...]:
    """The fewest axes of which equal values mean equal intervals; empty where none are enough."""
    known = [axis for axis in AXES if all(axis[1](point) is not None for point in intervals)]
    for size in range(1, len(known) + 1):
        for axes in combinations(known, size):
            pairs = {(tuple(of(p) for _, of in axes), kind) for p, kind in intervals.items()}
            if len({values for values, _ in pairs}) == len(pairs):
                return axes
    return ()


def _listed(name: str, values: Sequence[Value], every: Sequence[Value]) -> str:
    """Values in order; several that are neighbours among `every` value as `first to last`."""
    at = [index for index, value in enumerate(every) if value in values]
    parts: list[str] = []
    for _, members in groupby(enumerate(at), key=lambda pair: pair[1] - pair[0]):
        labels = [_label(name, every[index]) for _, index in members]
        parts += [f"{labels[0]} to {labels[-1]}"] if len(labels) >= NEIGHBOURS else labels
    *first, last = parts
    return f"{', '.join(first)} and {last}" if first else last


def _label(name: str, value: Value) -> str:
    if isinstance(value, int):
        return length_label(value) if name == "L_p" else f"{value:,}"
    return str(value)


def _order(value: Value) -> tuple[float, str]:
    return (0, str(value)) if isinstance(value, str | None) else (value, "")


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
