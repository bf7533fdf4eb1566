"""The layout figure draws what a server reported, and nothing when none did."""

from __future__ import annotations

from typing import Any

import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from harness.analysis.cells import POOL_NUMBERS
from harness.figures import layout, style
from harness.figures.drawing import NothingToDraw
from harness.tables.sources import Sources
from tests.harness.analysis.made_up import MadeUpCell, cpu_cell, pools, tree_node

LENGTHS = (64, 128, 256)


def state(**pool_changes: Any) -> dict[str, Any]:
    """Three slabs at 1000, 1064 and 1192, each with three COLD suffixes."""
    tree, base = [], 1000
    for index, length in enumerate(LENGTHS, 1):
        tree.append(tree_node(index, None, 0, length, base, readers=index))
        tree += [tree_node(10 * index + i, index, length, 9 + i, None, 1) for i in range(3)]
        base += length
    return {"tree": tree, "pools": pools(1000, 600, 448, 90, 910) | pool_changes}


def cell(system: str = "granikv", **parts: Any) -> MadeUpCell:
    return cpu_cell(system, 1.0, kind="multi_prefix", lengths=LENGTHS, **parts)


def draw(*cells: MadeUpCell) -> tuple[Figure, str]:
    with style.styled():
        drawing = layout.draw(Sources.of(cells, []))
        drawing.figure.draw_without_rendering()
    return drawing.figure, drawing.caption


def boxes(axes: Axes, *, filled: bool = True) -> dict[tuple[float, float], str]:
    """(x, width) of each rectangle and its colour."""
    return {
        (patch.get_x(), patch.get_width()): to_hex(patch.get_facecolor())
        for patch in axes.patches
        if isinstance(patch, Rectangle) and (to_rgba(patch.get_facecolor())[3] > 0) is filled
    }


def test_slabs_stand_at_their_slots() -> None:
    hot, *_ = draw(cell(layout=state()))[0].axes
    assert set(boxes(hot)) == {(1000, 64), (1064, 128), (1192, 256)}
    assert hot.get_xlim() == (1000, 1600)
    assert "600 slots, 448 in slabs, 152 free" in hot.get_title("left")
    assert [text.get_text() for text in hot.texts] == ["A", "B", "C"]


def test_loans_are_drawn_hatched() -> None:
    loan = state(hot_donated=50, hot_donated_ranges=[[1500, 50]], hot_free=102)
    hot, *_ = draw(cell(layout=loan))[0].axes
    (hatched,) = [patch for patch in hot.patches if patch.get_hatch()]
    assert isinstance(hatched, Rectangle)
    assert (hatched.get_x(), hatched.get_width()) == (1500, 50)
    assert "50 on loan to COLD" in hot.get_title("left")


def test_cold_is_drawn_by_its_counts() -> None:
    _, cold, *_ = draw(cell(layout=state()))[0].axes
    assert boxes(cold) == {(0, 90): layout.COLD_COLOUR}
    assert cold.get_xlim() == (0, 1000)
    assert "1,000 slots (page size 1), 90 live, 910 free" in cold.get_title("left")
    assert "not positions" in cold.get_xlabel()


def test_the_tree_shows_each_nodes_pool() -> None:
    figure, _ = draw(cell(layout=state()))
    hot, _, tree, key = figure.axes
    colours = boxes(hot)
    bars = boxes(tree)
    for (base, length), colour in colours.items():
        assert bars[(0, length)] == colour, base
    assert {(length, 11): layout.COLD_COLOUR for length in LENGTHS}.items() <= bars.items()
    texts = [text.get_text() for text in tree.texts]
    assert texts.count("3 × COLD, 9–11 tokens") == 3
    assert "B  128 at slot 1,064, 2 readers" in [text.get_text() for text in key.texts]
    assert "A  64 at slot 1,000, 1 reader" in [text.get_text() for text in key.texts]
    assert tree.get_xlabel() == "token position in the prompt"


def test_texts_do_not_overlap() -> None:
    figure, _ = draw(cell(layout=state()))
    for axes in figure.axes:
        extents = [text.get_window_extent() for text in axes.texts]
        for index, one in enumerate(extents):
            assert not any(one.overlaps(other) for other in extents[index + 1 :])


def test_what_the_server_does_not_list_is_said() -> None:
    """A server lists so many nodes; COLD's count is of all of them."""
    _, _, tree, _ = draw(cell(layout=state() | {"tree_nodes": 1059}))[0].axes
    assert tree.get_xlabel() == "token position in the prompt (12 of 1,059 nodes listed)"


