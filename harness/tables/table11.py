"""Table 11: ShareGPT over L_p and B at saturation on Qwen-2.5-32B/TP=4 (B.2)."""

from __future__ import annotations

from harness.tables import grid
from harness.tables.sources import Sources
from harness.tables.table import Table

TABLE = grid.sharegpt(11)


def build(sources: Sources) -> Table:
    """Six lengths, six B, four systems; throughput, its ratio, TPOT and TTFT."""
    return TABLE.build(sources)
