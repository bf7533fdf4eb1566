"""Table 6: the synthetic burst grid on Llama-3.1-8B/TP=1 (B.1)."""

from __future__ import annotations

from harness.tables import grid
from harness.tables.sources import Sources
from harness.tables.table import Table

TABLE = grid.synthetic(6)


def build(sources: Sources) -> Table:
    """Five lengths, four B, four systems; throughput, its ratio, TPOT and TTFT."""
    return TABLE.build(sources)
