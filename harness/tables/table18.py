"""Table 18: throughput over the COLD pool's page size (B.6)."""

from __future__ import annotations

from dataclasses import replace

from harness import paper
from harness.analysis import statistics
from harness.tables.comparison import Comparison, Row
from harness.tables.computed import Computed
from harness.tables.entries import Kind, Measured
from harness.tables.metrics import OUTPUT
from harness.tables.numbers import Point
from harness.tables.sources import CellSource, Sources, ids
from harness.tables.table import Column, Table

SIZES = (1, 4, 16)
CONFIGS = (paper.LLAMA_8B, paper.QWEN_32B, "Qwen-2.5-32B/TP=2")
"""The paper's two, and the large model on two ranks."""


AT_SIZE = tuple(
    replace(
        OUTPUT,
        title=f"page {size}",
        at=(("traits", (("page_size", size),)), ("case", f"page size {size}")),
        tag=f"page{size}",
    )
    for size in SIZES
)


def _spread(source: CellSource, point: Point) -> Measured:
    """Largest difference between the sizes over the largest throughput, %.

    A dash unless every size was measured.
    """
    runs = [source.runs(metric.place(point), metric.name) for metric in AT_SIZE]
    means = [statistics.mean([value for value, _ in of_size]).value for of_size in runs]
    spread = 100.0 * (max(means) - min(means)) / max(means)
    fewest = min(len(of_size) for of_size in runs)
    cells = tuple(name for of_size in runs for name in ids(of_size))
    return Measured(statistics.Estimate(spread, spread, spread, fewest), cells)


TABLE = Comparison(
    number=18,
    title="GraniKV's output throughput (tok/s) over COLD's page size, synthetic burst, B = 256, "
    "L_p = 8K.",
    labels=(Column("config", "Model / TP"),),
    metrics=(*AT_SIZE, Computed("spread_pct", "spread", Kind.PERCENT, _spread)),
    rows=[
        Row({"config": config}, Point(config, "granikv", "synthetic", 256, 8192))
        for config in CONFIGS
    ],
    command="python -m harness -m experiment=table18",
    notes=(
        "The spread compares means; between runs of one cell it is larger (Table 24 states 6%).",
    ),
)


def build(sources: Sources) -> Table:
    """Three configurations, three page sizes and their spread."""
    return TABLE.build(sources)
