"""Kernel traces of SGLang's own profiler (torch's kineto): asked for over HTTP, read from disk.

The engine writes one `<profile id>-TP-<rank>.trace.json.gz` a rank. Its forward steps are marked in
it, `step[DECODE bs=256]` or `step[EXTEND ...]`, whether a CUDA graph is replayed or not.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from harness.counters.trace import KERNEL_COLUMNS, RankTrace, ReportError, Step

LAUNCHES = frozenset({"cuda_runtime", "cuda_driver"})
STEP, DECODE = "step[", "step[DECODE"
_RANK = re.compile(r"-TP-(\d+).*\.trace\.json\.gz")


def request(directory: Path, profile_id: str, steps: int) -> dict[str, Any]:
    """The body of `/start_profile`: `steps` forward steps from now on, kernels and launches."""
    return {
        "output_dir": str(directory),
        "profile_id": profile_id,
        "num_steps": steps,
        "activities": ["CPU", "GPU"],
        "with_stack": False,
        "record_shapes": False,
    }


def read(directory: Path, profile_id: str) -> list[RankTrace]:
    """The traces of all ranks. Raises ReportError where there is none or one is damaged."""
    files = sorted(directory.glob(f"{profile_id}-TP-*.trace.json.gz"))
    if not files:
        raise ReportError("the engine wrote no trace")
    return [rank_trace(_rank(path), _events(path)) for path in files]


def _rank(path: Path) -> int:
    found = _RANK.search(path.name)
    assert found is not None
    return int(found[1])


def _events(path: Path) -> list[dict[str, Any]]:
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            events: list[dict[str, Any]] = json.load(file)["traceEvents"]
    except (OSError, EOFError, ValueError, KeyError):
        raise ReportError(f"{path.name} is no complete trace") from None
    return events


def rank_trace(rank: int, events: Iterable[dict[str, Any]]) -> RankTrace:
    """Kernels with the time of their launch, and steps; a kernel without a launch is left out."""
    launched: dict[int, float] = {}
    kernels: list[tuple[int, int, float, float, str]] = []
    steps: list[Step] = []
    for event in events:
        if event.get("ph") != "X":
            continue
        category, name, at = event.get("cat"), str(event.get("name")), float(event["ts"])
        arguments = event.get("args", {})
        correlation = arguments.get("correlation")
        if category in LAUNCHES and correlation is not None:
            launched[int(correlation)] = at
        elif category == "kernel" and correlation is not None:
            end = at + float(event["dur"])
            kernels.append((int(correlation), int(arguments.get("stream", 0)), at, end, name))
        elif category == "user_annotation" and name.startswith(STEP):
            steps.append(Step(at, name.startswith(DECODE)))
    rows: Sequence[tuple[float, int, float, float, str]] = [
        (launched[correlation], stream, start, end, name)
        for correlation, stream, start, end, name in kernels
        if correlation in launched
    ]
    return RankTrace(rank, pd.DataFrame(rows, columns=list(KERNEL_COLUMNS)), sorted(steps))
