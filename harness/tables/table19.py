"""Table 19: GraniKV's gain over tensor parallelism (B.7)."""

from __future__ import annotations

from dataclasses import replace

from harness import paper
from harness.tables import table22
from harness.tables.comparison import Comparison, Row
from harness.tables.computed import Computed
from harness.tables.entries import Kind, Measured
from harness.tables.metrics import GPU_ONLY, MEASURED_ONLY, OUTPUT, PAPER_ONLY, TO_DEFAULT
from harness.tables.numbers import Metric, Point
from harness.tables.sources import CellSource, Sources
from harness.tables.table import Column, Table

CONFIGS = (
    paper.LLAMA_8B,
    paper.QWEN_14B,
    "Qwen-2.5-14B/TP=4",
    paper.QWEN_32B,
    "Qwen-2.5-32B/TP=2",
    "Llama-3.1-8B/TP=2",
    "Qwen-2.5-14B/TP=1",
    "Qwen-2.5-32B/TP=1",
)
"""The paper's five, and three that one or two ranks allow."""


def _word(key: str, title: str) -> Metric:
    """A word of the paper for the row, such as its regime."""
    return Metric(key, title, Kind.TEXT, only=PAPER_ONLY)


def _nccl(source: CellSource, point: Point) -> Measured:
    """β of Table 22's cell, of every degree."""
    traced = table22.profiled(replace(point, workload="sharegpt", l_p=table22.L_P))
    return source.mean(source.runs(traced, "beta_pct"))


TABLE = Comparison(
    number=19,
    title="GraniKV over SGLang default by tensor-parallel degree, synthetic burst, B = 256, "
    "L_p = 8K.",
    labels=(Column("config", "Model / TP"),),
    metrics=(
        TO_DEFAULT,
        Metric(OUTPUT.name, OUTPUT.title, OUTPUT.kind, only=MEASURED_ONLY),
        Metric("kv_heads_per_rank", "KV heads per rank", Kind.COUNT),
        _word("nccl", "NCCL"),
        Computed("beta_pct", "NCCL", Kind.PERCENT, _nccl, only=GPU_ONLY),
        _word("kv_memory", "KV memory"),
        Metric("kv_tokens", "KV tokens", Kind.COUNT, only=MEASURED_ONLY),
        _word("regime", "Regime"),
    ),
    rows=[
        Row({"config": config}, Point(config, "granikv", "synthetic", 256, 8192))
        for config in CONFIGS
    ],
    command="python -m harness -m experiment=table19",
    notes=(
        "NCCL here is its share of the decode step (β of Table 22); KV tokens is what the server "
        "had room for.",
        "The paper leaves out TP = 8: with one KV head on each rank it expects cascade in every "
        "step.",
    ),
)


def build(sources: Sources) -> Table:
    """Eight configurations: the gain, heads, NCCL share and KV room of each."""
    return TABLE.build(sources)
