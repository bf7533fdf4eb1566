"""`granikv serve` and `python -m sglang.launch_server --granikv`, as a user meets them."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from tests.engine.scenarios import tokens
from tests.engine.server import (
    ARGUMENTS,
    REPOSITORY,
    free_port,
    granikv_serve,
    run,
    serving,
)

ADMIN = "only-for-this-test"
OURS = ["--granikv-min-tokens", "32", "--granikv-hot-fraction", "0.4"]


def test_serve_answers_pins_and_shows_its_state(model: Path, tmp_path: Path) -> None:
    """Requests over HTTP, the state in /server_info, and a declared prefix from pin to unpin."""
    command = granikv_serve(model, *ARGUMENTS, *OURS, "--admin-api-key", ADMIN)
    with serving(command, tmp_path / "server.log") as server:
        prefix = tokens("served", 200)
        first = server.generate([*prefix, 7, 8, 9], 12)
        assert len(first) == 12
        assert server.generate([*prefix, 7, 8, 9], 12) == first
        state = server.storage()
        assert state["backends"]["decode"] == "granikv"
        assert state["backends"]["prefill"] == "torch_native"
        assert state["pools"]["hot_size"] == int(4096 * 0.4)
        assert state["counters"]["relocations"] >= 1
        assert state["counters"]["steps"] > 0
        assert "control_token" not in json.dumps(state)
        slabs = [n for n in state["tree"] if n["pool"] == "HOT"]
        assert slabs
        assert slabs[0]["p0"] == 0

        pinned = tokens("pinned", 300)
        status, refusal = server.ask("POST", "/granikv/pins", {"input_ids": pinned})
        assert status == 401, refusal
        status, pin = server.ask("POST", "/granikv/pins", {"input_ids": pinned}, ADMIN)
        assert (status, pin["tokens"], pin["pinned"]) == (200, 300, True)
        server.generate([*pinned, 5, 6], 4)
        held = [n for n in server.storage()["tree"] if n["pinned"]]
        assert sum(n["length"] for n in held) == 300
        assert {n["pool"] for n in held} == {"HOT"}

        for i in range(24):
            server.generate(tokens(f"filler{i}", 200), 2)
        state = server.storage()
        assert state["counters"]["slab_evictions"] > 0, "the pin was never under pressure"
        assert sum(n["length"] for n in state["tree"] if n["pinned"]) == 300

        status, over = server.ask(
            "POST", "/granikv/pins", {"input_ids": tokens("much", 700)}, ADMIN
        )
        assert status == 409
        assert "over the pin budget" in over["error"]
        for wrong in ({}, {"text": "no tokenizer here"}, {"input_ids": [[1], [2]]}, [1]):
            status, error = server.ask("POST", "/granikv/pins", wrong, ADMIN)
            assert status == 400, error
        forged = {"number": 9, "signature": "é"}
        for parameters in ({"granikv_pin": forged}, "no mapping"):
            sampling = {"max_new_tokens": 2, "custom_params": parameters}
            server.ask("POST", "/generate", {"input_ids": [5, 6], "sampling_params": sampling})
        assert [p["number"] for p in server.storage()["pins"]] == [pin["number"]]
        number = pin["number"]
        assert server.ask("DELETE", f"/granikv/pins/{number}", key=ADMIN)[0] == 200
        assert server.ask("DELETE", f"/granikv/pins/{number}", key=ADMIN)[0] == 404
        assert not [n for n in server.storage()["tree"] if n["pinned"]]

        tool = [sys.executable, "-m", "granikv.cli", "pins", "--url", server.url]
        shown = subprocess.run(
            [*tool, "--admin-key", ADMIN],
            cwd=REPOSITORY,
            capture_output=True,
            check=True,
            timeout=60,
        )
        assert json.loads(shown.stdout)["pins"] == []
        refused = subprocess.run(tool, cwd=REPOSITORY, capture_output=True, check=False, timeout=60)
        assert refused.returncode == 1
        assert b"admin key" in refused.stderr


def test_launch_server_takes_the_flag_and_dies_whole(model: Path, tmp_path: Path) -> None:
    """The engine's own command with --granikv; a scheduler that dies takes the server with it."""
    command = [sys.executable, "-m", "sglang.launch_server", "--model-path", str(model)]
    flags = ["--granikv", "--granikv-backend", "dense", "--host", "127.0.0.1"]
    with serving([*command, *ARGUMENTS, *OURS, *flags], tmp_path / "server.log") as server:
        prompt = tokens("launched", 100)
        server.generate([*prompt, 3], 4)
        with ThreadPoolExecutor(2) as together:  # what one request reads alone is not shared
            list(together.map(lambda last: server.generate([*prompt, last], 100), (4, 5)))
        assert server.storage()["counters"]["steps_dense"] > 0
        family = psutil.Process(server.process.pid).children(recursive=True)
        scheduler = next(p for p in family if "scheduler" in " ".join(p.cmdline()))
        scheduler.kill()
        assert server.process.wait(60) != 0
        deadline = time.monotonic() + 20
        while any(p.is_running() and p.status() != "zombie" for p in family):
            assert time.monotonic() < deadline, "a process was left behind"
            time.sleep(0.2)


