"""Sensitivity to the HOT pool's share f_p (Table 24)."""

from __future__ import annotations

from dataclasses import dataclass

from matplotlib.axes import Axes

from harness.analysis.statistics import Estimate
from harness.figures import style
from harness.figures.drawing import Drawing, conditions, whiskers
from harness.tables.budgets import BUDGETS
from harness.tables.entries import Measured, Printed
from harness.tables.metrics import OUTPUT, TPOT_P50
from harness.tables.numbers import Metric
from harness.tables.printed import PaperSource
from harness.tables.sources import CellSource, Sources
from harness.tables.table24 import FRACTIONS, point

PANELS = {OUTPUT: "Output throughput (tok/s)", TPOT_P50: "TPOT p50 (ms)"}
COLOURS = (style.BLACK, style.VERMILION, style.BLUE, style.GREEN, style.PURPLE)
MARKERS = ("s", "o", "^", "D", "v")


@dataclass(frozen=True)
class Sweep:
    """One source and KV budget: an estimate at each f_p, and the cascade run's."""

    label: str
    points: dict[float, Estimate]
    cascade: Estimate | None


def _estimate(
    source: PaperSource | CellSource, fraction: float | None, budget: str, metric: Metric
) -> Estimate | None:
    entry = metric.entry(source, point(fraction).with_traits(kv_budget=budget))
    if isinstance(entry, Printed):
        return Estimate(entry.value, entry.value, entry.value, 0)
    return entry.estimate if isinstance(entry, Measured) else None


def _sweep(source: PaperSource | CellSource, label: str, budget: str, metric: Metric) -> Sweep:
    found = {f: _estimate(source, f, budget, metric) for f in FRACTIONS}
    known = {fraction: one for fraction, one in found.items() if one is not None}
    return Sweep(label, known, _estimate(source, None, budget, metric))


def sweeps(metric: Metric, sources: Sources) -> list[Sweep]:
    """The paper's, then this project's GPU cells at each budget, where anything was measured."""
    found = [_sweep(PaperSource(24), "paper (A100)", "paper", metric)]
    for source in sources.measured(""):
        if not source.functional:
            for budget, label in BUDGETS.items():
                found.append(_sweep(source, f"{source.heading}, KV budget {label}", budget, metric))
    return [one for one in found if one.points]


def _draw_sweep(axes: Axes, one: Sweep, colour: str, marker: str) -> None:
    x = [FRACTIONS.index(fraction) for fraction in one.points]
    estimates = list(one.points.values())
    axes.errorbar(
        x,
        [e.value for e in estimates],
        yerr=whiskers(estimates),
        color=colour,
        marker=marker,
        markerfacecolor="white" if estimates[0].runs == 0 else colour,
        capsize=2.5,
        label=f"GraniKV, {one.label}",
    )
    if one.cascade is not None:
        axes.axhline(
            one.cascade.value,
            color=colour,
            linestyle="--",
            linewidth=1.1,
            label=f"SGLang-Cascade, {one.label}",
        )


def draw(sources: Sources) -> Drawing:
    """Throughput and TPOT over f_p, the cascade run dashed; both axes start at zero."""
    figure = style.figure(7.6, 3.3)
    panels = figure.subplots(1, len(PANELS))
    count = 0
    for axes, (metric, title) in zip(panels, PANELS.items(), strict=True):
        found = sweeps(metric, sources)
        count = len(found)
        for index, one in enumerate(found):
            _draw_sweep(axes, one, COLOURS[index % 5], MARKERS[index % 5])
        axes.set_xticks(range(len(FRACTIONS)), [f"{fraction:g}" for fraction in FRACTIONS])
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes.grid(True, axis="y")
        style.describe(axes, title=title, x="f_p (share of the KV budget given to HOT)", y="")
    panels[0].set_ylim(top=1.12 * panels[0].get_ylim()[1])
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    points = [
        point(fraction).with_traits(kv_budget=budget)
        for fraction in (*FRACTIONS, None)
        for budget in BUDGETS
    ]
    return Drawing(figure, _caption(count > 1) + conditions(sources.measured(""), points))


def _caption(measured: bool) -> str:
    filled = "Filled: this project's GPU cells with 95% intervals over runs; no interval: one run."
    return (
        "Throughput and TPOT over f_p at B = 256, L_p = 8K, synthetic burst (Table 24). In the "
        "paper the HOT pool at f_p = 0.05 is smaller than the prefix, and the gain over cascade "
        f"remains. {filled if measured else 'No GPU cell yet.'}"
    )
