"""`compare`: regressions, improvements, differences of configuration, and its exit status."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from harness.__main__ import main as harness
from harness.comparison.change import Change, Kind
from harness.comparison.command import compare, main
from harness.comparison.metrics import Better, better
from harness.comparison.show import differences
from harness.metrics import METRICS, OBJECTIVES
from tests.harness.analysis.made_up import H200
from tests.harness.campaign import kernel
from tests.harness.comparison.stored import put, runs
from tests.harness.imports.results import sglang, vllm, write


@pytest.fixture
def before(tmp_path: Path) -> Path:
    return runs(tmp_path / "a", "granikv", [1000.0, 1010.0, 990.0], tpots=[20.0, 20.2, 19.8])


def only(a: Path, b: Path, metric: str = "output_tok_s") -> Change:
    _, changes = compare(a, b)
    (found,) = [one for one in changes if one.metric == metric]
    return found


def test_a_slower_system_is_a_regression(before: Path, tmp_path: Path) -> None:
    after = runs(tmp_path / "b", "granikv", [900.0, 905.0, 895.0], tpots=[22.2, 22.1, 22.3])
    slower = only(before, after)
    assert slower.kind is Kind.REGRESSION
    assert slower.ratio is not None
    assert slower.ratio.value == pytest.approx(0.9)
    assert 0.88 < slower.ratio.low < slower.ratio.high < 0.92
    assert only(before, after, "tpot_p50_ms").kind is Kind.REGRESSION
    assert main([str(before), str(after)]) == 1
    assert main([str(after), str(before)]) == 0


def test_an_interval_that_reaches_one_is_no_regression(before: Path, tmp_path: Path) -> None:
    after = runs(tmp_path / "b", "granikv", [1000.0, 800.0, 900.0])
    change = only(before, after)
    assert change.kind is Kind.SAME
    assert change.note == "runs deviate by 11%"
    assert main([str(before), str(after)]) == 0


def test_a_small_change_is_none_unless_it_is_asked_for(before: Path, tmp_path: Path) -> None:
    exact = runs(tmp_path / "c", "granikv", [1000.0] * 3)
    after = runs(tmp_path / "b", "granikv", [990.0, 990.0, 990.0])
    assert main([str(exact), str(after)]) == 0
    assert main([str(exact), str(after), "--tolerance", "0.005"]) == 1


def test_single_runs_are_judged_at_ten_percent(tmp_path: Path) -> None:
    a = runs(tmp_path / "a", "granikv", [1000.0])
    near, far = (runs(tmp_path / str(v), "granikv", [v]) for v in (920.0, 880.0))
    assert only(a, near).kind is Kind.SAME
    assert only(a, far).kind is Kind.REGRESSION
    assert only(a, far).note == "one run: ±10%"


def test_no_valid_run_any_more_is_a_regression(before: Path, tmp_path: Path) -> None:
    why = ("the server died",)
    after = runs(tmp_path / "b", "granikv", [1000.0] * 3, valid=False, reasons=why)
    change = only(before, after, "valid runs")
    assert change.kind is Kind.REGRESSION
    assert change.note == "B has none: the server died"
    assert only(after, before, "valid runs").kind is Kind.UNKNOWN


def test_invalid_runs_do_not_count_in_a_mean(before: Path, tmp_path: Path) -> None:
    after = runs(tmp_path / "b", "granikv", [1.0] * 3, valid=False, reasons=("x",))
    runs(after, "granikv", [1000.0, 1000.0])
    change = only(before, after)
    assert change.b is not None
    assert (change.b.value, change.b.runs) == (1000.0, 2)


def test_what_was_measured_on_one_side_only_is_said(
    before: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    after = runs(tmp_path / "b", "granikv", [1000.0, 1010.0, 990.0])
    runs(after, "sglang_fa3", [1.0])
    assert only(before, after, "tpot_p50_ms").kind is Kind.UNKNOWN
    assert main([str(before), str(after)]) == 0
    shown = capsys.readouterr().out
    assert "not measured in B" in shown
    assert "only in B: h200, Llama-3.1-8B/TP=1, sglang_fa3" in shown


def test_differences_of_configuration_and_software_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def versions(sglang: str) -> dict[str, Any]:
        return {"packages": {"sglang": sglang}, "gpus": [{"name": "NVIDIA H200", "driver": "1"}]}

    a = runs(tmp_path / "a", "granikv", [1000.0] * 3, environment=versions("0.5.17"))
    b = runs(
        tmp_path / "b",
        "granikv",
        [1000.0] * 3,
        environment=versions("0.5.18"),
        model={"name": "llama31_8b", "tp": 1, "note": "other"},
    )
    matched, _ = compare(a, b)
    assert matched.pairs[0].differences == [
        ("model.note", "None", "other"),
        ("packages.sglang", "0.5.17", "0.5.18"),
    ]
    main([str(a), str(b)])
    assert "packages.sglang: 0.5.17 → 0.5.18" in capsys.readouterr().out


def test_a_difference_is_said_once(tmp_path: Path) -> None:
    for name, commit in (("a", "old"), ("b", "new")):
        for b in (8, 64, 256):
            environment = {"revision": {"commit": commit}}
            if b == 8:
                environment["packages"] = {"torch": commit}
            runs(tmp_path / name, "granikv", [1.0], b=b, environment=environment)
    matched, _ = compare(tmp_path / "a", tmp_path / "b")
    everywhere, one = sorted(differences(matched.pairs))
    assert everywhere == "everywhere: revision.commit: old → new"
    assert "B=8" in one
    assert one.endswith(": packages.torch: old → new")


def test_other_hardware_is_compared_and_named(tmp_path: Path) -> None:
    a = runs(tmp_path / "a", "granikv", [1000.0] * 3)
    b = runs(tmp_path / "b", "granikv", [2000.0] * 3)
    for path in b.glob("runs/*/cell.json"):
        record = json.loads(path.read_text())
        record["config"]["hardware"] = {**H200, "name": "b200"}
        path.write_text(json.dumps(record))
    matched, (change,) = compare(a, b)
    assert change.kind is Kind.IMPROVEMENT
    assert ("hardware.name", "h200", "b200") in matched.pairs[0].differences
    assert "b200" in matched.pairs[0].title


def test_variants_of_one_system_are_not_mixed(tmp_path: Path) -> None:
    """Two B and two storage choices in both folders: four pairs, each with its own."""
    for name, factor in (("a", 1.0), ("b", 0.8)):
        for b in (64, 256):
            runs(tmp_path / name, "granikv", [b * factor] * 3, b=b)
    matched, changes = compare(tmp_path / "a", tmp_path / "b")
    assert len(matched.pairs) == 2
    assert [one.ratio and one.ratio.value for one in changes] == pytest.approx([0.8, 0.8])


def test_single_cells_and_their_files_can_be_compared(before: Path, tmp_path: Path) -> None:
    after = runs(tmp_path / "b", "granikv", [700.0])
    (cell,) = (after / "runs").iterdir()
    first = sorted((before / "runs").iterdir())[0]
    for a, b in ((first, cell), (first / "cell.json", cell / "cell.json")):
        assert only(a, b).kind is Kind.REGRESSION
    assert only(before / "runs", after / "runs").kind is Kind.REGRESSION


def test_a_kernels_cell_has_no_load(tmp_path: Path) -> None:
    for layout in ("HOT", "paged"):
        put(tmp_path / "a", kernel(layout, "shared"))
        cell = kernel(layout, "shared")
        wall = float(cell.metrics["kernel_wall_s"]) * (1.5 if layout == "HOT" else 1.0)
        put(tmp_path / "b", replace(cell, metrics={"kernel_wall_s": wall}))
    _, changes = compare(tmp_path / "a", tmp_path / "b")
    found = {one.title: one.kind for one in changes}
    assert found == {
        "h200, Llama-3.1-8B/TP=1, kernel, kernel HOT shared 8,192, B=256": Kind.REGRESSION,
        "h200, Llama-3.1-8B/TP=1, kernel, kernel paged shared 8,192, B=256": Kind.SAME,
    }


def test_a_cpu_cell_is_said_to_be_a_functional_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a = runs(tmp_path / "a", "granikv", [10.0] * 3, functional=True)
    b = runs(tmp_path / "b", "granikv", [5.0] * 3, functional=True)
    assert main([str(a), str(b)]) == 1
    assert "says nothing about the speed on a GPU" in capsys.readouterr().out


def test_the_csv_holds_every_metric_in_full(before: Path, tmp_path: Path) -> None:
    after = runs(tmp_path / "b", "granikv", [1003.0, 1001.0, 1002.0], tpots=[20.0] * 3)
    target = tmp_path / "changes.csv"
    assert main([str(before), str(after), "--csv", str(target)]) == 0
    frame = pd.read_csv(target)
    assert list(frame["metric"]) == ["output_tok_s", "tpot_p50_ms"]
    assert list(frame["change"]) == ["same", "same"]
    assert frame["ratio"][0] == pytest.approx(1.002)
    assert frame["a_runs"][0] == 3
    assert frame["low"][0] < 1.002 < frame["high"][0]


def test_another_benchmarks_results_are_compared_too(
    before: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fast = write(tmp_path / "fast.jsonl", sglang(), sglang(), sglang())
    slow = write(tmp_path / "slow.jsonl", *[sglang(output_throughput=500.0)] * 3)
    assert only(fast, slow).kind is Kind.REGRESSION
    theirs = write(tmp_path / "vllm.json", vllm())
    assert main([str(before), str(theirs)]) in (0, 1)
    shown = capsys.readouterr().out
    assert "source: harness → vllm bench serve" in shown


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda root: root, "holds no results"),
        (lambda root: write(root / "x.json", {"a": 1}), "neither a result of"),
        (lambda root: runs(root / "o", "sglang_fa3", [1.0], b=8).parent / "nowhere", "no results"),
    ],
)
def test_what_cannot_be_compared_is_one_line(
    before: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], make: Any, words: str
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    assert main([str(before), str(make(other))]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert words in line


def test_nothing_in_common_is_an_error(
    before: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs(before, "granikv", [5.0], b=64)
    other = runs(tmp_path / "b", "sglang_fa3", [1.0], b=8)
    assert main([str(before), str(other)]) == 2
    assert "have no experiment in common: A has h200" in capsys.readouterr().err


def test_it_is_a_command_of_the_harness(before: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert harness(["compare", str(before), str(before), "--all"]) == 0
    assert "0 regression, 0 improvement, 2 same" in capsys.readouterr().out


def test_every_metric_of_a_cell_has_a_direction_or_is_known_to_have_none() -> None:
    neutral = {name for name in METRICS | OBJECTIVES if better(name) is None}
    assert neutral == {"requests", "duration_s", "steady_share", "send_lag_p99_ms", "hit_rate"}
    assert better("joules_per_output_token") is Better.LESS
    assert better("goodput_req_s") is Better.MORE
