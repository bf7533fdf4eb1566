"""Judges that a system is nowhere worse than a baseline over a whole L_p × B grid.

A point is a ratio of output throughput, or of a metric that a claim names: of one that is better
when it is less, the claim's `system` is the rival and its `baseline` what is claimed of.

With MINIMUM_RUNS runs of both systems a point's spread is known: it is worse where it lies below
`floor` or its 95% interval wholly below 1.00. With fewer it may be chance, so it is never called
worse. It counts as not worse from 1.00 + `spread` on, as far apart as single runs of one cell lie;
below that MINIMUM_RUNS runs are asked for, and from 1.00 - `spread` on it still counts for the
geometric mean.

FAIL: a point is worse, or every point counts for the mean and that is below 1.00. PASS: every point
is not worse, and the mean is at or above 1.00. INCONCLUSIVE: points are missing or asked for.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import TypeAlias

from harness.analysis.claims.claim import Claim, Evidence, Result
from harness.analysis.claims.ratio import MINIMUM_RUNS
from harness.analysis.statistics import Estimate
from harness.tables import grid
from harness.tables.entries import Kind, Measured
from harness.tables.labels import length_label
from harness.tables.numbers import Metric, Point

Place: TypeAlias = tuple[int, int]
"""L_p in tokens, B."""

PLACES: dict[str, list[Place]] = {
    "sharegpt": list(product(grid.SHAREGPT_LENGTHS, grid.SHAREGPT_B)),
    "synthetic": list(product(grid.SYNTHETIC_LENGTHS, grid.SYNTHETIC_B)),
}
"""The grids of the paper's tables, by workload."""


@dataclass(frozen=True)
class Rule:
    """No known point below `floor`; `spread`: how far apart single runs of one cell lie."""

    floor: float
    spread: float

    def worse(self, one: Estimate) -> str:
        """Why the point is worse; empty where it is not, or not known to be."""
        if not _known(one):
            return ""
        if one.value < self.floor:
            return f"{one.value:.2f}×, below {self.floor}×"
        if one.high < 1.0:
            return f"the interval [{one.low:.2f}, {one.high:.2f}] lies below 1.00×"
        return ""

    def asks(self, one: Estimate) -> bool:
        """Whether MINIMUM_RUNS runs are needed to tell if the point is worse."""
        return not _known(one) and one.low < 1.0 + self.spread

    def counts(self, one: Estimate) -> bool:
        """Whether the geometric mean is formed with it."""
        return _known(one) or one.value >= 1.0 - self.spread


def judge(claim: Claim, evidence: Evidence) -> tuple[Result, str, str]:
    """(result, observed, reason) of one hardware.

    options: `config`, `system`, `baseline`, the two numbers of `Rule`, and where they are not
    ShareGPT's output throughput, `workload` (of PLACES) and `metric`.
    """
    rule = Rule(float(claim.options["floor"]), float(claim.options["spread"]))
    if evidence.functional:
        return Result.INCONCLUSIVE, "", "a CPU cell is a functional check and forms no ratio"
    points = len(PLACES[_workload(claim)])
    found = _ratios(claim, evidence)
    if not found:
        return Result.INCONCLUSIVE, "", "not measured"
    counted = [one for one in found.values() if rule.counts(one)]
    mean = _geometric_mean(counted)
    observed = _observed(found, mean, len(counted), points)
    if worse := {place: why for place, one in found.items() if (why := rule.worse(one))}:
        said = [f"{_label(place)}: {worse[place]}" for place in _lowest_first(found, worse)]
        return Result.FAIL, observed, "; ".join(said)
    if len(counted) == points and mean < 1.0:
        return Result.FAIL, observed, "the geometric mean is below 1.00×"
    if reasons := list(_undecided(found, rule, points)):
        return Result.INCONCLUSIVE, observed, "; ".join(reasons)
    return Result.PASS, observed, _passed(found, rule)


def _known(one: Estimate) -> bool:
    return one.runs >= MINIMUM_RUNS


def _geometric_mean(counted: Iterable[Estimate]) -> float:
    """NaN without any."""
    logs = [math.log(one.value) for one in counted]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan


def _observed(found: Mapping[Place, Estimate], mean: float, counted: int, points: int) -> str:
    worst = _lowest_first(found, found)[0]
    lowest = f"lowest {_single(worst, found[worst])}"
    of = "" if counted == points else f" of {counted} points"
    return f"{lowest}, geometric mean {mean:.2f}×{of}" if counted else lowest


def _undecided(found: Mapping[Place, Estimate], rule: Rule, points: int) -> Iterable[str]:
    """Why nothing is decided: what was not measured, and what to measure again."""
    if len(found) < points:
        yield f"{len(found)} of {points} points measured"
    if asked := [place for place, one in found.items() if rule.asks(one)]:
        named = ", ".join(_single(place, found[place]) for place in _lowest_first(found, asked))
        yield (
            f"measure again, {MINIMUM_RUNS} runs, what goes below {1 + rule.spread:.2f}× "
            f"in fewer: {named}"
        )


def _passed(found: Mapping[Place, Estimate], rule: Rule) -> str:
    known = sum(_known(one) for one in found.values())
    said = [f"{known} of {MINIMUM_RUNS} runs or more, no interval wholly below 1.00×"] * (known > 0)
    if few := len(found) - known:
        said.append(f"{few} of fewer, at least {1 + rule.spread:.2f}×")
    return f"all {len(found)} points: {'; '.join(said)}"


def _lowest_first(found: Mapping[Place, Estimate], places: Iterable[Place]) -> list[Place]:
    return sorted(places, key=lambda place: (found[place].value, place))


def _single(place: Place, one: Estimate) -> str:
    runs = "one run" if one.runs == 1 else f"{one.runs} runs"
    return f"{_times(one.value)} at {_label(place)} ({runs})"


def _times(value: float) -> str:
    """With a third decimal where two would say that what is below 1.00 is not."""
    return f"{value:.2f}×" if value >= 1.0 or value < 0.995 else f"{value:.3f}×"


def _label(place: Place) -> str:
    l_p, b = place
    return f"L_p = {length_label(l_p)}, B = {b:,}"


def _ratios(claim: Claim, evidence: Evidence) -> dict[Place, Estimate]:
    options, workload = claim.options, _workload(claim)
    name = str(options.get("metric", "output_tok_s"))
    metric = Metric(name, "", Kind.RATIO, baseline=str(options["baseline"]))
    found: dict[Place, Estimate] = {}
    for l_p, b in PLACES[workload]:
        point = Point(str(options["config"]), str(options["system"]), workload, b, l_p)
        entry = evidence.source.entry(point, metric)
        if isinstance(entry, Measured):
            found[(l_p, b)] = entry.estimate
    return found


def _workload(claim: Claim) -> str:
    return str(claim.options.get("workload", "sharegpt"))
