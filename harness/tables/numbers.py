"""What one place of a comparison asks for: a point in the paper's terms and a number of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias

from harness import paper
from harness.analysis.cells import Standing
from harness.tables.entries import Entry, Kind

Trait: TypeAlias = str | int | float

STAND_IN = paper.LLAMA_8B
"""The configuration whose rows show a CPU cell: the tiny model is a Llama on one rank."""

HEADLINE_B = 256
"""The B whose rows show a CPU cell that does not say (`load.scale`) which B it stands for."""

PLAIN: dict[str, Trait] = {"probe": ""}
"""What a row asks of a cell unless it says otherwise: a profiler's cost is in no table of speed."""


@dataclass(frozen=True)
class Point:
    """One row's place: what was served by which system, in the paper's terms.

    l_p: the paper's prefix length in tokens, None where the prefixes differ in length. b: None, and
    k: 0, of recorded traffic, which comes at its own times. traits:
    further attributes of a cell's `Standing` that must be equal; f_p and page size are asked of
    systems with storage only, and a CPU cell, whose memory is scaled, stands for the paper's KV
    budget. case: the `case` of the paper's number in `results/paper/`; None: not asked.
    """

    config: str
    system: str
    workload: str
    b: int | None
    l_p: int | None = None
    k: int = 1
    traits: tuple[tuple[str, Trait], ...] = ()
    case: str | None = None

    def matches(self, at: Standing) -> bool:
        """Whether a cell belongs here. A CPU cell's model is not asked: it is always the tiny."""
        if at.system != self.system or at.kind != self.workload or at.k != self.k:
            return False
        if not self._lengths_match(at) or not self._traits_match(at):
            return False
        if at.functional:
            return self.config == STAND_IN and self.b in (None, at.paper_b or HEADLINE_B)
        return at.model == self.config and at.b == self.b

    def _lengths_match(self, at: Standing) -> bool:
        if self.k == 0:
            return True
        return at.unequal if self.l_p is None else at.paper_lengths == (self.l_p,) * self.k

    def _traits_match(self, at: Standing) -> bool:
        for name, wanted in (PLAIN | dict(self.traits)).items():
            if name == "kv_budget" and at.functional:
                if wanted != "paper":
                    return False
            elif getattr(at, name) not in (wanted, None):
                return False
        return True

    def with_traits(self, **traits: Trait) -> Point:
        """The same place with further traits; a trait that it had is replaced."""
        return replace(self, traits=tuple(sorted((dict(self.traits) | traits).items())))


@dataclass(frozen=True)
class Metric:
    """One number of a row. `baseline` makes it a ratio of `name` to that system's.

    name: a stored metric or one of `harness.analysis.derived`. systems: which systems have it
    (None: all). only: roles of the sources that show it, of paper, measured and functional (None:
    all). printed_as: its name in `results/paper/`, where that differs. at: fields of the row's
    Point that this column replaces, and tag, which tells such columns apart in frames.
    """

    name: str
    title: str
    kind: Kind
    baseline: str | None = None
    systems: frozenset[str] | None = None
    only: frozenset[str] | None = None
    printed_as: str | None = None
    at: tuple[tuple[str, object], ...] = ()
    tag: str = ""

    @property
    def number(self) -> str:
        """Name of the number: the metric's, or `ratio_to_<baseline>`."""
        return self.name if self.baseline is None else f"ratio_to_{self.baseline}"

    @property
    def key(self) -> str:
        """Name of the column in frames: the number's, with the tag."""
        return f"{self.number}_{self.tag}" if self.tag else self.number

    def entry(self, source: Source, point: Point) -> Entry:
        """The number of a source at a row's place."""
        return source.entry(self.place(point), self)

    def place(self, point: Point) -> Point:
        """The point this column reads in a row."""
        changes: dict[str, Any] = dict(self.at)
        return replace(point, **changes)


class Number(Protocol):
    """A column of a comparison: a metric, or something computed from several cells."""

    @property
    def key(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def kind(self) -> Kind: ...
    @property
    def systems(self) -> frozenset[str] | None: ...
    @property
    def only(self) -> frozenset[str] | None: ...
    def entry(self, source: Source, point: Point) -> Entry: ...


class Source(Protocol):
    """One group of columns."""

    @property
    def key(self) -> str: ...
    @property
    def heading(self) -> str: ...
    @property
    def functional(self) -> bool: ...
    def entry(self, point: Point, metric: Metric) -> Entry: ...
