"""Every table, every figure and the report: all there, and the same cells give the same bytes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness import paper
from harness.figures import registry

Files = dict[str, bytes]
SETTINGS = (
    {"PYTHONHASHSEED": "1", "TZ": "UTC", "MPLBACKEND": "agg"},
    {
        "PYTHONHASHSEED": "7",
        "TZ": "Asia/Tokyo",
        "MPLBACKEND": "svg",
        "SOURCE_DATE_EPOCH": "99999999",
        "LC_ALL": "C",
        "COLUMNS": "40",
    },
)


def start(out: Path, number: int) -> subprocess.Popen[bytes]:
    """A process of its own, in a directory of its own."""
    (out / "elsewhere").mkdir(parents=True)
    return subprocess.Popen(
        [sys.executable, "-m", "tests.harness.draw_everything", str(out / "out"), str(number)],
        cwd=out / "elsewhere",
        env={**os.environ, "PYTHONPATH": str(paper.ROOT), **SETTINGS[number]},
    )


def files(root: Path) -> Files:
    paths = sorted(path for path in root.rglob("*") if path.is_file())
    return {str(path.relative_to(root)): path.read_bytes() for path in paths}


@pytest.fixture(scope="module")
def twice(tmp_path_factory: pytest.TempPathFactory) -> tuple[Files, Files]:
    """What two processes wrote that share the cells and nothing else."""
    roots = [tmp_path_factory.mktemp(name) for name in ("first", "second")]
    processes = [start(root, number) for number, root in enumerate(roots)]
    assert [process.wait() for process in processes] == [0, 0]
    one, other = (files(root / "out") for root in roots)
    return one, other


def test_everything_is_written(twice: tuple[Files, Files]) -> None:
    tables = [f"tables/table{n:02d}.{e}" for n in range(1, 26) for e in ("csv", "md", "tex")]
    figures = [f"figures/{name}.{e}" for name in registry.FIGURES for e in ("pdf", "svg", "png")]
    assert sorted(twice[0]) == sorted([*tables, *figures, "figures/figures.md", "report.html"])
    assert b"not drawn" not in twice[0]["figures/figures.md"]
    heads = {"pdf": b"%PDF", "svg": b"<?xml", "png": b"\x89PNG"}
    for name in figures:
        assert twice[0][name].startswith(heads[name.rpartition(".")[2]]), name


def test_two_processes_write_the_same_bytes(twice: tuple[Files, Files]) -> None:
    """Another hash seed, order of cells, directory, time zone, locale and backend do not show."""
    one, other = twice
    assert list(one) == list(other)
    assert [name for name in one if one[name] != other[name]] == []


def test_no_file_holds_a_time_or_a_place(twice: tuple[Files, Files]) -> None:
    marks = (b"CreationDate", b"dc:date", b"Matplotlib v", b"matplotlib.org")
    for name, data in twice[0].items():
        for mark in (*marks, str(paper.ROOT).encode(), b"pytest-of-"):
            assert mark not in data, (name, mark)
