"""Hardware counters of one launch: the program once more, under Nsight Compute.

What is counted is not timed: a cell's times come from a run without counters.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.benches import program
from harness.counters import chips, ncu
from harness.counters.trace import Profiled, ReportError
from harness.errors import HarnessError
from harness.servers.spec import ServerSpec


def count(
    spec: ServerSpec, arguments: list[str], options: Mapping[str, Any], timeout_s: float
) -> Profiled:
    """The counters of `chips`, by quantity; what cannot be counted is said in the record.

    options: the node `profile` of the configuration.
    """
    found = Profiled(record={"kind": ncu.TOOL})
    asked = ncu.Options(
        str(options["kernel"]),
        int(options["skip"]),
        int(options["launches"]),
        str(options["clocks"]),
        str(options["cache"]),
    )
    if not ncu.is_there():
        found.record["missing"] = f"{ncu.TOOL} is not installed"
        return found
    try:
        chip = chips.chip(capability())
        names = chips.resolve(chip, ncu.available(chip))
        with tempfile.TemporaryDirectory() as directory:
            report = Path(directory) / "counters.ncu-rep"
            launched = [spec.python, "-m", spec.module, *arguments]
            command = ncu.command(launched, report, list(names.values()), asked)
            program.run(ncu.TOOL, command, spec.environment, timeout_s)
            launches = ncu.read(report)
        found.metrics = ncu.quantities(launches, names)
        found.record |= {"chip": chip, "metrics": names, "kernel": launches[0].kernel}
    except (ReportError, HarnessError) as error:
        found.record["missing"] = str(error)
    return found


def capability() -> tuple[int, int]:
    """Compute capability of the first GPU. Raises ReportError without one."""
    import pynvml

    try:
        pynvml.nvmlInit()
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(0)
            major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError as error:
        raise ReportError(f"NVML finds no GPU to count on: {error}") from None
    return int(major), int(minor)
