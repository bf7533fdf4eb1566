"""Judges a ratio of two systems' throughput against the expected one."""

from __future__ import annotations

from harness.analysis.claims.claim import Claim, Evidence, Result
from harness.analysis.statistics import Estimate
from harness.tables.entries import TIMES, Entry, Kind, Measured, Missing, write
from harness.tables.numbers import Metric, Point

MINIMUM_RUNS = 3
"""Below three runs nothing is known of the spread, so nothing is confirmed or refuted."""

PARITY = 1.0
"""Where a ratio tells of no gain."""


def judge(claim: Claim, evidence: Evidence) -> tuple[Result, str, str]:
    """(result, observed, reason) of one hardware.

    options: `at` (fields of Point without the system; traits as a mapping), `system`, `baseline`,
    `metric`, and `bound`: `at_least` (the default: more is better), `at_most`, `within` (as far
    above as below), or `deviation` (at most so far from zero on either side); see `bounds`. The
    interval must lie wholly inside the bounds for PASS, wholly outside for FAIL.
    """
    if evidence.functional:
        return Result.INCONCLUSIVE, "", "a CPU cell is a functional check and forms no ratio"
    entry = _entry(claim, evidence)
    if not isinstance(entry, Measured):
        return Result.INCONCLUSIVE, "", entry.reason if isinstance(entry, Missing) else ""
    estimate, observed = entry.estimate, write(entry, Kind.RATIO)
    if estimate.runs < MINIMUM_RUNS:
        return Result.INCONCLUSIVE, observed, f"{estimate.runs} of {MINIMUM_RUNS} runs"
    low, high = bounds(claim)
    return within(estimate, low, high), observed, f"asked for {words(low, high)}"


def bounds(claim: Claim) -> tuple[float, float]:
    """The numbers that confirm the claim, inclusive; an open end is infinite.

    The tolerance never turns a gain into its opposite: a ratio of at least more than one must be at
    least one, and one of at most less than one at most one. Where it is no gain that is claimed
    ("at worst 0.97×"), and for what is no ratio, the tolerance alone counts.
    """
    if claim.expected is None or claim.tolerance is None:
        raise ValueError(f"claim {claim.id} needs expected and tolerance")
    low, high = (claim.expected * (1 + sign * claim.tolerance) for sign in (-1, 1))
    match claim.options.get("bound", "at_least"):
        case "at_least":
            gain = _is_ratio(claim) and claim.expected > PARITY
            return max(low, PARITY) if gain else low, float("inf")
        case "at_most":
            gain = _is_ratio(claim) and claim.expected < PARITY
            return float("-inf"), min(high, PARITY) if gain else high
        case "within":
            return low, high
        case "deviation":
            return -high, high
        case other:
            raise ValueError(f"bound {other!r} is none of at_least, at_most, within, deviation")


def _is_ratio(claim: Claim) -> bool:
    return claim.judge == "ratio" or claim.options.get("unit") == TIMES


def _entry(claim: Claim, evidence: Evidence) -> Entry:
    options = claim.options
    at = dict(options["at"])
    traits = tuple(sorted(at.pop("traits", {}).items()))
    point = Point(system=str(options["system"]), traits=traits, **at)
    metric = Metric(str(options["metric"]), "", Kind.RATIO, baseline=str(options["baseline"]))
    return evidence.source.entry(point, metric)


def within(estimate: Estimate, low: float, high: float) -> Result:
    """PASS for an interval wholly inside the bounds, FAIL for one wholly outside."""
    if low <= estimate.low and estimate.high <= high:
        return Result.PASS
    if estimate.high < low or estimate.low > high:
        return Result.FAIL
    return Result.INCONCLUSIVE


def words(low: float, high: float, unit: str = TIMES, places: str = ".2f") -> str:
    """The bounds for people."""
    said = [f"{bound:{places}}{unit}" for bound in (low, high)]
    if high == float("inf"):
        return f"at least {said[0]}"
    return f"at most {said[1]}" if low == float("-inf") else f"{said[0]} to {said[1]}"
