"""Every target exists, expands, is explained by ``make help`` and sets up what it needs."""

import re
import shutil
import subprocess

import pytest

from tests.project.paths import ROOT

SETTING_UP = ["setup", "test", "check", "reproduce", "figures", "verify", "calibrate", "serve"]
SETTING_UP += ["lint", "gpu-dry-run", "smoke", "reproduce-full", "compare"]
TARGETS = [*SETTING_UP, "clean", "help"]

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


def make(*arguments: str) -> str:
    """Run make at the root; returns its output."""
    command = ["make", "--no-print-directory", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("target", TARGETS)
def test_a_target_expands(target: str) -> None:
    assert make("-n", target).strip()


def test_help_is_the_default_and_lists_every_target() -> None:
    listed = re.findall(r"^  make (\S+)", make(), re.MULTILINE)
    assert sorted(listed) == sorted(TARGETS)


@pytest.mark.parametrize("target", ["figures", "check", "verify", "compare"])
def test_a_target_without_engine_asks_for_none(target: str) -> None:
    engines = re.findall(r"--engine (\S+)", make("-n", target))
    assert set(engines) == {"none"}


@pytest.mark.parametrize("target", SETTING_UP)
def test_a_target_sets_up_before_it_runs(target: str) -> None:
    first = make("-n", target).splitlines()[0]
    assert "-m granikv.install" in first


def test_serve_makes_a_model_only_when_none_is_given() -> None:
    assert "tiny_llama" in make("-n", "serve")
    given = make("-n", "serve", "MODEL=/models/mine")
    assert "tiny_llama" not in given
    assert "--model /models/mine" in given


def test_the_full_run_has_every_table_s_experiment_and_what_is_beyond() -> None:
    shown = make("-n", "reproduce-full")
    on_cpu, on_gpu = re.findall(r'names="([^"]*)"', shown)
    of_tables = {path.stem for path in (ROOT / "conf" / "experiment").glob("table*.yaml")}
    beyond = ["negative_control", "trace_replay"]
    assert {*on_cpu.split(), *on_gpu.split()} == {*of_tables, *beyond}
    assert all(name.endswith("_cpu") for name in on_cpu.split())
    assert on_gpu.split()[-2:] == beyond
    assert on_gpu.split()[:-2] == sorted(on_gpu.split()[:-2])


def test_ci_runs_the_readme_test_command() -> None:
    assert "make test" in (ROOT / "README.md").read_text(encoding="utf-8")
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    commands = [line for line in script.splitlines() if line and not line.startswith("#")]
    assert commands[-1] == "exec make test"
