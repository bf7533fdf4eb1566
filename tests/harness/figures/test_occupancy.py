"""The occupancy figure draws the pools that cells hold."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from harness.errors import HarnessError
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
        "cold_live": 5.0,
        "cold_free": 55.0,
    }
    assert group.label == "multi_prefix 2K/4K/8K/16K\none H200, f_p = 0.2, KV budget full"


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


def test_slabs_too_narrow_for_a_number_are_told_beside_the_bar() -> None:
    """One prefix of 16K is 2% of an H200's slots, and the number that matters most."""
    few = {"pools": pools(1, 400, 21, 50, 550)}
    (axes,) = drawing("occupancy", [cell(state=few)]).figure.axes
    (beside,) = [text for text in axes.texts if "slabs" in text.get_text()]
    assert beside.get_text() == "after: 2.1% in slabs"
    assert beside.get_window_extent().x1 <= axes.get_window_extent().x1


LENT = (
    pools(1, 400, 100, 250, 350)
    | {"capacity": 1000, "hot_free": 200, "hot_donated": 100}
    | {"cold_free": 450}
)
"""Of HOT's 400 slots 100 are lent, which COLD counts: 250 live and 450 free."""


def test_a_loan_is_counted_once() -> None:
    """COLD's live and free slots hold what HOT has lent: with it the uses are more than all."""
    (group,) = occupancy.groups([cell(state={"pools": LENT})])
    (after,) = group.snapshots
    assert (after.slots, after.loan) == (1000, 10.0)
    assert sum(after.shares.values()) == pytest.approx(100.0)


def test_a_loan_is_hatched_where_cold_begins() -> None:
    shown = drawing("occupancy", [cell(state={"pools": LENT})])
    (axes,) = shown.figure.axes
    (loan,) = [bar for bar in bars(axes) if bar.get_hatch()]
    assert (loan.get_x(), loan.get_width()) == pytest.approx((30.0, 10.0))
    assert ends(bars(axes)) == pytest.approx([10.0, 30.0, 40.0, 55.0, 100.0])
    assert "on loan from HOT" in shown.caption


def test_the_longest_prompts_are_shown_of_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(occupancy, "MOST", 2)
    cells = [serving("granikv", "sharegpt", (length,), 256) for length in (512, 4096, 8192, 16384)]
    shown = drawing("occupancy", cells)
    labels = [label.get_text().split("\n")[0] for label in shown.figure.axes[0].get_yticklabels()]
    assert labels == ["sharegpt 16K", "sharegpt 8K"]
    assert "Of 4 settings 2:" in shown.caption


def test_without_pools_there_is_nothing_to_draw() -> None:
    with pytest.raises(NothingToDraw, match="measure one first"):
        drawing("occupancy")


class WatchedCell(MadeUpCell):
    """A cell with telemetry: HOT fills up over three polls; the GPU's rows are not the pools'."""

    moments = 3

    def frame(self, name: str) -> pd.DataFrame | None:
        assert name == "telemetry"
        rows: list[tuple[float, str, int, str, float]] = [(0.5, "gpu", 0, "power_w", 300.0)]
        for t in range(self.moments):
            held = pools(1, 400, 100 * t, 150, 450)
            rows += [
                (float(t), "granikv", rank, f"pool_{use}", float(held[use] + rank))
                for use in (*occupancy.USES, occupancy.LOAN, "capacity")
                for rank in (0, 1)
            ]
            rows.append((float(t), "granikv", 0, "donations", 7.0))
        return pd.DataFrame(rows, columns=["t_s", "source", "rank", "name", "value"])


class LendingCell(WatchedCell):
    """Of HOT's slots 100 are lent all the time."""

    def frame(self, name: str) -> pd.DataFrame | None:
        rows = [
            (float(t), "granikv", 0, f"pool_{use}", float(LENT[use]))
            for t in range(self.moments)
            for use in (*occupancy.USES, occupancy.LOAN, "capacity")
        ]
        return pd.DataFrame(rows, columns=["t_s", "source", "rank", "name", "value"])


class TwicePolledCell(WatchedCell):
    moments = 2


class CellWithoutItsFile(WatchedCell):
    def frame(self, name: str) -> pd.DataFrame | None:
        raise HarnessError(f"no {name}.parquet")


def watched(kind: type[MadeUpCell], **parts: Any) -> MadeUpCell:
    plain = cell(**parts)
    return kind(plain.id, plain.config, plain.metrics, state=plain.state, layout=plain.layout)


def test_telemetry_gives_shares_over_time() -> None:
    (group,) = occupancy.groups([watched(WatchedCell)])
    assert group.curve is not None
    assert group.curve.index.tolist() == [0.0, 1.0, 2.0]
    assert group.curve["hot_live"].tolist() == pytest.approx([0.0, 10.0, 20.0])
    assert group.curve[list(occupancy.USES)].sum(axis=1).tolist() == pytest.approx([100.0] * 3)


def test_a_loan_is_counted_once_over_time() -> None:
    (group,) = occupancy.groups([watched(LendingCell)])
    assert group.curve is not None
    assert group.curve[occupancy.LOAN].tolist() == pytest.approx([10.0] * 3)
    assert group.curve[list(occupancy.USES)].sum(axis=1).tolist() == pytest.approx([100.0] * 3)


@pytest.mark.parametrize("kind", [MadeUpCell, TwicePolledCell, CellWithoutItsFile])
def test_without_telemetry_there_are_bars_alone(kind: type[MadeUpCell]) -> None:
    (group,) = occupancy.groups([watched(kind)])
    assert group.curve is None
    assert len(drawing("occupancy", [watched(kind)]).figure.axes) == 1


def test_areas_over_time_stand_below_the_bars() -> None:
    shown = drawing("occupancy", [watched(WatchedCell)])
    _, axes = shown.figure.axes
    assert len(axes.collections) == len(occupancy.USES) + 1
    assert axes.get_xlim() == (0.0, 2.0)
    assert axes.get_xlabel() == "Time in the load (s)"
    assert "from telemetry" in shown.caption
