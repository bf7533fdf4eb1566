"""Ratios between systems whose runs were interleaved: run i of both in one round of a rotation."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise
from typing import TypeAlias

from harness.analysis import statistics
from harness.analysis.cells import CellLike
from harness.analysis.statistics import Estimate

Run: TypeAlias = tuple[float, CellLike]
"""A value and the cell that gave it."""


def ratio(top: Sequence[Run], bottom: Sequence[Run]) -> Estimate:
    """Ratio of means over runs, resampled in pairs where the cells were measured in rounds.

    Raises ValueError as `statistics.ratio` does.
    """
    paired = in_rounds([cell for _, cell in top], [cell for _, cell in bottom])
    if paired:
        top, bottom = (sorted(side, key=lambda run: repetition(run[1])) for side in (top, bottom))
    return statistics.ratio(
        [value for value, _ in top], [value for value, _ in bottom], paired=paired
    )


def in_rounds(top: Sequence[CellLike], bottom: Sequence[CellLike]) -> bool:
    """Whether repetition i of both sides was measured before repetition j of either, for all pairs.

    Cells that one system's server measured in a row are no rounds: a drift hits the other later.
    """
    sides = [{repetition(cell): started(cell) for cell in side} for side in (top, bottom)]
    if sides[0].keys() != sides[1].keys() or len(sides[0]) < 2:
        return False
    if len(sides[0]) != len(top) or len(sides[1]) != len(bottom):
        return False
    times = [[side[index] for side in sides] for index in sides[0]]
    if any(time is None for pair in times for time in pair):
        return False
    rounds = sorted(sorted(time for time in pair if time is not None) for pair in times)
    return all(earlier[-1] < later[0] for earlier, later in pairwise(rounds))


def repetition(cell: CellLike) -> int:
    """Which repetition a cell is, from 0."""
    return int(cell.config.get("repetition") or 0)


def started(cell: CellLike) -> datetime | None:
    """When its measurement began; None where it does not say."""
    try:
        return datetime.fromisoformat(str(cell.record["started"]))
    except (KeyError, ValueError):
        return None
