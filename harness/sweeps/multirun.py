"""A sweep through one of Hydra's launchers: `python -m harness -m ...`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from harness import store
from harness.config import describe
from harness.errors import HarnessError
from harness.sweeps.entry import Entry, schedule
from harness.sweeps.estimate import Estimator
from harness.sweeps.order import ORDERS, arrange
from harness.sweeps.run import Clock, run

used_roots: set[Path] = set()
"""Results directories whose servers jobs of this sweep may have started."""


class SweepError(HarnessError):
    """Some cells failed; `failures` says why, one line each."""

    def __init__(self, failures: Sequence[str]) -> None:
        super().__init__(f"{len(failures)} cells failed")
        self.failures = list(failures)


def say(text: str) -> None:
    """A line of progress; Hydra's logging is set up anew by every job and drops others."""
    print(text, file=sys.stderr, flush=True)


def sweep(
    arguments: Sequence[str], order: str, launcher: Launcher, config: DictConfig
) -> list[JobReturn]:
    """Plan the cells, say what they will take, and launch them; raises SweepError at the end.

    One at a time with Hydra's own launcher; another is given them all and runs them as it likes.
    """
    planned = schedule([arguments])
    if not planned.entries:
        raise SweepError([f"{name}: {reason}" for name, reason in planned.refused.items()])
    entries = arrange(planned.entries, order)
    used_roots.update(entry.root for entry in entries)
    estimator = Estimator(cell for root in used_roots for cell in store.load_cells(root))
    for name, reason in planned.refused.items():
        say(f"left out: {name}: {reason}")
    for name in ORDERS:
        chosen = " (hydra.sweeper.order)" if name == order else ""
        say(f"{name}{chosen}: {estimator.forecast(arrange(planned.entries, name))}")
    directory = Path(str(config.hydra.sweep.dir))
    directory.mkdir(parents=True, exist_ok=True)
    OmegaConf.save(config, directory / "multirun.yaml")
    one_by_one = config.hydra.runtime.choices["hydra/launcher"] == "basic"
    if one_by_one:
        returns = _one_by_one(entries, launcher, estimator)
    else:
        returns = list(launcher.launch([list(entry.overrides) for entry in entries], 0))
    failures = [describe(r._return_value) for r in returns if r.status is JobStatus.FAILED]
    if failures:
        raise SweepError(failures)
    return returns


def _one_by_one(
    entries: Sequence[Entry], launcher: Launcher, estimator: Estimator
) -> list[JobReturn]:
    returns: list[JobReturn] = []

    def measure(entry: Entry) -> bool:
        returns.extend(launcher.launch([list(entry.overrides)], len(returns)))
        cell = store.read(store.runs(entry.root) / entry.id)
        if cell is not None:
            estimator.learn(cell)
        return cell is not None and cell.unserved

    run(entries, measure, estimator, Clock(None), Console(stderr=True), say)
    return returns
