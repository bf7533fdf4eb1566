"""Judges one number of one table, of any kind, against the expected one."""

from __future__ import annotations

import math
from dataclasses import dataclass

from harness.analysis.claims.claim import Claim, Evidence, Result
from harness.analysis.claims.ratio import MINIMUM_RUNS, bounds, within, words
from harness.analysis.claims.remarks import REMARKS
from harness.tables import registry
from harness.tables.entries import Entry, Kind, Measured, Missing, decimals, spread
from harness.tables.sources import CellSource, Sources
from harness.tables.table import Column, Table


@dataclass(frozen=True)
class _Judged(Sources):
    """The cells of one hardware, from here or shipped."""

    judged: tuple[CellSource, ...]

    def measured(self, command: str) -> tuple[CellSource, ...]:
        """The judged cells alone; what measures the rest is said by the claim."""
        del command
        return self.judged


def judge(claim: Claim, evidence: Evidence) -> tuple[Result, str, str]:
    """(result, observed, reason) of one hardware.

    options: `row`, the labels of the row; `column`, the number's key; `bound`, as in `ratio.judge`;
    `unit`, said with the numbers; `runs`, how many the number needs (MINIMUM_RUNS; 1 for what
    counters say); `remark`, one of REMARKS, said with the reason. A CPU decides none.
    """
    options = claim.options
    if evidence.functional:
        return Result.INCONCLUSIVE, "", "a CPU cell is a functional check and measures no speed"
    column, entry = _find(_table(claim, evidence), options["row"], str(options["column"]))
    if not isinstance(entry, Measured):
        reason = entry.reason if isinstance(entry, Missing) else "no such number on this hardware"
        return Result.INCONCLUSIVE, "", reason
    unit, wanted = str(options.get("unit", "")), int(options.get("runs", MINIMUM_RUNS))
    observed = _written(entry, column.kind, unit)
    if entry.estimate.runs < wanted:
        return Result.INCONCLUSIVE, observed, f"{entry.estimate.runs} of {wanted} runs"
    low, high = bounds(claim)
    asked = f"asked for {words(low, high, unit, ',.4g')}"
    said = [asked, remark] if (remark := _remark(claim, evidence, entry)) else [asked]
    return within(entry.estimate, low, high), observed, "; ".join(said)


def _remark(claim: Claim, evidence: Evidence, entry: Measured) -> str:
    name = claim.options.get("remark")
    if name is None:
        return ""
    cells = [cell for cell in evidence.cells if cell.id in entry.cells]
    return REMARKS[str(name)](cells, entry.estimate.value)


def _written(entry: Measured, kind: Kind, unit: str) -> str:
    """As a table writes it, but with two significant digits where its interval supports but one:
    beside a bound one digit looks equal to what it is not.
    """
    estimate, kind = entry.estimate, entry.kind or kind
    places = decimals(estimate, kind)
    if estimate.value:
        places = max(places, 1 - math.floor(math.log10(abs(estimate.value))))
    return spread(estimate, places, unit)


def _table(claim: Claim, evidence: Evidence) -> Table:
    """The claim's table of this hardware's cells, built once for all claims on it."""
    if claim.table is None:
        raise ValueError("it names no table")
    table: Table | None = evidence.tables.get(claim.table)
    if table is None:
        table = registry.builders()[claim.table](
            _Judged(tuple(evidence.cells), (), (evidence.source,))
        )
        evidence.tables[claim.table] = table
    return table


def _find(table: Table, labels: list[str], key: str) -> tuple[Column, Entry | None]:
    """The column and the entry. Raises ValueError where the table has no such place."""
    columns = {c.key.partition(".")[2]: c for c in table.columns if c.source == "here"}
    names = [c.key for c in table.columns if c.is_label]
    for row in table.rows:
        if [_plain(str(row.get(name, ""))) for name in names] == [str(one) for one in labels]:
            break
    else:
        raise ValueError(f"table {table.number} has no row {labels}")
    if key not in columns:
        # Without a cell a table has one column, of the reason why there is none.
        if len(columns) > 1:
            raise ValueError(f"table {table.number} has no column {key!r}")
        (key,) = columns
    return columns[key], row.get(columns[key].key)


def _plain(label: str) -> str:
    """A label without the length that a CPU cell served in its place."""
    return label.partition(" (CPU:")[0]
