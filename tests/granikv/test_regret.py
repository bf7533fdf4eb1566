"""Regret: none where the model is the truth, what it must be where it is not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("triton")

from granikv.bench import regret
from granikv.bench.children import composition
from granikv.bench.kernels import Ceilings
from granikv.cost import CostModel, SharedChild
from granikv.dispatch import CostRule
from granikv.hardware import HardwareProfile, write_profile
from tests.granikv.fake_children import fake_bench
from tests.granikv.test_calibrate_costs import TRUTH
from tests.granikv.test_cost import DENSE, EXACT, LLAMA, TILE

CEILINGS = Ceilings(4300.0, 790.0)
SIZES = [(rows, 64, [length]) for rows in (1, 8, 64, 256) for length in (0, 256, 1024, 16384)]
MIXED = (128, 64, [256, 16384])


def _records(believed: CostModel, m_sat: int | None = 256) -> list[dict[str, object]]:
    bench = fake_bench(TRUTH, LLAMA, rows=256, slots=150_000)
    rule = CostRule(believed, LLAMA, "fa3")
    cases = [composition(*sizes, LLAMA) for sizes in (*SIZES, MIXED)]
    return [regret.judged(bench, rule, case, CEILINGS, m_sat) for case in cases]


def test_the_truth_has_no_regret() -> None:
    records = _records(TRUTH)
    assert max(float(str(r["regret"])) for r in records) < 0.01
    assert len({str(r["chosen"]).split(",")[0] for r in records}) == 3
    found = regret.summary(records)
    assert found["targets"]["met"]
    assert found["rules"]["always paged"]["max"] > 5
    assert found["rules"]["saturation"]["max"] > 0


def test_a_wrong_belief_costs_what_it_costs() -> None:
    """Dense believed free: it is chosen everywhere but without a prefix, and the table says so."""
    free = SharedChild(DENSE._replace(launch_us=0.0, us_per_gflop=0.1), True, TILE, EXACT)
    records = _records(CostModel(TRUTH.paged, {"dense": free}))
    assert not regret.summary(records)["targets"]["met"]
    for record in records:
        us = record["us"]
        assert isinstance(us, dict)
        if not record["prefix_lengths"]:
            assert (record["chosen"], record["regret"]) == ("paged", 0)
        elif record["chosen"] == "dense":
            assert record["regret"] == pytest.approx(us["dense"] / min(us.values()) - 1, abs=2e-3)
    lines = list(regret.table(records))
    assert lines[1].startswith("cost")
    assert any("dense for paged" in line for line in lines)


def test_floors_stand_beside_each_step() -> None:
    (record,) = [r for r in _records(TRUTH) if (r["rows"], r["prefix_lengths"]) == (256, [16384])]
    assert record["floor_flop_us"] == pytest.approx(4 * 256 * 32 * 128 * 16384 / 790e6, rel=1e-3)
    tokens = 16384 + 256 * 64
    assert record["floor_bytes_us"] == pytest.approx(tokens * 4096 / 4.3e6, rel=1e-3)


def test_a_run_on_the_cpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = {"dense": TRUTH.shared["dense"], "cascade": TRUTH.shared["cascade"]}
    cost = CostModel({"torch_native": TRUTH.paged["fa3"]}, names)
    write_profile(HardwareProfile("here", "cpu", "here", cost=cost), tmp_path / "here.yaml")
    out = tmp_path / "out.json"
    arguments = ["--hardware", str(tmp_path / "here.yaml"), "--out", str(out)]
    assert regret.main(arguments) == 0
    report = json.loads(out.read_text())
    assert len(report["records"]) == 13
    assert report["stock"] == "torch_native"
    assert "always paged" in capsys.readouterr().out
    assert regret.main([*arguments, "--stock", "fa3"]) == 2
    assert "'" not in (error := capsys.readouterr().err)
    assert "stock backend fa3 is not both installed" in error
    assert {p.name for p in tmp_path.iterdir()} == {"here.yaml", "out.json"}


def test_a_profile_without_costs_says_what_to_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert regret.main(["--hardware", "cpu", "--out", "x.json"]) == 2
    assert "has no cost model: run `granikv calibrate" in capsys.readouterr().err
