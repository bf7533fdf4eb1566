"""Counting a program's kernel: with a stand-in for ncu on the path, without one, and forbidden."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest

from harness.counters import ncu
from harness.counters.count import capability, count
from harness.counters.trace import Profiled
from tests.harness.counters.counted import GOOD, OTHER, QUERY, page
from tests.harness.telemetry import fake_nvml

OPTIONS = ncu.Options(kernel="_prefix_kernel", skip=5, launches=2, clocks="none", cache="all")
GMMA_LINE = "sm__pipe_tensor_op_gmma_cycles_active   Counter   cycle   GMMA\n"

FAKE = """\
#!{python}
import pathlib, subprocess, sys
arguments = sys.argv[1:]
if "--query-metrics" in arguments:
    print({query!r})
elif "--import" in arguments:
    print(pathlib.Path(arguments[1]).read_text())
else:
    export = next(a.split("=", 1)[1] for a in arguments if a.startswith("--export="))
    program = next(i for i, a in enumerate(arguments) if not a.startswith("--"))
    print({said!r}, file=sys.stderr)
    code = subprocess.run(arguments[program:]).returncode
    if {page!r}:
        pathlib.Path(export).write_text({page!r})
    sys.exit(code)
"""


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that is the whole PATH; the package ncu-report is not there."""
    tools = tmp_path / "tools"
    tools.mkdir()
    monkeypatch.setenv("PATH", str(tools))
    monkeypatch.setitem(sys.modules, "ncu_report", None)
    return tools


def install(
    path: Path, text: str, query: str = QUERY + GMMA_LINE, said: str = "==PROF== done"
) -> None:
    tool = path / "ncu"
    tool.write_text(FAKE.format(python=sys.executable, query=query, said=said, page=text))
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)


def run(tmp_path: Path, code: int = 0) -> Profiled:
    program = [sys.executable, "-c", f"raise SystemExit({code})"]
    report = tmp_path / "traces" / "cell" / "counters.ncu-rep"
    return count(program, os.environ, OPTIONS, report, (9, 0), timeout_s=30)


def test_a_program_is_counted_and_its_conditions_are_kept(path: Path, tmp_path: Path) -> None:
    install(path, page(GOOD, OTHER))
    found = run(tmp_path)
    assert found.reasons == []
    assert found.metrics["kernel_dram_bytes"] == pytest.approx(33.7e6)
    assert found.metrics["kernel_counted_s"] == pytest.approx(65e-6)
    assert found.record["chip"] == "gh100"
    assert found.record["clocks"] == "none"
    assert found.record["cache"] == "all"
    assert "gmma" in found.record["counters"]["kernel_tensor_active_pct"]


def test_without_ncu_the_record_says_so(path: Path, tmp_path: Path) -> None:
    found = run(tmp_path)
    assert found.record["missing"] == "ncu is not installed"
    assert (found.metrics, found.reasons) == ({}, [])


def test_forbidden_counters_are_said(path: Path, tmp_path: Path) -> None:
    install(path, "", said="==ERROR== ERR_NVGPUCTRPERM - The user does not have permission")
    found = run(tmp_path, code=1)
    assert "ERR_NVGPUCTRPERM" in found.record["missing"]
    assert (found.metrics, found.reasons) == ({}, [])


def test_a_counter_that_is_na_is_a_reason_against_the_cell(path: Path, tmp_path: Path) -> None:
    install(path, page([*GOOD[:2], "n/a", *GOOD[3:]]))
    found = run(tmp_path)
    assert found.metrics == {}
    (reason,) = found.reasons
    assert "dram__bytes_read.sum is n/a" in reason


def test_a_counter_that_the_chip_lacks_is_one_too(path: Path, tmp_path: Path) -> None:
    install(path, page(GOOD), query=QUERY)
    (reason,) = run(tmp_path).reasons
    assert "no metric for kernel_tensor_active_pct" in reason


def test_a_program_that_fails_is_one_too(path: Path, tmp_path: Path) -> None:
    install(path, "")
    (reason,) = run(tmp_path, code=3).reasons
    assert reason == "counters: ncu failed: ==PROF== done"


def test_an_older_report_is_not_read(path: Path, tmp_path: Path) -> None:
    install(path, page(GOOD))
    assert run(tmp_path).metrics
    install(path, "")
    (reason,) = run(tmp_path).reasons
    assert "no kernel fitted" in reason


def test_the_capability_comes_from_nvml() -> None:
    assert capability(fake_nvml, "1") == (9, 0)
