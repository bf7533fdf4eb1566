"""Table 8: the synthetic burst grid on Qwen-2.5-32B/TP=4 (B.1)."""

from __future__ import annotations

from harness.tables import grid
from harness.tables.sources import Sources
from harness.tables.table import Table

TABLE = grid.synthetic(8)


def build(sources: Sources) -> Table:
    """Five lengths, four B, four systems; throughput, its ratio, TPOT and TTFT."""
    return TABLE.build(sources)
