"""How tables, figures and the report word systems and lengths."""

from __future__ import annotations

from harness.analysis.cells import SYSTEMS


def system_label(name: str) -> str:
    """A system's name as tables print it."""
    return SYSTEMS.get(name, name)


def length_label(tokens: int) -> str:
    """512 -> "512", 4096 -> "4K"."""
    return f"{tokens // 1024}K" if tokens % 1024 == 0 else f"{tokens:,}"
