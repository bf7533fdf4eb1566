"""GPUs through a stand-in for NVML: which ones, what they tell, what they lack."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from harness.telemetry.gpus import FIELDS, Gpus, chosen
from harness.telemetry.sample import Reading, SourceError
from tests.harness.telemetry import fake_nvml


def nvml(**changes: Any) -> Any:
    """The stand-in with some of its functions replaced."""
    return SimpleNamespace(**{**vars(fake_nvml), **changes})


def refuse(*_: Any) -> Any:
    raise fake_nvml.NVMLError("Not Supported")


def test_every_field_of_every_gpu_in_its_unit() -> None:
    found = {(r.rank, r.name): r.value for r in Gpus(fake_nvml, ["0", "1"], 10).read()}
    assert {name for _, name in found} == set(FIELDS)
    assert found[0, "power_w"] == 100.0
    assert found[1, "power_w"] == 50.0
    assert found[1, "temperature_c"] == 41.0
    assert found[0, "sm_clock_mhz"] == 1980.0
    assert found[0, "memory_clock_mhz"] == 3201.0
    assert found[0, "memory_used_gib"] == 3.0
    assert found[0, "busy_pct"] == 97.0


def test_a_field_that_a_chip_lacks_is_named_and_not_zero() -> None:
    gpus = Gpus(nvml(nvmlDeviceGetTotalEnergyConsumption=refuse), ["0"], 10)
    assert gpus.missing == ["energy_j"]
    assert "energy_j" not in {reading.name for reading in gpus.read()}


def test_a_gpu_that_falls_silent_is_an_error() -> None:
    changing = nvml()
    gpus = Gpus(changing, ["0"], 10)
    changing.nvmlDeviceGetPowerUsage = refuse
    with pytest.raises(SourceError, match="GPU 0 does not tell its power_w: Not Supported"):
        list(gpus.read())


def test_ranks_follow_the_order_of_the_visible_devices() -> None:
    names = chosen("GPU-aabb,0", 2)
    powers = [r for r in Gpus(fake_nvml, names, 10).read() if r.name == "power_w"]
    assert powers == [Reading(0, "power_w", 50.0), Reading(1, "power_w", 100.0)]


@pytest.mark.parametrize(
    ("visible", "count", "names"),
    [(None, 2, ["0", "1"]), ("3, 5,7", 2, ["3", "5"]), ("GPU-aaaa", 1, ["GPU-aaaa"])],
)
def test_a_server_uses_the_first_visible_devices(
    visible: str | None, count: int, names: list[str]
) -> None:
    assert chosen(visible, count) == names


@pytest.mark.parametrize(
    ("names", "changes", "reason"),
    [
        (["0"], {"nvmlInit": refuse}, "NVML does not answer: Not Supported"),
        (["0", "7"], {}, "GPU 1 of CUDA_VISIBLE_DEVICES is not there: Invalid Argument"),
        (["GPU-aa"], {}, "GPU 0 of CUDA_VISIBLE_DEVICES fits 2 GPUs"),
        (["GPU-ff"], {}, "GPU 0 of CUDA_VISIBLE_DEVICES fits 0 GPUs"),
        (["MIG-1234"], {}, "MIG slice"),
    ],
)
def test_what_cannot_be_watched(names: list[str], changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(SourceError, match=reason) as raised:
        Gpus(nvml(**changes), names, 10)
    assert "GPU-" not in str(raised.value)


def test_too_few_visible_devices() -> None:
    with pytest.raises(SourceError, match="names 1 GPUs, the server uses 2"):
        chosen("0", 2)
