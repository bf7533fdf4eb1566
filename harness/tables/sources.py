"""Where a table's numbers come from: the paper, shipped cells, cells measured here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeAlias

from harness.analysis import derived, rounds, statistics
from harness.analysis.cells import (
    KERNEL,
    CellLike,
    Standing,
    by_hardware,
    setting,
    standing,
    variant,
)
from harness.tables.entries import Entry, Measured, Missing
from harness.tables.numbers import HEADLINE_B, STAND_IN, Metric, Point, Source
from harness.tables.printed import PaperSource

Runs: TypeAlias = list[tuple[float, str]]
"""Values of one number with the ids of their cells, one a repetition."""

StandingCell: TypeAlias = tuple[Standing, CellLike]
"""A cell with where it stands, which is read off it once."""

FUNCTIONAL_TITLE = "functional check, tiny model on the CPU"


@dataclass(frozen=True)
class CellSource:
    """Cells of one hardware. A number is the mean over repetitions with its interval over runs.

    absent: the reason of a dash where there is no cell at all. Where cells of several settings
    (load, KV budget, turns, stream interval, ...) fit a row, all its systems are shown in one
    (`_largest`).
    """

    key: str
    heading: str
    functional: bool
    cells: Sequence[StandingCell]
    absent: str
    _places: dict[Point, list[StandingCell]] = field(
        default_factory=dict, compare=False, repr=False
    )
    _shown: dict[Point, list[CellLike]] = field(default_factory=dict, compare=False, repr=False)

    def entry(self, point: Point, metric: Metric) -> Entry:
        """The measured number, or a dash with its reason."""
        return self.compute(lambda: self._of_metric(point, metric))

    def _of_metric(self, point: Point, metric: Metric) -> Measured:
        runs = self.runs(point, metric.name)
        if metric.baseline is None:
            return self.mean(runs)
        return self.ratio(runs, self.runs(replace(point, system=metric.baseline), metric.name))

    def compute(self, build: Callable[[], Entry]) -> Entry:
        """What `build` gives, or a dash with the reason of the LookupError or ValueError in it."""
        try:
            return build()
        except (LookupError, ValueError) as reason:
            return Missing(str(reason.args[0]))

    def mean(self, runs: Runs) -> Measured:
        """Mean over runs."""
        return Measured(statistics.mean([value for value, _ in runs]), ids(runs))

    def ratio(self, top: Runs, bottom: Runs) -> Measured:
        """Ratio of means over runs, in pairs where the systems took turns.

        Raises ValueError for a baseline of zero.
        """
        above, below = (
            [(value, self._by_id[name]) for value, name in side] for side in (top, bottom)
        )
        return Measured(rounds.ratio(above, below), ids(top) + ids(bottom))

    @cached_property
    def _by_id(self) -> dict[str, CellLike]:
        return {cell.id: cell for _, cell in self.cells}

    def shown(self, point: Point) -> list[CellLike]:
        """The cells behind a point's numbers, valid or not: one setting, one variant."""
        if point not in self._shown:
            fitting = [(at, cell) for at, cell in self._place(point) if point.matches(at)]
            self._shown[point] = [cell for _, cell in _largest(fitting, variant)]
        return self._shown[point]

    def served(self, point: Point) -> list[CellLike]:
        """The valid cells behind a point's rates."""
        return self.rates([cell for cell in self.shown(point) if cell.valid])

    @staticmethod
    def rates(cells: Iterable[CellLike]) -> list[CellLike]:
        """Those that have a rate: a kernel serves nothing, and a traced cell's says nothing."""
        placed = [(standing(cell), cell) for cell in cells]
        return [cell for at, cell in placed if at.kind != KERNEL and not at.probe]

    def named(self, ids: Iterable[str]) -> list[CellLike]:
        """Cells by their ids."""
        return [self._by_id[name] for name in ids]

    def place(self, point: Point) -> Standing | None:
        """Lengths and B of a point's cells, whatever their system; None without any."""
        cells = self._place(point)
        return cells[0][0] if cells else None

    def _place(self, point: Point) -> list[StandingCell]:
        """The cells of a point in its one setting, chosen over all systems to be comparable."""
        anywhere = replace(point, system="", case=None)
        if anywhere not in self._places:
            any_system = [
                (at, c) for at, c in self.cells if replace(point, system=at.system).matches(at)
            ]
            self._places[anywhere] = _largest(any_system, setting)
        return self._places[anywhere]

    def runs(self, point: Point, metric: str) -> Runs:
        """The values behind a number. Raises LookupError with the reason where there is none."""
        cells = self.shown(point)
        if not cells:
            raise LookupError(self._absence(point))
        valid = [cell for cell in cells if cell.valid]
        if not valid:
            raise LookupError(f"cell {cells[0].id} is not valid: {'; '.join(cells[0].reasons)}")
        found = [
            (value, cell.id) for cell in valid if (value := derived.value(cell, metric)) is not None
        ]
        if not found:
            raise LookupError(f"cell {valid[0].id} has no {metric}")
        return found

    def _absence(self, point: Point) -> str:
        if self.functional and point.system == "sglang_fa3":
            return "FA3 needs a GPU"
        if self.functional and point.config != STAND_IN:
            return f"the tiny model stands in the {STAND_IN} rows only"
        if self.functional and point.b != HEADLINE_B and self.place(point) is None:
            return f"a CPU cell that names no other B stands in the B = {HEADLINE_B} rows"
        if self.functional and dict(point.traits).get("kv_budget", "paper") != "paper":
            return "a CPU cell, whose memory is scaled, stands in the rows of the paper's budget"
        return self.absent


def _largest(cells: Sequence[StandingCell], group: Callable[[CellLike], str]) -> list[StandingCell]:
    """The group nearest to the paper's storage choices, then with the largest stream interval.

    The front end limits that one least. A group without a valid cell stands behind those that have
    one, and a group of one system behind those that compare. Among equals the most valid cells,
    then the largest B, then the highest arrival rate, then the first name.
    """
    groups: dict[str, list[StandingCell]] = {}
    for at, cell in cells:
        groups.setdefault(group(cell), []).append((at, cell))
    if not groups:
        return []

    def rank(name: str) -> tuple[int, int, int, int, int, int, float, str]:
        members = groups[name]
        first = members[0][0]
        valid = [at for at, cell in members if cell.valid]
        compared = min(2, len({at.system for at in valid}))
        nearest = min(at.deviations for at, _ in members)
        most = (-first.stream_interval, -len(valid), -len(members), -(first.b or 0))
        return (nearest, -compared, *most, -first.rate, name)

    return groups[min(groups, key=rank)]


def ids(runs: Runs) -> tuple[str, ...]:
    """The cells behind runs."""
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
        absent = f"not measured here: {command}"
        return (*self._shipped, *(replace(source, absent=absent) for source in self._here))

    @cached_property
    def _shipped(self) -> tuple[CellSource, ...]:
        return by_hardware_sources("shipped", self.shipped, "no shipped cell: not measured yet")

    @cached_property
    def _here(self) -> tuple[CellSource, ...]:
        """What was found in them is kept for every `measured`: no command changes it."""
        return by_hardware_sources("here", self.here, "")

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
        placed = tuple((standing(cell), cell) for cell in members)
        first = placed[0][0]
        title = FUNCTIONAL_TITLE if first.functional else first.title
        name = key if len(groups) == 1 else f"{key}-{hardware}"
        heading = f"{key} ({title})"
        sources.append(CellSource(name, heading, first.functional, placed, absent))
    return tuple(sources)
