"""Which verdicts the page lists."""

from __future__ import annotations

from collections import Counter

from harness import paper
from harness.analysis.claims.claim import load
from harness.report import claims
from harness.tables.sources import Sources
from tests.harness.report.some_cells import here, shipped

IDS = {claim.id for claim in load(paper.ROOT / "claims.yaml")}
HEADLINE = "table3-llama-16k-cascade"


def test_a_cpu_alone_is_listed_with_every_claim() -> None:
    found = claims.rows(Sources.of(here(), []))
    assert {row.id for row in found} == IDS
    assert {row.hardware for row in found} == {"cpu", "tests"}


def test_a_cpu_that_decides_nothing_gives_way_to_a_gpu() -> None:
    found = claims.rows(Sources.of(here(), shipped()))
    assert {row.id for row in found} == IDS
    (headline,) = [row for row in found if row.id == HEADLINE]
    assert (headline.hardware, headline.result) == ("h200 (shipped)", "PASS")
    assert headline.observed.startswith("1.25×")
    on_cpu = [row for row in found if row.hardware == "cpu"]
    assert on_cpu  # it has served four unequal prefixes from slabs of their own
    assert all(row.result != "INCONCLUSIVE" for row in on_cpu)


def test_without_cells_every_claim_is_open_once() -> None:
    found = claims.rows(Sources.of([], []))
    assert Counter(row.id for row in found) == Counter(IDS)
    assert {row.result for row in found} == {"INCONCLUSIVE"}
