"""The server's GPUs through NVML: power, energy, clocks, memory, utilisation, temperature.

NVML itself is an argument (the module `pynvml` of the package nvidia-ml-py), so that tests can give
another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from harness.telemetry.sample import GPU, Reading, SourceError

GIB = 2**30


def _power_w(nvml: Any, gpu: Any) -> float:
    return float(nvml.nvmlDeviceGetPowerUsage(gpu)) / 1e3


def _energy_j(nvml: Any, gpu: Any) -> float:
    return float(nvml.nvmlDeviceGetTotalEnergyConsumption(gpu)) / 1e3


def _sm_clock_mhz(nvml: Any, gpu: Any) -> float:
    return float(nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM))


def _memory_clock_mhz(nvml: Any, gpu: Any) -> float:
    return float(nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_MEM))


def _memory_used_gib(nvml: Any, gpu: Any) -> float:
    return float(nvml.nvmlDeviceGetMemoryInfo(gpu).used) / GIB


def _busy_pct(nvml: Any, gpu: Any) -> float:
    return float(nvml.nvmlDeviceGetUtilizationRates(gpu).gpu)


def _temperature_c(nvml: Any, gpu: Any) -> float:
    return float(nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU))


FIELDS: dict[str, Callable[[Any, Any], float]] = {
    "energy_j": _energy_j,
    "power_w": _power_w,
    "sm_clock_mhz": _sm_clock_mhz,
    "memory_clock_mhz": _memory_clock_mhz,
    "memory_used_gib": _memory_used_gib,
    "busy_pct": _busy_pct,
    "temperature_c": _temperature_c,
}
"""By name with the unit. `energy_j` counts since the driver was loaded; `power_w` is the driver's
own average, over up to a second on recent chips; `busy_pct` the share of time with a kernel."""


def chosen(visible: str | None, count: int) -> list[str]:
    """The first `count` GPUs of CUDA_VISIBLE_DEVICES, as it names them; of all where it is unset.

    One rank has one GPU, in this order. Raises SourceError where there are too few.
    """
    if visible is None:
        return [str(index) for index in range(count)]
    names = [name.strip() for name in visible.split(",") if name.strip()]
    if len(names) < count:
        raise SourceError(f"CUDA_VISIBLE_DEVICES names {len(names)} GPUs, the server uses {count}")
    return names[:count]


class Gpus:
    """The GPUs of one server. Raises SourceError without a driver or without one of them."""

    name = GPU

    def __init__(self, nvml: Any, names: list[str], hz: float) -> None:
        self.period_s = 1.0 / hz
        self._nvml = nvml
        try:
            nvml.nvmlInit()
        except nvml.NVMLError as error:
            raise SourceError(f"NVML does not answer: {error}") from None
        self._gpus = [self._handle(place, name) for place, name in enumerate(names)]
        known = {name: read for name, read in FIELDS.items() if self._has(read)}
        self.missing = sorted(FIELDS.keys() - known.keys())
        """Fields that these GPUs do not have."""
        self._fields = known

    def read(self) -> Iterator[Reading]:
        """Every field of every GPU."""
        for rank, gpu in enumerate(self._gpus):
            for name, read in self._fields.items():
                try:
                    yield Reading(rank, name, read(self._nvml, gpu))
                except self._nvml.NVMLError as error:
                    raise SourceError(f"GPU {rank} does not tell its {name}: {error}") from None

    def capability(self) -> tuple[int, int]:
        """Compute capability of the first GPU, which is that of all."""
        try:
            major, minor = self._nvml.nvmlDeviceGetCudaComputeCapability(self._gpus[0])
        except self._nvml.NVMLError as error:
            raise SourceError(f"the GPU does not tell its compute capability: {error}") from None
        return int(major), int(minor)

    def _handle(self, place: int, name: str) -> Any:
        # A reason is stored, and a device's id must not be: it is told by its place.
        nvml, where = self._nvml, f"GPU {place} of CUDA_VISIBLE_DEVICES"
        if name.startswith("MIG"):
            raise SourceError(f"{where} is a MIG slice, which has no power of its own")
        try:
            if name.isdigit():
                return nvml.nvmlDeviceGetHandleByIndex(int(name))
            fitting = self._by_uuid(name)
        except nvml.NVMLError as error:
            raise SourceError(f"{where} is not there: {error}") from None
        if len(fitting) != 1:
            raise SourceError(f"{where} fits {len(fitting)} GPUs")
        return fitting[0]

    def _by_uuid(self, prefix: str) -> list[Any]:
        """CUDA accepts the beginning of a UUID where that is unique."""
        nvml = self._nvml
        gpus = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
        return [gpu for gpu in gpus if _text(nvml.nvmlDeviceGetUUID(gpu)).startswith(prefix)]

    def _has(self, read: Callable[[Any, Any], float]) -> bool:
        try:
            for gpu in self._gpus:
                read(self._nvml, gpu)
        except self._nvml.NVMLError:
            return False
        return True


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
