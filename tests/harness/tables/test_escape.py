"""Escaping: nothing in a label or a reason can break a table or run as markup."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from harness.tables.escape import latex, markdown


def test_latex_specials() -> None:
    assert latex("50% of $5 & #1_a {x} ~ ^ \\") == (
        r"50\% of \$5 \& \#1\_a \{x\} \textasciitilde{} \textasciicircum{} \textbackslash{}"
    )


def test_latex_symbols_of_the_paper_are_set_as_mathematics() -> None:
    assert latex("L_p of f_p at M_sat") == r"$L_p$ of $f_p$ at $M_\mathrm{sat}$"
    assert latex("B · n_q/kv") == r"B $\cdot$ $n_{q/kv}$"
    assert latex("1.35×") == r"1.35$\times$"


def test_a_symbol_inside_a_word_is_none() -> None:
    assert latex("xL_px") == r"xL\_px"


def test_markdown_specials() -> None:
    assert markdown("a|b <i> *x* `y` _z_ L_p") == r"a\|b &lt;i> \*x\* \`y\` \_z\_ L_p"


def test_lines_are_joined() -> None:
    assert markdown("one\n\ttwo\r\n") == latex("one\n\ttwo\r\n") == "one two"


@settings(deadline=None)
@given(st.text())
def test_no_text_ends_a_latex_cell_or_row(text: str) -> None:
    escaped = latex(text)
    for character in "&%#":
        assert not re.search(rf"(?<!\\){character}", escaped)
    assert "\n" not in escaped
    assert "\\\\" not in escaped
    # Braces and dollars come in pairs.
    bare = re.sub(r"\\[{}$]", "", escaped)
    assert bare.count("{") == bare.count("}")
    assert bare.count("$") % 2 == 0


@settings(deadline=None)
@given(st.text())
def test_no_text_ends_a_markdown_cell_or_opens_a_tag(text: str) -> None:
    escaped = markdown(text)
    assert not re.search(r"(?<!\\)(?:\\\\)*\|", escaped)
    assert "<" not in escaped
    assert "\n" not in escaped
