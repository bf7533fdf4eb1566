"""Cells on disk: whole or not at all."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from harness import store
from harness.errors import HarnessError
from tests.harness.test_metrics import request


def record(cell_id: str = "abc", valid: bool = True, **changes: Any) -> dict[str, Any]:
    return {
        "id": cell_id,
        "config": {"system": {"name": "granikv"}, "hardware": {"name": "cpu"}, "repetition": 2},
        "metrics": {"output_tok_s": 12.5, "tpot_p50_ms": math.nan},
        "valid": valid,
        "reasons": [] if valid else ["it failed"],
        "environment": {},
        "server": {"state": {"counters": {}}, "layout": None},
        **changes,
    }


@pytest.fixture
def log() -> pd.DataFrame:
    return store.frame([request(0, [1.0, 2.0]), request(1, [1.5, 2.5], [1, 3])])


def test_a_cell_comes_back_as_it_was_written(tmp_path: Path, log: pd.DataFrame) -> None:
    store.write(tmp_path, record(), log)
    (cell,) = store.load_cells(tmp_path)
    assert (cell.id, cell.valid, cell.reasons) == ("abc", True, ())
    assert (cell.system, cell.hardware, cell.repetition) == ("granikv", "cpu", 2)
    assert cell.metrics["output_tok_s"] == 12.5
    assert math.isnan(cell.metrics["tpot_p50_ms"])
    assert cell.state == {"counters": {}}
    assert cell.layout is None
    read = cell.requests
    assert list(read["output_tokens"]) == [2, 4]
    assert [list(chunk) for chunk in read["chunk_tokens"]] == [[1, 1], [1, 3]]


def test_times_are_those_that_are_stored(tmp_path: Path) -> None:
    """Metrics are computed from the log that was measured, and again from the stored one."""
    log = store.frame([request(i, [1 + i / 7, 2 + i / 3]) for i in range(9)])
    assert log["first_token_s"][1] == 1.142857143
    pd.testing.assert_series_equal(
        store.write(tmp_path, record(), log).requests["last_token_s"], log["last_token_s"]
    )


def test_a_trees_keys_stand_in_cell_json_once(tmp_path: Path, log: pd.DataFrame) -> None:
    tree = [{"id": i, "parent": i - 1 or None, "base": None} for i in range(1, 9)]
    known = record(server={"state": {"tree": tree}, "layout": {"tree": []}})
    cell = store.write(tmp_path, known, log)
    assert (cell.state, cell.layout) == ({"tree": tree}, {"tree": []})
    assert cell.record["server"]["state"] is cell.state
    lines = (cell.directory / "cell.json").read_text().splitlines()
    (server,) = (line for line in lines if line.startswith('"server":'))
    assert server.count('"parent"') == 1


def test_nothing_that_names_this_machine_is_stored(tmp_path: Path, log: pd.DataFrame) -> None:
    engine = {"arguments": ["--api-key", "S3cr3t"], "environment": {"X": "/home/alice/y"}}
    known = record(valid=False, reasons=["no /home/alice/model"])
    known["config"] = {**known["config"], "engine": engine}
    cell = store.write(tmp_path, known, log, {"traceback.txt": 'File "/home/alice/x.py"'})
    for path in (cell.directory / "cell.json", cell.directory / "traceback.txt"):
        assert "alice" not in path.read_text()
        assert "S3cr3t" not in path.read_text()
    assert cell.reasons == ("no <path>",)
    assert cell.config["engine"]["environment"] == {"X": "y"}


def test_not_a_number_is_stored_as_null(tmp_path: Path, log: pd.DataFrame) -> None:
    store.write(tmp_path, record(), log)
    text = (tmp_path / "runs" / "abc" / "cell.json").read_text()
    assert "NaN" not in text
    assert json.loads(text)["metrics"]["tpot_p50_ms"] is None


def test_an_empty_log_is_stored(tmp_path: Path) -> None:
    cell = store.write(tmp_path, record(valid=False), store.frame([]), {"traceback.txt": "why"})
    assert cell.requests.empty
    assert list(cell.requests.columns) == list(store.REQUEST_COLUMNS)
    assert (cell.directory / "traceback.txt").read_text() == "why"


@pytest.mark.parametrize("broken", ["write_bytes", "write_record", "replace"])
def test_a_full_disk_leaves_nothing_and_harms_no_other_cell(
    tmp_path: Path, log: pd.DataFrame, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    store.write(tmp_path, record("other"), log)

    def full(*args: Any, **kwargs: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store if broken == "write_record" else Path, broken, full)
    with pytest.raises(HarnessError, match="cell abc not stored: No space left on device"):
        store.write(tmp_path, record(), log)
    monkeypatch.undo()
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["other"]
    assert [cell.id for cell in store.load_cells(tmp_path)] == ["other"]


FULL = """
import resource, sys
from pathlib import Path
from harness import store
from harness.errors import HarnessError
from tests.harness.test_store import record, request
log = store.frame([request(i, [1.0 + t / 7 for t in range(2000)]) for i in range(20)])
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, 1_000))
try:
    store.write(Path(sys.argv[1]), record(), log)
except HarnessError as error:
    print(error)
