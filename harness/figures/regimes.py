"""The regime map: GraniKV against each baseline over B and L_p (Tables 9–11)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import TwoSlopeNorm

from harness import paper
from harness.analysis.cells import EQ_2, dispatch_rule, group_size, m_sat
from harness.analysis.statistics import Estimate
from harness.figures import style
from harness.figures.drawing import Drawing, conditions
from harness.tables.entries import Measured
from harness.tables.grid import SHAREGPT, SHAREGPT_B, SHAREGPT_LENGTHS
from harness.tables.labels import length_label, system_label
from harness.tables.metrics import DRAWN, OUTPUT, TO_CASCADE, TO_DEFAULT, TO_FA3
from harness.tables.numbers import Metric, Point
from harness.tables.sources import CellSource, Sources

COLOURS = "BrBG"
LEAST = (0.6, 2.4)
"""What the colour scale spans at least: the paper's ratios."""
TICKS = (0.2, 0.4, 0.6, 0.8, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0, 64.0)
APART = 1 / 9
"""Of one half of the scale, between two ticks."""
BASELINES = (TO_DEFAULT, TO_CASCADE)
MEASURED_BASELINES = (*BASELINES, TO_FA3)
PAPER_M_SAT = 1024
GROUPS = {paper.LLAMA_8B: 4, paper.QWEN_14B: 5, paper.QWEN_32B: 5}
"""n_q/kv of the paper's models (Table 2)."""

Ratios = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Map:
    """GraniKV's throughput over one baseline's: rows L_p, columns B, NaN where not measured.

    threshold: the first column in which B · n_q/kv reaches M_sat; None where the servers did not
    choose by that (Eq. 2) or did not say.
    single: places (row, column) where one side is one run, so that the ratio has no interval.
    """

    config: str
    origin: str
    baseline: str
    ratios: Ratios
    threshold: int | None
    single: frozenset[tuple[int, ...]] = frozenset()


def _threshold(m_sat: int | None, group: int | None) -> int | None:
    if m_sat is None or group is None:
        return None
    return next((i for i, b in enumerate(SHAREGPT_B) if b * group >= m_sat), len(SHAREGPT_B))


def paper_maps() -> list[Map]:
    """Six maps: three models, two baselines."""
    maps = []
    for metric in BASELINES:
        for number, config in SHAREGPT.items():
            speeds = paper.select(paper.table(number), metric=OUTPUT.name)
            ratios = [
                [_paper_ratio(speeds, str(metric.baseline), l_p, b) for b in SHAREGPT_B]
                for l_p in SHAREGPT_LENGTHS
            ]
            threshold = _threshold(PAPER_M_SAT, GROUPS[config])
            title = _title(metric)
            maps.append(Map(config, "paper (A100)", title, np.array(ratios), threshold))
    return maps


def _title(metric: Metric) -> str:
    return system_label(str(metric.baseline))


def _paper_ratio(speeds: pd.DataFrame, baseline: str, l_p: int, b: int) -> float:
    at = paper.select(speeds, l_p=l_p, b=b)
    return paper.value(at, system="granikv") / paper.value(at, system=baseline)


def measured_maps(sources: Sources) -> list[Map]:
    """Maps of GPU cells, where there is at least one ratio; a CPU cell compares no speeds."""
    maps = []
    for source in sources.measured(""):
        if not source.functional:
            for metric in MEASURED_BASELINES:
                for config in SHAREGPT.values():
                    one = _measured(source, config, metric)
                    if np.isfinite(one.ratios).any():
                        maps.append(one)
    return maps


def _measured(source: CellSource, config: str, metric: Metric) -> Map:
    points = _points(config)
    found = [[_ratio(source, point, metric) for point in row] for row in points]
    ratios = np.array(
        [[float("nan") if one is None else one.value for one in row] for row in found]
    )
    single = [
        place for place, one in np.ndenumerate(np.array(found)) if one is not None and one.runs < 2
    ]
    cells = [cell for row in points for point in row for cell in source.shown(point)]
    by_eq_2 = bool(cells) and all(dispatch_rule(cell).startswith(EQ_2) for cell in cells)
    threshold = _threshold(m_sat(cells[0]), group_size(cells[0])) if by_eq_2 else None
    return Map(config, source.heading, _title(metric), ratios, threshold, frozenset(single))


def _points(config: str) -> list[list[Point]]:
    """GraniKV's places, rows L_p, columns B."""
    return [
        [Point(config, "granikv", "sharegpt", b, l_p) for b in SHAREGPT_B]
        for l_p in SHAREGPT_LENGTHS
    ]


def _ratio(source: CellSource, point: Point, metric: Metric) -> Estimate | None:
    entry = metric.entry(source, point)
    return entry.estimate if isinstance(entry, Measured) else None


