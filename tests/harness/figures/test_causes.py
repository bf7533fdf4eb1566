"""The figure of causes draws the 2 × 2 and the ablations of one GPU."""

from __future__ import annotations

import pytest

from harness.analysis.statistics import Estimate
from harness.figures import causes
from harness.figures.drawing import NothingToDraw
from harness.tables.sources import CellSource, Sources
from tests.harness.analysis.made_up import MadeUpCell, cpu_cell
from tests.harness.campaign import K4, campaign, kernel, serving
from tests.harness.figures.drawn import bars, drawing, texts

KERNELS = [kernel(layout, read) for layout in ("HOT", "paged") for read in ("shared", "unshared")]
SERVED = [serving(s, "sharegpt", (16384,), 256) for s in ("sglang_default", "granikv")]
FOUR = [
    serving(s, "multi_prefix", K4, 256, k=4, budget=budget)
    for s in ("sglang_default", "sglang_cascade", "granikv")
    for budget in ("full", "paper")
]


def source(cells: list[MadeUpCell]) -> CellSource:
    return Sources.of([], cells).measured("")[0]


def one_prefix(l_p: int, interval: int, *systems: str, tok_s: float = 9_000.0) -> list[MadeUpCell]:
    """Cells of one length whose events held `interval` tokens each."""
    cells = [
        serving(s, "sharegpt", (l_p,), 256, engine={"stream_interval": interval}) for s in systems
    ]
    return [MadeUpCell(c.id, c.config, {"output_tok_s": tok_s}) for c in cells]


def gains(panel: causes.Panel) -> dict[str, float]:
    return {label: round(gain.value, 4) for label, gain in panel.gains.items()}


def test_the_kernel_s_two_causes() -> None:
    """Pages take twice a slab's time, and a read by each row five times a shared one."""
    (panel,) = causes.panels(source(KERNELS))
    assert gains(panel) == {
        "pages, each row reads": 1.0,
        "slab, each row reads": 2.0,
        "pages, read once": 5.0,
        "slab, read once": 10.0,
    }


def test_serving_is_compared_with_sglang_default() -> None:
    one, four = causes.panels(source([*SERVED, *FOUR]))
    assert gains(one) == {
        "SGLang default: pages, each row reads": 1.0,
        "GraniKV: dispatched each step": 2.0,
    }
    assert gains(four)["what the whole batch shares, once"] == 1.6


def test_what_fa3_gives_without_storage_has_a_bar_of_its_own() -> None:
    fa3 = serving("sglang_fa3", "multi_prefix", K4, 256, k=4)
    (four,) = causes.panels(source([*FOUR, fa3]))
    assert gains(four)["pages of one token, each row reads by FA3"] == 1.1


def test_one_prefix_is_shown_at_the_length_that_tells_most_causes_apart() -> None:
    """8K has three bars, 16K two, and a gain without what stands between tells no cause."""
    systems = ("sglang_default", "sglang_cascade", "granikv")
    at_8k = [serving(s, "sharegpt", (8192,), 256) for s in systems]
    (one,) = causes.panels(source([*SERVED, *at_8k]))
    assert one.title.startswith("Serving one prefix, L_p = 8K ")
    assert len(one.gains) == 3
    (longest,) = causes.panels(source([*SERVED, *at_8k[::2]]))
    assert longest.title.startswith("Serving one prefix, L_p = 16K ")


def test_tokens_in_groups_come_first_where_two_systems_with_storage_stand_there() -> None:
    """One by one, the front end sets the pace; but a single bar with storage tells no cause."""
    baselines = ("sglang_default", "sglang_cascade")
    at_8k = one_prefix(8192, 1, *baselines, "cascade_on_granikv", "granikv")
    few = one_prefix(16384, 8, *baselines, "granikv")
    (one,) = causes.panels(source([*at_8k, *few]))
    assert one.title == "Serving one prefix, L_p = 8K (tokens streamed one by one)"
    (one,) = causes.panels(source([*at_8k, *few, *one_prefix(16384, 8, "granikv_dense")]))
    assert one.title == "Serving one prefix, L_p = 16K (tokens streamed in groups of 8)"
    (one,) = causes.panels(source([*at_8k, *one_prefix(4096, 8, "sglang_default", "granikv")]))
    assert one.title.startswith("Serving one prefix, L_p = 8K ")


def test_bars_at_the_front_end_s_pace_are_said_to_be() -> None:
    for interval, tok_s, said in ((1, 12_000.0, True), (1, 9_000.0, False), (8, 12_000.0, False)):
        cells = one_prefix(8192, interval, "sglang_default", "granikv", tok_s=tok_s)
        caption = drawing("causes", shipped=cells).caption
        assert ("are those of SGLang's HTTP front end" in caption) is said


def test_the_caption_says_that_one_run_has_no_spread() -> None:
    caption = drawing("causes", shipped=SERVED).caption
    assert "one run" in caption


def test_the_first_bar_has_no_interval_and_no_text_leaves_its_panel() -> None:
    """A system over itself is 1 exactly."""
    runs = [
        MadeUpCell(
            f"{c.id}-{n}",
            c.config,
            dict(c.metrics) | {"kernel_wall_s": c.metrics["kernel_wall_s"] * (1 + 0.03 * n)},
        )
        for c in KERNELS
        for n in range(3)
    ]
    (kernels,) = drawing("causes", shipped=runs).figure.axes
    assert next(text.strip() for text in texts(kernels)) == "1×"
    assert len(kernels.collections) == 3
    edge = kernels.get_window_extent().x1
    assert all(text.get_window_extent().x1 <= edge for text in kernels.texts)


def test_one_bar_compares_nothing() -> None:
    assert causes.panels(source(SERVED[:1])) == []


def test_bars_labels_and_what_is_missing() -> None:
    shown = drawing("causes", shipped=[*KERNELS, *SERVED])
    kernels, one = shown.figure.axes
    assert [bar.get_width() for bar in bars(kernels)] == pytest.approx([1, 2, 5, 10])
    assert [label.get_text() for label in kernels.get_yticklabels()] == list(
        causes.KERNELS.values()
    )
    assert texts(one).count(" not measured") == len(causes.ONE_PREFIX) - len(SERVED)
    assert "  2.00×" in texts(one)
    assert kernels.get_xlim()[0] == one.get_xlim()[0] == 0
    assert "one H200" in shown.caption


def test_cells_from_here_come_first() -> None:
    assert "here" in drawing("causes", here=KERNELS, shipped=SERVED).caption


def test_an_interval_is_drawn() -> None:
    wide = [
        MadeUpCell(f"{c.id}-{n}", c.config, dict(c.metrics) | {"output_tok_s": 100.0 + n})
        for c in SERVED
        for n in range(3)
    ]
    (panel,) = causes.panels(source(wide))
    gain = panel.gains["GraniKV: dispatched each step"]
    assert isinstance(gain, Estimate)
    assert gain.low < gain.value < gain.high


def test_a_cpu_shows_no_cause() -> None:
    with pytest.raises(NothingToDraw, match="No GPU cell"):
        drawing("causes", here=[cpu_cell("granikv", 2.0), cpu_cell("sglang_default", 1.0)])


def test_the_campaign_fills_it() -> None:
    assert len(causes.panels(source(campaign()))) == 3
