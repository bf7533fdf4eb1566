"""The occupancy figure draws the pools that cells hold."""

from __future__ import annotations

import pytest

from harness.figures import occupancy
from harness.figures.drawing import NothingToDraw
from tests.harness.analysis.made_up import MadeUpCell, cpu_cell, pools
from tests.harness.campaign import K4, serving
from tests.harness.figures.drawn import bars, drawing, ends, texts


def cell(system: str = "granikv", **parts: object) -> MadeUpCell:
    after = {"pools": pools(1, 400, 100, 50, 550)}
    base = serving(system, "multi_prefix", K4, 256, k=4)
    values = {"state": after, "layout": None, "valid": True} | parts
    return MadeUpCell(base.id, base.config, base.metrics, **values)  # type: ignore[arg-type]


def test_shares_are_of_all_slots() -> None:
    (group,) = occupancy.groups([cell()])
    (after,) = group.snapshots
    assert (after.moment, after.slots) == ("after", 1000)
    assert after.shares == {
        "hot_live": 10.0,
        "hot_free": 30.0,
        "hot_donated": 0.0,
        "cold_live": 5.0,
        "cold_free": 55.0,
    }
    assert group.label == "multi_prefix 2K/4K/8K/16K\none H200, f_p = 0.2, full KV tokens"


def test_in_flight_stands_before_after() -> None:
    busy = {"pools": pools(1, 400, 400, 600, 0)}
    (group,) = occupancy.groups([cell(layout=busy)])
    assert [one.moment for one in group.snapshots] == ["in flight", "after"]


@pytest.mark.parametrize(
    "other", [cell("cascade_on_granikv"), cell(valid=False), cell(state=None), cell(state={})]
)
def test_what_is_not_shown(other: MadeUpCell) -> None:
    assert occupancy.groups([other]) == []


def test_a_setting_is_shown_once_and_several_prefixes_first() -> None:
    one = cpu_cell("granikv", 1.0, state={"pools": pools(1, 4, 1, 1, 4)})
    with_f_p = MadeUpCell(
        one.id, dict(one.config) | {"storage": {"hot_fraction": 0.4}}, {}, state=one.state
    )
    again = MadeUpCell("again", with_f_p.config, {}, state=one.state)
    first = serving("granikv", "sharegpt", (512,), 256)
    labels = [group.label for group in occupancy.groups([again, with_f_p, first, cell()])]
    assert [label.split("\n")[0] for label in labels] == [
        "sharegpt 512",
        "multi_prefix 2K/4K/8K/16K",
        "sharegpt 512",
    ]
    assert "f_p = 0.4" in labels[0]


def test_bars_are_stacked_to_all_slots() -> None:
    shown = drawing("occupancy", [cell()])
    (axes,) = shown.figure.axes
    assert ends(bars(axes)) == pytest.approx([10.0, 40.0, 45.0, 100.0])
    assert {"10%", "30%", "55%", "after"} <= set(texts(axes))
    assert "1,000 slots" in shown.caption


def test_without_pools_there_is_nothing_to_draw() -> None:
    with pytest.raises(NothingToDraw, match="measure one first"):
        drawing("occupancy")
