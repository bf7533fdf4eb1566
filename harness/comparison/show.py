"""A comparison for people, and as a frame."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import pandas as pd
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from rich.text import Text

from harness.analysis.statistics import Estimate
from harness.comparison.change import Change, Kind
from harness.comparison.pairs import Match, Pair

HEADLINE = ("output_tok_s", "ttft_p50_s", "tpot_p50_ms", "e2e_p50_s")
"""Metrics that are shown even where nothing changed."""

COLOURS = {
    Kind.REGRESSION: "bold red",
    Kind.IMPROVEMENT: "green",
    Kind.SAME: "dim",
    Kind.UNKNOWN: "yellow",
}
WIDTHS = {"Metric": 22, "A": 22, "B": 22, "B / A": 22, "Change": 14, "Note": 16}
"""Columns of the tables with their least widths, so that those of all experiments align."""

COLUMNS = (
    *("experiment", "metric", "change"),
    *("a", "a_low", "a_high", "a_runs", "b", "b_low", "b_high", "b_runs"),
    *("ratio", "low", "high", "note"),
)
FUNCTIONAL = (
    "Functional check, tiny model on the CPU: a change here says nothing about the speed on a GPU."
)


def show(match: Match, changes: Sequence[Change], console: Console, everything: bool) -> None:
    """Print what changed; with `everything` also what stayed the same."""
    shown = [one for one in changes if everything or _worth_showing(one)]
    for title, members in groupby(shown, key=lambda one: one.title):
        console.print(_table(title, list(members)))
    for line in differences(match.pairs):
        console.print(Text(line))
    for side, titles in (("A", match.only_a), ("B", match.only_b)):
        for title in titles:
            console.print(Text(f"only in {side}: {title}"))
    if any(record.functional for pair in match.pairs for record in (*pair.a, *pair.b)):
        console.print(FUNCTIONAL)
    console.print(summary(changes))


def differences(pairs: Sequence[Pair]) -> list[str]:
    """What was chosen differently, each difference once with where it is."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for pair in pairs:
        for difference in pair.differences:
            found.setdefault(difference, []).append(pair.title)
    return [
        f"{_where(titles, len(pairs))}: {name}: {_short(a)} → {_short(b)}"
        for (name, a, b), titles in found.items()
    ]


def _where(titles: Sequence[str], pairs: int) -> str:
    if len(titles) == 1:
        return titles[0]
    return "everywhere" if len(titles) == pairs else f"{titles[0]} and {len(titles) - 1} more"


def _worth_showing(change: Change) -> bool:
    return change.kind is not Kind.SAME or change.metric in HEADLINE


def _short(text: str, most: int = 60) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def summary(changes: Sequence[Change]) -> str:
    """The counts of each kind."""
    count = {kind: sum(one.kind is kind for one in changes) for kind in Kind}
    return ", ".join(f"{count[kind]:,} {kind.value}" for kind in Kind)


def _table(title: str, changes: Sequence[Change]) -> Table:
    table = Table(box=SIMPLE, title=Text(title, style="bold"), title_justify="left")
    for heading, width in WIDTHS.items():
        table.add_column(heading, min_width=width, no_wrap=heading == "Metric")
    for one in changes:
        table.add_row(
            Text(one.metric),
            _estimate(one.a),
            _estimate(one.b),
            _estimate(one.ratio, "×"),
            Text(one.kind.value, style=COLOURS[one.kind]),
            Text(one.note),
        )
    return table


def _estimate(estimate: Estimate | None, sign: str = "") -> Text:
    """Four digits, with the interval where there are several runs."""
    if estimate is None:
        return Text("–")
    text = f"{_digits(estimate.value)}{sign}"
    if estimate.runs > 1:
        text += f" [{_digits(estimate.low)}, {_digits(estimate.high)}]"
    return Text(text)


def _digits(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def frame(changes: Sequence[Change]) -> pd.DataFrame:
    """One row a metric and experiment (COLUMNS), everything in full precision."""
    rows = [
        {"experiment": one.title, "metric": one.metric, "change": one.kind.value, "note": one.note}
        | _side("a", one.a)
        | _side("b", one.b)
        | (
            {}
            if one.ratio is None
            else {"ratio": one.ratio.value, "low": one.ratio.low, "high": one.ratio.high}
        )
        for one in changes
    ]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _side(name: str, one: Estimate | None) -> dict[str, float]:
    if one is None:
        return {}
    values = {"": one.value, "_low": one.low, "_high": one.high, "_runs": one.runs}
    return {f"{name}{ending}": value for ending, value in values.items()}
