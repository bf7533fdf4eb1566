"""Table 16: the fit of the dispatch threshold, with both children forced (B.4b)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from harness import paper
from harness.analysis import threshold
from harness.tables.comparison import Comparison, Row
from harness.tables.computed import Computed
from harness.tables.entries import Kind, Measured
from harness.tables.metrics import GPU_ONLY, MEASURED_ONLY, TPOT_P50
from harness.tables.numbers import Metric, Point
from harness.tables.sources import CellSource, Sources
from harness.tables.table import Column, Table

BS = (8, 32, 128, 256)
L_P = 8192
GROUP = 4
"""n_q/kv of Llama-3.1-8B."""
DENSE, CASCADE = "granikv_dense", "granikv_cascade"


def _tpot(system: str, title: str, only: frozenset[str] | None = None) -> Metric:
    return replace(TPOT_P50, title=title, at=(("system", system),), tag=system, only=only)


def _quotient(top: str, bottom: str) -> Callable[[CellSource, Point], Measured]:
    """TPOT of one system over another's; below 1 the first is faster."""

    def compute(source: CellSource, point: Point) -> Measured:
        runs = [source.runs(replace(point, system=name), TPOT_P50.name) for name in (top, bottom)]
        return source.ratio(*runs)

    return compute


DISPATCHED = Computed(
    "tpot_ratio_to_sglang_cascade",
    "GKV / SGL-C",
    Kind.RATIO,
    _quotient("granikv", "sglang_cascade"),
)
FORCED = Computed(
    "dense_to_cascade", "dense / cascade", Kind.RATIO, _quotient(DENSE, CASCADE), only=GPU_ONLY
)
"""The paper has the dispatcher's quotient alone; the forced children are ours."""
TO_DENSE = Computed(
    "dispatched_to_dense", "GKV / dense", Kind.RATIO, _quotient("granikv", DENSE), only=GPU_ONLY
)

TABLE = Comparison(
    number=16,
    title="TPOT over M_eff at L_p = 8K, Llama-3.1-8B/TP=1: the dispatcher and both of its "
    "children forced.",
    labels=(Column("b", "B"), Column("m_eff", "M_eff")),
    metrics=(
        _tpot("granikv", "GKV (ms)"),
        _tpot("sglang_cascade", "SGL-C (ms)"),
        DISPATCHED,
        _tpot(DENSE, "dense forced (ms)", MEASURED_ONLY),
        _tpot(CASCADE, "cascade forced (ms)", MEASURED_ONLY),
        FORCED,
        TO_DENSE,
        Metric("mean_m_eff", "mean M_eff", Kind.COUNT, only=MEASURED_ONLY),
    ),
    rows=[
        Row(
            {"b": str(b), "m_eff": f"{b * GROUP:,}"},
            Point(paper.LLAMA_8B, "granikv", "synthetic", b, L_P),
        )
        for b in BS
    ],
    command="python -m harness -m experiment=table16",
    notes=(
        "The paper's GKV column is the dispatcher's time, which below the threshold chose dense in "
        "0, 0 and 11% of the steps (Table 15): there it compares cascade with cascade.",
        "mean M_eff is over all decode steps of GraniKV's cells, the ramp up and down included.",
    ),
)


def samples(source: CellSource) -> list[threshold.Sample]:
    """The sweep of the forced children as far as it was measured."""
    found = []
    for row, b in zip(TABLE.rows, BS, strict=True):
        entry = FORCED.entry(source, row.point)
        if isinstance(entry, Measured):
            found.append(threshold.Sample(b * GROUP, entry.estimate))
    return found


def _fitted(sources: Sequence[CellSource]) -> list[str]:
    notes = []
    for source in sources:
        swept = [] if source.functional else samples(source)
        if swept:
            notes.append(f"{source.heading}: {_sentence(threshold.fit(swept))}")
    return notes


def _sentence(fit: threshold.Fit) -> str:
    if fit.m_sat is None:
        return "dense is slower than cascade at the largest M_eff; no threshold in the sweep."
    if fit.below is None:
        return f"dense is no slower anywhere; M_sat is {fit.m_sat:,} or less."
    return f"M_sat lies above {fit.below:,} and at or below {fit.m_sat:,}."


def build(sources: Sources) -> Table:
    """Four B; the fitted threshold of each GPU stands in the notes."""
    table = TABLE.build(sources)
    return replace(table, notes=(*table.notes, *_fitted(sources.measured(TABLE.command))))
