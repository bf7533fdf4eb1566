"""Benchmark programs of `granikv.bench` as cells: they serve nothing (Tables 5, 17 and 23).

A benchmark is a class here and the name of it in a workload's `bench`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.analysis.cells import KERNEL
from harness.benches.base import Bench
from harness.benches.dispatch import DispatchCost
from harness.benches.kernels import PrefixKernels
from harness.errors import HarnessError

__all__ = ["BENCHES", "Bench", "asks_for_bench", "make"]

BENCHES: dict[str, type[Bench]] = {cls.name: cls for cls in (PrefixKernels, DispatchCost)}


def asks_for_bench(config: Mapping[str, Any]) -> bool:
    """Whether a cell's configuration is a benchmark's and not a server's."""
    return bool(config["workload"].get("kind") == KERNEL)


def make(config: Mapping[str, Any]) -> Bench:
    """The benchmark that a configuration names. Raises HarnessError for one that is not there."""
    name, system = config["workload"].get("bench"), config["system"]["name"]
    if name not in BENCHES:
        raise HarnessError(f"unknown workload.bench {name!r}; there are: {', '.join(BENCHES)}")
    bench = BENCHES[name]()
    if system != bench.system:
        raise HarnessError(f"workload.bench={name} is of system={bench.system}, not of {system}")
    return bench
