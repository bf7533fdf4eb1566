"""Benchmark cells: one run of the program for a table, resumed, judged and stored as any cell."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from harness import config, jobs, store
from harness.analysis.cells import standing
from harness.benches import run
from harness.benches.dispatch import DispatchCost
from harness.errors import HarnessError
from harness.report.command import command
from harness.tables import registry
from harness.tables.entries import Measured
from harness.tables.sources import Sources
from tests.harness.benches.made_up import WALL_US, Measure, Program, record


def test_one_run_a_repetition_measures_the_whole_table(measure: Measure, program: Program) -> None:
    sweep = itertools.product(range(2), WALL_US)
    cells = [measure(launch, f"repetition={repetition}") for repetition, launch in sweep]
    assert program.runs == ["--only table5 --seconds 2"] * 2
    assert all(cell.valid for cell in cells)
    assert len({cell.id for cell in cells}) == 8
    table = registry.builders()[5](Sources.of([], cells))
    entries = [table.entry(row, "shipped.speedup") for row in range(4)]
    gains = [entry.estimate.value for entry in entries if isinstance(entry, Measured)]
    assert gains == pytest.approx([10.0, 1.0, 1.25, 500 / 60])


def test_a_measured_cell_is_not_measured_again(
    measure: Measure, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = measure()
    monkeypatch.setattr(run, "_reports", {})  # as another process
    assert measure().id == first.id
    assert len(program.runs) == 1
    measure(rerun=True)
    assert len(program.runs) == 2


def test_what_a_cell_says_of_itself(measure: Measure, tmp_path: Path) -> None:
    cell = measure("paged unshared", "repetition=1")
    assert store.load_cells(tmp_path)[0].id == cell.id
    at = standing(cell)
    assert (at.system, at.kind, at.b, at.paper_lengths) == ("kernel", "kernel", 256, (8192,))
    assert (at.layout, at.read, at.model) == ("paged", "unshared", "Llama-3.1-8B/TP=1")
    assert cell.record["bench"]["device"] == "made up"
    assert cell.record["bench"]["record"] == record("paged unshared")
    assert cell.metrics == {"kernel_wall_s": 500e-6, "relative_error": 2e-3}
    assert cell.requests.empty
    assert isinstance(cell.config["hardware"]["dispatch"]["cost"], str)  # its hash
    assert str(tmp_path) not in (cell.directory / "cell.json").read_text()
    again = command(cell.config)
    assert again == (
        "python -m harness system=kernel model=llama31_8b workload=kernel workload.layout=paged "
        "workload.read=unshared hardware=h200 repetition=1"
    )
    overrides = [*again.split()[3:], f"output={tmp_path}"]
    values = config.compose_cell(overrides)
    assert jobs.plan(values).config == cell.config


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"relative_error": 0.01}, "the kernel is wrong: relative error 0.01 > 0.006"),
        ({"kernel_wall_s": 30e-6}, "30.0 µs is less than the arithmetic takes: 43.5 µs"),
        ({"relative_error": float("nan")}, "gave no relative_error"),
        ({"rows": 128}, "measured no launch of layout=HOT, read=shared"),
    ],
)
def test_a_launch_that_must_not_be_used_is_kept_with_its_reason(
    change: dict[str, Any], reason: str, measure: Measure, program: Program
) -> None:
    program.prints([record("HOT shared", **change)])
    cell = measure()
    assert not cell.valid
    assert reason in cell.reasons[0]


def test_a_program_that_fails_gives_its_last_words(measure: Measure, program: Program) -> None:
    (program.directory / "fails").touch()
    cell = measure()
    assert cell.reasons == (
        "tests.harness.benches.program failed: kernels: no CUDA device is usable here",
    )
    (program.directory / "fails").unlink()
    assert measure().valid, "an invalid cell is measured again"


def test_a_program_that_prints_something_else(measure: Measure, program: Program) -> None:
    (program.directory / "report.json").write_text("nothing of use")
    assert "printed no JSON object" in measure().reasons[0]


def test_a_program_that_hangs_is_ended(measure: Measure, program: Program) -> None:
    (program.directory / "hangs").touch()
    assert "was not done after 1 s" in measure("HOT shared", "workload.timeout_s=1").reasons[0]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("workload.bench=other",), "there are: kernels, dispatch_cost"),
        (("system=granikv",), "workload.bench=kernels is of system=kernel, not of granikv"),
    ],
)
def test_what_fits_no_benchmark_is_refused(
    overrides: tuple[str, ...], message: str, measure: Measure, program: Program
) -> None:
    with pytest.raises(HarnessError, match=message):
        measure("HOT shared", *overrides)
    assert program.runs == []


def test_the_rule_is_the_profile_s(tmp_path: Path) -> None:
    overrides = ["experiment=table17", "hardware=a100_40gb", f"output={tmp_path}"]
    words = " ".join(DispatchCost().arguments(config.compose_cell(overrides)))
    (profile,) = (tmp_path / "profiles").iterdir()
    assert words.startswith(f"--device cuda --profile {profile} --rows 256 --prefix-length 8192")
    assert words.endswith("--layers 32 --seconds 15")


def test_table_17_on_the_cpu(tmp_path: Path) -> None:
    """The real program, at a small size."""
    pytest.importorskip("torch")
    overrides = ["experiment=table17_cpu", "hardware=cpu", f"output={tmp_path}"]
    cell = jobs.measure(jobs.plan(config.compose_cell([*overrides, "workload.seconds=0.05"])))
    assert cell.valid, cell.reasons
    assert "rows * n_q/kv >= 8" in cell.record["bench"]["record"]["rule"]
    assert str(tmp_path) not in (cell.directory / "cell.json").read_text()
    table = registry.builders()[17](Sources.of([cell], []))
    shown = [table.entry(row, "here.GraniKV") for row in range(len(table.rows))]
    assert sum(isinstance(entry, Measured) for entry in shown) == 8, "no work list"
