"""Table 17: what dispatching adds to a decode step (B.5)."""

from __future__ import annotations

from harness import paper
from harness.analysis.cells import KERNEL
from harness.tables.entries import Kind
from harness.tables.numbers import Metric, Point
from harness.tables.quantities import Quantities, Quantity
from harness.tables.sources import Sources
from harness.tables.table import Table

POINT = Point(paper.LLAMA_8B, "granikv", KERNEL, 256, 8192).with_traits(layout="HOT", read="shared")

TABLE = Quantities(
    number=17,
    title="Dispatch overhead at the headline shape (B = 256, L_p = 8K, Llama-3.1-8B heads).",
    rows=(
        Quantity(
            "Dense launches in 15 s",
            Metric("dense_launches_in_15_s", "", Kind.COUNT),
        ),
        Quantity("Kernel wall a launch (µs)", Metric("kernel_wall_us", "", Kind.MICROSECONDS)),
        Quantity(
            "Choice on the host a step (µs; the paper: below)",
            Metric("dispatch_cpu_us", "", Kind.MICROSECONDS, printed_as="wrapper_cpu_us_below"),
        ),
        Quantity(
            "Its share of the step (the paper: below)",
            Metric("dispatch_step_pct", "", Kind.PERCENT, printed_as="wrapper_step_pct_below"),
        ),
    ),
    points={"GraniKV": POINT},
    command="python -m harness -m experiment=table17",
    notes=(
        "A microbenchmark of the dispatcher and its dense kernel, not of the engine: that the "
        "dense backend fires in the engine is shown by the counters of Table 15.",
    ),
)


def build(sources: Sources) -> Table:
    """Four quantities of one kernel cell whose system is granikv."""
    return TABLE.build(sources)
