"""The parent of one server: ends it, whole tree, when nobody alive uses it.

`python -m harness.servers.keeper DIRECTORY` is started by `harness.server` and outlives it. A
harness that is killed cannot clean up after itself; its lease dies with it, and the keeper notices.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import psutil
from filelock import FileLock, Timeout

from harness.files import write_json
from harness.servers import leases

POLL_S = 0.2
GRACE_S = 10.0
PR_SET_CHILD_SUBREAPER = 36


class Keeper:
    """One server and the watch over it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.launch: dict[str, Any] = json.loads((directory / "launch.json").read_text("utf-8"))
        self.state: dict[str, Any] = {}
        self.asked_to_stop = False
        self.last_used = time.monotonic()

    def run(self) -> int:
        """Start the server and wait until it ends or must end; 0 when it was asked to."""
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        _adopt_orphans()
        server = self._start()
        while (code := server.poll()) is None and self._wanted():
            time.sleep(POLL_S)
        self._end(server)
        asked = code is None
        write_json(self.directory / "exit.json", {"asked": asked, "code": server.returncode})
        (self.directory / "server.json").unlink(missing_ok=True)
        return 0 if asked else 1

    def _start(self) -> subprocess.Popen[bytes]:
        with (self.directory / self.launch["log"]).open("ab") as log:
            server = subprocess.Popen(
                self.launch["command"],
                env={**os.environ, **self.launch["environment"]},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.state = {
            "title": self.launch["title"],
            "server": leases.stamp(server.pid),
            "keeper": leases.stamp(os.getpid()),
            "port": self.launch["port"],
            "log": self.launch["log"],
            "device": self.launch["device"],
            "share": self.launch["share"],
            "linger_s": self.launch["linger_s"],
        }
        write_json(self.directory / "server.json", self.state)
        return server

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self.asked_to_stop = True

    def _wanted(self) -> bool:
        if self.asked_to_stop:
            return False
        if leases.living(self.directory):
            self.last_used = time.monotonic()
            return True
        idle_s = time.monotonic() - self.last_used
        return idle_s <= float(self.launch["linger_s"]) or not self._given_up()

    def _given_up(self) -> bool:
        """Whether nobody took the server at the last moment; from here on nobody can."""
        try:
            with FileLock(self.directory / "lock", timeout=0):
                if leases.living(self.directory):
                    return False
                write_json(self.directory / "server.json", {**self.state, "ending": True})
                return True
        except Timeout:
            return False

    def _end(self, server: subprocess.Popen[bytes]) -> None:
        with suppress(ProcessLookupError):
            server.terminate()
        with suppress(subprocess.TimeoutExpired):
            server.wait(self.launch["grace_s"])
        rest = psutil.Process().children(recursive=True)
        for process in rest:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        server.wait()
        psutil.wait_procs(rest, timeout=GRACE_S)


def _adopt_orphans() -> None:
    """A server's grandchildren whose parent dies become ours, so that none escapes."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(Keeper(Path(sys.argv[1])).run())
