"""Table 17: what dispatching adds to a decode step (B.5)."""

from __future__ import annotations

from harness import paper
from harness.analysis.cells import KERNEL
from harness.tables.entries import Kind
from harness.tables.numbers import Metric, Point
from harness.tables.quantities import Quantities, Quantity
from harness.tables.sources import Sources
from harness.tables.table import Table

POINT = Point(paper.LLAMA_8B, "granikv", KERNEL, 256, 8192).with_traits(
    layout="HOT", read="shared", backend="dispatch"
)


def _row(label: str, name: str, kind: Kind, printed_as: str | None = None) -> Quantity:
    return Quantity(label, Metric(name, "", kind, printed_as=printed_as))


TABLE = Quantities(
    number=17,
    title="Dispatch overhead at the headline shape (B = 256, L_p = 8K, Llama-3.1-8B heads).",
    rows=(
        _row("Dense launches in 15 s", "dense_launches_in_15_s", Kind.COUNT),
        _row("Kernel wall a launch (µs)", "kernel_wall_us", Kind.MICROSECONDS),
        _row(
            "Choice on the host a step (µs; the paper: below)",
            "dispatch_cpu_us",
            Kind.MICROSECONDS,
            "wrapper_cpu_us_below",
        ),
        _row(
            "Its share of the step (the paper: below)",
            "dispatch_step_pct",
            Kind.PERCENT,
            "wrapper_step_pct_below",
        ),
        _row(
            "Choice when the plan is new, p99 (µs)",
            "decision_new_plan_p99_us",
            Kind.MICROSECONDS,
        ),
        _row("Plan of a step, classes change, p99 (µs)", "plan_changed_p99_us", Kind.MICROSECONDS),
        _row("Plan of a step, nothing new, p99 (µs)", "plan_unchanged_p99_us", Kind.MICROSECONDS),
        _row("Work list and snapshot, p99 (µs)", "metadata_p99_us", Kind.MICROSECONDS),
        _row("Attention of a step (µs)", "step_wall_us", Kind.MICROSECONDS),
    ),
    points={"GraniKV": POINT},
    command="python -m harness -m experiment=table17",
    notes=(
        "A microbenchmark of the dispatcher and its dense kernel, not of the engine: that the "
        "dense backend fires in the engine is shown by the counters of Table 15.",
        "The step is its attention alone, so the share is a bound from above. Plan, work list and "
        "snapshot are this project's; the paper does not give their cost.",
    ),
)


def build(sources: Sources) -> Table:
    """Nine quantities of one kernel cell whose system is granikv."""
    return TABLE.build(sources)
