"""Which way each metric is better."""

from __future__ import annotations

from enum import Enum


class Better(Enum):
    """The direction in which a metric is better."""

    MORE = "more"
    LESS = "less"


MORE = (
    *("output_tok_s", "total_tok_s", "request_per_s", "goodput_req_s", "slo_share"),
    "engine_decode_tok_s",
)
LESS = (
    *("ttft_", "tpot_", "itl_", "e2e_", "joules_per_output_token"),
    *("kernel_wall_s", "step_wall_s", "dispatch_cpu_s"),
)
"""Beginnings of their names. The others (a count, a duration, a lag of the client, a hit rate) say
how a run was, not how good it was."""


def better(metric: str) -> Better | None:
    """Which way a metric is better; None for one that is neither."""
    if metric.startswith(MORE):
        return Better.MORE
    return Better.LESS if metric.startswith(LESS) else None
