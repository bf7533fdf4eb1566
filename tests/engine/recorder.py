"""Writes down what each rank decides, step by step, so that ranks can be compared."""

from __future__ import annotations

import json
import os
from importlib import import_module
from pathlib import Path
from typing import Any


def apply() -> None:
    """Record in this process if GRANIKV_TEST_RECORD names a folder: one file a rank."""
    folder = os.environ.get("GRANIKV_TEST_RECORD")
    if folder:
        _record(Path(folder))


def _record(folder: Path) -> None:
    runtime: Any = import_module("granikv.engine.runtime").Runtime
    before, count = runtime.before_forward, runtime.count

    def before_forward(self: Any, batch: Any) -> None:
        before(self, batch)
        hot, cold = self.tree.pools()
        _write(
            folder,
            self,
            {
                "requests": [req.rid for req in batch.reqs],
                "segments": [(s.base, s.p0, s.length, s.rows) for s in self._plan.segments],
                "free": [hot.free_size, cold.free_size, hot.donated_size],
                "counters": self.tree.counters.as_dict(),
            },
        )

    def counted(self: Any, decision: Any) -> None:
        count(self, decision)
        _write(folder, self, {"backend": decision.backend, "rows": decision.plan.rows})

    runtime.before_forward, runtime.count = before_forward, counted


def _write(folder: Path, runtime: Any, entry: dict[str, Any]) -> None:
    if runtime.scheduler is None:
        return
    rank = int(runtime.scheduler.ps.tp_rank)
    with (folder / f"rank{rank}.jsonl").open("a") as lines:
        lines.write(json.dumps(entry) + "\n")


def decisions(folder: Path, rank: int) -> list[dict[str, Any]]:
    """What one rank wrote."""
    return [json.loads(line) for line in (folder / f"rank{rank}.jsonl").open()]
