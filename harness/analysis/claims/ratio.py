"""Judges a ratio of two systems' throughput against the expected one."""

from __future__ import annotations

from harness.analysis.claims.claim import Claim, Evidence, Result
from harness.analysis.statistics import Estimate
from harness.tables.entries import Kind, Measured, Missing, write
from harness.tables.numbers import Metric, Point
from harness.tables.sources import CellSource, by_hardware_sources

MINIMUM_RUNS = 3
"""Below three runs nothing is known of the spread, so nothing is confirmed or refuted."""


def judge(claim: Claim, evidence: Evidence) -> tuple[Result, str, str]:
    """(result, observed, reason) of one hardware.

    options: `at` (fields of Point without the system), `system`, `baseline`, `metric`, and `bound`:
    `at_least` (the default: more is better) or `within` (as far above as below). The interval must
    lie wholly inside the bounds for PASS, wholly outside for FAIL.
    """
    if evidence.functional:
        return Result.INCONCLUSIVE, "", "a CPU cell is a functional check and forms no ratio"
    entry = _entry(claim, evidence)
    if isinstance(entry, Missing):
        return Result.INCONCLUSIVE, "", entry.reason
    estimate, observed = entry.estimate, write(entry, Kind.RATIO)
    if estimate.runs < MINIMUM_RUNS:
        return Result.INCONCLUSIVE, observed, f"{estimate.runs} of {MINIMUM_RUNS} runs"
    low, high = bounds(claim)
    return _within(estimate, low, high), observed, f"asked for {_words(low, high)}"


def bounds(claim: Claim) -> tuple[float, float]:
    """The ratios that confirm the claim, inclusive; the upper one is infinite for `at_least`."""
    if claim.expected is None or claim.tolerance is None:
        raise ValueError(f"claim {claim.id} needs expected and tolerance")
    low = claim.expected * (1 - claim.tolerance)
    if claim.options.get("bound", "at_least") == "at_least":
        return low, float("inf")
    return low, claim.expected * (1 + claim.tolerance)


def _entry(claim: Claim, evidence: Evidence) -> Measured | Missing:
    options = claim.options
    point = Point(system=str(options["system"]), **options["at"])
    metric = Metric(str(options["metric"]), "", Kind.RATIO, baseline=str(options["baseline"]))
    absent = "not measured"
    for source in by_hardware_sources("cells", evidence.cells, absent):
        entry = CellSource.entry(source, point, metric)
        if isinstance(entry, Measured | Missing):
            return entry
    return Missing(absent)


def _within(estimate: Estimate, low: float, high: float) -> Result:
    if low <= estimate.low and estimate.high <= high:
        return Result.PASS
    if estimate.high < low or estimate.low > high:
        return Result.FAIL
    return Result.INCONCLUSIVE


def _words(low: float, high: float) -> str:
    return f"at least {low:.2f}×" if high == float("inf") else f"{low:.2f}× to {high:.2f}×"
