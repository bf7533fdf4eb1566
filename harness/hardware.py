"""Which machine this is, and the hardware profile (conf/hardware/) that fits it."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from harness.errors import HarnessError
from harness.files import identity
from harness.systems.base import Hardware

CPU = "cpu"
# The words of a GPU's own name that decide; the memory tells the two A100s apart.
PROFILES = {("A100", "40GB"): "a100_40gb", ("H200",): "h200"}


def gpu_names() -> list[str]:
    """Names of the NVIDIA GPUs that this process may use; empty without one or without a driver."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and visible.strip() in ("", "-1"):
        return []
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        count = pynvml.nvmlDeviceGetCount()
        names = [
            pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(i)) for i in range(count)
        ]
        return [name.decode() if isinstance(name, bytes) else str(name) for name in names]
    finally:
        pynvml.nvmlShutdown()


def visible_gpus() -> list[str]:
    """The GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return [str(index) for index in range(len(gpu_names()))]
    names = [name.strip() for name in visible.split(",")]
    return list(itertools.takewhile(lambda name: name not in ("", "-1"), names))


def detect() -> str:
    """Name of this machine's profile. Raises HarnessError for a GPU that has none."""
    names = gpu_names()
    if not names:
        return CPU
    for words, profile in PROFILES.items():
        if all(word in names[0] for word in words):
            return profile
    raise HarnessError(
        f"no hardware profile is shipped for {names[0]}: run `granikv calibrate` and choose the "
        "result with hardware=NAME"
    )


def device_name(profile: Mapping[str, Any]) -> str:
    """Name of the device that one server at a time may be measured on, for its lock."""
    if profile["device"] == CPU:
        return CPU
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "all").replace(",", "-")
    return f"{profile['device']}-{visible}"


def stored(profile: Mapping[str, Any]) -> dict[str, Any]:
    """The profile as cell.json keeps it: of a cost model, hundreds of measured steps, its hash."""
    dispatch = dict(profile["dispatch"])
    if dispatch.get("cost"):
        dispatch["cost"] = identity(dispatch["cost"])
    return {**profile, "dispatch": dispatch}


def resolve(profile: Mapping[str, Any], root: Path) -> Hardware:
    """The profile as the systems need it, written to `root`/profiles under a name from its content.

    A file, since the server reads it too: overrides on the command line then reach both.
    """
    text = yaml.safe_dump(json.loads(json.dumps(profile)), sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    path = (root / "profiles" / f"{profile['name']}-{digest}.yaml").resolve()
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as beside:
            beside.write(text)
        Path(beside.name).chmod(0o644)
        Path(beside.name).replace(path)
    return Hardware(name=profile["name"], device=profile["device"], profile=path)
