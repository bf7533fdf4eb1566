"""Kernel time by category from a profiler's trace (B.3): Tables 13 and 14."""

from __future__ import annotations

from dataclasses import dataclass

from harness.tables.comparison import Comparison, Row, system_label
from harness.tables.entries import Entry, Kind, Measured
from harness.tables.metrics import BASELINES, GPU_ONLY, NOT_CPU
from harness.tables.numbers import Point, Source
from harness.tables.printed import PaperSource
from harness.tables.sources import CellSource
from harness.tables.table import Column

CATEGORIES = {
    "Prefix attention": "prefix_attention",
    "Decode attention": "decode_attention",
    "Linear GEMM": "gemm",
    "NCCL": "nccl",
    "Sampling": "sampling",
    "Other": "other",
    "Total kernel": "total",
}
"""The paper's names, and those it leaves unnamed in its total, to `kernel_ms_<...>` of a cell."""
SYSTEMS = (*BASELINES[:2], "cascade_on_granikv", BASELINES[2])
B, L_P = 256, 8192
PROBE = "kineto"


@dataclass(frozen=True)
class KernelTime:
    """Kernel time of the row's category: in the whole window, or for each decode step."""

    key: str
    title: str
    kind: Kind
    per_step: bool = False
    systems: frozenset[str] | None = None
    only: frozenset[str] | None = NOT_CPU

    def entry(self, source: Source, point: Point) -> Entry:
        """The category is the point's case."""
        if isinstance(source, PaperSource):
            return source.printed(point, "kernel_ms")
        assert isinstance(source, CellSource)
        return source.compute(lambda: self._measured(source, point))

    def _measured(self, source: CellSource, point: Point) -> Measured:
        assert point.case is not None
        runs = source.runs(point, f"kernel_ms_{CATEGORIES[point.case]}")
        if self.per_step:
            steps = {name: value for value, name in source.runs(point, "profile_steps")}
            runs = [(value / steps[name], name) for value, name in runs if steps.get(name)]
        if not runs:
            raise LookupError("the traced cells do not say how many decode steps they hold")
        return source.mean(runs)


TIMES = (
    KernelTime("kernel_ms", "Kernel time (ms)", Kind.MILLISECONDS),
    KernelTime("kernel_ms_per_step", "per step (ms)", Kind.MILLISECONDS, True, only=GPU_ONLY),
)


def table(number: int, config: str) -> Comparison:
    """Seven categories by four systems on one model."""
    return Comparison(
        number=number,
        title=f"Kernel time by category: {config}, B = 256, L_p = 8K.",
        labels=(Column("category", "Category"), Column("system", "System")),
        metrics=TIMES,
        rows=[
            Row(
                {"category": category, "system": system_label(system)},
                Point(config, system, "sharegpt", B, L_P, case=category).with_traits(probe=PROBE),
            )
            for category in CATEGORIES
            for system in SYSTEMS
        ],
        command=f"python -m harness -m experiment=table{number:02d}",
        notes=(
            "Summed over a trace window that the paper does not give; windows differ, so compare "
            "the times for one step. Averaged over ranks.",
            "A profiler slows what it watches: these cells are in no table of throughput.",
        ),
    )
