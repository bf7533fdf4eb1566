"""A pacer (harness.load.pacer) in a process of its own, and what it says it wrote and when."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import psutil

from harness import http
from harness.errors import HarnessError
from harness.load.pacer import Pace
from workloads.request import Request

REPOSITORY = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Written:
    """The server's side of one request. Times in s on the clock of `harness.client.now`."""

    received: float
    tokens: Sequence[float]

    @property
    def ttft_s(self) -> float:
        """From having read the request to writing its first token, in s."""
        return self.tokens[0] - self.received

    @property
    def tpot_s(self) -> float:
        """Time per token after the first, in s."""
        return (self.tokens[-1] - self.tokens[0]) / (len(self.tokens) - 1)


@dataclass(frozen=True)
class Paced:
    """A running pacer."""

    url: str
    process: psutil.Process

    def set(self, pace: Pace) -> None:
        """The delays from now on; forgets what was written."""
        status, _ = http.request(f"{self.url}/pace", content=asdict(pace))
        if status != 200:
            raise HarnessError("the pacer does not answer")

    def written(self) -> dict[int, Written]:
        """What was written since `set`, by the first token id of the prompt."""
        record = http.get_json(f"{self.url}/record")["requests"]
        return {row["key"]: Written(row["received"], row["written"]) for row in record}

    def cpu_s(self) -> float:
        """Processor time that it has used, in s."""
        times = self.process.cpu_times()
        return float(times.user + times.system)


@contextmanager
def pacing() -> Iterator[Paced]:
    """A pacer while the block runs."""
    path = os.pathsep.join(p for p in (str(REPOSITORY), os.environ.get("PYTHONPATH")) if p)
    process = subprocess.Popen(
        [sys.executable, "-m", "harness.load.pacer"],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        port = process.stdout.readline()
        if not port:
            raise HarnessError("the pacer did not start")
        yield Paced(f"http://127.0.0.1:{int(port)}", psutil.Process(process.pid))
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def keyed(due_s: Sequence[float], prompt_tokens: int, output_tokens: int) -> list[Request]:
    """Requests due at these times whose first token id is their index, as `Paced.written` needs."""
    return [
        Request(
            index=index,
            input_ids=np.full(prompt_tokens, index),
            max_new_tokens=output_tokens,
            due_s=float(due),
        )
        for index, due in enumerate(due_s)
    ]
