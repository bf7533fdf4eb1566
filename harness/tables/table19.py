"""Table 19: GraniKV's gain over tensor parallelism (B.7)."""

from __future__ import annotations

from dataclasses import dataclass

from harness import paper
from harness.tables.comparison import Comparison, Row
from harness.tables.entries import Entry, Kind
from harness.tables.metrics import GPU_ONLY, MEASURED_ONLY, OUTPUT, TO_DEFAULT
from harness.tables.numbers import Metric, Point, Source
from harness.tables.printed import PaperSource
from harness.tables.sources import Sources
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


@dataclass(frozen=True)
class Word:
    """A word of the paper for the row, such as its regime."""

    key: str
    title: str
    kind: Kind = Kind.TEXT
    systems: frozenset[str] | None = None
    only: frozenset[str] | None = frozenset({"paper"})

    def entry(self, source: Source, point: Point) -> Entry:
        """As printed."""
        assert isinstance(source, PaperSource)
        return source.printed(point, self.key)


@dataclass(frozen=True)
class NcclShare:
    """NCCL's share of the decode step, from a profiled cell of SGLang default at L_p = 16K."""

    key: str = "beta_pct"
    title: str = "NCCL"
    kind: Kind = Kind.PERCENT
    systems: frozenset[str] | None = None
    only: frozenset[str] | None = GPU_ONLY

    def entry(self, source: Source, point: Point) -> Entry:
        """β of Table 22's cell."""
        profiled = Point(point.config, "sglang_default", "sharegpt", 256, 16384)
        metric = Metric(self.key, self.title, self.kind)
        return source.entry(profiled.with_traits(probe="kineto"), metric)


TABLE = Comparison(
    number=19,
    title="GraniKV over SGLang default by tensor-parallel degree, synthetic burst, B = 256, "
    "L_p = 8K.",
    labels=(Column("config", "Model / TP"),),
    metrics=(
        TO_DEFAULT,
        Metric(OUTPUT.name, OUTPUT.title, OUTPUT.kind, only=MEASURED_ONLY),
        Metric("kv_heads_per_rank", "KV heads per rank", Kind.COUNT),
        Word("nccl", "NCCL"),
        NcclShare(),
        Word("kv_memory", "KV memory"),
        Metric("kv_tokens", "KV tokens", Kind.COUNT, only=MEASURED_ONLY),
        Word("regime", "Regime"),
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
