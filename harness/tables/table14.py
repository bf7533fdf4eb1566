"""Table 14: kernel time by category on Qwen-2.5-32B (B.3): the paper's TP=4, and two ranks."""

from __future__ import annotations

from harness import paper
from harness.tables import categories
from harness.tables.sources import Sources
from harness.tables.table import Table

TABLE = categories.table(14, paper.QWEN_32B, "Qwen-2.5-32B/TP=2")


def build(sources: Sources) -> Table:
    """Seven categories, four systems, four ranks and two."""
    return TABLE.build(sources)
