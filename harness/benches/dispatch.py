"""What dispatching adds to a decode step (Table 17)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness import hardware as machine
from harness.benches.base import Bench

SIZES = ("rows", "prefix_length", "q_heads", "kv_heads", "head_dim", "layers")


class DispatchCost(Bench):
    """`granikv.bench.dispatch_cost`, with the rule of the hardware profile."""

    name = "dispatch_cost"
    system = "granikv"
    module = "granikv.bench.dispatch_cost"
    metrics = (
        "dispatch_cpu_s",
        "decision_new_plan_p99_s",
        "plan_changed_p50_s",
        "plan_changed_p99_s",
        "plan_unchanged_p50_s",
        "plan_unchanged_p99_s",
        "worklist_p50_s",
        "worklist_p99_s",
        "worklist_unchanged_p99_s",
        "snapshot_p99_s",
        "kernel_wall_s",
        "step_wall_s",
        "dense_launches_in_15_s",
    )
    required = ("dispatch_cpu_s", "plan_changed_p99_s", "step_wall_s", "dense_launches_in_15_s")

    def arguments(self, config: Mapping[str, Any]) -> list[str]:
        """The workload's sizes and the profile as a file; one without a fit leaves Eq. 2."""
        workload, device = config["workload"], str(config["hardware"]["device"])
        profile = machine.resolve(config["hardware"], Path(str(config["output"]))).profile
        numbers = {name: workload[name] for name in (*SIZES, "seconds")}
        flags = [
            text
            for name, value in numbers.items()
            for text in (f"--{name.replace('_', '-')}", str(value))
        ]
        return ["--device", device, "--profile", str(profile), *flags]
