"""The data that the explorers compute with."""

from __future__ import annotations

import pytest

from harness import paper
from harness.report import explorers, notes
from harness.tables.sources import Sources
from tests.harness.campaign import K4, kernel, serving
from tests.harness.report.some_cells import here, shipped


def test_profiles_are_those_of_conf() -> None:
    found = {one["name"]: one for one in explorers.profiles()}
    assert found["a100_40gb"]["m_sat"] == 1024
    assert (found["a100_40gb"]["peak"], found["a100_40gb"]["bandwidth"]) == (312, 1555)
    assert found["cpu"]["peak"] is None
    assert (found["a100_40gb"]["fitted"], found["h200"]["fitted"]) == (False, True)


def test_models_are_those_of_their_files() -> None:
    llama, _, large = explorers.models()
    assert (llama["q_heads"], llama["kv_heads"], llama["head_dim"]) == (32, 8, 128)
    assert (large["q_heads"], large["layers"], large["tp"]) == (40, 64, 4)


def test_layouts_of_the_paper_and_of_live_servers() -> None:
    found = explorers.layouts(Sources.of(here(), []))
    assert found[1]["lengths"] == [2048, 4096, 8192, 16384]
    assert sum(found[2]["lengths"]) == 53_248
    live = found[-1]
    assert live["label"].startswith("Live: multi_prefix 64/128/256/512")
    assert (live["slots"], live["hot_live"], live["f_p"]) == (15_616, 960, 0.5)


def test_live_servers_stand_by_length() -> None:
    cells = [serving("granikv", "sharegpt", (n,), 256) for n in (8192, 16384, 512, 1024)]
    four = serving("granikv", "multi_prefix", K4, 256, k=4)
    live = explorers.layouts(Sources.of([], [four, *cells]))[len(explorers.LAYOUTS) :]
    assert [one["lengths"] for one in live] == [[512], [1024], [8192], [16384], list(K4)]


def test_a_live_servers_invalid_cell_is_not_offered() -> None:
    assert len(explorers.layouts(Sources.of([], shipped()))) > len(explorers.LAYOUTS)
    only_invalid = [cell for cell in here() if not cell.valid]
    assert len(explorers.layouts(Sources.of(only_invalid, []))) == len(explorers.LAYOUTS)


def test_amdahl_terms_are_table_22s_with_the_kernel_gain_of_their_hardware() -> None:
    found = explorers.amdahl(Sources.of([], shipped()))
    assert [one["label"] for one in found[:3]] == [f"{name}, paper" for name in paper.CONFIGS]
    assert found[0] == {
        "label": "Llama-3.1-8B/TP=1, paper",
        "alpha": pytest.approx(0.601),
        "beta": 0.0,
        "gamma": pytest.approx(0.056),
        "s": 15.6,
        "measured": 2.16,
    }
    assert found[3]["label"] == "Llama-3.1-8B/TP=1, shipped (one H200)"
    assert found[3]["s"] == pytest.approx(10.0)
    assert found[3]["measured"] == pytest.approx(2.0)


def test_the_papers_kernels_are_placed_under_the_papers_roofs() -> None:
    paged, hot = explorers.roofline(Sources.of([], []))
    assert (paged["profile"], paged["intensity"], hot["tflops"]) == ("a100_40gb", 3.99, 75.5)
    assert paged["by"] == hot["by"] == "the paper (Table 23)"
    *_, measured = explorers.roofline(Sources.of([], [kernel("HOT", "shared", counted=True)]))
    assert (measured["profile"], measured["by"]) == ("h200", "this project's cells")


def test_notes_carry_what_is_recomputed() -> None:
    found = {row.id: row for row in notes.rows()}
    assert len(found) == len(paper.notes())
    numbers = dict(found["short-prefix-regression"].numbers)
    assert numbers["sharegpt below default"] == "62"
    assert numbers["worst"].startswith("0.66") or numbers["worst"].startswith("0.67")
