"""A made-up decode trace: steps of known times, as kineto and as nsys would record them.

A decode step takes 100 µs: 60 of prefix attention, 10 of merging, 20 of GEMM, 10 idle. Its graph is
launched 5 µs after the step's start, and the GPU runs 1,000 µs behind. A prefill step takes 100 µs
of prefix attention by name.
"""

from __future__ import annotations

import gzip
import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

STEP_US, BEHIND_US, LAUNCH_US = 100.0, 1000.0, 5.0
DECODE_KERNELS = (("_prefix_kernel", 0, 60), ("_merge_kernel", 60, 70), ("nvjet_tst_TNT", 70, 90))
PREFILL_KERNELS = (("flash::FlashAttnFwdSm90", 0, 100),)


def kernels_of(decode: bool) -> Sequence[tuple[str, int, int]]:
    return DECODE_KERNELS if decode else PREFILL_KERNELS


def events(modes: str) -> list[dict[str, Any]]:
    """A kineto trace of steps, one a letter: D decodes, P prefills; none: of a CPU."""
    found: list[dict[str, Any]] = [{"ph": "M", "name": "process_name", "args": {"name": "python"}}]
    for index, mode in enumerate(modes):
        at, decode = index * STEP_US, mode == "D"
        name = "step[DECODE bs=8]" if decode else "step[EXTEND bs=1 toks=64]"
        for category in ("user_annotation", "gpu_user_annotation"):
            found.append(_event(category, name, at, 20, None))
        launch = "cudaGraphLaunch" if decode else "cudaLaunchKernel"
        found.append(_event("cuda_runtime", launch, at + LAUNCH_US, 3, index))
        for kernel, start, end in kernels_of(decode):
            found.append(_event("kernel", kernel, at + BEHIND_US + start, end - start, index))
    if modes:
        found.append(_event("kernel", "_launched_before_the_trace", 0, 900, 10**6))
    found.append(_event("gpu_memcpy", "Memcpy HtoD", 0, 900, 10**6 + 1))
    return found


def _event(category: str, name: str, at: float, dur: float, corr: int | None) -> dict[str, Any]:
    arguments = {} if corr is None else {"correlation": corr, "device": 0, "stream": 7}
    return {"ph": "X", "cat": category, "name": name, "ts": at, "dur": dur, "args": arguments}


def write_kineto(directory: Path, profile_id: str, rank: int, modes: str) -> Path:
    path = directory / f"{profile_id}-TP-{rank}.trace.json.gz"
    with gzip.open(path, "wt", encoding="utf-8") as file:
        json.dump({"schemaVersion": 1, "traceEvents": events(modes)}, file)
    return path


SCHEMA = """
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (
  start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL, globalTid INTEGER,
  correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL,
  callchainId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (
  start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
  contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL,
  correlationId INTEGER, globalPid INTEGER, demangledName INTEGER NOT NULL,
  shortName INTEGER NOT NULL, mangledName INTEGER, launchType INTEGER, cacheConfig INTEGER,
  registersPerThread INTEGER NOT NULL, gridX INTEGER NOT NULL, gridY INTEGER NOT NULL,
  gridZ INTEGER NOT NULL, blockX INTEGER NOT NULL, blockY INTEGER NOT NULL,
  blockZ INTEGER NOT NULL, staticSharedMemory INTEGER NOT NULL,
  dynamicSharedMemory INTEGER NOT NULL, localMemoryPerThread INTEGER NOT NULL,
  localMemoryTotal INTEGER NOT NULL, gridId INTEGER NOT NULL, sharedMemoryExecuted INTEGER,
  graphNodeId INTEGER, sharedMemoryLimitConfig INTEGER);
"""
NVTX = """
CREATE TABLE NVTX_EVENTS (
  start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER,
  category INTEGER, color INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER,
  textId INTEGER, domainId INTEGER, uint64Value INTEGER, int64Value INTEGER, doubleValue REAL,
  uint32Value INTEGER, int32Value INTEGER, floatValue REAL, jsonTextId INTEGER, jsonText TEXT);
"""


class Database:
    """An nsys export under construction."""

    def __init__(self, path: Path, nvtx: bool) -> None:
        self.path, self.nvtx = path, nvtx
        self._strings: dict[str, int] = {}
        with closing(sqlite3.connect(path)) as connection:
            connection.executescript(SCHEMA + (NVTX if nvtx else ""))
            connection.commit()

    def add_process(self, pid: int, device: int, modes: str) -> None:
        """One rank's steps; decoding in graphs whose nodes are 1, 2, ..."""
        with closing(sqlite3.connect(self.path)) as connection:
            for index, mode in enumerate(modes):
                self._add_step(connection, pid, device, index, mode == "D")
            rows = [(number, text) for text, number in self._strings.items()]
            connection.executemany("INSERT OR IGNORE INTO StringIds VALUES (?, ?)", rows)
            connection.commit()

    def _string(self, text: str) -> int:
        return self._strings.setdefault(text, len(self._strings) + 1)

    def _add_step(
        self, connection: sqlite3.Connection, pid: int, device: int, index: int, decode: bool
    ) -> None:
        at, tid = index * STEP_US, pid << 24 | 7
        name = self._string("cudaGraphLaunch_v10000" if decode else "cudaLaunchKernel_v7000")
        launch = _ns(at + LAUNCH_US)
        connection.execute(
            "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, 0, ?, ?, ?, 0, NULL)",
            (launch, launch + 3000, tid, index, name),
        )
        if self.nvtx:
            self._add_range(connection, at, tid, decode)
        for node, (kernel, start, end) in enumerate(kernels_of(decode), start=1):
            begins = at + BEHIND_US
            numbers = [self._string(f"void {kernel}(Params)"), self._string(kernel)]
            values: list[int | None] = [_ns(begins + start), _ns(begins + end), device, 1, None]
            values += [7, index, pid << 24, *numbers, None, 0, 0, 64, 1, 1, 1, 128, 1, 1]
            values += [0, 0, 0, 0, 0, 0, node if decode else None, 0]
            places = ", ".join("?" * len(values))
            connection.execute(f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({places})", values)

    def _add_range(self, connection: sqlite3.Connection, at: float, tid: int, decode: bool) -> None:
        """Half of the ranges have their text in StringIds, as registered strings do."""
        text = "step[DECODE bs=8]" if decode else "step[EXTEND bs=1 toks=64]"
        where = (None, self._string(text)) if at % 200 else (text, None)
        connection.execute(
            "INSERT INTO NVTX_EVENTS (start, end, eventType, text, textId, globalTid) "
            "VALUES (?, ?, 59, ?, ?, ?)",
            (_ns(at), _ns(at + 20), *where, tid),
        )


def _ns(us: float) -> int:
    return int(us * 1000)
