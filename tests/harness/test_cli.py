"""`python -m harness` as a user runs it: errors are one line, nothing is lost or left running."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from harness import cli
from harness.servers import leases
from harness.servers.__main__ import main as servers_main
from harness.store import load_cells
from tests.harness.conftest import FAKE_MODULE

REPOSITORY = Path(__file__).resolve().parents[2]


def command(root: Path, *arguments: str, module: str = "harness") -> list[str]:
    return [
        sys.executable,
        "-m",
        module,
        *arguments,
        f"output={root}",
        "experiment=cpu_base",
        "hardware=cpu",
        f"engine.module={FAKE_MODULE}",
        f"+engine.environment.FAULTS={root / 'faults.json'}",
    ]


def environment() -> dict[str, str]:
    values = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    values.pop(leases.SESSION_VARIABLE, None)
    return values


def run(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(root, *arguments),
        env=environment(),
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=120,
    )


def errors(output: str) -> list[str]:
    return [line for line in output.splitlines() if line.startswith("error: ")]


def servers_left(root: Path) -> list[str]:
    return [
        " ".join(process.info["cmdline"])
        for process in psutil.process_iter(["cmdline", "status"])
        if process.info["status"] != psutil.STATUS_ZOMBIE
        and any(str(root) in part for part in process.info["cmdline"] or ())
    ]


def test_one_cell(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert "output tok/s" in done.stderr
    (cell,) = load_cells(tmp_path)
    assert cell.valid
    assert not servers_left(tmp_path)
    again = run(tmp_path)
    assert again.returncode == 0
    assert "measured already" in again.stderr


def test_a_sweep_keeps_what_it_measured_when_one_cell_fails(tmp_path: Path) -> None:
    """The middle cell's server dies in mid-run; the others are measured, also afterwards."""
    (tmp_path / "faults.json").write_text(json.dumps({"die_after": 40}))
    done = run(tmp_path, "-m", "repetition=0,1,2")
    assert done.returncode == 1
    cells = {cell.repetition: cell for cell in load_cells(tmp_path)}
    assert {repetition: cell.valid for repetition, cell in cells.items()} == {
        0: True,
        1: False,
        2: True,
    }
    assert "sglang_default died: RuntimeError: out of memory, so to speak" in cells[1].reasons[0]
    assert 0 < cells[1].metrics["requests"] < 32
    (line,) = errors(done.stderr)
    assert cells[1].id in line
    assert "Traceback" not in done.stderr
    tracebacks = list((tmp_path / "logs").rglob("traceback.txt"))
    assert [path.parent.name for path in tracebacks] == [cells[1].id]
    assert "Traceback" in tracebacks[0].read_text()
    assert "Traceback" in (cells[1].directory / "traceback.txt").read_text()
    assert not servers_left(tmp_path)

    (tmp_path / "faults.json").write_text("{}")
    resumed = run(tmp_path, "-m", "repetition=0,1,2")
    assert resumed.returncode == 0
    assert resumed.stderr.count(": measured already (") == 2
    assert all(cell.valid for cell in load_cells(tmp_path))


BAD = [
    (["system=vllm"], "Could not find 'system/vllm'"),
    (["nonsense=1"], "Could not override 'nonsense'"),
    (["load.rate=-1"], "load.rate must be a positive number"),
    (["system=sglang_fa3"], "sglang_fa3 needs a GPU"),
    (["model=llama31_8b", "model.path=/nowhere"], "model.path=/nowhere holds no config.json"),
    (["engine.python=/nowhere/python"], "engine.python=/nowhere/python does not exist"),
    (["engine.module=nowhere.to.be.found"], "No module named 'nowhere'"),
]


@pytest.mark.parametrize(("overrides", "words"), BAD)
def test_a_bad_configuration_is_one_line(tmp_path: Path, overrides: list[str], words: str) -> None:
    # Hydra takes the last value of a key, so the bad ones come after the good ones.
    done = subprocess.run(
        [*command(tmp_path), *overrides],
        env=environment(),
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    (line,) = errors(done.stderr)
    assert words in line
    assert "Traceback" not in done.stderr
    assert not servers_left(tmp_path)
    assert not [cell for cell in load_cells(tmp_path) if cell.valid]


def test_a_busy_port_is_one_line(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = run(tmp_path, f"engine.port={port}")
    assert done.returncode == 1
    (line,) = errors(done.stderr)
    assert f"port {port} is taken" in line
    assert not servers_left(tmp_path)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_sweep_leaves_no_process(
    tmp_path: Path, number: signal.Signals, status: int
) -> None:
    (tmp_path / "faults.json").write_text(json.dumps({"tpot_s": 0.5}))
    sweep = subprocess.Popen(
        command(tmp_path, "-m", "repetition=0,1"),
        env=environment(),
        cwd=REPOSITORY,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 30
    while not list(tmp_path.glob("servers/*/server.json")) and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(1.5)
    sweep.send_signal(number)
    _, output = sweep.communicate(timeout=60)
    assert sweep.returncode == status
    assert not servers_left(tmp_path)
    assert "Traceback" not in output


def test_hardware_is_detected_unless_it_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.hardware.gpu_names", list)
    assert cli.with_hardware(["system=granikv"]) == ["system=granikv", "hardware=cpu"]
    monkeypatch.setattr("harness.hardware.gpu_names", lambda: ["NVIDIA H200"])
    assert cli.with_hardware([]) == ["hardware=h200"]
    assert cli.with_hardware(["hardware=a100_40gb"]) == ["hardware=a100_40gb"]


def test_a_lingering_server_serves_the_next_command_and_is_ended_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, "engine.linger_s=600").returncode == 0
    assert servers_left(tmp_path)
    second = run(tmp_path, "engine.linger_s=600", "repetition=1")
    assert "using the server that runs already" in second.stderr
    assert servers_main([str(tmp_path)]) == 0
    assert "sglang_default" in capsys.readouterr().out
    assert servers_main(["--stop", str(tmp_path)]) == 0
    assert not servers_left(tmp_path)


LOST = """
import gc, os, signal, time
from harness import cli

class Closing:
    def __del__(self):
        os.kill(os.getpid(), signal.{name})
        time.sleep(0.1)

try:
    with cli.servers_ended():
        closing = Closing()
        del closing
        print("lost", flush=True)
        time.sleep(30)
except KeyboardInterrupt:
    raise SystemExit(130)
"""


@pytest.mark.parametrize(("name", "status"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_signal_that_python_drops_is_sent_again(name: str, status: int) -> None:
    """An exception that is raised inside a destructor is printed and forgotten."""
    done = subprocess.run(
        [sys.executable, "-c", LOST.format(name=name)],
        env=environment(),
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=25,
    )
    assert "lost" in done.stdout
    assert done.returncode == status
