"""Each table on made-up cells, with answers computed by hand."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from harness import paper
from harness.tables import registry
from harness.tables.entries import Kind
from harness.tables.sources import Sources
from harness.tables.table import Table
from tests.harness.analysis.made_up import MadeUpCell, cpu_cell, gpu_cell

K4 = (2048, 4096, 8192, 16384)
SYSTEMS = ("sglang_default", "sglang_cascade", "granikv")


def build(number: int, here: list[MadeUpCell], shipped: list[MadeUpCell] | None = None) -> Table:
    return registry.builders()[number](Sources.of(here, shipped or []))


def line(frame: pd.DataFrame, row: str, source: str, metric: str) -> pd.Series:
    found = frame[(frame["row"] == row) & (frame["source"] == source) & (frame["metric"] == metric)]
    assert len(found) == 1, (row, source, metric)
    return found.iloc[0]


def test_the_registry_finds_the_modules() -> None:
    assert set(registry.builders()) >= {1, 2, 3, 4, 21}


@pytest.mark.parametrize("number", registry.builders())
def test_a_table_knows_its_number(number: int) -> None:
    assert build(number, []).number == number


def test_table_1_has_every_symbol_and_each_profiles_m_sat() -> None:
    rows = {str(row["symbol"]): str(row["meaning"]) for row in build(1, []).rows}
    for symbol in ("L_p", "L_s", "L_out", "B", "d", "f_p", "M_eff", "H_kv", "n_q/kv", "TP"):
        assert symbol in rows
    assert "a100_40gb: 1,024" in rows["M_sat"]
    assert "cpu: 8" in rows["M_sat"]


def test_table_2_model_files_agree_with_the_paper() -> None:
    frame = build(2, []).frame()
    for config in paper.CONFIGS:
        for metric in ("tp", "n_q_per_kv", "kv_heads_per_rank"):
            printed = line(frame, config, "paper", metric)["printed"]
            assert printed == line(frame, config, "shape", metric)["printed"] != ""


def test_table_2_counts_valid_cells_and_names_other_models() -> None:
    here = [gpu_cell("granikv", 1.0), gpu_cell("granikv", 1.0, b=8, valid=False)]
    frame = build(2, [*here, cpu_cell("granikv", 1.0)], [gpu_cell("granikv", 1.0)]).frame()
    assert line(frame, paper.LLAMA_8B, "here", "cells")["printed"] == "1"
    assert line(frame, paper.LLAMA_8B, "shipped", "cells")["printed"] == "1"
    assert line(frame, "tiny/TP=1", "here", "cells")["printed"] == "1"
    assert line(frame, paper.QWEN_32B, "here", "cells")["missing"] != ""


def test_table_3_by_hand() -> None:
    speeds = {"sglang_default": 1000.0, "sglang_cascade": 1600.0, "granikv": 2000.0}
    here = [gpu_cell(system, speed) for system, speed in speeds.items()]
    shipped = [
        gpu_cell(system, speed * factor, repetition=run)
        for system, speed in speeds.items()
        for run, factor in enumerate((0.9, 1.0, 1.1))
    ]
    frame = build(3, here, shipped).frame()
    row = f"{paper.LLAMA_8B} | 16K | GraniKV"
    assert line(frame, row, "paper", "output_tok_s")["value"] == 2943
    assert line(frame, row, "paper", "ratio_to_sglang_default")["printed"] == "2.16×"
    assert line(frame, row, "here", "output_tok_s")["value"] == 2000
    assert line(frame, row, "here", "ratio_to_sglang_default")["value"] == pytest.approx(2.0)
    assert line(frame, row, "here", "ratio_to_sglang_cascade")["value"] == pytest.approx(1.25)
    ratio = line(frame, row, "shipped", "ratio_to_sglang_default")
    assert ratio["value"] == pytest.approx(2.0)
    assert ratio["runs"] == 3
    assert 2 * 0.9 / 1.1 <= ratio["low"] < 2.0 < ratio["high"] <= 2 * 1.1 / 0.9
    other = line(frame, f"{paper.QWEN_14B} | 16K | GraniKV", "here", "output_tok_s")
    assert math.isnan(other["value"])
    assert other["missing"].startswith("not measured here")


def test_table_3_has_three_models_lengths_and_systems() -> None:
    table = build(3, [])
    assert len(table.rows) == 36
    assert {str(row["l_p"]) for row in table.rows} == {"4K", "8K", "16K"}


def test_table_3_baselines_have_no_ratio_to_themselves() -> None:
    frame = build(3, []).frame()
    ratios = frame[frame["metric"].str.startswith("ratio") & (frame["source"] == "paper")]
    assert len(ratios) == 18
    assert ratios["row"].str.endswith("GraniKV").all()


def test_table_4_by_hand() -> None:
    speeds = dict(zip(SYSTEMS, (500.0, 480.0, 900.0), strict=True))
    here = [
        gpu_cell(system, speed, kind="multi_prefix", lengths=K4) for system, speed in speeds.items()
    ]
    frame = build(4, here).frame()
    got = {
        system: line(frame, f"4 | 2K/4K/8K/16K | {name}", "here", "ratio_to_sglang_default")[
            "value"
        ]
        for system, name in zip(
            SYSTEMS, ("SGLang default", "SGLang-Cascade", "GraniKV"), strict=True
        )
    }
    assert got == pytest.approx({"sglang_default": 1.0, "sglang_cascade": 0.96, "granikv": 1.8})
    row = "8 | ladder 1K–16K | GraniKV"
    assert line(frame, row, "paper", "ratio_to_sglang_default")["value"] == 1.82
    assert line(frame, row, "here", "ratio_to_sglang_default")["missing"] != ""


def test_table_21_by_hand() -> None:
    metrics = {
        "tpot_p50_ms": 38.04,
        "tpot_p99_ms": 49.0,
        "ttft_p50_s": 4.5,
        "ttft_scheduled_p50_s": 9.25,
    }
    here = [
        gpu_cell("granikv", 4000.0, kind="multi_prefix", lengths=K4, metrics=metrics),
        gpu_cell("sglang_default", 2500.0, kind="multi_prefix", lengths=K4),
    ]
    frame = build(21, here).frame()
    row = "full | 4 | 2K/4K/8K/16K | GraniKV"
    assert line(frame, row, "here", "ratio_to_sglang_default")["value"] == pytest.approx(1.6)
    for metric, value in metrics.items():
        assert line(frame, row, "here", metric)["value"] == value
    of_paper = row.replace("full", "148,400")
    assert line(frame, of_paper, "paper", "tpot_p99_ms")["printed"] == "49.4"
    assert frame[(frame["row"] == row) & (frame["source"] == "paper")].empty
    assert "not measured here" in line(frame, of_paper, "here", "tpot_p50_ms")["missing"]
    default = line(frame, row.replace("GraniKV", "SGLang default"), "here", "tpot_p50_ms")
    assert "has no tpot_p50_ms" in default["missing"]


CPU_CELLS = [
    cpu_cell(system, speed, kind=kind, lengths=lengths, metrics={"tpot_p50_ms": 5.0})
    for system, speed in zip(SYSTEMS, (100.0, 110.0, 120.0), strict=True)
    for kind, lengths in (("sharegpt", (128,)), ("multi_prefix", (64, 128, 256, 512)))
]


@pytest.mark.parametrize("number", registry.builders())
def test_a_cpu_cell_forms_no_ratio(number: int) -> None:
    table = build(number, CPU_CELLS)
    functional = [c for c in table.columns if "functional check" in c.group]
    assert all(column.kind is not Kind.RATIO for column in functional)
    frame = table.frame()
    here = frame[frame["source"] == "here"]
    assert not here["metric"].str.startswith("ratio").any()
    assert not here["printed"].str.contains("×").any()


@pytest.mark.parametrize("number", [3, 4, 21])
def test_a_cpu_cell_is_headed_and_noted_as_a_functional_check(number: int) -> None:
    table = build(number, CPU_CELLS)
    groups = {column.group for column in table.columns if column.source == "here"}
    assert groups == {"here (functional check, tiny model on the CPU)"}
    assert any("says nothing about speed" in note for note in table.notes)


def test_a_cpu_row_prints_both_lengths() -> None:
    labels = {str(row["l_p"]) for row in build(3, CPU_CELLS).rows}
    assert "4K (CPU: 128 tokens)" in labels
    assert "8K" in labels
    frame = build(3, CPU_CELLS).frame()
    row = f"{paper.LLAMA_8B} | 4K (CPU: 128 tokens) | GraniKV"
    assert line(frame, row, "here", "output_tok_s")["value"] == 120.0
    k4 = {
        str(row["l_p"])
        for row in build(21, CPU_CELLS).rows
        if row["k"] == "4" and row["budget"] == "148,400"
    }
    assert k4 == {"2K/4K/8K/16K (CPU: 64/128/256/512 tokens)"}


def test_a_cpu_cell_stands_in_the_rows_of_the_papers_budget_and_of_b_256() -> None:
    frame = build(21, CPU_CELLS).frame()
    full = line(frame, "full | 4 | 2K/4K/8K/16K | GraniKV", "here", "output_tok_s")
    assert "paper's budget" in full["missing"]
    grid = build(9, CPU_CELLS).frame()
    label = "4K (CPU: 128 tokens)"
    assert line(grid, f"{label} | 256 | GraniKV", "here", "output_tok_s")["value"] == 120.0
    assert "B = 256" in line(grid, "4K | 32 | GraniKV", "here", "output_tok_s")["missing"]


def test_a_cpu_cell_can_say_which_b_it_stands_for() -> None:
    load = {"kind": "poisson_capped", "permits": 4, "scale": 8}
    cell = cpu_cell("granikv", 7.0, lengths=(128,), b=4)
    scaled = MadeUpCell("scaled", dict(cell.config) | {"load": load}, cell.metrics)
    frame = build(9, [scaled]).frame()
    row = "4K (CPU: 128 tokens) | 32 | GraniKV"
    assert line(frame, row, "here", "output_tok_s")["value"] == 7.0


def test_a_gpu_cell_beside_the_cpu_keeps_its_ratio() -> None:
    gpu = [gpu_cell("granikv", 30.0), gpu_cell("sglang_default", 15.0)]
    frame = build(3, CPU_CELLS, gpu).frame()
    row = f"{paper.LLAMA_8B} | 16K | GraniKV"
    assert line(frame, row, "shipped", "ratio_to_sglang_default")["value"] == pytest.approx(2.0)


@pytest.mark.parametrize("number", list(registry.builders())[2:])
def test_every_dash_has_its_reason(number: int) -> None:
    for here in ([], CPU_CELLS, [gpu_cell("granikv", 1.0)]):
        frame = build(number, here).frame()
        dashes = frame[frame["printed"] == ""]
        assert len(dashes)
        assert (dashes["missing"] != "").all()
