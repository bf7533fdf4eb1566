"""Names of hardware counters, chip by chip, for the quantities that kernel cells store.

Names differ between chips, and Nsight Compute knows at run time which ones there are
(`ncu --query-metrics`). A quantity has candidates in order of preference; the first that the chip
has is taken. One without any is an error, never a zero.

Hopper's wgmma instructions are in no count of HMMA *instructions* or operations, which read near
zero there on a busy tensor pipe. So tensor work is told by the pipe's active cycles alone, in which
Nsight Compute counts HGMMA with HMMA.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from harness.counters.trace import ReportError

DRAM, L2, TENSOR, WAVES, DURATION = (
    "kernel_dram_bytes",
    "kernel_l2_hit_pct",
    "kernel_tensor_active_pct",
    "kernel_waves_per_sm",
    "kernel_counted_s",
)
"""Bytes read from memory; L2 sector hit rate in %; tensor pipe active in % of the cycles in which
an SM was; waves a multiprocessor; duration under the counters' own conditions in s (B.11)."""

_COMMON = {
    DRAM: ("dram__bytes_read.sum",),
    L2: ("lts__t_sector_hit_rate.pct",),
    WAVES: ("launch__waves_per_multiprocessor",),
    DURATION: ("gpu__time_duration.sum",),
}
_HMMA = "sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_active"
_ALL = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active"

CHIPS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "ga100": _COMMON | {TENSOR: (_HMMA, _ALL)},
    "gh100": _COMMON | {TENSOR: (_ALL, _HMMA)},
}
"""Candidates by chip and quantity. ga100: A100, by the paper's name; gh100: H100, H200."""

CHIP_OF = {(8, 0): "ga100", (9, 0): "gh100"}
"""By compute capability."""

UNITS = {DURATION: 1e-9}
"""Factors from Nsight Compute's base units (ns) to ours; others are 1."""

_NAME = re.compile(r"^\s*([a-z]\w*__\w+)\b", re.MULTILINE)


def chip(capability: tuple[int, int]) -> str:
    """Name of the chip. Raises ReportError for one whose counters nobody has named here."""
    if capability not in CHIP_OF:
        major, minor = capability
        raise ReportError(f"no counters are named for compute capability {major}.{minor}")
    return CHIP_OF[capability]


def listed(query: str) -> frozenset[str]:
    """The metrics in the output of `ncu --query-metrics`, without their suffixes."""
    return frozenset(_NAME.findall(query))


def resolve(name: str, available: Collection[str]) -> dict[str, str]:
    """The metric of every quantity on a chip, of those `available` (`listed`).

    Launch metrics are the driver's and not listed. Raises ReportError, naming the quantity.
    """
    found = {}
    for quantity, candidates in CHIPS[name].items():
        fitting = [c for c in candidates if _is_there(c, available)]
        if not fitting:
            raise ReportError(
                f"{name} has no metric for {quantity}: none of {', '.join(candidates)}"
            )
        found[quantity] = fitting[0]
    return found


def _is_there(metric: str, available: Collection[str]) -> bool:
    return metric.startswith("launch__") or metric.partition(".")[0] in available
