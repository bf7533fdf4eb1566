"""`python -m harness.verify` over stored cells: what it prints and how it ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from granikv.dispatch import SaturationRule
from harness import paper, store, verify
from harness.analysis.claims.claim import Result, Verdict, load
from tests.harness.analysis.made_up import MadeUpCell, cpu_cell, gpu_cell


def _store(root: Path, cells: list[MadeUpCell]) -> None:
    for cell in cells:
        record = {
            "id": cell.id,
            "config": cell.config,
            "metrics": cell.metrics,
            "valid": cell.valid,
            "reasons": list(cell.reasons),
            "server": {"state": cell.state},
            "environment": {},
        }
        store.write(root, record, store.frame([]))


def _pair(granikv: float) -> list[MadeUpCell]:
    speeds = (("granikv", granikv), ("sglang_default", 1362.0))
    return [gpu_cell(s, v, repetition=r) for s, v in speeds for r in range(3)]


def _main(root: Path, *more: str) -> int:
    return verify.main(["--results", str(root), *more])


def test_nothing_measured_is_no_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _main(tmp_path) == 0
    printed = capsys.readouterr().out
    assert "0 PASS, 0 FAIL" in printed
    assert "open: python -m harness -m experiment=table03 model=llama31_8b" in printed


def test_a_confirmed_claim(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _store(tmp_path, _pair(4222.0))
    assert _main(tmp_path) == 0
    (line,) = [x for x in capsys.readouterr().out.splitlines() if "table3-llama-16k-default" in x]
    assert line.split()[:3] == ["PASS", "table3-llama-16k-default", "h200"]
    assert "2.16× ± 10%" in line


@pytest.mark.parametrize("folder", ["h200", "h200-x2", "h200-x4"])
def test_a_failed_claim_ends_with_one(
    folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _store(tmp_path / folder, _pair(1362.0))
    assert _main(tmp_path) == 1
    (line,) = [x for x in capsys.readouterr().out.splitlines() if "table3-llama-16k-default" in x]
    assert line.split()[:4] == ["FAIL", "table3-llama-16k-default", "h200", "(shipped)"]


def test_cpu_cells_confirm_only_what_is_no_speed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    counters = {"steps_dense": 9, "rows_dense": 90, "steps_cascade": 2, "rows_cascade": 4}
    state = {"counters": counters, "backends": {"rule": SaturationRule(8).describe()}}
    _store(tmp_path, [cpu_cell("granikv", 1.0, b=16, state=state)])
    assert _main(tmp_path) == 0
    lines = [x.split() for x in capsys.readouterr().out.splitlines() if x.strip()]
    verdicts = {x[1]: x[0] for x in lines if len(x) > 2 and x[2] == "cpu"}
    passed = {name for name, result in verdicts.items() if result == "PASS"}
    assert passed == {"dispatch-fires", "dispatch-routes"}
    assert "FAIL" not in verdicts.values()


def test_a_missing_file_of_claims_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _main(tmp_path, "--claims", str(tmp_path / "none.yaml")) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("verify: ")
    assert captured.err.count("\n") == 1


def test_what_is_open_names_the_gpus_of_every_claim() -> None:
    """Table 19 has claims on one, two and four GPUs behind one command."""
    claims = [c for c in load(paper.ROOT / "claims.yaml") if c.id.startswith("table19-")]
    verdicts = [Verdict(claim, "h200", Result.INCONCLUSIVE, "", "") for claim in claims]
    (line,) = verify.open_commands(verdicts)
    assert line.startswith("5 open: python -m harness -m experiment=table19 hardware=h200 (1 GPU")
    for claim in claims:
        assert f"{claim.gpu}: about {claim.minutes:,.0f} min" in line
    small = next(claim for claim in claims if "1 GPU" in claim.gpu)
    decided = Verdict(small, "h200", Result.PASS, "", "")
    (rest,) = verify.open_commands([*verdicts, decided])
    assert rest.startswith("4 open: ")
    assert "1 GPU" not in rest
