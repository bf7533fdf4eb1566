"""Servers: started, reused, ended with everything they started, and their deaths reported."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from harness import http, server
from harness.errors import ServerError
from harness.server import StartOptions, acquire, release
from harness.servers import leases
from harness.servers.spec import ServerSpec
from tests.harness.conftest import FAKE_MODULE

REPOSITORY = Path(__file__).resolve().parents[2]
OPTIONS = StartOptions(port=None, start_timeout_s=60, linger_s=0)


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    server.stop_all(tmp_path)


def spec(root: Path, *arguments: str, faults: str = "{}", device: str = "cpu") -> ServerSpec:
    path = root / "faults.json"
    path.write_text(faults)
    environment = {"FAULTS": str(path)}
    return ServerSpec(
        "fake", sys.executable, FAKE_MODULE, arguments, environment, device, root
    )  # fmt: skip


def eventually(condition: Callable[[], bool], timeout_s: float = 15.0) -> bool:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return condition()


def pid_of(mark: str) -> int:
    return int(mark.partition("-")[0])


def test_a_server_is_started_reused_and_ended(root: Path) -> None:
    with acquire(spec(root), OPTIONS) as first:
        assert not first.reused
        assert http.request(f"{first.url}/health")[0] == 200
    with acquire(spec(root), OPTIONS) as second:
        assert second.reused
        assert second.port == first.port
        assert second.mark == first.mark
    release(root)
    assert not first.is_alive()
    assert http.request(f"{first.url}/health")[0] == 0


def test_the_log_is_kept(root: Path) -> None:
    with acquire(spec(root), OPTIONS) as running:
        log = running.log
    release(root)
    assert log.is_file()
    assert log.parent == spec(root).directory


def test_another_configuration_takes_the_device(root: Path) -> None:
    with acquire(spec(root), OPTIONS) as first:
        pass
    with acquire(spec(root, "--page-size", "16"), OPTIONS) as second:
        assert not first.is_alive()
        assert second.is_alive()
        assert second.info().argument("page_size") == 16


def test_another_device_is_left_alone(root: Path) -> None:
    with acquire(spec(root), OPTIONS) as first, acquire(spec(root, device="cuda-1"), OPTIONS):
        assert first.is_alive()


def test_one_cell_at_a_time_on_a_device(root: Path) -> None:
    entered = threading.Event()

    def other() -> None:
        with acquire(spec(root), OPTIONS):
            entered.set()

    thread = threading.Thread(target=other)
    with acquire(spec(root), OPTIONS):
        thread.start()
        assert not entered.wait(0.5)
    assert entered.wait(20)
    thread.join()


def test_an_early_death_is_reported_by_its_last_error(root: Path) -> None:
    dying = spec(root, faults='{"refuse_start": "ValueError: no such backend"}')
    with (
        pytest.raises(ServerError, match="did not start: ValueError: no such backend") as caught,
        acquire(dying, OPTIONS),
    ):
        pass
    assert f"(log: {root.name}/servers/" in str(caught.value)
    assert not _processes_of(root)


def test_a_server_that_is_never_healthy_is_given_up(root: Path) -> None:
    sleeper = root / "sleeper.py"
    sleeper.write_text("import time\nprint('thinking', flush=True)\ntime.sleep(600)\n")
    slow = ServerSpec("slow", sys.executable, "sleeper", (), {"PYTHONPATH": str(root)}, "cpu", root)
    options = StartOptions(port=None, start_timeout_s=2, linger_s=0)
    with pytest.raises(ServerError, match=r"not up after 2 s .*thinking"), acquire(slow, options):
        pass
    assert not _processes_of(root)


def test_a_busy_port_is_named(root: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        options = StartOptions(port=port, start_timeout_s=30, linger_s=0)
        with (
            pytest.raises(ServerError, match=f"port {port} is taken"),
            acquire(spec(root), options),
        ):
            pass


def test_a_stranger_on_the_port_is_not_taken_for_ours(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The port is lost between choosing and binding, and the stranger answers /health."""
    with acquire(spec(root, device="cuda-9"), OPTIONS) as stranger:
        ports = iter([stranger.port, server._port(None)])
        monkeypatch.setattr(server, "_port", lambda fixed: next(ports))
        with acquire(spec(root), OPTIONS) as ours:
            assert ours.port != stranger.port
            assert ours.is_alive()