def scale(grid: Sequence[Sequence[Map]]) -> TwoSlopeNorm:
    """From the lowest ratio to the highest, both to the next tenth, with 1 in the middle."""
    ratios = np.concatenate([one.ratios.ravel() for row in grid for one in row])
    low = math.floor(10 * float(np.nanmin(ratios))) / 10
    high = math.ceil(10 * float(np.nanmax(ratios))) / 10
    return TwoSlopeNorm(1.0, min(LEAST[0], low), max(LEAST[1], high))


def ticks(norm: TwoSlopeNorm) -> list[float]:
    """Those of `TICKS` on the scale, and its upper end, so far apart that they can be read."""
    assert norm.vmin is not None
    assert norm.vmax is not None
    low, high = float(norm.vmin), float(norm.vmax)
    found = [tick for tick in TICKS if low <= tick <= 1.0]
    for tick in (tick for tick in TICKS if tick > 1.0):
        near = APART * (high - 1.0)
        if tick - found[-1] >= near and high - tick >= near:
            found.append(tick)
    return [*found, high]


def _draw_map(axes: Axes, one: Map, norm: TwoSlopeNorm) -> None:
    colours = mpl.colormaps[COLOURS]
    axes.imshow(
        one.ratios,
        cmap=colours,
        norm=norm,
        origin="lower",
        aspect="auto",
    )
    for (row, column), ratio in np.ndenumerate(one.ratios):
        known = np.isfinite(ratio)
        background = colours(float(norm(ratio if known else 1.0)))
        axes.text(
            column,
            row,
            f"{ratio:.2f}" if known else "–",
            ha="center",
            va="center",
            fontsize=6.8,
            fontweight="bold" if known and round(float(ratio), 2) < 1 else "normal",
            fontstyle="italic" if (row, column) in one.single else "normal",
            color=style.ink(background) if known else style.GREY,
        )
    if one.threshold is not None:
        axes.axvline(one.threshold - 0.5, color=style.BLACK, linewidth=1.4, linestyle="--")
    # Smaller than a label elsewhere: 512 and 1,024 are neighbours in a narrow column.
    axes.set_xticks(range(len(SHAREGPT_B)), [f"{b:,}" for b in SHAREGPT_B], fontsize=7)
    axes.set_yticks(
        range(len(SHAREGPT_LENGTHS)), [length_label(length) for length in SHAREGPT_LENGTHS]
    )
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)


def rows(maps: Sequence[Map]) -> list[list[Map]]:
    """The maps of one origin and baseline stand in one row, a model a column."""
    keys = list(dict.fromkeys((one.origin, one.baseline) for one in maps))
    return [[one for one in maps if (one.origin, one.baseline) == key] for key in keys]


def draw(sources: Sources) -> Drawing:
    """One row a source and baseline: the paper's two, then this project's GPU cells."""
    grid = rows([*paper_maps(), *measured_maps(sources)])
    figure = style.figure(8.4, 0.7 + 2.15 * len(grid))
    norm = scale(grid)
    panels = figure.subplots(len(grid), len(SHAREGPT), squeeze=False)
    columns = list(SHAREGPT.values())
    for index, (line, row) in enumerate(zip(panels, grid, strict=True)):
        last = index == len(grid) - 1
        for axes in line:
            axes.set_axis_off()
        for one in row:
            axes = line[columns.index(one.config)]
            axes.set_axis_on()
            _draw_map(axes, one, norm)
            style.describe(
                axes,
                title=one.config if index == 0 else "",
                x="B (requests in flight)" if last else "",
                y="",
            )
        first = line[columns.index(row[0].config)]
        first.set_ylabel(style.typeset(f"{row[0].origin}\nover {row[0].baseline}\n\nL_p (tokens)"))
    bar = figure.colorbar(
        ScalarMappable(norm, mpl.colormaps[COLOURS]),
        ax=panels,
        shrink=min(1.0, 2 / len(grid)),
        pad=0.015,
        aspect=30,
    )
    bar.set_label("GraniKV's output throughput over the baseline's")
    marks = ticks(norm)
    bar.set_ticks(marks, labels=[f"{tick:g}×" for tick in marks])
    places = [point for config in columns for row in _points(config) for point in row]
    points = [replace(place, system=system) for place in places for system in DRAWN]
    ratios = [(place, metric) for metric in MEASURED_BASELINES for place in places]
    return Drawing(figure, _caption(grid) + conditions(sources.measured(""), points, ratios))


def _caption(grid: Sequence[Sequence[Map]]) -> str:
    to_default = [one.ratios for one in grid[0]]
    below = sum(int((ratios < 1).sum()) for ratios in to_default)
    count = sum(ratios.size for ratios in to_default)
    measured = len(grid) > len(BASELINES)
    return (
        "GraniKV's throughput over each baseline's by B and L_p, ShareGPT at saturation; bold: "
        f"below 1.00×. In the paper {below} of {count} cells are below SGLang default. "
        "Dashed, where servers chose by Eq. 2: from there on B · n_q/kv reaches M_sat. "
        + (
            "Further rows: this project's GPU cells; italic: one run of one side or both, whose "
            "spread is not known."
            if measured
            else "No GPU cell yet."
        )
    )
