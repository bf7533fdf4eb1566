"""Tables that set the same numbers of several sources side by side, one row a system and point."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from harness.tables import provenance, steadiness
from harness.tables.entries import Entry, Kind
from harness.tables.numbers import Metric, Number, Point, Source
from harness.tables.sides import Ratio
from harness.tables.sources import CellSource, Sources
from harness.tables.table import Column, Table


@dataclass(frozen=True)
class Row:
    """A row: its labels by column key, and the point its numbers are of."""

    labels: Mapping[str, str]
    point: Point


@dataclass(frozen=True)
class Comparison:
    """A comparison table before any cell is known.

    labels: label columns. command: measures the missing cells. notes: said whatever the sources
    are. printed: whether the paper has this table.
    """

    number: int
    title: str
    labels: Sequence[Column]
    metrics: Sequence[Number]
    rows: Sequence[Row]
    command: str
    notes: Sequence[str] = ()
    printed: bool = True

    def build(self, sources: Sources) -> Table:
        """Fill in every source. A CPU source has no ratio columns: it is no measure of speed."""
        every: Sequence[Source] = (
            sources.all(self.number, self.command)
            if self.printed
            else sources.measured(self.command)
        )
        shown = [(source, metric) for source in every for metric in self._shown(source)]
        columns = [*self.labels]
        columns += [
            Column(
                _key(source, metric),
                _title(source, metric),
                metric.kind,
                source.heading,
                source.key,
            )
            for source, metric in shown
        ]
        rows = [self._row(row, shown, every) for row in self.rows]
        notes = (*self._notes(every), *self._warnings(every, columns, rows))
        return Table(self.number, self.title, columns, rows, notes)

    def _shown(self, source: Source) -> list[Number]:
        """The metrics a source has columns for; without any cell one column of dashes is enough."""
        shown = [
            metric
            for metric in self.metrics
            if not (source.functional and metric.kind is Kind.RATIO)
            and (metric.only is None or role(source) in metric.only)
        ]
        return shown[:1] if _empty(source) else shown

    def _row(
        self, row: Row, shown: Sequence[tuple[Source, Number]], every: Sequence[Source]
    ) -> dict[str, Entry]:
        entries: dict[str, Entry] = dict(row.labels)
        if "l_p" in entries:
            entries["l_p"] = with_measured_lengths(row, every)
        for source, metric in shown:
            if metric.systems is None or row.point.system in metric.systems:
                entries[_key(source, metric)] = metric.entry(source, row.point)
        return entries

    def _notes(self, every: Sequence[Source]) -> tuple[str, ...]:
        notes = list(self.notes)
        for source in every:
            if isinstance(source, CellSource):
                notes += self._source_notes(source)
        return tuple(notes)

    def _warnings(
        self,
        every: Sequence[Source],
        columns: Sequence[Column],
        rows: Sequence[Mapping[str, Entry]],
    ) -> list[str]:
        """A note for each source with unsteady numbers; a CPU's are no measure of speed."""
        labels = [column for column in columns if column.is_label]
        said = [
            steadiness.note(
                source.heading, labels, [c for c in columns if c.source == source.key], rows
            )
            for source in every
            if not source.functional
        ]
        return [note for note in said if note]

    def _source_notes(self, source: CellSource) -> list[str]:
        if not source.functional:
            return provenance.notes(source, [*dict.fromkeys(self._points())], self._ratios(source))
        if not self._shown(source):
            return [f"{source.heading}: a machine without a GPU measures nothing of this."]
        places = [place for row in self.rows if (place := source.place(row.point)) is not None]
        said = (
            f"{source.heading}{provenance.concurrency(places)}: shows that each system served the "
            "scaled-down workload; it says nothing about speed, so no ratio is formed."
        )
        return [said] if places else []

    def _ratios(self, source: CellSource) -> list[Ratio]:
        shown = [metric for metric in self._shown(source) if metric.kind is Kind.RATIO]
        return [
            (row.point, metric)
            for row in self.rows
            for metric in shown
            if metric.systems is None or row.point.system in metric.systems
        ]

    def _points(self) -> Iterator[Point]:
        """The places that the numbers are of, in the table's order."""
        for row in self.rows:
            for metric in self.metrics:
                yield metric.place(row.point) if isinstance(metric, Metric) else row.point


def _key(source: Source, metric: Number) -> str:
    return f"{source.key}.{metric.key}"


def _empty(source: Source) -> bool:
    return isinstance(source, CellSource) and not source.cells


def _title(source: Source, metric: Number) -> str:
    """The metric's title; a source without cells has one column, which then names no point."""
    of_one_point = isinstance(metric, Metric) and metric.at
    return "any" if _empty(source) and of_one_point else metric.title


def role(source: Source) -> str:
    """Which kind of source: paper, measured or functional."""
    if source.functional:
        return "functional"
    return "measured" if isinstance(source, CellSource) else "paper"


def with_measured_lengths(row: Row, sources: Sequence[Source]) -> str:
    """The paper's L_p label and, where a CPU cell stands for it, the length that was served."""
    label = row.labels["l_p"]
    for source in sources:
        if isinstance(source, CellSource) and source.functional:
            place = source.place(row.point)
            if place is not None:
                served = "/".join(f"{length:,}" for length in sorted(set(place.prefix_lengths)))
                return f"{label} (CPU: {served} tokens)"
    return label
