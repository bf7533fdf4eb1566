"""The dispatch trace: which backend served the decode steps, over B and L_p (Table 15)."""

from __future__ import annotations

from dataclasses import dataclass, field

from matplotlib.axes import Axes
from matplotlib.patches import Patch

from harness import paper
from harness.analysis.derived import BACKENDS
from harness.figures import style
from harness.figures.drawing import Drawing
from harness.tables.entries import Kind, Measured
from harness.tables.labels import length_label
from harness.tables.numbers import Metric, Point
from harness.tables.sources import CellSource, Sources
from harness.tables.table15 import BS, LENGTHS, rules

GROUP = 4
"""n_q/kv of Llama-3.1-8B."""
_WIDTH = 0.2


@dataclass(frozen=True)
class Trace:
    """Percent of a cell's decode steps by backend at each (L_p, B), or in a word why there is none.

    rule: how the servers chose, a sentence; empty where that is not known.
    """

    origin: str
    shares: dict[tuple[int, int], dict[str, float]]
    gaps: dict[tuple[int, int], str] = field(default_factory=dict)
    rule: str = ""


def paper_trace() -> Trace:
    """The paper prints dense's share; what is left is cascade's."""
    frame = paper.table(15)
    shares = {}
    for l_p in LENGTHS:
        for b in BS:
            dense = paper.value(frame, l_p=l_p, b=b, metric="dense_step_pct")
            shares[(l_p, b)] = {"dense": dense, "cascade": 100.0 - dense, "paged": 0.0}
    return Trace(f"paper ({paper.HARDWARE})", shares)


def measured_traces(sources: Sources) -> list[Trace]:
    """One trace a source, the CPU's too: counts of steps say nothing about speed."""
    traces = [_trace(source) for source in sources.measured("")]
    return [trace for trace in traces if trace.shares]


def _trace(source: CellSource) -> Trace:
    trace = Trace(source.heading, {}, {}, rules(source))
    for l_p in LENGTHS:
        for b in BS:
            point = Point(paper.LLAMA_8B, "granikv", "synthetic", b, l_p)
            entries = {
                name: source.entry(point, Metric(f"{name}_step_pct", "", Kind.PERCENT))
                for name in BACKENDS
            }
            values = {n: e.estimate.value for n, e in entries.items() if isinstance(e, Measured)}
            if len(values) == len(BACKENDS):
                trace.shares[(l_p, b)] = values
            else:
                trace.gaps[(l_p, b)] = _gap(source, point)
    return trace


def _gap(source: CellSource, point: Point) -> str:
    cells = source.shown(point)
    if not cells:
        return "not measured"
    return "not counted" if any(cell.valid for cell in cells) else "invalid"


def _x(l_p: int, b: int) -> float:
    return BS.index(b) + (LENGTHS.index(l_p) - (len(LENGTHS) - 1) / 2) * _WIDTH


def _draw_trace(axes: Axes, trace: Trace) -> None:
    for (l_p, b), gap in trace.gaps.items():
        # Written there: an empty place would read as a share of 0.
        axes.text(
            _x(l_p, b), 2, gap, rotation=90, ha="center", va="bottom", fontsize=7, color=style.GREY
        )
    for (l_p, b), shares in trace.shares.items():
        x = _x(l_p, b)
        bottom = 0.0
        for name in BACKENDS:
            axes.bar(
                x, shares[name], 0.9 * _WIDTH, bottom=bottom, color=style.BACKEND_COLOURS[name]
            )
            bottom += shares[name]
        text = f"{shares['dense']:.0f}"
        axes.text(x, 101.5, text, ha="center", va="bottom", fontsize=6.5, color=style.VERMILION)
    for l_p, b in (*trace.shares, *trace.gaps):
        axes.text(
            _x(l_p, b),
            -2,
            length_label(l_p),
            ha="center",
            va="top",
            fontsize=5.8,
            color=style.GREY,
        )
    axes.set_xticks(range(len(BS)), [style.typeset(f"B = {b}\nM_eff = {b * GROUP:,}") for b in BS])
    axes.tick_params(axis="x", length=0, pad=12)
    axes.set_xlim(-0.5, len(BS) - 0.5)
    axes.set_ylim(0, 108)
    axes.set_yticks([0, 25, 50, 75, 100], ["0%", "25%", "50%", "75%", "100%"])
    axes.grid(True, axis="y")


def draw(sources: Sources) -> Drawing:
    """One panel a source: four bars for each B, one a length; on top dense's share in percent."""
    traces = [paper_trace(), *measured_traces(sources)]
    figure = style.figure(7.6, 0.5 + 2.5 * len(traces))
    panels = figure.subplots(len(traces), 1, squeeze=False)[:, 0]
    for axes, trace in zip(panels, traces, strict=True):
        _draw_trace(axes, trace)
        style.describe(axes, title=trace.origin, x="", y="Share of the decode steps")
    handles = [Patch(color=style.BACKEND_COLOURS[name], label=name) for name in BACKENDS]
    figure.legend(handles=handles, loc="outside upper right", ncols=len(handles))
    said = "".join(f" {trace.rule}" for trace in traces if trace.rule)
    return Drawing(figure, _caption(len(traces) > 1) + said)


def _caption(measured: bool) -> str:
    return (
        "Which backend the dispatcher gave the decode steps, Llama-3.1-8B (n_q/kv = 4), by B and "
        "L_p (small labels); the number is dense's share in percent. "
        + (
            "Below: this project's cells, by the dispatcher's counters."
            if measured
            else "No cell of the synthetic burst counts its steps here yet."
        )
    )
