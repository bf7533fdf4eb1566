"""Kernel traces of Nsight Systems: around the server's command, and read from its SQLite export.

The window is opened and closed by the CUDA profiler API, which SGLang calls for the activity
CUDA_PROFILER. Graphs are traced node by node: without that a replay would be one nameless block.
"""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pandas as pd

from harness.analysis.kernel_names import DECODE, classify
from harness.analysis.timeline import PREFIX
from harness.counters.trace import KERNEL_COLUMNS, RankTrace, ReportError, Step

TOOL = "nsys"
EXPORT_TIMEOUT_S = 300.0
ATTENTION = frozenset({PREFIX, DECODE})
PROCESS = 0x1000000
"""The export's global thread ids are process · 2^24 + thread."""
PUSH_POP = 59
"""`eventType` of an NVTX range that was pushed and popped."""

_KERNELS = f"""
SELECT k.globalPid / {PROCESS} AS process, k.deviceId AS device, k.correlationId AS correlation,
       k.graphNodeId AS node, k.streamId AS stream, k.start / 1e3 AS start_us,
       k.end / 1e3 AS end_us, s.value AS name
FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s ON s.id = k.demangledName
"""
_LAUNCHES = f"""
SELECT globalTid / {PROCESS} AS process, correlationId AS correlation, start / 1e3 AS launch_us
FROM CUPTI_ACTIVITY_KIND_RUNTIME
"""
_STEPS = f"""
SELECT n.globalTid / {PROCESS} AS process, n.start / 1e3 AS at_us,
       COALESCE(n.text, s.value) AS name
FROM NVTX_EVENTS n LEFT JOIN StringIds s ON s.id = n.textId
WHERE n.eventType = {PUSH_POP} AND COALESCE(n.text, s.value) LIKE 'step[%'
"""
_NEEDED = {
    "CUPTI_ACTIVITY_KIND_KERNEL": "start end deviceId correlationId globalPid demangledName "
    "graphNodeId streamId",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start correlationId globalTid",
    "StringIds": "id value",
}


def is_there() -> bool:
    """Whether Nsight Systems can be run here."""
    return shutil.which(TOOL) is not None


def wrapper(report: Path) -> list[str]:
    """The command before the server's: `report` may hold %p, and one file is made a window."""
    return [
        TOOL,
        "profile",
        "--trace=cuda,nvtx",
        "--sample=none",
        "--cpuctxsw=none",
        "--cuda-graph-trace=node",
        "--capture-range=cudaProfilerApi",
        "--capture-range-end=repeat",
        "--force-overwrite=true",
        "--output",
        str(report),
    ]


def request(directory: Path, profile_id: str, steps: int) -> dict[str, Any]:
    """The body of `/start_profile`: the profiler API around `steps` forward steps, no kineto."""
    return {
        "output_dir": str(directory),
        "profile_id": profile_id,
        "num_steps": steps,
        "activities": ["CUDA_PROFILER"],
    }


def export(report: Path) -> Path:
    """The SQLite database of a report, made by nsys beside it. Raises ReportError."""
    target = report.with_suffix(".sqlite")
    command = [TOOL, "export", "--type=sqlite", "--force-overwrite=true", f"--output={target}"]
    try:
        subprocess.run(
            [*command, str(report)], check=True, capture_output=True, timeout=EXPORT_TIMEOUT_S
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise ReportError(f"nsys export of {report.name} failed: {type(error).__name__}") from None
    return target


def read(database: Path) -> list[RankTrace]:
    """One trace a process that ran kernels, in the order of their devices. Raises ReportError.

    Steps are NVTX ranges `step[...]` where the engine makes them. Else a step is a graph launch
    with attention in it, and attention outside a graph is prefill.
    """
    if not database.is_file():
        raise ReportError(f"there is no {database.name}")
    try:
        with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
            _check(connection)
            kernels = pd.read_sql_query(_KERNELS, connection)
            launches = pd.read_sql_query(_LAUNCHES, connection)
            marks = _marks(connection)
    except (sqlite3.Error, pd.errors.DatabaseError) as error:
        cause = str(error).rpartition(": ")[2]
        raise ReportError(f"{database.name} cannot be read: {cause}") from None
    first = launches.groupby(["process", "correlation"], as_index=False)["launch_us"].min()
    known = kernels.merge(first, on=["process", "correlation"]).sort_values("launch_us")
    return list(_ranks(known, marks))


def _check(connection: sqlite3.Connection) -> None:
    for table, columns in _NEEDED.items():
        there = {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}
        if not there:
            raise ReportError(f"the report has no table {table}: no kernel was recorded")
        if missing := sorted(set(columns.split()) - there):
            raise ReportError(f"the report's {table} has no column {missing[0]}")


def _marks(connection: sqlite3.Connection) -> pd.DataFrame:
    """NVTX step ranges: process, at_us, name; without a range there is no table."""
    if not connection.execute("PRAGMA table_info(NVTX_EVENTS)").fetchall():
        return pd.DataFrame(columns=["process", "at_us", "name"])
    return pd.read_sql_query(_STEPS, connection)


def _ranks(kernels: pd.DataFrame, marks: pd.DataFrame) -> Iterator[RankTrace]:
    processes = kernels.groupby("process")["device"].min().sort_values(kind="stable").index
    for rank, process in enumerate(processes):
        own = kernels[kernels["process"] == process]
        spans = marks[marks["process"] == process].sort_values("at_us")
        steps = [Step(at, name.startswith("step[DECODE")) for at, name in _pairs(spans)]
        yield RankTrace(rank, own[list(KERNEL_COLUMNS)], steps or _steps_of_graphs(own))


def _pairs(spans: pd.DataFrame) -> Iterator[tuple[float, str]]:
    return zip(spans["at_us"], spans["name"], strict=True)


def _steps_of_graphs(kernels: pd.DataFrame) -> list[Step]:
    attention = kernels[[classify(name) in ATTENTION for name in kernels["name"]]]
    in_graph = attention["node"].fillna(0).astype("int64") != 0
    replays = attention[in_graph].drop_duplicates("correlation")["launch_us"]
    eager = attention[~in_graph]["launch_us"]
    return sorted([Step(at, True) for at in replays] + [Step(at, False) for at in eager])
