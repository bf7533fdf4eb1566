"""The shipped profile of the H200 is the fit to the steps that ship beside it, and dispatches."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from granikv.bench.refit import cost_of, main
from granikv.cost import Geometry
from granikv.dispatch import CostRule, StepShape
from granikv.hardware import load_profile
from granikv.plan import DecodePlan, PagedRange, Segment

REPOSITORY = Path(__file__).parents[2]
PROFILE = REPOSITORY / "conf" / "hardware" / "h200.yaml"
STEPS = REPOSITORY / "results" / "h200" / "dispatch" / "steps.json"
LLAMA = Geometry(8, 4, 128, 128, 2)


def test_the_profile_is_the_fit_to_the_recorded_steps() -> None:
    shipped = load_profile(PROFILE).cost_or_raise()
    fitted = cost_of(json.loads(STEPS.read_text(encoding="utf-8")))
    for name, child in fitted.paged.items():
        assert shipped.paged[name].cost == pytest.approx(child.cost, rel=1e-3)
    for name, sharing in fitted.shared.items():
        assert shipped.shared[name].cost == pytest.approx(sharing.cost, rel=1e-3)
        assert shipped.shared[name].overlapped is sharing.overlapped
    for name, residuals in fitted.residuals.items():
        assert shipped.residuals[name] == pytest.approx(residuals, abs=1e-3)


@pytest.mark.parametrize(
    ("stock", "rows", "length", "chosen"),
    [
        ("fa3", 1, 1024, "paged"),
        ("fa3", 8, 512, "paged"),
        ("fa3", 8, 16384, "dense"),
        ("fa3", 256, 512, "dense"),
        ("flashinfer", 64, 4096, "dense"),
        ("flashinfer", 256, 16384, "dense"),
    ],
)
def test_it_chooses_what_measured_faster(stock: str, rows: int, length: int, chosen: str) -> None:
    rule = CostRule(load_profile(PROFILE).cost_or_raise(), LLAMA, stock)
    everyone = tuple(range(rows))
    own = ((PagedRange(length, None),),) * rows
    plan = DecodePlan(rows, (Segment(1, 0, length, everyone),), own)
    shape = StepShape(rows, LLAMA.group, rows)
    assert rule.decide(shape, plan, rows * (length + 64)).backend == chosen


def test_refitting_writes_the_same_profile(tmp_path: Path) -> None:
    copy = tmp_path / "h200.yaml"
    copy.write_bytes(PROFILE.read_bytes())
    assert main([str(STEPS), "--profile", str(copy)]) == 0
    assert load_profile(copy) == load_profile(PROFILE)


def test_a_file_that_is_no_record_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = tmp_path / "steps.json"
    wrong.write_text("{}")
    assert main([str(wrong), "--profile", str(PROFILE)]) == 1
    assert capsys.readouterr().err.count("\n") == 1
