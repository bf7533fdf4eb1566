"""Where a table's numbers come from: the paper, shipped cells, cells measured here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from harness import paper
from harness.analysis import statistics
from harness.analysis.cells import (
    CellLike,
    Standing,
    by_hardware,
    number,
    setting,
    standing,
    variant,
)
from harness.tables.entries import Blank, Entry, Kind, Measured, Missing, Printed

FUNCTIONAL_TITLE = "functional check, tiny model on the CPU"
STAND_IN = paper.LLAMA_8B
"""The configuration whose rows show a CPU cell: the tiny model is a Llama on one rank."""


@dataclass(frozen=True)
class Point:
    """One row's place: what was served by which system, in the paper's terms.

    l_p: the paper's prefix length in tokens, None where the prefixes differ in length.
    """

    config: str
    system: str
    workload: str
    b: int
    l_p: int | None = None
    k: int = 1

    def matches(self, at: Standing) -> bool:
        """Whether a cell belongs here. A CPU cell's model and B are not asked: both are scaled."""
        if at.system != self.system or at.kind != self.workload or at.k != self.k:
            return False
        lengths_match = at.unequal if self.l_p is None else at.paper_lengths == (self.l_p,) * self.k
        if not lengths_match:
            return False
        if at.functional:
            return self.config == STAND_IN
        return at.model == self.config and at.b == self.b


@dataclass(frozen=True)
class Metric:
    """One number of a row. `baseline` makes it a ratio of `name` to that system's.

    systems: which systems have it (None: all). only: roles of the
    sources that show it, of paper, measured and functional (None: all).
    printed_as: its name in `results/paper/`, where that differs.
    """

    name: str
    title: str
    kind: Kind
    baseline: str | None = None
    systems: frozenset[str] | None = None
    only: frozenset[str] | None = None
    printed_as: str | None = None

    @property
    def key(self) -> str:
        """Name of the number in frames: the metric's, or `ratio_to_<baseline>`."""
        return self.name if self.baseline is None else f"ratio_to_{self.baseline}"


class Source(Protocol):
    """One group of columns."""

    @property
    def key(self) -> str: ...
    @property
    def heading(self) -> str: ...
    @property
    def functional(self) -> bool: ...
    def entry(self, point: Point, metric: Metric) -> Entry: ...


@dataclass(frozen=True)
class PaperSource:
    """The numbers printed in one table of the paper; never computed, so they read as printed."""

    table: int
    key: str = "paper"
    heading: str = f"paper ({paper.HARDWARE})"
    functional: bool = False

    def entry(self, point: Point, metric: Metric) -> Entry:
        """The printed number; blank where the paper has none."""
        rows = paper.table(self.table)
        rows = rows[(rows["config"] == point.config) & (rows["system"] == point.system)]
        rows = rows[rows["metric"] == (metric.printed_as or metric.key)]
        rows = rows[(rows["b"] == point.b).fillna(True).astype(bool)]
        if point.l_p is not None:
            rows = rows[(rows["l_p"] == point.l_p).fillna(False).astype(bool)]
        rows = rows[(rows["k"] == point.k).fillna(point.k == 1).astype(bool)]
        if rows.empty:
            return Blank()
        if len(rows) > 1:
            raise paper.PaperError(f"table {self.table}: {len(rows)} numbers for {point}")
        return Printed(str(rows["printed"].iloc[0]))


