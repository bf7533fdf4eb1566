"""The Amdahl bridge: from shares of the decode step to the end-to-end gain (Table 22)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes

from harness import paper
from harness.figures import style
from harness.figures.drawing import Drawing, conditions
from harness.tables import sides, table22
from harness.tables.comparison import Row
from harness.tables.entries import Entry, Kind, Measured, Printed
from harness.tables.metrics import TO_DEFAULT
from harness.tables.numbers import Number
from harness.tables.printed import PaperSource
from harness.tables.sources import CellSource, Sources

SHARES = {
    "alpha_pct": ("α: prefix attention", style.VERMILION),
    "beta_pct": ("β: NCCL", style.PURPLE),
    "gamma_pct": ("γ: GPU idle", style.YELLOW),
}
REST = ("everything else", "#d0d0d0")
GAINS = {
    "predicted_kernel_s": ("predicted with the kernel's s, of busy time", "s", style.GREY),
    "predicted_with_beta_gamma": ("predicted, Eq. 4", "D", style.BLUE),
    "measured": ("measured", "o", style.VERMILION),
}


@dataclass(frozen=True)
class Bar:
    """One configuration of one source: percent of the step by share, and gains (ratios)."""

    label: str
    numbers: dict[str, float]

    @property
    def shares(self) -> dict[str, float]:
        """α, β and γ in percent; what they leave of the step is the rest."""
        return {name: self.numbers[name] for name in SHARES}


def _value(entry: Entry) -> float | None:
    if isinstance(entry, Measured):
        return entry.estimate.value
    return entry.value if isinstance(entry, Printed) else None


def bars(source: PaperSource | CellSource, origin: str) -> list[Bar]:
    """The rows of Table 22 for which every share is known."""
    found = []
    for row in table22.TABLE.rows:
        values = {one.key: _value(_entry(one, source, row)) for one in table22.TABLE.metrics}
        numbers = {name: value for name, value in values.items() if value is not None}
        if all(name in numbers for name in SHARES):
            found.append(Bar(f"{row.labels['config']}\n{origin}", numbers))
    return found


def _entry(number: Number, source: PaperSource | CellSource, row: Row) -> Entry:
    return number.entry(source, row.point)


def _draw_shares(axes: Axes, rows: Sequence[Bar]) -> None:
    for y, bar in enumerate(rows):
        left = 0.0
        for name, (_, colour) in SHARES.items():
            _segment(axes, y, left, bar.shares[name], colour)
            left += bar.shares[name]
        _segment(axes, y, left, 100.0 - left, REST[1])
    axes.set_yticks(range(len(rows)), [bar.label for bar in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlim(0, 100)
    axes.tick_params(axis="y", length=0)
    style.describe(axes, title="SGLang default's decode step", x="Share of wall time (%)", y="")


def _segment(axes: Axes, y: int, left: float, width: float, colour: str) -> None:
    axes.barh(y, width, 0.62, left=left, color=colour, edgecolor="white", linewidth=0.6)
    if width >= 4:
        size = 8 if width >= 6 else 6.5
        axes.text(left + width / 2, y, f"{width:.1f}", ha="center", va="center", fontsize=size)


def _draw_gains(axes: Axes, rows: Sequence[Bar]) -> None:
    for name, (label, marker, colour) in GAINS.items():
        known = [(bar.numbers[name], y) for y, bar in enumerate(rows) if name in bar.numbers]
        axes.plot(
            [value for value, _ in known],
            [y for _, y in known],
            linestyle="none",
            marker=marker,
            markersize=7,
            markerfacecolor=colour if name == "measured" else "white",
            markeredgecolor=colour,
            markeredgewidth=1.6,
            label=label,
        )
    for y, bar in enumerate(rows):
        gains = [bar.numbers[name] for name in GAINS if name in bar.numbers]
        if gains:
            axes.plot([min(gains), max(gains)], [y, y], color="#b0b0b0", linewidth=1, zorder=0)
        if "s_eff" in bar.numbers:
            text = style.typeset(f"s_eff = {bar.numbers['s_eff']:.1f}×")
            axes.annotate(text, (max(gains), y), (9, 0), textcoords="offset points", va="center")
    axes.set_yticks([])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlim(0.9, 1.25 * max(max(_gains(bar)) for bar in rows))
    axes.axvline(1.0, color=style.GREY, linewidth=0.8)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}×")
    axes.grid(True, axis="x")
    style.describe(
        axes, title="End-to-end gain of GraniKV", x="Throughput over SGLang default", y=""
    )


def _gains(bar: Bar) -> list[float]:
    return [bar.numbers[name] for name in GAINS if name in bar.numbers] or [1.0]


def draw(sources: Sources) -> Drawing:
    """Shares of the step on the left, what they predict and what was measured on the right."""
    rows = bars(PaperSource(22), "paper")
    gpus = [source for source in sources.measured("") if not source.functional]
    found = {source.heading: bars(source, source.heading) for source in gpus}
    measured = [bar for of_source in found.values() for bar in of_source]
    rows += measured
    figure = style.figure(8.0, 1.5 + 0.62 * len(rows))
    left, right = figure.subplots(1, 2, width_ratios=(1.15, 1))
    _draw_shares(left, rows)
    _draw_gains(right, rows)
    handles = [left.barh([0], [0], color=colour, label=label) for label, colour in _key()]
    figure.legend(handles=handles, loc="outside lower left", ncols=2)
    figure.legend(*right.get_legend_handles_labels(), loc="outside lower right", ncols=1)
    shown = [source for source in gpus if found[source.heading]]
    ratios = [(row.point, TO_DEFAULT) for row in table22.TABLE.rows]
    points = [*(point for point, _ in ratios), *sides.baselines(ratios)]
    laws = [
        (row.point, law)
        for row in table22.TABLE.rows
        for law in table22.TABLE.metrics
        if law.kind is Kind.RATIO
    ]
    said = conditions(shown, points, laws)
    return Drawing(figure, _caption(bool(measured)) + said)


def _key() -> list[tuple[str, str]]:
    return [*SHARES.values(), REST]


def _caption(measured: bool) -> str:
    return (
        "Amdahl's law from the kernel to the whole at L_p = 16K, B = 256 (Table 22). Both "
        "predictions use the kernel gain s of Table 5; s_eff is the gain that the measured ratio "
        "implies. β and γ cancel in Eq. 4. "
        + (
            f"Below the {paper.HARDWARE}: this project's cells."
            if measured
            else "This project's cells are drawn once SGLang default's step is traced at this "
            "point: none yet."
        )
    )
