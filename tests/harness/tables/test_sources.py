"""Which cells a row takes, and what it says where there are none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from harness import paper
from harness.analysis.cells import CellLike, Standing, standing
from harness.tables.entries import Blank, Measured, Missing, Printed
from harness.tables.metrics import OUTPUT, TO_CASCADE, TO_DEFAULT, TPOT_P99
from harness.tables.numbers import Point
from harness.tables.printed import PaperSource
from harness.tables.sources import CellSource, Sources
from tests.harness.analysis.made_up import MadeUpCell, cpu_cell, gpu_cell

ROW = Point(paper.LLAMA_8B, "granikv", "sharegpt", 256, 16384)


def here(*cells: MadeUpCell) -> CellSource:
    (source,) = [s for s in Sources.of(cells, ()).measured("run it") if s.key == "here"]
    return source


def changed(cell: MadeUpCell, name: str, **config: Any) -> MadeUpCell:
    return MadeUpCell(name, dict(cell.config) | config, cell.metrics)


def value(entry: object) -> float:
    assert isinstance(entry, Measured)
    return entry.estimate.value


def test_the_paper_reads_as_printed() -> None:
    assert PaperSource(3).entry(ROW, OUTPUT) == Printed("2943")
    assert PaperSource(3).entry(ROW, TO_DEFAULT) == Printed("2.16")
    assert PaperSource(3).entry(ROW, TO_CASCADE) == Printed("1.05")
    assert PaperSource(3).entry(ROW, TPOT_P99) == Blank()


def test_repetitions_are_averaged() -> None:
    source = here(*(gpu_cell("granikv", v, repetition=i) for i, v in enumerate((90, 100, 110))))
    entry = source.entry(ROW, OUTPUT)
    assert isinstance(entry, Measured)
    assert (entry.estimate.value, entry.estimate.runs) == (100.0, 3)
    assert len(entry.cells) == 3


def test_a_ratio_is_of_means_and_names_all_its_cells() -> None:
    cells = [gpu_cell("granikv", 300.0), gpu_cell("granikv", 500.0, repetition=1)]
    entry = here(*cells, gpu_cell("sglang_default", 200.0)).entry(ROW, TO_DEFAULT)
    assert value(entry) == pytest.approx(2.0)
    assert isinstance(entry, Measured)
    assert len(entry.cells) == 3


@pytest.mark.parametrize(
    "other",
    [
        gpu_cell("granikv", 5.0, lengths=(8192,)),
        gpu_cell("granikv", 5.0, b=128),
        gpu_cell("granikv", 5.0, kind="multi_prefix"),
        gpu_cell("granikv", 5.0, model={"name": "qwen25_14b", "tp": 2}),
        gpu_cell("granikv", 5.0, lengths=(16384, 16384)),
        gpu_cell("granikv_dense", 5.0),
    ],
)
def test_another_place_is_not_taken(other: MadeUpCell) -> None:
    assert here(other).entry(ROW, OUTPUT) == Missing("not measured here: run it")


def test_reasons_of_a_dash() -> None:
    invalid = gpu_cell("granikv", 5.0, valid=False, reasons=("one reply short", "lag"))
    assert here(invalid).entry(ROW, OUTPUT) == Missing(
        f"cell {invalid.id} is not valid: one reply short; lag"
    )
    silent = gpu_cell("granikv", 5.0)
    assert here(silent).entry(ROW, TPOT_P99) == Missing(f"cell {silent.id} has no tpot_p99_ms")
    assert here(silent).entry(ROW, TO_DEFAULT) == Missing("not measured here: run it")
    stopped = gpu_cell("sglang_default", 0.0)
    reason = here(silent, stopped).entry(ROW, TO_DEFAULT)
    assert isinstance(reason, Missing)
    assert "no ratio" in reason.reason


def test_invalid_runs_are_left_out_of_the_mean() -> None:
    source = here(gpu_cell("granikv", 5.0, valid=False), gpu_cell("granikv", 100.0, repetition=1))
    assert value(source.entry(ROW, OUTPUT)) == 100.0


def test_other_settings_are_never_averaged_in() -> None:
    usual = [gpu_cell("granikv", 100.0, repetition=i) for i in range(2)]
    paper_budget = changed(gpu_cell("granikv", 900.0), "z", kv_budget="paper")
    on_share = changed(gpu_cell("granikv", 900.0), "y", storage={"admission": "on_share"})
    assert value(here(*usual, paper_budget, on_share).entry(ROW, OUTPUT)) == 100.0


def test_all_systems_of_a_row_are_in_one_setting() -> None:
    """The baseline has more cells with the paper's budget; GraniKV's of that budget are shown."""
    granikv = [gpu_cell("granikv", 100.0), gpu_cell("granikv", 110.0, repetition=1)]
    small = changed(gpu_cell("granikv", 50.0), "a", kv_budget="paper")
    base = [
        changed(gpu_cell("sglang_default", 25.0, repetition=i), f"b{i}", kv_budget="paper")
        for i in range(3)
    ]
    source = here(*granikv, small, *base)
    assert value(source.entry(ROW, OUTPUT)) == 50.0
    assert value(source.entry(ROW, TO_DEFAULT)) == 2.0


def test_a_cpu_cell_stands_in_the_first_models_rows_only() -> None:
    source = here(cpu_cell("granikv", 7.0, lengths=(512,)))
    assert source.functional
    assert value(source.entry(ROW, OUTPUT)) == 7.0
    place = source.place(Point(paper.LLAMA_8B, "sglang_default", "sharegpt", 256, 16384))
    assert place is not None
    assert (place.prefix_lengths, place.b) == ((512,), 8)
    qwen = Point(paper.QWEN_14B, "granikv", "sharegpt", 256, 16384)
    entry = source.entry(qwen, OUTPUT)
    assert isinstance(entry, Missing)
    assert "tiny model" in entry.reason
    assert source.entry(Point(paper.LLAMA_8B, "granikv", "sharegpt", 256, 8192), OUTPUT) == Missing(
        "not measured here: run it"
    )


def test_unequal_prefixes_match_by_their_number() -> None:
    point = Point(paper.LLAMA_8B, "granikv", "multi_prefix", 256, None, 4)
    unequal = gpu_cell("granikv", 5.0, kind="multi_prefix", lengths=(1, 2, 3, 4))
    equal = gpu_cell("granikv", 9.0, kind="multi_prefix", lengths=(8, 8, 8, 8))
    assert value(here(unequal, equal).entry(point, OUTPUT)) == 5.0


def test_each_hardware_is_its_own_source() -> None:
    cells = (gpu_cell("granikv", 5.0), cpu_cell("granikv", 7.0))
    shipped, *here_sources = Sources.of(cells, ()).measured("run it")
    assert [s.key for s in here_sources] == ["here-cpu", "here-h200"]
    assert [s.functional for s in here_sources] == [True, False]
    assert here_sources[0].heading == "here (functional check, tiny model on the CPU)"
    assert here_sources[1].heading == "here (one H200)"
    assert shipped.cells == ()
    assert shipped.entry(ROW, OUTPUT) == Missing("no shipped cell: not measured yet")


def test_each_cell_is_placed_once_for_all_tables_and_figures(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    placed: list[str] = []

    def counted(cell: CellLike) -> Standing:
        placed.append(cell.id)
        return standing(cell)

    monkeypatch.setattr("harness.tables.sources.standing", counted)
    mine, theirs = gpu_cell("granikv", 5.0), gpu_cell("sglang_default", 7.0)
    both = Sources.of([mine], [theirs])
    for command in ("one", "another"):
        shipped, measured_here = both.measured(command)
        assert value(measured_here.entry(ROW, OUTPUT)) == 5.0
        assert value(shipped.entry(replace(ROW, system="sglang_default"), OUTPUT)) == 7.0
        absent = measured_here.entry(replace(ROW, b=8), OUTPUT)
        assert absent == Missing(f"not measured here: {command}")
    assert sorted(placed) == sorted([mine.id, theirs.id])