"""


def test_a_disk_that_takes_half_a_file_leaves_nothing(tmp_path: Path, log: pd.DataFrame) -> None:
    """The kernel itself refuses the rest of the file, as it does where a disk is full."""
    store.write(tmp_path, record("other"), log)
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(root)},
        cwd=root,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.startswith("cell abc not stored: "), done.stderr
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["other"]
    assert not store.load_cells(tmp_path)[0].requests.empty


def test_what_a_killed_program_had_begun_to_write_is_removed(
    tmp_path: Path, log: pd.DataFrame
) -> None:
    begun, other = tmp_path / "runs" / ".abc.x1y2", tmp_path / "runs" / ".abcd.x1y2"
    for directory in (begun, other):
        directory.mkdir(parents=True)
        (directory / "requests.parquet").write_bytes(b"half")
    with store.claim(tmp_path, "abc"):
        store.write(tmp_path, record(), log)
    assert not begun.exists()
    assert other.exists()  # another program may be at work on that cell


def test_an_attempt_is_kept_whatever_became_of_earlier_ones(
    tmp_path: Path, log: pd.DataFrame
) -> None:
    for _ in range(3):
        store.write(tmp_path, record(valid=False), log)
    shutil.rmtree(tmp_path / "rejected" / "abc-0")
    for _ in range(2):
        store.write(tmp_path, record(), log)
    assert {path.name for path in (tmp_path / "rejected").iterdir()} == {"abc-0", "abc-1", "abc-2"}


def test_a_log_is_kept_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = tmp_path / "runs" / store.keep_log(tmp_path, "abc-1", "one")
    first = kept.read_bytes()

    def full(*args: Any, **kwargs: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(HarnessError, match="log abc-1 not stored: No space left on device"):
        store.keep_log(tmp_path, "abc-1", "two")
    assert kept.read_bytes() == first
    assert [path.name for path in kept.parent.iterdir()] == ["abc-1.log.gz"]
    assert store.load_cells(tmp_path) == []


def test_what_a_killed_program_left_is_no_cell(tmp_path: Path, log: pd.DataFrame) -> None:
    store.write(tmp_path, record("whole"), log)
    half = tmp_path / "runs" / ".abc.xyz"
    half.mkdir()
    (half / "requests.parquet").write_bytes(b"half")
    (tmp_path / "runs" / "def").mkdir()
    assert [cell.id for cell in store.load_cells(tmp_path)] == ["whole"]
    store.write(tmp_path, record("def"), log)
    assert store.find_valid(tmp_path, "def") is not None


def test_only_a_valid_cell_need_not_be_measured_again(tmp_path: Path, log: pd.DataFrame) -> None:
    assert store.find_valid(tmp_path, "abc") is None
    store.write(tmp_path, record(valid=False), log)
    assert store.find_valid(tmp_path, "abc") is None
    store.write(tmp_path, record(), log)
    assert store.find_valid(tmp_path, "abc") is not None
    assert (tmp_path / "rejected" / "abc-0" / "cell.json").is_file()


def test_requests_of_another_cell_are_refused(tmp_path: Path, log: pd.DataFrame) -> None:
    cell = store.write(tmp_path, record(), log)
    other = store.write(tmp_path, record("other"), log.iloc[:1])
    (cell.directory / "requests.parquet").write_bytes(
        (other.directory / "requests.parquet").read_bytes()
    )
    with pytest.raises(HarnessError, match=r"requests\.parquet was changed"):
        _ = store.load_cells(tmp_path)[0].requests


def test_further_tables_are_stored_with_the_cell(tmp_path: Path, log: pd.DataFrame) -> None:
    telemetry = pd.DataFrame({"at_s": [0.0, 0.1], "power_w": [70.0, 71.5]})
    store.write(tmp_path, record(), log, frames={"telemetry": telemetry})
    (cell,) = store.load_cells(tmp_path)
    read = cell.frame("telemetry")
    assert read is not None
    pd.testing.assert_frame_equal(read, telemetry)
    assert cell.frame("kernels") is None
    (cell.directory / "telemetry.parquet").write_bytes(b"other")
    with pytest.raises(HarnessError, match=r"telemetry\.parquet was changed"):
        cell.frame("telemetry")


@pytest.mark.parametrize(
    ("version", "advice"), [(0, "measure them again"), (99, "they are newer, so update it")]
)
def test_cells_of_another_schema_are_left_out_and_that_is_said(
    tmp_path: Path,
    log: pd.DataFrame,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    version: int,
    advice: str,
) -> None:
    store.write(tmp_path, record("ours"), log)
    monkeypatch.setattr(store, "SCHEMA_VERSION", version)
    store.write(tmp_path, record("a"), log)
    store.write(tmp_path, record("b"), log)
    monkeypatch.undo()
    assert [cell.id for cell in store.load_cells(tmp_path)] == ["ours"]
    assert store.find_valid(tmp_path, "a") is None
    (line,) = caplog.messages
    assert f"2 cells of schema {version} are left out, this program reads 1: {advice}" in line


def test_a_damaged_cell_is_named(tmp_path: Path, log: pd.DataFrame) -> None:
    cell = store.write(tmp_path, record(), log)
    (cell.directory / "cell.json").write_text("{")
    with pytest.raises(HarnessError, match=r"abc/cell\.json is damaged"):
        store.load_cells(tmp_path)
    for text in ("[]", '{"schema_version": 1, "id": "abc"}'):
        (cell.directory / "cell.json").write_text(text)
        with pytest.raises(
            HarnessError, match=r"abc/cell\.json is damaged .*; remove it"
        ) as caught:
            store.load_cells(tmp_path)
        assert "\n" not in str(caught.value)


def test_no_results_are_no_cells(tmp_path: Path) -> None:
    assert store.load_cells(tmp_path / "nowhere") == []


def test_a_cell_that_two_shipped_folders_hold_counts_once(tmp_path: Path) -> None:
    for folder, cell_id in (("h200", "a"), ("h200-x2", "a"), ("h200-x4", "b"), ("other", "c")):
        store.write(tmp_path / folder, record(cell_id), store.frame([]))
    found = store.load_shipped(tmp_path)
    assert [cell.directory.parent.parent.name for cell in found] == ["h200-x2", "h200-x4"]
