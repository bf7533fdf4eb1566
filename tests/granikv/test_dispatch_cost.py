"""The benchmark of Table 17: one record with the names that the harness reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from granikv.bench import dispatch_cost
from granikv.dispatch import SaturationRule
from granikv.hardware import shipped_profiles

SMALL = ["--rows", "4", "--prefix-length", "32", "--q-heads", "4", "--kv-heads", "2"]
SMALL += ["--head-dim", "16", "--layers", "3", "--seconds", "0.01", "--host-steps", "5"]


def record(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, object]:
    assert dispatch_cost.main([*SMALL, *arguments]) == 0
    (found,) = json.loads(capsys.readouterr().out)["records"]
    assert isinstance(found, dict)
    return found


def test_one_record_says_what_it_is_of(capsys: pytest.CaptureFixture[str]) -> None:
    found = record(capsys, "--device", "cpu", "--m-sat", "8")
    assert (found["layout"], found["read"], found["backend"]) == ("HOT", "shared", "dispatch")
    assert (found["rows"], found["prefix_length"], found["layers"]) == (4, 32, 3)
    times = {k: v for k, v in found.items() if k.endswith("_s") and k != "dense_launches_in_15_s"}
    assert {
        "dispatch_cpu_s",
        "decision_new_plan_p99_s",
        "plan_changed_p99_s",
        "kernel_wall_s",
        "step_wall_s",
    } <= set(times)
    assert all(isinstance(value, float) and 0 < value < 1 for value in times.values())


def test_launches_are_those_of_steps_that_the_rule_gave_to_dense(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """M_eff is 4 rows times n_q/kv = 2."""
    launches = record(capsys, "--device", "cpu", "--m-sat", "8")["dense_launches_in_15_s"]
    assert isinstance(launches, float)
    assert launches > 3
    assert record(capsys, "--device", "cpu", "--m-sat", "9")["dense_launches_in_15_s"] == 0


def test_the_rule_of_a_profile_decides(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    shipped = str(shipped_profiles()["cpu"])
    found = record(capsys, "--device", "cpu", "--m-sat", "9", "--profile", shipped)
    assert found["rule"] == SaturationRule(8).describe()
    assert found["dense_launches_in_15_s"] != 0
    missing = str(tmp_path / "none.yaml")
    assert dispatch_cost.main([*SMALL, "--device", "cpu", "--profile", missing]) == 2
    assert "none.yaml" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["--rows", "0"], "at least 1"), (["--q-heads", "3"], "multiple of --kv-heads")],
)
def test_a_wrong_size_is_refused(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert dispatch_cost.main([*SMALL, *arguments, "--device", "cpu"]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_the_kernels_host_work_is_there_too(capsys: pytest.CaptureFixture[str]) -> None:
    found = record(capsys, "--rows", "64", "--head-dim", "64")
    names = {f"{name}_p99_s" for name in ("worklist", "worklist_unchanged", "snapshot")}
    assert names | {"worklist_p50_s"} <= set(found)
