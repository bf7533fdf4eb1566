"""`granikv doctor`: what this machine can run, in plain words, and what is missing."""

from __future__ import annotations

import argparse
import importlib.util
import os
import platform
import shutil
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, entry_points, version
from typing import NamedTuple

from granikv.engine.refusals import SGLANG_VERSION
from granikv.hardware import find_profile, load_profile, shipped_profiles

_MEMORY_GIB = 4
_DISK_GIB = 5
_CALIBRATE = "run `make calibrate` here, and give the file it writes to --granikv-hardware"


class Finding(NamedTuple):
    """One thing looked at."""

    name: str
    found: str
    remedy: str
    """What to do; empty where all is well."""


def findings() -> list[Finding]:
    """Everything that decides what can be run here."""
    return [
        _python(),
        _engine(),
        _torch(),
        _plugin(),
        _stand_ins(),
        _gpu(),
        _dispatch(),
        _memory(),
        _disk(),
        _tool("nsys", "kernel timelines come from the engine's own profiler instead"),
        _tool("ncu", "hardware counters are left out of the tables"),
    ]


def missing_engine() -> str:
    """What keeps the engine from starting at all, or the empty string."""
    for finding in (_python(), _engine(), _torch(), _plugin()):
        if finding.remedy:
            return f"{finding.name}: {finding.found}; {finding.remedy}"
    return ""


def has_gpu() -> bool:
    """Whether an NVIDIA GPU answers."""
    return not _gpu().remedy


def capabilities(found: Sequence[Finding]) -> list[str]:
    """What can be run, from the findings."""
    by_name = {f.name: f for f in found}
    can = ["make figures, make verify: tables and figures from measured cells"]
    if not missing_engine():
        where = "the CPU, with a tiny model, as a functional check"
        if not by_name["GPU"].remedy:
            where = by_name["GPU"].found
        can.append(f"granikv serve, make reproduce: the real SGLang on {where}")
    return can


def main(argv: Sequence[str] | None = None) -> int:
    """Print the findings; 1 where the engine cannot start."""
    argparse.ArgumentParser(prog="granikv doctor", description=__doc__).parse_args(argv)
    found = findings()
    width = max(len(f.name) for f in found)
    for finding in found:
        mark = "missing" if finding.remedy else "ok"
        print(f"{finding.name:<{width}}  {mark:<7}  {finding.found}")
        if finding.remedy:
            print(f"{'':<{width}}           -> {finding.remedy}")
    print("\nThis machine can run:")
    for line in capabilities(found):
        print(f"  {line}")
    return 1 if missing_engine() else 0


def _python() -> Finding:
    remedy = "" if (3, 11) <= sys.version_info[:2] < (3, 14) else "use Python 3.11, 3.12 or 3.13"
    return Finding("Python", platform.python_version(), remedy)


def _engine() -> Finding:
    found = _version("sglang")
    if found is None:
        return Finding("SGLang", "not installed", "run `make setup`")
    remedy = (
        ""
        if found == SGLANG_VERSION
        else f"GraniKV extends {SGLANG_VERSION} only; run `make setup`"
    )
    return Finding("SGLang", found, remedy)


def _torch() -> Finding:
    found = _version("torch")
    return Finding("torch", found or "not installed", "" if found else "run `make setup`")


def _plugin() -> Finding:
    names = {e.name for e in entry_points(group="sglang.srt.plugins")}
    if "granikv" in names:
        return Finding("plugin", "SGLang will load granikv", "")
    return Finding("plugin", "not registered", "install this project: `make setup`")


def _stand_ins() -> Finding:
    needed = ("sgl_kernel", "torchvision")
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if not missing:
        return Finding("kernels", ", ".join(needed), "")
    return Finding("kernels", f"no {', '.join(missing)}", "run `make setup`")


def _gpu() -> Finding:
    try:
        import pynvml  # the module of the package nvidia-ml-py

        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        count = pynvml.nvmlDeviceGetCount()
        return Finding("GPU", f"{count} x {pynvml.nvmlDeviceGetName(handle)}", "")
    except Exception as error:
        text = str(error) or type(error).__name__
        return Finding("GPU", f"none ({text})", "performance needs one; the CPU serves for checks")


def _dispatch() -> Finding:
    """What `--granikv-backend auto` would go by on this machine's own profile."""
    gpu = _gpu()
    title = gpu.found.partition(" x ")[2]
    profiles = [load_profile(path) for path in shipped_profiles().values()]
    if gpu.remedy:
        own = find_profile("cpu")
    else:
        matching = [p for p in profiles if p.device == "cuda" and title.startswith(p.title)]
        if not matching:
            return Finding("dispatch", f"no profile of {title}", _CALIBRATE)
        own = matching[0]
    if own.cost is not None:
        return Finding("dispatch", f"profile {own.name}: cost model", "")
    if own.m_sat is not None:
        found = f"profile {own.name}: the paper's rule, M_sat {own.m_sat}"
        return Finding("dispatch", found, "" if own.device == "cpu" else _CALIBRATE)
    return Finding("dispatch", f"profile {own.name} is not calibrated", _CALIBRATE)


def _memory() -> Finding:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    remedy = "" if total >= _MEMORY_GIB else f"the engine wants {_MEMORY_GIB} GiB on a CPU"
    return Finding("memory", f"{total:.0f} GiB", remedy)


def _disk() -> Finding:
    free = shutil.disk_usage(".").free / 2**30
    remedy = "" if free >= _DISK_GIB else f"`make setup` wants {_DISK_GIB} GiB"
    return Finding("disk", f"{free:.0f} GiB free here", remedy)


def _tool(name: str, consequence: str) -> Finding:
    path = shutil.which(name)
    return Finding(name, path or "not found", "" if path else consequence)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
