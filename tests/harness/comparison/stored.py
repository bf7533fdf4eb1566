"""Made-up cells, stored as measured ones are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness import store
from tests.harness.analysis.made_up import MadeUpCell, cpu_cell, gpu_cell


def put(root: Path, cell: MadeUpCell, environment: dict[str, Any] | None = None) -> None:
    """Store one."""
    record = {
        "id": cell.id,
        "config": dict(cell.config),
        "metrics": dict(cell.metrics),
        "valid": cell.valid,
        "reasons": list(cell.reasons),
        "environment": environment or {},
        "server": {},
        "workload": {"sha256": "abc"},
        "started": "2026-01-01T00:00:00+00:00",
    }
    store.write(root, record, store.frame([]))


def runs(
    root: Path,
    system: str,
    speeds: Sequence[float],
    *,
    functional: bool = False,
    environment: dict[str, Any] | None = None,
    tpots: Sequence[float] | None = None,
    **parts: Any,
) -> Path:
    """Store one system's repetitions; `tpots` are its TPOT p50 in ms."""
    for index, speed in enumerate(speeds):
        metrics = {"hit_rate": 0.9} | ({"tpot_p50_ms": tpots[index]} if tpots else {})
        make = cpu_cell if functional else gpu_cell
        put(root, make(system, speed, repetition=index, metrics=metrics, **parts), environment)
    return root
