"""Cells as they are kept in the repository: smaller, and still checkable."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness import metrics, shipping, store
from harness.__main__ import main
from harness.errors import HarnessError
from tests.harness.test_metrics import request
from tests.harness.test_store import record


def write(root: Path, cell_id: str = "abc", valid: bool = True, **changes: Any) -> store.Cell:
    log = store.frame([request(i, [1.0 + i / 8 + t / 4 for t in range(40)]) for i in range(6)])
    known = record(cell_id, valid, **changes)
    known["metrics"] = metrics.compute(log)
    return store.write(root, known, log, {"traceback.txt": "why"}, {"telemetry": log[["index"]]})


def test_a_shipped_cell_says_what_it_said_and_its_requests_say_the_same(tmp_path: Path) -> None:
    cell = write(tmp_path / "a")
    (shipped,) = shipping.ship([tmp_path / "a"], tmp_path / "b")
    assert shipped.metrics == pytest.approx(cell.metrics, nan_ok=True)
    assert (shipped.id, shipped.valid, shipped.config) == (cell.id, cell.valid, cell.config)
    assert shipping.recomputed(shipped) == {}
    telemetry = shipped.frame("telemetry")
    assert telemetry is not None
    assert len(telemetry) == 6
    assert (shipped.directory / "traceback.txt").read_text() == "why"
    small, large = (
        path.directory.joinpath("requests.parquet").stat().st_size for path in (shipped, cell)
    )
    assert small < large


def test_what_needs_every_token_is_not_made_up(tmp_path: Path) -> None:
    """A log without token times gives none of these metrics, and no other one is lost."""
    cell = write(tmp_path)
    again = metrics.compute(shipping.without_token_times(cell.requests))
    known = {name for name, value in cell.metrics.items() if np.isfinite(value)}
    lost = {name for name in known if not np.isfinite(again[name])}
    assert lost == shipping.NEEDS_TOKENS


def test_a_number_that_its_requests_do_not_give_is_named(tmp_path: Path) -> None:
    cell = write(tmp_path / "a")
    (shipped,) = shipping.ship([tmp_path / "a"], tmp_path / "b")
    path = shipped.directory / "cell.json"
    told = json.loads(path.read_text())
    told["metrics"]["output_tok_s"] *= 1.01
    path.write_text(json.dumps(told))
    changed = store.read(shipped.directory)
    assert changed is not None
    true = cell.metrics["output_tok_s"]
    assert shipping.recomputed(changed) == {"output_tok_s": pytest.approx((true * 1.01, true))}


def test_a_valid_cell_stays_and_an_invalid_one_gives_way(tmp_path: Path) -> None:
    for root, name, valid in (("a", "one", False), ("a", "two", True), ("b", "one", True)):
        write(tmp_path / root, name, valid)
    target = tmp_path / "to"
    assert [c.id for c in shipping.ship([tmp_path / "a"], target)] == ["one", "two"]
    assert [c.id for c in shipping.ship([tmp_path / "a", tmp_path / "b"], target)] == ["one"]
    assert all(cell.valid for cell in store.load_cells(target))
    assert list(shipping.ship([tmp_path / "a", tmp_path / "b"], target)) == []


def test_slabs_and_shared_nodes_stay_and_a_few_of_the_own_ones(tmp_path: Path) -> None:
    node = {"parent": None, "p0": 0, "length": 1, "pool": "COLD", "readers": 0}
    shared = [
        {**node, "id": 1, "base": 7, "children": 1},
        {**node, "id": 2, "base": None, "children": 300},
    ]
    own = [{**node, "id": 3 + i, "base": None, "children": 0} for i in range(300)]
    slab = {**node, "id": 999, "base": 50, "children": 0}
    state = {"counters": {}, "tree": [*shared, *own, slab], "tree_nodes": 303}
    write(tmp_path / "a", server={"state": state, "layout": None})
    (shipped,) = shipping.ship([tmp_path / "a"], tmp_path / "b")
    assert shipped.state is not None
    kept = [one["id"] for one in shipped.state["tree"]]
    assert kept == [1, 2, *range(3, 3 + shipping.OWN_NODES), 999]
    assert shipped.state["tree_nodes"] == 303


def test_a_changed_table_is_not_shipped(tmp_path: Path) -> None:
    cell = write(tmp_path / "a")
    (cell.directory / "requests.parquet").write_bytes(b"other")
    with pytest.raises(HarnessError, match="was changed"):
        list(shipping.ship([tmp_path / "a"], tmp_path / "b"))
    assert store.load_cells(tmp_path / "b") == []


def test_the_command_takes_the_server_logs_along(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "a"
    kept = store.keep_log(root, "server-1", "a line")
    write(root, server={"state": None, "layout": None, "log": kept})
    assert main(["ship", str(root), "--to", str(tmp_path / "b")]) == 0
    assert "1 cells shipped" in capsys.readouterr().out
    assert store.runs(tmp_path / "b").joinpath(kept).is_file()


SHIPPED = store.load_cells(Path(__file__).resolve().parents[2] / "results" / "h200")


@pytest.mark.skipif(not SHIPPED, reason="no cell is shipped yet")
def test_every_shipped_number_follows_from_its_requests() -> None:
    served = [cell for cell in SHIPPED if not cell.requests.empty]
    assert {cell.id: wrong for cell in served if (wrong := shipping.recomputed(cell))} == {}
