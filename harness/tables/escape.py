"""Plain text into Markdown and LaTeX: any text, since a server's message may be a reason."""

from __future__ import annotations

import re

_SYMBOLS = {
    "n_q/kv": r"$n_{q/kv}$",
    "M_eff": r"$M_\mathrm{eff}$",
    "M_sat": r"$M_\mathrm{sat}$",
    "s_eff": r"$s_\mathrm{eff}$",
    "H_kv": r"$H_{kv}$",
    "L_out": r"$L_\mathrm{out}$",
    "B_step": r"$B_\mathrm{step}$",
    "L_p": r"$L_p$",
    "L_s": r"$L_s$",
    "O_p": r"$O_p$",
    "O_s": r"$O_s$",
    "ℓ_p": r"$\ell_p$",
    "ℓ_s": r"$\ell_s$",
    "f_p": r"$f_p$",
}
_CHARACTERS = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "%": r"\%",
    "#": r"\#",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "×": r"$\times$",
    "·": r"$\cdot$",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
    "≈": r"$\approx$",
    "∈": r"$\in$",
    "±": r"$\pm$",
    "α": r"$\alpha$",
    "β": r"$\beta$",
    "γ": r"$\gamma$",
    "–": "--",
    "§": r"\S",
    "[": "{[}",
    "]": "{]}",
}
_SYMBOL = r"(?<![\w/])(?:" + "|".join(re.escape(symbol) for symbol in _SYMBOLS) + r")(?![\w/])"
_TOKEN = re.compile(f"({_SYMBOL})|(.)", re.DOTALL)


def _one_line(text: str) -> str:
    printable = "".join(c if c.isprintable() else " " for c in text)
    return " ".join(printable.split())


def latex(text: str) -> str:
    """Escaped for running LaTeX text; the paper's symbols become mathematics."""

    def swap(match: re.Match[str]) -> str:
        if match[1]:
            return _SYMBOLS[match[1]]
        return _CHARACTERS.get(match[2], match[2])

    return _TOKEN.sub(swap, _one_line(text))


def markdown(text: str) -> str:
    """Escaped for a cell of a Markdown table."""
    text = _one_line(text).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")
    text = re.sub(r"([*`\[\]])", r"\\\1", text)
    return re.sub(r"(?<!\w)_|_(?!\w)", r"\\_", text)
