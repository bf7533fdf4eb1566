"""A column that is computed from several cells, beside what the paper prints under its name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from harness.tables.entries import Entry, Kind
from harness.tables.metrics import NOT_CPU
from harness.tables.numbers import Point, Source
from harness.tables.printed import PaperSource
from harness.tables.sources import CellSource


@dataclass(frozen=True)
class Computed:
    """One number of a row.

    key: its name in frames and in `results/paper/`. compute: the number of a hardware's cells at
    the row's point; a LookupError or ValueError is the reason of a dash. systems, only: as in
    `Metric`.
    """

    key: str
    title: str
    kind: Kind
    compute: Callable[[CellSource, Point], Entry]
    only: frozenset[str] | None = NOT_CPU
    systems: frozenset[str] | None = None

    def entry(self, source: Source, point: Point) -> Entry:
        """As printed, or computed."""
        if isinstance(source, PaperSource):
            return source.printed(point, self.key)
        assert isinstance(source, CellSource)
        return source.compute(lambda: self.compute(source, point))
