"""Table 4: heterogeneous multi-prefix throughput against SGLang default (§4.5)."""

from __future__ import annotations

from harness.tables import heterogeneous
from harness.tables.comparison import Comparison
from harness.tables.entries import Kind
from harness.tables.metrics import FA3_NOTE, FUNCTIONAL_ONLY, TO_DEFAULT, TO_FA3, of_granikv
from harness.tables.numbers import Metric
from harness.tables.sources import Sources
from harness.tables.table import Column, Table

# A CPU cell forms no ratio, so its throughput stands in the table instead.
_SERVED = Metric("output_tok_s", "tok/s", Kind.THROUGHPUT, only=FUNCTIONAL_ONLY)

TABLE = Comparison(
    number=4,
    title="Heterogeneous multi-prefix throughput as a ratio to SGLang default, "
    "Llama-3.1-8B/TP=1, B = 256.",
    labels=(Column("k", "k"), Column("l_p", "L_p of the classes"), Column("system", "System")),
    metrics=(TO_DEFAULT, of_granikv(TO_FA3), _SERVED),
    rows=heterogeneous.rows(),
    command=heterogeneous.COMMAND,
    notes=("The same cells as Table 21, which gives throughput and latencies.", FA3_NOTE),
)


def build(sources: Sources) -> Table:
    """Two values of k, three systems; ratios to SGLang default and, of GraniKV, with FA3."""
    return TABLE.build(sources)
