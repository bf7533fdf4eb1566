"""What a cell was measured on: packages, devices, revision. Never a host name, a user or a path."""

from __future__ import annotations

import functools
import json
import os
import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from harness.errors import ServerError

REPOSITORY = Path(__file__).resolve().parents[1]
PACKAGES = (
    "granikv",
    "sglang",
    "torch",
    "triton",
    "flashinfer-python",
    "sglang-kernel",
    "transformers",
    "numpy",
    "aiohttp",
)
# Run by the server's interpreter, which need not be this one and may lack any package.
_ASK = """
import importlib.metadata, json, platform, sys
def version(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
print(json.dumps({"python": platform.python_version(), **{n: version(n) for n in sys.argv[1:]}}))
"""


@functools.cache
def package_versions(python: str) -> dict[str, str | None]:
    """Versions of Python and of PACKAGES as the interpreter that runs the server sees them."""
    try:
        reply = subprocess.run(
            [python, "-c", _ASK, *PACKAGES], capture_output=True, text=True, timeout=60, check=True
        )
        versions: dict[str, str | None] = json.loads(reply.stdout)
    except FileNotFoundError:
        raise ServerError(f"engine.python={python} does not exist") from None
    except (OSError, subprocess.SubprocessError, ValueError):
        raise ServerError(f"engine.python={python} is no working Python interpreter") from None
    return versions


def _git(*arguments: str) -> str | None:
    try:
        reply = subprocess.run(
            ["git", "-C", str(REPOSITORY), *arguments],
            capture_output=True,
            text=True,
            timeout=20,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return reply.stdout.strip()


@functools.cache
def revision() -> dict[str, Any]:
    """The git commit of this project and whether files differ from it; None without git."""
    changed = _git("status", "--porcelain", "--untracked-files=no")
    return {
        "commit": _git("rev-parse", "HEAD"),
        "modified": None if changed is None else bool(changed),
    }


def cpu() -> dict[str, Any]:
    """Name of the processor, cores that this process may use, memory in GiB."""
    name = platform.machine()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        models = [
            line.partition(":")[2].strip()
            for line in info.read_text("utf-8", "replace").splitlines()
            if line.startswith("model name")
        ]
        name = models[0] if models else name
    memory = round(psutil.virtual_memory().total / 2**30, 1)
    return {"name": name, "cores": len(os.sched_getaffinity(0)), "memory_gib": memory}


def gpus() -> list[dict[str, Any]]:
    """Name, driver, memory in GiB, power limit in W and largest SM clock in MHz of each GPU."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        driver = pynvml.nvmlSystemGetDriverVersion()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        return [_gpu(pynvml, handle, driver) for handle in handles]
    finally:
        pynvml.nvmlShutdown()


def _gpu(nvml: Any, handle: Any, driver: str) -> dict[str, Any]:
    def ask(name: str, *arguments: Any) -> Any:
        try:
            return getattr(nvml, name)(handle, *arguments)
        except nvml.NVMLError:
            return None

    power = ask("nvmlDeviceGetEnforcedPowerLimit")
    memory = ask("nvmlDeviceGetMemoryInfo")
    return {
        "name": ask("nvmlDeviceGetName"),
        "driver": driver,
        "memory_gib": None if memory is None else round(memory.total / 2**30, 1),
        "power_limit_w": None if power is None else power / 1000,
        "sm_clock_max_mhz": ask("nvmlDeviceGetMaxClockInfo", nvml.NVML_CLOCK_SM),
    }


def describe(python: str) -> Mapping[str, Any]:
    """Everything above, as stored in cell.json."""
    return {
        "packages": package_versions(python),
        "revision": revision(),
        "cpu": cpu(),
        "gpus": gpus(),
        "system": f"{platform.system()} {platform.machine()}",
    }
