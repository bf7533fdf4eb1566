"""A real HTTP server for a test: started as a user starts it, asked over loopback, ended whole."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from tests.engine.conftest import CPU_ENVIRONMENT, REPOSITORY

__all__ = ["REPOSITORY", "free_port", "granikv_serve", "run", "serving"]

START_LIMIT_S = 120
ARGUMENTS = [
    *("--device", "cpu"),
    *("--attention-backend", "torch_native"),
    *("--sampling-backend", "pytorch"),
    *("--grammar-backend", "none"),
    "--skip-tokenizer-init",
    *("--dtype", "float32"),
    *("--max-running-requests", "8"),
    *("--max-total-tokens", "4096"),
]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """A server that answers."""

    def __init__(self, url: str, process: subprocess.Popen[bytes]) -> None:
        self.url = url
        self.process = process

    def ask(
        self, method: str, path: str, body: Any = None, key: str | None = None
    ) -> tuple[int, Any]:
        """Status and JSON of one request."""
        headers = {"Content-Type": "application/json"}
        if key is not None:
            headers["Authorization"] = f"Bearer {key}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, _content(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, _content(error.read())

    def generate(self, prompt: list[int], new: int) -> list[int]:
        sampling = {"temperature": 0, "max_new_tokens": new, "ignore_eos": True}
        body = {"input_ids": prompt, "sampling_params": sampling}
        status, answer = self.ask("POST", "/generate", body)
        assert status == 200, answer
        return list(answer["output_ids"])

    def storage(self) -> dict[str, Any]:
        _, info = self.ask("GET", "/server_info")
        return dict(info["internal_states"][0]["granikv"][0])


def _content(body: bytes) -> Any:
    """JSON where it is JSON; `/health` answers with nothing."""
    text = body.decode()
    return json.loads(text) if text.startswith(("{", "[")) else text


def run(command: Sequence[str], log: Path, **environment: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        list(command),
        cwd=REPOSITORY,
        env={**os.environ, **CPU_ENVIRONMENT, **environment},
        stdout=log.open("wb"),
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


@contextmanager
def serving(command: Sequence[str], log: Path, **environment: str) -> Iterator[Server]:
    """Start ``command`` on a free port, wait for an answer, end all of its processes after."""
    port = free_port()
    process = run([*command, "--port", str(port)], log, **environment)
    server = Server(f"http://127.0.0.1:{port}", process)
    try:
        wait_until_healthy(server, log)
        yield server
    finally:
        end(process)


def wait_until_healthy(server: Server, log: Path) -> None:
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline:
        assert server.process.poll() is None, log.read_text()[-4000:]
        try:
            if server.ask("GET", "/health")[0] == 200:
                return
        except (urllib.error.URLError, OSError):
            pass
        time.sleep(0.5)
    raise AssertionError(log.read_text()[-4000:])


def end(process: subprocess.Popen[bytes]) -> None:
    """End the process and everything it started."""
    try:
        members = [psutil.Process(process.pid), *psutil.Process(process.pid).children(True)]
    except psutil.NoSuchProcess:
        members = []
    for member in members:
        try:
            member.kill()
        except psutil.NoSuchProcess:
            continue
    process.wait(30)


def granikv_serve(model: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "granikv.cli", "serve", "--model-path", str(model), *arguments]
