"""The warning about numbers whose runs deviate too much."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.analysis.statistics import UNSTEADY
from harness.tables.entries import Entry, Kind, Measured
from harness.tables.table import Column


def note(
    heading: str,
    labels: Sequence[Column],
    numbers: Sequence[Column],
    rows: Sequence[Mapping[str, Entry]],
) -> str:
    """How many numbers of one source are unsteady, and the worst of them; empty without any.

    labels: the columns that name a row. numbers: the source's. Ratios are left out: their two sides
    stand there too.
    """
    found = [
        (entry.estimate.deviation, _place(labels, row), column.title)
        for row in rows
        for column in numbers
        if isinstance(entry := row.get(column.key), Measured)
        and column.kind is not Kind.RATIO
        and entry.estimate.unsteady
    ]
    if not found:
        return ""
    worst, place, title = max(found)
    count = "one number" if len(found) == 1 else f"{len(found):,} numbers"
    return (
        f"{heading}: runs deviate by more than {UNSTEADY:.0%} of their mean (standard deviation) "
        f"in {count}, most at {place}, {title}: {worst:.0%}."
    )


def _place(labels: Sequence[Column], row: Mapping[str, Entry]) -> str:
    return ", ".join(str(row[label.key]) for label in labels if row.get(label.key))
