"""Calibration: the fit on made-up timings, and a short real run on the CPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from granikv.calibrate import PROBLEMS, Crossover, Timing, fit_m_sat, main, time_together
from granikv.hardware import find_profile, load_profile


def _point(m_eff: int, dense: float, cascade: float, spread: float = 0.0) -> Crossover:
    return Crossover(m_eff, Timing(dense, spread), Timing(cascade, spread))


def test_the_threshold_is_where_dense_begins_to_hold() -> None:
    points = [_point(8, 2, 1), _point(16, 1.5, 1), _point(32, 1, 1), _point(64, 0.5, 1)]
    assert fit_m_sat(points)[0] == 32
    assert fit_m_sat(points[::-1])[0] == 32


def test_a_late_loss_moves_the_threshold_past_it() -> None:
    points = [_point(8, 0.5, 1), _point(16, 0.5, 1), _point(32, 1.2, 1), _point(64, 0.5, 1)]
    m_sat, note = fit_m_sat(points)
    assert m_sat == 64
    assert "slower at M_eff 32 and never from 64 to 64" in note


def test_no_threshold_where_dense_loses_at_the_largest() -> None:
    m_sat, note = fit_m_sat([_point(8, 0.5, 1), _point(16, 1.5, 1)])
    assert m_sat is None
    assert "slower than cascade at M_eff 16, the largest measured" in note


def test_dense_everywhere_claims_no_more_than_was_measured() -> None:
    m_sat, note = fit_m_sat([_point(8, 0.5, 1), _point(16, 0.5, 1)])
    assert m_sat == 8
    assert "from M_eff 8, the smallest measured" in note


def test_within_the_spread_is_not_slower_but_noise_excuses_only_five_percent() -> None:
    assert _point(8, 1.03, 1.0, spread=0.04).dense_holds
    assert not _point(8, 1.03, 1.0, spread=0.01).dense_holds
    assert not _point(8, 1.10, 1.0, spread=5.0).dense_holds


def test_the_note_states_the_noise() -> None:
    assert "at most 50% of the median" in fit_m_sat([_point(8, 1.0, 2.0, spread=0.5)])[1]


def test_operations_are_timed_in_turn_and_often_enough() -> None:
    calls: list[str] = []
    slow = torch.zeros(3_000_000)

    def first() -> None:
        calls.append("first")
        slow.add_(1)

    def second() -> None:
        calls.append("second")
        for _ in range(6):
            slow.add_(1)

    one, two = time_together("cpu", [first, second], seconds=0.0)
    assert 0 < one.median < two.median
    assert calls.count("first") >= 7
    assert calls.index("second") < len(calls) - 1 - calls[::-1].index("first")


@pytest.mark.parametrize("device", sorted(PROBLEMS))
def test_the_sweep_is_powers_of_two_that_whole_rows_make(device: str) -> None:
    problem = PROBLEMS[device]
    for m_eff in problem.m_effs:
        assert m_eff & (m_eff - 1) == 0
        assert m_eff % problem.group == 0


def test_a_run_on_the_cpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "here.yaml"
    assert main(["--device", "cpu", "--out", str(out), "--seconds", "0.5"]) == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    kinds = [event["event"] for event in events]
    sweep = PROBLEMS["cpu"].m_effs
    begin = ["start", "bandwidth", "matmul", *["crossover"] * len(sweep), "fit"]
    assert kinds == [*begin, "children", "children", "cost", "cost", "cost", "done"]
    points = [event for event in events if event["event"] == "crossover"]
    assert [point["m_eff"] for point in points] == list(sweep)
    assert all(point["dense_ms"] > 0 and point["cascade_ms"] > 0 for point in points)
    profile = load_profile(out)
    assert profile.name == "here"
    assert profile.m_sat == events[-1]["m_sat"]
    assert profile.m_sat is None or profile.m_sat in sweep
    assert profile.bandwidth_gbps == pytest.approx(events[1]["gbps"], rel=0.01)
    assert profile.peak_tflops == pytest.approx(events[2]["tflops"], rel=0.01)
    assert profile.cost is not None
    assert set(profile.cost.paged) == {"torch_native"}
    assert set(profile.cost.shared) == {"dense", "cascade"}
    assert profile.server_args == find_profile("cpu").server_args
    assert "float32" in profile.measured["source"]
    assert [p.name for p in tmp_path.iterdir()] == ["here.yaml"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--out", "absent/x.yaml"], "the directory absent does not exist"),
        (["--out", "x.json"], "--out must name a .yaml file, not x.json"),
        (["--out", "x.yaml", "--name", "a/b"], "the name 'a/b' may hold letters"),
        (["--out", "x.yaml", "--seconds", "0"], "--seconds must lie between 0 and 600"),
        (["--out", "x.yaml", "--seconds", "nan"], "--seconds must lie between 0 and 600"),
    ],
)
def test_refusals_come_before_measuring(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["--device", "cpu", *arguments]) == 2
    shown = capsys.readouterr()
    assert message in shown.err
    assert shown.err.count("\n") == 1
    assert not shown.out
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_cuda_without_a_gpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--device", "cuda", "--out", str(tmp_path / "x.yaml")]) == 2
    assert "no CUDA device is usable here" in capsys.readouterr().err
