"""Where something holds among a table's places, in words: ` at L_p = 8K and 16K`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations, groupby
from typing import TypeAlias

from harness.tables.labels import length_label
from harness.tables.numbers import Point, Trait

NEIGHBOURS = 3
"""Values next to one another from which on they are told as `first to last`."""

Value: TypeAlias = Trait | None
Axis: TypeAlias = tuple[str, Callable[[Point], Value]]
LOAD = "load"
WORDS = {
    "negative_control": "prompts of their own",
    "toolagent": "the tool-agent trace",
    "conversation": "the conversation trace",
}


def _load(point: Point) -> str:
    """What is served, in words: several prefixes by their number."""
    if point.k > 1:
        return f"{point.k} prefixes"
    name = str(dict(point.traits).get("trace") or point.workload)
    return WORDS.get(name, name)


AXES: tuple[Axis, ...] = (
    ("L_p", lambda point: point.l_p),
    ("k", lambda point: point.k or None),
    ("B", lambda point: point.b),
    ("model", lambda point: point.config),
    ("KV budget", lambda point: dict(point.traits).get("kv_budget")),
    (LOAD, _load),
)
"""What can tell rows of different kinds apart; None where a row has no such value."""


def where(kind: int, kinds: Mapping[Point, int]) -> str:
    """` at L_p = ...`: the points of one kind by the fewest axes that tell them from the others."""
    axes = _telling(kinds)
    if not axes:
        return " in some rows"
    (name, value), *others = axes
    every = sorted({value(point) for point in kinds}, key=_order)
    rest: dict[str, list[Value]] = {}
    for point in (point for point, found in kinds.items() if found == kind):
        told = "".join(f", {other} = {_label(other, of(point))}" for other, of in others)
        rest.setdefault(told, []).append(value(point))
    parts = [f"{name} = {_listed(name, found, every)}{told}" for told, found in rest.items()]
    return f" at {' and at '.join(parts)}"


def _telling(kinds: Mapping[Point, int]) -> tuple[Axis, ...]:
    """The fewest axes of which equal values mean equal kinds; empty where none are enough."""
    known = [axis for axis in AXES if all(axis[1](point) is not None for point in kinds)]
    for size in range(1, len(known) + 1):
        for axes in combinations(known, size):
            pairs = {(tuple(of(p) for _, of in axes), kind) for p, kind in kinds.items()}
            if len({values for values, _ in pairs}) == len(pairs):
                return axes
    return ()


def _listed(name: str, values: Sequence[Value], every: Sequence[Value]) -> str:
    """Values in order; several that are neighbours among `every` value as `first to last`."""
    at = [index for index, value in enumerate(every) if value in values]
    parts: list[str] = []
    for _, members in groupby(enumerate(at), key=lambda pair: pair[1] - pair[0]):
        labels = [_label(name, every[index]) for _, index in members]
        in_a_row = len(labels) >= NEIGHBOURS and name != LOAD
        parts += [f"{labels[0]} to {labels[-1]}"] if in_a_row else labels
    *first, last = parts
    return f"{', '.join(first)} and {last}" if first else last


def _label(name: str, value: Value) -> str:
    if isinstance(value, int):
        return length_label(value) if name == "L_p" else f"{value:,}"
    return str(value)


def _order(value: Value) -> tuple[float, str]:
    return (0, str(value)) if isinstance(value, str | None) else (value, "")
