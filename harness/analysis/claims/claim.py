"""A claim, a verdict, and how both are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from harness import paper
from harness.analysis.cells import CellLike
from harness.errors import HarnessError
from harness.tables.sources import CellSource, by_hardware_sources

FILE = paper.ROOT / "claims.yaml"
SWEEP = "python -m harness -m "
"""What the command of a claim that cells decide begins with."""


class Result(Enum):
    """What can be said of a claim."""

    PASS = "PASS"
    FAIL = "FAIL"
    INCONCLUSIVE = "INCONCLUSIVE"


@dataclass(frozen=True)
class Claim:
    """One claim.

    sentence: what is claimed. source: where. table: of the paper, None where it is in none.
    command: what measures it. minutes: about how long that takes. gpu: what it needs.
    judge: which of the judges decides; `options` are that judge's.
    expected: as printed or promised; tolerance: the relative deviation that still confirms it.
    """

    id: str
    sentence: str
    source: str
    table: int | None
    command: str
    minutes: float
    gpu: str
    judge: str
    expected: float | None = None
    tolerance: float | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Evidence:
    """What a judge may look at: the cells of one hardware, and a test report if there is one.

    tables: those that a judge built of these cells, by number, for the next claim on them.
    """

    hardware: str
    functional: bool
    cells: Sequence[CellLike]
    tests: Path | None = None
    tables: dict[int, Any] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def source(self) -> CellSource:
        """The cells as a table's source: what is missing is said alike for here and shipped."""
        (source,) = by_hardware_sources("here", self.cells, "not measured")
        return source


@dataclass(frozen=True)
class Verdict:
    """What one hardware says of one claim, with the number seen (empty: none) and the reason."""

    claim: Claim
    hardware: str
    result: Result
    observed: str
    reason: str


def cell_count(number: int) -> str:
    """A number of cells for people."""
    return "1 cell" if number == 1 else f"{number:,} cells"


def load(path: Path) -> list[Claim]:
    """The claims of a file. Raises HarnessError for no file, an unknown key or a double id."""
    try:
        raw = yaml.safe_load(path.read_text("utf-8"))
    except (OSError, yaml.YAMLError) as error:
        text = " ".join(str(error).split())
        raise HarnessError(f"{path} cannot be read as claims: {text}") from error
    if not isinstance(raw, list):
        raise HarnessError(f"{path} must be a list of claims")
    claims = [_claim(path, entry) for entry in raw]
    ids = [claim.id for claim in claims]
    double = sorted({name for name in ids if ids.count(name) > 1})
    if double:
        raise HarnessError(f"{path}: claim {double[0]} stands there twice")
    return claims


def _claim(path: Path, entry: object) -> Claim:
    if not isinstance(entry, dict) or "id" not in entry:
        raise HarnessError(f"{path}: each claim must be a mapping with an id")
    known = {one.name for one in fields(Claim)}
    if unknown := sorted(set(entry) - known):
        raise HarnessError(f"{path}: claim {entry['id']} has the unknown key {unknown[0]!r}")
    try:
        return Claim(**entry)
    except TypeError as error:
        raise HarnessError(f"{path}: claim {entry['id']} is incomplete: {error}") from error