def test_what_hangs_below_branches_that_share_a_bar_is_said() -> None:
    """The key counts every slab: twelve suffixes of which ten are drawn need a word."""
    deep = state()
    for i in range(10):
        deep["tree"].append(tree_node(100 + i, 3, 256, 4, 1452 + 4 * i, 1))
    for i in range(2):
        deep["tree"].append(tree_node(200 + i, 100 + i, 260, 4, 1500 + 4 * i, 1))
    deep["tree"].append(tree_node(300, 30, 265, 2, None, 1))
    _, _, tree, key = draw(cell(layout=deep))[0].axes
    assert "12 slabs of suffixes" in [text.get_text() for text in key.texts]
    assert "10 × HOT, 4–8 tokens" in [text.get_text() for text in tree.texts]
    assert tree.get_xlabel().endswith(
        "\nNot drawn apart: 2 HOT and 1 COLD nodes below those that share a bar"
    )


def test_slivers_keep_their_colour() -> None:
    """Seventy suffixes in slabs are a few pixels wide: black edges would be all there is to see."""
    many = state()
    many["tree"] += [tree_node(100 + i, 3, 256, 4, 1452 + 4 * i, 1) for i in range(30)]
    hot, *_ = draw(cell(layout=many))[0].axes
    widths = {p.get_width(): p.get_linewidth() for p in hot.patches if isinstance(p, Rectangle)}
    assert widths[4] == 0
    assert widths[256] > 0


@pytest.mark.parametrize(
    ("lengths", "said"), [((16384,), "one prefix of 16K"), (LENGTHS, "3 prefixes of 64/128/256")]
)
def test_the_caption_names_the_prefixes(lengths: tuple[int, ...], said: str) -> None:
    one = cpu_cell("granikv", 1.0, kind="multi_prefix", lengths=lengths, layout=state())
    assert f", {said}. " in draw(one)[1]


def test_the_caption_names_the_cell_and_the_moment() -> None:
    assert "while requests were in flight" in draw(cell(layout=state()))[1]
    after = draw(cell(state=state()))[1]
    assert "after the load" in after
    assert cell().id in after
    assert "tiny model on the CPU" in after


def test_the_caption_says_what_was_in_flight_and_what_was_not() -> None:
    """Most slabs of suffixes are what requests that had ended left in the tree."""
    busy = state() | {"live_requests": 6}
    caption = draw(cell(layout=busy))[1]
    assert "while 6 requests were in flight" in caption
    assert "had no reader" not in caption
    busy["tree"].append(tree_node(50, 3, 256, 4, 1460, 0))
    assert (
        "1 of 4 slabs had no reader: what requests that had ended left"
        in draw(cell(layout=busy))[1]
    )


def test_four_prefixes_say_more_than_one_with_many_suffixes() -> None:
    many = state()
    many["tree"] += [tree_node(100 + i, 3, 256, 4, 1452 + 4 * i, 1) for i in range(30)]
    one = cpu_cell("granikv", 1.0, kind="synthetic", layout=many)
    four = cpu_cell("granikv", 1.0, kind="multi_prefix", lengths=(1, 2, 3, 4), layout=state())
    eight = cpu_cell("granikv", 1.0, kind="multi_prefix", lengths=range(1, 9), layout=many)
    assert layout.choose([one, eight, four])[0] is four
    assert layout.choose([one, eight])[0] is eight


def test_the_tree_under_load_is_preferred() -> None:
    empty = {"tree": [tree_node(1, None, 0, 7, None)], "pools": pools(1000, 600, 0, 7, 993)}
    hot, *_ = draw(cell(layout=state(), state=empty))[0].axes
    assert len(boxes(hot)) == 3


def test_the_richest_tree_is_chosen() -> None:
    poor = {"tree": [tree_node(1, None, 0, 64, 1000)], "pools": pools(1000, 600, 64, 0, 1000)}
    chosen, _ = layout.choose([cell("granikv_dense", layout=poor), cell(layout=state())])
    assert chosen.id == cell().id


@pytest.mark.parametrize("parts", [{}, {"state": {"counters": {}}}, {"state": {"tree": []}}])
def test_nothing_is_drawn_by_hand(parts: dict[str, Any]) -> None:
    with pytest.raises(NothingToDraw, match="No cell holds a server's tree"):
        layout.draw(Sources.of([cell(**parts)], []))


@pytest.mark.parametrize("missing", sorted(POOL_NUMBERS))
def test_a_state_without_one_number_of_its_pools_is_not_drawn(missing: str) -> None:
    known = state()
    del known["pools"][missing]
    with pytest.raises(NothingToDraw, match="whole pools"):
        layout.draw(Sources.of([cell(layout=known)], []))
    assert layout.choose([cell(layout=known, state=state())])[1] == state()


def test_shipped_cells_are_drawn_when_none_is_here() -> None:
    with style.styled():
        drawing = layout.draw(Sources.of([cell()], [cell("cascade_on_granikv", layout=state())]))
    assert "cpu-cascade_on_granikv" in drawing.caption
