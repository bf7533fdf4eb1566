"""`export`: every run as one row, for pandas."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from harness.__main__ import main as harness
from harness.comparison.export import main
from tests.harness.comparison.stored import runs
from tests.harness.imports.results import sglang, write


@pytest.fixture
def results(tmp_path: Path) -> Path:
    root = runs(tmp_path / "a", "granikv", [1000.0, 1010.0], tpots=[20.0, 21.0])
    return runs(root, "sglang_default", [500.0], valid=False, reasons=("one", "two"))


def test_a_frame_has_a_row_a_run_and_a_column_a_metric(results: Path, tmp_path: Path) -> None:
    target = tmp_path / "cells.parquet"
    assert harness(["export", str(results), "--to", str(target)]) == 0
    frame = pd.read_parquet(target)
    assert len(frame) == 3
    by_system = frame[frame["valid"]].groupby("system")["output_tok_s"].mean()
    assert by_system.to_dict() == {"granikv": 1005.0}
    bad = frame[~frame["valid"]].iloc[0]
    assert bad["reasons"] == "one; two"
    assert pd.isna(bad["tpot_p50_ms"])
    assert set(frame["source"]) == {"harness"}
    assert sorted(frame["repetition"]) == [0, 0, 1]
    assert set(frame["load"]) == {"poisson_capped B=256"}


def test_other_benchmarks_stand_in_the_same_frame(results: Path, tmp_path: Path) -> None:
    theirs, target = write(tmp_path / "t.jsonl", sglang()), tmp_path / "cells.csv"
    assert main([str(results), str(theirs), "--to", str(target)]) == 0
    frame = pd.read_csv(target)
    assert set(frame["source"]) == {"harness", "sglang.benchmark.serving"}
    assert frame["output_tok_s"].notna().all()


@pytest.mark.parametrize("name", ["cells.xlsx", "cells"])
def test_another_format_is_refused(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    assert main([str(results), "--to", str(tmp_path / name)]) == 2
    assert "the name must end in .parquet or .csv" in capsys.readouterr().err


def test_a_full_disk_leaves_no_half_file(
    results: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    target = tmp_path / "out" / "cells.csv"
    target.parent.mkdir()

    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    assert main([str(results), "--to", str(target)]) == 2
    assert "No space left on device" in capsys.readouterr().err
    assert list(target.parent.iterdir()) == []
