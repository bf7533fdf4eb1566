"""Profiles of servers: what they ask for, what they store, and what happens without the tool."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from harness.counters import nsys, profiles
from harness.errors import HarnessError
from harness.plan import plan
from harness.store import Cell
from tests.harness.counters import traced

NODE = {"kind": "kineto", "start_s": 0.0, "steps": 64}


class Engine(ThreadingHTTPServer):
    """`/start_profile` writes traces of `modes`, one a rank; `/stop_profile` finds none open."""

    def __init__(self, modes: tuple[str, ...], status: int = 200) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.modes, self.status = modes, status
        self.asked: list[tuple[str, Any]] = []
        self.started = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Engine

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        body = json.loads(content or b"{}")
        self.server.asked.append((self.path, body))
        status = 500
        if self.path == "/start_profile":
            status = self.server.status
            for rank, modes in enumerate(self.server.modes):
                traced.write_kineto(Path(body["output_dir"]), body["profile_id"], rank, modes)
        self.send_response(status)
        self.end_headers()
        if self.path == "/start_profile":
            self.server.started.set()

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@pytest.fixture
def engine() -> Iterator[Callable[..., Engine]]:
    engines: list[Engine] = []

    def start(*modes: str, status: int = 200) -> Engine:
        engines.append(Engine(modes, status))
        threading.Thread(target=engines[-1].serve_forever, args=(0.01,)).start()
        return engines[-1]

    yield start
    for one in engines:
        one.shutdown()
        one.server_close()


def test_a_trace_becomes_the_metrics_of_the_cell(
    engine: Callable[..., Engine], tmp_path: Path
) -> None:
    running = engine("PDDDP", "PDDDP")
    with profiles.profiling({"profile": NODE}, tmp_path, "cell", running.url) as found:
        assert running.started.wait(10)
    assert found.metrics["share_prefix_attention"] == pytest.approx(180 / 290)
    assert found.record["kind"] == "kineto"
    assert found.record["steps"] == 3
    assert "missing" not in found.record
    (start, body), (stop, _) = running.asked
    assert (start, stop) == ("/start_profile", "/stop_profile")
    assert body["num_steps"] == 64
    assert Path(body["output_dir"]) == tmp_path / "traces" / "cell"


def test_an_older_trace_is_not_read_again(engine: Callable[..., Engine], tmp_path: Path) -> None:
    for modes in (("PDDDP", "PDDDP"), ("PDDDP",)):
        running = engine(*modes)
        with profiles.profiling({"profile": NODE}, tmp_path, "cell", running.url) as found:
            assert running.started.wait(10)
    assert found.metrics["kernel_ms_gemm"] == pytest.approx(3 * 0.020)
    assert len(list((tmp_path / "traces" / "cell").iterdir())) == 1


@pytest.mark.parametrize(
    ("modes", "status", "start_s", "missing"),
    [
        (("PPP",), 200, 0.0, "no whole decode step"),
        ((), 200, 0.0, "the engine wrote no trace"),
        ((), 500, 0.0, "/start_profile was refused: status 500"),
        ((), 200, 600.0, "the load was over before the window"),
    ],
)
def test_what_fails_is_a_reason_against_the_cell(
    engine: Callable[..., Engine],
    tmp_path: Path,
    modes: tuple[str, ...],
    status: int,
    start_s: float,
    missing: str,
) -> None:
    running = engine(*modes, status=status)
    node = {**NODE, "start_s": start_s}
    with profiles.profiling({"profile": node}, tmp_path, "cell", running.url) as found:
        assert start_s or running.started.wait(10)
    assert found.metrics == {}
    (reason,) = found.reasons
    assert reason.startswith("profile: ")
    assert missing in reason


def test_a_load_that_fails_ends_the_profile_as_well(
    engine: Callable[..., Engine], tmp_path: Path
) -> None:
    node = {**NODE, "start_s": 600.0}
    with (
        pytest.raises(KeyError),
        profiles.profiling({"profile": node}, tmp_path, "cell", engine().url),
    ):
        raise KeyError
    assert not any(isinstance(thread, threading.Timer) for thread in threading.enumerate())


def test_without_a_profile_nothing_is_asked(engine: Callable[..., Engine], tmp_path: Path) -> None:
    running = engine()
    with profiles.profiling({}, tmp_path, "cell", running.url) as found:
        pass
    assert (found.metrics, found.record, running.asked) == ({}, {}, [])


def test_without_nsys_the_server_is_the_usual_one_and_the_cell_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nsys, "is_there", lambda: False)
    node = {**NODE, "kind": "nsys"}
    assert profiles.wrapper(node, tmp_path) == ()
    with profiles.profiling({"profile": node}, tmp_path, "cell", "http://127.0.0.1:9") as found:
        pass
    assert found.record == {"kind": "nsys", "missing": "nsys is not installed"}


def test_nsys_stands_before_the_servers_command(
    cell_config: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nsys, "is_there", lambda: True)
    usual, wrapped = (plan(cell_config(f"profile.kind={kind}")) for kind in ("none", "nsys"))
    command = wrapped.server.command(4321)
    assert command[:2] == ["nsys", "profile"]
    assert command[-len(usual.server.command(4321)) :] == usual.server.command(4321)
    assert wrapped.server.hash != usual.server.hash


def test_an_nsys_report_is_exported_and_read(
    engine: Callable[..., Engine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reports of earlier windows stay where they are; the new one becomes this cell's."""
    reports = tmp_path / "traces" / "nsys"
    reports.mkdir(parents=True)
    (reports / "server-1.1.nsys-rep").write_bytes(b"earlier")
    running = engine()

    def export(report: Path) -> Path:
        assert report.read_bytes() == b"new"
        database = traced.Database(report.with_suffix(".sqlite"), nvtx=False)
        database.add_process(7, 0, "PDDDP")
        return database.path

    monkeypatch.setattr(nsys, "is_there", lambda: True)
    monkeypatch.setattr(nsys, "export", export)
    monkeypatch.setattr(profiles, "POLL_S", 0.01)
    node = {**NODE, "kind": "nsys"}
    with profiles.profiling({"profile": node}, tmp_path, "cell", running.url) as found:
        assert running.started.wait(10)
        (reports / "server-1.2.nsys-rep").write_bytes(b"new")
    assert found.metrics["profile_steps"] == 3.0
    assert running.asked[0][1]["activities"] == ["CUDA_PROFILER"]


