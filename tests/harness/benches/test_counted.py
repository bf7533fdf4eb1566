"""Hardware counters of a benchmark's launch, beside times from a run without them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from harness.benches import counted
from harness.counters.ncu import CACHES
from harness.errors import HarnessError
from harness.tables import registry
from harness.tables.entries import Measured
from harness.tables.sources import Sources
from tests.harness.benches.made_up import Measure, Program

QUERY = """\
Metric Name              Metric Type     Metric Unit     Description
------------------------ --------------- --------------- ----------------
dram__bytes_read         Counter         byte            # of bytes
gpu__time_duration       Counter         nsecond         time
lts__t_sector_hit_rate   Ratio           %               hits
"""
TENSOR = "sm__pipe_tensor_cycles_active"
PAGE = f"""\
"ID","Kernel Name","dram__bytes_read.sum","lts__t_sector_hit_rate.pct",\
"{TENSOR}.avg.pct_of_peak_sustained_active","launch__waves_per_multiprocessor",\
"gpu__time_duration.sum"
"","","byte","%","%","","nsecond"
"0","_prefix_kernel","33,600,000","89.1","62.5","4.7","64000"
"1","_prefix_kernel","33,800,000","88.9","61.5","4.7","66000"
"""
NCU = """#!{python}
import pathlib, subprocess, sys
here = pathlib.Path(__file__).parent
arguments = sys.argv[1:]
if "--query-metrics" in arguments:
    print((here / "query").read_text())
elif "--import" in arguments:
    print((here / "page").read_text())
else:
    program = arguments.index("-m") - 1
    (here / "asked").write_text(" ".join(arguments[:program]))
    (report,) = [a.partition("=")[2] for a in arguments if a.startswith("--export=")]
    pathlib.Path(report).write_text("counted")
    raise SystemExit(subprocess.call([sys.executable, *arguments[program + 1 :]]))
"""
REAL_CAPABILITY = counted.capability
COUNTED = ("profile.kind=ncu", "profile.cache=all")


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with an `ncu` that runs the program and reports two made-up launches."""
    directory = tmp_path / "tool"
    directory.mkdir()
    (directory / "query").write_text(QUERY + f"{TENSOR} Counter cycle tensor\n")
    (directory / "page").write_text(PAGE)
    (directory / "ncu").write_text(NCU.format(python=sys.executable))
    (directory / "ncu").chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setitem(sys.modules, "ncu_report", None)
    monkeypatch.setattr(counted, "capability", lambda: (9, 0))
    return directory


def test_counters_come_from_a_run_of_the_launch_alone(
    measure: Measure, program: Program, tool: Path
) -> None:
    cell = measure("paged unshared", *COUNTED)
    assert cell.valid
    alone = "--only table5 --launch paged-unshared --seconds 0"
    assert program.runs == ["--only table5 --seconds 2", alone]
    assert "--cache-control=all" in (tool / "asked").read_text()
    assert cell.metrics["kernel_wall_s"] == pytest.approx(500e-6)
    assert cell.metrics["kernel_dram_bytes"] == pytest.approx(33.7e6)
    assert cell.metrics["kernel_tensor_active_pct"] == pytest.approx(62)
    assert cell.record["bench"]["profile"]["chip"] == "gh100"


def test_table_23_shows_the_counted_cell_beside_many_that_are_not(
    measure: Measure, program: Program, tool: Path
) -> None:
    cells = [measure("HOT shared", f"repetition={n}") for n in range(3)]
    cells.append(measure("HOT shared", *COUNTED))
    assert len({cell.id for cell in cells}) == 4
    sources = Sources.of([], cells)
    counters, walls = (registry.builders()[number](sources) for number in (23, 5))
    hits = next(r for r in counters.rows if r["quantity"] == "L2 hit rate")
    entry, wall = hits["shipped.HOT, read once"], walls.entry(0, "shipped.kernel_wall_us")
    assert isinstance(entry, Measured)
    assert isinstance(wall, Measured)
    assert entry.estimate.value == pytest.approx(89.0)
    assert wall.estimate.runs == 3, "a counted cell is no fourth run"


def test_without_the_tool_the_cell_says_so_and_keeps_its_times(
    measure: Measure, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.counters.ncu.is_there", lambda: False)
    cell = measure("HOT shared", *COUNTED)
    assert cell.valid
    assert cell.metrics["kernel_wall_s"] == pytest.approx(50e-6)
    assert cell.record["bench"]["profile"]["missing"] == "ncu is not installed"


def test_a_counter_that_the_chip_lacks_is_an_error_and_no_zero(
    measure: Measure, program: Program, tool: Path
) -> None:
    (tool / "query").write_text(QUERY)
    cell = measure("HOT shared", *COUNTED)
    (reason,) = cell.reasons
    assert "gh100 has no metric" in reason
    assert "kernel_tensor_active_pct" not in cell.metrics


def test_a_counter_that_comes_back_as_na_is_an_error_and_no_zero(
    measure: Measure, program: Program, tool: Path
) -> None:
    """Failure kind 34: what this chip does not count is n/a, and must not be read as 0."""
    (tool / "page").write_text(PAGE.replace("61.5", "n/a"))
    cell = measure("HOT shared", *COUNTED)
    (reason,) = cell.reasons
    assert f"{TENSOR}.avg.pct_of_peak_sustained_active is n/a" in reason
    assert not any(name.startswith("kernel_tensor") for name in cell.metrics)


def test_the_conditions_of_counting_are_stored_with_the_counters(
    measure: Measure, program: Program, tool: Path
) -> None:
    """Failure kind 35: without being told, ncu locks the clocks and flushes the caches."""
    stored = [measure("HOT shared", "profile.kind=ncu", f"profile.cache={c}") for c in CACHES]
    assert [cell.config["profile"]["cache"] for cell in stored] == list(CACHES)
    assert {cell.config["profile"]["clocks"] for cell in stored} == {"none"}
    assert "--clock-control=none" in (tool / "asked").read_text()
    assert len({cell.id for cell in stored}) == len(CACHES)


def test_without_a_gpu_the_cell_says_so_and_keeps_its_times(
    measure: Measure, program: Program, tool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counted, "capability", REAL_CAPABILITY)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    cell = measure("HOT shared", *COUNTED)
    assert cell.valid
    assert "there is no GPU to count on" in cell.record["bench"]["profile"]["missing"]


def test_a_profiler_of_servers_is_refused(measure: Measure, program: Program) -> None:
    with pytest.raises(HarnessError, match="kernels has no profile"):
        measure("HOT shared", "profile.kind=kineto")
