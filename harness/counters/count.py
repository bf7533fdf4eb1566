"""Hardware counters of one kernel of a program, from start to numbers."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from harness.counters import chips, ncu
from harness.counters.trace import Profiled, ReportError
from harness.telemetry.gpus import Gpus

FORBIDDEN = "ERR_NVGPUCTRPERM"


def capability(nvml: Any, name: str) -> tuple[int, int]:
    """Compute capability of a GPU, named as in CUDA_VISIBLE_DEVICES. Raises SourceError."""
    major, minor = Gpus(nvml, [name], hz=1).capability()
    return major, minor


def count(
    program: Sequence[str],
    environment: Mapping[str, str],
    options: ncu.Options,
    report: Path,
    capability: tuple[int, int],
    timeout_s: float,
) -> Profiled:
    """Run a program under ncu and read the counters of the launches that `options` name.

    report: where ncu's own report is kept. Without ncu, or where the driver keeps the counters to
    itself, the record says so; a counter that is missing or n/a is a reason against the cell.
    """
    found = Profiled(record={"kind": ncu.TOOL, **asdict(options)})
    if not ncu.is_there():
        found.record["missing"] = "ncu is not installed"
        return found
    try:
        chip = chips.chip(capability)
        names = chips.resolve(chip, ncu.available(chip))
        command = ncu.command(program, report, sorted(names.values()), options)
        if _run(command, environment, report, timeout_s):
            found.record["missing"] = f"the driver keeps its counters to itself ({FORBIDDEN})"
            return found
        found.metrics = ncu.quantities(ncu.read(report), names)
        found.record |= {"chip": chip, "counters": names}
    except ReportError as error:
        found.reasons.append(f"counters: {error}")
    return found


def _run(
    command: Sequence[str], environment: Mapping[str, str], report: Path, timeout_s: float
) -> bool:
    """Run ncu; whether the driver forbade it to count. Raises ReportError for another failure."""
    report.parent.mkdir(parents=True, exist_ok=True)
    report.unlink(missing_ok=True)
    try:
        reply = subprocess.run(
            command,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ReportError(f"ncu did not finish: {type(error).__name__}") from None
    said = reply.stdout + reply.stderr
    if FORBIDDEN in said:
        return True
    if reply.returncode:
        last = (said.strip() or "it said nothing").splitlines()[-1]
        raise ReportError(f"ncu failed: {last[:200]}")
    return False
