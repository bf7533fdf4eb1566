"""A stand-in for the module pynvml: two GPUs that draw 100 and 50 W since the clock began."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0
POWER_W = (100.0, 50.0)
UUIDS = ("GPU-aaaa-1111", "GPU-aabb-2222")


class NVMLError(Exception):
    """As the real one: the base of every failure."""


def nvmlInit() -> None:  # noqa: N802
    """There is a driver."""


def nvmlDeviceGetCount() -> int:  # noqa: N802
    return len(POWER_W)


def nvmlDeviceGetHandleByIndex(index: int) -> int:  # noqa: N802
    if index >= len(POWER_W):
        raise NVMLError("Invalid Argument")
    return index


def nvmlDeviceGetUUID(gpu: int) -> str:  # noqa: N802
    return UUIDS[gpu]


def nvmlDeviceGetCudaComputeCapability(gpu: int) -> tuple[int, int]:  # noqa: N802
    return (9, 0)


def nvmlDeviceGetPowerUsage(gpu: int) -> int:  # noqa: N802
    return int(1e3 * POWER_W[gpu])


def nvmlDeviceGetTotalEnergyConsumption(gpu: int) -> float:  # noqa: N802
    return 1e3 * POWER_W[gpu] * time.perf_counter()


def nvmlDeviceGetClockInfo(gpu: int, clock: int) -> int:  # noqa: N802
    return {NVML_CLOCK_SM: 1980, NVML_CLOCK_MEM: 3201}[clock]


def nvmlDeviceGetMemoryInfo(gpu: int) -> Any:  # noqa: N802
    return SimpleNamespace(used=3 * 2**30)


def nvmlDeviceGetUtilizationRates(gpu: int) -> Any:  # noqa: N802
    return SimpleNamespace(gpu=97)


def nvmlDeviceGetTemperature(gpu: int, sensor: int) -> int:  # noqa: N802
    return 40 + gpu