def test_a_dead_server_is_started_again(root: Path) -> None:
    with acquire(spec(root), OPTIONS) as first:
        pass
    psutil.Process(pid_of(first.mark)).kill()
    assert eventually(lambda: not first.is_alive())
    with acquire(spec(root), OPTIONS) as second:
        assert not second.reused
        assert second.is_alive()


def test_the_whole_tree_ends(root: Path) -> None:
    """Even a process that left the server's group and session, as a daemon does."""
    orphan = root / "orphan"
    with acquire(spec(root, faults=f'{{"orphan": "{orphan}"}}'), OPTIONS):
        pid = int(orphan.read_text())
        assert psutil.pid_exists(pid)
    release(root)
    assert not psutil.pid_exists(pid)


def test_the_tree_ends_when_the_server_dies_by_itself(root: Path) -> None:
    orphan = root / "orphan"
    with acquire(spec(root, faults=f'{{"orphan": "{orphan}"}}'), OPTIONS) as running:
        pid = int(orphan.read_text())
        psutil.Process(pid_of(running.mark)).kill()
        assert eventually(lambda: not psutil.pid_exists(pid))


USER = """
import sys
from pathlib import Path
from harness import cli, server
from tests.harness.test_server import OPTIONS, spec
root = Path(sys.argv[1])
cli.used_roots.add(root)
with cli.servers_ended():
    with server.acquire(spec(root), OPTIONS) as running:
        pass
    print(running.mark, running.reused, flush=True)
    sys.stdin.readline()
"""
"""A program that measures a cell and then has others to measure, until it is told to end."""


def _user(root: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    environment.pop(leases.SESSION_VARIABLE, None)
    return subprocess.Popen(
        [sys.executable, "-c", USER, str(root)],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _told(user: subprocess.Popen[str]) -> list[str]:
    """Stamp of the user's server, and whether it was reused."""
    assert user.stdout is not None
    return user.stdout.readline().split()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_no_server_outlives_a_harness_that_is_stopped(root: Path, number: signal.Signals) -> None:
    user = _user(root)
    mark, _ = _told(user)
    assert leases.is_alive(mark)
    user.send_signal(number)
    user.wait(30)
    assert eventually(lambda: not _processes_of(root))
    assert not leases.is_alive(mark)


def test_processes_share_a_server_and_the_last_one_ends_it(root: Path) -> None:
    first = _user(root)
    mark, reused = _told(first)
    assert reused == "False"
    second = _user(root)
    assert _told(second) == [mark, "True"]
    first.communicate("end\n", timeout=30)
    assert leases.is_alive(mark)
    second.communicate("end\n", timeout=30)
    assert not leases.is_alive(mark)


def test_a_server_lingers_when_asked(root: Path) -> None:
    options = StartOptions(port=None, start_timeout_s=30, linger_s=600)
    with acquire(spec(root), options) as running:
        pass
    leases.drop(spec(root).directory, leases.open_session())
    time.sleep(1)
    assert running.is_alive()


def _processes_of(root: Path) -> list[int]:
    """Keepers and servers whose environment or command line names this directory."""
    found = []
    for process in psutil.process_iter():
        try:
            seen = " ".join([*process.cmdline(), process.environ().get("FAULTS", "")])
        except psutil.Error:
            continue
        named = str(root) in seen and process.pid != os.getpid()
        if named and process.status() != psutil.STATUS_ZOMBIE:
            found.append(process.pid)
    return found