@dataclass(frozen=True)
class CellSource:
    """Cells of one hardware. A number is the mean over repetitions with its interval over runs.

    absent: the reason of a dash where there is no cell at all. Where cells of several settings
    (load, KV budget, turns, ...) fit a row, all its systems are shown in the one that has the most
    cells.
    """

    key: str
    heading: str
    functional: bool
    cells: Sequence[tuple[Standing, CellLike]]
    absent: str

    def entry(self, point: Point, metric: Metric) -> Entry:
        """The measured number, or a dash with its reason."""
        try:
            runs = self._runs(point, metric.name)
            if metric.baseline is None:
                return Measured(statistics.mean([value for value, _ in runs]), _ids(runs))
            base_runs = self._runs(replace(point, system=metric.baseline), metric.name)
            estimate = statistics.ratio([v for v, _ in runs], [v for v, _ in base_runs])
        except (LookupError, ValueError) as reason:
            return Missing(str(reason.args[0]))
        return Measured(estimate, _ids(runs) + _ids(base_runs))

    def shown(self, point: Point) -> list[CellLike]:
        """The cells behind a point's numbers, valid or not: one setting, one variant."""
        in_setting = [(standing(cell), cell) for cell in self._place(point)]
        return _largest([(at, c) for at, c in in_setting if point.matches(at)], variant)

    def place(self, point: Point) -> Standing | None:
        """Lengths and B of a point's cells, whatever their system; None without any."""
        cells = self._place(point)
        return standing(cells[0]) if cells else None

    def _place(self, point: Point) -> list[CellLike]:
        """The cells of a point in its one setting, chosen over all systems to be comparable."""
        any_system = [
            (at, c) for at, c in self.cells if replace(point, system=at.system).matches(at)
        ]
        return _largest(any_system, setting)

    def _runs(self, point: Point, metric: str) -> list[tuple[float, str]]:
        cells = self.shown(point)
        if not cells:
            if self.functional and point.config != STAND_IN:
                raise LookupError(f"the tiny model stands in the {STAND_IN} rows only")
            raise LookupError(self.absent)
        valid = [cell for cell in cells if cell.valid]
        if not valid:
            raise LookupError(f"cell {cells[0].id} is not valid: {'; '.join(cells[0].reasons)}")
        runs = [(value, cell.id) for cell in valid if (value := number(cell, metric)) is not None]
        if not runs:
            raise LookupError(f"cell {valid[0].id} has no {metric}")
        return runs


def _largest(
    cells: Sequence[tuple[Standing, CellLike]], group: Callable[[CellLike], str]
) -> list[CellLike]:
    """The group with the most valid cells; among equals the largest B, then the first name."""
    groups: dict[str, list[tuple[Standing, CellLike]]] = {}
    for at, cell in cells:
        groups.setdefault(group(cell), []).append((at, cell))
    if not groups:
        return []

    def rank(name: str) -> tuple[int, int, int, str]:
        members = groups[name]
        valid = sum(1 for _, cell in members if cell.valid)
        return (-valid, -len(members), -(members[0][0].b or 0), name)

    return [cell for _, cell in groups[min(groups, key=rank)]]


def _ids(runs: Sequence[tuple[float, str]]) -> tuple[str, ...]:
    return tuple(cell_id for _, cell_id in runs)


@dataclass(frozen=True)
class Sources:
    """All cells a table may show: `here` from this machine, `shipped` from `results/h200/`."""

    here: tuple[CellLike, ...]
    shipped: tuple[CellLike, ...]

    @classmethod
    def of(cls, cells: Iterable[CellLike], shipped: Iterable[CellLike]) -> Sources:
        """From the two lists, in any order."""
        return cls(tuple(cells), tuple(shipped))

    def measured(self, command: str) -> tuple[CellSource, ...]:
        """Shipped, then here, one source a hardware; `command` measures what is missing."""
        return (
            *by_hardware_sources("shipped", self.shipped, "no shipped cell: not measured yet"),
            *by_hardware_sources("here", self.here, f"not measured here: {command}"),
        )

    def all(self, table: int, command: str) -> tuple[Source, ...]:
        """The paper's table, then the measured sources."""
        return (PaperSource(table), *self.measured(command))


def by_hardware_sources(key: str, cells: Sequence[CellLike], absent: str) -> tuple[CellSource, ...]:
    """One source for each hardware among the cells; without cells one empty source."""
    groups = by_hardware(cells)
    if not groups:
        return (CellSource(key, key, False, (), absent),)
    sources = []
    for hardware, members in groups.items():
        standings = [(standing(cell), cell) for cell in members]
        first = standings[0][0]
        title = FUNCTIONAL_TITLE if first.functional else first.title
        name = key if len(groups) == 1 else f"{key}-{hardware}"
        heading = f"{key} ({title})"
        sources.append(CellSource(name, heading, first.functional, tuple(standings), absent))
    return tuple(sources)
