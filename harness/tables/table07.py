"""Table 7: the synthetic burst grid on Qwen-2.5-14B/TP=2 (B.1)."""

from __future__ import annotations

from harness.tables import grid
from harness.tables.sources import Sources
from harness.tables.table import Table

TABLE = grid.synthetic(7)


def build(sources: Sources) -> Table:
    """Five lengths, four B, four systems; throughput, its ratio, TPOT and TTFT."""
    return TABLE.build(sources)
