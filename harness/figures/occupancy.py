"""What the pools held: slots by pool and use, in flight and after the load, and over its time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec
from matplotlib.patches import Patch

from harness.analysis import pools_over_time
from harness.analysis.cells import CellLike, Standing, setting, standing
from harness.figures import style
from harness.figures.drawing import Drawing, NothingToDraw
from harness.tables.budgets import BUDGETS
from harness.tables.labels import length_label
from harness.tables.numbers import HEADLINE_B, STAND_IN
from harness.tables.sources import Sources

USES = {
    "hot_live": ("HOT: in slabs", style.ORANGE),
    "hot_free": ("HOT: free", "#fbe3b0"),
    "cold_live": ("COLD: live", "#7d7d7d"),
    "cold_free": ("COLD: free", "#e2e2e2"),
}
"""Every slot is in one of these; COLD's hold those on loan from HOT, live or free."""
LOAN = "hot_donated"
LOAN_LABEL = "of COLD: on loan from HOT"
LOAN_LOOK: dict[str, Any] = {"hatch": "////", "edgecolor": style.BLACK, "linewidth": 0.0}
SHOWN = "granikv"
NARROW = 6
"""Percent of all slots below which a part of a bar holds no number."""
GAP = 0.35
"""Between two settings, in bars."""
MOST = 10
"""Settings that one figure shows: several prefixes first, then the longer prompts."""
MOST_CURVES = 4
"""Settings whose pools are shown over time, where a cell recorded them."""
CURVE_HEIGHT = 1.9


@dataclass(frozen=True)
class Occupancy:
    """One snapshot of one cell, in percent of all its KV slots, and their number.

    shares: by use; they add up to 100. loan: of COLD's slots those on loan from HOT.
    """

    moment: str
    slots: int
    shares: dict[str, float]
    loan: float


@dataclass(frozen=True)
class Group:
    """One setting: its snapshots, in flight and after the load, and its pools over time.

    curve: percent of all KV slots by use, and on loan, over t_s; None where nobody recorded it.
    """

    label: str
    snapshots: tuple[Occupancy, ...]
    curve: pd.DataFrame | None = None


def _label(at: Standing) -> str:
    lengths = sorted(set(at.prefix_lengths))
    which = "/".join(length_label(length) for length in lengths[:4])
    more = "…" if len(lengths) > 4 else ""
    count = f"{at.k} × " if at.k > 1 and len(lengths) == 1 else ""
    budget = "" if at.functional else f", KV budget {BUDGETS.get(at.kv_budget, at.kv_budget)}"
    share = "" if at.hot_fraction is None else f", f_p = {at.hot_fraction:g}"
    return f"{at.kind} {count}{which}{more}\n{at.title}{share}{budget}"


def groups(cells: Sequence[CellLike]) -> list[Group]:
    """Of every setting of GraniKV at the headline B the first valid cell that saw its pools.

    In the figure's order, more than it shows.
    """
    found: dict[str, Group] = {}
    for cell in sorted(cells, key=_order):
        at = standing(cell)
        asked = f"{setting(cell)} {at.hot_fraction} {at.hardware}"
        taken = tuple(_snapshots(cell)) if asked not in found else ()
        if taken and _shown(at) and cell.valid:
            curve = pools_over_time.shares(cell, (*USES, LOAN)) if len(found) < MOST else None
            found[asked] = Group(_label(at), taken, curve)
    return list(found.values())


def _shown(at: Standing) -> bool:
    headline = at.functional or (at.model == STAND_IN and at.b == HEADLINE_B)
    return at.system == SHOWN and headline and not at.probe


def _order(cell: CellLike) -> tuple[str, bool, int, int, str, float, str]:
    at = standing(cell)
    several = (at.hardware, at.k == 1, at.k, -sum(at.prefix_lengths))
    return (*several, at.kv_budget, at.hot_fraction or 0.0, cell.id)


def _snapshots(cell: CellLike) -> Iterator[Occupancy]:
    for moment, state in (("in flight", cell.layout), ("after", cell.state)):
        if state and state.get("pools"):
            yield _occupancy(moment, state["pools"])


def _occupancy(moment: str, pools: Mapping[str, Any]) -> Occupancy:
    slots = int(pools["capacity"])
    percent = {name: 100.0 * int(pools[name]) / max(slots, 1) for name in (*USES, LOAN)}
    return Occupancy(moment, slots, {name: percent[name] for name in USES}, percent[LOAN])