def test_several_tokenizer_workers_serve_as_one(model: Path, tmp_path: Path) -> None:
    """Whichever of them takes a request; they do not check the admin key, so pins are not there."""
    flags = ["--tokenizer-worker-num", "2", "--granikv-backend", "dense"]
    command = granikv_serve(model, *ARGUMENTS, *OURS, *flags)
    # A worker imports the engine anew, and on a busy machine longer than it is given.
    patience = {"SGLANG_UVICORN_WORKER_HEALTHCHECK_TIMEOUT": "120"}
    with serving(command, tmp_path / "server.log", **patience) as server:
        prompt = tokens("workers", 100)
        alone = [server.generate([*prompt, last], 40) for last in range(8)]
        with ThreadPoolExecutor(8) as together:
            shared = list(together.map(lambda last: server.generate([*prompt, last], 40), range(8)))
        assert shared == alone
        states = [server.storage() for _ in range(6)]
        assert all(state["counters"]["steps_dense"] > 0 for state in states)
        assert server.ask("POST", "/flush_cache", {})[0] == 200
        assert server.storage()["pools"]["hot_live"] == 0
        assert server.ask("GET", "/granikv/pins", key=ADMIN)[0] == 404


REFUSALS = {
    "a flag of ours that is none": (["--granikv-hot-fractoin", "0.3"], "--granikv-hot-fractoin"),
    "a feature of the engine": (["--enable-hierarchical-cache"], "does not support HiCache"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_is_unsupported_is_refused_in_one_line(name: str, model: Path, tmp_path: Path) -> None:
    flags, said = REFUSALS[name]
    assert_refused(granikv_serve(model, *ARGUMENTS, *flags), said, tmp_path)


def test_a_missing_model_is_refused_in_one_line(tmp_path: Path) -> None:
    command = granikv_serve(tmp_path / "nowhere", *ARGUMENTS)
    assert_refused(command, "there is no model at", tmp_path)


def test_a_busy_port_is_refused_in_one_line(model: Path, tmp_path: Path) -> None:
    import socket

    port = free_port()
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", port))
        holder.listen()
        command = granikv_serve(model, *ARGUMENTS, "--port", str(port))
        assert_refused(command, f"cannot serve at 127.0.0.1:{port}", tmp_path)


@pytest.mark.parametrize(
    "broken",
    [
        "granikv.engine.backend:GraniKVDecodeBackend.__init__",
        "granikv.engine.tree:GraniKVRadixCache.__init__",
    ],
)
def test_a_part_that_cannot_be_built_ends_the_server(
    broken: str, model: Path, tmp_path: Path
) -> None:
    """No silent fallback to the stock engine (failure kind 20)."""
    command = [sys.executable, "-m", "tests.engine.broken_server", "--model-path", str(model)]
    arguments = [*ARGUMENTS, "--granikv", "--port", str(free_port()), "--host", "127.0.0.1"]
    log = tmp_path / "server.log"
    process = run([*command, *arguments], log, GRANIKV_TEST_BROKEN=broken)
    assert process.wait(180) != 0
    lines = [line for line in log.read_text().splitlines() if line.startswith("granikv: ")]
    assert len(lines) == 1, log.read_text()[-3000:]
    assert "broken for this test" in lines[0]
    assert_nothing_left(process.pid)


def assert_refused(command: list[str], said: str, tmp_path: Path) -> None:
    """One line of ours that says why, a non-zero exit, and no process left."""
    log = tmp_path / "server.log"
    process = run(command, log)
    assert process.wait(180) != 0
    lines = [line for line in log.read_text().splitlines() if line.startswith("granikv: ")]
    assert len(lines) == 1, log.read_text()[-3000:]
    assert said in lines[0]
    assert "Traceback" not in log.read_text()
    assert_nothing_left(process.pid)


def assert_nothing_left(leader: int) -> None:
    """Every process that the command started is gone, or is within moments."""
    deadline = time.monotonic() + 15
    while left := [p for p in psutil.process_iter() if _same_group(p, leader)]:
        assert time.monotonic() < deadline, left
        time.sleep(0.2)


def _same_group(candidate: psutil.Process, leader: int) -> bool:
    import os

    try:
        return os.getpgid(candidate.pid) == leader and candidate.status() != "zombie"
    except (ProcessLookupError, psutil.NoSuchProcess):
        return False
