"""The claims and what each hardware's cells say of them."""

from __future__ import annotations

from dataclasses import dataclass

from harness.analysis.cells import standing
from harness.analysis.claims.claim import FILE, Result, Verdict, load
from harness.analysis.claims.evaluate import evaluate
from harness.tables.sources import Sources
from harness.verify import expected


@dataclass(frozen=True)
class Row:
    """One verdict in words; `result` is PASS, FAIL or INCONCLUSIVE."""

    id: str
    sentence: str
    source: str
    hardware: str
    expected: str
    observed: str
    result: str
    reason: str
    command: str


def rows(sources: Sources) -> list[Row]:
    """Every claim against every hardware. Test reports are no cells: claims on them stay open.

    Where a GPU speaks to a claim, a CPU that decides nothing of it is left out.
    """
    verdicts = evaluate(load(FILE), sources.here, sources.shipped, None)
    functional = {
        standing(cell).hardware
        for cell in (*sources.here, *sources.shipped)
        if standing(cell).functional
    }
    heard = {one.claim.id for one in verdicts if _hardware(one) not in functional}
    return [
        _row(one)
        for one in verdicts
        if one.result is not Result.INCONCLUSIVE
        or _hardware(one) not in functional
        or one.claim.id not in heard
    ]


def _hardware(verdict: Verdict) -> str:
    return verdict.hardware.removesuffix(" (shipped)")


def _row(one: Verdict) -> Row:
    return Row(
        one.claim.id,
        one.claim.sentence,
        one.claim.source,
        one.hardware,
        expected(one.claim),
        one.observed,
        one.result.value,
        one.reason,
        one.claim.command,
    )
