"""The harness's end of the sampling process: started before a load, stopped after its drain."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.systems.base import CPU
from harness.telemetry.gpus import chosen
from harness.telemetry.sample import GPU, Sample, SourceError

READY_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 30.0
REPOSITORY = Path(__file__).resolve().parents[2]
FAILED = {"telemetry": "the sampling process failed"}


@dataclass(frozen=True)
class Target:
    """A server to watch. ranks: its processes, one GPU each. visible: its CUDA_VISIBLE_DEVICES."""

    url: str
    device: str
    ranks: int
    visible: str | None


@dataclass(frozen=True)
class Recording:
    """What a watch saw. missing: what it could not see, by source, and why, in one line each."""

    samples: list[Sample] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)


def orders(options: Mapping[str, Any], target: Target) -> tuple[dict[str, Any], dict[str, str]]:
    """What the sampling process is told (`harness.telemetry.sampler`), and what is missing already.

    options: the group `telemetry`.
    """
    told: dict[str, Any] = {}
    missing: dict[str, str] = {}
    if options["gpu_hz"] and target.device == CPU:
        missing[GPU] = "the server runs on the CPU"
    elif options["gpu_hz"]:
        try:
            names = chosen(target.visible, target.ranks)
            module = options["nvml_module"]
            told["gpus"] = {"names": names, "hz": options["gpu_hz"], "module": module}
        except SourceError as error:
            missing[GPU] = str(error)
    for source in ("metrics", "state"):
        if options[f"{source}_hz"]:
            told[source] = {"url": target.url, "hz": options[f"{source}_hz"]}
    return told, missing


class Watch:
    """Samples from its start to its stop; a failure of it costs its samples, never the cell."""

    def __init__(self, options: Mapping[str, Any], target: Target) -> None:
        told, missing = orders(options, target)
        self.recording = Recording(missing=missing)
        self._process = _spawn(told) if told else None

    def stop(self) -> None:
        """End the process and take what it has."""
        if self._process is None:
            return
        try:
            reply, _ = self._process.communicate(timeout=STOP_TIMEOUT_S)
            found = json.loads(reply.splitlines()[-1])
            samples = [Sample(*row) for row in found["samples"]]
            missing = self.recording.missing | found["missing"]
        except (subprocess.TimeoutExpired, OSError, ValueError, LookupError, TypeError):
            self._process.kill()
            self._process.wait()
            samples, missing = [], self.recording.missing | FAILED
        self.recording = Recording(samples, missing)
        self._process = None


@contextmanager
def watching(options: Mapping[str, Any], target: Target) -> Iterator[Watch]:
    """A watch over the block; its recording is there afterwards."""
    watch = Watch(options, target)
    try:
        yield watch
    finally:
        watch.stop()


def _spawn(told: Mapping[str, Any]) -> subprocess.Popen[str]:
    """The sampling process, once it has read every source."""
    path = os.pathsep.join(p for p in (str(REPOSITORY), os.environ.get("PYTHONPATH")) if p)
    process = subprocess.Popen(
        [sys.executable, "-m", "harness.telemetry.sampler"],
        env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    # One that has died already is noticed when it is asked for its samples.
    with suppress(BrokenPipeError):
        process.stdin.write(json.dumps(told) + "\n")
        process.stdin.flush()
    if select.select([process.stdout], [], [], READY_TIMEOUT_S)[0]:
        process.stdout.readline()
    return process
