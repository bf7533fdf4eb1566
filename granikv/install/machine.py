"""What this machine has: operating system, C library, GPUs, free disk."""

import ctypes
import importlib.util
import platform
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from granikv.install.errors import SetupError

MIN_GLIBC = (2, 34)
MIN_CUDA = (13, 0)
_NVML_SUCCESS = 0


@dataclass(frozen=True)
class Gpus:
    """NVIDIA GPUs as the driver reports them; ``cuda`` is the newest CUDA the driver runs."""

    names: tuple[str, ...]
    driver: str
    cuda: tuple[int, int]


@dataclass(frozen=True)
class Machine:
    """The facts that decide what is installed. ``glibc`` is None where the C library is another."""

    system: str
    arch: str
    python: str
    glibc: tuple[int, int] | None
    gpus: Gpus | None
    free_mb: int

    def describe(self) -> str:
        """One line for the terminal."""
        gpu = f"{len(self.gpus.names)} x {self.gpus.names[0]}" if self.gpus else "no NVIDIA GPU"
        return f"{self.system} {self.arch}, Python {self.python}, {gpu}"


def detect(root: Path) -> Machine:
    """Look at this machine; ``root`` is where ``.venv`` will be."""
    return Machine(
        system=platform.system(),
        arch=platform.machine(),
        python=platform.python_version(),
        glibc=_glibc(),
        gpus=find_gpus(),
        free_mb=shutil.disk_usage(root).free // 10**6,
    )


def _glibc() -> tuple[int, int] | None:
    library, version = platform.libc_ver(sys.executable)
    parts = version.split(".")
    if library != "glibc" or len(parts) < 2:
        return None
    return int(parts[0]), int(parts[1])


def find_gpus() -> Gpus | None:
    """Ask the driver's own library; None without a driver or without a GPU."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    if nvml.nvmlInit_v2() != _NVML_SUCCESS:
        return None
    try:
        names = tuple(_gpu_name(nvml, index) for index in range(_gpu_count(nvml)))
        if not names:
            return None
        return Gpus(names, _driver_version(nvml), _cuda_version(nvml))
    finally:
        nvml.nvmlShutdown()


def _gpu_count(nvml: ctypes.CDLL) -> int:
    count = ctypes.c_uint()
    return count.value if nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) == _NVML_SUCCESS else 0


def _gpu_name(nvml: ctypes.CDLL, index: int) -> str:
    device, name = ctypes.c_void_p(), ctypes.create_string_buffer(96)
    nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device))
    nvml.nvmlDeviceGetName(device, name, len(name))
    return name.value.decode()


def _driver_version(nvml: ctypes.CDLL) -> str:
    version = ctypes.create_string_buffer(80)
    nvml.nvmlSystemGetDriverVersion(version, len(version))
    return version.value.decode()


def _cuda_version(nvml: ctypes.CDLL) -> tuple[int, int]:
    encoded = ctypes.c_int()
    nvml.nvmlSystemGetCudaDriverVersion_v2(ctypes.byref(encoded))
    return encoded.value // 1000, encoded.value % 1000 // 10


def choose_engine(asked: str, machine: Machine) -> str:
    """Resolve ``auto``; returns "cpu", "gpu" or "none".

    Raises SetupError when the machine cannot run what was asked for.
    """
    engine = asked
    if asked == "auto":
        engine = "gpu" if machine.gpus else "cpu"
    if engine != "none":
        _check_system(machine)
    if engine == "gpu":
        _check_gpu(machine)
    return engine


def _check_system(machine: Machine) -> None:
    if machine.system != "Linux" or machine.arch not in ("x86_64", "aarch64"):
        raise SetupError(
            f"SGLang has no build for {machine.system} {machine.arch}: "
            "only `make figures` and `make check` work here"
        )
    if machine.glibc is None or machine.glibc < MIN_GLIBC:
        found = "glibc {}.{}".format(*machine.glibc) if machine.glibc else "another C library"
        raise SetupError(
            f"SGLang's wheel needs glibc {MIN_GLIBC[0]}.{MIN_GLIBC[1]} (Debian 12, Ubuntu 22.04 "
            f"or newer), this system has {found}: only `make figures` and `make check` work here"
        )


def _check_gpu(machine: Machine) -> None:
    if machine.gpus is None:
        raise SetupError("no NVIDIA GPU and driver found: use `make setup ENGINE=cpu`")
    if machine.arch != "x86_64":
        raise SetupError("the GPU engine is pinned for x86_64 only: use `make setup ENGINE=cpu`")
    if machine.gpus.cuda < MIN_CUDA:
        raise SetupError(
            f"the NVIDIA driver {machine.gpus.driver} runs CUDA {machine.gpus.cuda[0]}."
            f"{machine.gpus.cuda[1]}, SGLang here needs CUDA {MIN_CUDA[0]}.{MIN_CUDA[1]}: "
            "update the driver, or use `make setup ENGINE=cpu`"
        )


def check_venv_module() -> None:
    """Raise SetupError when this Python cannot make virtual environments."""
    missing = [m for m in ("venv", "ensurepip") if importlib.util.find_spec(m) is None]
    if missing:
        raise SetupError(
            f"this Python ({sys.executable}) lacks {' and '.join(missing)}: install the venv "
            "package of your system (Debian, Ubuntu: apt install python3-venv)"
        )
