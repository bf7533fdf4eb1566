"""Table 15: how often the dispatcher chose the dense backend (B.4)."""

from __future__ import annotations

from dataclasses import replace

from harness import paper
from harness.analysis import derived
from harness.tables.comparison import Comparison, Row
from harness.tables.computed import Computed
from harness.tables.entries import Entry, Kind, Missing
from harness.tables.labels import length_label
from harness.tables.numbers import Metric, Point
from harness.tables.sources import CellSource, Sources
from harness.tables.table import Column, Table

LENGTHS = (512, 2048, 8192, 16384)
BS = (8, 32, 128, 256)


def _majority(source: CellSource, point: Point) -> Entry:
    """The backend of most decode steps over all cells of a row, with its share."""
    cells = [c for b in BS for c in source.shown(replace(point, b=b)) if c.valid]
    counts = [found for cell in cells if (found := derived.steps(cell))]
    if not counts:
        return Missing("these cells count no decode step" if cells else source.absent)
    total = {name: sum(found[name] for found in counts) for name in derived.BACKENDS}
    most = max(derived.BACKENDS, key=lambda name: total[name])
    return f"{most} ({total[most] / sum(total.values()):.0%})"


TABLE = Comparison(
    number=15,
    title="Decode steps that the dispatcher gave to the dense backend, Llama-3.1-8B/TP=1 "
    "(n_q/kv = 4).",
    labels=(Column("l_p", "L_p"),),
    metrics=(
        *(
            Metric("dense_step_pct", f"B = {b}", Kind.PERCENT, at=(("b", b),), tag=f"b{b}")
            for b in BS
        ),
        Computed("majority", "Most steps", Kind.TEXT, _majority, only=None),
    ),
    rows=[
        Row({"l_p": length_label(l_p)}, Point(paper.LLAMA_8B, "granikv", "synthetic", 256, l_p))
        for l_p in LENGTHS
    ],
    command="python -m harness -m experiment=table15",
    notes=(
        "The dispatcher's own counters over the measured load; steps that read no shared prefix "
        "count as paged.",
        "M_eff = B · n_q/kv of the whole step is compared with M_sat of the hardware profile.",
        "By the paper's last column a row is mixed or cascade by a rule it does not state.",
    ),
)


def build(sources: Sources) -> Table:
    """Four lengths, four B, and which backend served most of the row's steps."""
    return TABLE.build(sources)
