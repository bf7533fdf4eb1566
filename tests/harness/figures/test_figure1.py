"""Figure 1 draws the roofs and both layouts where the numbers put them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from harness.analysis.roofline import Ceilings
from harness.figures import figure1, style
from harness.tables.sources import Sources
from tests.harness.analysis.made_up import H200, MadeUpCell, cpu_cell

ROOFS = Ceilings("h200", "one H200", 800.0, 4000.0)


@pytest.fixture(autouse=True)
def one_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the paper's device and one more, whatever profiles the project ships."""
    monkeypatch.setattr(figure1, "other_ceilings", lambda: {"h200": ROOFS})


SHAPE: dict[str, Any] = {
    "rows": 256,
    "prefix_length": 8192,
    "q_heads": 32,
    "kv_heads": 8,
    "head_dim": 128,
}


def kernel_cell(
    layout: str, dram_bytes: float, *, name: str = "h200", repetition: int = 0, **workload: object
) -> MadeUpCell:
    config = {
        "workload": {"kind": "kernel", "layout": layout} | workload,
        "hardware": dict(H200, name=name),
        "system": {"name": "kernel"},
    }
    metrics = {"kernel_flop": 34.4e9, "kernel_dram_bytes": dram_bytes, "kernel_wall_s": 100e-6}
    read = workload.get("read", "")
    return MadeUpCell(f"{layout}-{read}-{name}-{repetition}", config, metrics)


def axes_of(*cells: MadeUpCell) -> tuple[Axes, str]:
    with style.styled():
        drawing = figure1.draw(Sources.of(cells, []))
    (axes,) = drawing.figure.axes
    return axes, drawing.caption


def labelled(axes: Axes) -> dict[str, Line2D]:
    return {str(line.get_label()): line for line in axes.get_lines() if not _hidden(line)}


def _hidden(line: Line2D) -> bool:
    return str(line.get_label()).startswith("_")


def points(axes: Axes) -> dict[str, tuple[float, float]]:
    return {
        label: (float(np.asarray(line.get_xdata())[0]), float(np.asarray(line.get_ydata())[0]))
        for label, line in labelled(axes).items()
        if line.get_marker() not in ("None", None, "")
    }


def test_the_papers_points() -> None:
    axes, _ = axes_of()
    assert points(axes) == {
        "paged: every row reads the prefix (paper)": (3.99, 4.91),
        "HOT slab: read once (paper)": (936.0, 75.5),
    }


def test_the_roofs_bend_at_the_ridge() -> None:
    axes, _ = axes_of()
    roof = labelled(axes)["A100 40 GB, paper (312 TFLOP/s, 1,555 GB/s)"]
    x, y = np.asarray(roof.get_xdata()), np.asarray(roof.get_ydata())
    assert x[1] == pytest.approx(312e3 / 1555)
    assert list(y) == pytest.approx([1.555, 312.0, 312.0])
    other = labelled(axes)["one H200, hardware profile (800 TFLOP/s, 4,000 GB/s)"]
    assert list(np.asarray(other.get_ydata())) == pytest.approx([4.0, 800.0, 800.0])


def test_both_axes_are_logarithmic_and_have_units() -> None:
    axes, _ = axes_of()
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert "FLOP per DRAM byte" in axes.get_xlabel()
    assert "TFLOP/s" in axes.get_ylabel()


def test_the_points_are_annotated_with_their_share_of_the_roof() -> None:
    axes, _ = axes_of()
    texts = [text.get_text() for text in axes.texts]
    assert any("79% of the memory roof" in text for text in texts)
    assert any("24% of the matrix peak" in text for text in texts)
    assert any("201 FLOP/byte" in text for text in texts)


def test_without_counters_it_says_that_only_the_paper_is_placed() -> None:
    _, caption = axes_of(cpu_cell("granikv", 1.0))
    assert "no kernel counters measured here yet" in caption
    assert "235×" in caption
    assert "15.4×" in caption


def test_measured_kernels_are_placed_by_their_counters() -> None:
    axes, caption = axes_of(kernel_cell("HOT", 34.4e6), kernel_cell("paged", 8.6e9))
    assert points(axes)["HOT slab: read once (one H200)"] == pytest.approx((1000.0, 344.0))
    assert points(axes)["paged: every row reads the prefix (one H200)"] == pytest.approx(
        (4.0, 344.0)
    )
    assert "Hollow" in caption


def test_a_kernel_on_hardware_without_roofs_is_not_placed() -> None:
    axes, _ = axes_of(kernel_cell("HOT", 34.4e6, name="unknown"))
    assert len(points(axes)) == 2


def test_texts_do_not_overlap() -> None:
    with style.styled():
        figure = figure1.draw(Sources.of([], [])).figure
        figure.draw_without_rendering()
        (axes,) = figure.axes
        boxes = [text.get_window_extent() for text in axes.texts]
    for index, one in enumerate(boxes):
        assert not any(one.overlaps(other) for other in boxes[index + 1 :])


def test_layout_and_reading_are_told_apart() -> None:
    axes, _ = axes_of(
        kernel_cell("HOT", 200e6, read="unshared"),
        kernel_cell("paged", 200e6, read="unshared"),
        kernel_cell("HOT", 36e6, read="shared"),
        kernel_cell("paged", 36e6, read="shared"),
    )
    found = {
        label.removesuffix(" (one H200)")
        for label in points(axes)
        if "one H200)" in label and "profile" not in label
    }
    assert found == {
        "HOT slab: every row reads the prefix",
        "paged: every row reads the prefix",
        "HOT slab: read once",
        "paged: read once",
    }
    looks = {
        (line.get_marker(), str(line.get_markeredgecolor()))
        for label, line in labelled(axes).items()
        if "one H200)" in label
        and "profile" not in label
        and line.get_marker() not in ("None", None, "")
    }
    assert len(looks) == 4


def test_repetitions_have_one_line_in_the_legend() -> None:
    cells = [kernel_cell("HOT", 34.4e6 + n, repetition=n) for n in range(3)]
    with style.styled():
        (legend,) = figure1.draw(Sources.of(cells, [])).figure.legends
    texts = [text.get_text() for text in legend.get_texts()]
    assert texts.count("HOT slab: read once (one H200)") == 1
    assert len(texts) == len(set(texts))


def test_the_caption_says_where_caches_served_the_reads() -> None:
    """By the byte model 8.6 GB; a GPU whose L2 holds the prefix reads far less from DRAM."""
    _, caption = axes_of(kernel_cell("paged", 200e6, read="unshared", **SHAPE))
    assert "43× fewer bytes" in caption
    _, caption = axes_of(kernel_cell("paged", 8.6e9, read="unshared", **SHAPE))
    assert "fewer" not in caption


def test_no_text_covers_a_measured_point() -> None:
    cells = [kernel_cell(layout, 200e6, read="unshared") for layout in ("HOT", "paged")]
    with style.styled():
        figure = figure1.draw(Sources.of(cells, [])).figure
        figure.draw_without_rendering()
        (axes,) = figure.axes
        boxes = [text.get_window_extent() for text in axes.texts]
        # 25 TFLOP/s is where both kernels of an H200 are; a mark is 9 points wide.
        x, y = axes.transData.transform((172.0, 25.0))
        reach = 6 * figure.dpi / 72
    for box in boxes:
        assert not (box.x0 - reach < x < box.x1 + reach and box.y0 - reach < y < box.y1 + reach)
