"""Table 24: sensitivity to the HOT pool's share f_p (B.12)."""

from __future__ import annotations

from dataclasses import replace

from harness import paper
from harness.tables import budgets
from harness.tables.comparison import Comparison, Row
from harness.tables.entries import Kind
from harness.tables.metrics import (
    MEASURED_ONLY,
    OUTPUT,
    TO_CASCADE,
    TPOT_P50,
    TPOT_P99,
    TTFT_P50,
)
from harness.tables.numbers import Metric, Point
from harness.tables.sources import Sources
from harness.tables.table import Column, Table

FRACTIONS = (0.05, 0.1, 0.2, 0.4, 0.6, 0.8)
GRANIKV_ONLY = frozenset({"granikv"})


def point(fraction: float | None) -> Point:
    """GraniKV at one f_p; the cascade run for None."""
    system = "sglang_cascade" if fraction is None else "granikv"
    place = Point(paper.LLAMA_8B, system, "synthetic", 256, 8192)
    if fraction is None:
        return place
    return replace(place, case=f"f_p = {fraction}").with_traits(hot_fraction=fraction)


def _pairs() -> list[tuple[str, Row]]:
    return [
        pair
        for fraction in (*FRACTIONS, None)
        for pair in budgets.rows(
            {"f_p": "Cascade" if fraction is None else f"{fraction}"}, point(fraction)
        )
    ]


TABLE = Comparison(
    number=24,
    title="Sensitivity to the HOT pool's share f_p, synthetic burst, Llama-3.1-8B/TP=1, B = 256, "
    "L_p = 8K.",
    labels=(budgets.LABEL, Column("f_p", "f_p")),
    metrics=(
        OUTPUT,
        replace(TO_CASCADE, title="× cascade", printed_as="ratio_to_cascade"),
        TPOT_P50,
        TPOT_P99,
        TTFT_P50,
        Metric("hot_slots", "HOT slots", Kind.COUNT, systems=GRANIKV_ONLY),
        Metric("slabs", "slabs", Kind.COUNT, systems=GRANIKV_ONLY, only=MEASURED_ONLY),
    ),
    rows=budgets.ordered(_pairs()),
    command="python -m harness -m experiment=table24",
    notes=(
        budgets.NOTE,
        "Cascade: the same engine without storage layer, SGLang-Cascade. The paper's HOT pool at "
        "f_p = 0.05 has 7,420 slots, fewer than the prefix has tokens.",
        "slabs: runs of neighbouring slots that hold the HOT nodes of the radix tree, as far as "
        "the server listed it; 0 means the prefix was read from pages.",
    ),
)


def build(sources: Sources) -> Table:
    """Two budgets, six f_p and the cascade run."""
    return TABLE.build(sources)