def _draw_bar(axes: Axes, y: float, one: Occupancy) -> None:
    left = 0.0
    for name, (_, colour) in USES.items():
        axes.barh(
            y, one.shares[name], 0.8, left=left, color=colour, edgecolor="white", linewidth=0.5
        )
        if one.shares[name] >= NARROW:
            text = f"{one.shares[name]:.0f}%"
            axes.text(left + one.shares[name] / 2, y, text, ha="center", va="center", fontsize=7.5)
        left += one.shares[name]
    # HOT's slots come before COLD's, so a loan is drawn where COLD begins.
    axes.barh(y, one.loan, 0.8, left=_hot(one.shares), facecolor="none", **LOAN_LOOK)


def _hot(shares: Mapping[str, Any] | pd.DataFrame) -> Any:
    """What HOT has kept to itself, in percent: of one moment or of each of a curve's."""
    return shares["hot_live"] + shares["hot_free"]


def _beside(one: Occupancy) -> str:
    """The moment, and what is in slabs or on loan where the bar has no room to say it."""
    told = {"in slabs": one.shares["hot_live"], "on loan": one.loan}
    said = [f"{share:.1f}% {what}" for what, share in told.items() if 0 < share < NARROW]
    return f"{one.moment}: {', '.join(said)}" if said else one.moment


def draw(sources: Sources) -> Drawing:
    """Two bars a setting of GraniKV, in flight and after the load; below, areas over time."""
    every = groups([*sources.shipped, *sources.here])
    found = every[:MOST]
    if not found:
        raise NothingToDraw("No cell of GraniKV holds its pools; measure one first.")
    curves = [group for group in found if group.curve is not None][:MOST_CURVES]
    bars = sum(len(group.snapshots) for group in found)
    height, below = 1.3 + 0.3 * bars + 0.12 * len(found), CURVE_HEIGHT * len(curves)
    figure = style.figure(7.6, height + below)
    grid = figure.add_gridspec(
        1 + len(curves), 1, height_ratios=[height] + [CURVE_HEIGHT] * len(curves)
    )
    _draw_bars(figure.add_subplot(grid[0]), found)
    _draw_curves(figure, grid, curves)
    figure.legend(handles=_key(), loc="outside lower center", ncols=3)
    return Drawing(figure, _caption(found, len(every), bool(curves)))


def _draw_bars(axes: Axes, found: Sequence[Group]) -> None:
    y, middles = 0.0, []
    for group in found:
        middles.append(y + (len(group.snapshots) - 1) / 2)
        for one in group.snapshots:
            _draw_bar(axes, y, one)
            axes.text(101, y, _beside(one), va="center", fontsize=7.5, color=style.GREY)
            y += 1
        y += GAP
    axes.set_yticks(middles, [style.typeset(group.label) for group in found], fontsize=7.5)
    axes.tick_params(axis="y", length=0)
    axes.set_xlim(0, 130)
    axes.set_xticks(range(0, 101, 20), [f"{x}%" for x in range(0, 101, 20)])
    axes.set_ylim(y - GAP - 0.4, -0.6)
    style.describe(axes, title="Where the KV slots are", x="Share of all KV slots", y="")


def _draw_curves(figure: Figure, grid: GridSpec, curves: Sequence[Group]) -> None:
    for row, group in enumerate(curves, start=1):
        curve = group.curve
        assert curve is not None
        axes = figure.add_subplot(grid[row])
        times = curve.index.to_numpy(float)
        axes.stackplot(
            times,
            *(curve[use].to_numpy(float) for use in USES),
            colors=[colour for _, colour in USES.values()],
            edgecolor="white",
            linewidth=0.3,
        )
        kept = _hot(curve).to_numpy(float)
        lent = kept + curve[LOAN].to_numpy(float)
        axes.fill_between(times, kept, lent, facecolor="none", **LOAN_LOOK)
        axes.set_xlim(curve.index.min(), curve.index.max())
        axes.set_ylim(0, 100)
        title = group.label.replace("\n", ", ")
        style.describe(axes, title=title, x="Time in the load (s)", y="Share of slots (%)")
        axes.title.set_fontsize(8.5)


def _caption(found: Sequence[Group], of: int, over_time: bool) -> str:
    slots = sorted({one.slots for group in found for one in group.snapshots})
    counts = f"{slots[0]:,}" if len(slots) == 1 else f"{slots[0]:,} to {slots[-1]:,}"
    return (
        f"Pools of GraniKV's servers ({counts} slots in all), as they reported them in the middle "
        "of a burst behind the measured load, and after the load. Hatched: of COLD's slots, live "
        "or free, those on loan from HOT, which then counts them no more."
        + (
            f" Of {of} settings {len(found)}: several prefixes first, then the longer prompts."
            if of > len(found)
            else ""
        )
        + (" Below, the same over the measured load, from telemetry." if over_time else "")
    )


def _key() -> list[Patch]:
    parts = [
        Patch(facecolor=colour, edgecolor="white", label=label) for label, colour in USES.values()
    ]
    return [*parts, Patch(facecolor="none", label=LOAN_LABEL, **LOAN_LOOK)]
