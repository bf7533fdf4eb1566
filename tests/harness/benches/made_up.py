"""A benchmark program whose report is made up."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from harness.store import Cell

WALL_US = {"HOT shared": 50.0, "HOT unshared": 400.0, "paged shared": 60.0, "paged unshared": 500.0}
Measure: TypeAlias = Callable[..., Cell]


def record(launch: str, **changes: Any) -> dict[str, Any]:
    layout, read = launch.split()
    return {
        "layout": layout,
        "read": read,
        "backend": "dense",
        "rows": 256,
        "prefix_length": 8192,
        "q_heads": 32,
        "kv_heads": 8,
        "head_dim": 128,
        "relative_error": 2e-3,
        "kernel_wall_s": WALL_US[launch] * 1e-6,
        "floor_flop_us": 43.5,
    } | changes


class Program:
    """The program's directory: what it prints, and how often it ran."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.prints(record(launch) for launch in WALL_US)

    def prints(self, records: Any) -> None:
        report = {"bench": "kernels", "device": "made up", "records": list(records)}
        (self.directory / "report.json").write_text(json.dumps(report))

    @property
    def runs(self) -> list[str]:
        path = self.directory / "runs"
        return path.read_text().splitlines() if path.exists() else []
