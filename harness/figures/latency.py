"""Distributions of TTFT and TPOT over requests, four unequal prefixes (Table 21, k = 4)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from harness import metrics, paper
from harness.analysis.cells import requests, standing
from harness.figures import style
from harness.figures.drawing import Drawing, conditions
from harness.tables.budgets import BUDGETS
from harness.tables.entries import Printed
from harness.tables.labels import system_label
from harness.tables.metrics import BASELINES, DRAWN, TPOT_P50, TPOT_P99, TTFT_P50
from harness.tables.numbers import Metric, Point
from harness.tables.printed import PaperSource
from harness.tables.sources import CellSource, Sources

K, B = 4, 256
Y = "Share of requests"


@dataclass(frozen=True)
class Panel:
    """One latency: how a log gives it, and the paper's quantiles of it."""

    axis: str
    values: Callable[[pd.DataFrame], metrics.Floats]
    printed: tuple[tuple[float, Metric], ...]


PANELS = (
    Panel("TTFT from sending (s)", metrics.ttft_s, ((0.5, TTFT_P50),)),
    Panel(
        "TPOT (ms)",
        metrics.tpot_ms,
        ((0.5, TPOT_P50), (0.99, TPOT_P99)),
    ),
)


@dataclass(frozen=True)
class Curve:
    """One system: latencies, ascending, and the share of requests at or below each (0 to 1)."""

    system: str
    values: metrics.Floats
    shares: metrics.Floats


def point(system: str) -> Point:
    """Where Table 21 stands at k = 4."""
    return Point(paper.LLAMA_8B, system, "multi_prefix", B, None, K)


def paper_quantiles(panel: Panel) -> list[Curve]:
    """The quantiles that the paper prints, one curve a system."""
    source = PaperSource(21)
    curves = []
    for system in BASELINES:
        entries = [(q, source.entry(point(system), metric)) for q, metric in panel.printed]
        known = [(q, entry.value) for q, entry in entries if isinstance(entry, Printed)]
        values, shares = np.array([v for _, v in known]), np.array([q for q, _ in known])
        curves.append(Curve(system, values, shares))
    return curves


def measured(source: CellSource, panel: Panel) -> list[Curve]:
    """Every request of a system's valid repetitions, pooled; a system without a log is left out."""
    curves = []
    for system in DRAWN:
        logs = [requests(cell) for cell in source.shown(point(system)) if cell.valid]
        found = [panel.values(log) for log in logs if log is not None]
        if found:
            values = np.sort(np.concatenate(found))
            values = values[np.isfinite(values)]
            curves.append(Curve(system, values, np.arange(1, len(values) + 1) / len(values)))
    return curves


def _draw_quantiles(axes: Axes, curve: Curve) -> None:
    axes.plot(
        curve.values,
        curve.shares,
        linestyle=":",
        marker=style.SYSTEM_MARKERS[curve.system],
        color=style.SYSTEM_COLOURS[curve.system],
        markerfacecolor="white",
        markersize=7,
        label=system_label(curve.system),
    )


def _draw_curve(axes: Axes, curve: Curve) -> None:
    axes.step(
        curve.values,
        curve.shares,
        where="post",
        color=style.SYSTEM_COLOURS[curve.system],
        label=system_label(curve.system),
    )


def draw(sources: Sources) -> Drawing:
    """A row a source: the paper's quantiles as points, then cumulative curves of measured cells."""
    shown = [s for s in sources.measured("") if measured(s, PANELS[0])]
    figure = style.figure(7.6, 0.6 + 2.4 * (1 + len(shown)))
    grid = figure.subplots(1 + len(shown), len(PANELS), squeeze=False)
    for axes, panel in zip(grid[0], PANELS, strict=True):
        for curve in paper_quantiles(panel):
            _draw_quantiles(axes, curve)
        _finish(axes, panel)
    style.describe(grid[0][0], title="paper (A100)", x=PANELS[0].axis, y=Y)
    for line, source in zip(grid[1:], shown, strict=True):
        for axes, panel in zip(line, PANELS, strict=True):
            curves = measured(source, panel)
            for curve in curves:
                _draw_curve(axes, curve)
            _finish(axes, panel)
            _name_missing(axes, curves)
        style.describe(line[0], title=source.heading, x=PANELS[0].axis, y=Y)
    handles = _key(shown)
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    said = conditions(shown, [point(system) for system in DRAWN])
    return Drawing(figure, _caption(bool(shown), _budgets(shown)) + said)


def _key(sources: Sequence[CellSource]) -> list[Line2D]:
    """A system's line and mark: points in the paper's row, curves in the others."""
    drawn = {curve.system for source in sources for curve in measured(source, PANELS[0])}
    return [
        Line2D(
            [],
            [],
            color=style.SYSTEM_COLOURS[system],
            marker=style.SYSTEM_MARKERS[system],
            markerfacecolor="white",
            markersize=7,
            label=system_label(system),
        )
        for system in DRAWN
        if system in BASELINES or system in drawn
    ]


def _name_missing(axes: Axes, curves: Sequence[Curve]) -> None:
    """Systems without a curve, so that nobody looks for one."""
    known = {curve.system for curve in curves}
    missing = [system_label(system) for system in BASELINES if system not in known]
    if missing:
        text = f"not measured: {', '.join(missing)}"
        axes.text(0.03, 0.93, text, transform=axes.transAxes, fontsize=8, color=style.GREY)


def _finish(axes: Axes, panel: Panel) -> None:
    axes.set_ylim(0, 1.04)
    axes.set_xlim(0, 1.06 * max(float(np.asarray(line.get_xdata()).max()) for line in axes.lines))
    axes.set_yticks([0, 0.25, 0.5, 0.75, 0.99], ["0", "25%", "p50", "75%", "p99"])
    axes.grid(True)
    style.describe(axes, title="", x=panel.axis, y="")


def _budgets(sources: Sequence[CellSource]) -> list[str]:
    """KV budgets of the GPU cells that are shown."""
    cells = [c for s in sources if not s.functional for b in DRAWN for c in s.shown(point(b))]
    return sorted({BUDGETS.get(at.kv_budget, at.kv_budget) for at in map(standing, cells)})


def _caption(any_measured: bool, kv_tokens: Sequence[str]) -> str:
    return (
        "TTFT and TPOT by request with four unequal prefixes, B = 256, Llama-3.1-8B (Table 21, "
        "k = 4). The paper prints p50, and p99 of TPOT alone. "
        + (
            "Below: every request of this project's cells, repetitions pooled, so what differs "
            "between runs is not shown; a CPU's are a functional check."
            if any_measured
            else "No request log of this point here yet."
        )
        + (
            f" KV tokens: {BUDGETS['paper']} in the paper, {' and '.join(kv_tokens)} here."
            if kv_tokens
            else ""
        )
    )
