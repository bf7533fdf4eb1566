"""Every table as the page shows it: texts, sort keys, and behind each number its details."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from harness import paper
from harness.report.cells import Registry
from harness.tables import registry
from harness.tables.entries import Blank, Entry, Kind, Measured, Missing, Printed, write
from harness.tables.sources import Sources
from harness.tables.table import Column, Table

LONG = 30
"""Rows from which a table scrolls inside its own box on screen."""


@dataclass(frozen=True)
class Place:
    """One place of a row. detail: index into the table's details, None where there is none.

    sort: what the column is ordered by; empty sorts last. mark: number of the reason of a dash.
    """

    text: str
    sort: str
    label: bool
    number: bool
    detail: int | None = None
    mark: int | None = None


@dataclass(frozen=True)
class Head:
    """A heading over `width` columns, `origin` as a class name for its colour."""

    text: str
    width: int
    origin: str


@dataclass
class View:
    """One table: headings over columns, columns, rows, reasons of dashes and notes."""

    number: int
    stem: str
    title: str
    heads: list[Head]
    columns: Sequence[Column]
    rows: list[list[Place]] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    notes: Sequence[str] = ()
    details: list[dict[str, Any]] = field(default_factory=list)

    @property
    def long(self) -> bool:
        """Whether the table has more rows than a screen."""
        return len(self.rows) > LONG

    @property
    def grouped(self) -> bool:
        """Whether it needs a row of headings over its columns."""
        return any(head.text for head in self.heads)


def views(sources: Sources, cells: Registry) -> list[View]:
    """All tables in order."""
    return [view(build(sources), cells) for build in registry.builders().values()]


def view(table: Table, cells: Registry) -> View:
    """One table."""
    found = View(
        table.number, table.stem, table.title, _heads(table), table.columns, notes=table.notes
    )
    known: dict[str, int] = {}
    for row in table.rows:
        found.rows.append(
            [
                _place(column, row.get(column.key, Blank()), found, known, cells)
                for column in table.columns
            ]
        )
    return found


def _heads(table: Table) -> list[Head]:
    heads = []
    for group, members in itertools.groupby(table.columns, key=lambda column: column.group):
        columns = list(members)
        heads.append(Head(group, len(columns), columns[0].source.partition("-")[0]))
    return heads


def _place(
    column: Column, entry: Entry, found: View, known: dict[str, int], cells: Registry
) -> Place:
    text = write(entry, column.kind)
    if column.is_label:
        return Place(text, sort_key(text), True, False)
    mark = None
    if isinstance(entry, Missing):
        if entry.reason not in found.reasons:
            found.reasons.append(entry.reason)
        mark = found.reasons.index(entry.reason) + 1
    detail = _detail(column, entry, found.number, cells)
    index = None
    if detail is not None:
        index = known.setdefault(repr(detail), len(found.details))
        if index == len(found.details):
            found.details.append(detail)
    return Place(text, _value(entry, text), False, column.kind is not Kind.TEXT, index, mark)


def _value(entry: Entry, text: str) -> str:
    match entry:
        case Measured(estimate, _, _):
            return f"{estimate.value:.9g}"
        case Printed() if not math.isnan(entry.value):
            return f"{entry.value:.9g}"
        case Missing() | Blank():
            return ""
        case _:
            return text


def _detail(column: Column, entry: Entry, number: int, cells: Registry) -> dict[str, Any] | None:
    """What is told of a number on demand."""
    unit = "" if column.kind is Kind.TEXT else column.kind.value
    match entry:
        case Printed():
            where = f"Printed in Table {number} of the paper; measured by its authors."
            return {"from": "paper", "text": where, "hardware": paper.HARDWARE}
        case Measured(estimate, ids, kind):
            return {
                "from": column.group,
                "value": float(f"{estimate.value:.6g}"),
                "low": float(f"{estimate.low:.6g}"),
                "high": float(f"{estimate.high:.6g}"),
                "runs": estimate.runs,
                "unit": kind.value if kind else unit,
                "cells": [cells.place(name) for name in ids],
            }
        case Missing(reason):
            return {"from": column.group, "text": reason}
        case _:
            return None


_LENGTH = re.compile(r"(\d[\d,]*(?:\.\d+)?)\s*(K)?\b")


def sort_key(label: str) -> str:
    """A label's order: numbers by value, 4K as 4,096; words as they are."""
    match = _LENGTH.match(label)
    if not match:
        return label
    value = float(match[1].replace(",", "")) * (1024 if match[2] else 1)
    return f"{value:.9g}"
