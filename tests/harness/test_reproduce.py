"""`make reproduce` from its first cell to its tables and figures, on the fake server."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from harness import figures, jobs, reproduce
from harness.jobs import Job
from harness.store import Cell, load_cells
from harness.sweeps.order import arrange
from tests.harness.conftest import FAKE_MODULE
from tests.harness.test_cli import servers_left

REPOSITORY = Path(__file__).resolve().parents[2]


def arguments(root: Path, *more: str) -> list[str]:
    return [
        "--output",
        str(root),
        "--hardware",
        "cpu",
        f"engine.module={FAKE_MODULE}",
        f"+engine.environment.FAULTS={root / 'faults.json'}",
        "system=sglang_default,granikv",
        *more,
    ]


def test_cells_of_one_server_are_next_to_each_other(tmp_path: Path) -> None:
    planned = reproduce.plan_all("cpu", ["hardware=cpu", f"output={tmp_path}"])
    assert len({entry.id for entry in planned.entries}) == len(planned.entries) == 20
    servers = [entry.server for entry in arrange(planned.entries, "rotated")]
    changes = sum(a != b for a, b in itertools.pairwise(servers))
    assert changes == len(set(servers)) - 1 == 3


def test_experiments_and_minutes_are_chosen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Time for nothing: every cell is left, no server is started, and that is no failure."""
    chosen = ["--experiments", "table21_cpu workload=multi_prefix_k4_cpu", "table03_cpu"]
    limits = ["--minutes", "0.1", "--cells-only", "repetition=0,1"]
    assert reproduce.main([*arguments(tmp_path), *chosen, *limits]) == 0
    shown = capsys.readouterr().err
    assert "by_server: 16 cells to measure, 0 measured already; 4 server starts" in shown
    assert "rotated (chosen): 16 cells to measure, 0 measured already; 5 server starts" in shown
    assert "left for another time, since the minutes are up: 16 cells to measure" in shown
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "servers").exists()


def test_cells_that_are_elsewhere_are_not_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    one = ["--experiments", "table21_cpu", "--cells-only", "workload=multi_prefix_k4_cpu"]
    assert reproduce.main([*arguments(there), *one, "system=granikv"]) == 0
    assert len(load_cells(there)) == 1
    capsys.readouterr()
    besides = ["--besides", str(there), "--dry-run", "--output", str(here)]
    assert reproduce.main([*arguments(there), *one, *besides]) == 0
    assert "1 cells to measure" in capsys.readouterr().err


def test_from_cells_to_tables_and_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The report's one format is enough here: `test_outputs.py` looks at each file of each."""
    monkeypatch.setattr(figures, "encode_all", partial(figures.encode_all, formats=("svg",)))
    assert reproduce.main(arguments(tmp_path)) == 0
    cells = load_cells(tmp_path)
    assert len(cells) == 10
    assert all(cell.valid for cell in cells), [cell.reasons for cell in cells]
    shown = capsys.readouterr().err
    out = tmp_path / "out"
    assert str(out / "tables") in shown
    assert str(out / "figures") in shown
    assert "granikv: 192 of 192 greedy outputs equal sglang_default's (5 workloads)" in shown
    for name in ("table03.md", "table21.md"):
        assert "functional check, tiny model on the CPU" in (out / "tables" / name).read_text()
    assert (out / "figures" / "figures.md").is_file()
    assert not servers_left(tmp_path)
    (log,) = (tmp_path / "logs").glob("reproduce-*.log")
    assert "[10/10]" in log.read_text()

    assert reproduce.main([*arguments(tmp_path), "--cells-only"]) == 0
    assert capsys.readouterr().err.count(": measured already (") == 10


def test_an_invalid_cell_is_said_and_the_rest_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Drawing is left out: valid and invalid cells are drawn in the tests of the figures."""
    monkeypatch.setattr(figures, "encode_all", lambda here, shipped: [])
    (tmp_path / "faults.json").write_text(json.dumps({"silent": True}))
    assert reproduce.main([*arguments(tmp_path), "--experiments", "table21_cpu"]) == 1
    shown = capsys.readouterr().err
    assert shown.count("error: cell ") == 2
    assert "no decode step went through GraniKV" in shown
    assert [cell.system for cell in load_cells(tmp_path) if cell.valid] == ["sglang_default"] * 2
    assert (tmp_path / "out" / "tables" / "table21.md").is_file()


def test_a_cell_that_the_disk_does_not_take_is_said_and_the_rest_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told: list[str] = []

    def full(job: Job, rerun: bool) -> Cell:
        told.append(job.id)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(jobs, "measure", full)
    one = ["--experiments", "table21_cpu", "--cells-only", "workload=multi_prefix_k4_cpu"]
    assert reproduce.main([*arguments(tmp_path), *one, "repetition=0"]) == 1
    assert len(told) == 2
    assert capsys.readouterr().err.count("error: granikv multi_prefix_k4_cpu") == 1


WITHOUT_ENGINE = """
import sys
from functools import partial
for name in ("torch", "sglang", "triton", "transformers", "granikv"):
    sys.modules[name] = None
from harness import figures
from harness.reproduce import main
figures.encode_all = partial(figures.encode_all, formats=("svg",))
sys.exit(main(["--figures-only", "--output", sys.argv[1]]))
"""


def test_figures_need_no_engine_and_start_no_server(tmp_path: Path) -> None:
    """In one format; `draw_everything.py` has no engine for the others either."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_ENGINE, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "tables" / "table03.md").is_file()
    assert not (tmp_path / "servers").exists()


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (["system=vllm"], "Could not find 'system/vllm'"),
        (["nonsense=3"], "Could not override 'nonsense'"),
        (["--hardware", "b300"], "Could not find 'hardware/b300'"),
    ],
)
def test_a_bad_argument_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], wrong: list[str], words: str
) -> None:
    assert reproduce.main([*arguments(tmp_path), *wrong]) == 1
    (line,) = [e for e in capsys.readouterr().err.splitlines() if e.startswith("error: ")]
    assert words in line
