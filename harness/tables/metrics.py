"""The numbers that comparison tables share, as columns."""

from __future__ import annotations

from dataclasses import replace

from harness.tables.entries import Kind
from harness.tables.numbers import Metric

PAPER_ONLY = frozenset({"paper"})
MEASURED_ONLY = frozenset({"measured", "functional"})
FUNCTIONAL_ONLY = frozenset({"functional"})
GPU_ONLY = frozenset({"measured"})
NOT_CPU = frozenset({"paper", "measured"})
"""What says something about speed: a CPU source has no such column."""
BASELINES = ("sglang_default", "sglang_cascade", "granikv")
"""The paper's three systems, in its order (§4.3)."""
DRAWN = (BASELINES[0], "sglang_fa3", *BASELINES[1:])
"""The systems with rows and lines of their own: those and what a GPU's user has today."""

OUTPUT = Metric("output_tok_s", "tok/s", Kind.THROUGHPUT)
TPOT_P50 = Metric("tpot_p50_ms", "TPOT p50 (ms)", Kind.MILLISECONDS)
TPOT_P99 = Metric("tpot_p99_ms", "TPOT p99 (ms)", Kind.MILLISECONDS)
TTFT_P50 = Metric("ttft_p50_s", "TTFT p50 (s)", Kind.SECONDS)
TTFT_P99 = Metric("ttft_p99_s", "TTFT p99 (s)", Kind.SECONDS, only=MEASURED_ONLY)
TTFT_SCHEDULED_P50 = Metric(
    "ttft_scheduled_p50_s", "TTFT p50 from due time (s)", Kind.SECONDS, only=MEASURED_ONLY
)
TO_DEFAULT = Metric("output_tok_s", "× SGL", Kind.RATIO, baseline="sglang_default")
TO_CASCADE = Metric("output_tok_s", "× SGL-C", Kind.RATIO, baseline="sglang_cascade")
TO_FA3 = Metric("output_tok_s", "× SGL-FA3", Kind.RATIO, baseline="sglang_fa3", only=GPU_ONLY)
"""SGLang with FA3 on pages of 1, which prefills as GraniKV does on a GPU that has FA3."""
TTFT_P99_TO_FA3 = Metric(
    "ttft_p99_s",
    "TTFT p99 × SGL-FA3",
    Kind.RATIO,
    baseline="sglang_fa3",
    only=GPU_ONLY,
    tag="ttft_p99",
)
"""Above 1.00 the last a burst's first tokens come later than SGLang with FA3's."""
FA3_NOTE = (
    "SGL-FA3, not in the paper, is SGLang with FA3 on pages of 1, what it chooses on an H200."
)


def of_granikv(metric: Metric) -> Metric:
    """The metric in GraniKV's rows alone, as the paper prints its ratios."""
    return replace(metric, systems=frozenset({"granikv"}))
