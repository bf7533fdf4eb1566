"""Measuring the cells of a sweep one after another, within a number of minutes if there is one."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from harness.sweeps.entry import Entry
from harness.sweeps.estimate import Estimator

CLOSING_S = 10.0
"""Kept for ending the last server."""
MOST_STARTS = 2
"""A server that failed to start so often is not started again in this sweep."""


@dataclass
class Clock:
    """Until when cells may run. minutes: from now on; None: without end."""

    minutes: float | None
    began: float = field(default_factory=time.monotonic)

    @property
    def left_s(self) -> float:
        """Seconds left for cells; negative when time is up."""
        if self.minutes is None:
            return float("inf")
        return self.began + 60 * self.minutes - CLOSING_S - time.monotonic()


def run(
    entries: Sequence[Entry],
    measure: Callable[[Entry], bool],
    estimator: Estimator,
    clock: Clock,
    console: Console,
    say: Callable[[str], None],
) -> list[Entry]:
    """Measure cells in their order; the ones for which there was no time.

    measure: gives whether the cell's server failed to start. The next cell is always the first
    that, by the estimate, ends in time.
    """
    due, running = list(entries), ""
    failed: Counter[str] = Counter()
    with _progress(console) as advance:
        for number in range(1, len(entries) + 1):
            entry = next((e for e in due if _fits(e, running, estimator, clock)), None)
            if entry is None:
                break
            due.remove(entry)
            rest = estimator.forecast(due).seconds if number > 1 else 0.0
            left = f", about {rest / 60:.0f} min after it" if rest >= 60 else ""
            say(f"[{number}/{len(entries)}] {entry.title}{left}")
            advance(entry.title, len(entries))
            failed[entry.server] += measure(entry)
            running = running if entry.stored else entry.server
            if failed[entry.server] >= MOST_STARTS:
                kept = [e for e in due if e.server != entry.server or e.stored]
                if len(kept) < len(due):
                    say(f"{len(due) - len(kept)} more cells of this server are left out")
                due = kept
    return due


def _fits(entry: Entry, running: str, estimator: Estimator, clock: Clock) -> bool:
    if entry.stored or clock.minutes is None:
        return True
    start_s = 0.0 if entry.server == running else estimator.start(entry)
    return estimator.cell(entry)[0] + start_s <= clock.left_s


@contextmanager
def _progress(console: Console) -> Iterator[Callable[[str, int], None]]:
    """A bar on a terminal, nothing in a log."""
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        disable=not console.is_terminal,
    )
    with progress:
        bar = progress.add_task("cells", total=None)
        done = -1

        def advance(title: str, total: int) -> None:
            nonlocal done
            done += 1
            progress.update(bar, description=title, completed=done, total=total)

        yield advance
