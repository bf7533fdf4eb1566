"""This machine: its profile, its name, and what of it is stored."""

from __future__ import annotations

import getpass
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import yaml

from harness import config, environment, hardware
from harness.errors import HarnessError, ServerError


@pytest.mark.parametrize(
    ("names", "profile"),
    [
        ([], "cpu"),
        (["NVIDIA H200", "NVIDIA H200"], "h200"),
        (["NVIDIA A100-SXM4-40GB"], "a100_40gb"),
    ],
)
def test_the_profile_follows_the_gpu(
    monkeypatch: pytest.MonkeyPatch, names: list[str], profile: str
) -> None:
    monkeypatch.setattr(hardware, "gpu_names", lambda: names)
    assert hardware.detect() == profile
    assert (config.DIRECTORY / "hardware" / f"{profile}.yaml").is_file()


@pytest.mark.parametrize("name", ["NVIDIA B300", "NVIDIA A100-SXM4-80GB"])
def test_a_gpu_without_a_profile_is_told_what_to_do(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(hardware, "gpu_names", lambda: [name])
    with pytest.raises(HarnessError, match=f"{name}: run `granikv calibrate`"):
        hardware.detect()


def test_hidden_gpus_are_no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert hardware.gpu_names() == []


def test_each_choice_of_gpus_is_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    assert hardware.device_name({"device": "cpu"}) == "cpu"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    assert hardware.device_name({"device": "cuda"}) == "cuda-0-1"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2")
    assert hardware.device_name({"device": "cuda"}) == "cuda-2"


def test_a_resolved_profile_is_a_file_named_by_its_content(tmp_path: Path) -> None:
    profile: dict[str, Any] = {"name": "cpu", "device": "cpu", "dispatch": {"m_sat": 8}}
    first = hardware.resolve(profile, tmp_path)
    assert yaml.safe_load(first.profile.read_text()) == profile
    assert hardware.resolve(profile, tmp_path).profile == first.profile
    other = hardware.resolve({**profile, "dispatch": {"m_sat": 9}}, tmp_path)
    assert other.profile != first.profile


def test_the_revision_is_known_without_git_too(tmp_path: Path) -> None:
    git = tmp_path / ".git"
    (git / "refs" / "heads").mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    assert environment._head(tmp_path) is None
    (git / "refs" / "heads" / "main").write_text("0123abcd\n")
    assert environment._head(tmp_path) == "0123abcd"
    (git / "HEAD").write_text("4567cdef\n")
    assert environment._head(tmp_path) == "4567cdef"


def test_the_environment_names_versions_devices_and_revision() -> None:
    known = environment.describe(sys.executable)
    assert known["packages"]["python"].startswith("3.")
    assert known["packages"]["aiohttp"]
    assert known["cpu"]["cores"] >= 1
    assert known["cpu"]["name"]
    assert set(known["revision"]) == {"commit", "modified"}


class FakeNvml:
    """One GPU whose driver is too old for some questions."""

    class NVMLError(Exception):
        pass

    NVML_CLOCK_SM, NVML_CLOCK_MEM = 1, 2
    answers: ClassVar[dict[str, Any]] = {
        "nvmlInit": None,
        "nvmlShutdown": None,
        "nvmlSystemGetDriverVersion": "580.65.06",
        "nvmlSystemGetCudaDriverVersion_v2": 13000,
        "nvmlDeviceGetCount": 1,
        "nvmlDeviceGetHandleByIndex": "handle",
        "nvmlDeviceGetName": "NVIDIA H200",
        "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=141 * 2**30),
        "nvmlDeviceGetEnforcedPowerLimit": 500_000,
        "nvmlDeviceGetPowerManagementDefaultLimit": 700_000,
        "nvmlDeviceGetMaxClockInfo": 1980,
        "nvmlDeviceGetClockInfo": 345,
        "nvmlDeviceGetPersistenceMode": 1,
        "nvmlDeviceGetMigMode": (0, 0),
    }

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def answer(*arguments: Any) -> Any:
            if name not in self.answers:
                raise self.NVMLError(name)
            return self.answers[name]

        return answer


def test_a_gpu_is_described_with_its_power_cap_and_clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())
    (gpu,) = environment.gpus()
    assert (gpu["driver"], gpu["cuda_driver"]) == ("580.65.06", "13.0")
    assert (gpu["power_limit_w"], gpu["power_limit_default_w"]) == (500.0, 700.0)
    assert (gpu["sm_clock_max_mhz"], gpu["sm_clock_mhz"], gpu["memory_clock_mhz"]) == (
        1980,
        345,
        345,
    )
    assert (gpu["memory_gib"], gpu["persistence"], gpu["mig"]) == (141.0, True, False)
    assert gpu["sm_clock_set_mhz"] is None
    assert gpu["ecc"] is None
    assert environment.describe(sys.executable)["gpus_note"] is None


def test_a_machine_without_a_gpu_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = FakeNvml()
    monkeypatch.setattr(broken, "answers", {}, raising=False)
    monkeypatch.setitem(sys.modules, "pynvml", broken)
    known = environment.describe(sys.executable)
    assert known["gpus"] == []
    assert "no NVIDIA driver" in known["gpus_note"]


def test_the_environment_names_no_host_no_user_and_no_directory() -> None:
    text = str(environment.describe(sys.executable))
    assert socket.gethostname() not in text
    assert str(Path.home()) not in text
    if getpass.getuser() != "root":
        assert getpass.getuser() not in text


def test_versions_are_those_of_the_servers_interpreter(tmp_path: Path) -> None:
    fake = tmp_path / "python"
    fake.write_text('#!/bin/sh\necho \'{"python": "3.99", "sglang": "0.5.17"}\'\n')
    fake.chmod(0o755)
    assert environment.package_versions(str(fake))["sglang"] == "0.5.17"


@pytest.mark.parametrize("content", ["#!/bin/sh\nexit 3\n", "#!/bin/sh\necho no json\n"])
def test_a_broken_interpreter_is_named(tmp_path: Path, content: str) -> None:
    fake = tmp_path / "python"
    fake.write_text(content)
    fake.chmod(0o755)
    with pytest.raises(ServerError, match="is no working Python interpreter"):
        environment.package_versions(str(fake))
