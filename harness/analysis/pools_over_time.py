"""What GraniKV's pools held while a cell's load ran, from its telemetry."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from harness.analysis.cells import CellLike
from harness.errors import HarnessError
from harness.telemetry.sample import STATE
from harness.telemetry.state import POOLS

TABLE = "telemetry"
CAPACITY = "capacity"
LEAST = 3
"""Moments that make a curve."""


def shares(cell: CellLike, uses: Sequence[str]) -> pd.DataFrame | None:
    """Percent of all KV slots by use (a column each) over t_s (the index); None without a curve.

    Uses can overlap: what HOT has lent is live or free in COLD as well, so that the pools' own
    capacity is the whole, not the uses' sum.
    Rank 0's; ranks decide alike. A cell whose telemetry was not kept has none.
    """
    rows = _telemetry(cell)
    if rows is None:
        return None
    named = {POOLS + use: use for use in (*uses, CAPACITY)}
    of_pools = rows[(rows["source"] == STATE) & (rows["rank"] == 0) & rows["name"].isin(named)]
    slots = of_pools.pivot(index="t_s", columns="name", values="value").rename(columns=named)
    if len(slots) < LEAST or set(slots.columns) != set(named.values()):
        return None
    return 100.0 * slots[list(uses)].div(slots[CAPACITY], axis=0)


def _telemetry(cell: CellLike) -> pd.DataFrame | None:
    table = getattr(cell, "frame", None)
    try:
        rows: pd.DataFrame | None = table(TABLE) if table is not None else None
    except HarnessError:
        return None
    return rows
