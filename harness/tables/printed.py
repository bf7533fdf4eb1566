"""The paper's own numbers as a source of table entries."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import pandas as pd

from harness import paper
from harness.tables.entries import Blank, Entry, Printed
from harness.tables.numbers import Metric, Point


class _PaperRow(NamedTuple):
    """One printed number; None and "" where the paper does not say."""

    system: str
    l_p: int | None
    b: int | None
    k: int | None
    case: str
    printed: str

    def is_at(self, point: Point) -> bool:
        return (
            self.system in (point.system, "")
            and self.b in (point.b, None)
            and (point.l_p is None or self.l_p == point.l_p)
            and (self.k == point.k if self.k is not None else point.k == 1)
            and (point.case is None or self.case in (point.case, ""))
        )


@cache
def _rows(table: int) -> dict[tuple[str, str], list[_PaperRow]]:
    """A table's numbers by (config, metric)."""
    found: dict[tuple[str, str], list[_PaperRow]] = {}
    for row in paper.table(table).to_dict("records"):
        l_p, b, k = (None if pd.isna(row[c]) else int(row[c]) for c in ("l_p", "b", "k"))
        entry = _PaperRow(row["system"], l_p, b, k, row["case"], row["printed"])
        found.setdefault((row["config"], row["metric"]), []).append(entry)
    return found


@dataclass(frozen=True)
class PaperSource:
    """The numbers printed in one table of the paper; never computed, so they read as printed."""

    table: int
    key: str = "paper"
    heading: str = f"paper ({paper.HARDWARE})"
    functional: bool = False

    def entry(self, point: Point, metric: Metric) -> Entry:
        """The printed number; blank where the paper has none."""
        return self.printed(point, metric.printed_as or metric.number)

    def printed(self, point: Point, name: str) -> Entry:
        """What the paper prints under a metric's name at a place; what it leaves out is not asked.

        A number that the paper gives for no system in particular belongs to each.
        """
        if dict(point.traits).get("kv_budget", "paper") != "paper":
            return Blank()
        rows = [row for row in _rows(self.table).get((point.config, name), ()) if row.is_at(point)]
        if not rows:
            return Blank()
        if len(rows) > 1:
            raise paper.PaperError(f"table {self.table}: {len(rows)} numbers for {point}")
        return Printed(rows[0].printed)
