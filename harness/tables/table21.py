"""Table 21: heterogeneous-length multi-prefix serving (B.8b)."""

from __future__ import annotations

from harness.tables import budgets, heterogeneous
from harness.tables.comparison import Comparison
from harness.tables.metrics import (
    FA3_NOTE,
    OUTPUT,
    TO_DEFAULT,
    TO_FA3,
    TPOT_P50,
    TPOT_P99,
    TTFT_P50,
    TTFT_SCHEDULED_P50,
    of_granikv,
)
from harness.tables.sources import Sources
from harness.tables.table import Column, Table

TABLE = Comparison(
    number=21,
    title="Heterogeneous-length multi-prefix serving: k prompts of different lengths taken in "
    "turn, 512 requests, Llama-3.1-8B/TP=1, B = 256.",
    labels=(
        budgets.LABEL,
        Column("k", "k"),
        Column("l_p", "L_p of the classes"),
        Column("system", "System"),
    ),
    metrics=(
        OUTPUT,
        TO_DEFAULT,
        of_granikv(TO_FA3),
        TPOT_P50,
        TPOT_P99,
        TTFT_P50,
        TTFT_SCHEDULED_P50,
    ),
    rows=heterogeneous.rows_by_budget(),
    command=heterogeneous.COMMAND,
    notes=(
        budgets.NOTE,
        "GraniKV at f_p = 0.3 (k = 4) and 0.4 (k = 8), so that every slab is admitted.",
        "TTFT counts from sending, as the paper's does; from due time it adds the wait to be sent.",
        FA3_NOTE,
    ),
)


def build(sources: Sources) -> Table:
    """Two budgets, two values of k, four systems; throughput, its ratio, TPOT and TTFT."""
    return TABLE.build(sources)
