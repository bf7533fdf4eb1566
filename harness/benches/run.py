"""Running a benchmark program, and storing one of its launches as a cell."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness import environment, server, store
from harness.benches import counted, program
from harness.benches.plan import BenchPlan
from harness.counters.trace import Profiled
from harness.errors import HarnessError
from harness.files import identity
from harness.store import Cell

logger = logging.getLogger(__name__)

_reports: dict[tuple[str, int], dict[str, Any]] = {}
"""What this process has run: one run of a program holds every launch of a table, so a sweep runs
it once a repetition."""


def measure(plan: BenchPlan, rerun: bool = False) -> Cell:
    """Measure one launch and store it, valid or not; a valid one that is there is returned instead.

    Raises HarnessError when nothing can be stored.
    """
    with store.claim(plan.root, plan.id):
        existing = None if rerun else store.find_valid(plan.root, plan.id)
        if existing is not None:
            logger.info("%s: measured already (%s)", plan.title, plan.id)
            return existing
        return _attempt(plan)


def _attempt(plan: BenchPlan) -> Cell:
    started, began = datetime.now(UTC), time.monotonic()
    numbers: dict[str, float] = {}
    found: dict[str, Any] = {}
    logger.info("%s: measuring (%s)", plan.title, plan.id)
    try:
        report = _report(plan)
        found = {name: value for name, value in report.items() if name != "records"}
        found["record"] = plan.bench.pick(report, plan.config["workload"])
        numbers = plan.bench.numbers(found["record"])
        reasons = plan.bench.problems(found["record"])
        counters = _counters(plan)
        numbers |= counters.metrics
        reasons += counters.reasons
        found |= {"profile": counters.record} if counters.record else {}
    except HarnessError as error:
        reasons = [str(error)]
    workload = plan.config["workload"]
    cell = store.write(
        plan.root,
        {
            "id": plan.id,
            "config": plan.config,
            "workload": {
                "name": workload["name"],
                "sha256": identity(workload),
                "parameters": workload,
                "provenance": {"requests": "none: random queries, keys and values"},
            },
            "environment": environment.describe(plan.server.python),
            "valid": not reasons,
            "reasons": reasons,
            "metrics": numbers,
            "server": {"program": plan.server.module, "arguments": _public(plan)},
            "bench": found,
            "started": started.isoformat(timespec="seconds"),
            "seconds": {"program_s": round(time.monotonic() - began, 3)},
        },
        store.frame([]),
    )
    if cell.valid:
        logger.info("%s: %s", plan.title, _spoken(numbers))
    else:
        logger.error("%s: invalid: %s", plan.title, "; ".join(cell.reasons))
    return cell


def _public(plan: BenchPlan) -> list[str]:
    """The program's arguments, of a file its name alone: directories are this machine's own."""
    return [Path(a).name if a.startswith("/") else a for a in plan.server.arguments]


def _spoken(numbers: Mapping[str, float]) -> str:
    wall = numbers.get("kernel_wall_s")
    return "measured" if wall is None else f"{wall * 1e6:,.1f} µs a launch"


def _report(plan: BenchPlan) -> dict[str, Any]:
    """The program's report, run alone on its device unless this process has it already."""
    spec, key = plan.server, (plan.server.hash, int(plan.config["repetition"]))
    if key not in _reports:
        command = [spec.python, "-m", spec.module, *spec.arguments]
        timeout_s = plan.config["workload"]["timeout_s"]
        with server.alone(spec):
            out = program.run(spec.module, command, spec.environment, timeout_s)
        _reports[key] = _parsed(spec.module, out)
    return _reports[key]


def _parsed(name: str, out: str) -> dict[str, Any]:
    with suppress(ValueError):
        report = json.loads(out)
        if isinstance(report, dict):
            return report
    raise HarnessError(f"{name} printed no JSON object")


def _counters(plan: BenchPlan) -> Profiled:
    """Of the launch, where the configuration asks for them."""
    if plan.counted is None:
        return Profiled()
    with server.alone(plan.server):
        timeout_s = plan.config["workload"]["timeout_s"]
        return counted.count(plan.server, plan.counted, plan.config["profile"], timeout_s)
