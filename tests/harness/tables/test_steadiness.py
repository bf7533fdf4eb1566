"""The warning about runs that deviate by more than ten percent."""

from __future__ import annotations

import pytest

from harness.tables import registry
from harness.tables.sources import Sources
from harness.tables.table import Table
from tests.harness.analysis.made_up import MadeUpCell, cpu_cell, gpu_cell


def table3(cells: list[MadeUpCell]) -> Table:
    return registry.builders()[3](Sources.of(cells, ()))


def warnings(table: Table) -> list[str]:
    return [note for note in table.notes if "deviate" in note]


def runs(system: str, speeds: list[float], length: int = 4096) -> list[MadeUpCell]:
    return [
        gpu_cell(system, speed, lengths=(length,), repetition=index)
        for index, speed in enumerate(speeds)
    ]


def test_steady_runs_need_no_warning() -> None:
    assert warnings(table3(runs("granikv", [1000.0, 1050.0, 950.0]))) == []


def test_the_worst_of_the_unsteady_runs_is_named() -> None:
    cells = runs("granikv", [1000.0, 1300.0, 700.0]) + runs("sglang_default", [1000.0, 800.0])
    (note,) = warnings(table3(cells))
    assert note.startswith("here (one H200): runs deviate by more than 10%")
    assert "in 2 numbers, most at Llama-3.1-8B/TP=1, 4K, GraniKV" in note
    assert note.endswith(": 30%.")


def test_a_cpu_cell_is_no_measure_of_speed_and_gets_no_warning() -> None:
    cells = [
        cpu_cell("granikv", speed, lengths=(128,), repetition=index)
        for index, speed in enumerate([10.0, 20.0, 40.0])
    ]
    assert warnings(table3(cells)) == []


def test_a_ratio_in_a_table_is_resampled_by_rounds() -> None:
    speeds = {"sglang_default": [300.0, 250.0, 200.0], "granikv": [330.0, 275.0, 220.0]}
    cells = [
        gpu_cell(
            system,
            speed,
            lengths=(4096,),
            repetition=index,
            record={"started": f"2026-01-01T00:{10 * index + place:02}:00+00:00"},
        )
        for place, (system, values) in enumerate(speeds.items())
        for index, speed in enumerate(values)
    ]
    frame = table3(cells).frame()
    found = frame[
        (frame["source"] == "here")
        & (frame["metric"] == "ratio_to_sglang_default")
        & frame["value"].notna()
    ]
    (row,) = found.to_dict("records")
    assert [row["low"], row["value"], row["high"]] == pytest.approx([1.1, 1.1, 1.1])


def test_one_unsteady_number_is_one_number() -> None:
    (note,) = warnings(table3(runs("granikv", [1000.0, 1300.0, 700.0])))
    assert "in one number, most at" in note
