"""What else the cells behind a number of a table tell about it, said beside the verdict."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from harness.analysis.cells import CellLike, counters, dispatch_rule, m_sat, number
from harness.analysis.claims import dispatch


def caches(cells: Sequence[CellLike], value: float) -> str:
    """By the same counters, what served the bytes that DRAM did not.

    value: measured DRAM traffic over the byte model, below zero where DRAM gave fewer bytes.
    """
    rates = [rate for cell in cells if (rate := number(cell, "kernel_l2_hit_pct")) is not None]
    if not rates:
        return ""
    said = f"L2 hit rate {sum(rates) / len(rates):.0f}%"
    return f"{said}: caches served the rest" if value < 0 else said


def routing(cells: Sequence[CellLike], value: float) -> str:
    """The share of decode rows that went dense, and by which rule the servers chose.

    A step of two rows counts as one of 256 does, so the share of steps says little of the rows.
    """
    del value
    counted = [counters(cell) for cell in cells]
    rows, dense = (sum(one.get(name, 0) for one in counted) for name in ("rows", "rows_dense"))
    said = [f"{100 * dense / rows:.5g}% of the rows dense"] if rows else []
    return "; ".join([*said, *sorted({_chosen(cell) for cell in cells})])


def _chosen(cell: CellLike) -> str:
    rule = dispatch_rule(cell)
    if dispatch.is_saturation(rule, m_sat(cell)):
        return "chosen by Eq. 2"
    return f"not chosen by Eq. 2 but by {rule or 'an unknown rule'}"


REMARKS: dict[str, Callable[[Sequence[CellLike], float], str]] = {
    "caches": caches,
    "routing": routing,
}
"""By the name in a claim's options; each takes the cells behind the number, and the number."""