def test_profiled_cells_and_their_servers_are_their_own(
    cell_config: Callable[..., dict[str, Any]],
) -> None:
    """A server that was traced must not go on to serve a cell of speed."""
    plain, traced_cell = (plan(cell_config(f"profile.kind={k}")) for k in ("none", "kineto"))
    assert plain.id != traced_cell.id
    assert plain.server.hash != traced_cell.server.hash
    assert plain.server.arguments == traced_cell.server.arguments
    assert "profile" not in plain.config
    assert traced_cell.config["profile"]["kind"] == "kineto"
    assert plan(cell_config("profile.kind=none", "profile.steps=7")).id == plain.id


@pytest.mark.parametrize(
    ("kind", "message"), [("ncu", "counts a benchmark, not a server"), ("perf", "not 'perf'")]
)
def test_kinds_that_no_server_has(
    cell_config: Callable[..., dict[str, Any]], kind: str, message: str
) -> None:
    with pytest.raises(HarnessError, match=message):
        plan(cell_config(f"profile.kind={kind}"))


def test_a_trace_without_kernels_is_said(engine: Callable[..., Engine], tmp_path: Path) -> None:
    running = engine("")
    with profiles.profiling({"profile": NODE}, tmp_path, "cell", running.url) as found:
        assert running.started.wait(10)
    assert found.record == {"kind": "kineto", "missing": "the trace holds no GPU kernel"}
    assert found.reasons == []


def test_a_cell_that_was_to_be_traced_and_was_not_is_invalid(run_cell: Callable[..., Cell]) -> None:
    cell = run_cell("profile.kind=kineto", "profile.start_s=0.01", tpot_s=0.005)
    assert cell.reasons == ("profile: /start_profile was refused: status 404",)
    assert cell.record["profile"] == {"kind": "kineto"}
    assert "kernel_ms_total" not in cell.metrics
    assert cell.metrics["output_tok_s"] > 0


def test_a_cell_without_the_tool_says_so_and_is_valid(
    run_cell: Callable[..., Cell], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nsys, "is_there", lambda: False)
    cell = run_cell("profile.kind=nsys")
    assert cell.valid, cell.reasons
    assert cell.record["profile"] == {"kind": "nsys", "missing": "nsys is not installed"}
