"""Tables of quantities: one row a number, each with its own unit, one column a source and point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from harness.tables import provenance
from harness.tables.entries import Entry, Kind, Measured, Printed
from harness.tables.numbers import Number, Point, Source
from harness.tables.printed import PaperSource
from harness.tables.sides import Ratio
from harness.tables.sources import CellSource, Sources
from harness.tables.table import Column, Table


@dataclass(frozen=True)
class Quantity:
    """A row: its label, which names the unit, and the number."""

    label: str
    number: Number


@dataclass(frozen=True)
class Quantities:
    """A table of quantities before any cell is known.

    points: columns of each source by their title. command: measures what is missing.
    """

    number: int
    title: str
    rows: Sequence[Quantity]
    points: Mapping[str, Point]
    command: str
    notes: Sequence[str] = ()

    def build(self, sources: Sources) -> Table:
        """Fill in every source; what says something about speed is blank in a CPU's column."""
        every = sources.all(self.number, self.command)
        columns = [Column("quantity", "Quantity")]
        columns += [
            Column(f"{source.key}.{title}", title, Kind.COUNT, source.heading, source.key)
            for source in every
            for title in self._titles(source)
        ]
        rows = [self._row(quantity, every) for quantity in self.rows]
        notes = [*self.notes]
        for source in every:
            if isinstance(source, CellSource) and not source.functional:
                notes += provenance.notes(source, [*self.points.values()], self._ratios())
        return Table(self.number, self.title, columns, rows, notes)

    def _ratios(self) -> list[Ratio]:
        numbers = [one.number for one in self.rows if one.number.kind is Kind.RATIO]
        return [(point, number) for number in numbers for point in self.points.values()]

    def _titles(self, source: Source) -> list[str]:
        """The points a source has columns for: of the paper those of which it prints something."""
        titles = list(self.points)
        if isinstance(source, PaperSource):
            return [title for title in titles if self._prints(source, self.points[title])]
        return titles[:1] if isinstance(source, CellSource) and not source.cells else titles

    def _prints(self, source: PaperSource, point: Point) -> bool:
        entries = (quantity.number.entry(source, point) for quantity in self.rows)
        return any(isinstance(entry, Printed) for entry in entries)

    def _row(self, quantity: Quantity, every: Sequence[Source]) -> dict[str, Entry]:
        entries: dict[str, Entry] = {"quantity": quantity.label}
        for source in every:
            for title in self._titles(source):
                entry = quantity.number.entry(source, self.points[title])
                if source.functional and quantity.number.kind is Kind.RATIO:
                    continue
                entries[f"{source.key}.{title}"] = _of_kind(entry, quantity.number.kind)
        return entries


def _of_kind(entry: Entry, kind: Kind) -> Entry:
    """The entry with its row's unit, unless it states another."""
    if isinstance(entry, Printed | Measured) and entry.kind is None:
        return replace(entry, kind=kind)
    return entry
