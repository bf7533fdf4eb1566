"""How tables, figures and the report word systems and lengths."""

from __future__ import annotations

from harness.analysis.cells import SYSTEMS

OTHERS = {
    "sglang_fa3": "SGLang with FA3",
    "sglang_flashinfer_p1": "SGLang on pages of 1",
    "granikv_dense": "GraniKV forced dense",
    "granikv_cascade": "GraniKV forced cascade",
    "granikv_hydragen": "GraniKV by two products",
    "granikv_contiguous_unshared": "GraniKV unshared",
}
"""Systems that the paper has not, without commas: notes list them."""


def system_label(name: str) -> str:
    """A system's name as tables, captions and notes print it."""
    return (SYSTEMS | OTHERS).get(name, name)


def length_label(tokens: int) -> str:
    """512 -> "512", 4096 -> "4K"."""
    return f"{tokens // 1024}K" if tokens % 1024 == 0 else f"{tokens:,}"
