"""Every claim against every hardware."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeAlias

from harness.analysis.cells import CellLike, by_hardware, standing
from harness.analysis.claims import (
    dispatch,
    negative_control,
    no_worse,
    ratio,
    slabs,
    tables,
    tests,
)
from harness.analysis.claims.claim import Claim, Evidence, Result, Verdict
from harness.errors import HarnessError

Judge: TypeAlias = Callable[[Claim, Evidence], tuple[Result, str, str]]

JUDGES: dict[str, Judge] = {
    "ratio": ratio.judge,
    "table": tables.judge,
    "no_worse": no_worse.judge,
    "negative_control": negative_control.judge,
    "dispatch": dispatch.judge,
    "slabs": slabs.judge,
    "tests": tests.judge,
}
WITHOUT_CELLS = frozenset({"tests"})
"""Judges that look at no cell: they speak once, not once for each hardware."""

NO_HARDWARE = "none"


def evaluate(
    claims: Sequence[Claim],
    here: Iterable[CellLike],
    shipped: Iterable[CellLike],
    report: Path | None,
) -> list[Verdict]:
    """One verdict for each claim and hardware, in the claims' order: cells from here, then shipped.

    The two are never pooled. Without any cell each claim still gets its verdict, which names what
    is missing. Raises HarnessError for a claim that names no known judge or lacks an option.
    """
    evidence = [
        Evidence(hardware + suffix, standing(members[0]).functional, members, report)
        for cells, suffix in ((here, ""), (shipped, " (shipped)"))
        for hardware, members in by_hardware(cells).items()
    ] or [Evidence(NO_HARDWARE, False, (), report)]
    verdicts = []
    for claim in claims:
        if claim.judge in WITHOUT_CELLS:
            verdicts.append(_verdict(claim, Evidence("tests", False, (), report)))
        else:
            verdicts += [_verdict(claim, one) for one in evidence]
    return verdicts


def _verdict(claim: Claim, evidence: Evidence) -> Verdict:
    judge = JUDGES.get(claim.judge)
    if judge is None:
        known = ", ".join(JUDGES)
        raise HarnessError(f"claim {claim.id}: no judge {claim.judge!r}; there are {known}")
    try:
        result, observed, reason = judge(claim, evidence)
    except (KeyError, TypeError, ValueError) as error:
        raise HarnessError(f"claim {claim.id} is not a {claim.judge} claim: {error}") from error
    return Verdict(claim, evidence.hardware, result, observed, reason)
