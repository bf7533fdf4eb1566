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
    "flashinfer-cubin",
    "sglang-kernel",
    "nvidia-ml-py",
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


def _head(directory: Path) -> str | None:
    """The commit that a clone is at, where there is no git to ask."""
    try:
        head = (directory / ".git" / "HEAD").read_text("utf-8").strip()
        name = head.removeprefix("ref: ")
        return head if name == head else (directory / ".git" / name).read_text("utf-8").strip()
    except OSError:
        return None


@functools.cache
def revision() -> dict[str, Any]:
    """The commit of this project and whether files differ from it; None where nothing tells."""
    changed = _git("status", "--porcelain", "--untracked-files=no")
    return {
        "commit": _git("rev-parse", "HEAD") or _head(REPOSITORY),
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
    """Each GPU of this machine as `_gpu` describes it; empty without a driver."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        versions = {
            "driver": _ask(pynvml, "nvmlSystemGetDriverVersion"),
            "cuda_driver": _cuda(_ask(pynvml, "nvmlSystemGetCudaDriverVersion_v2")),
        }
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        return [versions | _gpu(pynvml, handle) for handle in handles]
    finally:
        pynvml.nvmlShutdown()


def _ask(nvml: Any, name: str, *arguments: Any) -> Any:
    """What NVML answers; None where this driver or GPU does not know it."""
    try:
        return getattr(nvml, name)(*arguments)
    except (nvml.NVMLError, AttributeError):
        return None


def _cuda(version: int | None) -> str | None:
    """12080 -> "12.8"."""
    return None if version is None else f"{version // 1000}.{version % 1000 // 10}"


def _gpu(nvml: Any, handle: Any) -> dict[str, Any]:
    """Name, memory in GiB, power in W and clocks in MHz; `persistence`, `mig`, `ecc` as booleans.

    power_limit_w is the cap in force, power_limit_default_w the one it leaves the factory with.
    Clocks: the largest that it has, those that are set for applications (None: not set), and what
    it ran at when this was read.
    """
    memory = _ask(nvml, "nvmlDeviceGetMemoryInfo", handle)
    mig, ecc = (
        _ask(nvml, name, handle) for name in ("nvmlDeviceGetMigMode", "nvmlDeviceGetEccMode")
    )
    return {
        "name": _ask(nvml, "nvmlDeviceGetName", handle),
        "memory_gib": None if memory is None else round(memory.total / 2**30, 1),
        "power_limit_w": _watts(_ask(nvml, "nvmlDeviceGetEnforcedPowerLimit", handle)),
        "power_limit_default_w": _watts(
            _ask(nvml, "nvmlDeviceGetPowerManagementDefaultLimit", handle)
        ),
        **_clocks(nvml, handle, "sm_clock", nvml.NVML_CLOCK_SM),
        **_clocks(nvml, handle, "memory_clock", nvml.NVML_CLOCK_MEM),
        "persistence": _flag(_ask(nvml, "nvmlDeviceGetPersistenceMode", handle)),
        "mig": None if mig is None else _flag(mig[0]),
        "ecc": None if ecc is None else _flag(ecc[0]),
    }


def _clocks(nvml: Any, handle: Any, name: str, kind: int) -> dict[str, int | None]:
    return {
        f"{name}_max_mhz": _ask(nvml, "nvmlDeviceGetMaxClockInfo", handle, kind),
        f"{name}_set_mhz": _ask(nvml, "nvmlDeviceGetApplicationsClock", handle, kind),
        f"{name}_mhz": _ask(nvml, "nvmlDeviceGetClockInfo", handle, kind),
    }


def _watts(milliwatts: int | None) -> float | None:
    return None if milliwatts is None else milliwatts / 1000


def _flag(mode: int | None) -> bool | None:
    return None if mode is None else bool(mode)


def describe(python: str) -> Mapping[str, Any]:
    """Everything above, as stored in cell.json; `gpus_note` says why there is no GPU."""
    found = gpus()
    return {
        "packages": package_versions(python),
        "revision": revision(),
        "cpu": cpu(),
        "gpus": found,
        "gpus_note": None if found else "no GPU: no NVIDIA driver answers on this machine",
        "system": f"{platform.system()} {platform.machine()}",
    }
