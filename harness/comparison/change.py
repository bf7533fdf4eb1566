"""What changed from A to B in one metric of one experiment, and whether it is a regression."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from harness.analysis import statistics
from harness.analysis.statistics import UNSTEADY, Estimate
from harness.comparison.metrics import Better, better
from harness.comparison.pairs import Pair
from harness.comparison.record import Record

TOLERANCE = 0.02
"""Changes up to this are none, relative: no interval over three runs is that exact."""


class Kind(Enum):
    """What a change is."""

    REGRESSION = "regression"
    IMPROVEMENT = "improvement"
    SAME = "same"
    UNKNOWN = "not comparable"


@dataclass(frozen=True)
class Change:
    """One metric of one experiment.

    a, b: means over valid runs with their intervals, None where it was not measured. ratio: B to A,
    None where there is none. `note` explains what a reader might miss.
    """

    title: str
    metric: str
    kind: Kind
    a: Estimate | None
    b: Estimate | None
    ratio: Estimate | None
    note: str = ""


def changes(pair: Pair, tolerance: float = TOLERANCE) -> list[Change]:
    """Every metric with a direction that either side has. One change without valid runs.

    A regression is an interval of the ratio that lies wholly on the worse side of 1 by more than
    the tolerance; with one run on a side there is no interval, and the tolerance is UNSTEADY. No
    valid run in B where A has some is a regression too.
    """
    a, b = ([one for one in side if one.valid] for side in (pair.a, pair.b))
    if not a or not b:
        return [_without_valid_runs(pair, a, b)]
    names = dict.fromkeys(name for one in (*a, *b) for name in one.metrics if better(name))
    found = [
        _change(pair.title, name, _values(a, name), _values(b, name), tolerance) for name in names
    ]
    return [one for one in found if one.a is not None or one.b is not None]


def _without_valid_runs(pair: Pair, a: Sequence[Record], b: Sequence[Record]) -> Change:
    side, records = ("A", pair.a) if not a else ("B", pair.b)
    reason = records[0].reasons[0] if records[0].reasons else "no reason is given"
    kind = Kind.REGRESSION if a else Kind.UNKNOWN
    return Change(pair.title, "valid runs", kind, None, None, None, f"{side} has none: {reason}")


def _values(records: Sequence[Record], metric: str) -> list[float]:
    values = [record.metrics.get(metric, math.nan) for record in records]
    return [value for value in values if math.isfinite(value)]


def _change(
    title: str, metric: str, a: Sequence[float], b: Sequence[float], tolerance: float
) -> Change:
    mean_a, mean_b = (statistics.mean(side) if side else None for side in (a, b))
    if not a or not b or min(a) <= 0:
        note = "" if a and b else f"not measured in {'B' if a else 'A'}"
        return Change(title, metric, Kind.UNKNOWN, mean_a, mean_b, None, note)
    ratio = statistics.ratio(b, a)
    single = ratio.runs < 2
    kind = _kind(ratio, better(metric), max(tolerance, UNSTEADY) if single else tolerance)
    return Change(title, metric, kind, mean_a, mean_b, ratio, _note(ratio, single))


def _kind(ratio: Estimate, direction: Better | None, tolerance: float) -> Kind:
    less, more = ratio.high < 1 - tolerance, ratio.low > 1 + tolerance
    worse, improved = (less, more) if direction is Better.MORE else (more, less)
    if worse:
        return Kind.REGRESSION
    return Kind.IMPROVEMENT if improved else Kind.SAME


def _note(ratio: Estimate, single: bool) -> str:
    if single:
        return f"one run: ±{UNSTEADY:.0%}"
    return f"runs deviate by {ratio.deviation:.0%}" if ratio.unsteady else ""
