"""In what the systems that a table compares differ besides their storage, or the paper's design.

Two sides of a ratio can be measured on other days, and two systems prefill in other ways.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import combinations
from typing import TypeAlias

from harness.analysis import rounds
from harness.analysis.cells import KERNEL, CellLike, prefill_backend, revision, standing
from harness.tables import places
from harness.tables.entries import Measured
from harness.tables.labels import system_label
from harness.tables.numbers import Metric, Number, Point
from harness.tables.sources import CellSource

Ratio: TypeAlias = tuple[Point, Number]
"""A row's place and the ratio that is formed there."""
Pair: TypeAlias = tuple[list[CellLike], list[CellLike]]

TOGETHER = timedelta(hours=1)
"""Between both sides' measurements, from which on they are said to be apart."""
BACKENDS = {"flashinfer": "FlashInfer", "fa3": "FA3", "fa4": "FA4", "triton": "Triton"}
"""Names of attention backends as their authors write them."""


def baselines(ratios: Sequence[Ratio]) -> list[Point]:
    """The places of what these ratios are to."""
    return [
        replace(number.place(point), system=number.baseline)
        for point, number in ratios
        if isinstance(number, Metric) and number.baseline is not None
    ]


def prefill(source: CellSource, points: Sequence[Point]) -> str:
    """Which systems prefill by which backend on pages of how many tokens, by what servers said.

    Empty where all do alike, or for a CPU's cells.
    """
    found: dict[tuple[str, int], list[str]] = {}
    for cell in (cell for point in points for cell in source.served(point)):
        way, system = prefill_backend(cell), system_label(standing(cell).system)
        if way is not None and system not in found.setdefault(way, []):
            found[way].append(system)
    if source.functional or len({tuple(systems) for systems in found.values()}) < 2:
        return ""
    said = [
        f"{BACKENDS.get(backend, backend)} on pages of {page_size} ({', '.join(systems)})"
        for (backend, page_size), systems in found.items()
    ]
    return f"{source.heading}: prefill by {', '.join(said)}."


def apart(source: CellSource, ratios: Sequence[Ratio]) -> str:
    """Which ratios have sides of different revisions or of hours that lie apart; empty of none.

    By when their cells started and the revision that measured them. Of GPU cells.
    """
    kinds: dict[str, dict[Point, int]] = {}
    joined: dict[str, dict[Point, int]] = {}
    reasons: list[str] = []
    for point, number in ratios:
        for pair in _pairs(source, point, number):
            why = _why(pair)
            reasons += [why] if why else []
            names = [system_label(standing(side[0]).system) for side in pair]
            kinds.setdefault(" to ".join(names), {})[point] = int(bool(why))
            for name, side in zip(names, pair, strict=True):
                several = len({revision(cell) for cell in side}) > 1
                joined.setdefault(name, {})[point] = int(several)
    if source.functional or not reasons:
        return ""
    own = _told(joined)
    return (
        f"{source.heading}: {'; '.join(_told(kinds))}: both sides measured apart "
        f"({' or '.join(dict.fromkeys(reasons))}, perhaps another GPU); an interval covers runs "
        "on one server of each side"
        + (f", but of {' and '.join(own)} runs of several revisions." if own else ".")
    )


def joined(source: CellSource, ratios: Sequence[Ratio]) -> str:
    """Which ratios are computed of kernels, traces and rates that were measured apart.

    Empty of none. Such a ratio has more than two sides; of GPU cells.
    """
    said: dict[str, list[str]] = {}
    for point, number in ratios:
        entry = number.entry(source, point)
        if isinstance(number, Metric) or not isinstance(entry, Measured):
            continue
        found = [_why(pair) for pair in combinations(_of_each_kind(source.named(entry.cells)), 2)]
        if why := [reason for reason in found if reason]:
            said.setdefault(number.title, []).extend(why)
    if source.functional or not said:
        return ""
    reasons = dict.fromkeys(reason for found in said.values() for reason in found)
    return (
        f"{source.heading}: {', '.join(said)}: of kernels, traces and rates measured apart "
        f"({' or '.join(reasons)}, perhaps another GPU)."
    )


def _of_each_kind(cells: Sequence[CellLike]) -> list[list[CellLike]]:
    """Kernels, traced cells and rates."""
    kinds: dict[tuple[bool, str], list[CellLike]] = {}
    for cell in cells:
        at = standing(cell)
        kinds.setdefault((at.kind == KERNEL, at.probe), []).append(cell)
    return list(kinds.values())


def _told(kinds: Mapping[str, Mapping[Point, int]]) -> list[str]:
    """The names of which something holds (1), with where unless it holds everywhere."""
    return [
        name + ("" if all(found.values()) else places.where(1, found))
        for name, found in kinds.items()
        if any(found.values())
    ]


def _pairs(source: CellSource, point: Point, number: Number) -> Iterator[Pair]:
    """The cells of both sides, each of one system; of a number of several systems every two."""
    sides: dict[str, list[CellLike]] = {}
    for cell in _behind(source, point, number):
        sides.setdefault(standing(cell).system, []).append(cell)
    yield from combinations(sides.values(), 2)


def _behind(source: CellSource, point: Point, number: Number) -> list[CellLike]:
    """The cells that served: a kernel's are no side of a ratio of systems."""
    if isinstance(number, Metric) and number.baseline is not None:
        top = number.place(point)
        return [*source.served(top), *source.served(replace(top, system=number.baseline))]
    entry = number.entry(source, point)
    return source.rates(source.named(entry.cells)) if isinstance(entry, Measured) else []


def _why(pair: Pair) -> str:
    revisions = [{revision(cell) for cell in side} for side in pair]
    if revisions[0] != revisions[1]:
        return "another revision"
    times = [[at for cell in side if (at := rounds.started(cell)) is not None] for side in pair]
    return "more than an hour between them" if all(times) and _gap(*times) > TOGETHER else ""


def _gap(one: Sequence[datetime], other: Sequence[datetime]) -> timedelta:
    """Between the end of the earlier side and the start of the later; not above 0 where mixed."""
    return max(min(other) - max(one), min(one) - max(other))
