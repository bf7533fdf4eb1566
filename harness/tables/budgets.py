"""Tables that show each point at both KV budgets: the paper's and all that the device has."""

from __future__ import annotations

from harness.tables.comparison import Row
from harness.tables.numbers import Point
from harness.tables.table import Column

BUDGETS = {"paper": "148,400", "full": "full"}
"""What a row calls a budget: the paper's in tokens (7,420 slots at f_p = 0.05), or the device's."""
LABEL = Column("budget", "KV tokens")
NOTE = (
    "Each point stands twice: with the paper's KV budget of 148,400 tokens for every system, and "
    "with what the device has."
)


def rows(labels: dict[str, str], point: Point) -> list[tuple[str, Row]]:
    """A row for each budget, with the budget's name to sort by."""
    return [
        (budget, Row({"budget": label} | labels, point.with_traits(kv_budget=budget)))
        for budget, label in BUDGETS.items()
    ]


def ordered(pairs: list[tuple[str, Row]]) -> list[Row]:
    """All rows of the first budget, then those of the next."""
    names = list(BUDGETS)
    return [row for _, row in sorted(pairs, key=lambda pair: names.index(pair[0]))]
