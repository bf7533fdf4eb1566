"""Table 15: how often the dispatcher chose the dense backend (B.4)."""

from __future__ import annotations

from dataclasses import replace

from harness import paper
from harness.analysis import derived
from harness.analysis.cells import EQ_2, FITTED, dispatch_rule
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
    """The backend of most decode steps over all cells of a row, with its share.

    A dash unless every B has counts: which backend serves most depends on B.
    """
    places = {b: replace(point, b=b) for b in BS}
    if not any(source.shown(place) for place in places.values()):
        return Missing(source.absent)
    of_b = {b: _counts(source, place) for b, place in places.items()}
    lacking = [f"{b}" for b, found in of_b.items() if not found]
    if lacking:
        return Missing(f"no valid cell counts its decode steps at B = {', '.join(lacking)}")
    counts = [one for found in of_b.values() for one in found]
    total = {name: sum(found[name] for found in counts) for name in derived.BACKENDS}
    most = max(derived.BACKENDS, key=lambda name: total[name])
    return f"{most} ({total[most] / sum(total.values()):.0%})"


def _counts(source: CellSource, point: Point) -> list[dict[str, int]]:
    cells = [cell for cell in source.shown(point) if cell.valid]
    return [found for cell in cells if (found := derived.steps(cell))]


def rules(source: CellSource) -> str:
    """How the servers behind a source's places chose, for notes and captions; empty without any."""
    places = [replace(row.point, b=b) for row in TABLE.rows for b in BS]
    cells = [cell for place in places for cell in source.shown(place)]
    told = dict.fromkeys(_told(rule) for cell in cells if (rule := dispatch_rule(cell)))
    return f"{source.heading}: chosen {'; or '.join(told)}." if told else ""


def _told(rule: str) -> str:
    if rule.startswith(FITTED):
        return (
            "by the fitted cost model, not by Eq. 2; paged also holds the steps for which pages "
            "are predicted fastest"
        )
    return "by Eq. 2, with M_sat of the hardware profile" if rule.startswith(EQ_2) else rule


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
        "The paper compares M_eff = B · n_q/kv of the whole step with M_sat (Eq. 2). By its last "
        "column a row is mixed or cascade by a rule it does not state.",
    ),
)


def build(sources: Sources) -> Table:
    """Four lengths, four B, and which backend served most of the row's steps."""
    table = TABLE.build(sources)
    told = [said for source in sources.measured("") if (said := rules(source))]
    return replace(table, notes=(*table.notes, *told))
