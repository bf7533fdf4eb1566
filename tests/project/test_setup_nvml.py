"""The GPU query against a driver library with NVML's own signatures, compiled for the test."""

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest

from granikv.install.machine import Gpus, find_gpus

CC = shutil.which("cc") or shutil.which("gcc")

pytestmark = pytest.mark.skipif(CC is None, reason="no C compiler")

_NVML = """
#include <string.h>
typedef struct device_st *nvmlDevice_t;
int nvmlInit_v2(void) { return INIT; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = COUNT; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device) {
  *device = (nvmlDevice_t)(0x7f0000000000ul + index); return 0; }
int nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned length) {
  strncpy(name, (unsigned long)device == 0x7f0000000001ul ? "Second" : "NVIDIA H200", length);
  return 0; }
int nvmlSystemGetDriverVersion(char *version, unsigned length) {
  strncpy(version, "580.95.05", length); return 0; }
int nvmlSystemGetCudaDriverVersion_v2(int *version) { *version = 13010; return 0; }
"""


def use_driver(folder: Path, monkeypatch: pytest.MonkeyPatch, *, init: int, count: int) -> None:
    """Compile the library and let it be found in the place of the driver's."""
    source, library = folder / "nvml.c", folder / "libnvidia-ml.so.1"
    source.write_text(_NVML)
    defines = [f"-DINIT={init}", f"-DCOUNT={count}"]
    command = [str(CC), "-shared", "-fPIC", *defines, "-o", str(library), str(source)]
    subprocess.run(command, check=True, capture_output=True)
    real = ctypes.CDLL
    monkeypatch.setattr(ctypes, "CDLL", lambda name: real(str(library)))


def test_gpus_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_driver(tmp_path, monkeypatch, init=0, count=2)
    assert find_gpus() == Gpus(("NVIDIA H200", "Second"), "580.95.05", (13, 1))


def test_a_driver_without_a_gpu_is_no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_driver(tmp_path, monkeypatch, init=0, count=0)
    assert find_gpus() is None


def test_a_driver_that_does_not_start_is_no_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_driver(tmp_path, monkeypatch, init=999, count=1)
    assert find_gpus() is None


def test_no_driver_is_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(_name: str) -> ctypes.CDLL:
        raise OSError("libnvidia-ml.so.1: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", absent)
    assert find_gpus() is None
