"""Table 14: kernel time by category on Qwen-2.5-32B/TP=4 (B.3)."""

from __future__ import annotations

from harness import paper
from harness.tables import categories
from harness.tables.sources import Sources
from harness.tables.table import Table

TABLE = categories.table(14, paper.QWEN_32B)


def build(sources: Sources) -> Table:
    """Seven categories, four systems."""
    return TABLE.build(sources)
