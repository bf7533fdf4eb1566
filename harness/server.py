"""A server for a cell: started, or found running and reused; ended when its last user is done.

    with acquire(spec, options) as server:
        ... server.url ...
    release()      # once, when the program ends: servers that nobody else uses end with it

One server at a time is measured on a device: `acquire` holds the device's lock. Servers of other
configurations on the device are ended first, since they hold its memory.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import tenacity
from filelock import FileLock, Timeout

from harness import http
from harness.errors import ServerError
from harness.files import write_json
from harness.servers import leases
from harness.servers.log import last_error, tail
from harness.servers.spec import ServerSpec, servers
from harness.systems.base import ServerInfo

logger = logging.getLogger(__name__)

POLL_S = 0.5
PROGRESS_S = 10.0
STOP_TIMEOUT_S = 90.0
GRACE_S, WRAPPED_GRACE_S = 3.0, 30.0
"""Until a server that is told to end is killed; a profiler around it still writes its report."""
DEVICE_WAIT_S = 24 * 3600.0
PORT_TAKEN = "address already in use"
REPOSITORY = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class StartOptions:
    """How to start a server.

    port: fixed, or None for any free one. start_timeout_s: until it must be healthy. linger_s: how
    long it outlives its last user.
    """

    port: int | None
    start_timeout_s: float
    linger_s: float


@dataclass(frozen=True)
class RunningServer:
    """A server that answered its health check. url: without a slash at its end."""

    spec: ServerSpec
    port: int
    log: Path
    reused: bool
    mark: str
    """Stamp of the server's process."""

    @property
    def url(self) -> str:
        """Its address on the loopback interface."""
        return f"http://127.0.0.1:{self.port}"

    def is_alive(self) -> bool:
        """Whether its process still runs."""
        return leases.is_alive(self.mark)

    def info(self) -> ServerInfo:
        """Its `/server_info`. Raises ServerError."""
        return ServerInfo(http.get_json(f"{self.url}/server_info"))

    def death(self) -> str:
        """Why it is gone, in one line."""
        code = _exit_code(self.spec.directory)
        how = f" (signal {-code})" if code is not None and code < 0 else ""
        return f"{self.spec.title} died{how}: {last_error(self.log)}"


@contextmanager
def acquire(spec: ServerSpec, options: StartOptions) -> Iterator[RunningServer]:
    """A healthy server of this configuration, alone on its device while the block runs.

    Raises ServerError: it does not start, dies, or its port is taken.
    """
    with alone(spec):
        yield _find(spec) or _start(spec, options)


@contextmanager
def alone(spec: ServerSpec) -> Iterator[None]:
    """The device to oneself while the block runs, servers of other configurations ended."""
    with _device(spec):
        _stop_others(spec)
        yield


def release(root: Path) -> None:
    """Give up every server of this session and wait for those to end that nobody else uses.

    One that is to linger (engine.linger_s) is given up and not waited for.
    """
    session = leases.open_session()
    ending = []
    for directory in _directories(root):
        leases.drop(directory, session)
        state = _state(directory)
        if state and not state["linger_s"] and not leases.living(directory):
            ending.append(state["keeper"])
    _await_end(ending)


def running(root: Path) -> list[dict[str, Any]]:
    """What runs from a results directory: the keeper's notes on each server."""
    return [state for directory in _directories(root) if (state := _state(directory))]


def stop_all(root: Path) -> int:
    """End every server of a results directory, whoever uses it; how many there were."""
    states = running(root)
    for state in states:
        _signal(state["keeper"])
    _await_end([state["keeper"] for state in states])
    return len(states)


