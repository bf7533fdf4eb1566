"""Table 25, not the paper's: what shares nothing, recorded traffic, and admission on sharing."""

from __future__ import annotations

from dataclasses import replace

from harness import paper
from harness.tables import heterogeneous
from harness.tables.comparison import Comparison, Row
from harness.tables.entries import Kind
from harness.tables.labels import system_label
from harness.tables.metrics import (
    DRAWN,
    FA3_NOTE,
    OUTPUT,
    TO_DEFAULT,
    TO_FA3,
    TPOT_P50,
    TPOT_P99,
    TTFT_P50,
    TTFT_P99,
    of_granikv,
)
from harness.tables.numbers import Metric, Point
from harness.tables.sources import Sources
from harness.tables.table import Column, Table

B, L_P = 256, 4096
NOTHING_SHARED = f"prompts of their own, B = {B}"
TRACES = {"toolagent": "trace of tool-using agents", "conversation": "trace of conversations"}
REPLAYED = ("sglang_default", "sglang_fa3", "granikv")
OF_GRANIKV = frozenset({"granikv"})


def _row(load: str, point: Point, admission: str = "eager") -> Row:
    """GraniKV's rows are of one admission policy; other than the paper's it is named."""
    name = system_label(point.system)
    named = name if admission == "eager" else f"{name}, {admission}"
    return Row({"load": load, "system": named}, point.with_traits(admission=admission))


def _rows() -> list[Row]:
    control = Point(paper.LLAMA_8B, "granikv", "negative_control", B, L_P)
    systems = (*DRAWN[:-1], "cascade_on_granikv", DRAWN[-1])
    rows = [_row(NOTHING_SHARED, replace(control, system=system)) for system in systems]
    rows.append(_row(NOTHING_SHARED, control, "on_share"))
    for trace, load in TRACES.items():
        replayed = Point(paper.LLAMA_8B, "granikv", "trace", None, k=0).with_traits(trace=trace)
        rows += [_row(load, replace(replayed, system=system)) for system in REPLAYED]
        rows.append(_row(load, replayed, "on_share"))
    for k, lengths in heterogeneous.PREFIXES.items():
        point = Point(paper.LLAMA_8B, "granikv", "multi_prefix", B, None, k)
        load = f"k = {k}, {lengths}, B = {B}"
        rows += [_row(load, point, admission) for admission in ("eager", "on_share")]
    return rows


TABLE = Comparison(
    number=25,
    title="Beyond the paper: prompts that share nothing, recorded traffic, and slabs on sharing "
    f"only, {paper.LLAMA_8B}.",
    labels=(Column("load", "Load"), Column("system", "System")),
    metrics=(
        OUTPUT,
        of_granikv(TO_DEFAULT),
        of_granikv(TO_FA3),
        TPOT_P50,
        TPOT_P99,
        TTFT_P50,
        TTFT_P99,
        Metric("hit_rate", "Hit rate", Kind.FRACTION),
    ),
    rows=_rows(),
    command="python -m harness -m experiment=h200_6_beyond (and negative_control, table21)",
    notes=(
        f"Prompts of their own are as long as ShareGPT's behind {L_P:,} tokens: none may gain.",
        "Traces are 500 requests of Mooncake's, replayed at their own times: where a server keeps "
        "up, its rate is the trace's.",
        "on_share: a prefix becomes a slab when a second request comes with it, not at once as in "
        "the paper (eager).",
        "TTFT counts from sending.",
        FA3_NOTE,
    ),
    printed=False,
)


def build(sources: Sources) -> Table:
    """Three kinds of load; throughput and its ratios, TPOT, TTFT and the hit rate."""
    return TABLE.build(sources)
