"""Kernel time by category from a profiler's trace (B.3): Tables 13 and 14."""

from __future__ import annotations

from harness.tables.comparison import Comparison, Row
from harness.tables.computed import Computed
from harness.tables.entries import Kind, Measured
from harness.tables.labels import system_label
from harness.tables.metrics import BASELINES, GPU_ONLY
from harness.tables.numbers import Point
from harness.tables.sources import CellSource, Runs
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


def _in_window(source: CellSource, point: Point) -> Measured:
    """Kernel time of the category that is the point's case, in the whole traced window."""
    return source.mean(_runs(source, point))


def _per_step(source: CellSource, point: Point) -> Measured:
    steps = {name: value for value, name in source.runs(point, "profile_steps")}
    runs = [(value / steps[name], name) for value, name in _runs(source, point) if steps.get(name)]
    if not runs:
        raise LookupError("the traced cells do not say how many decode steps they hold")
    return source.mean(runs)


def _runs(source: CellSource, point: Point) -> Runs:
    assert point.case is not None
    return source.runs(point, f"kernel_ms_{CATEGORIES[point.case]}")


TIMES = (
    Computed("kernel_ms", "Kernel time (ms)", Kind.MILLISECONDS, _in_window),
    Computed("kernel_ms_per_step", "per step (ms)", Kind.MILLISECONDS, _per_step, only=GPU_ONLY),
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
