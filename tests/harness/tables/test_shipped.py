"""A dash where a matching shipped cell exists fails the build; not by the code of the tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from harness import paper, store
from harness.analysis.cells import MODEL_CONFIGS, SYSTEMS, CellLike
from harness.tables import registry
from harness.tables.sources import Sources
from tests.harness.campaign import campaign

KINDS = {3: "sharegpt", 9: "sharegpt", 10: "sharegpt", 11: "sharegpt"} | dict.fromkeys(
    (6, 7, 8), "synthetic"
)
LADDER = {512, 1024, 2048, 4096, 8192, 16384}
GRID = {
    "sharegpt": (LADDER, {8, 32, 128, 256, 512, 1024}, {1}),
    "synthetic": (LADDER - {16384}, {8, 32, 128, 256}, {1}),
    "multi_prefix": ({8192}, {256}, {1, 4, 16, 64}),
}
"""(L_p, B, k) of the paper's tables by workload. Unequal prefixes: k = 4 and 8 at B = 256."""


def shipped() -> list[CellLike]:
    cells = list(store.load_shipped(paper.RESULTS))
    if not cells:
        pytest.skip("no cell is shipped yet")
    return list(cells)


def fits(cell: CellLike, config: str, system: str, kind: str, l_p: int, b: int) -> bool:
    """Whether a cell's raw configuration is the one that a printed number is of."""
    asked, workload = cell.config, cell.config["workload"]
    in_flight = asked.get("load", {}).get("permits") or workload.get("requests")
    return (
        cell.valid
        and workload["kind"] == kind
        and not asked.get("profile")
        and asked["system"]["name"] == system
        and MODEL_CONFIGS.get(asked["model"]["name"]) == config
        and config.endswith(f"/TP={asked['model']['tp']}")
        and workload.get("prefix_length") == l_p
        and in_flight == b
    )


def forgotten(cells: Sequence[CellLike]) -> Iterator[str]:
    """Rows with a dash though a cell fits the paper's number there."""
    sources = Sources.of([], cells)
    for number, kind in KINDS.items():
        frame = registry.builders()[number](sources).frame()
        empty = frame[(frame["source"] == "shipped") & (frame["missing"] != "")]
        dashes = empty.groupby("row")["metric"].agg(list)
        printed = paper.select(paper.table(number), metric="output_tok_s")
        for row in printed.to_dict("records"):
            l_p, b, system = int(row["l_p"]), int(row["b"]), str(row["system"])
            length = f"{l_p // 1024}K" if l_p >= 1024 else str(l_p)
            head = row["config"] if number == 3 else length
            middle = length if number == 3 else f"{b:,}"
            label = f"{head} | {middle} | {SYSTEMS[system]}"
            for metric in dashes.get(label, ()):
                # A ratio needs the other system's cell as well.
                needed = {system}
                if metric.startswith("ratio_to_"):
                    needed.add(metric.removeprefix("ratio_to_"))
                if all(
                    any(fits(cell, str(row["config"]), one, kind, l_p, b) for cell in cells)
                    for one in needed
                ):
                    yield f"table {number}: {label}, {metric}"


def test_no_shipped_cell_is_forgotten() -> None:
    assert list(forgotten(shipped())) == []


def test_no_made_up_cell_is_forgotten() -> None:
    cells = [cell for cell in campaign() if cell.config["system"]["name"] in SYSTEMS]
    serving = [cell for cell in cells if cell.config["workload"]["kind"] != "kernel"]
    assert any(fits(cell, paper.LLAMA_8B, "granikv", "sharegpt", 512, 8) for cell in serving)
    assert list(forgotten(serving)) == []


def test_a_forgotten_cell_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the matching broken, the dash at the cell's place is named."""
    monkeypatch.setattr("harness.tables.numbers.Point.matches", lambda self, at: False)
    cells = [
        cell
        for cell in campaign()
        if cell.id.startswith("granikv-sharegpt-512-b8-k1-llama31_8b-1-full")
    ]
    found = list(forgotten(cells))
    assert found[0] == "table 9: 512 | 8 | GraniKV, output_tok_s"
    assert all(line.startswith("table 9: 512 | 8 | GraniKV, ") for line in found)
    assert not any("ratio" in line for line in found)  # no other system was measured there


def place(cell: CellLike) -> tuple[object, ...] | None:
    """Where a serving cell stands by its raw configuration; None off the paper's grid."""
    asked, workload = cell.config, cell.config["workload"]
    kind, system, model = workload["kind"], asked["system"]["name"], asked["model"]
    config = MODEL_CONFIGS.get(model["name"], "")
    ours = system not in SYSTEMS or system == "cascade_on_granikv" or asked.get("profile")
    if kind not in GRID or ours or not cell.valid or not config.endswith(f"/TP={model['tp']}"):
        return None
    unequal = workload.get("prefix_lengths")
    lengths, bs, ks = ({None}, {256}, {4, 8}) if unequal else GRID[kind]
    k = len(unequal) if unequal else workload.get("prefix_count") or 1
    b = asked.get("load", {}).get("permits") or workload.get("requests")
    length = None if unequal else workload.get("prefix_length")
    if kind == "multi_prefix" and config != paper.LLAMA_8B:
        return None
    return (
        (system, config, kind, length, b, k)
        if {length} <= lengths and b in bs and k in ks
        else None
    )


def unseen(cells: Sequence[CellLike]) -> set[tuple[object, ...]]:
    """Places of the paper's tables that have valid cells of which no table shows any."""
    sources = Sources.of([], cells)
    frames = [build(sources).frame() for number, build in registry.builders().items() if number > 2]
    shown = {name for frame in frames for names in frame["cells"] for name in str(names).split()}
    places = {cell.id: found for cell in cells if (found := place(cell)) is not None}
    return set(places.values()) - {found for name, found in places.items() if name in shown}


def test_every_place_that_has_a_shipped_cell_shows_one() -> None:
    assert unseen(shipped()) == set()


def test_every_place_that_has_a_made_up_cell_shows_one() -> None:
    assert unseen(campaign()) == set()
    assert len({place(cell) for cell in campaign()} - {None}) > 400


def test_an_unseen_cell_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.tables.numbers.Point.matches", lambda self, at: False)
    wanted = "granikv-multi_prefix-8192-b256-k16-llama31_8b-1-full"
    cells = [cell for cell in campaign() if cell.id.startswith(wanted)]
    assert unseen(cells) == {("granikv", paper.LLAMA_8B, "multi_prefix", 8192, 256, 16)}
