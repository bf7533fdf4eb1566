"""The minutes of the claims: how they are forecast anew, and that the file is consistent."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.analysis.claims import claim as claim_parts
from harness.analysis.claims import forecast
from harness.errors import HarnessError
from harness.servers.gpus import VISIBLE
from harness.sweeps.entry import schedule
from harness.sweeps.estimate import Estimator

TWO = """- id: {id}
  sentence: "S."
  source: "s"
  table: 19
  command: "python -m harness -m experiment=table19 hardware=h200"
  minutes: 7
  gpu: "{gpu}"
  judge: "ratio"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "claims.yaml"
    cpu = TWO.replace("python -m harness -m experiment=table19 hardware=h200", "make reproduce")
    texts = (
        TWO.format(id="a", gpu="1 GPU, 40 GB"),
        TWO.format(id="b", gpu="4 GPUs, 40 GB"),
        cpu.format(id="c", gpu="no GPU"),
    )
    path.write_text("".join(texts))
    return path


def of_gpus(need: forecast.Need) -> int:
    return 20 + 5 * forecast.gpus(need[1])


def test_each_number_of_gpus_has_its_minutes_and_no_gpu_none(file: Path) -> None:
    assert not forecast.check(file, of_gpus, write=True)
    assert [claim.minutes for claim in claim_parts.load(file)] == [25, 40, 7]
    assert forecast.check(file, of_gpus, write=False)


def test_a_check_leaves_the_file_alone(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = file.read_text()
    assert not forecast.check(file, of_gpus, write=False)
    assert file.read_text() == before
    assert "25 min, the file says 7: " in capsys.readouterr().out


@pytest.mark.parametrize(("seconds", "minutes"), [(1, 5), (300, 5), (301, 10), (0, 5)])
def test_minutes_are_rounded_up(seconds: float, minutes: int) -> None:
    assert forecast.rounded(seconds) == minutes


def test_a_command_is_planned_for_gpus_that_this_machine_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VISIBLE, "")
    need = ("python -m harness -m experiment=table05 hardware=h200", "1 GPU, 40 GB")
    minutes = forecast.forecast(need, Estimator(), tmp_path)
    entries = schedule([["experiment=table05", "hardware=h200", f"output={tmp_path}"]]).entries
    assert minutes == forecast.rounded(sum(Estimator().cell(entry)[0] for entry in entries))
    assert minutes > forecast.STEP
    with pytest.raises(HarnessError, match="needs 1 GPU; 0 visible"):
        forecast.forecast((need[0], "no GPU"), Estimator(), tmp_path)


def test_one_command_on_as_many_gpus_takes_one_time() -> None:
    minutes: dict[tuple[str, int], set[float]] = {}
    for claim in claim_parts.load(claim_parts.FILE):
        minutes.setdefault((claim.command, forecast.gpus(claim.gpu)), set()).add(claim.minutes)
    assert {need: m for need, m in minutes.items() if len(m) > 1} == {}
