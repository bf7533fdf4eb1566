"""CSV, Markdown and LaTeX of a table, and all of them on disk."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path

import pandas as pd

from harness.analysis.statistics import Estimate
from harness.tables import registry, render, render_all
from harness.tables.entries import Kind, Measured, Missing, Printed
from harness.tables.sources import Sources
from harness.tables.table import Column, Table
from tests.harness.analysis.made_up import MadeUpCell, cpu_cell, gpu_cell

TABLE = Table(
    number=7,
    title="A 50% table.",
    columns=(
        Column("name", "System"),
        Column("paper.output_tok_s", "tok/s", Kind.THROUGHPUT, "paper", "paper"),
        Column("here.output_tok_s", "tok/s", Kind.THROUGHPUT, "here", "here"),
        Column("here.ratio", "× SGL", Kind.RATIO, "here", "here"),
    ),
    rows=(
        {
            "name": "a|b_c",
            "paper.output_tok_s": Printed("3478"),
            "here.output_tok_s": Measured(Estimate(1234.5678, 1200.0, 1270.0, 3), ("x", "y")),
            "here.ratio": Missing("no baseline"),
        },
        {"name": "d", "here.output_tok_s": Missing("not run"), "here.ratio": Missing("not run")},
    ),
    notes=("A note & more.",),
)


def test_markdown() -> None:
    assert render.to_markdown(TABLE) == (
        "### Table 7: A 50% table.\n"
        "\n"
        "| System | paper, tok/s | here, tok/s | here, × SGL |\n"
        "| :-- | --: | --: | --: |\n"
        "| a\\|b_c | 3,478 | 1,230 [1,200, 1,270] | –¹ |\n".replace("[", "\\[").replace("]", "\\]")
        + "| d |  | –² | –² |\n"
        "\n"
        "¹ no baseline  \n"
        "² not run  \n"
        "\n"
        "- A note & more.\n"
    )


def test_latex() -> None:
    text = render.to_latex(TABLE)
    assert r"\caption{A 50\% table.}" in text
    assert r"\label{tab:table07}" in text
    assert r"\begin{tabular}{lrrr}" in text
    assert r" & \multicolumn{1}{c}{paper} & \multicolumn{2}{c}{here} \\" in text
    assert r"\cmidrule(lr){2-2} \cmidrule(lr){3-4}" in text
    assert r"System & tok/s & tok/s & $\times$ SGL \\" in text
    assert r"a\textbar{}b\_c & 3,478 & 1,230 {[}1,200, 1,270{]} & --\textsuperscript{1} \\" in text
    assert r"\textsuperscript{2} not run" in text
    assert r"A note \& more." in text
    for rule in (r"\toprule", r"\midrule", r"\bottomrule"):
        assert text.count(rule) == 1


def latex_rows(text: str) -> list[str]:
    """The lines between the head and the foot, whether the table is one page or several."""
    if "longtable}{" in text:
        body = text.partition("\\endlastfoot")[2].partition(r"\end{longtable}")[0]
    else:
        body = text.partition(r"\midrule")[2].partition(r"\bottomrule")[0]
    return [line for line in body.splitlines() if line]


def test_a_table_longer_than_a_page_is_broken_over_pages() -> None:
    many = replace(TABLE, rows=[*TABLE.rows] * 23)
    text = render.to_latex(many)
    assert text.startswith(r"% needs \usepackage{booktabs,longtable}")
    assert text.count(r"\midrule") == 2
    assert (text.count(r"\begin{longtable}"), text.count(r"\end{longtable}")) == (1, 1)
    assert len(latex_rows(text)) == 46
    assert r"\textsuperscript{2} not run" in text
    assert r"\begin{table}" not in text


def test_every_latex_row_has_every_column() -> None:
    for build in registry.builders().values():
        table = build(Sources.of([cpu_cell("granikv", 1.0)], []))
        rows = latex_rows(render.to_latex(table))
        assert len(rows) == len(table.rows)
        for row in rows:
            assert row.endswith(r" \\")
            assert row.replace(r"\&", "").count("&") == len(table.columns) - 1


def test_csv_is_the_tidy_frame() -> None:
    rows = list(csv.DictReader(io.StringIO(render.csv(TABLE))))
    assert [row["metric"] for row in rows] == [
        *["output_tok_s"] * 2,
        "ratio",
        "output_tok_s",
        "ratio",
    ]
    printed, measured, missing = rows[:3]
    assert (printed["value"], printed["printed"]) == ("3478", "3,478")
    assert (measured["value"], measured["low"], measured["runs"]) == ("1234.57", "1200", "3")
    assert (measured["unit"], measured["cells"]) == ("tok/s", "x y")
    assert (missing["value"], missing["missing"]) == ("", "no baseline")


def _cells() -> list[MadeUpCell]:
    return [
        gpu_cell(system, 1000.0 / 7 + i, repetition=i)
        for system in ("granikv", "sglang_default")
        for i in range(3)
    ] + [cpu_cell("granikv", 10 / 3)]


def test_all_tables_in_three_formats(tmp_path: Path) -> None:
    paths = render_all(_cells(), [], tmp_path)
    stems = [f"table{number:02d}" for number in registry.builders()]
    assert [path.name for path in paths] == [
        f"{stem}.{ending}" for stem in stems for ending in ("csv", "md", "tex")
    ]
    assert sorted(tmp_path.iterdir()) == sorted(paths)
    for path in paths:
        assert path.read_bytes().endswith(b"\n")
    for path in tmp_path.glob("*.csv"):
        assert not pd.read_csv(path).empty or path.stem == "table01"
