"""Table 20: k equal prefixes that share the engine (B.8)."""

from __future__ import annotations

from harness import paper
from harness.tables import budgets
from harness.tables.comparison import Comparison
from harness.tables.entries import Kind
from harness.tables.labels import system_label
from harness.tables.metrics import (
    DRAWN,
    FA3_NOTE,
    MEASURED_ONLY,
    OUTPUT,
    TO_CASCADE,
    TO_DEFAULT,
    TO_FA3,
    of_granikv,
)
from harness.tables.numbers import Metric, Point
from harness.tables.sources import Sources
from harness.tables.table import Column, Table

KS = (1, 4, 16, 64)

TABLE = Comparison(
    number=20,
    title="k equal prefixes of L_p = 8K, Llama-3.1-8B/TP=1, B = 256.",
    labels=(budgets.LABEL, Column("k", "k"), Column("system", "System")),
    metrics=(
        OUTPUT,
        of_granikv(TO_DEFAULT),
        of_granikv(TO_CASCADE),
        of_granikv(TO_FA3),
        Metric("hit_rate", "Hit rate", Kind.FRACTION, only=MEASURED_ONLY),
    ),
    rows=budgets.ordered(
        [
            pair
            for k in KS
            for system in DRAWN
            for pair in budgets.rows(
                {"k": str(k), "system": system_label(system)},
                Point(paper.LLAMA_8B, system, "multi_prefix", 256, 8192, k),
            )
        ]
    ),
    command="python -m harness -m experiment=table20",
    notes=(
        budgets.NOTE,
        "Four prefixes of 8K need 32,768 slots; f_p = 0.2 of the paper's budget is 29,680.",
        "Hit rate: share of the prompt tokens that came from the cache, by the server's count.",
        FA3_NOTE,
    ),
)


def build(sources: Sources) -> Table:
    """Two budgets, four k, four systems."""
    return TABLE.build(sources)
