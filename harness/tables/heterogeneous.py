"""Rows of the heterogeneous multi-prefix experiment (B.8b), which Tables 4 and 21 share."""

from __future__ import annotations

from collections.abc import Sequence

from harness import paper
from harness.tables import budgets
from harness.tables.comparison import Row
from harness.tables.labels import system_label
from harness.tables.metrics import BASELINES, DRAWN
from harness.tables.numbers import Point

B = 256
COMMAND = "make reproduce"
PREFIXES = {4: "2K/4K/8K/16K", 8: "ladder 1K–16K"}
"""The L_p of the classes, as the paper gives them, by k."""


def rows(order: Sequence[int] = tuple(PREFIXES), systems: Sequence[str] = BASELINES) -> list[Row]:
    """One row for each k and system; the label columns are k, l_p and system."""
    return [
        Row(
            {"k": str(k), "l_p": PREFIXES[k], "system": system_label(system)},
            Point(paper.LLAMA_8B, system, "multi_prefix", B, None, k),
        )
        for k in order
        for system in systems
    ]


def rows_by_budget() -> list[Row]:
    """The same rows at each KV budget; the label columns are budget, k, l_p and system."""
    return budgets.ordered(
        [pair for row in rows(systems=DRAWN) for pair in budgets.rows(dict(row.labels), row.point)]
    )
