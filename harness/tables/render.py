"""A table as CSV, Markdown and LaTeX (booktabs). The same table always gives the same bytes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from harness.tables.entries import Kind, Missing, write
from harness.tables.escape import latex, markdown
from harness.tables.table import Column, Table

_WIDE = 9
_LONG = 45
"""Rows that fit one page; longer tables are broken over pages."""
_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def csv(table: Table) -> str:
    """The tidy frame; six significant digits of each number, `printed` as in the other formats."""
    return table.frame().to_csv(index=False, lineterminator="\n", float_format="%.6g")


def _written(
    table: Table, escape: Callable[[str], str], mark: Callable[[int], str]
) -> tuple[list[list[str]], list[str]]:
    """Text of every place, a mark behind each dash, and the reasons the marks point at."""
    reasons: list[str] = []
    grid: list[list[str]] = []
    for index in range(len(table.rows)):
        line: list[str] = []
        for column in table.columns:
            entry = table.entry(index, column.key)
            text = escape(write(entry, column.kind))
            if isinstance(entry, Missing):
                if entry.reason not in reasons:
                    reasons.append(entry.reason)
                text += mark(reasons.index(entry.reason) + 1)
            line.append(text)
        grid.append(line)
    return grid, reasons


def _markdown_heading(column: Column) -> str:
    return markdown(f"{column.group}, {column.title}" if column.group else column.title)


def to_markdown(table: Table) -> str:
    """A GitHub-flavoured table with its title, reasons and notes."""
    grid, reasons = _written(table, markdown, lambda n: str(n).translate(_SUPERSCRIPTS))
    rule = [":--" if column.kind is Kind.TEXT else "--:" for column in table.columns]
    lines = [[_markdown_heading(column) for column in table.columns], rule, *grid]
    parts = [f"### Table {table.number}: {markdown(table.title)}", ""]
    parts += ["| " + " | ".join(line) + " |" for line in lines]
    if reasons:
        parts.append("")
        parts += [
            f"{str(n).translate(_SUPERSCRIPTS)} {markdown(r)}  " for n, r in enumerate(reasons, 1)
        ]
    if table.notes:
        parts.append("")
        parts += [f"- {markdown(note)}" for note in table.notes]
    return "\n".join(parts) + "\n"


def _spans(columns: Sequence[Column]) -> list[tuple[str, int, int]]:
    """(group, first, last) of each run of columns under one heading, counted from 1."""
    spans: list[tuple[str, int, int]] = []
    position = 1
    for group, members in itertools.groupby(columns, key=lambda column: column.group):
        width = len(list(members))
        spans.append((group, position, position + width - 1))
        position += width
    return spans


def _latex_heads(columns: Sequence[Column]) -> list[str]:
    titles = " & ".join(latex(column.title) for column in columns) + r" \\"
    spans = _spans(columns)
    if not any(group for group, _, _ in spans):
        return [titles]
    groups = " & ".join(
        rf"\multicolumn{{{last - first + 1}}}{{c}}{{{latex(group)}}}"
        for group, first, last in spans
    )
    rules = " ".join(rf"\cmidrule(lr){{{first}-{last}}}" for group, first, last in spans if group)
    return [groups + r" \\", rules, titles]


def _latex_size(columns: Sequence[Column]) -> str:
    if len(columns) <= _WIDE:
        return r"\small"
    return r"\scriptsize\setlength{\tabcolsep}{3pt}"


def to_latex(table: Table) -> str:
    r"""A table for `\usepackage{booktabs}`; one longer than a page also needs `longtable`."""
    grid, reasons = _written(table, latex, lambda n: rf"\textsuperscript{{{n}}}")
    small = [rf"\textsuperscript{{{n}}} {latex(reason)}" for n, reason in enumerate(reasons, 1)]
    small += [latex(note) for note in table.notes]
    below = [rf"\par\smallskip{{\footnotesize {line}\par}}" for line in small]
    body = [" & ".join(line) + r" \\" for line in grid]
    parts = _long(table, body, below) if len(grid) > _LONG else _short(table, body, below)
    return "\n".join(parts) + "\n"


def _shape(table: Table) -> str:
    return "".join("l" if column.kind is Kind.TEXT else "r" for column in table.columns)


def _caption(table: Table) -> str:
    return rf"\caption{{{latex(table.title)}}}\label{{tab:{table.stem}}}"


def _short(table: Table, body: Sequence[str], below: Sequence[str]) -> list[str]:
    return [
        r"% needs \usepackage{booktabs}",
        r"\begin{table}[htbp]",
        r"\centering",
        _latex_size(table.columns),
        _caption(table),
        rf"\begin{{tabular}}{{{_shape(table)}}}",
        r"\toprule",
        *_latex_heads(table.columns),
        r"\midrule",
        *body,
        r"\bottomrule",
        r"\end{tabular}",
        *below,
        r"\end{table}",
    ]


def _long(table: Table, body: Sequence[str], below: Sequence[str]) -> list[str]:
    heads = [r"\toprule", *_latex_heads(table.columns), r"\midrule"]
    return [
        r"% needs \usepackage{booktabs,longtable}",
        "{" + _latex_size(table.columns),
        rf"\begin{{longtable}}{{{_shape(table)}}}",
        _caption(table) + r" \\",
        *heads,
        r"\endfirsthead",
        *heads,
        r"\endhead",
        r"\bottomrule",
        r"\endlastfoot",
        *body,
        r"\end{longtable}",
        *below,
        "}",
    ]
