"""The wheel carries the packages, the hardware profiles and the two entry points."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.project.paths import ROOT


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel as an installer does."""
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return next(out.glob("granikv-*.whl"))


def test_it_holds_the_packages_and_no_tests(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    info = next(top for top in tops if top.endswith(".dist-info"))
    assert tops == {"granikv", "harness", "hydra_plugins", "workloads", info}
    assert f"{info}/licenses/LICENSE" in names
    assert f"{info}/licenses/NOTICE" in names


def test_it_holds_every_hardware_profile(wheel: Path) -> None:
    profiles = {path.name for path in (ROOT / "conf" / "hardware").glob("*.yaml")}
    names = zipfile.ZipFile(wheel).namelist()
    shipped = {name.split("/")[-1] for name in names if name.startswith("granikv/profiles/")}
    assert profiles
    assert shipped >= profiles


def test_its_entry_points_are_the_command_and_the_plugin(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    name = next(n for n in archive.namelist() if n.endswith("entry_points.txt"))
    text = archive.read(name).decode()
    assert "granikv = granikv.cli:main" in text
    assert "[sglang.srt.plugins]\ngranikv = granikv.engine.plugin:activate" in text
