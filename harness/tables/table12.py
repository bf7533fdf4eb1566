"""Table 12: where GraniKV's throughput peaks over B at L_p = 16K (B.2b)."""

from __future__ import annotations

from dataclasses import replace

from harness import paper
from harness.analysis import statistics
from harness.tables.comparison import Comparison, Row
from harness.tables.computed import Computed
from harness.tables.entries import Kind, Measured
from harness.tables.numbers import Metric, Point
from harness.tables.sources import CellSource, Sources, ids
from harness.tables.table import Column, Table

BS = (256, 512, 1024)
L_P = 16384


def _peak(source: CellSource, point: Point) -> Measured:
    """The B of the highest mean; a difference inside the intervals decides as much as any.

    A dash unless every B was measured.
    """
    runs = {b: source.runs(replace(point, b=b), "output_tok_s") for b in BS}
    best = max(BS, key=lambda b: (statistics.mean([v for v, _ in runs[b]]).value, -b))
    cells = tuple(name for b in BS for name in ids(runs[b]))
    fewest = min(len(of_b) for of_b in runs.values())
    return Measured(statistics.Estimate(best, best, best, fewest), cells)


TABLE = Comparison(
    number=12,
    title="GraniKV's output throughput (tok/s) over B at L_p = 16K, ShareGPT at saturation.",
    labels=(Column("config", "Model / TP"),),
    metrics=(
        *(
            Metric("output_tok_s", f"B = {b:,}", Kind.THROUGHPUT, at=(("b", b),), tag=f"b{b}")
            for b in BS
        ),
        Computed("peak_b", "Best B", Kind.COUNT, _peak),
    ),
    rows=[
        Row({"config": config}, Point(config, "granikv", "sharegpt", 256, L_P))
        for config in paper.CONFIGS
    ],
    command="python -m harness -m experiment=table09 system=granikv workload.prefix_length=16384",
    notes=("The cells of Tables 9–11 at L_p = 16K.",),
)


def build(sources: Sources) -> Table:
    """Three models, three B and the best of them."""
    return TABLE.build(sources)
