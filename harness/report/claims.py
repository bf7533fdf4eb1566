"""The claims and what each hardware's cells say of them."""

from __future__ import annotations

from dataclasses import dataclass

from harness import paper
from harness.analysis.claims.claim import load
from harness.analysis.claims.evaluate import evaluate
from harness.tables.sources import Sources
from harness.verify import expected

FILE = paper.ROOT / "claims.yaml"


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
    """Every claim against every hardware. Test reports are no cells: claims on them stay open."""
    return [
        Row(
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
        for one in evaluate(load(FILE), sources.here, sources.shipped, None)
    ]
