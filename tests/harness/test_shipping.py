"""Cells as they are kept in the repository: smaller, and still checkable."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness import metrics, paper, shipping, store
from harness.__main__ import main
from harness.analysis.cells import POOL_NUMBERS, server_state
from harness.errors import HarnessError
from harness.reproduce import plan_all
from harness.telemetry.window import mean_clock_mhz
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
    again = metrics.compute(store.completed(shipping.without_token_times(cell.requests)))
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


def test_slabs_and_forks_stay_and_a_few_of_the_other_branches(tmp_path: Path) -> None:
    """Each request's own prompt and output; one whose output became a slab keeps its prompt."""

    def node(
        name: int, parent: int | None, children: int, base: int | None = None
    ) -> dict[str, Any]:
        return {"id": name, "parent": parent, "children": children, "base": base, "readers": 0}

    prompts = [node(10 + i, 2, 1) for i in range(300)]
    outputs = [node(1000 + i, 10 + i, 0, base=7 if i == 299 else None) for i in range(300)]
    tree = [node(1, None, 1, base=1), node(2, 1, 300), *prompts, *outputs]
    state = {"tree": tree, "tree_nodes": 602, "pools": dict.fromkeys(POOL_NUMBERS, 0)}
    write(tmp_path / "a", server={"state": state, "layout": None})
    (shipped,) = shipping.ship([tmp_path / "a"], tmp_path / "b")
    assert shipped.state is not None
    kept = [one["id"] for one in shipped.state["tree"]]
    some = range(shipping.OWN_BRANCHES)
    assert kept == [1, 2, *(10 + i for i in some), 309, *(1000 + i for i in some), 1299]
    assert shipped.state["tree_nodes"] == 602


def test_the_tree_that_is_drawn_stays_alone(tmp_path: Path) -> None:
    pools = dict.fromkeys(sorted(POOL_NUMBERS), 0)
    node = {"id": 1, "parent": None, "children": 0, "base": 1, "readers": 0}
    state = {"counters": {"steps": 3}, "pools": pools, "tree": [node], "tree_nodes": 1}
    flying = state | {"counters": {"steps": 5}, "tree": [node | {"readers": 2}]}
    cell = write(tmp_path / "a", server={"state": state, "layout": flying})
    (shipped,) = shipping.ship([tmp_path / "a"], tmp_path / "b")
    assert shipped.state == {"counters": {"steps": 3}, "pools": pools, "tree_nodes": 1}
    assert shipped.layout == {"pools": pools, "tree": [node | {"readers": 2}], "tree_nodes": 1}
    assert server_state(cell) == flying
    assert server_state(shipped) is shipped.layout


def test_a_log_without_token_times_says_when_its_first_chunks_came(tmp_path: Path) -> None:
    cell = write(tmp_path / "a")
    (shipped,) = shipping.ship([tmp_path / "a"], tmp_path / "b")
    assert list(shipped.requests) == list(store.REQUEST_COLUMNS)
    assert shipped.requests["chunk_s"].map(list).tolist() == [
        [times[0]] for times in cell.requests["chunk_s"]
    ]
    assert shipping.without_token_times(shipped.requests).equals(
        shipping.without_token_times(cell.requests)
    )


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


def test_no_cell_is_shipped_without_its_servers_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "a", server={"state": None, "layout": None, "log": "server-logs/gone.log.gz"})
    assert main(["ship", str(tmp_path / "a"), "--to", str(tmp_path / "b")]) == 2
    assert "gone.log.gz is missing" in capsys.readouterr().err
    assert store.load_cells(tmp_path / "b") == []


SHIPPED = store.load_shipped(paper.RESULTS)


@pytest.mark.skipif(not SHIPPED, reason="no cell is shipped yet")
def test_every_shipped_number_follows_from_its_requests() -> None:
    served = [cell for cell in SHIPPED if not cell.requests.empty]
    assert {cell.id: wrong for cell in served if (wrong := shipping.recomputed(cell))} == {}


@pytest.mark.skipif(not SHIPPED, reason="no cell is shipped yet")
def test_every_shipped_clock_follows_from_its_telemetry() -> None:
    read = {
        cell.id: (cell.metrics["sm_clock_mean_mhz"], mean_clock_mhz(rows))
        for cell in SHIPPED
        if (rows := cell.frame("telemetry")) is not None
    }
    assert len(read) > 100
    assert {name: pair for name, pair in read.items() if pair[0] != pair[1]} == {}


@pytest.mark.skipif(not SHIPPED, reason="no cell is shipped yet")
def test_the_server_logs_of_the_shipped_cells_are_shipped_and_no_others() -> None:
    for runs in {cell.directory.parent for cell in SHIPPED}:
        of_folder = [cell for cell in SHIPPED if cell.directory.parent == runs]
        named = {log for cell in of_folder if (log := cell.record["server"].get("log"))}
        assert {str(path.relative_to(runs)) for path in runs.glob("server-logs/*")} == named


@pytest.mark.skipif(not SHIPPED, reason="no cell is shipped yet")
@pytest.mark.parametrize("gpu", ["0", "3"])
def test_a_shipped_cell_is_the_cell_that_its_experiment_asks_for(
    gpu: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Else it would be measured again; which of equal GPUs it was measured on does not count."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", gpu)
    asked = ["h200_1_kernels", "table03 system=sglang_default repetition=0"]
    planned = plan_all("h200", ["hardware=h200", f"output={tmp_path}"], asked)
    shipped = {cell.id for cell in SHIPPED}
    assert [entry.title for entry in planned.entries if entry.id not in shipped] == []
