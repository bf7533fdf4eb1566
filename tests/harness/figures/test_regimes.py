"""The regime map holds every ratio of Tables 9 to 11 at its place."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from harness import paper
from harness.analysis.cells import EQ_2, FITTED
from harness.figures import regimes
from harness.tables.grid import SHAREGPT_B, SHAREGPT_LENGTHS
from harness.tables.sources import Sources
from tests.harness.analysis.made_up import MadeUpCell, cpu_cell
from tests.harness.campaign import serving
from tests.harness.figures.drawn import drawing, drawn_axes, texts

CELLS = [
    serving(system, "sharegpt", (16384,), b)
    for system in ("sglang_default", "sglang_cascade", "granikv")
    for b in (8, 256)
]


def test_the_papers_ratios_stand_in_rows_of_l_p_and_columns_of_b() -> None:
    maps = regimes.paper_maps()
    assert [(one.config, one.baseline) for one in maps[:3]] == [
        (config, "SGLang default") for config in paper.CONFIGS
    ]
    llama = maps[0].ratios
    assert llama.shape == (len(SHAREGPT_LENGTHS), len(SHAREGPT_B))
    assert llama[0, 0] == pytest.approx(531 / 586)
    assert llama[-1, SHAREGPT_B.index(256)] == pytest.approx(2943 / 1362)
    assert maps[5].ratios[-1, -1] == pytest.approx(2685 / 2774)
    assert not np.isnan(llama).any()


def test_the_threshold_is_where_m_eff_reaches_m_sat() -> None:
    llama, qwen = regimes.paper_maps()[:2]
    assert SHAREGPT_B[llama.threshold or 0] == 256  # 256 · 4 = 1,024
    assert SHAREGPT_B[qwen.threshold or 0] == 256  # 128 · 5 = 640


def test_measured_ratios_and_gaps() -> None:
    to_default, to_cascade = regimes.measured_maps(Sources.of([], CELLS))
    assert to_default.origin == "shipped (one H200)"
    assert to_default.ratios[-1, SHAREGPT_B.index(256)] == pytest.approx(2.0)
    assert to_cascade.ratios[-1, 0] == pytest.approx(1.25)
    assert np.isfinite(to_default.ratios).sum() == 2


def chosen_by(rule: str) -> list[MadeUpCell]:
    return [
        replace(cell, state=dict(cell.state or {}) | {"backends": {"rule": rule}}) for cell in CELLS
    ]


def test_the_threshold_belongs_to_servers_that_chose_by_it() -> None:
    (by_eq_2, _) = regimes.measured_maps(Sources.of([], chosen_by(f"{EQ_2}512, else cascade")))
    assert SHAREGPT_B[by_eq_2.threshold or 0] == 128  # M_sat = 512 there
    for rule in (f"{FITTED}paged, cascade, dense", ""):
        assert {
            one.threshold for one in regimes.measured_maps(Sources.of([], chosen_by(rule)))
        } == {None}


def test_measured_cells_have_a_map_over_what_a_user_of_the_gpu_has_today() -> None:
    fa3 = [serving(system, "sharegpt", (1024,), 256) for system in ("sglang_fa3", "granikv")]
    (one,) = regimes.measured_maps(Sources.of([], fa3))
    assert one.baseline == "SGLang with FA3"
    assert one.ratios[SHAREGPT_LENGTHS.index(1024), SHAREGPT_B.index(256)] == pytest.approx(2 / 1.1)
    assert {found.baseline for found in regimes.paper_maps()} == {
        "SGLang default",
        "SGLang-Cascade",
    }


def test_a_cpu_cell_is_on_no_map() -> None:
    cells = [cpu_cell(s, 1.0) for s in ("sglang_default", "granikv")]
    assert regimes.measured_maps(Sources.of(cells, [])) == []


def test_the_drawing_prints_the_ratios_and_marks_those_below_one() -> None:
    shown = drawing("regimes", shipped=CELLS)
    panels = drawn_axes(shown.figure)
    llama = panels[0]
    assert llama.get_title("left") == paper.LLAMA_8B
    printed = [text for text in llama.texts if text.get_fontweight() == "bold"]
    assert "0.79" in [text.get_text() for text in printed]
    assert "2.16" in texts(llama)
    assert "2.16" not in [text.get_text() for text in printed]
    # Two rows for the paper, two for the shipped cells (of one model), and the colour bar.
    assert len(panels) == 2 * 3 + 2 * 1 + 1
    measured = panels[6]
    assert texts(measured).count("2.00") == 2
    assert texts(measured).count("–") == 34
    assert "62 of 108 cells are below" in shown.caption


def test_a_ratio_of_one_run_is_told_from_one_with_an_interval() -> None:
    again = [
        serving(system, "sharegpt", (16384,), 256, repetition=1)
        for system in ("sglang_default", "granikv")
    ]
    shown = drawing("regimes", shipped=[*CELLS, *again])
    italic = [
        text for text in drawn_axes(shown.figure)[6].texts if text.get_fontstyle() != "normal"
    ]
    assert [(text.get_text(), text.get_position()) for text in italic] == [("2.00", (0, 5))]
    assert "italic: one run" in shown.caption


@pytest.mark.parametrize(
    ("tok_s", "high", "ticks"),
    [
        (100.0, 2.4, [0.6, 0.8, 1.0, 1.5, 2.0, 2.4]),
        (215.0, 4.4, [0.6, 0.8, 1.0, 1.5, 2.0, 3.0, 4.0, 4.4]),
        (1000.0, 20.4, [0.6, 0.8, 1.0, 4.0, 8.0, 12.0, 16.0, 20.4]),
    ],
)
def test_the_scale_reaches_to_the_highest_ratio(
    tok_s: float, high: float, ticks: list[float]
) -> None:
    """The paper's ratios end at 2.21; a GPU's 4.33 in the colour of 2.4 would be a wrong number."""
    far = MadeUpCell(CELLS[-1].id, CELLS[-1].config, {"output_tok_s": tok_s})
    maps = regimes.measured_maps(Sources.of([], [*CELLS[:-1], far]))
    norm = regimes.scale(regimes.rows([*regimes.paper_maps(), *maps]))
    assert (norm.vmin, norm.vmax) == (0.6, high)
    assert regimes.ticks(norm) == ticks


def test_without_cells_it_says_so() -> None:
    assert "No GPU cell yet" in drawing("regimes").caption


def test_labels_of_b_stand_apart() -> None:
    for axes in drawn_axes(drawing("regimes", shipped=CELLS).figure)[:-1]:
        places = [label.get_window_extent() for label in axes.get_xticklabels()]
        digit = places[0].width  # "8"
        for left, right in pairwise(places):
            assert right.x0 - left.x1 > digit


def test_the_caption_says_how_tokens_were_streamed() -> None:
    """SGLang's own rate counts too: a ratio has two sides."""
    engine = {"stream_interval": 1}
    both = [
        serving(system, "sharegpt", (1024,), 256, engine=engine)
        for system in ("sglang_default", "granikv")
    ]
    fast = MadeUpCell(both[0].id, both[0].config, {"output_tok_s": 10_700.0})
    assert "one by one, so that rates" in drawing("regimes", shipped=[fast, both[1]]).caption
    assert "streamed" not in drawing("regimes", shipped=both).caption
