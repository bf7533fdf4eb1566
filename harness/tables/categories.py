"""Kernel time by category from a profiler's trace (B.3): Tables 13 and 14."""

from __future__ import annotations

from collections.abc import Callable

from harness.tables.comparison import Comparison, Row
from harness.tables.computed import Computed
from harness.tables.entries import Kind, Measured
from harness.tables.labels import system_label
from harness.tables.metrics import BASELINES, GPU_ONLY
from harness.tables.numbers import Point
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


def _mean(prefix: str) -> Callable[[CellSource, Point], Measured]:
    """Kernel time of the category that is the point's case, by the name of the metric."""

    def compute(source: CellSource, point: Point) -> Measured:
        assert point.case is not None
        return source.mean(source.runs(point, f"{prefix}_{CATEGORIES[point.case]}"))

    return compute


TIMES = (
    Computed("kernel_ms", "Kernel time (ms)", Kind.MILLISECONDS, _mean("kernel_ms")),
    Computed(
        "kernel_ms_per_step",
        "per step (ms)",
        Kind.MILLISECONDS,
        _mean("step_ms"),
        only=GPU_ONLY,
    ),
)


def table(number: int, *configs: str) -> Comparison:
    """Seven categories by four systems on each model."""
    return Comparison(
        number=number,
        title=f"Kernel time by category: {', '.join(configs)}, B = 256, L_p = 8K.",
        labels=(
            Column("config", "Model / TP"),
            Column("category", "Category"),
            Column("system", "System"),
        ),
        metrics=TIMES,
        rows=[
            Row(
                {"config": config, "category": category, "system": system_label(system)},
                Point(config, system, "sharegpt", B, L_P, case=category).with_traits(probe=PROBE),
            )
            for config in configs
            for category in CATEGORIES
            for system in SYSTEMS
        ],
        command=f"python -m harness -m experiment=table{number:02d}",
        notes=(
            "Summed over a trace window that the paper does not give; windows differ, so compare "
            "the times for one step. Averaged over ranks.",
            "A kernel that reads prefix and suffix in one launch, as the stock decode kernels and "
            "GraniKV's fused one do, counts as prefix attention; decode attention reads the suffix "
            "alone or merges. Kernel time is not the step: the GPU's idle time is γ of Table 22.",
            "A kernel that is launched before the one ahead of it on its stream has ended counts "
            "from that end on: until then it waits. Cells of before that rule count it in full "
            "(results/h200/README.md says which, and how much that is).",
            "A profiler slows what it watches: these cells are in no table of throughput.",
        ),
    )
