"""The prefix kernel alone, by storage layout and by who shares the read (Tables 5 and 23)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.analysis.cells import KERNEL
from harness.benches.base import Bench, Record

LARGEST_ERROR = 6e-3
"""Relative, of a kernel in bfloat16 against float32."""
BELOW_FLOOR = 0.9
"""A launch this much faster than its arithmetic at the measured peak did not do its work."""


class PrefixKernels(Bench):
    """`granikv.bench.kernels`: one run measures all four launches of the 2 × 2."""

    name = "kernels"
    system = KERNEL
    module = "granikv.bench.kernels"
    metrics = ("kernel_wall_s", "kernel_flop", "relative_error")
    required = ("kernel_wall_s", "relative_error")

    def arguments(self, config: Mapping[str, Any]) -> list[str]:
        """The 2 × 2 alone; its shape is the paper's headline."""
        return ["--only", "table5", "--seconds", str(config["workload"]["seconds"])]

    def counted(self, config: Mapping[str, Any]) -> list[str]:
        """One of the four, as briefly as it goes: under counters its time is not looked at."""
        launch = f"{config['workload']['layout']}-{config['workload']['read']}"
        return ["--only", "table5", "--launch", launch, "--seconds", "0"]

    def problems(self, record: Record) -> list[str]:
        """Wrong results, and times that no device could reach."""
        if wrong := super().problems(record):
            return wrong
        error, floor = record["relative_error"], record.get("floor_flop_us", 0.0)
        if error > LARGEST_ERROR:
            wrong.append(f"the kernel is wrong: relative error {error:.2g} > {LARGEST_ERROR:.2g}")
        wall_us = record["kernel_wall_s"] * 1e6
        if wall_us < BELOW_FLOOR * floor:
            wrong.append(f"{wall_us:.1f} µs is less than the arithmetic takes: {floor:.1f} µs")
        return wrong
