"""Which engine a machine gets, and why it is refused one."""

import dataclasses
import importlib.util
import os
import shutil
import sys

import pytest

from granikv.install import interpreter, machine
from granikv.install.errors import SetupError
from granikv.install.machine import Gpus, Machine, check_venv_module, choose_engine
from tests.project.fake_venv import PLAIN
from tests.project.paths import ROOT

H200 = Gpus(("NVIDIA H200",), "580.95", (13, 0))


def with_(**changes: object) -> Machine:
    return dataclasses.replace(PLAIN, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("asked", "here", "engine"),
    [
        ("auto", PLAIN, "cpu"),
        ("auto", with_(gpus=H200), "gpu"),
        ("cpu", with_(gpus=H200), "cpu"),
        ("none", with_(system="Darwin", glibc=None), "none"),
        ("auto", with_(arch="aarch64"), "cpu"),
    ],
)
def test_the_engine_follows_the_machine(asked: str, here: Machine, engine: str) -> None:
    assert choose_engine(asked, here) == engine


@pytest.mark.parametrize(
    ("asked", "here", "message"),
    [
        ("gpu", PLAIN, "no NVIDIA GPU"),
        ("auto", with_(gpus=Gpus(("A100",), "550.1", (12, 4))), r"550\.1 runs CUDA 12\.4.*13\.0"),
        ("gpu", with_(gpus=H200, arch="aarch64"), "x86_64 only"),
        ("auto", with_(system="Darwin", arch="arm64"), "no build for Darwin arm64"),
        ("cpu", with_(glibc=(2, 31)), r"needs glibc 2\.34.*glibc 2\.31"),
        ("cpu", with_(glibc=None), "another C library"),
    ],
)
def test_what_cannot_run_is_refused_in_one_line(asked: str, here: Machine, message: str) -> None:
    with pytest.raises(SetupError, match=message) as caught:
        choose_engine(asked, here)
    assert "\n" not in str(caught.value)


def test_this_machine_is_described() -> None:
    here = machine.detect(ROOT)
    assert here.free_mb > 0
    assert here.system in here.describe()
    assert here.python in here.describe()


def test_a_python_without_venv_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "ensurepip" else real(name)
    )
    with pytest.raises(SetupError, match=r"lacks ensurepip.*python3-venv"):
        check_venv_module()


@pytest.mark.parametrize(
    ("version", "supported"),
    [((3, 10, 14), False), ((3, 11, 0), True), ((3, 13, 2), True), ((3, 14, 0), False)],
)
def test_supported_pythons(version: tuple[int, ...], supported: bool) -> None:
    assert interpreter.is_supported(version) is supported


def test_a_wrong_python_hands_over_to_a_right_one(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr(interpreter, "is_supported", lambda _version: False)
    monkeypatch.setattr(interpreter, "find_supported", lambda: "/opt/python3.12")
    monkeypatch.setattr(os, "execv", lambda _path, arguments: started.append(arguments))
    interpreter.ensure_supported("granikv.install", ["--no-dev"])
    assert started == [["/opt/python3.12", "-m", "granikv.install", "--no-dev"]]


def test_a_wrong_python_alone_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreter, "is_supported", lambda _version: False)
    monkeypatch.setattr(interpreter, "find_supported", lambda: None)
    problem = interpreter.ensure_supported("granikv.install", [])
    assert problem is not None
    assert "3.11, 3.12 or 3.13" in problem
    assert sys.executable in problem
    assert "\n" not in problem


def test_a_shim_that_does_not_start_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        shutil,
        "which",
        lambda name: {"python3.11": "/bin/false", "python3.12": "/bin/true"}.get(name),
    )
    assert interpreter.find_supported() == "/bin/true"
