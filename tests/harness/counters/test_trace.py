"""The decode window of a trace: from kineto files and from nsys databases."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pandas as pd
import pytest

from harness.analysis import timeline
from harness.counters import kineto, nsys
from harness.counters.trace import (
    KERNEL_COLUMNS,
    RankTrace,
    ReportError,
    Step,
    decode_window,
    longest_kernels,
    stretches,
)
from tests.harness.counters import traced


def steps(modes: str) -> list[Step]:
    return [Step(float(i), mode == "D") for i, mode in enumerate(modes)]


@pytest.mark.parametrize(
    ("modes", "lengths"),
    [
        ("", []),
        ("P", []),
        ("D", []),
        ("DP", [1]),
        ("DDD", [2]),
        ("PDDPDDDPD", [2, 3]),
        ("PDDPDDDP", [2, 3]),
        ("PPDDDD", [3]),
    ],
)
def test_stretches_leave_out_a_step_that_may_be_cut_off(modes: str, lengths: list[int]) -> None:
    assert [len(stretch.starts) for stretch in stretches(steps(modes))] == lengths


def read_kineto(tmp_path: Path, *modes: str) -> list[RankTrace]:
    for rank, of_rank in enumerate(modes):
        traced.write_kineto(tmp_path, "cell", rank, of_rank)
    return kineto.read(tmp_path, "cell")


def read_nsys(tmp_path: Path, *modes: str, nvtx: bool = False) -> list[RankTrace]:
    database = traced.Database(tmp_path / "cell.sqlite", nvtx)
    for rank, of_rank in enumerate(modes):
        # Later ranks have lower process ids: the device decides.
        database.add_process(900 - rank, rank, of_rank)
    return nsys.read(database.path)


READERS = {
    "kineto": read_kineto,
    "nsys, steps from graphs": read_nsys,
    "nsys, steps from NVTX": lambda *a: read_nsys(*a, nvtx=True),
}


@pytest.mark.parametrize("reader", READERS)
def test_the_longest_decode_stretch_alone_is_measured(tmp_path: Path, reader: str) -> None:
    """Three whole steps: prefill before and after, and an earlier, shorter stretch, are out."""
    kernels, count = decode_window(READERS[reader](tmp_path, "PDPDDDPP"))
    assert count == 3
    metrics = timeline.metrics(kernels, count)
    assert metrics["kernel_ms_prefix_attention"] == pytest.approx(3 * 0.060)
    assert metrics["kernel_ms_decode_attention"] == pytest.approx(3 * 0.010)
    assert metrics["kernel_ms_gemm"] == pytest.approx(3 * 0.020)
    assert metrics["kernel_ms_total"] == pytest.approx(3 * 0.090)
    assert metrics["share_prefix_attention"] == pytest.approx(180 / 290)
    assert metrics["share_host_gap"] == pytest.approx(20 / 290)
    assert metrics["profile_steps"] == 3.0


@pytest.mark.parametrize("reader", READERS)
def test_ranks_are_cut_to_equally_many_steps(tmp_path: Path, reader: str) -> None:
    kernels, count = decode_window(READERS[reader](tmp_path, "PDDDDP", "PDDP"))
    assert count == 2
    assert kernels.groupby("rank").size().to_dict() == {0: 6, 1: 6}
    assert timeline.metrics(kernels, count)["kernel_ms_gemm"] == pytest.approx(2 * 0.020)


@pytest.mark.parametrize("reader", READERS)
def test_a_trace_of_prefill_alone_is_refused(tmp_path: Path, reader: str) -> None:
    with pytest.raises(ReportError, match="no whole decode step"):
        decode_window(READERS[reader](tmp_path, "PPP"))


def test_a_trace_of_a_cpu_is_refused() -> None:
    none = RankTrace(0, pd.DataFrame(columns=list(KERNEL_COLUMNS)), steps("PDDP"))
    with pytest.raises(ReportError, match="no GPU kernel"):
        decode_window([none])


def test_a_rank_that_ran_nothing_is_refused(tmp_path: Path) -> None:
    (full,) = read_kineto(tmp_path, "PDDP")
    empty = RankTrace(1, full.kernels.head(0), full.steps)
    with pytest.raises(ReportError, match="a rank without a kernel"):
        decode_window([full, empty])


def test_the_longest_kernels_are_told_with_their_category(tmp_path: Path) -> None:
    kernels, _ = decode_window(read_kineto(tmp_path, "PDDP"))
    first, second, *_ = longest_kernels(kernels)
    assert first == {
        "name": "_prefix_kernel",
        "category": "prefix_attention",
        "ms": pytest.approx(0.120),
        "launches": 2,
    }
    assert second["name"] == "nvjet_tst_TNT"


@pytest.mark.parametrize("content", [b"", b"\x1f\x8b\x08\x00cut", b"{}"])
def test_a_damaged_kineto_trace_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "cell-TP-0.trace.json.gz").write_bytes(content)
    with pytest.raises(ReportError, match=r"cell-TP-0\.trace\.json\.gz is no complete trace"):
        kineto.read(tmp_path, "cell")


def test_no_kineto_trace_is_refused(tmp_path: Path) -> None:
    traced.write_kineto(tmp_path, "another", 0, "PDDP")
    with pytest.raises(ReportError, match="the engine wrote no trace"):
        kineto.read(tmp_path, "cell")


def test_an_nsys_export_without_kernels_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "empty.sqlite"
    sqlite3.connect(path).execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
    with pytest.raises(ReportError, match="no kernel was recorded"):
        nsys.read(path)


def test_an_nsys_export_without_graph_nodes_is_refused(tmp_path: Path) -> None:
    """Traced graph by graph, a replay has no kernels: nothing may be read from that."""
    path = traced.Database(tmp_path / "old.sqlite", nvtx=False).path
    with sqlite3.connect(path) as connection:
        connection.execute("ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN graphNodeId")
    with pytest.raises(ReportError, match="has no column graphNodeId"):
        nsys.read(path)


@pytest.mark.parametrize("name", ["absent.sqlite", "text.sqlite"])
def test_what_is_no_nsys_export_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "text.sqlite").write_text("this is no database, and long enough to be read as one")
    with pytest.raises(ReportError):
        nsys.read(tmp_path / name)


def test_the_commands_ask_for_a_window_with_graph_nodes() -> None:
    command = nsys.wrapper(Path("reports/server-%p"))
    assert command[:2] == ["nsys", "profile"]
    assert {"--cuda-graph-trace=node", "--capture-range=cudaProfilerApi"} <= set(command)
    assert nsys.request(Path("d"), "cell", 64)["activities"] == ["CUDA_PROFILER"]
    assert kineto.request(Path("d"), "cell", 64)["num_steps"] == 64
