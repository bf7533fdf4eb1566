"""Output throughput over the length of the shared prefix at B = 256 (Tables 9–11)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from matplotlib.artist import Artist
from matplotlib.axes import Axes

from harness import paper
from harness.analysis.cells import standing
from harness.analysis.statistics import Estimate
from harness.figures import style
from harness.figures.drawing import Drawing, conditions, whiskers
from harness.tables.entries import Measured
from harness.tables.labels import length_label, system_label
from harness.tables.metrics import BASELINES, DRAWN, OUTPUT
from harness.tables.numbers import Point
from harness.tables.sources import CellSource, Sources

B = 256
LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)
PAPER_TABLES = {paper.LLAMA_8B: 9, paper.QWEN_14B: 10, paper.QWEN_32B: 11}


@dataclass(frozen=True)
class Series:
    """One line: L_p in tokens and output tok/s with its interval (runs = 0 where printed).

    intervals: the tokens of a streamed event at each L_p (1 where printed, which says nothing).
    """

    config: str
    system: str
    origin: str
    lengths: tuple[int, ...]
    estimates: tuple[Estimate, ...]
    intervals: tuple[int, ...]

    def alike(self) -> list[slice]:
        """Neighbouring points of one stream interval; a line between others would compare them."""
        runs = groupby(range(len(self.lengths)), key=lambda index: self.intervals[index])
        members = [list(run) for _, run in runs]
        return [slice(run[0], run[-1] + 1) for run in members]


def paper_series() -> list[Series]:
    """Nine lines: three models, three systems."""
    series = []
    for config, number in PAPER_TABLES.items():
        rows = paper.select(paper.table(number), b=B, metric=OUTPUT.name)
        for system in BASELINES:
            values = [paper.value(rows, system=system, l_p=l_p) for l_p in LENGTHS]
            estimates = tuple(Estimate(value, value, value, 0) for value in values)
            alike = (1,) * len(LENGTHS)
            series.append(Series(config, system, "paper", LENGTHS, estimates, alike))
    return series


def measured_series(sources: Sources) -> list[Series]:
    """Lines of GPU cells; a CPU cell says nothing about speed and is left out."""
    series = []
    for source in sources.measured(""):
        if not source.functional:
            series += [
                line
                for config in PAPER_TABLES
                for system in DRAWN
                if (line := _measured(source, config, system)).lengths
            ]
    return series


def _measured(source: CellSource, config: str, system: str) -> Series:
    found = {
        l_p: entry.estimate
        for l_p in LENGTHS
        if isinstance(entry := source.entry(_point(config, system, l_p), OUTPUT), Measured)
    }
    shown = [source.shown(_point(config, system, l_p)) for l_p in found]
    intervals = tuple(standing(cells[0]).stream_interval for cells in shown)
    return Series(config, system, source.heading, tuple(found), tuple(found.values()), intervals)


def _point(config: str, system: str, l_p: int) -> Point:
    return Point(config, system, "sharegpt", B, l_p)


def _plot(axes: Axes, line: Series, label: str) -> None:
    colour = style.SYSTEM_COLOURS[line.system]
    of_paper = line.origin == "paper"
    for part in line.alike():
        estimates = line.estimates[part]
        axes.errorbar(
            line.lengths[part],
            [estimate.value for estimate in estimates],
            yerr=whiskers(estimates),
            color=colour,
            marker=style.SYSTEM_MARKERS[line.system],
            markerfacecolor="white" if of_paper else colour,
            linestyle="--" if of_paper else "-",
            linewidth=1.2 if of_paper else 1.8,
            capsize=0 if of_paper else 2.5,
            label=label,
        )


def _scales(axes: Axes) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks(LENGTHS, [length_label(length) for length in LENGTHS])
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.grid(True, axis="y")


def draw(sources: Sources) -> Drawing:
    """One panel a model: the paper's three systems dashed, this project's GPU cells solid."""
    lines = paper_series()
    measured = measured_series(sources)
    figure = style.figure(8.2, 3.1)
    # Each its own scale: on that of a faster GPU the paper's lines could not be told apart.
    panels = figure.subplots(1, len(PAPER_TABLES))
    for axes, config in zip(panels, PAPER_TABLES, strict=True):
        for line in (*lines, *measured):
            if line.config == config:
                _plot(axes, line, f"{system_label(line.system)}, {line.origin}")
        _scales(axes)
        style.describe(axes, title=config, x="L_p (tokens)", y="")
    panels[0].set_ylabel("Output throughput (tok/s)")
    unique = _unique_handles(panels)
    figure.legend(list(unique.values()), list(unique), loc="outside lower center", ncols=3)
    origins = "paper (A100, B = 256, ShareGPT at saturation) dashed"
    origins += (
        ", this project's cells solid with 95% intervals over runs; no interval: one run"
        if measured
        else "; no GPU cell yet"
    )
    if any(len(line.alike()) > 1 for line in measured):
        origins += "; points streamed in different ways are not joined"
    points = [_point(c, system, l_p) for c in PAPER_TABLES for system in DRAWN for l_p in LENGTHS]
    said = conditions(sources.measured(""), points)
    caption = f"Output throughput over L_p, each model on its own scale: {origins}.{said}"
    return Drawing(figure, caption)


def _unique_handles(panels: Sequence[Axes]) -> dict[str, Artist]:
    handles: dict[str, Artist] = {}
    for axes in panels:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    return handles