@contextmanager
def _device(spec: ServerSpec) -> Iterator[None]:
    lock_path = servers(spec.root) / f"device-{spec.device}.lock"
    lock_path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(lock_path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        logger.info("waiting: another program measures on device %s", spec.device)
        lock.acquire(timeout=DEVICE_WAIT_S)
    try:
        yield
    finally:
        lock.release()


def _directories(root: Path) -> list[Path]:
    return sorted(path for path in servers(root).glob("*") if path.is_dir())


def _noted(directory: Path) -> dict[str, Any] | None:
    """What the keeper wrote, as long as the keeper lives."""
    try:
        state: dict[str, Any] = json.loads((directory / "server.json").read_text("utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    return state if leases.is_alive(state["keeper"]) else None


def _state(directory: Path) -> dict[str, Any] | None:
    """The keeper's notes on a server that lives and is to go on living."""
    state = _noted(directory)
    if state is None or state.get("ending") or not leases.is_alive(state["server"]):
        return None
    return state


def _exit_code(directory: Path) -> int | None:
    """How the server ended, once its keeper has cleaned up behind it; None when it does not say."""
    _await_keeper(directory)
    try:
        code: int = json.loads((directory / "exit.json").read_text("utf-8"))["code"]
    except (FileNotFoundError, ValueError):
        return None
    return code


def _await_keeper(directory: Path) -> None:
    """Wait for the keeper of a server that is gone or going: it ends what that server started."""
    state = _noted(directory)
    if state and _state(directory) is None:
        _await_end([state["keeper"]])


def _find(spec: ServerSpec) -> RunningServer | None:
    """The server of this configuration that already runs, if it is ours and healthy."""
    with FileLock(_prepared(spec) / "lock"):
        state = _state(spec.directory)
        if state is None:
            return None
        server = _running(spec, state, reused=True)
        leases.take(spec.directory, leases.open_session())
        # The scheduler's answer too, as /health is, which takes a second.
        status, _ = http.request(f"{server.url}/server_info", timeout_s=60.0)
        if status != 200:
            logger.info("%s runs but is not healthy: it is started again", spec.title)
            _signal(state["keeper"])
            _await_end([state["keeper"]])
            return None
    logger.info("%s: using the server that runs already", spec.title)
    return server


def _running(spec: ServerSpec, state: Mapping[str, Any], reused: bool) -> RunningServer:
    log = spec.directory / state["log"]
    return RunningServer(spec, state["port"], log, reused, mark=state["server"])


def _prepared(spec: ServerSpec) -> Path:
    spec.directory.mkdir(parents=True, exist_ok=True)
    return spec.directory


def _stop_others(spec: ServerSpec) -> None:
    """End what shares the device's memory with this server, the oldest first, until it fits."""
    others = []
    for directory in _directories(spec.root):
        _await_keeper(directory)
        state = _state(directory)
        if state and directory != spec.directory and _overlap(state["device"], spec.device):
            others.append((directory.stat().st_mtime, state["share"], state["keeper"]))
    room, ending = 1.0 - spec.share, []
    for _, share, keeper in sorted(others, reverse=True):
        room -= share
        if room < 0:
            _signal(keeper)
            ending.append(keeper)
    _await_end(ending)


def _overlap(one: str, other: str) -> bool:
    """Whether two devices, such as `cuda-0-1` and `cuda-1`, have a GPU in common."""
    kind, _, names = one.partition("-")
    other_kind, _, other_names = other.partition("-")
    if kind != other_kind:
        return False
    mine, theirs = set(names.split("-")), set(other_names.split("-"))
    return "all" in mine | theirs or bool(mine & theirs)


def _signal(mark: str) -> None:
    if leases.is_alive(mark):
        with suppress(ProcessLookupError):
            os.kill(int(mark.partition("-")[0]), signal.SIGTERM)


def _await_end(marks: list[str]) -> None:
    deadline = time.monotonic() + STOP_TIMEOUT_S
    while any(leases.is_alive(mark) for mark in marks):
        if time.monotonic() > deadline:
            raise ServerError("a server did not end; look at its log under results/servers/")
        time.sleep(0.1)


def _start(spec: ServerSpec, options: StartOptions) -> RunningServer:
    try:
        return _start_once(spec, options)
    except ServerError as error:
        if options.port is not None or PORT_TAKEN not in str(error).lower():
            raise
        logger.info("the chosen port was taken meanwhile: trying another")
        return _start_once(spec, options)


def _start_once(spec: ServerSpec, options: StartOptions) -> RunningServer:
    port = _port(options.port)
    with FileLock(_prepared(spec) / "lock"):
        _await_keeper(spec.directory)
        (spec.directory / "exit.json").unlink(missing_ok=True)
        log = _launch(spec, options, port)
        keeper = _spawn_keeper(spec.directory)
        logger.info("%s: starting its server", spec.title)
        try:
            _await_health(spec, keeper, port, log, options.start_timeout_s)
        except BaseException:
            keeper.terminate()
            keeper.wait()
            raise
        state = _state(spec.directory)
        if state is None:
            raise ServerError(f"{spec.title} died after its start: {last_error(log)}")
        return _running(spec, state, reused=False)


def _launch(spec: ServerSpec, options: StartOptions, port: int) -> Path:
    name = time.strftime("server-%Y%m%d-%H%M%S.log")
    launch = {
        "title": spec.title,
        "command": spec.command(port),
        "environment": spec.environment,
        "port": port,
        "log": name,
        "device": spec.device,
        "share": spec.share,
        "linger_s": options.linger_s,
        "grace_s": WRAPPED_GRACE_S if spec.wrapper else GRACE_S,
    }
    write_json(spec.directory / "launch.json", launch)
    leases.take(spec.directory, leases.open_session())
    return spec.directory / name


def _spawn_keeper(directory: Path) -> subprocess.Popen[bytes]:
    path = os.pathsep.join(p for p in (str(REPOSITORY), os.environ.get("PYTHONPATH")) if p)
    with (directory / "keeper.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "harness.servers.keeper", str(directory)],
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _port(fixed: int | None) -> int:
    """A loopback port that is free now. Raises ServerError when the fixed one is not."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", fixed or 0))
        except OSError:
            raise ServerError(
                f"port {fixed} is taken: choose another with engine.port=N, or engine.port=null"
            ) from None
        return int(probe.getsockname()[1])


def _listens(spec: ServerSpec, port: int) -> bool:
    """Whether the port is our server's: a stranger that took it meanwhile may answer as well."""
    state = _state(spec.directory)
    if state is None:
        return False
    server = psutil.Process(int(state["server"].partition("-")[0]))
    for process in [server, *server.children(recursive=True)]:
        with suppress(psutil.Error):
            sockets = process.net_connections(kind="tcp")
            if any(s.status == psutil.CONN_LISTEN and s.laddr.port == port for s in sockets):
                return True
    return False


def _await_health(
    spec: ServerSpec, keeper: subprocess.Popen[bytes], port: int, log: Path, timeout_s: float
) -> None:
    started = time.monotonic()
    shown = started

    def healthy() -> bool:
        nonlocal shown
        if keeper.poll() is not None:
            where = log.relative_to(spec.root.parent)
            raise ServerError(f"{spec.title} did not start: {last_error(log)} (log: {where})")
        if time.monotonic() - shown >= PROGRESS_S:
            shown = time.monotonic()
            logger.info("%s: not up yet after %.0f s", spec.title, shown - started)
        status, _ = http.request(f"http://127.0.0.1:{port}/health", timeout_s=10.0)
        return status == 200 and _listens(spec, port)

    waiting = tenacity.Retrying(
        retry=tenacity.retry_if_result(lambda ok: not ok),
        wait=tenacity.wait_fixed(POLL_S),
        stop=tenacity.stop_after_delay(timeout_s),
    )
    try:
        waiting(healthy)
    except tenacity.RetryError:
        last = (tail(log) or ["its log is empty"])[-1]
        raise ServerError(
            f"{spec.title} was not up after {timeout_s:.0f} s (engine.start_timeout_s): {last}"
        ) from None
    logger.info("%s: up after %.0f s", spec.title, time.monotonic() - started)
