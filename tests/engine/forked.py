"""A run of `drive` in a fork of a process that has imported the engine already.

Importing it is most of what a short run costs, three times over where processes are spawned.
`test_ranks.py`, `test_burst.py` and `test_serve.py` start theirs as users do, by spawning.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
from collections.abc import Mapping
from functools import cache
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

IMPORTED = (
    "tests.engine.forked",
    "tests.engine.forced",
    "sglang.srt.entrypoints.engine",
    "sglang.srt.models.registry",
)


@cache
def _importer() -> ForkServerContext:
    """One process a worker, which imports and forks; it has activated no plugin and no mutant."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(IMPORTED))
    return context


def run(job: Path, out: Path, log: Path, environment: Mapping[str, str], limit_s: float) -> int:
    """The exit status of `drive.main(job, out)`, which writes to `log`."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)  # what a library reads at its import must stand before it
        context = _importer()
        forkserver.ensure_running()
    process = context.Process(target=_in_fork, args=(job, out, log, dict(environment)))
    process.start()
    process.join(limit_s)
    if process.exitcode is None:
        process.kill()
        raise TimeoutError(f"{job.name} ran longer than {limit_s} s: {log.read_text()[-6000:]}")
    return process.exitcode


def _in_fork(job: Path, out: Path, log: Path, environment: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environment)
    with log.open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    multiprocessing.set_start_method("fork", force=True)
    # The engine asks for "spawn", and would import everything again.
    multiprocessing.set_start_method = lambda method, force=False: None
    gc.freeze()  # three processes need not each look through what is imported
    from tests.engine import drive  # not before: it changes its process as the environment says

    drive.main(str(job), str(out))
