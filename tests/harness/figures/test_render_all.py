"""All figures on disk: formats, index, and the same bytes for the same cells."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness import paper
from harness.figures import registry, render_all
from tests.harness.figures.test_layout import cell, state

NAMES = tuple(registry.FIGURES)


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Every figure of one cell, drawn once."""
    return render_all([cell(layout=state())], [], tmp_path_factory.mktemp("figures"))


def test_every_figure_in_three_formats_and_an_index(rendered: list[Path]) -> None:
    wanted = [f"{name}.{fmt}" for name in NAMES for fmt in ("pdf", "svg", "png")]
    assert [path.name for path in rendered] == [*wanted, "figures.md"]
    assert sorted(rendered[0].parent.iterdir()) == sorted(rendered)
    heads = {"pdf": b"%PDF", "svg": b"<?xml", "png": b"\x89PNG"}
    for path in rendered[:-1]:
        assert path.read_bytes().startswith(heads[path.suffix[1:]])
    index = rendered[-1].read_text("utf-8")
    assert all(f"[{name}]({name}.svg)" in index for name in NAMES)


def test_no_file_holds_a_time_or_a_version(rendered: list[Path]) -> None:
    for path in rendered:
        data = path.read_bytes()
        for mark in (b"CreationDate", b"dc:date", b"Matplotlib v", b"matplotlib.org"):
            assert mark not in data, (path.name, mark)


def test_a_figure_with_nothing_to_show_is_removed_and_the_index_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "FIGURES", {"layout": registry.FIGURES["layout"]})
    render_all([cell(layout=state())], [], tmp_path)
    assert len(list(tmp_path.glob("layout.*"))) == 3
    (index,) = render_all([cell()], [], tmp_path)
    assert not list(tmp_path.glob("layout.*"))
    assert "layout: not drawn. No cell holds a server's tree" in index.read_text("utf-8")


PROGRAM = """
import sys
from pathlib import Path
from harness.figures import render_all
from tests.harness.figures.test_layout import cell, state
render_all([cell(layout=state())], [], Path(sys.argv[1]))
"""


def test_another_process_gives_the_same_bytes(tmp_path: Path, rendered: list[Path]) -> None:
    """Another hash seed, time zone, date setting and backend must not show."""
    settings = {"PYTHONHASHSEED": "7", "TZ": "Asia/Tokyo", "SOURCE_DATE_EPOCH": "99999999"}
    environment = dict(os.environ, PYTHONPATH=str(paper.ROOT), MPLBACKEND="svg", **settings)
    subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path)], check=True, env=environment)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(p.name for p in rendered)
    for path in rendered:
        assert path.read_bytes() == (tmp_path / path.name).read_bytes(), path.name
