"""Running a program to its end, with a sign of life on the way."""

from __future__ import annotations

import logging
import os
import subprocess
import time
from collections.abc import Mapping, Sequence

from harness import server
from harness.errors import HarnessError

logger = logging.getLogger(__name__)

PROGRESS_S = 10.0


def run(name: str, command: Sequence[str], environment: Mapping[str, str], timeout_s: float) -> str:
    """Its standard output. Raises HarnessError, with its last words, unless it ends well."""
    path = os.pathsep.join(p for p in (str(server.REPOSITORY), os.environ.get("PYTHONPATH")) if p)
    process = subprocess.Popen(
        list(command),
        env={**os.environ, "PYTHONPATH": path, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        out, err = _finish(process, name, timeout_s)
    finally:
        process.kill()
        process.wait()
    if process.returncode:
        last = (err.strip() or out.strip() or "it said nothing").splitlines()[-1]
        raise HarnessError(f"{name} failed: {last}")
    return out


def _finish(process: subprocess.Popen[str], name: str, timeout_s: float) -> tuple[str, str]:
    began = time.monotonic()
    while True:
        left = timeout_s - (time.monotonic() - began)
        try:
            return process.communicate(timeout=max(0.01, min(PROGRESS_S, left)))
        except subprocess.TimeoutExpired:
            passed = time.monotonic() - began
            if passed >= timeout_s:
                raise HarnessError(
                    f"{name} was not done after {timeout_s:,.0f} s (workload.timeout_s)"
                ) from None
            logger.info("%s: still running after %.0f s", name, passed)
