"""Judges that on prompts that share nothing no system gains over stock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from harness.analysis import rounds
from harness.analysis.cells import CellLike, number, setting, standing, variant
from harness.analysis.claims.claim import Claim, Evidence, Result
from harness.analysis.claims.ratio import MINIMUM_RUNS
from harness.analysis.rounds import Run
from harness.analysis.statistics import Estimate
from harness.tables.labels import system_label

KIND = "negative_control"
"""`workload.kind` of the control."""

METRIC = "output_tok_s"

NOTHING = 0.001
"""Hit rate up to which prompts share nothing: random ones have a first token in common now and
then."""


@dataclass(frozen=True)
class Gain:
    """What a system shows over the fastest stock system of its setting, as a ratio."""

    system: str
    stock: str
    estimate: Estimate


def gains(cells: Sequence[CellLike], baselines: Sequence[str]) -> list[Gain]:
    """Every other system against the fastest baseline, in each setting of the control; sorted.

    The fastest, since a system may take its prefill from any of them: that is no gain of its own.
    """
    found = [gain for members in _settings(cells) for gain in _of_setting(members, baselines)]
    return sorted(found, key=lambda gain: (-gain.estimate.value, gain.system))


def _settings(cells: Sequence[CellLike]) -> list[list[CellLike]]:
    """The control's valid cells, by what was asked of the systems."""
    groups: dict[str, list[CellLike]] = {}
    for cell in cells:
        if cell.valid and standing(cell).kind == KIND:
            groups.setdefault(setting(cell), []).append(cell)
    return [groups[name] for name in sorted(groups)]


def _few_runs(cells: Sequence[CellLike], needs: Sequence[str]) -> dict[str, int]:
    """Of the systems that are needed, those with fewer than MINIMUM_RUNS in some setting."""
    measured = [
        Counter(standing(cell).system for cell in members if number(cell, METRIC) is not None)
        for members in _settings(cells)
    ]
    fewest = {system: min(counts[system] for counts in measured) for system in needs}
    return {system: runs for system, runs in fewest.items() if runs < MINIMUM_RUNS}


def _of_setting(cells: Sequence[CellLike], baselines: Sequence[str]) -> Iterator[Gain]:
    groups: dict[str, list[Run]] = {}
    for cell in cells:
        if (value := number(cell, METRIC)) is not None:
            groups.setdefault(variant(cell), []).append((value, cell))
    stock = [runs for runs in groups.values() if _system(runs) in baselines]
    if not stock:
        return
    fastest = max(stock, key=lambda runs: sum(value for value, _ in runs) / len(runs))
    for runs in groups.values():
        if _system(runs) not in baselines:
            yield Gain(_system(runs), _system(fastest), rounds.ratio(runs, fastest))


def _system(runs: Sequence[Run]) -> str:
    return standing(runs[0][1]).system


def judge(claim: Claim, evidence: Evidence) -> tuple[Result, str, str]:
    """(result, observed, reason) of one hardware; `tolerance` is the largest gain that is none.

    options: `baselines`, the stock systems; `needs`, the systems that nothing is decided without:
    MINIMUM_RUNS valid runs of each in every setting. FAIL: a gain whose 95% interval lies wholly
    above the tolerance, or prompts that were found in the cache. PASS: every interval lies below.
    """
    baselines, needs = (
        [str(name) for name in claim.options[key]] for key in ("baselines", "needs")
    )
    most = claim.tolerance
    if most is None:
        raise ValueError("it needs a tolerance")
    if evidence.functional:
        return Result.INCONCLUSIVE, "", "a CPU cell is a functional check and forms no ratio"
    if hit := _hits(evidence.cells):
        return Result.FAIL, hit, "the prompts of a control share nothing"
    found = gains(evidence.cells, baselines)
    if not found:
        return Result.INCONCLUSIVE, "", "not measured beside a stock system"
    observed = "; ".join(_words(gain) for gain in found)
    if few := _few_runs(evidence.cells, needs):
        said = ", ".join(f"{system_label(system)} {runs}" for system, runs in few.items())
        return Result.INCONCLUSIVE, observed, f"of {MINIMUM_RUNS} runs: {said}"
    for gain in found:
        if gain.estimate.runs >= MINIMUM_RUNS and gain.estimate.low > 1 + most:
            return Result.FAIL, observed, f"{system_label(gain.system)} gains more than {most:.0%}"
    least = min(found, key=lambda gain: gain.estimate.runs)
    if least.estimate.runs < MINIMUM_RUNS:
        reason = f"{system_label(least.system)}: {least.estimate.runs} of {MINIMUM_RUNS} runs"
        return Result.INCONCLUSIVE, observed, reason
    if all(gain.estimate.high <= 1 + most for gain in found):
        return Result.PASS, observed, f"no interval reaches above +{most:.0%}"
    return Result.INCONCLUSIVE, observed, f"an interval reaches above +{most:.0%}"


def _hits(cells: Sequence[CellLike]) -> str:
    for cell in cells:
        rate = number(cell, "hit_rate")
        if cell.valid and standing(cell).kind == KIND and rate and rate > NOTHING:
            return f"hit rate {rate:.3f} in cell {cell.id}"
    return ""


def _words(gain: Gain) -> str:
    one = gain.estimate
    interval = f" [{one.low:.3f}, {one.high:.3f}]" if one.runs > 1 else ""
    return f"{system_label(gain.system)} {one.value:.3f}×{interval} of {system_label(gain.stock)}"
