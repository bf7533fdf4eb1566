"""Hardware counters of one launch: the program once more, under Nsight Compute.

What is counted is not timed: a cell's times come from a run without counters.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.benches import program
from harness.counters import chips, ncu
from harness.counters.trace import NoKernelError, Profiled, ReportError
from harness.errors import HarnessError
from harness.servers.spec import ServerSpec
from harness.telemetry.gpus import Gpus, chosen
from harness.telemetry.sample import SourceError


def count(
    spec: ServerSpec, arguments: list[str], options: Mapping[str, Any], timeout_s: float
) -> Profiled:
    """The counters of `chips`, by quantity.

    A tool that cannot be used is said in the record; a counter that the chip lacks or that comes
    back as n/a is a reason against the cell.
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
    except NoKernelError as error:
        found.record["missing"] = str(error)
    except ReportError as error:
        found.reasons.append(f"counters: {error}")
    except HarnessError as error:
        found.record["missing"] = str(error)
    return found


def capability() -> tuple[int, int]:
    """Compute capability of the first visible GPU. Raises NoKernelError without one."""
    import pynvml

    try:
        visible = chosen(os.environ.get("CUDA_VISIBLE_DEVICES"), 1)
        return Gpus(pynvml, visible, hz=1).capability()
    except SourceError as error:
        raise NoKernelError(f"there is no GPU to count on: {error}") from None
