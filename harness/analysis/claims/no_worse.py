"""Judges that a system is nowhere worse than a baseline over a whole L_p × B grid."""

from __future__ import annotations

import math

from harness.analysis.claims.claim import Claim, Evidence, Result
from harness.analysis.claims.ratio import MINIMUM_RUNS
from harness.analysis.statistics import Estimate
from harness.tables.entries import Kind, Measured
from harness.tables.grid import SHAREGPT_B, SHAREGPT_LENGTHS
from harness.tables.numbers import Metric, Point
from harness.tables.sources import CellSource, by_hardware_sources

FLOOR = 0.95
"""No point may be below this, whatever its interval."""


def judge(claim: Claim, evidence: Evidence) -> tuple[Result, str, str]:
    """(result, observed, reason) of one hardware.

    options: `config`, `system`, `baseline`. No worse means: no 95% interval wholly below 1.00, the
    geometric mean at or above 1.00, no point below FLOOR. FAIL needs one point that breaks a rule,
    PASS every point of the grid with MINIMUM_RUNS runs: fewer have no interval to go by.
    """
    if evidence.functional:
        return Result.INCONCLUSIVE, "", "a CPU cell is a functional check and forms no ratio"
    found = _ratios(claim, evidence)
    if not found:
        return Result.INCONCLUSIVE, "", "not measured"
    worst = min(found, key=lambda place: found[place].value)
    count = len(SHAREGPT_LENGTHS) * len(SHAREGPT_B)
    mean = math.exp(sum(math.log(one.value) for one in found.values()) / len(found))
    observed = f"lowest {found[worst].value:.2f}×, geometric mean {mean:.2f}×"
    for (l_p, b), one in found.items():
        if broken := _breaks(one):
            return Result.FAIL, observed, f"L_p = {l_p:,}, B = {b:,}: {broken}"
    if len(found) < count:
        return Result.INCONCLUSIVE, observed, f"{len(found)} of {count} points measured"
    if mean < 1.0:
        return Result.FAIL, observed, "the geometric mean is below 1.00×"
    few = sum(one.runs < MINIMUM_RUNS for one in found.values())
    if few:
        reason = f"{few} of {count} points have fewer than {MINIMUM_RUNS} runs"
        return Result.INCONCLUSIVE, observed, reason
    return Result.PASS, observed, f"all {count} points"


def _breaks(one: Estimate) -> str:
    if one.value < FLOOR:
        return f"{one.value:.2f}×, below {FLOOR}×"
    if one.runs >= MINIMUM_RUNS and one.high < 1.0:
        return f"the interval [{one.low:.2f}, {one.high:.2f}] lies below 1.00×"
    return ""


def _ratios(claim: Claim, evidence: Evidence) -> dict[tuple[int, int], Estimate]:
    options = claim.options
    metric = Metric("output_tok_s", "", Kind.RATIO, baseline=str(options["baseline"]))
    found: dict[tuple[int, int], Estimate] = {}
    for source in by_hardware_sources("cells", evidence.cells, "not measured"):
        for l_p in SHAREGPT_LENGTHS:
            for b in SHAREGPT_B:
                point = Point(str(options["config"]), str(options["system"]), "sharegpt", b, l_p)
                entry = CellSource.entry(source, point, metric)
                if isinstance(entry, Measured):
                    found[(l_p, b)] = entry.estimate
    return found
