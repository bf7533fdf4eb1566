"""A table before it is written: columns, rows of entries, notes; and as a tidy DataFrame."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pandas as pd

from harness.tables.entries import Blank, Entry, Kind, Measured, Missing, Printed, write

TIDY = (
    "table",
    "row",
    "source",
    "metric",
    "value",
    "low",
    "high",
    "runs",
    "unit",
    "printed",
    "missing",
    "cells",
)


@dataclass(frozen=True)
class Column:
    """One column. `group` is the heading over several columns; `source` is empty for row labels."""

    key: str
    title: str
    kind: Kind = Kind.TEXT
    group: str = ""
    source: str = ""

    @property
    def is_label(self) -> bool:
        """Whether the column names the row rather than holding one of its numbers."""
        return not self.source


@dataclass(frozen=True)
class Table:
    """One table of the paper with its sources side by side.

    rows: entries by column key; a key that a row lacks is blank. notes: one sentence each.
    """

    number: int
    title: str
    columns: Sequence[Column]
    rows: Sequence[Mapping[str, Entry]]
    notes: Sequence[str] = field(default_factory=tuple)

    @property
    def stem(self) -> str:
        """File name without its ending."""
        return f"table{self.number:02d}"

    def entry(self, row: int, key: str) -> Entry:
        """The entry at a row (from 0) and a column's key."""
        return self.rows[row].get(key, Blank())

    def frame(self) -> pd.DataFrame:
        """Tidy: one line for each number or dash, columns as in `TIDY`; blanks are left out.

        Values are unrounded, in `unit`; low and high are the 95% interval over `runs` runs.
        """
        lines = [
            self._line(row, column, entry)
            for row in self.rows
            for column in self.columns
            if not column.is_label and not isinstance(entry := row.get(column.key, Blank()), Blank)
        ]
        return pd.DataFrame(lines, columns=list(TIDY))

    def _row_name(self, row: Mapping[str, Entry]) -> str:
        labels = (write(row.get(c.key, Blank()), c.kind) for c in self.columns if c.is_label)
        return " | ".join(label for label in labels if label)

    def _line(self, row: Mapping[str, Entry], column: Column, entry: Entry) -> dict[str, object]:
        line: dict[str, object] = dict.fromkeys(TIDY, "")
        line |= {
            "table": self.number,
            "row": self._row_name(row),
            "source": column.source,
            "metric": column.key.partition(".")[2],
            "value": math.nan,
            "low": math.nan,
            "high": math.nan,
            "runs": 0,
            "unit": _unit(column.kind),
            "printed": "" if isinstance(entry, Missing) else write(entry, column.kind),
        }
        match entry:
            case Printed(_, kind):
                line |= {"value": entry.value, "unit": _unit(kind or column.kind)}
            case Measured(estimate, cells, kind):
                line |= {"value": estimate.value, "low": estimate.low, "high": estimate.high}
                line |= {"runs": estimate.runs, "cells": " ".join(cells)}
                line["unit"] = _unit(kind or column.kind)
            case Missing(reason):
                line["missing"] = reason
        return line


def _unit(kind: Kind) -> str:
    return "" if kind is Kind.TEXT else kind.value
