"""What dispatching adds to a decode step (Table 17)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.benches.base import Bench

SIZES = ("rows", "prefix_length", "q_heads", "kv_heads", "head_dim", "layers")


class DispatchCost(Bench):
    """`granikv.bench.dispatch_cost`, with the threshold of the hardware profile."""

    name = "dispatch_cost"
    system = "granikv"
    module = "granikv.bench.dispatch_cost"
    metrics = (
        "dispatch_cpu_s",
        "plan_changed_p50_s",
        "plan_changed_p99_s",
        "plan_unchanged_p50_s",
        "plan_unchanged_p99_s",
        "worklist_p99_s",
        "worklist_unchanged_p99_s",
        "snapshot_p99_s",
        "kernel_wall_s",
        "step_wall_s",
        "dense_launches_in_15_s",
    )
    required = ("dispatch_cpu_s", "plan_changed_p99_s", "step_wall_s", "dense_launches_in_15_s")

    def arguments(self, config: Mapping[str, Any]) -> list[str]:
        """The workload's sizes; a profile without M_sat leaves the program's own."""
        workload, hardware = config["workload"], config["hardware"]
        numbers = {name: workload[name] for name in SIZES}
        if (m_sat := hardware["dispatch"]["m_sat"]) is not None:
            numbers["m_sat"] = m_sat
        flags = [
            text
            for name, value in (numbers | {"seconds": workload["seconds"]}).items()
            for text in (f"--{name.replace('_', '-')}", str(value))
        ]
        return ["--device", str(hardware["device"]), *flags]
