"""A job is one cell: of a server (`harness.cell`) or of a benchmark (`harness.benches`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from harness import benches, cell, checks
from harness import plan as serving
from harness.benches import plan as benching
from harness.benches import run
from harness.benches.plan import BenchPlan
from harness.plan import CellPlan
from harness.store import Cell

Job: TypeAlias = CellPlan | BenchPlan


def plan(config: Mapping[str, Any]) -> Job:
    """From a resolved configuration; starts nothing. Raises HarnessError, in one line."""
    checks.numbers(config)
    return benching.plan(config) if benches.asks_for_bench(config) else serving.plan(config)


def measure(job: Job, rerun: bool = False) -> Cell:
    """Measure and store one cell; a valid one that is there already is returned instead.

    One that cannot be used is stored with its reasons. Raises HarnessError when nothing can be
    stored.
    """
    if isinstance(job, BenchPlan):
        return run.measure(job, rerun)
    return cell.measure(job, rerun)
