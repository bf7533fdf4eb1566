"""What every benchmark is to the harness: a program, and how its report becomes a cell's numbers.

A program prints one JSON object: facts of the machine and `records`, one for each launch that it
measured, with the names of `harness/tables/CELLS.md`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from harness.errors import HarnessError

IDENTIFYING = (
    "layout",
    "read",
    "backend",
    "rows",
    "prefix_length",
    "q_heads",
    "kv_heads",
    "head_dim",
)
"""What a record and the workload that asks for it must say alike."""

Record = Mapping[str, Any]


class Bench(ABC):
    """One program.

    system: whose launch it measures (`conf/system/`). metrics: the record's keys that a cell keeps;
    required: those it must have.
    """

    name: ClassVar[str]
    system: ClassVar[str]
    module: ClassVar[str]
    metrics: ClassVar[tuple[str, ...]]
    required: ClassVar[tuple[str, ...]]

    @abstractmethod
    def arguments(self, config: Mapping[str, Any]) -> list[str]:
        """The program's own, after `python -m module`."""

    def counted(self, config: Mapping[str, Any]) -> list[str] | None:
        """Arguments that run the asked launch alone, for hardware counters; None: not counted."""
        return None

    def pick(self, report: Mapping[str, Any], workload: Mapping[str, Any]) -> Record:
        """The record of the launch that was asked for. Raises HarnessError when there is none."""
        asked = {name: workload[name] for name in IDENTIFYING}
        for record in report.get("records", ()):
            if all(record.get(name) == value for name, value in asked.items()):
                return dict(record)
        words = ", ".join(f"{name}={value}" for name, value in asked.items())
        raise HarnessError(f"{self.module} measured no launch of {words}")

    def numbers(self, record: Record) -> dict[str, float]:
        """The metrics that the record has."""
        return {name: float(record[name]) for name in self.metrics if _finite(record.get(name))}

    def problems(self, record: Record) -> list[str]:
        """Why the record must not be used, one line each; empty when it may be."""
        return [f"{self.module} gave no {n}" for n in self.required if not _finite(record.get(n))]


def _finite(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
