"""Figures on disk: one that has nothing to show is removed, and the index gives the reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.figures import registry, render_all
from tests.harness.figures.test_layout import cell, state


def test_a_figure_with_nothing_to_show_is_removed_and_the_index_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "FIGURES", {"layout": registry.FIGURES["layout"]})
    *drawn, index = render_all([cell(layout=state())], [], tmp_path)
    assert [path.name for path in drawn] == ["layout.pdf", "layout.svg", "layout.png"]
    assert "[layout](layout.svg)" in index.read_text("utf-8")
    (index,) = render_all([cell()], [], tmp_path)
    assert not list(tmp_path.glob("layout.*"))
    assert "layout: not drawn. No cell holds a server's tree" in index.read_text("utf-8")
