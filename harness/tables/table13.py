"""Table 13: kernel time by category on Llama-3.1-8B/TP=1 (B.3)."""

from __future__ import annotations

from harness import paper
from harness.tables import categories
from harness.tables.sources import Sources
from harness.tables.table import Table

TABLE = categories.table(13, paper.LLAMA_8B)


def build(sources: Sources) -> Table:
    """Seven categories, four systems."""
    return TABLE.build(sources)
